//! No node leaves before all nodes have written their results: until then, a node that was started
//! again needs the others.
//!
//! A node that has written its results, and whose children in the spanning tree have, reports so to
//! its parent; the root then sends *over* down the tree.

use std::{
    collections::BTreeSet,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use crate::{
    drive::Absence,
    mixing::Topology,
    net::{
        life::{clock, event::Event, limits::POLL, links::Links},
        link::wire::StartMessage,
    },
    units::NodeId,
};

/// How often a node repeats its message: a connection may have lost it.
const AGAIN: Duration = Duration::from_secs(1);

/// A node that has written its results.
pub(crate) struct Confirmation<'a> {
    pub id: NodeId,
    pub topology: &'a Topology,
    pub links: &'a dyn Links,
    /// How long to wait without any news.
    pub patience: Duration,
    /// Whether members are chosen again if one does not return before all have their results.
    pub may_continue: bool,
}

/// Why a node that has its results must continue.
pub(crate) enum Again {
    /// This neighbour was started again.
    Restarted(NodeId),
    /// Nodes are missing, so the members are chosen again.
    Absent(Absence),
    /// It is asked to leave, and the others may continue without it.
    Asked,
}

impl Confirmation<'_> {
    /// Waits until all nodes have written their results, as far as they can be asked. `stop` is
    /// called again and again and returns whether to wait no longer. Returns why this node must
    /// continue, if it must.
    pub(crate) fn wait(&self, stop: &mut dyn FnMut() -> bool) -> Option<Again> {
        let tree = self.topology.spanning_tree();
        let parent = tree.parent(self.id);
        let mut waits: BTreeSet<NodeId> = tree.children(self.id).iter().copied().collect();
        let (mut over, mut sent, mut news) = (false, None::<Instant>, clock::now());
        while !over {
            let ready = waits.is_empty();
            if ready && sent.is_none_or(|sent| clock::since(sent) >= AGAIN) {
                match parent {
                    Some(parent) => self.links.send_start(parent, StartMessage::Written),
                    None => break,
                }
                sent = Some(clock::now());
            }
            match self.links.next(POLL) {
                Ok(Event::Start { from, message: StartMessage::Written }) => {
                    waits.remove(&from);
                    news = clock::now();
                }
                Ok(Event::Start { from, message: StartMessage::Over }) => {
                    over = parent == Some(from);
                }
                Ok(Event::Restarted(peer)) => return Some(Again::Restarted(peer)),
                Ok(Event::Down { peer, .. }) if self.may_continue => {
                    return Some(Again::Absent(Absence::of(peer)));
                }
                Ok(Event::Left { peer, cause }) if self.may_continue && cause.leaves => {
                    return Some(Again::Absent(Absence::of(peer)));
                }
                Ok(Event::OtherMembership(peer))
                    if self.may_continue && self.topology.neighbours(self.id).contains(&peer) =>
                {
                    return Some(Again::Absent(Absence::default()));
                }
                Ok(Event::Down { peer, .. } | Event::Left { peer, .. } | Event::Goodbye(peer)) => {
                    let name = &self.topology.node(peer).name;
                    if waits.remove(&peer) {
                        tracing::warn!(
                            "node {name} left and did not say whether its results are written; \
                             this node's results are complete"
                        );
                    }
                    over |= parent == Some(peer);
                }
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // A lost link has its own deadline.
            if !self.links.status().missing().is_empty() {
                news = clock::now();
            }
            if stop() {
                return self.may_continue.then_some(Again::Asked);
            }
            if clock::since(news) >= self.patience {
                let late: Vec<&str> =
                    waits.iter().map(|&node| self.topology.node(node).name.as_str()).collect();
                tracing::warn!(
                    "after {:.0} s it is not known whether all nodes have written their results; \
                     those below {} have not said so; this node's results are complete",
                    self.patience.as_secs_f64(),
                    if late.is_empty() { "the rest of the tree" } else { &late[0] }
                );
                break;
            }
        }
        for &child in tree.children(self.id) {
            self.links.send_start(child, StartMessage::Over);
        }
        None
    }
}
