//! Decides who continues without nodes that are absent for too long, and with nodes that are back.
//!
//! All running nodes pass on what each says about itself: a signed [`View`] of its links and of the
//! neighbours that are late. From the same views all nodes form the same [`Membership`], so nobody
//! has to propose it. A node does so once
//!
//! * its part of the network holds a quorum, more than half of all nodes;
//! * every link that is missing in it, or leads out of it, is late at one of its ends;
//! * the part has been the same for a moment, unless it is the whole network.
//!
//! A membership that differs from the last ones has the next number. A node records it before it
//! says so, and never adopts an older one. The members begin only when all of them are linked in
//! this membership. Two quorums have a node in common, so at most one membership can continue: the
//! other one lacks that node.
//!
//! A node can be false about itself only. A link is up if both ends say so; so it can give up its
//! own links, and not those of others. It can raise the number, which costs a record each time:
//! after [some times](MOST_RAISED) it is heard no longer. It can say two things with one number,
//! one to each neighbour: then the one with the greater signature counts, so all have the same
//! again once both have gone round.
//!
//! A link may also break when the results are written. If all members in a part with a quorum have
//! them, the run is over: its nodes adopt no membership, and end once a quorum of them knows.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use litemap::LiteMap;
use serde::{Deserialize, Serialize};

use super::keys::{self, Keys};
use crate::{drive::Membership, mixing::Topology, units::NodeId};

/// How long a part of the network must have been the same.
const SETTLED: Duration = Duration::from_secs(1);

/// The numbers of views that a node gives out in one choice of members, and how many of them
/// another node may have missed. A false number must not be one that no later one exceeds.
const MOST_VIEWS: u64 = 1 << 40;
const MOST_MISSED: u64 = 1 << 20;

/// How many views of one node are heard in one choice: an honest one has a few dozen.
const MOST_HEARD: u32 = 1_000;

/// How many of them may name a later membership than all other nodes know: an honest node is the
/// first to adopt one a few times.
const MOST_RAISED: u32 = 10;

/// How many memberships a node records in one choice.
const MOST_ADOPTIONS: u32 = 100;

/// How many changes of the members a node may have missed.
const MOST_CHANGES_MISSED: u64 = 1 << 16;

/// What a node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// A later view of the same node has a higher number. Of two with one number, the one with the
    /// greater signature counts.
    pub number: u64,
    /// The neighbours with which it is linked, ascending.
    pub linked: Vec<NodeId>,
    /// The neighbours that are not linked and are no longer awaited, ascending.
    pub late: Vec<NodeId>,
    /// The membership that it has adopted last.
    pub adopted: u64,
    /// Whether it has agreed on that membership since it began to choose: it continues with it.
    pub agreed: bool,
    /// Whether it has been part of the run before.
    pub started: bool,
    /// Identifies its results, if it has written them.
    pub results: Option<u64>,
    /// Whether it takes the run for over: then it adopts no membership.
    pub over: bool,
    /// That of the node, over all this.
    pub signature: Vec<u8>,
}

/// The bytes of a view of a node that its signature covers.
pub(crate) fn statement(node: NodeId, view: &View) -> Vec<u8> {
    #[derive(Serialize)]
    struct Statement<'v> {
        domain: &'static str,
        node: NodeId,
        view: &'v View,
    }
    let view = &View { signature: Vec::new(), ..view.clone() };
    let statement = Statement { domain: "gradvine view", node, view };
    bincode::serde::encode_to_vec(statement, bincode::config::standard())
        .expect("a view serialises")
}

/// What nodes tell their neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// The newest view of each node.
    pub views: Vec<(NodeId, View)>,
}

