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
//! * *Ready* names the checkpoints of all nodes of the subtree; *begin* says after which round the
//!   run continues (0: from its beginning).
//! * A *ready* counts only if it is about exactly that subtree, within the rounds and the
//!   memberships of the run. A node that has checkpoints does not begin where they would be lost
//!   for the word of one other: it refuses.

use std::collections::BTreeSet;

use litemap::LiteMap;

use crate::{
    cluster::{
        effect::Effect,
        message::{Beginning, CheckpointId, Saved, StartMessage, most_changes},
    },
    drive::{Change, Membership},
    mixing::Topology,
    units::{NodeId, Round},
};

/// The last known state of a child.
#[derive(Clone, Debug, PartialEq)]
enum Child {
    Unknown,
    Ready(Saved),
    Waiting(String),
}

/// One node's view of the start of the run.
#[derive(Debug)]
pub(crate) struct Gathering {
    me: NodeId,
    parent: Option<NodeId>,
    children: LiteMap<NodeId, Child>,
    /// The nodes below each child, itself included, ascending.
    below: LiteMap<NodeId, Vec<NodeId>>,
    /// The rounds of the run.
    rounds: u64,
    /// Neighbours whose link is not yet up.
    missing: BTreeSet<NodeId>,
    /// The parent's report on the rest of the network.
    rest: Option<String>,
    /// The checkpoints that this node has.
    own: Saved,
    /// The members of the run, by their numbers in its topology.
    membership: Membership,
    /// Where the run begins or continues, once that is known.
    beginning: Option<Beginning>,
    /// The last message to each neighbour in the tree.
    sent: LiteMap<NodeId, StartMessage>,
}

impl Gathering {
    /// The state before any link is up.
    ///
    /// `saved` are this node's checkpoints, `topology` the links between these members, `rounds`
    /// those of the run.
    pub(crate) fn new(
        topology: &Topology,
        membership: Membership,
        node: NodeId,
        saved: Saved,
        rounds: u64,
    ) -> Gathering {
        let tree = topology.spanning_tree();
        let neighbours = topology.neighbours(node);
        let all = || (0..topology.nodes()).map(NodeId::from);
        let below =
            |&child: &NodeId| (child, all().filter(|node| tree.is_below(*node, child)).collect());
        Gathering {
            me: node,
            below: tree.children(node).iter().map(below).collect(),
            rounds,
            own: saved,
            membership,
            parent: tree.parent(node),
            children: tree.children(node).iter().map(|&child| (child, Child::Unknown)).collect(),
            missing: neighbours.iter().copied().collect(),
            rest: None,
            beginning: None,
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
            (self.rest, self.beginning) = (None, None);
        }
    }

    /// Handles a message of a neighbour; it is ignored unless that is the parent or a child.
    ///
    /// # Errors
    /// Why no node of this run can say so.
    pub(crate) fn message(&mut self, from: NodeId, message: StartMessage) -> Result<(), String> {
        if self.children.contains_key(&from) {
            let state = match message {
                StartMessage::Ready(saved) => {
                    self.check_ready(from, &saved)?;
                    Child::Ready(saved)
                }
                StartMessage::Waiting(text) => Child::Waiting(text),
                StartMessage::Begin(_) | StartMessage::Assembly(_) => return Ok(()),
            };
            self.children.insert(from, state);
        } else if self.parent == Some(from) {
            match message {
                StartMessage::Begin(beginning) => {
                    self.check_begin(&beginning)?;
                    self.beginning = Some(beginning);
                }
                StartMessage::Waiting(text) => self.rest = Some(text),
                StartMessage::Ready(_) | StartMessage::Assembly(_) => {}
            }
        }
        Ok(())
    }

