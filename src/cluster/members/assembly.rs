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
//! Once a quorum continues with that membership, the others do so at once.
//!
//! A membership that differs from the last ones has the next number. A node records it before it
//! says so, and never adopts an older one. The members begin only when all of them are linked in
//! this membership. Two quorums have a node in common, so at most one membership can continue: the
//! other one lacks that node.
//!
//! A node can be false about itself only. A link is up if both ends say so; so it can give up its
//! own links, and not those of others. A link that one end asserts alone is awaited until the
//! deadline, by the clock of each node. A node can raise the number, which costs a record each
//! time: after [some times](MOST_RAISED) its neighbours refuse it. It can say two things with one
//! number, one to each neighbour: then the one with the greater signature counts, so all have the
//! same again once both have gone round.
//!
//! Each view counts the choices of its node, so one of an earlier choice never replaces a newer
//! one. What others pass on about a node is not counted against that node.
//!
//! A link may also break when the results are written. If all members in a part have them, and
//! these are a quorum, the run is over: its nodes adopt no membership, and end once a quorum has
//! signed that. So does any other node that hears of these signatures; it never signs it itself.

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

/// The greatest number of a choice, and of a view in it, and how many of them another node may have
/// missed. A false number must not be one that no later one exceeds.
const MOST_VIEWS: u64 = 1 << 40;
const MOST_MISSED: u64 = 1 << 20;

/// How many views a node is heard to bring about itself in one choice: an honest one has a few
/// dozen.
const MOST_HEARD: u32 = 1_000;

/// How many of them may name a later membership than all nodes know, and another one than those
/// who know the same would form. An honest node does so when its part of the network has just
/// changed: once more for each time that the links of other nodes have changed.
const MOST_RAISED: u32 = 10;

/// How many memberships a node records in one choice, for each node and at least: a hostile node
/// may raise the number at each of its neighbours, and give up each of its links again and again.
const MOST_ADOPTIONS: u32 = 30;
const LEAST_ADOPTIONS: u32 = 100;

/// How many changes of the members a node may have missed.
const MOST_CHANGES_MISSED: u64 = 1 << 16;

/// What a node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Counts the choices in which the node has taken part. Views of a later one are newer.
    pub choice: u64,
    /// A newer view of the same choice has a higher number. Of two with one number, the one with
    /// the greater signature counts.
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

impl View {
    /// Orders the views of one node: the newest is the greatest.
    fn order(&self) -> (u64, u64, &[u8]) {
        (self.choice, self.number, &self.signature)
    }

    /// Whether more views lie between the newest known one and this one than a node can miss.
    fn is_far_from(&self, known: &View) -> bool {
        let number = if self.choice == known.choice { known.number } else { 0 };
        self.choice > known.choice + MOST_MISSED || self.number > number + MOST_MISSED
    }
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
                && view.choice.max(view.number) < MOST_VIEWS
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
    /// How many views each neighbour has brought about itself in this choice, and how many of them
    /// have [raised](MOST_RAISED) the number of the newest membership.
    heard: LiteMap<NodeId, (u32, u32)>,
    /// How often the links of each node have changed in this choice, or more: what it has said
    /// between two of its views counts as such a change.
    changes: LiteMap<NodeId, u64>,
    /// How many it has recorded in this choice.
    adoptions: u32,
    /// This node's part of the network, and since when it has been the same.
    part: (BTreeSet<NodeId>, Option<Instant>),
    /// Links that have led out of the part and have not been up since: when they did so first.
    ways_out: LiteMap<(NodeId, NodeId), Instant>,
    /// How long they are awaited, if both ends say nothing else.
    deadline: Option<Duration>,
    /// How many neighbours each member needs.
    least_neighbours: usize,
}

/// A node that chooses members.
#[derive(Clone, Debug)]
pub(crate) struct Chooser {
    pub me: NodeId,
    pub keys: Arc<dyn Keys>,
    /// The number of this choice, among those of its program.
    pub choice: u64,
}