impl News {
    /// Whether nodes of this topology can say so.
    pub fn is_valid(&self, topology: &Topology) -> bool {
        let nodes = topology.nodes();
        let exists = |node: &NodeId| node.index() < nodes;
        let ascending = |all: &[NodeId]| all.iter().all(exists) && all.is_sorted_by(|a, b| a < b);
        let view = |(node, view): &(NodeId, View)| {
            exists(node)
                && view.number < MOST_VIEWS
                && view.linked.len() <= topology.neighbours(*node).len()
                && ascending(&view.linked)
                && view.late.len() <= topology.neighbours(*node).len()
                && ascending(&view.late)
                && view.signature.len() <= keys::LONGEST
        };
        self.views.len() <= nodes && self.views.iter().all(view)
    }
}

/// The state of the decision at one node.
#[derive(Clone, Debug)]
pub(crate) struct Assembly {
    me: NodeId,
    topology: Arc<Topology>,
    keys: Arc<dyn Keys>,
    /// The least number of members, before the run has started and after that.
    quorums: [usize; 2],
    own: View,
    views: LiteMap<NodeId, View>,
    /// The membership that this node has adopted last.
    adopted: Membership,
    /// How many views of each node were heard in this choice, and how many named the latest
    /// membership.
    heard: LiteMap<NodeId, (u32, u32)>,
    /// How many it has recorded in this choice.
    adoptions: u32,
    /// This node's part of the network, and since when it has been the same.
    part: (BTreeSet<NodeId>, Option<Instant>),
}

/// What a node does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Wait(Vec<NodeId>),
    /// Record this membership, then [`Assembly::adopt`] it.
    Adopt(Membership),
    /// Continue with the adopted membership soon: not all neighbours know yet that this node does.
    Confirm,
    /// Continue with the adopted membership: the neighbours know of it.
    Leave,
    /// End: a quorum has the results of the run, and none of these nodes continues.
    End,
}

impl Assembly {
    /// The state at a node that has adopted this membership; `started` says whether it has been
    /// part of the run.
    pub(crate) fn new(
        topology: Arc<Topology>,
        (me, keys): (NodeId, Arc<dyn Keys>),
        quorums: [usize; 2],
        adopted: Membership,
        started: bool,
    ) -> Assembly {
        let own = View { adopted: adopted.id, started, ..View::default() };
        let mut assembly = Assembly {
            me,
            topology,
            keys,
            quorums,
            own,
            views: LiteMap::new(),
            adopted,
            heard: LiteMap::new(),
            adoptions: 0,
            part: (BTreeSet::new(), None),
        };
        assembly.publish();
        assembly
    }

    /// The same for a node that may have results, which this number identifies.
    #[must_use]
    pub(crate) fn with_results(mut self, results: Option<u64>) -> Assembly {
        self.own.results = results;
        self.publish();
        self
    }

    /// Sets the neighbours with which this node is linked, and those that are late.
    pub(crate) fn observe(&mut self, linked: &BTreeSet<NodeId>, late: &BTreeSet<NodeId>) {
        let linked: Vec<NodeId> = linked.iter().copied().collect();
        let late: Vec<NodeId> = late.iter().copied().filter(|n| !linked.contains(n)).collect();
        if (&linked, &late) != (&self.own.linked, &self.own.late) {
            (self.own.linked, self.own.late) = (linked, late);
            self.renew();
        }
    }

    /// Publishes this node's view under a higher number.
    fn renew(&mut self) {
        self.own.number += 1;
        self.publish();
    }

    /// Signs this node's view for the others.
    fn publish(&mut self) {
        self.own.signature = self.keys.sign(&statement(self.me, &self.own));
        self.views.insert(self.me, self.own.clone());
    }

