//! EF-SGD, also MEM-SGD: centralized SGD on compressed gradients, whose errors are stored and sent
//! later.
//!
//! Stich, Cordonnier, Jaggi: Sparsified SGD with Memory (2018), Algorithm 1; Karimireddy, Rebjock,
//! Stich, Jaggi: Error Feedback Fixes SignSGD and other Gradient Compression Schemes (2019),
//! Algorithm 2. With `sign` this is EF-signSGD, with `one-bit` 1-bit SGD (Seide et al. 2014), with
//! `top-k` MEM-SGD.
//!
//! The memory holds lr g as in the papers: when the step decays, stored errors keep their old
//! weight. x - mean e moves as SGD does. All-to-all, or a server that sends the exact mean back.
//! State: e_i; the mean on nodes that add.

use super::{
    compressed_c_sgd,
    gathering::{self, Gathered, Gathers},
};
use crate::gossip::rule::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "ef-sgd",
    summary: "centralized SGD on compressed gradients with error memory (EF-signSGD, MEM-SGD, \
              1-bit SGD)",
    paper: "Stich et al. 2018, Sparsified SGD with Memory, Algorithm 1; Karimireddy et al. 2019, \
            Error Feedback Fixes SignSGD, Algorithm 2",
    update: "p_i = lr g_i + e_i;\n\
             D_i = C(p_i);\n\
             e_i = p_i - D_i;\n\
             x' = x - (1/n) sum_i D_i;\n\
             e_i = 0 at first",
    state: "the error memory e_i; the mean, where it is formed",
    sends: "D_i up and the mean, dense, down; all-to-all: D_i to all",
    conditions: "a contraction (nominal delta > 0); a server with links to all, or all links",
    constants: &[compressed_c_sgd::COLLECTIVE],
    compresses: true,
    home: "star",
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: gathering::Params = config::read("rule", table)?;
    let pattern = gathering::choose(ENTRY.name, &mut params.collective, setting)?;
    let warnings = setting.require_contraction(ENTRY.name)?;
    let (nodes, format) = (setting.topology.nodes(), setting.compressed());
    let plan = Collective::after_gradient(pattern, nodes, vec![format.clone(), setting.dense()]);
    Ok(ENTRY.prepared(&params, plan, warnings, move |node, x| {
        let gather = Gather::new(pattern, nodes, node, format.clone(), x.len());
        EfSgd::rule(gather, 1.0, 1.0, x.len())
    }))
}

/// What a node remembers, also one of `sparse-loco`.
pub(crate) struct EfSgd {
    /// What is kept of the memory in each round: 1 here.
    decay: f32,
    /// The multiple of the mean that the model moves by: 1 here.
    step: f32,
    /// e_i, and p_i while it is compressed.
    error: Vec<f32>,
}

impl EfSgd {
    /// The rule with this decay and this step, for vectors of `d` numbers.
    pub(crate) fn rule(gather: Gather, decay: f32, step: f32, d: usize) -> Gathered<EfSgd> {
        Gathered { rule: EfSgd { decay, step, error: vec![0.0; d] }, gather }
    }
}

impl Gathers for EfSgd {
    fn gradient(&mut self, local: &mut Local, _: f32) {
        for (e, u) in self.error.iter_mut().zip(&local.update) {
            *e = self.decay * *e + u;
        }
    }

    fn memory(&mut self) -> Option<(&'static str, &mut Vec<f32>)> {
        Some(("e_i", &mut self.error))
    }

    fn step(&self) -> f32 {
        self.step
    }
}
