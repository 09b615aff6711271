//! EF-SGD, also MEM-SGD: centralized SGD on compressed gradients whose errors are remembered and
//! sent later.
//!
//! Stich, Cordonnier, Jaggi: Sparsified SGD with Memory (2018), Algorithm 1; Karimireddy, Rebjock,
//! Stich, Jaggi: Error Feedback Fixes SignSGD and other Gradient Compression Schemes (2019),
//! Algorithm 2. With `sign` this is EF-signSGD, with `one-bit` 1-bit SGD (Seide et al. 2014), with
//! `top-k` MEM-SGD.
//!
//! ```text
//! p_i = lr g_i + e_i;  D_i = C(p_i);  e_i = p_i - D_i;  x' = x - (1/n) sum_i D_i;  e_i = 0 at first
//! ```
//! The memory holds lr g as in the papers: when the step decays, what was left over keeps its old
//! weight. x - mean e moves as SGD does. All-to-all, or a server that sends the exact mean back.
//! State: e_i; the mean where this node adds up.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Prepared, Rule, Setting, compressed_c_sgd};
use crate::{
    compress::{Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        collective::{Collective, Gather, Kind, Pattern},
        party::{Party, Writer},
        plan::At,
    },
    units::{NodeId, Round},
};

pub(super) const ENTRY: Entry = Entry {
    name: "ef-sgd",
    summary: "centralized SGD on compressed gradients with error memory (EF-signSGD, MEM-SGD, \
              1-bit SGD)",
    paper: "Stich et al. 2018, Sparsified SGD with Memory, Algorithm 1; Karimireddy et al. 2019, \
            Error Feedback Fixes SignSGD, Algorithm 2",
    update: "p_i = lr g_i + e_i; D_i = C(p_i); e_i = p_i - D_i; x' = x - (1/n) sum_i D_i",
    state: "the error memory e_i; the mean, where it is formed",
    sends: "D_i up and the mean, dense, down; all-to-all: D_i to all",
    conditions: "a contraction (nominal delta > 0); a server with links to all, or all links",
    constants: &[compressed_c_sgd::COLLECTIVE],
    compresses: true,
    home: "star",
    prepare,
    ..Entry::BLANK
};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    collective: Option<Kind>,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let allowed = &[Kind::Server, Kind::AllToAll];
    let (kind, pattern) =
        Pattern::choose(ENTRY.name, params.collective, None, allowed, setting.topology)?;
    params.collective = Some(kind);
    let warnings = setting.require_contraction(ENTRY.name)?;
    let (nodes, format) = (setting.topology.nodes(), setting.compressed());
    Ok(Prepared {
        plan: Arc::new(Collective::after_gradient(
            pattern,
            nodes,
            vec![format.clone(), setting.dense()],
        )),
        resolved: config::resolved(ENTRY.name, &params),
        warnings,
        spawn: Box::new(move |node, x| {
            let gather = Gather::new(pattern, nodes, node, format.clone(), x.len());
            let zeros = vec![0.0; x.len()];
            Box::new(EfSgd {
                all: pattern == Pattern::AllToAll,
                gather,
                error: zeros.clone(),
                spare: zeros,
                x,
            })
        }),
    })
}

struct EfSgd {
    all: bool,
    x: Vec<f32>,
    gather: Gather,
    /// e_i, and p_i while it is compressed.
    error: Vec<f32>,
    spare: Vec<f32>,
}

impl Party for EfSgd {
    fn outgoing(
        &mut self,
        at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(if at.exchange == 0 { &self.error } else { self.gather.mean() })
    }

    fn sent(&mut self, at: &At, _to: Option<NodeId>, own: &Payload<'_>) {
        if at.exchange == 0 {
            own.add_into(-1.0, &mut self.error);
            return self.gather.sent(own);
        }
        own.add_into(-1.0, &mut self.x);
        self.gather.mean().fill(0.0);
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        if at.exchange == 0 {
            self.gather.received(from, payload);
        } else {
            payload.add_into(-1.0, &mut self.x);
        }
        Ok(())
    }

    fn land(&mut self, _at: &At) {
        if self.all {
            self.gather.apply(1.0, &mut self.x);
        }
    }

    fn replica(&self, _of: Option<NodeId>) -> Option<&[f32]> {
        Some(&self.x)
    }
}

impl Rule for EfSgd {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        (self.x, self.spare) = (x, update);
        for (e, u) in self.error.iter_mut().zip(&self.spare) {
            *e += u;
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        3 + self.gather.vectors()
    }
}