    /// Takes what a neighbour knows, which must be [valid](News::is_valid). What is far beyond what
    /// this node knows is left out: nothing later could replace it.
    ///
    /// # Errors
    /// If it names a view that its node has not signed: each node checks that before it passes it
    /// on.
    pub(crate) fn receive(&mut self, news: News) -> Result<(), String> {
        let most = (self.adopted.id >> 32) + MOST_CHANGES_MISSED;
        let is_near = |id: u64| id >> 32 <= most;
        for (node, view) in news.views {
            let known = self.views.get(&node);
            let is_news = known.is_none_or(|known| {
                (view.number, &view.signature) > (known.number, &known.signature)
            });
            let is_far = known.is_some_and(|known| view.number > known.number + MOST_MISSED);
            if (is_news || node == self.me)
                && !self.keys.verify(node, &statement(node, &view), &view.signature)
            {
                return Err(format!("it passes on what node {node} has not said"));
            }
            if !is_near(view.adopted) || is_far {
                continue;
            }
            if node == self.me {
                // Of this node's program before it was started again.
                if view.number >= self.own.number && view != self.own {
                    self.own.number = view.number;
                    self.renew();
                }
            } else if is_news {
                let newest = self.views.values().map(|view| view.adopted).max();
                let (heard, raised) = self.heard.entry(node).or_insert((0, 0));
                *heard += 1;
                *raised += u32::from(newest.is_some_and(|newest| view.adopted > newest));
                if *heard <= MOST_HEARD && *raised <= MOST_RAISED {
                    self.views.insert(node, view);
                }
            }
        }
        Ok(())
    }

    /// Whether a neighbour has said that it has no link to this node.
    pub(crate) fn is_denied_by(&self, peer: NodeId) -> bool {
        self.views.get(&peer).is_some_and(|view| !view.linked.contains(&self.me))
    }

    pub(crate) fn news(&self) -> News {
        let views = self.views.iter().map(|(node, view)| (*node, view.clone())).collect();
        News { views }
    }

    /// Whether the run has started, as far as this node knows.
    pub(crate) fn has_started(&self) -> bool {
        self.views.values().any(|view| view.started)
    }

    /// The least number of members. A node that has lost its files learns from the others whether
    /// the run has started.
    pub(crate) fn quorum(&self) -> usize {
        self.quorums[usize::from(self.has_started())]
    }

    /// Whether both ends of a link say that it is up.
    fn is_up(&self, a: NodeId, b: NodeId) -> bool {
        let says = |a, b| self.views.get(&a).is_some_and(|view| view.linked.contains(&b));
        says(a, b) && says(b, a)
    }

    fn is_late(&self, a: NodeId, b: NodeId) -> bool {
        self.views.get(&a).is_some_and(|view| view.late.contains(&b))
    }

    /// The nodes that this node can reach.
    pub(crate) fn part(&self) -> BTreeSet<NodeId> {
        let mut part = BTreeSet::from([self.me]);
        let mut open = vec![self.me];
        while let Some(node) = open.pop() {
            for &peer in self.topology.neighbours(node) {
                if self.is_up(node, peer) && part.insert(peer) {
                    open.push(peer);
                }
            }
        }
        part
    }

    /// Decides what to do at this time.
    pub(crate) fn step(&mut self, now: Instant) -> NextStep {
        let part = self.part();
        if self.part.0 != part {
            self.part = (part.clone(), Some(now));
        }
        let quorum = self.quorum();
        if self.is_over(&part) {
            let ends = |node: &&NodeId| self.views.get(node).is_some_and(|view| view.over);
            return match part.iter().filter(ends).count() >= quorum {
                true => NextStep::End,
                false => NextStep::Wait(self.missing(&part)),
            };
        }
        // Neighbours that have agreed too may have left the choice.
        let is_newest = |member: &NodeId| {
            self.views.get(member).is_none_or(|view| view.adopted <= self.adopted.id)
        };
        if self.own.agreed && self.adopted.members.iter().all(is_newest) {
            return self.confirm();
        }
        let chosen = match self.choose(&part, now) {
            Ok(chosen) => chosen,
            Err(missing) => return NextStep::Wait(missing),
        };
        if chosen != self.adopted {
            return match self.adoptions < MOST_ADOPTIONS {
                true => NextStep::Adopt(chosen),
                false => NextStep::Wait(Vec::new()),
            };
        }
        self.agree();
        self.confirm()
    }

