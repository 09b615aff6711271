//! Asynchronous gossip in pairs: AD-PSGD and SwarmSGD.
//!
//! Lian, Zhang, Zhang, Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent (2018),
//! Algorithm 1; Nadiradze, Sabour, Davies, Li, Alistarh: Asynchronous Decentralized SGD with
//! Quantized and Local Updates (2021), the SwarmSGD of section 3.
//!
//! ```text
//! ad-psgd:  i and a random neighbour j: x_i = x_j = (x_i + x_j) / 2, while g_i is computed at the x_i of before;  x_i -= lr g_i
//! swarm:    x_i -= what H local steps from the x_i of before changed;  then i and a random neighbour j: x_i = x_j = (x_i + x_j) / 2
//! ```
//! The averaging must be atomic at both ends, and nobody may wait for somebody who waits. So i
//! *calls* j with x_i, and j answers at once, whatever it does, with the move m = (x_i - x_j) / 2
//! that it makes; i makes the opposite move when the answer comes. The mean is kept whatever
//! happens at either end in between. DIFFERENCE: when i itself was called, or took a step, between
//! call and answer, the two models are not equal afterwards, only as far apart as these other
//! events made them; the papers' locks would have made i wait. DIFFERENCE: who is called is drawn
//! from the neighbours with equal probability, from the run's seed, so that a neighbour can check
//! that it is its turn; the weights of W play no part. DIFFERENCE of swarm: models are sent whole;
//! the paper's lattice quantization is not built.
//!
//! Nodes run freely, each in a round of its own; before the mean at the end every node hears from
//! its neighbours that they call no more. State: x, the copy of x that is lent while x moves on,
//! the update, the move.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Prepared, Rule, Setting};
use crate::{
    compress::{Format, Malformed, NonFinite, Payload},
    config::{self, ConfigError},
    gossip::{
        party::{Party, Writer},
        plan::{At, Meeting, Plan, Step},
    },
    mixing::Topology,
    rng::{Purpose, Stream},
    units::{NodeId, Round},
    vector,
};

pub(super) const AD_PSGD: Entry = Entry {
    name: "ad-psgd",
    summary: "asynchronous: average with a random neighbour while the gradient is computed",
    paper: "Lian et al. 2018, Asynchronous Decentralized Parallel Stochastic Gradient Descent, \
            Algorithm 1",
    update: "x_i = x_j = (x_i + x_j) / 2 for a random neighbour j; x_i -= lr g_i(x_i of before)",
    state: "the copy of x that the gradient is computed at, the move",
    sends: "the whole model to one neighbour, and a move to everybody who calls",
    conditions: "any connected topology; over libp2p the order of events decides, so only the \
                 simulator repeats a run",
    constants: &[],
    compresses: false,
    home: "path",
    prepare: |table, setting| prepare(&AD_PSGD, AROUND, table, setting),
    ..Entry::BLANK
};

pub(super) const SWARM: Entry = Entry {
    name: "swarm",
    summary: "asynchronous: local steps (optimizer.local_steps), then average with a random \
              neighbour",
    paper: "Nadiradze et al. 2021, Asynchronous Decentralized SGD with Quantized and Local \
            Updates, SwarmSGD",
    update: "x_i -= u_i after H local steps; x_i = x_j = (x_i + x_j) / 2 for a random neighbour j",
    state: "the copy of x that local steps begin at, the move",
    sends: "the whole model to one neighbour, and a move to everybody who calls",
    conditions: "any connected topology; over libp2p the order of events decides, so only the \
                 simulator repeats a run",
    constants: &[],
    compresses: false,
    home: "path",
    prepare: |table, setting| prepare(&SWARM, AFTER, table, setting),
    ..Entry::BLANK
};

const AROUND: &[Step] =
    &[Step::Launch(0), Step::Gradient, Step::Join, Step::Land { flight: 0, lag: 0 }];
const AFTER: &[Step] =
    &[Step::Gradient, Step::Join, Step::Launch(0), Step::Land { flight: 0, lag: 0 }];

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Params {}

fn prepare(
    entry: &Entry,
    steps: &'static [Step],
    table: &toml::Table,
    setting: &Setting<'_>,
) -> Result<Prepared, ConfigError> {
    let params: Params = config::read("rule", table)?;
    let topology = Arc::clone(setting.topology);
    Ok(Prepared {
        plan: Arc::new(Calls { topology, seed: setting.seed, steps, format: setting.dense() }),
        resolved: config::resolved(entry.name, &params),
        warnings: Vec::new(),
        spawn: Box::new(|_, x| {
            let zeros = vec![0.0; x.len()];
            Box::new(Pairwise { lent: zeros.clone(), spare: zeros.clone(), movement: zeros, x })
        }),
    })
}

/// Every node calls one random neighbour a round.
struct Calls {
    topology: Arc<Topology>,
    seed: u64,
    steps: &'static [Step],
    format: Format,
}

impl Calls {
    fn called(&self, node: NodeId, round: Round) -> Option<NodeId> {
        let neighbours = self.topology.neighbours(node);
        if neighbours.is_empty() {
            return None;
        }
        let mut dice = Stream::new(self.seed, Purpose::Rule).node(node).round(round).sequence();
        neighbours.get(dice.below(neighbours.len() as u64) as usize).copied()
    }
}

impl Plan for Calls {
    fn steps(&self) -> &[Step] {
        self.steps
    }

    fn exchanges(&self, _flight: u8) -> u16 {
        2
    }

    fn meet(&self, node: NodeId, at: &At, out: &mut Meeting) {
        let called = self.called(node, at.round);
        if at.exchange == 0 { out.send.extend(called) } else { out.wait.extend(called) }
    }

    fn format(&self, _at: &At, _from: NodeId) -> &Format {
        &self.format
    }

    fn calls(&self, _flight: u8) -> bool {
        true
    }
}

struct Pairwise {
    x: Vec<f32>,
    /// x when the gradient was asked for.
    lent: Vec<f32>,
    spare: Vec<f32>,
    /// m.
    movement: Vec<f32>,
}

impl Party for Pairwise {
    fn outgoing(
        &mut self,
        _at: &At,
        _to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        out.vector(&self.x)
    }

    fn answer(
        &mut self,
        _at: &At,
        _from: NodeId,
        ask: &Payload<'_>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        vector::scaled(-0.5, &self.x, &mut self.movement);
        ask.add_into(0.5, &mut self.movement);
        out.vector(&self.movement)?;
        vector::axpy(1.0, &self.movement, &mut self.x);
        Ok(())
    }

    fn received(
        &mut self,
        _at: &At,
        _from: NodeId,
        payload: &Payload<'_>,
    ) -> Result<(), Malformed> {
        payload.add_into(-1.0, &mut self.x);
        Ok(())
    }
}

impl Rule for Pairwise {
    fn point(&mut self) -> (Vec<f32>, Vec<f32>) {
        // x moves on while the gradient is computed.
        self.lent.copy_from_slice(&self.x);
        (std::mem::take(&mut self.lent), std::mem::take(&mut self.spare))
    }

    fn gradient(&mut self, _round: Round, _step: f32, x: Vec<f32>, update: Vec<f32>) {
        (self.lent, self.spare) = (x, update);
        vector::subtract(&self.spare, &mut self.x);
    }

    fn model(&self, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn vectors(&self) -> usize {
        4
    }
}
