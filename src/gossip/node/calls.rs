//! Calls of neighbours: requests that wait for their answers, and the clocks of the callers.
//!
//! Without a bound ([`Plan::bound`]) a call waits only for a slot of its link. With a staleness
//! bound of s:
//!
//! * Upon a call of round r: it is refused unless it is the caller's next one. Once the rule has
//!   applied its update, the caller's clock, the number of updates that it has made, is r + 1.
//! * A call of clock c is *due* when no node's clock is below c - s. It is then answered as soon as
//!   its link has a slot.
//! * While a due call waits for a slot, or this node could begin its next gradient, no update of
//!   another call is applied; and no gradient begins before due calls are answered. Otherwise a
//!   late answer or gradient would contain updates of clocks beyond c + s - 1.
//! * Upon the notice of a last call (that neighbour makes no more): its clock becomes infinite, as
//!   does this node's own after its last round.
//!
//! The slowest node never waits for others, and slots become free without it, so at least one node
//! can always continue.

use std::collections::VecDeque;

use crate::{
    gossip::plan::{self, At, Meeting, Plan},
    mixing::Topology,
    units::{NodeId, Round},
};

/// The clock of a node that makes no more updates.
pub(super) const INFINITY: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Call {
    pub from: NodeId,
    pub bytes: Vec<u8>,
    round: Round,
    /// Whether the rule has applied its update. Always true without a bound: the rule then applies
    /// it when it answers.
    applied: bool,
}

impl Call {
    fn clock(&self) -> u64 {
        self.round.0 + 1
    }
}

/// The next action for a call, with the call's position among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Let the rule apply its update.
    Apply(usize),
    /// Remove it and answer it.
    Answer(usize),
}

/// All calls of one node, at most one of each neighbour.
#[derive(Debug)]
pub(super) struct Calls {
    id: NodeId,
    bound: Option<u64>,
    /// The clocks of neighbours that call this node, if there is a bound; ascending by node.
    clocks: Vec<(NodeId, u64)>,
    waiting: VecDeque<Call>,
    /// Neighbours that make no more calls.
    left: Vec<NodeId>,
}

impl Calls {
    pub(super) fn new(id: NodeId, plan: &dyn Plan, topology: &Topology) -> Calls {
        let bound = plan.bound();
        let mut clocks = Vec::new();
        if bound.is_some() {
            let mut meeting = Meeting::default();
            for &peer in topology.neighbours(id) {
                for flight in plan::flights(plan).into_iter().filter(|&flight| plan.calls(flight)) {
                    meeting.clear();
                    plan.meet(peer, &At { round: Round(0), flight, exchange: 0 }, &mut meeting);
                    if meeting.send.contains(&id) {
                        clocks.push((peer, 0));
                    }
                }
            }
        }
        Calls { id, bound, clocks, waiting: VecDeque::new(), left: Vec::new() }
    }

    /// Adds a call that the plan allows.
    ///
    /// # Errors
    /// The reason if the neighbour cannot make it now.
    pub(super) fn arrived(
        &mut self,
        from: NodeId,
        round: Round,
        bytes: Vec<u8>,
    ) -> Result<(), String> {
        if self.waiting.iter().any(|call| call.from == from) {
            return Err("a second call before the first was answered".into());
        }
        if let Some((_, clock)) = self.clocks.iter().find(|(peer, _)| *peer == from)
            && *clock != round.0
        {
            return Err(match *clock {
                INFINITY => "a call after its last one".into(),
                next => format!("its next call is that of round {next}"),
            });
        }
        self.waiting.push_back(Call { from, bytes, round, applied: self.bound.is_none() });
        Ok(())
    }

    /// Drops the call of a neighbour whose link ended, and resets its clock.
    pub(super) fn forget(&mut self, from: NodeId) {
        self.waiting.retain(|call| call.from != from);
        self.left.retain(|peer| *peer != from);
        self.set(from, 0);
    }

    /// Records that a neighbour makes no more calls.
    ///
    /// # Errors
    /// If it has left before.
    pub(super) fn leave(&mut self, from: NodeId) -> Result<(), String> {
        if self.has_left(from) {
            return Err("a second notice of its last call".into());
        }
        self.left.push(from);
        self.set(from, INFINITY);
        Ok(())
    }

    /// The next action. `own` is this node's clock; `begins` says whether it is about to begin a
    /// gradient.
    pub(super) fn next(
        &self,
        own: u64,
        begins: bool,
        has_slot: impl Fn(NodeId) -> bool,
    ) -> Option<Turn> {
        let mut blocked = false;
        for (place, call) in
            self.waiting.iter().enumerate().filter(|(_, call)| self.is_due(call, own))
        {
            if has_slot(call.from) {
                return Some(Turn::Answer(place));
            }
            blocked = true;
        }
        if blocked || (begins && self.may_begin(Round(own))) {
            return None;
        }
        self.waiting.iter().position(|call| !call.applied).map(Turn::Apply)
    }

    /// Marks a call as applied and advances the caller's clock.
    pub(super) fn apply(&mut self, place: usize) -> &Call {
        let call = &mut self.waiting[place];
        call.applied = true;
        let (from, clock) = (call.from, call.clock());
        self.set(from, clock);
        &self.waiting[place]
    }

    /// Removes a call, to answer it.
    pub(super) fn remove(&mut self, place: usize) -> Call {
        self.waiting.remove(place).expect("a place that was named")
    }

    /// Whether this node may begin a round now.
    pub(super) fn may_begin(&self, round: Round) -> bool {
        self.bound.is_none()
            || (self.behind(round.0, round.0).next().is_none()
                && !self.waiting.iter().any(|call| self.is_due(call, round.0)))
    }

    /// The nodes that hold back a node of clock `clock`: neighbours in ascending order, then this
    /// node, whose clock is `own`.
    pub(super) fn behind(&self, clock: u64, own: u64) -> impl Iterator<Item = NodeId> {
        let least = self.bound.map_or(0, |bound| clock.saturating_sub(bound));
        let own = std::iter::once((self.id, own));
        self.clocks
            .iter()
            .copied()
            .chain(own)
            .filter(move |(_, clock)| *clock < least)
            .map(|(node, _)| node)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether this neighbour makes no more calls.
    pub(super) fn has_left(&self, peer: NodeId) -> bool {
        self.left.contains(&peer)
    }

    fn is_due(&self, call: &Call, own: u64) -> bool {
        call.applied && self.behind(call.clock(), own).next().is_none()
    }

    fn set(&mut self, peer: NodeId, to: u64) {
        if let Some((_, clock)) = self.clocks.iter_mut().find(|(node, _)| *node == peer) {
            *clock = to;
        }
    }
}