    /// What is next for a node that has agreed on the membership that it has adopted.
    fn confirm(&self) -> NextStep {
        let Membership { id, members, .. } = &self.adopted;
        let agrees = |view: &View| view.adopted == *id && view.agreed;
        let knows =
            |peer: &NodeId| self.views.get(peer).is_some_and(agrees) || !members.contains(peer);
        match self.own.linked.iter().all(knows) {
            true => NextStep::Leave,
            false => NextStep::Confirm,
        }
    }

    /// Whether the run is over: the members in a part with a quorum have its results. A node that
    /// has found this adopts no membership, so no quorum can continue without those results.
    fn is_over(&mut self, part: &BTreeSet<NodeId>) -> bool {
        let (own, members) = (&self.own, &self.adopted.members);
        let mut views = part.iter().filter_map(|node| Some((node, self.views.get(node)?)));
        let over = match own.results {
            Some(_) => {
                let has = |(node, view): (&NodeId, &View)| {
                    view.results == own.results || !members.contains(node)
                };
                part.len() >= self.quorum() && views.all(has) && self.links_down(part).1.is_empty()
            }
            // It was not a member at the end.
            None => views.any(|(_, view)| view.over && view.adopted > own.adopted),
        };
        if over && !self.own.over {
            self.own.over = true;
            self.renew();
        }
        self.own.over
    }

    /// Agrees on the adopted membership.
    fn agree(&mut self) {
        if !self.own.agreed {
            self.own.agreed = true;
            self.renew();
        }
    }

    /// The nodes outside a part of the network.
    fn missing(&self, part: &BTreeSet<NodeId>) -> Vec<NodeId> {
        (0..self.topology.nodes()).map(NodeId::from).filter(|node| !part.contains(node)).collect()
    }

    /// The links in this part of the network that are down, and the nodes that are still awaited,
    /// in it or outside of it.
    fn links_down(&self, part: &BTreeSet<NodeId>) -> (Vec<(NodeId, NodeId)>, BTreeSet<NodeId>) {
        let (mut cut, mut awaited) = (Vec::new(), BTreeSet::new());
        for (a, b) in self.topology.edges() {
            let inside = (part.contains(&a), part.contains(&b));
            if inside == (false, false) || self.is_up(a, b) {
                continue;
            }
            if !self.is_late(a, b) && !self.is_late(b, a) {
                awaited.extend([a, b].iter().filter(|node| !part.contains(node)));
                // A link inside the part may still come up.
                if inside == (true, true) {
                    awaited.insert(b);
                }
            } else if inside == (true, true) {
                cut.push((a, b));
            }
        }
        (cut, awaited)
    }

    /// The membership of this part of the network.
    ///
    /// # Errors
    /// The nodes that are awaited.
    fn choose(&self, part: &BTreeSet<NodeId>, now: Instant) -> Result<Membership, Vec<NodeId>> {
        let whole = part.len() == self.topology.nodes();
        if part.len() < self.quorum() {
            return Err(self.missing(part));
        }
        let (cut, awaited) = self.links_down(part);
        let members: Vec<NodeId> = part.iter().copied().collect();
        let newest = part.iter().map(|node| self.views[node].adopted).max().unwrap_or(0);
        // Some may have recorded it before: then it has settled there.
        let same = Membership { id: newest, members, cut };
        let is_same = same.has_own_id(self.topology.nodes());
        let settled = self.part.1.is_some_and(|since| now >= since + SETTLED)
            || (is_same && newest > self.adopted.id)
            || (whole && same.cut.is_empty());
        if !awaited.is_empty() || !settled {
            return Err(awaited.into_iter().collect());
        }
        match is_same {
            true => Ok(same),
            false => Ok(Membership::after([newest].into_iter(), same.members, same.cut)),
        }
    }

    /// Adopts a membership, which is recorded.
    pub(crate) fn adopt(&mut self, membership: Membership) {
        self.own.adopted = membership.id;
        self.adoptions += 1;
        (self.adopted, self.own.agreed) = (membership, true);
        // The members form other ones.
        self.own.results = None;
        self.renew();
    }
}

#[cfg(test)]
pub(crate) mod check;

#[cfg(test)]
mod tests;
