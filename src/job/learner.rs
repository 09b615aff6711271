//! What a driver asks of one node's learning side, and what an observer is told.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::{
    config::ConfigError,
    gossip::{Cause, Failure, Input, LinkTraffic, OwnModel, Part, RoundDone, Traffic, tree::Setup},
    learn::Ready,
    units::{NodeId, Round, Time},
};

/// One node's data, loss and optimizer. The drivers know no more of learning than this.
pub trait Learner: Send {
    /// What all nodes must agree on before round 0 (sums for standardisation). Either all nodes
    /// have something or none.
    fn setup(&mut self) -> Option<Setup> {
        None
    }

    /// What all nodes' setup records make together.
    ///
    /// # Errors
    /// If it has no meaning here.
    fn prepare(&mut self, _merged: &[u8]) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Writes the sum of step times direction at `x` into `update` and returns the mean loss of the
    /// batches.
    fn compute(&mut self, round: Round, x: &[f32], update: &mut [f32]) -> f64;

    /// The same, to the bit, which tells early of what is final.
    fn compute_by_parts(
        &mut self,
        round: Round,
        x: &[f32],
        update: &mut [f32],
        ready: &mut Ready<'_>,
    ) -> f64 {
        let loss = self.compute(round, x, update);
        ready(0..update.len(), update);
        loss
    }

    /// The sum of the step sizes in the update of a round.
    fn step(&self, round: Round) -> f32;

    /// This node's record of the run, for the summary that every node writes.
    fn conclude(&mut self, conclusion: &Conclusion<'_>) -> Vec<u8>;
}

/// Does what [`Effect::Compute`](crate::gossip::Effect::Compute) asks for and hands the answers
/// over: every part as soon as it is final, then the whole.
pub fn compute(
    learner: &mut dyn Learner,
    round: Round,
    x: impl Into<Arc<Vec<f32>>>,
    mut update: Vec<f32>,
    parts: Vec<Part>,
    hand: &mut dyn FnMut(Input),
) {
    let x = x.into();
    let mut parts = (0..).zip(parts).peekable();
    let loss = learner.compute_by_parts(round, &x, &mut update, &mut |range, update| {
        while let Some((part, Part { start, mut values })) =
            parts.next_if(|(_, part)| part.start >= range.start)
        {
            let end = start + values.len();
            values.copy_from_slice(&update[start..end]);
            hand(Input::Part { round, part, values });
        }
    });
    let step = learner.step(round);
    hand(Input::Computed { round, x: Arc::unwrap_or_clone(x), update, loss, step });
}

/// The model that a node has lent for a gradient: for a run that must end before the gradient is
/// there.
#[derive(Clone, Debug, Default)]
pub struct Lent(Arc<Mutex<(Round, Weak<Vec<f32>>)>>);

impl Lent {
    /// The model at which the gradient of `round` is computed.
    pub fn set(&self, round: Round, x: &Arc<Vec<f32>>) {
        *self.lock() = (round, Arc::downgrade(x));
    }

    /// The rounds done and the model, while it is lent.
    pub fn get(&self) -> Option<(Round, Arc<Vec<f32>>)> {
        let (round, x) = &*self.lock();
        Some((*round, x.upgrade()?))
    }

    fn lock(&self) -> MutexGuard<'_, (Round, Weak<Vec<f32>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known when the rounds are over.
#[derive(Clone, Copy, Debug)]
pub struct Conclusion<'a> {
    /// Rounds done.
    pub rounds: Round,
    /// This node's model.
    pub model: &'a [f32],
    /// The mean of all nodes' models.
    pub mean: &'a [f32],
    /// Bytes sent.
    pub traffic: Traffic,
    /// The same by neighbour, in ascending order.
    pub links: &'a [LinkTraffic],
    /// Time since the start.
    pub elapsed: Elapsed,
}

impl<'a> Conclusion<'a> {
    /// Of a node's own model and the mean.
    pub fn new(own: &'a OwnModel, mean: &'a [f32], elapsed: Elapsed) -> Conclusion<'a> {
        let OwnModel { rounds, x, traffic, links } = own;
        Conclusion { rounds: *rounds, model: x, mean, traffic: *traffic, links, elapsed }
    }
}

