//! DoubleSqueeze: compressed both ways, with an error memory at every worker and at the server.
//!
//! Tang, Yu, Lian, Zhang, Liu: DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-pass
//! Error-Compensated Compression (2019), Algorithm 1.
//!
//! ```text
//! worker:  v_i = g_i + d_i;  sends C(v_i);  d_i = v_i - C(v_i)
//! server:  v = (1/n) sum_i C(v_i) + d_s;  sends C(v);  d_s = v - C(v)
//! all:     x' = x - lr C(v)                                          all d = 0 at first
//! ```
//! With a constant step, x_t = x_0 - lr sum of mean g + lr (mean d_i + d_s): nothing is lost. The
//! memories hold gradients, not steps: when the step decays, what was left over is applied with the
//! new one. Node 0 is the server and also a worker. State: d_i; at node 0 d_s.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Prepared, Rule, Setting};
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
    name: "double-squeeze",
    summary: "gradients compressed up and down, with error memory at workers and server",
    paper: "Tang et al. 2019, DoubleSqueeze: Parallel SGD with Double-pass Error-Compensated \
            Compression, Algorithm 1",
    update: "v_i = g_i + d_i; d_i = v_i - C(v_i); v = (1/n) sum_i C(v_i) + d_s; d_s = v - C(v); \
             x' = x - lr C(v)",
    state: "the error memory d_i; at node 0 also d_s",
    sends: "C(v_i) up, C(v) down",
    conditions: "a contraction (nominal delta > 0); node 0 linked with all; its memory d_s is \
                 nowhere else",
    constants: &[],
    compresses: true,
    home: "star",
    prepare,
    ..Entry::BLANK
};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let (_, pattern) = Pattern::choose(ENTRY.name, None, None, &[Kind::Server], setting.topology)?;
    let warnings = setting.require_contraction(ENTRY.name)?;
    let (nodes, format) = (setting.topology.nodes(), setting.compressed());
    Ok(Prepared {
        plan: Arc::new(Collective::after_gradient(pattern, nodes, vec![format.clone()])),
        resolved: config::resolved(ENTRY.name, &params),
        warnings,
        spawn: Box::new(move |node, x| {
            let gather = Gather::new(pattern, nodes, node, format.clone(), x.len());
            let zeros = vec![0.0; x.len()];
            Box::new(DoubleSqueeze { gather, step: 0.0, error: zeros.clone(), spare: zeros, x })
        }),
    })
}

struct DoubleSqueeze {
    x: Vec<f32>,
    /// At the server: d_s, to which the mean is added to become v.
    gather: Gather,
    /// lr of this round.
    step: f32,
    /// d_i, and v_i while it is compressed.
    error: Vec<f32>,
    spare: Vec<f32>,
}

impl Party for DoubleSqueeze {
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
            self.gather.sent(own);
        } else {
            own.add_into(-1.0, self.gather.mean());
            own.add_into(-self.step, &mut self.x);
        }
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        if at.exchange == 0 {
            self.gather.received(from, payload);
        } else {
            payload.add_into(-self.step, &mut self.x);
        }
        Ok(())
    }

    fn replica(&self, _of: Option<NodeId>) -> Option<&[f32]> {
        Some(&self.x)
    }
}

impl Rule for DoubleSqueeze {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, step: f32, x: Vec<f32>, update: Vec<f32>) {
        (self.x, self.spare, self.step) = (x, update, step);
        // g = update / lr; a step of nothing says nothing of g, and moves nothing.
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        for (v, u) in self.error.iter_mut().zip(&self.spare) {
            *v += inverse * u;
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        3 + self.gather.vectors()
    }
}
