//! Naive compression: D-PSGD on compressed models. It stalls, and is here so that one can see it
//! stall.
//!
//! Tang, Gan, Zhang, Zhang, Liu: Communication Compression for Decentralized Training (2018),
//! section 1 and figure 1 show it as the counterexample.
//!
//! ```text
//! x_i' = sum_j W_ij C(x_j) - lr g_i(x_i)        (j = i included)
//! ```
//! The compression error is proportional to |x|, which does not vanish, so no step size makes it
//! converge. State: as D-PSGD cta.

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
    name: "naive",
    summary: "D-PSGD on compressed models; stalls at a level that no step size removes (a \
              negative control)",
    paper: "Tang et al. 2018, Communication Compression for Decentralized Training, figure 1",
    update: "x_i' = sum_j W_ij C(x_j) - lr g_i",
    state: "none",
    sends: "C(x_i)",
    conditions: "none under which it converges, unless C is exact",
    constants: &[],
    compresses: true,
    home: "path",
    follows_schedules: true,
    prepare,
    ..Entry::BLANK
};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let schedule = Arc::clone(setting.schedule);
    let mut warnings = Vec::new();
    if setting.compressor.name() != "identity" {
        warnings.push(
            "naive compression stalls at a level that no step size removes; dcd, deep-squeeze and \
             choco do not"
                .to_string(),
        );
    }
    Ok(Prepared {
        plan: Arc::new(
            Gossip::around_gradient(Arc::clone(setting.topology), setting.compressed())
                .following(&schedule),
        ),
        resolved: config::resolved("naive", &params),
        warnings,
        spawn: Box::new(move |node, x| {
            let (acc, spare) = (vec![0.0; x.len()], vec![0.0; x.len()]);
            Box::new(Naive { rows: Rows::of(&schedule, node), x, acc, spare })
        }),
    })
}

struct Naive {
    rows: Rows,
    x: Vec<f32>,
    acc: Vec<f32>,
    spare: Vec<f32>,
}

impl Party for Naive {
    fn outgoing(
        &mut self,
        _at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(&self.x)
    }

    fn sent(&mut self, at: &At, _to: Option<NodeId>, own: &Payload<'_>) {
        self.acc.fill(0.0);
        own.add_into(self.rows.at(at.round).own, &mut self.acc);
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

impl Rule for Naive {
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
