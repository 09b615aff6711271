//! Local SGD: several local steps, then the mean of the models.
//!
//! McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep
//! Networks from Decentralized Data (2017), Algorithm 1 with all clients in every round; Stich:
//! Local SGD Converges Fast and Communicates Little (2019), Algorithm 1.
//!
//! H is `optimizer.local_steps`; with H = 1 it is C-SGD. The models are averaged, not the updates.
//! State: x and the sum.

use crate::gossip::rule::{
    centralized::c_sgd,
    prelude::*,
    summed::{Mean, Summed},
};

pub(crate) const ENTRY: Entry = Entry {
    name: "local-sgd",
    summary: "H local steps (optimizer.local_steps), then the exact mean of the models",
    paper: "Stich 2019, Local SGD Converges Fast and Communicates Little, Algorithm 1; McMahan et \
            al. 2017, Algorithm 1",
    update: "y_i = x after H local steps on the data of i;  x' = (1/n) sum_i y_i",
    state: "the sum",
    sends: "as c-sgd, once in H steps",
    conditions: "the links of the collective; on heterogeneous data the models drift apart with \
                 H, which a smaller step bounds",
    constants: &[c_sgd::COLLECTIVE, c_sgd::GROUP],
    home: "ring",
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: c_sgd::Params = config::read("rule", table)?;
    let pattern = params.choose(ENTRY.name, setting)?;
    let nodes = setting.topology.nodes();
    let plan = Collective::sum(pattern, nodes, setting.parameters, 0, 1);
    Ok(ENTRY.prepared(&params, plan, Vec::new(), move |node, x| Summed {
        mean: LocalSgd,
        sum: Sum::of_updates(pattern, nodes, node, x.len()),
    }))
}

struct LocalSgd;

impl Mean for LocalSgd {
    const SAME_MODEL: bool = false;

    fn gradient(&mut self, local: &mut Local, sum: &mut Sum) {
        for (y, x) in local.update.iter_mut().zip(&local.x) {
            *y = x - *y;
        }
        std::mem::swap(&mut local.update, sum.start());
    }

    fn land(&mut self, local: &mut Local, sum: &mut Sum) {
        // The old x becomes the buffer of the next update.
        std::mem::swap(&mut local.x, sum.start());
        std::mem::swap(&mut local.update, sum.start());
    }
}
