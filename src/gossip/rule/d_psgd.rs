//! D-PSGD: mix with the neighbours, step along the own gradient.
//!
//! Lian, Zhang, Zhang, Hsieh, Zhang, Liu: Can Decentralized Algorithms Outperform Centralized
//! Algorithms? (2017), Algorithm 1. Two orders are in use under this name; they are different
//! sequences:
//!
//! ```text
//! cta (combine, then adapt):  x_i' = sum_j W_ij x_j - lr g_i(x_i)           the paper's Algorithm 1
//! atc (adapt, then combine):  z_i  = x_i - lr g_i(x_i);  x_i' = sum_j W_ij z_j
//! ```
//! On a schedule W is the matrix W_t of the round: nothing of an earlier round is kept, so the
//! neighbours may change. State: x, one accumulator; cta keeps the update apart while frames are
//! added (one vector more).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Prepared, Rule, Setting, mix::Rows};
use crate::{
    compress::{Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        party::{Party, Writer},
        plan::{At, Gossip},
    },
    units::{NodeId, Round},
    vector,
};

pub(super) const ENTRY: Entry = Entry {
    name: "d-psgd",
    summary: "mix whole models with the neighbours, step along the own gradient",
    paper: "Lian et al. 2017, Can Decentralized Algorithms Outperform Centralized Algorithms?, \
            Algorithm 1",
    update: "atc: x_i' = sum_j W_ij (x_j - lr g_j); cta: x_i' = sum_j W_ij x_j - lr g_i",
    state: "none",
    sends: "the whole model, 4 d bytes",
    conditions: "rho < 1; a constant step leaves a floor of about lr^2 zeta^2 / (1 - rho)^2 on \
                 heterogeneous data",
    constants: &[(
        "order",
        "\"atc\" (default: with W = 11'/n it is centralized SGD) or \"cta\" (the paper's; gossip \
         overlaps the gradient)",
    )],
    compresses: false,
    home: "path",
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    #[default]
    Atc,
    Cta,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    order: Order,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let (topology, schedule) = (Arc::clone(setting.topology), Arc::clone(setting.schedule));
    let order = params.order;
    let plan = match order {
        Order::Atc => Gossip::after_gradient(topology, setting.dense()),
        Order::Cta => Gossip::around_gradient(topology, setting.dense()),
    };
    Ok(Prepared {
        plan: Arc::new(plan.following(&schedule)),
        resolved: config::resolved("d-psgd", &params),
        warnings: Vec::new(),
        spawn: Box::new(move |node, x| {
            let rows = Rows::of(&schedule, node);
            let spare = vec![0.0; x.len()];
            match order {
                Order::Atc => Box::new(Atc { rows, x, spare }),
                Order::Cta => Box::new(Cta { rows, acc: vec![0.0; x.len()], x, spare }),
            }
        }),
    })
}

struct Atc {
    rows: Rows,
    x: Vec<f32>,
    /// The update while it is computed, the accumulator while frames come in.
    spare: Vec<f32>,
}

impl Party for Atc {
    fn outgoing(
        &mut self,
        _at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(&self.x)
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        payload.add_into(self.rows.at(at.round).weight(from), &mut self.spare);
        Ok(())
    }

    fn land(&mut self, _at: &At) {
        std::mem::swap(&mut self.x, &mut self.spare);
    }
}

impl Rule for Atc {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        self.spare = update;
        // x_i' is sent, and W_ii x_i' begins the sum over what arrives: one pass.
        vector::subtract_and_scale(self.rows.at(round).own, &mut self.spare, &mut self.x);
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        2
    }
}

struct Cta {
    rows: Rows,
    x: Vec<f32>,
    acc: Vec<f32>,
    spare: Vec<f32>,
}

impl Party for Cta {
    fn outgoing(
        &mut self,
        _at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(&self.x)
    }

    fn sent(&mut self, at: &At, _to: Option<NodeId>, _own: &Payload<'_>) {
        vector::scaled(self.rows.at(at.round).own, &self.x, &mut self.acc);
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        payload.add_into(self.rows.at(at.round).weight(from), &mut self.acc);
        Ok(())
    }

    fn land(&mut self, _at: &At) {
        vector::subtract(&self.spare, &mut self.acc);
        std::mem::swap(&mut self.x, &mut self.acc);
    }
}

impl Rule for Cta {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        self.spare = update;
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        3
    }
}
