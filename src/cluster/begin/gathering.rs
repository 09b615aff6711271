//! Decides when a run begins: once every node is linked with all its neighbours.
//!
//! Nodes start one after the other, and some restart: until all are linked, a link that breaks
//! costs nothing. So no node begins before the root of the topology's spanning tree knows that all
//! are linked.
//!
//! * A node that is linked with all its neighbours, and whose children in the tree are ready, sends
//!   *ready* to its parent; the root sends *begin*.
//! * A node that is not, or no longer, linked reports the missing neighbours to its parent and to
//!   its children, so that every node can tell its user.
//! * On *begin* a node forwards it to its children, and begins when its own links are up.
//! * *Ready* has the signed [`Reports`] of all nodes of the subtree; *begin* has those of all
//!   members. Each node checks them, and decides by them itself where the run continues.
//! * A *begin* with another report of this node than its own does not count. A node whose
//!   checkpoints all members have had does not begin at round 0 without them.

use std::{collections::BTreeSet, sync::Arc};

use litemap::LiteMap;

use super::reports::Bounds;
use crate::{
    cluster::message::{Beginning, CheckpointReport, Reports, Saved, StartMessage},
    drive::Membership,
    gossip::tree::Signer,
    mixing::Topology,
    units::NodeId,
};

/// The last known state of a child.
#[derive(Clone, Debug, PartialEq)]
enum Child {
    Unknown,
    Ready(Reports),
    Waiting(String),
}

/// Where all members continue, and the reports from which that follows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Agreed {
    pub at: Beginning,
    pub reports: Reports,
}

/// One node's view of the start of the run.
pub(crate) struct Gathering {
    me: NodeId,
    parent: Option<NodeId>,
    children: LiteMap<NodeId, Child>,
    /// The nodes below each child, itself included, ascending.
    below: LiteMap<NodeId, Vec<NodeId>>,
    /// All members.
    all: Vec<NodeId>,
    /// The rounds of the run.
    rounds: u64,
    /// How many nodes must have a checkpoint that others lack.
    quorum: usize,
    signer: Arc<dyn Signer>,
    /// Neighbours whose link is not yet up.
    missing: BTreeSet<NodeId>,
    /// The parent's report on the rest of the network.
    rest: Option<String>,
    /// The report of this node.
    own: Reports,
    /// The members of the run, by their numbers in its topology.
    membership: Membership,
    /// Where the run begins or continues, once that is known.
    agreed: Option<Agreed>,
    /// Why this node cannot begin where it follows from the reports.
    problem: Option<String>,
    /// The last message to each neighbour in the tree.
    sent: LiteMap<NodeId, StartMessage>,
}

impl Gathering {
    /// The state before any link is up of a node, by its number in this topology of the members.
    ///
    /// `rounds` are those of the run; a checkpoint that some lack counts with a `quorum` of nodes.
    /// `saved` are this node's checkpoints, and `attempt` is the number of its attempt.
    pub(crate) fn new(
        (topology, me): (&Topology, NodeId),
        membership: Membership,
        (rounds, quorum): (u64, usize),
        signer: Arc<dyn Signer>,
        (saved, attempt): (Saved, u64),
    ) -> Gathering {
        let tree = topology.spanning_tree();
        let all: Vec<NodeId> = (0..topology.nodes()).map(NodeId::from).collect();
        let below = |&child: &NodeId| {
            (child, all.iter().copied().filter(|node| tree.is_below(*node, child)).collect())
        };
        let children = tree.children(me);
        let report = CheckpointReport::new((me, attempt), &saved, &*signer);
        let histories = if saved.history.is_empty() { Vec::new() } else { vec![saved.history] };
        Gathering {
            me,
            parent: tree.parent(me),
            children: children.iter().map(|&child| (child, Child::Unknown)).collect(),
            below: children.iter().map(below).collect(),
            all,
            rounds,
            quorum,
            signer,
            missing: topology.neighbours(me).iter().copied().collect(),
            rest: None,
            own: Reports { nodes: vec![report], histories },
            membership,
            agreed: None,
            problem: None,
            sent: LiteMap::new(),
        }
    }

    /// Records that a link is up.
    pub(crate) fn up(&mut self, peer: NodeId) {
        self.missing.remove(&peer);
        self.sent.remove(&peer);
    }

    /// Records that a link broke: earlier messages of its other end no longer count.
    pub(crate) fn down(&mut self, peer: NodeId) {
        self.missing.insert(peer);
        if let Some(child) = self.children.get_mut(&peer) {
            *child = Child::Unknown;
        }
        if self.parent == Some(peer) {
            // A parent that restarts collects the reports again.
            (self.rest, self.agreed) = (None, None);
        }
    }

