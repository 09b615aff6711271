//! Decides who goes on without nodes that are absent for too long, and with nodes that are back.
//!
//! All nodes that are here send their neighbours what they know: for each node a [`View`], its
//! links and the neighbours that are late. The node with the lowest number in a part of the network
//! proposes a [`Membership`] once
//!
//! * the part holds a quorum, more than half of all nodes;
//! * every link that is missing in it, or leads out of it, is late at one of its ends;
//! * the part has been the same for a moment, unless it is the whole network.
//!
//! A node that adopts a proposal records it before it says so, and never adopts an older one. The
//! members begin only when all of them are linked in this membership. Two quorums have a node in
//! common, so at most one membership can go on: the other one lacks that node.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{drive::Membership, mixing::Topology, units::NodeId};

/// How long a part of the network must have been the same.
const SETTLED: Duration = Duration::from_secs(1);

/// What a node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// A later view of the same node has a higher number.
    pub number: u64,
    /// The neighbours with which it is linked, ascending.
    pub linked: Vec<NodeId>,
    /// The neighbours that are not linked and are no longer awaited, ascending.
    pub late: Vec<NodeId>,
    /// The membership that it has adopted last.
    pub adopted: u64,
    /// Whether it has agreed on that membership since it began to choose: it goes on with it.
    pub agreed: bool,
    /// Whether it has been part of the run before.
    pub begun: bool,
}

/// What nodes tell their neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// The newest view of each node.
    pub views: Vec<(NodeId, View)>,
    /// The newest proposal.
    pub proposal: Option<Membership>,
}

impl News {
    /// Whether nodes of this topology can say so.
    pub fn is_valid(&self, topology: &Topology) -> bool {
        let nodes = topology.nodes();
        let exists = |node: &NodeId| node.index() < nodes;
        let ascending = |all: &[NodeId]| all.iter().all(exists) && all.is_sorted_by(|a, b| a < b);
        let linked = |(a, b): &(NodeId, NodeId)| a < b && topology.link(*a, *b).is_some();
        let view = |(node, view): &(NodeId, View)| {
            exists(node)
                && view.number < u64::MAX
                && view.linked.len() <= topology.neighbours(*node).len()
                && ascending(&view.linked)
                && view.late.len() <= topology.neighbours(*node).len()
                && ascending(&view.late)
        };
        let proposal = |proposal: &Membership| {
            ascending(&proposal.members)
                && proposal.cut.iter().all(|(a, b)| exists(a) && exists(b))
                && proposal.cut.iter().all(linked)
        };
        self.views.len() <= nodes
            && self.views.iter().all(view)
            && self.proposal.as_ref().is_none_or(proposal)
    }
}

/// The state of the decision at one node.
#[derive(Clone, Debug)]
pub(super) struct Assembly {
    me: NodeId,
    topology: Arc<Topology>,
    /// The least number of members, before the run has begun and after that.
    quorums: [usize; 2],
    own: View,
    views: BTreeMap<NodeId, View>,
    /// The membership that this node has adopted last.
    adopted: Membership,
    proposal: Option<Membership>,
    /// This node's part of the network, and since when it has been the same.
    part: (BTreeSet<NodeId>, Option<Instant>),
}

/// What a node does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Wait, for these nodes.
    Wait(Vec<NodeId>),
    /// Record this membership, then [`Assembly::adopt`] it.
    Adopt(Membership),
    /// Go on with the adopted membership soon: not all neighbours know yet that this node does.
    Confirm,
    /// Go on with the adopted membership: the neighbours know of it.
    Leave,
}

impl Assembly {
    /// The state at a node that has adopted this membership; `begun` says whether it has been part
    /// of the run.
    pub fn new(
        topology: Arc<Topology>,
        me: NodeId,
        quorums: [usize; 2],
        adopted: Membership,
        begun: bool,
    ) -> Assembly {
        let own = View { adopted: adopted.id, begun, ..View::default() };
        let views = BTreeMap::from([(me, own.clone())]);
        Assembly {
            me,
            topology,
            quorums,
            own,
            views,
            adopted,
            proposal: None,
            part: (BTreeSet::new(), None),
        }
    }

    /// Sets the neighbours with which this node is linked, and those that are late.
    pub fn observe(&mut self, linked: &BTreeSet<NodeId>, late: &BTreeSet<NodeId>) {
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
        self.views.insert(self.me, self.own.clone());
    }

    /// Takes what a neighbour knows, which must be [valid](News::is_valid).
    pub fn receive(&mut self, news: News) {
        for (node, view) in news.views {
            if node == self.me {
                // Of this node's program before it was started again.
                if view.number >= self.own.number && view != self.own {
                    self.own.number = view.number;
                    self.renew();
                }
            } else if self.views.get(&node).is_none_or(|known| view.number > known.number) {
                self.views.insert(node, view);
            }
        }
        let known = self.proposal.take();
        let is_newer = |new: &Membership| known.as_ref().is_none_or(|known| new.id > known.id);
        self.proposal = news.proposal.filter(is_newer).or(known);
    }

