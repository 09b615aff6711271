//! Random orders of stops, starts, breaks and lost messages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{super::keys::Named, check::check_adopted, *};
use crate::experiment::AbsenceParams;

struct Network {
    topology: Arc<Topology>,
    quorum: usize,
    /// The name of a node that has lost its files, if any has.
    lost: String,
    nodes: Vec<Assembly>,
    /// What each node has on its disk.
    disks: Vec<Membership>,
    alive: Vec<bool>,
    /// The choices of the program that starts next, the one that it begins with.
    choice: u64,
    /// How long a link that one end asserts alone is awaited.
    deadline: Option<Duration>,
    /// Links that are up, the lower number first.
    links: BTreeSet<(usize, usize)>,
    /// Missing links that are late.
    late: BTreeSet<(usize, usize)>,
    now: Instant,
    adopted: BTreeMap<u64, Membership>,
}

impl Network {
    fn new(spec: &str) -> Network {
        let topology = Arc::new(Topology::parse(spec, 0).expect("a spec of this file"));
        let nodes = topology.nodes();
        let whole = Membership::all(nodes);
        let mut network = Network {
            quorum: AbsenceParams::default().quorum_of(nodes),
            lost: String::new(),
            nodes: Vec::new(),
            disks: vec![whole; nodes],
            alive: vec![true; nodes],
            choice: 1,
            deadline: None,
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
        // A node without files does not know that the run has started.
        let started = self.topology.node(node.into()).name != self.lost;
        Assembly::new(
            Arc::clone(&self.topology),
            Chooser { me: node.into(), keys: Arc::new(Named(node.into())), choice: self.choice },
            quorums,
            disk,
            started,
        )
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
            if let NextStep::Adopt(membership) = self.nodes[node].step(self.now, self.deadline) {
                self.disks[node] = membership.clone();
                check_adopted(&self.topology, node, &self.disks, &mut self.adopted);
                self.nodes[node].adopt(membership);
            }
        }
        let news: Vec<News> = self.nodes.iter().map(Assembly::news).collect();
        for (index, &(a, b)) in self.links.clone().iter().enumerate() {
            if only(2 * index) {
                self.nodes[a].receive(b.into(), news[b].clone()).expect("honest news");
            }
            if only(2 * index + 1) {
                self.nodes[b].receive(a.into(), news[a].clone()).expect("honest news");
            }
        }
    }

    fn stop(&mut self, node: usize) {
        self.alive[node] = false;
        self.links.retain(|&(a, b)| a != node && b != node);
    }