/// A node's clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// Since its start.
    pub time: Time,
    /// Of that, how long it has computed gradients.
    pub computing: Time,
}

/// Told of progress by a driver that sees several nodes.
pub trait Observer {
    /// A node has finished a round.
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone);

    /// A node begins; `lent` shows the model while a gradient is computed at it.
    fn begins(&mut self, _node: NodeId, _lent: &Lent) {}

    /// A node's own model is final, or its run ends early and this is what it has: save it now. The
    /// rounds done say which.
    fn save(&mut self, _node: NodeId, _elapsed: Elapsed, _own: &OwnModel) {}

    /// The mean of all models is formed: save it now. Told by one node at the least; it is the same
    /// at all.
    fn mean(&mut self, _mean: &[f32]) {}

    /// The round after which all shall stop, once somebody has asked for it.
    fn stop_after(&mut self) -> Option<Round> {
        None
    }
}

/// An observer that does not look.
#[derive(Debug, Default)]
pub struct Blind;

impl Observer for Blind {
    fn round(&mut self, _node: NodeId, _elapsed: Elapsed, _done: RoundDone) {}
}

/// One node at its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Ended {
    /// Its model after the last round.
    pub model: Vec<f32>,
    /// The mean of all models.
    pub mean: Vec<f32>,
    /// All nodes' records, in node order, if it is one of their readers.
    pub records: Vec<Vec<u8>>,
    /// Bytes that it sent, the tree's at the end included.
    pub traffic: Traffic,
}

/// Why a run did not end as it should.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// A node could not go on.
    #[error("node {node}: {failure}")]
    Failed {
        /// Which.
        node: NodeId,
        /// Why.
        failure: Failure,
    },
    /// Something is wrong with this node's own files, or they differ from those of all its
    /// neighbours.
    #[error("{0}")]
    Setup(ConfigError),
    /// What all nodes' setup records make together cannot be used: a record of another node is
    /// wrong.
    #[error("what the setup records of all nodes make together cannot be used: {0}")]
    Agreement(ConfigError),
    /// No node can move: a bug in a rule's plan.
    #[error("no node can go on: {0}")]
    Stuck(String),
    /// A deadline passed.
    #[error("{0}")]
    Deadline(String),
    /// Somebody interrupted it before it could conclude.
    #[error("interrupted in round {0}")]
    Interrupted(Round),
    /// A link or host failed outside the rounds.
    #[error("{0}")]
    Network(String),
}

impl RunError {
    /// In words, with nodes called by their names.
    pub fn told(&self, topology: &crate::mixing::Topology) -> String {
        let name = |node: NodeId| topology.node(node).name.clone();
        match self {
            RunError::Failed { node, failure } => {
                format!("node {}: {}", name(*node), failure.told(&name))
            }
            other => other.to_string(),
        }
    }

    /// The round in which the run diverged, if it did.
    pub fn diverged_at(&self) -> Option<Round> {
        match self {
            RunError::Failed { failure: Failure::Diverged { round, .. }, .. } => Some(*round),
            _ => None,
        }
    }

    /// What ended the run first, as `node` knows it: what a neighbour that left has told, or its
    /// own failure.
    pub fn cause(&self, node: NodeId, topology: &crate::mixing::Topology) -> Cause {
        let name = |node: NodeId| topology.node(node).name.clone();
        match self {
            RunError::Failed { failure: Failure::Left { cause, .. }, .. } => cause.clone(),
            RunError::Failed { node, failure } => Cause { node: *node, text: failure.told(&name) },
            other => Cause { node, text: other.to_string() },
        }
    }
}
