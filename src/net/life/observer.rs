//! What a node tells its caller.

use crate::{
    drive::{Elapsed, Ended, Lent, Waiting},
    gossip::{OwnModel, RoundDone},
    units::{NodeId, Round},
};

/// Receives the events of one node.
pub(crate) trait NodeObserver {
    /// A round is over. May return the round after which all nodes stop.
    fn round(&mut self, elapsed: Elapsed, done: RoundDone) -> Option<Round>;

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

    /// The run is over: write the results now.
    fn ended(&mut self, ended: &Ended);
}