    fn run_until(&mut self, nodes: &[usize]) -> Membership {
        for _ in 0..60 {
            self.turn(|_| true);
            let steps: Vec<NextStep> =
                nodes.iter().map(|&node| self.nodes[node].step(self.now, self.deadline)).collect();
            if steps.iter().all(|step| *step == NextStep::Leave) {
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
    // All are present: the membership of the beginning.
    assert_eq!(network.run_until(&[0, 1, 2, 3, 4]), Membership::all(5));
    network.stop(2);
    network.nodes = (0..5).map(|node| network.fresh(node)).collect();
    for _ in 0..20 {
        network.turn(|_| true);
        assert!(network.disks.iter().all(|disk| disk.id == 0), "nothing is late yet");
    }
    network.late = [(1, 2), (2, 3)].into();
    let without = network.run_until(&[0, 1, 3, 4]);
    assert_eq!((without.id >> 32, &without.members), (1, &numbers(&[0, 1, 3, 4])));
    assert_eq!(without.cut, []);
    network.alive[2] = true;
    network.nodes = (0..5).map(|node| network.fresh(node)).collect();
    (network.links, network.late) = (network.all_links().into_iter().collect(), [].into());
    let again = network.run_until(&[0, 1, 2, 3, 4]);
    assert_eq!((again.id >> 32, again.members), (2, numbers(&[0, 1, 2, 3, 4])));
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
    assert_eq!(network.nodes[0].step(network.now, None), NextStep::Wait(numbers(&[2, 3, 4])));
}

#[test]
fn what_no_node_can_know_is_refused() {
    let topology = Topology::parse("ring:5", 0).expect("a spec of this file");
    let view = |node: u32, linked: &[u32], late: &[u32]| {
        let (linked, late) = (numbers(linked), numbers(late));
        let view = View { linked, late, ..View::default() };
        News { views: vec![(NodeId(node), view)] }
    };
    let mut numbered = view(1, &[], &[]);
    numbered.views[0].1.number = u64::MAX - 1;
    assert!(view(1, &[0, 2], &[]).is_valid(&topology));
    for news in [
        view(5, &[], &[]),
        view(1, &[0, 5], &[]),
        view(1, &[2, 0], &[]),
        view(1, &[], &[0, 2, 3]),
        numbered,
    ] {
        assert!(!news.is_valid(&topology), "{news:?}");
    }
}

/// In the ring 0 - 1 - 2 - 3 - 4 - 0, node 0 tells each of its neighbours, with one number, that
/// only the other one is linked with it.
#[test]
fn two_statements_with_one_number_become_one_for_all() {
    let mut network = Network::new("ring:5");
    network.links = network.all_links().into_iter().collect();
    // It says nothing else.
    network.alive[0] = false;
    let links: Vec<(usize, usize)> = network.links.iter().copied().collect();
    let honest = |message: usize| {
        let (a, b) = links[message / 2];
        [b, a][message % 2] != 0
    };
    let says = |linked: u32, late: u32| {
        let (linked, late) = (numbers(&[linked]), numbers(&[late]));
        let view = View { number: 7, linked, late, started: true, ..View::default() };
        let signature = Named(NodeId(0)).sign(&statement(NodeId(0), &view));
        News { views: vec![(NodeId(0), View { signature, ..view })] }
    };
    for _ in 0..10 {
        network.nodes[1].receive(NodeId(0), says(4, 1)).unwrap();
        network.nodes[4].receive(NodeId(0), says(1, 4)).unwrap();
        network.turn(honest);
    }
    let adopted = &network.disks[1];
    assert_ne!(adopted.cut, []);
    for node in [2, 3, 4] {
        assert_eq!(network.disks[node], *adopted, "node {node}");
    }
}

/// A node that is started again hears what it has said before with higher numbers than it gives out
/// now: it numbers its next statement above those, so that the others hear it.
#[test]
fn an_own_statement_from_before_a_restart_is_overtaken() {
    let mut network = Network::new("ring:3");
    network.links = network.all_links().into_iter().collect();
    // Node 0 has said much.
    for number in 0..20 {
        let linked = if number % 2 == 0 { numbers(&[1]) } else { numbers(&[1, 2]) };
        network.nodes[0].observe(&linked.into_iter().collect(), &BTreeSet::new());
    }
    (0..3).for_each(|_| network.turn(|_| true));
    let known = |network: &Network| network.nodes[1].views[&NodeId(0)].clone();
    assert!(known(&network).number >= 20);
    network.nodes[0] = network.fresh(0);
    // Now its link to node 2 is down.
    network.links.remove(&(0, 2));
    network.late.insert((0, 2));
    (0..3).for_each(|_| network.turn(|_| true));
    assert_eq!((known(&network).linked, known(&network).late), (numbers(&[1]), numbers(&[2])));
}

/// A member passes on what another one has not said, and numbers of its own beyond all that there
/// can be: nothing would be greater ever after.
#[test]
fn false_statements_and_numbers_far_beyond_are_left_out() {
    let mut network = Network::new("ring:5");
    network.links = network.all_links().into_iter().collect();
    for (node, links) in [(2, (2, 3)), (2, (1, 2))] {
        network.links.remove(&links);
        network.late.insert(links);
        network.alive[node] = false;
    }
    let liar = Named(NodeId(3));
    // All have heard of it before.
    (0..3).for_each(|_| network.turn(|_| true));
    for (number, adopted) in [(MOST_VIEWS - 1, 0), (1 << 30, 0), (7, u64::MAX), (7, 1 << 60)] {
        network.turn(|_| true);
        for about in [NodeId(3), NodeId(4)] {
            let view =
                View { choice: 1, number, adopted, linked: numbers(&[2]), ..View::default() };
            let signature = liar.sign(&statement(about, &view));
            let news = News { views: vec![(about, View { signature, ..view })] };
            assert!(news.is_valid(&network.topology));
            for node in [0, 1, 4] {
                let received = network.nodes[node].receive(NodeId(3), news.clone());
                assert_eq!(received.is_err(), about == NodeId(4), "{received:?}");
            }
        }
    }
    let chosen = network.run_until(&[0, 1, 3, 4]);
    assert_eq!(chosen.members, numbers(&[0, 1, 3, 4]));
    assert_eq!(chosen.id >> 32, 1);
    assert!(network.nodes.iter().all(|node| node.own.number < 100));
}

/// A view with the signature of this node.
fn signed(node: u32, view: View) -> News {
    let node = NodeId(node);
    let signature = Named(node).sign(&statement(node, &view));
    News { views: vec![(node, View { signature, ..view })] }
}

/// Half of the nodes are no quorum: the other half could be one, too.
#[test]
fn half_of_the_nodes_do_not_continue() {
    for (nodes, least) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (101, 51)] {
        assert_eq!(AbsenceParams::default().quorum_of(nodes), least, "of {nodes}");
    }
    for spec in ["complete:4", "ring:4", "ring:6"] {
        let mut network = Network::new(spec);
        let half = network.nodes.len() / 2;
        let is_across = |(a, b): &(usize, usize)| (*a < half) != (*b < half);
        let (across, within) = network.all_links().into_iter().partition(is_across);
        (network.links, network.late) = (within, across);
        for _ in 0..20 {
            network.turn(|_| true);
        }
        assert!(network.disks.iter().all(|disk| disk.id == 0), "{spec}: {:?}", network.disks);
    }
}

/// A member says that the run is over, with results of its own and later members than all know.
/// That ends nobody, and nobody repeats it. What a quorum has signed counts, if their results are
/// equal.
#[test]
fn a_run_is_over_by_the_signatures_of_a_quorum_only() {
    let over = |node: u32, results: u64| {
        let adopted = 9 << 32;
        let (linked, results) = (numbers(&[(node + 1) % 5, (node + 4) % 5]), Some(results));
        let linked = if linked.is_sorted() { linked } else { linked.into_iter().rev().collect() };
        let view = View { choice: 5, linked, adopted, results, over: true, ..View::default() };
        signed(node, View { started: true, ..view })
    };
    let mut network = Network::new("ring:5");
    network.links = network.all_links().into_iter().collect();
    (0..3).for_each(|_| network.turn(|_| true));
    network.alive[3] = false;
    for _ in 0..20 {
        for neighbour in [2, 4] {
            network.nodes[neighbour].receive(NodeId(3), over(3, 7)).unwrap();
        }
        // What its program would say is lost.
        network.turn(|index| ![6, 9].contains(&index));
        for node in [0, 1, 2, 4] {
            let step = network.nodes[node].step(network.now, None);
            assert!(!matches!(step, NextStep::End | NextStep::Outside), "node {node}: {step:?}");
            assert!(!network.nodes[node].own.over, "node {node} repeats it");
        }
    }
    let heard = |news: [News; 3]| {
        let mut network = Network::new("ring:5");
        for news in news {
            network.nodes[1].receive(NodeId(2), news).unwrap();
        }
        network.nodes[1].step(network.now, None)
    };
    assert_eq!(heard([over(3, 7), over(4, 7), over(0, 7)]), NextStep::Outside);
    let waits = NextStep::Wait(numbers(&[0, 2, 3, 4]));
    assert_eq!(heard([over(3, 7), over(4, 7), over(0, 8)]), waits, "other results");
    assert_eq!(heard([over(3, 7), over(4, 7), over(4, 7)]), waits, "two nodes");
}

/// A member repeats what another one has said in an earlier choice, in order: that one is heard as
/// before. What it says itself is heard a thousand times.
#[test]
fn old_statements_cost_their_signer_nothing() {
    let network = Network::new("ring:5");
    let says = |choice: u64, number: u64| {
        let view = View { choice, number, linked: numbers(&[2]), ..View::default() };
        signed(3, View { started: true, ..view })
    };
    let view_of_3 =
        |node: &Assembly| node.views.get(&NodeId(3)).map(View::order).map(|it| (it.0, it.1));
    let mut node = network.nodes[4].clone();
    for number in 1..2_000 {
        node.receive(NodeId(0), says(1, number)).unwrap();
    }
    node.receive(NodeId(3), says(2, 1)).unwrap();
    assert_eq!(view_of_3(&node), Some((2, 1)));
    node.receive(NodeId(0), says(1, 3_000)).unwrap();
    assert_eq!(view_of_3(&node), Some((2, 1)), "it is of an earlier choice");
    for number in 2..5_000 {
        node.receive(NodeId(3), says(2, number)).unwrap();
    }
    assert_eq!(view_of_3(&node), Some((2, u64::from(MOST_HEARD))));
    // Those of this node itself make it speak once.
    let mut node = network.nodes[3].clone();
    for number in 1..2_000 {
        node.receive(NodeId(2), says(1, number)).unwrap();
    }
    assert!(node.own.number < 10, "{:?}", node.own);
    assert!(node.own.choice > 1);
}

/// A program that was started again counts from the beginning. It says something newer than the one
/// before, as soon as it hears what that has said: else nobody would hear it.
#[test]
fn a_program_that_was_started_again_overtakes_its_earlier_statements() {
    let mut network = Network::new("ring:5");
    network.links = network.all_links().into_iter().collect();
    for _ in 0..5 {
        // A link comes and goes, so that the node says something each time.
        network.links.remove(&(1, 2));
        network.turn(|_| true);
        network.links.insert((1, 2));
        network.turn(|_| true);
    }
    network.nodes[2] = network.fresh(2);
    (network.links, network.late) = (network.all_links().into_iter().collect(), BTreeSet::new());
    network.links.remove(&(2, 3));
    network.late.insert((2, 3));
    (0..9).for_each(|_| network.turn(|_| true));
    for other in [0, 1, 3, 4] {
        let known = network.nodes[other].views.get(&NodeId(2)).expect("it was there");
        assert_eq!(known.late, [NodeId(3)], "at node {other}");
    }
    assert_eq!(network.disks[2].cut, [(NodeId(2), NodeId(3))]);
}

/// A member says that it is linked with a dead node, or says nothing at all about it: the others
/// await that node until the deadline.
#[test]
fn a_link_with_a_dead_node_is_awaited_until_the_deadline() {
    for linked in [&[2, 4][..], &[4]] {
        let mut network = Network::new("ring:5");
        network.links =
            network.all_links().into_iter().filter(|(a, b)| *a != 2 && *b != 2).collect();
        (network.alive[2], network.alive[3]) = (false, false);
        network.late = [(1, 2)].into();
        network.deadline = Some(Duration::from_secs(8));
        let started = network.now;
        let linked = numbers(linked);
        let view = View { choice: 1, number: 1, linked, started: true, ..View::default() };
        let claim = signed(3, view);
        while network.disks[0].id == 0 {
            network.nodes[4].receive(NodeId(3), claim.clone()).unwrap();
            // What its program would say is lost.
            network.turn(|index| index != 5);
            assert!(network.now < started + Duration::from_secs(20), "they wait for ever");
        }
        assert!(network.now >= started + Duration::from_secs(8));
        assert_eq!(network.disks[0].members, numbers(&[0, 1, 3, 4]));
    }
}

/// Once a quorum continues, a node that still awaits a link of others does so too. One node fewer
/// does not shorten the deadline.
#[test]
fn a_quorum_that_continues_is_followed_at_once() {
    let network = Network::new("ring:5");
    let next = Membership::after([0].into_iter(), numbers(&[0, 1, 3, 4]), Vec::new());
    let mut node = network.fresh(4);
    node.observe(&numbers(&[0, 3]).into_iter().collect(), &BTreeSet::new());
    for (number, agreed, adopted) in [(1, false, 0), (2, true, next.id)] {
        for (peer, linked) in [(0, &[1, 4][..]), (1, &[0]), (3, &[4])] {
            let others = View { choice: 1, started: true, ..View::default() };
            let view = View { number, linked: numbers(linked), agreed, adopted, ..others };
            assert!(matches!(node.step(network.now, None), NextStep::Wait(_)), "{peer}");
            node.receive(NodeId(0), signed(peer, view)).unwrap();
        }
    }
    assert_eq!(node.step(network.now, None), NextStep::Adopt(next));
}

/// A member raises the number of the newest membership again and again. Its neighbours refuse it,
/// and not those that pass on what it says.
#[test]
fn one_that_raises_the_number_again_and_again_is_refused_by_its_neighbours() {
    let mut network = Network::new("ring:5");
    network.links = network.all_links().into_iter().collect();
    (0..3).for_each(|_| network.turn(|_| true));
    let raises = |number: u64| {
        let (adopted, linked) = (number << 32 | 77, numbers(&[2, 4]));
        let view = View { choice: 2, number, adopted, linked, started: true, ..View::default() };
        signed(3, view)
    };
    // The links of node 4 have changed once.
    let most = u64::from(MOST_RAISED) + 1;
    for number in 1..=most + 2 {
        let refused = network.nodes[4].receive(NodeId(3), raises(number));
        assert_eq!(refused.is_err(), number > most, "{number}: {refused:?}");
        assert_eq!(network.nodes[0].receive(NodeId(4), raises(number)), Ok(()));
    }
}

/// A member gives up its links again and again, so that others form one membership after the other.
/// Those are no fault of theirs, as long as it goes on.
#[test]
fn one_that_gives_up_its_links_again_and_again_makes_nobody_guilty() {
    let mut network = Network::new("ring:5");
    network.links = network.all_links().into_iter().collect();
    (0..3).for_each(|_| network.turn(|_| true));
    let view = |number| View { choice: 2, number, started: true, ..View::default() };
    let says = |number: u64| {
        let linked = if number.is_multiple_of(2) { numbers(&[2, 4]) } else { numbers(&[2]) };
        signed(3, View { linked, ..view(number) })
    };
    let forms = |number: u64| {
        let (adopted, linked) = (number << 32 | 77, numbers(&[1, 4]));
        signed(0, View { adopted, linked, ..view(number) })
    };
    let node = &mut network.nodes[4];
    for number in 1..=100 {
        node.receive(NodeId(3), says(number)).unwrap();
        node.receive(NodeId(0), forms(number)).unwrap();
    }
    let refused = (101..=200).find(|number| node.receive(NodeId(0), forms(*number)).is_err());
    assert_eq!(refused, Some(101 + u64::from(MOST_RAISED) + 1), "links change no longer");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Nodes stop and start, links break, messages are lost: no two memberships can continue, and
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

/// One node of five gives up links until it has too few for the rule: the others continue.
#[test]
fn one_with_too_few_links_for_the_rule_is_no_member() {
    let mut network = Network::new("complete:5");
    let nodes = std::mem::take(&mut network.nodes);
    network.nodes = nodes.into_iter().map(|node| node.with_least_neighbours(3)).collect();
    network.links = network.all_links().into_iter().collect();
    for other in [0, 1] {
        network.links.remove(&(other, 4));
        network.late.insert((other, 4));
    }
    let adopted = network.run_until(&[0, 1, 2, 3]);
    assert_eq!((adopted.members, adopted.cut), (numbers(&[0, 1, 2, 3]), Vec::new()));
    let (now, deadline) = (network.now, network.deadline);
    assert_eq!(network.nodes[4].step(now, deadline), NextStep::Wait(Vec::new()));
    // With one link less it has enough.
    let mut network = Network::new("complete:5");
    let nodes = std::mem::take(&mut network.nodes);
    network.nodes = nodes.into_iter().map(|node| node.with_least_neighbours(3)).collect();
    network.links = network.all_links().into_iter().filter(|link| *link != (0, 4)).collect();
    network.late.insert((0, 4));
    let adopted = network.run_until(&[0, 1, 2, 3, 4]);
    assert_eq!(adopted.cut, [(NodeId(0), NodeId(4))]);
}
