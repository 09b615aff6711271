//! No node leaves before all nodes have written their results: until then, a node that was started
//! again needs the others.
//!
//! * A node that has written its results signs that, and tells [all others](super::statements).
//!   Once all nodes have signed the same results, it passes on what it has heard, and leaves.
//! * Upon results that cannot be written: this node says nothing, and no node removes checkpoints.
//! * Upon the restart of a neighbour, this node goes back with it.
//! * Upon a neighbour that is lost before it has said so, or once all neighbours are lost: members
//!   are chosen again if they may be. Otherwise this node leaves a moment later: whether all have
//!   their results is not known.
//! * Upon a tick without news for long: the same; members that may have continued are asked.
//!
//! A node that leaves without knowing it retains its checkpoints. Its own results are complete.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::{
    effect::{Effect, Facts},
    event::Event,
    message::Origin,
    part::Part,
    statements::{Said, Statements},
    waiting::limits::Limits,
};
use crate::{drive::Absence, gossip::Failure, units::NodeId};

/// How long a node that cannot hear of all results waits for what is on its way.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// A node that has written its results.
#[derive(Debug)]
pub(crate) struct Commit {
    statements: Statements,
    /// The number of the results.
    results: u64,
    /// The nodes that have not said that they have written the same.
    waits: BTreeSet<NodeId>,
    /// The neighbours whose links have not ended.
    linked: BTreeSet<NodeId>,
    news: Instant,
    limits: Limits,
    /// Whether this node cannot write its own.
    lacks_own: bool,
    /// Since when a node cannot be heard that has not said that it has its results.
    lost: Option<Instant>,
}

/// What follows for a node that has its results.
#[derive(Debug)]
pub(crate) enum Committed {
    /// All have theirs.
    Over,
    /// Whether all have theirs is not known, and cannot be asked.
    Unknown,
    /// This neighbour was started again, or has gone back because of another node.
    Restarted(NodeId, Option<Origin>),
    /// Nodes are missing, so the members are chosen again.
    Absent(Absence),
    /// A neighbour has broken the protocol, and the run continues without it.
    Refused(Failure),
}

impl Commit {
    /// A node that writes the results with this number now.
    pub(crate) fn new(
        now: Instant,
        part: &Part<'_>,
        limits: Limits,
        statements: Statements,
        results: u64,
    ) -> Commit {
        Commit {
            statements,
            results,
            waits: (0..part.topology().nodes()).map(NodeId::from).collect(),
            linked: part.topology().neighbours(part.id).iter().copied().collect(),
            news: now,
            limits,
            lacks_own: false,
            lost: None,
        }
    }

    /// Upon an event of the links.
    pub(crate) fn event(
        &mut self,
        now: Instant,
        part: &Part<'_>,
        event: Event,
        out: &mut Vec<Effect>,
    ) -> Option<Committed> {
        let may_continue = self.limits.may_continue;
        match event {
            Event::Told { from, batch } => match self.statements.hear(from, batch) {
                Err(failure) if may_continue => return Some(Committed::Refused(failure)),
                // What is false is left out, and the run is over.
                Ok(()) | Err(_) => return self.look(now, out),
            },
            Event::Restarted { peer, because } => {
                return Some(Committed::Restarted(peer, because));
            }
            // The others may continue without it, and form other results.
            Event::Down { peer, .. } | Event::Left { peer, .. } if may_continue => {
                return Some(Committed::Absent(Absence::of(peer)));
            }
            Event::OtherMembership { peer, .. }
                if may_continue && part.is_member_neighbour(peer) =>
            {
                return Some(Committed::Absent(Absence::default()));
            }
            Event::Down { peer, .. } | Event::Left { peer, .. } | Event::Goodbye(peer) => {
                self.linked.remove(&peer);
                let is_silent = self.waits.contains(&peer);
                if may_continue && (is_silent || self.linked.is_empty()) {
                    return Some(Committed::Absent(Absence::of(peer)));
                }
                if is_silent && self.lost.is_none() {
                    out.push(Effect::Warn(format!(
                        "node {} left and did not say whether its results are written; those of \
                         this node are complete, and its checkpoints stay",
                        part.name(peer)
                    )));
                }
                if is_silent || self.linked.is_empty() {
                    self.lost.get_or_insert(now);
                }
            }
            _ => {}
        }
        None
    }

    /// Upon a tick.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        part: &Part<'_>,
        facts: &Facts,
        out: &mut Vec<Effect>,
    ) -> Option<Committed> {
        if !self.lacks_own {
            self.statements.say(Said::Written(self.results));
        }
        if let over @ Some(_) = self.look(now, out) {
            return over;
        }
        out.extend(self.statements.tell(now).map(Effect::Tell));
        if self.lost.is_some_and(|since| now >= since + ON_THE_WAY) {
            return Some(Committed::Unknown);
        }
        // A lost link has its own deadline. One that has ended is no more.
        if facts.missing.iter().any(|(peer, _)| self.linked.contains(peer)) {
            self.news = now;
        }
        if now - self.news < self.limits.patience {
            return None;
        }
        if self.limits.may_continue {
            // A neighbour that has signed no such results for so long is as one that is absent.
            let neighbours = part.topology().neighbours(part.id).iter();
            let late = neighbours.filter(|peer| self.waits.contains(*peer)).copied().collect();
            return Some(Committed::Absent(Absence { late, ..Absence::default() }));
        }
        let late: Vec<NodeId> =
            self.waits.iter().copied().filter(|node| *node != part.id).collect();
        let late = if late.is_empty() { "no other node".into() } else { part.names(&late) };
        out.push(Effect::Warn(format!(
            "after {:.0} s it is not known whether all nodes have written their results; not \
             heard of: {late}; this node's results are complete, and its checkpoints stay",
            self.limits.patience.as_secs_f64()
        )));
        Some(Committed::Unknown)
    }

    /// Looks who has said that it has its results.
    fn look(&mut self, now: Instant, out: &mut Vec<Effect>) -> Option<Committed> {
        let before = self.waits.len();
        let (statements, results) = (&self.statements, self.results);
        self.waits.retain(|node| statements.written(*node) != Some(results));
        if self.waits.len() < before {
            self.news = now;
        }
        if !self.waits.is_empty() {
            return None;
        }
        // The neighbours must know it, too, before this node leaves.
        out.extend(self.statements.tell_now().map(Effect::Tell));
        Some(Committed::Over)
    }

    /// Upon results that cannot be written: this node does not say that they are.
    pub(crate) fn lacks_results(&mut self) {
        self.lacks_own = true;
    }
}