/// What a node does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    Wait(Vec<NodeId>),
    /// Record this membership, then [`Assembly::adopt`] it.
    Adopt(Membership),
    /// Continue with the adopted membership soon: not all neighbours do so yet. Whether a quorum
    /// does, which all that hear of it follow.
    Confirm {
        decided: bool,
    },
    /// Continue with the adopted membership: the neighbours know of it.
    Leave,
    /// End: a quorum has the results that this node has, and none of these nodes continues.
    End,
    /// End without results: a quorum has results that this node has not.
    Outside,
}

impl Assembly {
    /// The state at a node that has adopted this membership; `started` says whether it has been
    /// part of the run.
    pub(crate) fn new(
        topology: Arc<Topology>,
        Chooser { me, keys, choice }: Chooser,
        quorums: [usize; 2],
        adopted: Membership,
        started: bool,
    ) -> Assembly {
        let own = View { choice, adopted: adopted.id, started, ..View::default() };
        let mut assembly = Assembly {
            me,
            topology,
            keys,
            quorums,
            own,
            views: LiteMap::new(),
            adopted,
            heard: LiteMap::new(),
            changes: LiteMap::new(),
            adoptions: 0,
            part: (BTreeSet::new(), None),
            ways_out: LiteMap::new(),
            deadline: None,
            least_neighbours: 0,
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

    /// The same; the rule needs so many neighbours at each member.
    #[must_use]
    pub(crate) fn with_least_neighbours(self, least_neighbours: usize) -> Assembly {
        Assembly { least_neighbours, ..self }
    }

    /// The same for a node that knows that all members have their results.
    #[must_use]
    pub(crate) fn after_the_end(mut self) -> Assembly {
        (self.own.over, self.own.started) = (true, true);
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
        self.keep(self.me, self.own.clone());
    }

    /// Keeps the newest view of a node.
    fn keep(&mut self, node: NodeId, view: View) {
        if let Some(known) = self.views.get(&node)
            && (&known.linked, &known.late) != (&view.linked, &view.late)
        {
            let changes = match view.choice == known.choice {
                true => (view.number - known.number).max(1),
                false => 1,
            };
            let known = self.changes.entry(node).or_insert(0);
            *known = known.saturating_add(changes);
        }
        self.views.insert(node, view);
    }

    /// Takes what a neighbour knows, which must be [valid](News::is_valid). What is far beyond what
    /// this node knows is left out: nothing later could replace it.
    ///
    /// # Errors
    /// If it names a view that its node has not signed, as each node checks that before it passes
    /// it on; or if it raises the number of the newest membership again and again.
    pub(crate) fn receive(&mut self, from: NodeId, mut news: News) -> Result<(), String> {
        let most = (self.adopted.id >> 32) + MOST_CHANGES_MISSED;
        // What a neighbour says about itself may follow from what it has heard of others.
        news.views.sort_by_key(|(node, _)| *node == from);
        for (node, view) in news.views {
            let known = self.views.get(&node);
            let is_news = known.is_none_or(|known| view.order() > known.order());
            let is_far = known.is_some_and(|known| view.is_far_from(known));
            if (is_news || node == self.me)
                && !self.keys.verify(node, &statement(node, &view), &view.signature)
            {
                return Err(format!("it passes on what node {node} has not said"));
            }
            if view.adopted >> 32 > most || is_far {
                continue;
            }
            if node == self.me {
                self.overtake(&view);
            } else if is_news && (node != from || self.hears(from, view.adopted)?) {
                self.keep(node, view);
            }
        }
        Ok(())
    }

    /// Says something newer than this view of this node, which its program may have signed before
    /// it was started again: the next choice is later than all that it can have signed in that one.
    fn overtake(&mut self, view: &View) {
        if view.order() >= self.own.order() && *view != self.own {
            self.own.choice = view.choice + 1;
            self.renew();
        }
    }

    /// Counts one more view that a neighbour brings about itself, with this membership. Returns
    /// whether it is heard.
    ///
    /// # Errors
    /// If it has raised the number of the newest membership too often.
    fn hears(&mut self, from: NodeId, adopted: u64) -> Result<bool, String> {
        let newest = self.views.values().map(|view| view.adopted).max().unwrap_or(0);
        let raises = adopted > newest && adopted != self.next(&self.part(), newest).id;
        let (heard, raised) = self.heard.entry(from).or_insert((0, 0));
        *heard += 1;
        *raised += u32::from(raises);
        let others = self.changes.iter().filter(|(node, _)| **node != from);
        let most = others.fold(MOST_RAISED.into(), |most: u64, (_, n)| most.saturating_add(*n));
        if u64::from(*raised) > most {
            return Err(format!(
                "it has named a membership {raised} times that is later than all others, and is \
                 none that they would form"
            ));
        }
        Ok(*heard <= MOST_HEARD)
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

    /// Decides what to do now. A link that one end asserts alone is awaited for `deadline`.
    pub(crate) fn step(&mut self, now: Instant, deadline: Option<Duration>) -> NextStep {
        let part = self.part();
        if self.part.0 != part {
            self.part = (part.clone(), Some(now));
        }
        self.deadline = deadline;
        self.watch_ways_out(&part, now);
        let is_over = self.is_over(&part, now);
        match self.ended() {
            Some(true) => return NextStep::End,
            Some(false) => return NextStep::Outside,
            None if is_over => return NextStep::Wait(self.missing(&part)),
            None => {}
        }
        // Neighbours that have agreed too may have left the choice.
        let is_newest = |member: &NodeId| {
            self.views.get(member).is_none_or(|view| view.adopted <= self.adopted.id)
        };
        // Against a quorum it counts for nothing that a member names a later one.
        let is_decided = self.is_decided(&self.adopted);
        if self.own.agreed && (is_decided || self.adopted.members.iter().all(is_newest)) {
            return self.confirm();
        }
        let chosen = match self.choose(&part, now) {
            Ok(chosen) => chosen,
            Err(missing) => return NextStep::Wait(missing),
        };
        if chosen != self.adopted {
            let most = LEAST_ADOPTIONS.max(MOST_ADOPTIONS * self.topology.nodes() as u32);
            return match self.adoptions < most {
                true => NextStep::Adopt(chosen),
                false => NextStep::Wait(Vec::new()),
            };
        }
        self.agree();
        self.confirm()
    }

    /// What is next for a node that has agreed on the membership that it has adopted. A member that
    /// is linked no longer has left the choice, or will be missed: this node leaves, too.
    fn confirm(&self) -> NextStep {
        let Membership { id, members, cut } = &self.adopted;
        let is_linked = |peer: &NodeId| self.own.linked.contains(peer);
        let is_cut = |peer: NodeId| cut.contains(&(self.me.min(peer), self.me.max(peer)));
        let mut peers = self.topology.neighbours(self.me).iter().filter(|p| members.contains(p));
        let decided = self.is_decided(&self.adopted);
        let has_one_left = peers.clone().any(|peer| !is_linked(peer) && !is_cut(*peer));
        let all_agree = peers.all(|peer| self.agrees(*peer, *id) || !is_linked(peer));
        match all_agree && (decided || has_one_left) {
            true => NextStep::Leave,
            false => NextStep::Confirm { decided },
        }
    }

    /// Whether a node continues with the membership of this number.
    fn agrees(&self, node: NodeId, id: u64) -> bool {
        self.views.get(&node).is_some_and(|view| view.adopted == id && view.agreed)
    }

    /// Whether a quorum continues with this membership: then no other one can.
    fn is_decided(&self, membership: &Membership) -> bool {
        let agree = membership.members.iter().filter(|node| self.agrees(**node, membership.id));
        agree.count() >= self.quorums[1]
    }

    /// Whether a node has the results of this node, which has some.
    fn has_same_results(&self, view: &View) -> bool {
        let own = &self.own;
        own.results.is_some() && (view.results, view.adopted) == (own.results, own.adopted)
    }

    /// Whether the run is over: the members in this part have its results, and these members are a
    /// quorum. A node that has found this adopts no membership, so no quorum can continue without
    /// those results.
    fn is_over(&mut self, part: &BTreeSet<NodeId>, now: Instant) -> bool {
        let has =
            |node: &NodeId| self.views.get(node).is_some_and(|view| self.has_same_results(view));
        if !self.own.over
            && part.iter().filter(|node| has(node)).count() >= self.quorum()
            && part.iter().all(|node| has(node) || !self.adopted.members.contains(node))
            && self.links_down(part, now).1.is_empty()
        {
            self.own.over = true;
            self.renew();
        }
        self.own.over
    }

    /// Whether a quorum takes the run for over with equal results, and these are those of this
    /// node. A node that has not found that itself does not repeat it.
    fn ended(&self) -> Option<bool> {
        let ends: Vec<&View> =
            self.views.values().filter(|view| view.over && view.results.is_some()).collect();
        let is_same = |a: &View, b: &View| (a.adopted, a.results) == (b.adopted, b.results);
        let is_of_quorum = |view: &&&View| {
            ends.iter().filter(|other| is_same(view, other)).count() >= self.quorums[1]
        };
        ends.iter().find(is_of_quorum).map(|view| self.has_same_results(view))
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

    /// Notes since when links lead out of this part, from the first time on after they were up.
    fn watch_ways_out(&mut self, part: &BTreeSet<NodeId>, now: Instant) {
        for (a, b) in self.topology.edges() {
            if self.is_up(a, b) {
                self.ways_out.remove(&(a, b));
            } else if part.contains(&a) != part.contains(&b) {
                self.ways_out.entry((a, b)).or_insert(now);
            }
        }
    }

    /// The links in this part of the network that are down, and the nodes that are still awaited,
    /// in it or outside of it.
    fn links_down(
        &self,
        part: &BTreeSet<NodeId>,
        now: Instant,
    ) -> (Vec<(NodeId, NodeId)>, BTreeSet<NodeId>) {
        let (mut cut, mut awaited) = (Vec::new(), BTreeSet::new());
        let is_over = |since: &Instant| self.deadline.is_some_and(|most| now >= *since + most);
        for (a, b) in self.topology.edges() {
            let inside = (part.contains(&a), part.contains(&b));
            if inside == (false, false) || self.is_up(a, b) {
                continue;
            }
            let is_late = self.is_late(a, b) || self.is_late(b, a);
            match inside {
                (true, true) if is_late => cut.push((a, b)),
                // A link inside the part may still come up.
                (true, true) => _ = awaited.insert(b),
                _ if is_late || self.ways_out.get(&(a, b)).is_some_and(is_over) => {}
                _ => _ = awaited.insert(if inside.0 { b } else { a }),
            }
        }
        (cut, awaited)
    }

    /// The membership of this part after the newest one that is known there.
    fn next(&self, part: &BTreeSet<NodeId>, newest: u64) -> Membership {
        let part = self.usable(part);
        let inside = |(a, b): &(NodeId, NodeId)| part.contains(a) && part.contains(b);
        let cut = self.topology.edges().filter(|edge| inside(edge) && !self.is_up(edge.0, edge.1));
        let cut = cut.collect();
        Membership::after([newest].into_iter(), part.into_iter().collect(), cut)
    }

    /// The nodes of a part with which the run can continue: those that have too few links for the
    /// rule are left out, the one with the fewest first. A node can give up its own links only, so
    /// it is the one with the fewest if it does. All, if too few are left.
    fn usable(&self, part: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let mut usable = part.clone();
        loop {
            let links = |node: NodeId| {
                let peers = self.topology.neighbours(node).iter();
                peers.filter(|peer| usable.contains(peer) && self.is_up(node, **peer)).count()
            };
            let fewest = usable.iter().map(|node| (links(*node), *node)).min();
            match fewest.filter(|(links, _)| *links < self.least_neighbours) {
                None => return usable,
                Some(_) if usable.len() <= self.quorum() => return part.clone(),
                Some((_, node)) => _ = usable.remove(&node),
            }
        }
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
        let (_, awaited) = self.links_down(part, now);
        let newest = part.iter().map(|node| self.views[node].adopted).max().unwrap_or(0);
        let next = self.next(part, newest);
        // Some may have recorded it before: then it has settled there.
        let same = Membership { id: newest, ..next.clone() };
        let is_same = same.has_own_id(self.topology.nodes());
        let settled = self.part.1.is_some_and(|since| now >= since + SETTLED)
            || (is_same && newest > self.adopted.id)
            || (whole && same.cut.is_empty());
        let is_member = next.members.contains(&self.me);
        let decided = is_same && self.is_decided(&same);
        if !is_member || !decided && (!awaited.is_empty() || !settled) {
            return Err(awaited.into_iter().collect());
        }
        match is_same {
            true => Ok(same),
            false => Ok(next),
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