    fn check_ready(&self, child: NodeId, saved: &Saved) -> Result<(), String> {
        let mut nodes: Vec<NodeId> = saved.nodes.iter().map(|(node, _)| *node).collect();
        nodes.sort_unstable();
        if self.below.get(&child) != Some(&nodes) {
            return Err(
                "it reports checkpoints of other nodes than itself and those behind it".into()
            );
        }
        let (newest, most) = (self.membership.id, self.rounds);
        let exists =
            |kept: &CheckpointId| kept.membership <= newest && (1..=most).contains(&kept.rounds);
        let all = saved.nodes.iter().map(|(_, kept)| kept);
        let exist = |kept: &Vec<CheckpointId>| {
            kept.iter().all(exists) && kept.is_sorted_by(|before, after| before < after)
        };
        if !all.clone().all(exist) || saved.common > saved.newest() {
            return Err(format!(
                "it reports checkpoints beyond the {most} rounds of the run or its memberships"
            ));
        }
        self.check_history(&saved.history)
    }

    fn check_history(&self, history: &[Change]) -> Result<(), String> {
        let mut before = None;
        for change in history {
            if !change.can_follow(before, self.membership.id, self.rounds) {
                return Err("it names changes of the members that this run cannot have had".into());
            }
            before = Some(change);
        }
        Ok(())
    }

    /// Checks where the run is to continue, by what this node has itself.
    fn check_begin(&self, at: &Beginning) -> Result<(), String> {
        if at.rounds > self.rounds {
            return Err(format!(
                "the run is to continue after round {} of {}",
                at.rounds, self.rounds
            ));
        }
        self.check_history(&at.history)?;
        let members = self.membership.members.len();
        let exist = at.without.iter().all(|node| node.index() < members);
        let differ = at.without.is_sorted_by(|before, after| before < after);
        let is_mean = at.rounds > 0 && at.without.len() < members;
        let fits = if at.from_mean { is_mean } else { at.without.is_empty() };
        if !(exist && differ && fits) {
            return Err("it names members without a model where no mean can be formed".into());
        }
        let id = self.membership.id;
        let own = self.own.nodes.iter().find(|(node, _)| *node == self.me);
        let own = own.map_or(&[][..], |(_, kept)| kept);
        let lacks = at.without.contains(&self.me);
        let has = |kept: &CheckpointId| {
            kept.rounds == at.rounds && (at.from_mean || kept.membership == id)
        };
        if at.rounds > 0 && !lacks && !own.iter().any(has) {
            return Err(format!(
                "the run is to continue after round {}, of which this node has no checkpoint",
                at.rounds
            ));
        }
        let models = members - at.without.len();
        let by_most = at.from_mean && 2 * models > members;
        let CheckpointId { membership, rounds: common } = self.own.common;
        // All members have had this one, so there is a checkpoint of it, or a later one. An earlier
        // one that all still have costs rounds only.
        let is_lost = at.rounds == 0 || lacks || (at.from_mean && at.rounds < common);
        let is_back = membership == id && common > 0 && is_lost;
        // A checkpoint of earlier members is where a run continues that they have started.
        let begins = at.rounds == 0 && own.last().is_some_and(|kept| kept.membership < id);
        if (is_back && !by_most) || begins {
            return Err(format!(
                "the run is to continue after round {} without this node's checkpoints, the \
                 newest of which is of round {}, and of which all members have had that of round \
                 {common}; \
                 they stay as they are",
                at.rounds,
                own.last().map_or(0, |kept| kept.rounds)
            ));
        }
        Ok(())
    }

    /// The number of neighbours without a link.
    pub(crate) fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Where this node begins or continues, if it does now.
    pub(crate) fn begins(&self) -> Option<&Beginning> {
        self.beginning.as_ref().filter(|_| self.missing.is_empty())
    }

