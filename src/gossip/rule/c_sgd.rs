//! C-SGD: centralized, synchronous stochastic gradient descent; one model, the same on all nodes.
//!
//! ```text
//! x' = x - lr (1/n) sum_i g_i(x)
//! ```
//! The mean is formed by a [collective](crate::gossip::collective): a parameter server (Li et al. 2014, Scaling Distributed Machine Learning with
//! the Parameter Server; node 0 serves and also works), ring all-reduce (Patarasu, Yuan 2009, Bandwidth Optimal All-reduce Algorithms for
//! Clusters of Workstations), all-to-all, or rings in groups with a server between them. Every node ends with the same bits.
//! State: x and the sum; all-to-all one vector more.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Prepared, Rule, Setting};
use crate::{
    compress::{Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        collective::{Collective, Kind, Pattern, Sum},
        party::{Party, Writer},
        plan::At,
    },
    units::{NodeId, Round},
    vector,
};

/// What every rule with an exact mean says of its collective.
pub(super) const COLLECTIVE: (&str, &str) = (
    "collective",
    "\"ring\", \"server\" (node 0), \"all-to-all\" or \"hybrid\" (with `group`); default the first of ring, server, all-to-all whose links exist",
);

pub(super) const GROUP: (&str, &str) =
    ("group", "nodes of a group; required by collective = \"hybrid\", a divisor of n");

pub(super) const ALL: &[Kind] = &[Kind::Ring, Kind::Server, Kind::AllToAll, Kind::Hybrid];

pub(super) const ENTRY: Entry = Entry {
    name: "c-sgd",
    summary: "centralized SGD: one model, the exact mean gradient by a server or an all-reduce",
    paper: "Li et al. 2014, Scaling Distributed Machine Learning with the Parameter Server; Patarasu and Yuan 2009, Bandwidth Optimal All-reduce Algorithms",
    update: "x' = x - lr (1/n) sum_i g_i(x)",
    state: "the sum",
    sends: "server: d numbers up and d down; ring: 2 (n - 1)/n d numbers in 2 (n - 1) exchanges; all-to-all: d numbers",
    conditions: "the links of the collective; the weights of W play no part",
    constants: &[COLLECTIVE, GROUP],
    compresses: false,
    home: "ring",
    prepare,
};

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Params {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) collective: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<usize>,
}

impl Params {
    /// Chooses the collective.
    pub(super) fn choose(&mut self, rule: &str, setting: &Setting<'_>) -> Result<Pattern, ConfigError> {
        let (kind, pattern) = Pattern::choose(rule, self.collective, self.group, ALL, setting.topology)?;
        self.collective = Some(kind);
        Ok(pattern)
    }
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let pattern = params.choose(ENTRY.name, setting)?;
    let nodes = setting.topology.nodes();
    Ok(Prepared {
        plan: Arc::new(Collective::sum(pattern, nodes, setting.parameters, 0, 1)),
        resolved: config::resolved(ENTRY.name, &params),
        warnings: Vec::new(),
        spawn: Box::new(move |node, x| Box::new(CSgd { sum: Sum::new(pattern, nodes, node, x.len()), x })),
    })
}

struct CSgd {
    x: Vec<f32>,
    sum: Sum,
}

impl Party for CSgd {
    fn outgoing(&mut self, at: &At, _to: Option<NodeId>, out: &mut Writer<'_>) -> Result<(), NonFinite> {
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
        vector::subtract(self.sum.mean(), &mut self.x);
    }

    fn replica(&self, _of: Option<NodeId>) -> Option<&[f32]> {
        Some(&self.x)
    }
}

impl Rule for CSgd {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        (std::mem::take(&mut self.x), std::mem::take(self.sum.start()))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        self.x = x;
        *self.sum.start() = update;
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        1 + self.sum.vectors()
    }
}
