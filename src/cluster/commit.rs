//! No node leaves before all nodes have written their results: until then, a node that was started
//! again needs the others.
//!
//! * A node that has written its results, and whose children in the spanning tree have, says so to
//!   its parent, again and again until it hears that all have. The root then says *over* down the
//!   tree.
//! * Upon the restart of a neighbour, this node goes back with it. Upon a neighbour that is lost,
//!   members are chosen again if they may be; otherwise it is no longer asked.
//! * Upon a tick without news for long: this node leaves. Its own results are complete.

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
    /// Whether members are chosen again if one does not return before all have their results.
    may_continue: bool,
}

/// What follows for a node that has its results.
#[derive(Debug)]
pub(crate) enum Committed {
    /// All have theirs, as far as they can be asked.
    Over,
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
                self.waits.remove(&from);
                self.news = now;
            }
            Event::Start { from, message: StartMessage::Over } if self.parent == Some(from) => {
                return self.over(out);
            }
            Event::Restarted { peer, because } => {
                return Some(Committed::Restarted(peer, because));
            }
            Event::Down { peer, .. } if self.may_continue => {
                return Some(Committed::Absent(Absence::of(peer)));
            }
            Event::Left { peer, cause } if self.may_continue && cause.leaves => {
                return Some(Committed::Absent(Absence::of(peer)));
            }
            Event::OtherMembership(peer) if self.may_continue && part.is_member_neighbour(peer) => {
                return Some(Committed::Absent(Absence::default()));
            }
            Event::Down { peer, .. } | Event::Left { peer, .. } | Event::Goodbye(peer) => {
                if self.waits.remove(&peer) {
                    out.push(Effect::Warn(format!(
                        "node {} left and did not say whether its results are written; this \
                         node's results are complete",
                        part.name(peer)
                    )));
                }
                if self.parent == Some(peer) {
                    return self.over(out);
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
        if self.waits.is_empty() && self.sent.is_none_or(|sent| now - sent >= AGAIN) {
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
        let late = self.waits.first().map_or("the rest of the tree", |&node| part.name(node));
        out.push(Effect::Warn(format!(
            "after {:.0} s it is not known whether all nodes have written their results; those \
             below {late} have not said so; this node's results are complete",
            self.patience.as_secs_f64()
        )));
        self.over(out)
    }

    /// The children may leave, and so may this node.
    fn over(&self, out: &mut Vec<Effect>) -> Option<Committed> {
        let over = |&to: &NodeId| Effect::SendStart { to, message: StartMessage::Over };
        out.extend(self.children.iter().map(over));
        Some(Committed::Over)
    }
}
