//! No node leaves before all nodes have written their results: until then, a node that was started
//! again needs the others.
//!
//! * A node that has written its results, and whose children in the spanning tree have, says so to
//!   its parent, again and again until it hears that all have. The root then says *over* down the
//!   tree. A node believes it only if it has said that those below it have their results.
//! * Upon results that cannot be written: this node says nothing, and no node removes checkpoints.
//! * Upon the restart of a neighbour, this node goes back with it.
//! * Upon a neighbour that is lost before it has said so, members are chosen again if they may be.
//!   Otherwise this node, once it has heard its other children, leaves without a word: whether all
//!   have their results is not known.
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
    message::StartMessage,
    part::Part,
};
use crate::{drive::Absence, units::NodeId};

/// How often a node repeats its message: a connection may have lost it.
const AGAIN: Duration = Duration::from_secs(1);

/// A node that has written its results.
#[derive(Debug)]
pub(crate) struct Commit {
    parent: Option<NodeId>,
    /// The children in the spanning tree, and those of them that have not said that they have
    /// their results.
    children: Vec<NodeId>,
    waits: BTreeSet<NodeId>,
    sent: Option<Instant>,
    news: Instant,
    /// How long to wait without any news.
    patience: Duration,
    /// Whether this node cannot write its own.
    lacks_own: bool,
    /// Whether a child was lost before it has said that it has its results.
    has_lost: bool,
    /// Whether members are chosen again if one does not return before all have their results.
    may_continue: bool,
}

/// What follows for a node that has its results.
#[derive(Debug)]
pub(crate) enum Committed {
    /// All have theirs.
    Over,
    /// Whether all have theirs is not known, and cannot be asked.
    Unknown,
    /// This neighbour was started again, or has gone back because of another node.
    Restarted(NodeId, Option<NodeId>),
    /// Nodes are missing, so the members are chosen again.
    Absent(Absence),
}

impl Commit {
    pub(crate) fn new(
        now: Instant,
        part: &Part<'_>,
        patience: Duration,
        may_continue: bool,
    ) -> Commit {
        let tree = part.topology().spanning_tree();
        let children: Vec<NodeId> = tree.children(part.id).to_vec();
        Commit {
            parent: tree.parent(part.id),
            waits: children.iter().copied().collect(),
            children,
            sent: None,
            news: now,
            patience,
            lacks_own: false,
            has_lost: false,
            may_continue,
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
        match event {
            Event::Start { from, message: StartMessage::Written } => {
                // It repeats that, which is no news.
                self.news = if self.waits.remove(&from) { now } else { self.news };
            }
            Event::Start { from, message: StartMessage::Over }
                if self.parent == Some(from) && self.has_said_so() =>
            {
                return self.over(out);
            }
            Event::Restarted { peer, because } => {
                return Some(Committed::Restarted(peer, because));
            }
            Event::Down { peer, .. } if self.may_continue => {
                return Some(Committed::Absent(Absence::of(peer)));
            }
            // The others may continue without it, and form other results.
            Event::Left { peer, .. } if self.may_continue => {
                return Some(Committed::Absent(Absence::of(peer)));
            }
            Event::Goodbye(peer) if self.may_continue && self.needs(peer) => {
                return Some(Committed::Absent(Absence::of(peer)));
            }
            Event::OtherMembership { peer, .. }
                if self.may_continue && part.is_member_neighbour(peer) =>
            {
                return Some(Committed::Absent(Absence::default()));
            }
            Event::Down { peer, .. } | Event::Left { peer, .. } | Event::Goodbye(peer) => {
                if self.waits.remove(&peer) {
                    self.has_lost = true;
                    out.push(Effect::Warn(format!(
                        "node {} left and did not say whether its results are written; those of \
                         this node are complete, and its checkpoints stay",
                        part.name(peer)
                    )));
                }
                if self.parent == Some(peer) {
                    return Some(Committed::Unknown);
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
        if self.waits.is_empty() && self.has_lost {
            return Some(Committed::Unknown);
        }
        let has_all = self.waits.is_empty() && !self.lacks_own;
        if has_all && self.sent.is_none_or(|sent| now - sent >= AGAIN) {
            let Some(to) = self.parent else { return self.over(out) };
            out.push(Effect::SendStart { to, message: StartMessage::Written });
            self.sent = Some(now);
        }
        // A lost link has its own deadline.
        if !facts.missing.is_empty() {
            self.news = now;
        }
        if now - self.news < self.patience {
            return None;
        }
        if self.may_continue {
            return Some(Committed::Absent(Absence::default()));
        }
        let late = self.waits.first().map_or("the rest of the tree", |&node| part.name(node));
        out.push(Effect::Warn(format!(
            "after {:.0} s it is not known whether all nodes have written their results; those \
             below {late} have not said so; this node's results are complete, and its checkpoints \
             stay",
            self.patience.as_secs_f64()
        )));
        Some(Committed::Unknown)
    }

    /// Upon results that cannot be written: this node does not say that they are.
    pub(crate) fn lacks_results(&mut self) {
        self.lacks_own = true;
    }

    /// Whether this neighbour still has to say something.
    fn needs(&self, peer: NodeId) -> bool {
        self.waits.contains(&peer) || self.parent == Some(peer)
    }

    /// Whether this node has said that it and those below it have their results.
    fn has_said_so(&self) -> bool {
        self.waits.is_empty() && self.sent.is_some()
    }

    /// The children may leave, and so may this node.
    fn over(&self, out: &mut Vec<Effect>) -> Option<Committed> {
        let over = |&to: &NodeId| Effect::SendStart { to, message: StartMessage::Over };
        out.extend(self.children.iter().map(over));
        Some(Committed::Over)
    }
}
