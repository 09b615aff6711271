//! Local SGD: several steps on one's own, then the mean of the models.
//!
//! McMahan, Moore, Ramage, Hampson, Aguera y Arcas: Communication-Efficient Learning of Deep
//! Networks from Decentralized Data (2017), Algorithm 1 with all clients in every round; Stich:
//! Local SGD Converges Fast and Communicates Little (2019), Algorithm 1.
//!
//! ```text
//! y_i = x after H local steps on the data of i;  x' = (1/n) sum_i y_i
//! ```
//! H is `optimizer.local_steps`; with H = 1 it is C-SGD. The models are averaged, not the updates.
//! State: x and the sum.

use std::sync::Arc;

use super::{Entry, Prepared, Rule, Setting, c_sgd};
use crate::{
    compress::{Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        collective::{Collective, Sum},
        party::{Party, Writer},
        plan::At,
    },
    units::{NodeId, Round},
};

pub(super) const ENTRY: Entry = Entry {
    name: "local-sgd",
    summary: "H local steps (optimizer.local_steps), then the exact mean of the models",
    paper: "Stich 2019, Local SGD Converges Fast and Communicates Little, Algorithm 1; McMahan et \
            al. 2017, Algorithm 1",
    update: "y_i = x after H local steps; x' = (1/n) sum_i y_i",
    state: "the sum",
    sends: "as c-sgd, once in H steps",
    conditions: "the links of the collective; on heterogeneous data the models drift apart with \
                 H, which a smaller step bounds",
    constants: &[c_sgd::COLLECTIVE, c_sgd::GROUP],
    compresses: false,
    home: "ring",
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: c_sgd::Params = config::read("rule", table)?;
    let pattern = params.choose(ENTRY.name, setting)?;
    let nodes = setting.topology.nodes();
    Ok(Prepared {
        plan: Arc::new(Collective::sum(pattern, nodes, setting.parameters, 0, 1)),
        resolved: config::resolved(ENTRY.name, &params),
        warnings: Vec::new(),
        spawn: Box::new(move |node, x| {
            Box::new(LocalSgd { sum: Sum::new(pattern, nodes, node, x.len()), x })
        }),
    })
}

struct LocalSgd {
    x: Vec<f32>,
    sum: Sum,
}

impl Party for LocalSgd {
    fn outgoing(
        &mut self,
        at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        self.sum.outgoing(at.exchange, out)
    }

    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed> {
        self.sum.received(at.exchange, from, payload);
        Ok(())
    }

    fn close(&mut self, at: &At) {
        self.sum.close(at.exchange);
    }

    fn land(&mut self, _at: &At) {
        // The old x is the next buffer.
        std::mem::swap(&mut self.x, self.sum.start());
    }
}

impl Rule for LocalSgd {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(self.sum.start()))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        let y = self.sum.start();
        *y = update;
        for (y, x) in y.iter_mut().zip(&self.x) {
            *y = x - *y;
        }
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        1 + self.sum.vectors()
    }
}
