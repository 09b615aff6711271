//! The events that a driver reports while nodes run.

use super::{Ended, Lent};
use crate::{
    gossip::{OwnModel, RoundDone},
    units::{NodeId, Round, Time},
};

/// The time that a node has run and computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// The time since its start.
    pub time: Time,
    /// The part of it spent on gradients.
    pub computing: Time,
}

/// A node that has waited long for frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The neighbours that are late, as far as they are known.
    pub peers: Vec<NodeId>,
    /// The step of the run, and the cause as far as it is known.
    pub text: String,
}

/// Receives the progress of a driver's nodes.
pub trait Observer {
    /// A node has finished a round.
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone);

    /// The rounds begin or continue with these members, in ascending order; all are linked.
    fn members(&mut self, _node: NodeId, _members: &[NodeId]) {}

    /// A node begins; `lent` shows the model while a gradient is computed at it.
    fn begins(&mut self, _node: NodeId, _lent: &Lent) {}

    /// A node continues after this many rounds; reports of later rounds no longer count.
    fn resumes(&mut self, _node: NodeId, _rounds: Round) {}

    /// The link to `peer` is up, as number `up` of the node's `links`.
    fn linked(&mut self, _node: NodeId, _peer: NodeId, _up: usize, _links: usize) {}

    /// A link broke. Before the rounds begin it may come up again; later the run ends.
    fn link_lost(&mut self, _node: NodeId, _peer: NodeId, _reason: &str) {}

    /// The node has waited for some seconds.
    fn waits(&mut self, _node: NodeId, _waiting: &Waiting) {}

    /// Why neighbours that are not members cannot be reached, as far as the node knows.
    fn away(&mut self, _node: NodeId, _nodes: &[(NodeId, String)]) {}

    /// A node's own model is final, or its run ends early with this one: save it now. It states the
    /// rounds done.
    fn save(&mut self, _node: NodeId, _elapsed: Elapsed, _own: &OwnModel) {}

    /// The mean of all models is final: save it now. At least one node reports it; it is the same
    /// at all.
    fn mean(&mut self, _mean: &[f32]) {}

    /// A node's run is over: write its results now. It leaves when all nodes have written theirs.
    /// Returns whether they are written: otherwise the node fails, and its checkpoints stay.
    /// Reported over libp2p only: a simulation returns the results of all nodes.
    fn ended(&mut self, _node: NodeId, _ended: &Ended) -> bool {
        true
    }

    /// The round after which all nodes stop, if the user has asked to stop.
    fn stop_after(&mut self) -> Option<Round> {
        None
    }
}

/// An observer that ignores everything.
#[derive(Debug, Default)]
pub struct NoopObserver;

impl Observer for NoopObserver {
    fn round(&mut self, _node: NodeId, _elapsed: Elapsed, _done: RoundDone) {}
}
