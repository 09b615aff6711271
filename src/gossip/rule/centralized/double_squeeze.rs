//! DoubleSqueeze: compression both ways, with an error memory at every worker and at the server.
//!
//! Tang, Yu, Lian, Zhang, Liu: DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-pass
//! Error-Compensated Compression (2019), Algorithm 1.
//!
//! With a constant step, x_t = x_0 - lr sum of mean g + lr (mean d_i + d_s): nothing is lost. The
//! memories hold gradients, not steps: when the step decays, stored errors are applied with the new
//! step. Node 0 is the server and also a worker. State: d_i; at node 0 d_s.

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
    ENTRY.without_constants(table, plan, warnings, move |node, x| DoubleSqueeze {
        gather: Gather::new(pattern, nodes, node, format.clone(), x.len()),
        step: 0.0,
        error: vec![0.0; x.len()],
    })
}

struct DoubleSqueeze {
    /// At the server: d_s, to which the mean is added to become v.
    gather: Gather,
    /// lr of this round.
    step: f32,
    /// d_i, and v_i while it is compressed.
    error: Vec<f32>,
}

impl Party for DoubleSqueeze {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(if at.exchange == 0 { &self.error } else { self.gather.mean() })
    }

    fn sent(&mut self, local: &mut Local, at: &At, _: Option<NodeId>, own: &Payload<'_>) {
        if at.exchange == 0 {
            own.add_into(-1.0, &mut self.error);
            self.gather.sent(own);
        } else {
            own.add_into(-1.0, self.gather.mean());
            own.add_into(-self.step, &mut local.x);
        }
    }

    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        self.gather.received(at, from, p, self.step, &mut local.x);
        Ok(())
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&SameModel)
    }
}

impl Rule for DoubleSqueeze {
    fn gradient(&mut self, local: &mut Local, _: Round, step: f32) {
        self.step = step;
        // g = update / lr; a step of 0 gives no g and moves nothing.
        let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
        for (v, u) in self.error.iter_mut().zip(&local.update) {
            *v += inverse * u;
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("d_i", &mut self.error);
        self.gather.state(visitor);
    }
}