    /// Handles a message of a neighbour; it is ignored unless that is the parent or a child.
    ///
    /// # Errors
    /// Why no node of this run can say so.
    pub(crate) fn message(&mut self, from: NodeId, message: StartMessage) -> Result<(), String> {
        match message {
            StartMessage::Ready(reports) => {
                let Some(below) = self.below.get(&from) else { return Ok(()) };
                let is_known =
                    |child: &Child| matches!(child, Child::Ready(known) if *known == reports);
                if !self.children.get(&from).is_some_and(is_known) {
                    reports.check(&self.bounds(below))?;
                    self.children.insert(from, Child::Ready(reports));
                }
            }
            StartMessage::Begin(reports) if self.parent == Some(from) => {
                if self.agreed.as_ref().is_none_or(|agreed| agreed.reports != reports) {
                    reports.check(&self.bounds(&self.all))?;
                    self.agree(reports);
                }
            }
            StartMessage::Waiting(text) => match self.children.get_mut(&from) {
                Some(child) => *child = Child::Waiting(text),
                None if self.parent == Some(from) => self.rest = Some(text),
                None => {}
            },
            StartMessage::Begin(_) | StartMessage::Assembly(_) => {}
        }
        Ok(())
    }

    fn bounds<'b>(&'b self, nodes: &'b [NodeId]) -> Bounds<'b> {
        let (membership, rounds) = (self.membership.id, self.rounds);
        Bounds { nodes, membership, rounds, signer: &*self.signer }
    }

    /// Decides where the run continues by the reports of all members, which are checked.
    fn agree(&mut self, reports: Reports) {
        let own = &self.own.nodes[0];
        if !reports.nodes[self.me.index()].agrees_with(own) {
            // It is from before this node was started again; its present one is on its way.
            return;
        }
        let at = reports.decide(&self.membership, self.quorum);
        let (id, common) = (self.membership.id, own.common);
        let had_all = common.membership == id && common.rounds > 0;
        let newest = own.kept.last().copied().unwrap_or_default();
        // A checkpoint of earlier members is where a run continues that they have started.
        if at.rounds == 0 && (had_all || (!own.kept.is_empty() && newest.membership < id)) {
            self.problem = Some(format!(
                "of round {} and before stay as they are: fewer than {} nodes report the same \
                 checkpoint, so the run would begin at round 0 without them; give the other nodes \
                 their files again, or start all nodes with --fresh",
                newest.rounds, self.quorum
            ));
            return;
        }
        (self.agreed, self.problem) = (Some(Agreed { at, reports }), None);
    }

    /// The number of neighbours without a link.
    pub(crate) fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Where this node begins or continues, if it does now.
    pub(crate) fn begins(&self) -> Option<&Agreed> {
        self.agreed.as_ref().filter(|_| self.missing.is_empty())
    }

    /// The reports of this node and all nodes below it, if all of them are linked.
    fn ready(&self) -> Option<Reports> {
        let mut all = self.own.clone();
        for child in self.children.values() {
            let Child::Ready(reports) = child else { return None };
            all.add(reports);
        }
        self.missing.is_empty().then_some(all)
    }

    /// Why the run has not started, as far as this node knows. `own` names the neighbours that are
    /// missing here, if any.
    pub(crate) fn reason(&self, own: Option<&str>) -> String {
        let below = self.children.values().find_map(|child| match child {
            Child::Waiting(text) => Some(text.as_str()),
            Child::Unknown | Child::Ready(_) => None,
        });
        let known = own.or(below).or(self.rest.as_deref());
        known.unwrap_or("the missing links of other nodes are not known yet").to_string()
    }

    /// Why this node does not begin where it follows from the reports, if it does not.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Returns the messages that are new since the last call; with `repeat`, all of them.
    pub(crate) fn new_messages(
        &mut self,
        own: Option<&str>,
        repeat: bool,
    ) -> Vec<(NodeId, StartMessage)> {
        let ready = self.ready();
        if let (Some(all), None) = (&ready, self.parent) {
            if self.agreed.as_ref().is_none_or(|agreed| agreed.reports != *all) {
                self.agree(all.clone());
            }
        }
        let mut messages = Vec::new();
        if let Some(parent) = self.parent.filter(|_| self.agreed.is_none()) {
            // The parent's own report is not sent back to it.
            let above = self.rest.take();
            messages.push((
                parent,
                match ready {
                    Some(reports) => StartMessage::Ready(reports),
                    None => StartMessage::Waiting(self.reason(own)),
                },
            ));
            self.rest = above;
        }
        for &child in self.children.keys() {
            messages.push((
                child,
                match &self.agreed {
                    Some(agreed) => StartMessage::Begin(agreed.reports.clone()),
                    None => StartMessage::Waiting(self.reason(own)),
                },
            ));
        }
        messages.retain(|(to, message)| {
            let new = self.sent.get(to) != Some(message);
            !self.missing.contains(to) && (new || repeat)
        });
        self.sent.extend(messages.iter().cloned());
        messages
    }
}

