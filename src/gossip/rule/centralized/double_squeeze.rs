//! DoubleSqueeze: compression both ways, with an error memory at every worker and at the server.
//!
//! Tang, Yu, Lian, Zhang, Liu: DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-pass
//! Error-Compensated Compression (2019), Algorithm 1.
//!
//! With a constant step, x_t = x_0 - lr sum of mean g + lr (mean d_i + d_s): nothing is lost. The
//! memories hold gradients, not steps: when the step decays, stored errors are applied with the new
//! step. Node 0 is the server and also a worker. State: d_i; at node 0 d_s.

use super::gathering::{Gathered, Gathers};
use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "double-squeeze",
    summary: "gradients compressed up and down, with error memory at workers and server",
    paper: "Tang et al. 2019, DoubleSqueeze: Parallel SGD with Double-pass Error-Compensated \
            Compression, Algorithm 1",
    update: "worker:  v_i = g_i + d_i;  sends C(v_i);  d_i = v_i - C(v_i)\n\
             server:  v = (1/n) sum_i C(v_i) + d_s;  sends C(v);  d_s = v - C(v)\n\
             all:   x' = x - lr C(v)   all d = 0 at first",
    state: "the error memory d_i; at node 0 also d_s",
    sends: "C(v_i) up, C(v) down",
    conditions: "a contraction (nominal delta > 0); node 0 linked with all; its memory d_s is \
                 nowhere else",
    compresses: true,
    home: "star",
    needs_step: true,
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let (_, pattern) = Pattern::choose(ENTRY.name, None, None, &[Kind::Server], setting.topology)?;
    let warnings = setting.require_contraction(ENTRY.name)?;
    let (nodes, format) = (setting.topology.nodes(), setting.compressed());
    let plan = Collective::after_gradient(pattern, nodes, vec![format.clone()]);
    ENTRY.without_constants(table, plan, warnings, move |node, x| Gathered {
        rule: DoubleSqueeze { step: 0.0, error: vec![0.0; x.len()] },
        // At the server: d_s, to which the mean is added to become v.
        gather: Gather::new(pattern, nodes, node, format.clone(), x.len()),
    })
}

struct DoubleSqueeze {
    /// lr of this round.
    step: f32,
    /// d_i, and v_i while it is compressed.
    error: Vec<f32>,
}

impl Gathers for DoubleSqueeze {
    fn gradient(&mut self, local: &mut Local, step: f32) {
        self.step = step;
        // g = update / lr; a step of 0 gives no g and moves nothing.
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        for (v, u) in self.error.iter_mut().zip(&local.update) {
            *v += inverse * u;
        }
    }

    fn memory(&mut self) -> Option<(&'static str, &mut Vec<f32>)> {
        Some(("d_i", &mut self.error))
    }

    fn step(&self) -> f32 {
        self.step
    }

    fn sent_mean(&mut self, gather: &mut Gather, own: &Payload<'_>, x: &mut [f32]) {
        own.add_into(-1.0, gather.mean());
        own.add_into(-self.step, x);
    }
}
