//! What a node tells its caller. Nodes have their numbers in the topology of the run.

use crate::{
    drive::{Elapsed, Ended, Lent, Observer, Waiting},
    gossip::{OwnModel, RoundDone},
    units::{NodeId, Round},
};

/// Receives the events of one node.
pub(crate) trait NodeObserver {
    /// A round is over. May return the round after which all nodes stop.
    fn round(&mut self, elapsed: Elapsed, done: RoundDone) -> Option<Round>;

    /// The rounds begin or continue with these members.
    fn members(&mut self, _members: &[NodeId]) {}

    fn begins(&mut self, lent: &Lent);

    /// The node continues after this many rounds; reports of later rounds no longer count.
    fn resumes(&mut self, rounds: Round);

    /// The link to `peer` is up, as number `up` of the node's `links`.
    fn linked(&mut self, peer: NodeId, up: usize, links: usize);

    fn link_lost(&mut self, peer: NodeId, reason: &str);

    /// The node has waited for some seconds.
    fn waits(&mut self, waiting: &Waiting);

    /// Why neighbours that are not members cannot be reached.
    fn away(&mut self, _nodes: &[(NodeId, String)]) {}

    /// The node's own model is final, or the run ends early with this one.
    fn save(&mut self, elapsed: Elapsed, own: OwnModel);

    /// The mean of all models is formed.
    fn mean(&mut self, mean: &[f32]);

    /// The run is over: write the results now. Returns whether they are written.
    fn ended(&mut self, ended: &Ended) -> bool;
}

/// Passes the events of the one local node on.
pub(crate) struct LocalObserver<'a> {
    pub node: NodeId,
    pub observer: &'a mut dyn Observer,
}

impl NodeObserver for LocalObserver<'_> {
    fn round(&mut self, elapsed: Elapsed, done: RoundDone) -> Option<Round> {
        self.observer.round(self.node, elapsed, done);
        None
    }

    fn members(&mut self, members: &[NodeId]) {
        self.observer.members(self.node, members);
    }

    fn begins(&mut self, lent: &Lent) {
        self.observer.begins(self.node, lent);
    }

    fn resumes(&mut self, rounds: Round) {
        self.observer.resumes(self.node, rounds);
    }

    fn linked(&mut self, peer: NodeId, up: usize, links: usize) {
        self.observer.linked(self.node, peer, up, links);
    }

    fn link_lost(&mut self, peer: NodeId, reason: &str) {
        self.observer.link_lost(self.node, peer, reason);
    }

    fn waits(&mut self, waiting: &Waiting) {
        self.observer.waits(self.node, waiting);
    }

    fn away(&mut self, nodes: &[(NodeId, String)]) {
        self.observer.away(self.node, nodes);
    }

    fn save(&mut self, elapsed: Elapsed, own: OwnModel) {
        self.observer.save(self.node, elapsed, &own);
    }

    fn mean(&mut self, mean: &[f32]) {
        self.observer.mean(mean);
    }

    fn ended(&mut self, ended: &Ended) -> bool {
        self.observer.ended(self.node, ended)
    }
}
