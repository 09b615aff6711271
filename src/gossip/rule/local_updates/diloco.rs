//! DiLoCo: local inner steps, and an outer Nesterov step on their mean.
//!
//! Douillard, Feng, Rusu, Chhaparia, Donchev, Kuncoro, Ranzato, Szlam, Shen: DiLoCo: Distributed
//! Low-Communication Training of Language Models (2023), Algorithm 1; the outer step is SGD with
//! Nesterov momentum (Sutskever et al. 2013, in the form most libraries use).
//!
//! DIFFERENCE: the paper's inner optimizer is AdamW; here it is this project's SGD with momentum
//! and schedules. With outer_step 1, mu 0 it is local SGD. State: th, m, the sum. H is
//! `optimizer.local_steps`.

use crate::gossip::rule::{
    centralized::c_sgd,
    prelude::*,
    summed::{Mean, Summed},
};

pub(crate) const ENTRY: Entry = Entry {
    name: "diloco",
    summary: "H local steps inside, a Nesterov step on the mean of what they changed outside",
    paper: "Douillard et al. 2023, DiLoCo: Distributed Low-Communication Training of Language \
            Models, Algorithm 1",
    update: "D = th - (1/n) sum_i (th after H local steps on the data of i) = (1/n) sum_i u_i\n\
             m' = mu m + D;  th' = th - outer_step (D + mu m')",
    state: "the outer momentum m and the sum",
    sends: "as c-sgd, once in H steps",
    conditions: "the links of the collective; outer_step / (1 - outer_momentum) multiplies the \
                 inner step in the long run",
    constants: &[
        c_sgd::COLLECTIVE,
        c_sgd::GROUP,
        ("outer_step", "0.7 (default: the paper's best)"),
        ("outer_momentum", "mu, 0.9 (default: the paper's best); from 0, below 1"),
    ],
    home: "ring",
    prepare,
    ..Entry::BLANK
};

params! {
    collective: Option<Kind> = None,
    group: Option<usize> = None,
    outer_step: f64 = 0.7,
    outer_momentum: f64 = 0.9,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let mut chosen = c_sgd::Params { collective: params.collective, group: params.group };
    let pattern = chosen.choose(ENTRY.name, setting)?;
    params.collective = chosen.collective;
    params.outer_step = nine_digits(positive("rule.outer_step", params.outer_step)?);
    let momentum = constants::below_one("rule.outer_momentum", params.outer_momentum)?;
    let (nodes, step) = (setting.topology.nodes(), params.outer_step as f32);
    let plan = Collective::sum(pattern, nodes, setting.parameters, 0, 1);
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, x| {
        let (sum, m) = (Sum::of_updates(pattern, nodes, node, x.len()), vec![0.0; x.len()]);
        Summed { mean: DiLoCo { step, momentum, m }, sum }
    }))
}

struct DiLoCo {
    step: f32,
    momentum: f32,
    m: Vec<f32>,
}

impl Mean for DiLoCo {
    const SAME_MODEL: bool = true;

    fn land(&mut self, local: &mut Local, sum: &mut Sum) {
        for ((x, m), d) in local.x.iter_mut().zip(&mut self.m).zip(sum.mean()) {
            *m = self.momentum * *m + d;
            *x -= self.step * (d + self.momentum * *m);
        }
        std::mem::swap(&mut local.update, sum.start());
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("m", &mut self.m);
    }
}