    /// The checkpoints of this node and all nodes below it, if all of them are linked.
    fn ready(&self) -> Option<Saved> {
        let mut all = self.own.clone();
        for child in self.children.values() {
            let Child::Ready(saved) = child else { return None };
            all.common = all.common.max(saved.common);
            if saved.newest() > all.newest() {
                all.history.clone_from(&saved.history);
            }
            all.nodes.extend(saved.nodes.iter().cloned());
        }
        self.missing.is_empty().then_some(all)
    }

    /// Where the run continues with these checkpoints of all members.
    ///
    /// * After the newest round of which all have one, written by these members.
    /// * If some have lost theirs, or the members have changed: after the round of which most have
    ///   one, from the mean of their models.
    fn decide(&self, all: Saved, out: &mut Vec<Effect>) -> Beginning {
        let Saved { nodes, common, mut history } = all;
        let Membership { id, members, cut } = &self.membership;
        let mut memberships: Vec<u64> =
            nodes.iter().flat_map(|(_, kept)| kept).map(|kept| kept.membership).collect();
        memberships.sort_unstable();
        memberships.dedup();
        for membership in memberships.into_iter().rev() {
            let mut count: LiteMap<_, _> = LiteMap::new();
            let of = |kept: &&CheckpointId| kept.membership == membership;
            for kept in nodes.iter().flat_map(|(_, kept)| kept).filter(of) {
                *count.entry(*kept).or_insert(0) += 1;
            }
            let of_all = count.iter().rfind(|(_, count)| **count == nodes.len());
            if let (Some((kept, _)), true) = (of_all, membership == *id) {
                history.retain(|change| change.is_before(membership, kept.rounds));
                return Beginning { rounds: kept.rounds, history, ..Beginning::default() };
            }
            let most = count.iter().max_by_key(|(_, count)| **count);
            let Some((&newest, &with)) = most else { continue };
            // Some have their first one, the others none yet. If they have others, the word of a
            // few does not replace them.
            let earlier = |kept: &CheckpointId| kept.membership < membership;
            let others = nodes.iter().any(|(_, kept)| kept.last().is_some_and(earlier));
            let few = 2 * with <= nodes.len() && others;
            if membership == *id && (common < (CheckpointId { membership, rounds: 1 }) || few) {
                continue;
            }
            let (with, without): (Vec<_>, Vec<_>) =
                nodes.iter().partition(|(_, kept)| kept.contains(&newest));
            let numbers = |nodes: Vec<&(NodeId, Vec<CheckpointId>)>| {
                let mut numbers: Vec<NodeId> = nodes.into_iter().map(|(node, _)| *node).collect();
                numbers.sort_unstable();
                numbers
            };
            let models = numbers(with).into_iter().filter_map(|node| members.get(node.index()));
            history.retain(|change| change.is_before(membership, newest.rounds));
            let most = most_changes(nodes.len()).max(1);
            if history.len() >= most {
                out.push(Effect::Warn(format!(
                    "the members have changed more than {most} times: the history of this run \
                     keeps the first changes and the last one"
                )));
                history.truncate(most - 1);
            }
            history.push(Change {
                id: *id,
                round: Round(newest.rounds),
                members: members.clone(),
                cut: cut.clone(),
                models: models.copied().collect(),
            });
            let without = numbers(without);
            return Beginning { rounds: newest.rounds, from_mean: true, without, history };
        }
        let (members, cut) = (members.clone(), cut.clone());
        let history = match *id {
            0 => Vec::new(),
            id => vec![Change { id, members, cut, ..Change::default() }],
        };
        Beginning { history, ..Beginning::default() }
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

    /// Returns the messages that are new since the last call; with `repeat`, all of them.
    ///
    /// # Errors
    /// Why this node, the root, cannot begin where all others say.
    pub(crate) fn new_messages(
        &mut self,
        own: Option<&str>,
        repeat: bool,
        out: &mut Vec<Effect>,
    ) -> Result<Vec<(NodeId, StartMessage)>, String> {
        let ready = self.ready();
        if let (Some(all), None) = (&ready, self.parent) {
            let beginning = self.decide(all.clone(), out);
            self.check_begin(&beginning)?;
            self.beginning = Some(beginning);
        }
        let mut messages = Vec::new();
        if let Some(parent) = self.parent.filter(|_| self.beginning.is_none()) {
            // The parent's own report is not sent back to it.
            let above = self.rest.take();
            messages.push((
                parent,
                match ready {
                    Some(saved) => StartMessage::Ready(saved),
                    None => StartMessage::Waiting(self.reason(own)),
                },
            ));
            self.rest = above;
        }
        for &child in self.children.keys() {
            messages.push((
                child,
                match &self.beginning {
                    Some(beginning) => StartMessage::Begin(beginning.clone()),
                    None => StartMessage::Waiting(self.reason(own)),
                },
            ));
        }
        messages.retain(|(to, message)| {
            let new = self.sent.get(to) != Some(message);
            !self.missing.contains(to) && (new || repeat)
        });
        self.sent.extend(messages.iter().cloned());
        Ok(messages)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROUNDS: u64 = 100;

    /// A node of the whole topology, without checkpoints.
    fn blank(topology: &Topology, node: usize) -> Gathering {
        let node = NodeId::from(node);
        let saved = Saved { nodes: vec![(node, Vec::new())], ..Saved::default() };
        let membership = Membership::all(topology.nodes());
        Gathering::new(topology, membership, node, saved, ROUNDS)
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

        /// Exchanges messages until none is new.
        fn deliver_all(&mut self) {
            for _ in 0..1000 {
                let mut quiet = true;
                for node in 0..self.nodes.len() {
                    let own =
                        (self.nodes[node].missing() > 0).then(|| format!("node {node} waits"));
                    let messages = self.nodes[node]
                        .new_messages(own.as_deref(), false, &mut Vec::new())
                        .unwrap();
                    for (to, message) in messages {
                        quiet = false;
                        self.nodes[to.index()].message(node.into(), message).unwrap();
                    }
                }
                if quiet {
                    return;
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
        network.deliver_all();
        for node in 0..3 {
            assert_eq!(network.nodes[node].reason(None), "node 3 waits", "node {node}");
        }
        assert!(network.nodes.iter().all(|node| node.begins().is_none()));
    }

    /// Where all nodes of a ring of 4 continue, as members of this membership, with these
    /// checkpoints.
    fn agreed(id: u64, kept: [&[(u64, u64)]; 4], common: (u64, u64)) -> Beginning {
        let mut network = Network::new("ring:4");
        let members = [2, 3, 5, 7].map(NodeId).to_vec();
        let membership = Membership { id, members, cut: Vec::new() };
        let of = |(membership, rounds)| CheckpointId { membership, rounds };
        for (node, kept) in kept.into_iter().enumerate() {
            // Only node 1 knows.
            let common = if node == 1 { of(common) } else { CheckpointId::default() };
            let nodes = vec![(node.into(), kept.iter().copied().map(of).collect())];
            let saved = Saved { nodes, common, history: Vec::new() };
            let topology = &network.topology;
            network.nodes[node] =
                Gathering::new(topology, membership.clone(), node.into(), saved, ROUNDS);
        }
        network.all_links().into_iter().for_each(|link| network.turn(link, true));
        network.deliver_all();
        let all: Vec<Option<&Beginning>> = network.nodes.iter().map(Gathering::begins).collect();
        assert!(all.iter().all(|beginning| *beginning == all[0]), "{all:?}");
        all[0].expect("all are linked").clone()
    }

    /// The round, and the members without a checkpoint if all begin at a mean.
    fn place(beginning: Beginning) -> (u64, Option<Vec<u32>>) {
        let numbers = || beginning.without.iter().map(|node| node.0).collect();
        (beginning.rounds, beginning.from_mean.then(numbers))
    }

    #[test]
    fn the_run_goes_on_from_the_newest_checkpoint_that_all_have() {
        let agreed = |first: &[u64], last: &[u64], common: u64| {
            let kept = |rounds: &[u64]| rounds.iter().map(|round| (0, *round)).collect::<Vec<_>>();
            let (first, all, last) = (kept(first), kept(&[4, 8, 12]), kept(last));
            let nodes = [first.as_slice(), all.as_slice(), all.as_slice(), last.as_slice()];
            place(agreed(0, nodes, (0, common)))
        };
        assert_eq!(agreed(&[4, 8, 12], &[4, 8, 12], 8), (12, None));
        assert_eq!(agreed(&[4, 8], &[8, 12], 8), (8, None));
        // Nodes without any return to the others.
        assert_eq!(agreed(&[], &[4, 8], 4), (8, Some(vec![0])));
        assert_eq!(agreed(&[], &[], 4), (12, Some(vec![0, 3])));
        assert_eq!(agreed(&[4, 8], &[4], 8), (4, None));
        assert_eq!(agreed(&[8], &[4], 8), (8, Some(vec![3])));
    }

    /// Node 1 of a path of four, whose child is node 2 and whose parent is node 0, in a membership
    /// that follows another one; it has checkpoints of these rounds of the earlier one and of now.
    fn middle(earlier: &[u64], now: &[u64], common: u64) -> (Gathering, u64) {
        let topology = Topology::parse("path:4", 0).unwrap();
        let all: Vec<NodeId> = (0..4).map(NodeId).collect();
        let membership = Membership::after([0].into_iter(), all, Vec::new());
        let id = membership.id;
        let of = |membership: u64, rounds: &[u64]| {
            rounds.iter().map(|&rounds| CheckpointId { membership, rounds }).collect::<Vec<_>>()
        };
        let kept = [of(0, earlier), of(id, now)].concat();
        let common = CheckpointId { membership: id, rounds: common };
        let nodes = vec![(NodeId(1), kept)];
        let saved = Saved { nodes, common, history: Vec::new() };
        (Gathering::new(&topology, membership, NodeId(1), saved, ROUNDS), id)
    }

    #[test]
    fn a_ready_is_about_exactly_the_subtree_within_the_run() {
        let refusal = |change: &dyn Fn(&mut Saved, u64)| {
            let (mut gathering, id) = middle(&[20], &[], 0);
            let kept = vec![
                CheckpointId { membership: 0, rounds: 10 },
                CheckpointId { membership: id, rounds: 20 },
            ];
            let nodes = vec![(NodeId(2), kept), (NodeId(3), Vec::new())];
            let mut saved = Saved { nodes, ..Saved::default() };
            change(&mut saved, id);
            gathering.message(NodeId(2), StartMessage::Ready(saved)).err().unwrap_or_default()
        };
        assert_eq!(refusal(&|_, _| ()), "");
        let others = "checkpoints of other nodes";
        assert!(refusal(&|saved, _| _ = saved.nodes.pop()).contains(others));
        assert!(refusal(&|saved, _| saved.nodes[1].0 = NodeId(2)).contains(others), "twice");
        assert!(refusal(&|saved, _| saved.nodes[1].0 = NodeId(0)).contains(others), "not below");
        assert!(refusal(&|saved, _| saved.nodes.push((NodeId(1), Vec::new()))).contains(others));
        let beyond = "beyond the 100 rounds of the run or its memberships";
        assert!(refusal(&|saved, _| saved.nodes[0].1[1].rounds = 101).contains(beyond));
        assert!(refusal(&|saved, _| saved.nodes[0].1[0].rounds = 0).contains(beyond));
        assert!(refusal(&|saved, id| saved.nodes[0].1[1].membership = id + 1).contains(beyond));
        assert!(refusal(&|saved, _| saved.nodes[0].1.reverse()).contains(beyond));
        let common =
            |saved: &mut Saved, id| saved.common = CheckpointId { membership: id, rounds: 21 };
        assert!(refusal(&common).contains(beyond), "that of a node is no later than its newest");
        let change = |id, round| Change { id, round: Round(round), ..Change::default() };
        let history = |history: &[Change]| {
            refusal(&|saved, _| saved.history = history.to_vec()).contains("changes of the members")
        };
        assert!(!history(&[change(1, 5), change(2, 5), change(2, 9)]));
        assert!(history(&[change(1, 5), change(2, 4)]) && history(&[change(2, 5), change(1, 6)]));
        assert!(history(&[change(1, 101)]) && history(&[change(u64::MAX, 5)]));
    }

    #[test]
    fn a_node_that_has_checkpoints_refuses_to_lose_them() {
        let refusal = |gathering: (Gathering, u64), at: Beginning| {
            let (mut gathering, _) = gathering;
            gathering.message(NodeId(0), StartMessage::Begin(at)).err().unwrap_or_default()
        };
        let without = |rounds: u64, without: &[u32]| {
            let without = without.iter().copied().map(NodeId).collect();
            Beginning { rounds, from_mean: true, without, ..Beginning::default() }
        };
        let there = |rounds| Beginning { rounds, ..Beginning::default() };
        let with = || middle(&[], &[20, 30], 20);
        assert_eq!(refusal(with(), there(30)), "");
        assert!(refusal(with(), there(25)).contains("of which this node has no checkpoint"));
        assert!(refusal(with(), there(101)).contains("after round 101 of 100"));
        // Nobody has a model; one is named twice; or a node that is no member.
        for (rounds, lack) in [(40, &[0, 1, 2, 3][..]), (40, &[2; 5]), (40, &[3, 2]), (40, &[4])] {
            assert!(refusal(with(), without(rounds, lack)).contains("no mean can be formed"));
        }
        assert!(refusal(middle(&[], &[], 0), without(0, &[])).contains("no mean can be formed"));
        let exactly = Beginning { from_mean: false, ..without(30, &[2]) };
        assert!(refusal(with(), exactly).contains("no mean can be formed"));
        // One node's word against the checkpoints that all have had.
        for at in [there(0), without(90, &[0, 1, 2]), without(90, &[1, 2])] {
            let text = refusal(with(), at);
            assert!(text.contains("without this node's checkpoints, the newest of"), "{text}");
        }
        // Most members have a later one; or none is known to have been everywhere.
        assert_eq!(refusal(with(), without(40, &[1])), "");
        assert_eq!(refusal(middle(&[], &[10], 0), there(0)), "");
        // It was away: the others have continued. But they do not start from the beginning.
        assert_eq!(refusal(middle(&[10], &[], 0), without(40, &[1, 2])), "");
        assert!(refusal(middle(&[10], &[], 0), there(0)).contains("they stay as they are"));
    }

    #[test]
    fn the_word_of_one_does_not_replace_the_checkpoints_of_the_others() {
        // Node 1 claims that all have had checkpoints of a membership that has just been chosen.
        let (old, new) = (1 << 32, 2 << 32);
        let honest = [(old, 40)];
        let at = agreed(new, [&honest, &[(new, 90)], &honest, &honest], (new, 90));
        assert_eq!(place(at), (40, Some(vec![1])));
        // The only one that has any.
        let at = agreed(new, [&[], &[(new, 90)], &[], &[]], (new, 90));
        assert_eq!(place(at), (90, Some(vec![0, 2, 3])));
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
                network.deliver_all();
                let none_begins = network.nodes.iter().all(|node| node.begins().is_none());
                prop_assert!(none_begins, "{:?}", network.links);
            }
            for link in links {
                if !network.links.contains(&link) {
                    network.turn(link, true);
                }
            }
            network.deliver_all();
            let first = Some(&Beginning::default());
            prop_assert!(network.nodes.iter().all(|node| node.begins() == first));
        }
    }
}
