//! Asynchronous gossip in pairs: AD-PSGD and SwarmSGD.
//!
//! Lian, Zhang, Zhang, Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent (2018),
//! Algorithm 1; Nadiradze, Sabour, Davies, Li, Alistarh: Asynchronous Decentralized SGD with
//! Quantized and Local Updates (2021), the SwarmSGD of section 3.
//!
//! The averaging must be atomic at both ends, and no node may wait for a node that waits. So i
//! *calls* j with x_i, and j answers at once, in any state, with the move m = (x_i - x_j) / 2 that
//! it makes; i makes the opposite move when the answer arrives. The mean is preserved, whatever
//! happens at either end in between. DIFFERENCE: if i itself was called, or took a step, between
//! call and answer, the two models are not equal afterwards but differ by these other changes; the
//! papers' locks would make i wait. DIFFERENCE: the called node is drawn from the neighbours with
//! equal probability, from the run's seed, so that a neighbour can check that it was drawn; the
//! weights of W are not used. DIFFERENCE of swarm: models are sent whole; the paper's lattice
//! quantization is not implemented.
//!
//! Nodes run freely, each in a round of its own. Before the mean at the end every node waits until
//! its neighbours make no more calls. State: x, the copy of x that is lent while x changes, the
//! update, the move.

use crate::{gossip::rule::prelude::*, mixing::Topology, rng::Purpose, rng::Stream};

const PAIRS: Entry = Entry {
    sends: "the whole model to one neighbour, and a move to everybody who calls",
    conditions: "any connected topology; over libp2p the order of events decides, so only the \
                 simulator repeats a run",
    ..Entry::BLANK
};

pub(crate) const AD_PSGD: Entry = Entry {
    name: "ad-psgd",
    summary: "asynchronous: average with a random neighbour while the gradient is computed",
    paper: "Lian et al. 2018, Asynchronous Decentralized Parallel Stochastic Gradient Descent, \
            Algorithm 1",
    update: "x_i = x_j = (x_i + x_j) / 2 for a random neighbour j, while g_i(x_i) is computed\n\
             x_i -= lr g_i, of the x_i before the average",
    state: "the copy of x that the gradient is computed at, the move",
    prepare: |table, setting| prepare(&AD_PSGD, AROUND, table, setting),
    ..PAIRS
};

pub(crate) const SWARM: Entry = Entry {
    name: "swarm",
    summary: "asynchronous: local steps (optimizer.local_steps), then average with a random \
              neighbour",
    paper: "Nadiradze et al. 2021, Asynchronous Decentralized SGD with Quantized and Local \
            Updates, SwarmSGD",
    update: "x_i -= u_i, the change that H local steps make from x_i on\n\
             x_i = x_j = (x_i + x_j) / 2 for a random neighbour j",
    state: "the copy of x that local steps begin at, the move",
    prepare: |table, setting| prepare(&SWARM, AFTER, table, setting),
    ..PAIRS
};

const AROUND: &[Step] =
    &[Step::Launch(0), Step::Gradient, Step::Join, Step::Land { flight: 0, lag: 0 }];
const AFTER: &[Step] =
    &[Step::Gradient, Step::Join, Step::Launch(0), Step::Land { flight: 0, lag: 0 }];

fn prepare(
    entry: &Entry,
    steps: &'static [Step],
    table: &toml::Table,
    setting: &Setting<'_>,
) -> Result<Prepared, ConfigError> {
    let topology = Arc::clone(setting.topology);
    let plan = Calls { topology, seed: setting.seed, steps, format: setting.dense() };
    entry.without_constants(table, plan, Vec::new(), |_, x| Pairwise {
        movement: vec![0.0; x.len()],
        x: x.to_vec(),
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

    fn format(&self, _: &At, _: NodeId) -> &Format {
        &self.format
    }

    fn calls(&self, _flight: u8) -> bool {
        true
    }
}

struct Pairwise {
    /// The model, which changes while the gradient at `local.x` is computed.
    x: Vec<f32>,
    /// m.
    movement: Vec<f32>,
}

impl Party for Pairwise {
    fn outgoing(&mut self, _: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&self.x)
    }

    fn received(&mut self, _: &mut Local, _: &At, _: NodeId, payload: &Payload<'_>) -> Received {
        payload.add_into(-1.0, &mut self.x);
        Ok(())
    }

    fn answers(&mut self) -> Option<&mut dyn Answers> {
        Some(self)
    }
}

impl Answers for Pairwise {
    fn answer(
        &mut self,
        _: &mut Local,
        _: &At,
        ask: &Payload<'_>,
        out: &mut Writer<'_>,
    ) -> Encoded {
        vector::scaled(-0.5, &self.x, &mut self.movement);
        ask.add_into(0.5, &mut self.movement);
        out.vector(&self.movement)?;
        vector::axpy(1.0, &self.movement, &mut self.x);
        Ok(())
    }
}

impl Rule for Pairwise {
    fn point(&mut self, local: &mut Local) {
        local.x.copy_from_slice(&self.x);
    }

    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        vector::subtract(&local.update, &mut self.x);
    }

    fn model(&self, _: &Local, out: &mut [f32]) {
        out.copy_from_slice(&self.x);
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("x", &mut self.x);
        visitor.scratch(self.movement.len());
    }
}
