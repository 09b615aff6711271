//! What a driver reports while nodes run.

use super::Lent;
use crate::{
    gossip::{OwnModel, RoundDone},
    units::{NodeId, Round, Time},
};

/// A node's clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// Since its start.
    pub time: Time,
    /// Of that, how long it has computed gradients.
    pub computing: Time,
}

/// What a node waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The neighbours that are late, as far as they are known.
    pub peers: Vec<NodeId>,
    /// At which place of the run, and what is known of the cause.
    pub text: String,
}

/// Told of progress by a driver that sees several nodes.
pub trait Observer {
    /// A node has finished a round.
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone);

    /// A node begins; `lent` shows the model while a gradient is computed at it.
    fn begins(&mut self, _node: NodeId, _lent: &Lent) {}

    /// The link to a neighbour is up: `up` of the node's `links` are.
    fn linked(&mut self, _node: NodeId, _peer: NodeId, _up: usize, _links: usize) {}

    /// A link is gone. Before the rounds begin it is waited for again; later the run ends.
    fn link_lost(&mut self, _node: NodeId, _peer: NodeId, _reason: &str) {}

    /// The node has waited for some seconds.
    fn waits(&mut self, _node: NodeId, _waiting: &Waiting) {}

    /// A node's own model is final, or its run ends early and this is what it has: save it now. The
    /// rounds done say which.
    fn save(&mut self, _node: NodeId, _elapsed: Elapsed, _own: &OwnModel) {}

    /// The mean of all models is formed: save it now. Told by one node at the least; it is the same
    /// at all.
    fn mean(&mut self, _mean: &[f32]) {}

    /// The round after which all nodes stop, if the user asks for it.
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