#[cfg(test)]
pub(in crate::cluster) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cluster::{
        members::keys::{Keys, Named},
        message::CheckpointId,
    };

    const ROUNDS: u64 = 100;

    /// The key of a node.
    pub(in crate::cluster) struct Signs(pub NodeId);

    impl Signer for Signs {
        fn sign(&self, statement: &[u8]) -> Vec<u8> {
            Named(self.0).sign(statement)
        }

        fn verify(&self, node: NodeId, statement: &[u8], signature: &[u8]) -> bool {
            Named(self.0).verify(node, statement, signature)
        }
    }

    /// A node of the whole topology with these checkpoints.
    fn gathering(topology: &Topology, node: usize, saved: Saved) -> Gathering {
        let (nodes, me) = (topology.nodes(), NodeId::from(node));
        let (limits, signer) = ((ROUNDS, nodes / 2 + 1), Arc::new(Signs(me)));
        let attempt = (saved, 50 + node as u64);
        Gathering::new((topology, me), Membership::all(nodes), limits, signer, attempt)
    }

    /// The same without checkpoints.
    fn blank(topology: &Topology, node: usize) -> Gathering {
        gathering(topology, node, Saved::default())
    }

    struct Network {
        topology: Topology,
        nodes: Vec<Gathering>,
        /// Links that are up, the lower number first.
        links: BTreeSet<(usize, usize)>,
    }

    impl Network {
        fn new(spec: &str) -> Network {
            let topology = Topology::parse(spec, 0).unwrap();
            let nodes = (0..topology.nodes()).map(|node| blank(&topology, node)).collect();
            Network { topology, nodes, links: BTreeSet::new() }
        }

        fn all_links(&self) -> Vec<(usize, usize)> {
            let of = |node: usize| {
                self.topology.neighbours(node.into()).iter().map(move |peer| (node, peer.index()))
            };
            (0..self.nodes.len()).flat_map(of).filter(|(a, b)| a < b).collect()
        }

        fn turn(&mut self, (a, b): (usize, usize), up: bool) {
            let change = if up { Gathering::up } else { Gathering::down };
            if up {
                self.links.insert((a, b))
            } else {
                self.links.remove(&(a, b))
            };
            change(&mut self.nodes[a], b.into());
            change(&mut self.nodes[b], a.into());
        }

        /// A node ends and restarts: all its links are down, and it knows nothing.
        fn restart(&mut self, node: usize) {
            let own: Vec<_> =
                self.links.iter().copied().filter(|(a, b)| *a == node || *b == node).collect();
            own.into_iter().for_each(|link| self.turn(link, false));
            self.nodes[node] = blank(&self.topology, node);
        }

        /// Exchanges messages until none is new, or a node cannot begin.
        fn deliver_all(&mut self) -> Result<(), String> {
            for _ in 0..1000 {
                let mut quiet = true;
                for node in 0..self.nodes.len() {
                    let own =
                        (self.nodes[node].missing() > 0).then(|| format!("node {node} waits"));
                    let messages = self.nodes[node].new_messages(own.as_deref(), false);
                    for (to, message) in messages {
                        quiet = false;
                        self.nodes[to.index()].message(node.into(), message).unwrap();
                    }
                }
                if quiet {
                    let problem = self.nodes.iter().find_map(Gathering::problem);
                    return problem.map_or(Ok(()), |problem| Err(problem.into()));
                }
            }
            panic!("the messages never end");
        }
    }

    #[test]
    fn every_node_knows_the_missing_links() {
        let mut network = Network::new("path:5");
        network
            .all_links()
            .into_iter()
            .filter(|link| *link != (3, 4))
            .for_each(|link| network.turn(link, true));
        network.deliver_all().unwrap();
        for node in 0..3 {
            assert_eq!(network.nodes[node].reason(None), "node 3 waits", "node {node}");
        }
        assert!(network.nodes.iter().all(|node| node.begins().is_none()));
    }

    /// Where nodes of a ring of 4 continue, as members of the first membership, with checkpoints of
    /// these rounds; or why a node does not.
    fn agreed(kept: [&[u64]; 4]) -> Result<(u64, Option<Vec<u32>>), String> {
        let mut network = Network::new("ring:4");
        for (node, rounds) in kept.into_iter().enumerate() {
            let kept: Vec<CheckpointId> =
                rounds.iter().map(|&rounds| CheckpointId::new(0, rounds, &[])).collect();
            let common = kept.first().copied().unwrap_or_default();
            let saved = Saved { kept, common, history: Vec::new() };
            network.nodes[node] = gathering(&network.topology, node, saved);
        }
        network.all_links().into_iter().for_each(|link| network.turn(link, true));
        network.deliver_all()?;
        let all: Vec<Option<&Agreed>> = network.nodes.iter().map(Gathering::begins).collect();
        assert!(all.iter().all(|agreed| *agreed == all[0]), "{all:?}");
        let at = &all[0].expect("all are linked").at;
        assert_eq!(at.attempts, [50, 51, 52, 53]);
        let numbers = at.without.iter().map(|node| node.0).collect();
        Ok((at.rounds, at.from_mean.then_some(numbers)))
    }

    #[test]
    fn all_continue_where_it_follows_from_the_reports_of_all() {
        let all: &[u64] = &[4, 8, 12];
        assert_eq!(agreed([all; 4]), Ok((12, None)));
        assert_eq!(agreed([&[4, 8], all, all, &[8, 12]]), Ok((8, None)));
        assert_eq!(agreed([&[], all, all, &[4, 8]]), Ok((8, Some(vec![0]))));
        // Fewer than a quorum have any. Those that have some do not begin without them.
        let refused = agreed([&[], all, all, &[]]).unwrap_err();
        assert!(refused.contains("fewer than 3 nodes report the same checkpoint"), "{refused}");
    }

    #[test]
    fn a_begin_that_lacks_this_nodes_report_does_not_count() {
        let topology = Topology::parse("path:2", 0).unwrap();
        let saved = |rounds: &[u64]| {
            let kept = rounds.iter().map(|&rounds| CheckpointId::new(0, rounds, &[])).collect();
            Saved { kept, ..Saved::default() }
        };
        let report = |node: u32, rounds: &[u64]| {
            CheckpointReport::new((NodeId(node), 9), &saved(rounds), &Signs(NodeId(node)))
        };
        let begins = |own: &[u64], nodes: Vec<CheckpointReport>| {
            let mut node = gathering(&topology, 1, saved(own));
            node.up(NodeId(0));
            let reports = Reports { nodes, histories: Vec::new() };
            node.message(NodeId(0), StartMessage::Begin(reports))?;
            Ok::<_, String>(node.begins().map(|agreed| agreed.at.rounds))
        };
        assert_eq!(begins(&[4], vec![report(0, &[4]), report(1, &[4])]), Ok(Some(4)));
        assert_eq!(begins(&[4], vec![report(0, &[4]), report(1, &[])]), Ok(None), "an older one");
        let forged = CheckpointReport { node: NodeId(1), ..report(0, &[4]) };
        let text = "it reports checkpoints that node 1 has not signed";
        assert_eq!(begins(&[4], vec![report(0, &[4]), forged]), Err(text.into()));
        assert!(begins(&[4], vec![report(0, &[4])]).unwrap_err().contains("other nodes"));
    }

    proptest! {
        /// Links break and return in any order: the run begins exactly when all links are up.
        #[test]
        fn all_begin_when_all_are_linked(
            spec in prop::sample::select(vec![
                "ring:6", "path:4", "star:5", "complete:4", "torus:3x3", "path:1",
            ]),
            changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..4), 0..60),
        ) {
            let mut network = Network::new(spec);
            let links = network.all_links();
            for (which, change) in changes {
                if links.is_empty() {
                    break;
                }
                let link = links[which.index(links.len())];
                match change {
                    0 => network.restart(link.0),
                    1 if network.links.contains(&link) => network.turn(link, false),
                    // The last one stays down.
                    _ if !network.links.contains(&link)
                        && network.links.len() + 1 < links.len() =>
                    {
                        network.turn(link, true);
                    }
                    _ => {}
                }
                network.deliver_all().unwrap();
                let none_begins = network.nodes.iter().all(|node| node.begins().is_none());
                prop_assert!(none_begins, "{:?}", network.links);
            }
            for link in links {
                if !network.links.contains(&link) {
                    network.turn(link, true);
                }
            }
            network.deliver_all().unwrap();
            let is_first = |agreed: &Agreed| agreed.at.rounds == 0 && !agreed.at.from_mean;
            prop_assert!(network.nodes.iter().all(|node| node.begins().is_some_and(is_first)));
        }
    }
}