    /// What this node knows.
    pub fn news(&self) -> News {
        let views = self.views.iter().map(|(node, view)| (*node, view.clone())).collect();
        News { views, proposal: self.proposal.clone() }
    }

    /// Whether the run has begun, as far as this node knows.
    pub fn has_begun(&self) -> bool {
        self.views.values().any(|view| view.begun)
    }

    /// The least number of members. A node that has lost its files learns from the others whether
    /// the run has begun.
    pub fn quorum(&self) -> usize {
        self.quorums[usize::from(self.has_begun())]
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
    pub fn part(&self) -> BTreeSet<NodeId> {
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
    pub fn step(&mut self, now: Instant) -> Step {
        let part = self.part();
        if self.part.0 != part {
            self.part = (part.clone(), Some(now));
        }
        let quorum = self.quorum();
        let of_mine = |proposal: &&Membership| {
            // The adopted one may be an old proposal, of which somebody who is back has heard: it
            // counts again only if its members were here at once, and nobody else.
            let again = **proposal == self.adopted
                && (self.own.agreed || part.iter().eq(&proposal.members));
            let is_newest = |member: &NodeId| {
                self.views.get(member).is_none_or(|view| view.adopted <= proposal.id)
            };
            proposal.members.contains(&self.me)
                && proposal.members.len() >= quorum
                && proposal.members.iter().all(is_newest)
                && (proposal.id > self.adopted.id || again)
        };
        if let Some(proposal) = self.proposal.as_ref().filter(of_mine) {
            if *proposal != self.adopted {
                return Step::Adopt(proposal.clone());
            }
            self.agree();
            let Membership { id, members, .. } = &self.adopted;
            let agrees = |view: &View| view.adopted > *id || (view.adopted == *id && view.agreed);
            let knows =
                |peer: &NodeId| self.views.get(peer).is_some_and(agrees) || !members.contains(peer);
            return match self.own.linked.iter().all(knows) {
                true => Step::Leave,
                false => Step::Confirm,
            };
        }
        if part.first() != Some(&self.me) {
            return Step::Wait(self.missing(&part));
        }
        match self.propose(&part, now) {
            Ok(proposal) => {
                self.proposal = Some(proposal.clone());
                match proposal == self.adopted {
                    true => {
                        self.agree();
                        Step::Confirm
                    }
                    false => Step::Adopt(proposal),
                }
            }
            Err(missing) => Step::Wait(missing),
        }
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

    /// A proposal for this part of the network.
    ///
    /// # Errors
    /// The nodes that are awaited.
    fn propose(&self, part: &BTreeSet<NodeId>, now: Instant) -> Result<Membership, Vec<NodeId>> {
        let whole = part.len() == self.topology.nodes();
        if part.len() < self.quorum() {
            return Err(self.missing(part));
        }
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
        let settled = self.part.1.is_some_and(|since| now >= since + SETTLED);
        if !awaited.is_empty() || !(settled || (whole && cut.is_empty())) {
            return Err(awaited.into_iter().collect());
        }
        let members: Vec<NodeId> = part.iter().copied().collect();
        let same = |node: &NodeId| self.views[node].adopted == self.adopted.id;
        if members.iter().all(same)
            && (&members, &cut) == (&self.adopted.members, &self.adopted.cut)
        {
            return Ok(self.adopted.clone());
        }
        let known = members.iter().map(|node| self.views[node].adopted);
        let known = known.chain(self.proposal.iter().map(|proposal| proposal.id));
        Ok(Membership { id: Membership::next_id(known, self.me), members, cut })
    }

    /// Adopts a membership, which is recorded.
    pub fn adopt(&mut self, membership: Membership) {
        self.own.adopted = membership.id;
        (self.adopted, self.own.agreed) = (membership, true);
        self.renew();
    }
}

#[cfg(test)]
mod check;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Network {
        topology: Arc<Topology>,
        quorum: usize,
        /// The name of a node that has lost its files, if any has.
        lost: String,
        nodes: Vec<Assembly>,
        /// What each node has on its disk.
        disks: Vec<Membership>,
        /// Nodes that run.
        alive: Vec<bool>,
        /// Links that are up, the lower number first.
        links: BTreeSet<(usize, usize)>,
        /// Missing links that are late.
        late: BTreeSet<(usize, usize)>,
        now: Instant,
        adopted: BTreeMap<u64, Membership>,
    }

    impl Network {
        fn new(spec: &str) -> Network {
            let topology = Arc::new(Topology::parse(spec, 0).unwrap());
            let nodes = topology.nodes();
            let whole = Membership::all(nodes);
            let mut network = Network {
                quorum: nodes / 2 + 1,
                lost: String::new(),
                nodes: Vec::new(),
                disks: vec![whole; nodes],
                alive: vec![true; nodes],
                links: BTreeSet::new(),
                late: BTreeSet::new(),
                now: Instant::now(),
                adopted: BTreeMap::new(),
                topology,
            };
            network.nodes = (0..nodes).map(|node| network.fresh(node)).collect();
            network
        }

        fn fresh(&self, node: usize) -> Assembly {
            let disk = self.disks[node].clone();
            let quorums = [self.topology.nodes(), self.quorum];
            // A node without files does not know that the run has begun.
            let begun = self.topology.node(node.into()).name != self.lost;
            Assembly::new(Arc::clone(&self.topology), node.into(), quorums, disk, begun)
        }

        fn all_links(&self) -> Vec<(usize, usize)> {
            self.topology.edges().map(|(a, b)| (a.index(), b.index())).collect()
        }

        fn ends(&self, of: usize, links: &BTreeSet<(usize, usize)>) -> BTreeSet<NodeId> {
            let other = |&(a, b): &(usize, usize)| match () {
                () if a == of => Some(NodeId::from(b)),
                () if b == of => Some(NodeId::from(a)),
                () => None,
            };
            links.iter().filter_map(other).collect()
        }

        /// Every node looks, decides and sends once; `only` says which messages arrive.
        fn turn(&mut self, only: impl Fn(usize) -> bool) {
            self.now += Duration::from_millis(400);
            for node in 0..self.nodes.len() {
                if !self.alive[node] {
                    continue;
                }
                let (linked, late) = (self.ends(node, &self.links), self.ends(node, &self.late));
                self.nodes[node].observe(&linked, &late);
                if let Step::Adopt(membership) = self.nodes[node].step(self.now) {
                    self.disks[node] = membership.clone();
                    self.check(node, &membership);
                    self.nodes[node].adopt(membership);
                }
            }
            let news: Vec<News> = self.nodes.iter().map(Assembly::news).collect();
            for (index, &(a, b)) in self.links.clone().iter().enumerate() {
                if only(2 * index) {
                    self.nodes[a].receive(news[b].clone());
                }
                if only(2 * index + 1) {
                    self.nodes[b].receive(news[a].clone());
                }
            }
        }

        /// An id has one membership, of a quorum, and is adopted by its members only.
        fn check(&mut self, node: usize, membership: &Membership) {
            let known = self.adopted.entry(membership.id).or_insert_with(|| membership.clone());
            assert_eq!(known, membership, "two memberships of one id");
            assert!(membership.members.len() >= self.quorum);
            assert!(membership.members.contains(&node.into()));
            assert!(self.topology.restricted(&membership.members, &membership.cut).is_ok());
            // A membership can go on if all its members have adopted it last.
            let can = |membership: &&Membership| {
                membership.members.iter().all(|member| self.disks[member.index()] == **membership)
            };
            let active: Vec<_> = self.adopted.values().filter(can).collect();
            assert!(active.len() <= 1, "{active:?}");
        }

        fn stop(&mut self, node: usize) {
            self.alive[node] = false;
            self.links.retain(|&(a, b)| a != node && b != node);
        }

        fn run_until(&mut self, nodes: &[usize]) -> Membership {
            for _ in 0..60 {
                self.turn(|_| true);
                let steps: Vec<Step> =
                    nodes.iter().map(|&node| self.nodes[node].step(self.now)).collect();
                if steps.iter().all(|step| *step == Step::Leave) {
                    let adopted = self.disks[nodes[0]].clone();
                    assert!(nodes.iter().all(|&node| self.disks[node] == adopted));
                    return adopted;
                }
            }
            panic!("they do not agree: {:?}", self.disks);
        }
    }

    fn numbers(nodes: &[u32]) -> Vec<NodeId> {
        nodes.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn the_others_go_on_without_an_absent_node_and_it_returns() {
        let mut network = Network::new("ring:5");
        network.links = network.all_links().into_iter().collect();
        // All are here: the membership of the beginning.
        assert_eq!(network.run_until(&[0, 1, 2, 3, 4]), Membership::all(5));
        network.stop(2);
        network.nodes = (0..5).map(|node| network.fresh(node)).collect();
        for _ in 0..20 {
            network.turn(|_| true);
            assert!(network.disks.iter().all(|disk| disk.id == 0), "nothing is late yet");
        }
        network.late = [(1, 2), (2, 3)].into();
        let without = network.run_until(&[0, 1, 3, 4]);
        assert_eq!((without.id, &without.members), (1 << 32, &numbers(&[0, 1, 3, 4])));
        assert_eq!(without.cut, []);
        network.alive[2] = true;
        network.nodes = (0..5).map(|node| network.fresh(node)).collect();
        (network.links, network.late) = (network.all_links().into_iter().collect(), [].into());
        let again = network.run_until(&[0, 1, 2, 3, 4]);
        assert_eq!((again.id, again.members), (2 << 32, numbers(&[0, 1, 2, 3, 4])));
    }

    /// It has the lowest number, and another node is absent.
    #[test]
    fn a_node_that_has_lost_its_files_needs_no_more_than_the_others() {
        let mut network = Network::new("ring:5");
        let links = network.all_links();
        network.links = links.into_iter().filter(|(a, b)| *a != 3 && *b != 3).collect();
        (network.late, network.alive[3]) = ([(2, 3), (3, 4)].into(), false);
        network.lost = "0".into();
        network.nodes[0] = network.fresh(0);
        assert_eq!(network.run_until(&[0, 1, 2, 4]).members, numbers(&[0, 1, 2, 4]));
    }

    #[test]
    fn a_link_that_is_cut_is_left_out_and_a_minority_waits() {
        let mut network = Network::new("ring:5");
        network.links = network.all_links().into_iter().filter(|link| *link != (1, 2)).collect();
        network.late = [(1, 2)].into();
        let cut = network.run_until(&[0, 1, 2, 3, 4]);
        assert_eq!((cut.members.len(), cut.cut), (5, vec![(NodeId(1), NodeId(2))]));
        // Nodes 0 and 1 on one side.
        network.nodes = (0..5).map(|node| network.fresh(node)).collect();
        network.links.remove(&(0, 4));
        network.late.insert((0, 4));
        let most = network.run_until(&[2, 3, 4]);
        assert_eq!(most.members, numbers(&[2, 3, 4]));
        assert_ne!(network.disks[0], most);
        assert_eq!(network.nodes[0].step(network.now), Step::Wait(numbers(&[2, 3, 4])));
    }

    #[test]
    fn what_no_node_can_know_is_refused() {
        let topology = Topology::parse("ring:5", 0).unwrap();
        let view = |node: u32, linked: &[u32], late: &[u32]| {
            let (linked, late) = (numbers(linked), numbers(late));
            let view = View { linked, late, ..View::default() };
            News { views: vec![(NodeId(node), view)], proposal: None }
        };
        let proposal = |members: &[u32], cut: &[(u32, u32)]| {
            let cut = cut.iter().map(|(a, b)| (NodeId(*a), NodeId(*b))).collect();
            let proposal = Some(Membership { id: 1, members: numbers(members), cut });
            News { views: Vec::new(), proposal }
        };
        assert!(view(1, &[0, 2], &[]).is_valid(&topology));
        assert!(proposal(&[0, 1, 2], &[(0, 1)]).is_valid(&topology));
        for news in [
            view(5, &[], &[]),
            view(1, &[0, 5], &[]),
            view(1, &[2, 0], &[]),
            view(1, &[], &[0, 2, 3]),
            proposal(&[0, 1, 5], &[]),
            proposal(&[1, 0, 2], &[]),
            proposal(&[0, 1, 2], &[(0, 2)]),
            proposal(&[0, 1, 2], &[(1, 0)]),
            proposal(&[0, 1, 2], &[(0, 9)]),
        ] {
            assert!(!news.is_valid(&topology), "{news:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Nodes stop and start, links break, messages are lost: no two memberships can go on, and
        /// all agree once all is well.
        #[test]
        fn one_membership_at_a_time(
            spec in prop::sample::select(vec!["ring:3", "ring:5", "complete:4", "path:4"]),
            changes in prop::collection::vec(
                (any::<prop::sample::Index>(), 0u8..6, any::<u64>()), 0..80,
            ),
        ) {
            let mut network = Network::new(spec);
            let links = network.all_links();
            for (which, change, arrive) in changes {
                let link = links[which.index(links.len())];
                match change {
                    0 => network.stop(link.0),
                    1 => {
                        network.alive[link.0] = true;
                        network.nodes[link.0] = network.fresh(link.0);
                    }
                    2 => _ = network.links.remove(&link),
                    3 if network.alive[link.0] && network.alive[link.1] => {
                        network.links.insert(link);
                        network.late.remove(&link);
                    }
                    4 if !network.links.contains(&link) => _ = network.late.insert(link),
                    _ => {}
                }
                network.turn(|index| arrive >> (index % 64) & 1 == 1);
                network.turn(|index| arrive >> (63 - index % 64) & 1 == 1);
            }
            for node in 0..network.nodes.len() {
                network.alive[node] = true;
                network.nodes[node] = network.fresh(node);
            }
            (network.links, network.late) = (links.into_iter().collect(), BTreeSet::new());
            let all: Vec<usize> = (0..network.nodes.len()).collect();
            let last = network.run_until(&all);
            prop_assert!(last.is_whole(all.len()));
        }
    }
}
