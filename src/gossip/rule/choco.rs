//! CHOCO-SGD: gossip on public copies that follow the models by compressed differences.
//!
//! Koloskova, Stich, Jaggi: Decentralized Stochastic Optimization and Gossip Algorithms with
//! Compressed Communication (2019), Algorithm 2 (order `icml`); Koloskova, Lin, Stich, Jaggi:
//! Decentralized Deep Learning with Arbitrary Communication Compression (2020), Algorithm 1 (order
//! `iclr`: gossip and gradient overlap).
//!
//! ```text
//! icml:  h_i = x_i - lr g_i(x_i);  q_i = C(h_i - xh_i);  xh_i += q_i at every holder;  x_i' = h_i + gamma sum_j W_ij (xh_j - xh_i)
//! iclr:  q_i = C(x_i - xh_i);  xh_i += q_i at every holder;  x_i' = x_i - lr g_i(x_i) + gamma sum_j W_ij (xh_j - xh_i)
//! ```
//! xh_0 = 0 everywhere, x_0 free. The mean moves by -lr mean g for any C, and the compression error
//! vanishes as the models settle. State: x, the own copy, one copy per neighbour. DIFFERENCE to the
//! papers' three-vector form, which keeps the sum of the copies: single copies can be proved equal
//! to their owner's.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    Entry, Prepared, Rule, Setting,
    mix::{Row, sum_into},
    nine_digits, positive, steps,
};
use crate::{
    compress::{Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        party::{Party, Writer},
        plan::{At, Gossip, Plan},
    },
    units::{NodeId, Round},
    vector,
};

pub(super) const ENTRY: Entry = Entry {
    name: "choco",
    summary: "gossip on public copies that follow the models by compressed differences",
    paper: "Koloskova et al. 2019, Decentralized Stochastic Optimization and Gossip Algorithms \
            with Compressed Communication, Algorithm 2",
    update: "h_i = x_i - lr g_i; q_i = C(h_i - xh_i); xh_i += q_i at every holder; x_i = h_i + \
             gamma sum_j W_ij (xh_j - xh_i)",
    state: "the own public copy and one per neighbour",
    sends: "q_i",
    conditions: "a contraction (nominal delta > 0); gamma below delta / max_i sum_{j != i} |W_ij| \
                 is stable for random-k (1.5 delta on a ring), below about 5 k / d for top-k",
    constants: &[
        (
            "gamma",
            "gossip step; default F x nominal delta (top-k: half of that, at most F x 4.2 k / d), \
             F = min(0.7, 1 / (2 max_i sum_{j != i} |W_ij|)): half of the limit of stability; 1 \
             where C is exact",
        ),
        (
            "order",
            "\"icml\" (default; Algorithm 2 of 2019) or \"iclr\" (Algorithm 1 of 2020: gossip and \
             gradient overlap)",
        ),
    ],
    compresses: true,
    home: "path",
    relaxation: Some("gamma"),
    prepare,
    ..Entry::BLANK
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    #[default]
    Icml,
    Iclr,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    gamma: Option<f64>,
    order: Order,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let warnings = setting.require_contraction("choco")?;
    let gamma = nine_digits(positive(
        "rule.gamma",
        params.gamma.unwrap_or_else(|| steps::of_copies(setting)),
    )?);
    params.gamma = Some(gamma);
    let topology = Arc::clone(setting.topology);
    let order = params.order;
    let plan: Arc<dyn Plan> = match order {
        Order::Icml => {
            Arc::new(Gossip::after_gradient(Arc::clone(&topology), setting.compressed()))
        }
        Order::Iclr => {
            Arc::new(Gossip::around_gradient(Arc::clone(&topology), setting.compressed()))
        }
    };
    Ok(Prepared {
        plan,
        resolved: config::resolved("choco", &params),
        warnings,
        spawn: Box::new(move |node, x| {
            let row = Row::of(&topology, node);
            let zeros = vec![0.0; x.len()];
            let weights = row.weights.iter().map(|w| gamma as f32 * w).collect();
            let copies = vec![zeros.clone(); row.neighbours.len()];
            Box::new(Choco {
                off_diagonal: gamma as f32 * row.off_diagonal(),
                weights,
                row,
                order,
                x,
                own: zeros.clone(),
                copies,
                spare: zeros,
            })
        }),
    })
}

struct Choco {
    row: Row,
    order: Order,
    /// gamma W_ij.
    weights: Vec<f32>,
    /// gamma (1 - W_ii).
    off_diagonal: f32,
    x: Vec<f32>,
    /// xh_i.
    own: Vec<f32>,
    /// xh_j, ascending.
    copies: Vec<Vec<f32>>,
    /// What is to be compressed, or the update.
    spare: Vec<f32>,
}

impl Choco {
    fn difference(&mut self) {
        for ((spare, x), own) in self.spare.iter_mut().zip(&self.x).zip(&self.own) {
            *spare = x - own;
        }
    }
}

impl Party for Choco {
    fn outgoing(
        &mut self,
        _at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        self.difference();
        out.vector(&self.spare)
    }

    fn sent(&mut self, _at: &At, _to: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(1.0, &mut self.own);
    }

    fn received(&mut self, _at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        payload.add_into(1.0, &mut self.copies[self.row.place(from)]);
        Ok(())
    }

    fn land(&mut self, _at: &At) {
        let off_diagonal = self.off_diagonal;
        if self.order == Order::Iclr {
            vector::subtract(&self.spare, &mut self.x);
        }
        sum_into(&mut self.x, &self.own, &self.weights, &self.copies, |x, own| {
            x - off_diagonal * own
        });
    }

    fn replica(&self, of: Option<NodeId>) -> Option<&[f32]> {
        Some(of.map_or(&self.own, |of| &self.copies[self.row.place(of)]))
    }
}

impl Rule for Choco {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        self.spare = update;
        if self.order == Order::Icml {
            vector::subtract(&self.spare, &mut self.x);
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        3 + self.copies.len()
    }
}
