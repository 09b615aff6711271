//! All nodes of a topology before the rounds: where and when they begin.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::table::{self, saved};
use crate::{
    cluster::{
        begin::{rendezvous::Rendezvous, reports::Report},
        effect::{Effect, Facts},
        event::Event,
        members::keys::Named,
        message::{Beginning, Origin, Saved},
        part::Part,
        statements::{Batch, Links, Retained, Said, Statement, Statements, news},
    },
    drive::{Membership, RunError},
    run::Whole,
    units::NodeId,
};

/// A node before the rounds.
struct Node<'a> {
    part: Part<'a>,
    rendezvous: Rendezvous,
    statements: Statements,
    told: Retained,
    begins: Option<Beginning>,
    says: Vec<String>,
}

impl<'a> Node<'a> {
    fn new(whole: &'a Whole, node: usize, saved: Saved, attempt: u64, now: Instant) -> Node<'a> {
        Node::with(whole, (node, attempt), saved, now, (None, false))
    }

    /// One that waits no longer than the first limit. The second one says whether the run can
    /// continue without others.
    fn with(
        whole: &'a Whole,
        (node, attempt): (usize, u64),
        saved: Saved,
        now: Instant,
        limits: (Option<Duration>, bool),
    ) -> Node<'a> {
        let (id, nodes) = (NodeId::from(node), whole.design.topology.nodes());
        let part = Part::new(&whole.design, id, Membership::all(nodes)).unwrap();
        let rendezvous = Rendezvous::new(now, &part, &saved, limits);
        let mut statements = Statements::new(&part, Arc::new(Named(id)), attempt);
        statements.report(saved, Origin::default(), false);
        let (told, begins, says) = (Retained::default(), None, Vec::new());
        Node { part, rendezvous, statements, told, begins, says }
    }

    fn tick(&mut self, now: Instant) -> Result<(), RunError> {
        self.tick_with(now, &Facts::new(now))
    }

    fn tick_with(&mut self, now: Instant, facts: &Facts) -> Result<(), RunError> {
        let (part, mut out) = (&self.part, Vec::new());
        let begins = self.rendezvous.tick(now, (part, &mut self.statements), facts, &mut out);
        self.begins = begins?.map(|(at, _)| at);
        for effect in out {
            match effect {
                Effect::Tell(all) => self.told = all,
                Effect::Warn(text) => self.says.push(text),
                _ => {}
            }
        }
        Ok(())
    }
}

struct Network<'a> {
    whole: &'a Whole,
    nodes: Vec<Node<'a>>,
    /// Links that are up, and what each node has been told over them.
    links: BTreeSet<(usize, usize)>,
    told: Vec<((usize, usize), u64)>,
    attempts: u64,
    now: Instant,
}

impl<'a> Network<'a> {
    fn new(whole: &'a Whole, kept: &[&[u64]]) -> Network<'a> {
        let now = Instant::now();
        let kept = |node: usize| saved(kept.get(node).copied().unwrap_or_default());
        let nodes = 0..whole.design.topology.nodes();
        let nodes: Vec<_> =
            nodes.map(|node| Node::new(whole, node, kept(node), 50 + node as u64, now)).collect();
        let (links, told) = (BTreeSet::new(), Vec::new());
        Network { whole, nodes, links, told, attempts: 100, now }
    }

    fn all_links(&self) -> Vec<(usize, usize)> {
        let topology = &self.whole.design.topology;
        let of = |node: usize| {
            topology.neighbours(node.into()).iter().map(move |peer| (node, peer.index()))
        };
        (0..self.nodes.len()).flat_map(of).filter(|(a, b)| a < b).collect()
    }

    fn turn(&mut self, (a, b): (usize, usize), up: bool) {
        if up {
            self.links.insert((a, b))
        } else {
            self.links.remove(&(a, b))
        };
        self.told.retain(|(link, _)| *link != (a, b) && *link != (b, a));
        for (node, peer) in [(a, b), (b, a)] {
            let peer = NodeId::from(peer);
            let event = match up {
                true => Event::Up(peer),
                false => Event::Lost { peer, reason: "it broke".into() },
            };
            let Node { part, rendezvous, .. } = &mut self.nodes[node];
            rendezvous.event(part, (self.now, event), &mut Vec::new()).unwrap();
        }
    }

    /// A node ends and starts again: all its links are down, and it knows nothing. With `back` its
    /// clock was put back, and its attempt has a lower number than all before.
    fn restart(&mut self, node: usize, back: bool) {
        let own = self.links.iter().copied().filter(|(a, b)| *a == node || *b == node);
        own.collect::<Vec<_>>().into_iter().for_each(|link| self.turn(link, false));
        self.attempts += 1;
        let attempt = if back { 1000 - self.attempts } else { 1000 + self.attempts };
        self.nodes[node] = Node::new(self.whole, node, Saved::default(), attempt, self.now);
    }

    fn send(&mut self, (from, to): (usize, usize), batch: Batch) -> Result<(), String> {
        let heard = self.nodes[to].statements.hear(from.into(), batch);
        heard.map_err(|failure| failure.to_string())
    }

    /// Exchanges messages until none is new, or a node cannot begin.
    fn deliver_all(&mut self) -> Result<(), String> {
        for _ in 0..1000 {
            self.now += Duration::from_millis(1);
            let now = self.now;
            let ticked = self.nodes.iter_mut().try_for_each(|node| node.tick(now));
            ticked.map_err(|error| error.to_string())?;
            let mut quiet = true;
            for (a, b) in self.links.clone() {
                for link in [(a, b), (b, a)] {
                    let known = self.told.iter().position(|(of, _)| *of == link);
                    let known = known.unwrap_or_else(|| {
                        self.told.push((link, 0));
                        self.told.len() - 1
                    });
                    let all = self.nodes[link.0].told.clone();
                    while let Some(batch) = news(&all, &mut self.told[known].1) {
                        quiet = false;
                        self.send(link, batch)?;
                    }
                }
            }
            if quiet {
                return Ok(());
            }
        }
        panic!("the messages never end");
    }

    fn begins(&self) -> Vec<Option<&Beginning>> {
        self.nodes.iter().map(|node| node.begins.as_ref()).collect()
    }
}

fn whole(topology: &str) -> Whole {
    table::whole(&[&format!("topology.file={topology}"), "run.rounds=100"])
}

#[test]
fn every_node_knows_the_missing_links() {
    let whole = whole("path:5");
    let mut network = Network::new(&whole, &[]);
    for link in network.all_links().into_iter().filter(|link| *link != (3, 4)) {
        network.turn(link, true);
    }
    network.deliver_all().unwrap();
    for _ in 0..2 {
        network.now += Duration::from_secs(5);
        network.deliver_all().unwrap();
    }
    for (node, says) in network.nodes.iter().enumerate().take(3) {
        let text = "is linked, the run has not started: node 3 waits for 4";
        assert!(says.says.last().unwrap().ends_with(text), "node {node}: {:?}", says.says);
    }
    assert!(network.begins().iter().all(Option::is_none));
}

/// Where nodes of a ring of 4 continue, as members of the first membership, with checkpoints of
/// these rounds; or why a node does not.
fn agreed(kept: [&[u64]; 4]) -> Result<(u64, Option<Vec<u32>>), String> {
    let whole = whole("ring:4");
    let mut network = Network::new(&whole, &kept);
    network.all_links().into_iter().for_each(|link| network.turn(link, true));
    network.deliver_all()?;
    let all = network.begins();
    assert!(all.iter().all(|at| *at == all[0]), "{all:?}");
    let at = all[0].expect("all are linked");
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

/// A node that is linked with one neighbour only hears from that one what all have signed in an
/// earlier attempt: it does not begin there.
#[test]
fn reports_of_an_earlier_attempt_begin_nothing() {
    let whole = whole("ring:4");
    let mut network = Network::new(&whole, &[]);
    network.all_links().into_iter().for_each(|link| network.turn(link, true));
    network.deliver_all().unwrap();
    assert!(network.begins().iter().all(Option::is_some));
    let old = network.nodes[1].told.clone();
    (0..4).for_each(|node| network.restart(node, false));
    for link in [(0, 1), (0, 3)] {
        network.turn(link, true);
    }
    network.send((1, 0), news(&old, &mut 0).unwrap()).unwrap();
    network.deliver_all().unwrap();
    assert!(network.begins().iter().all(Option::is_none));
}

/// Node 2 says that it is linked with both others, and takes one link back at the last moment. The
/// end of that link names it. The other one, which knows nobody to name, waits for that.
#[test]
fn one_that_has_nobody_to_name_lets_others_decide() {
    let whole = whole("complete:3");
    let start = Instant::now();
    let at = |tenths: u64| start + Duration::from_millis(100 * tenths);
    let limits = (Some(Duration::from_secs(3)), true);
    let says = |node: u32, said: Said| {
        let node = NodeId(node);
        Statement::signed(&Named(node), (node, node), (0, 50 + u64::from(node.0)), said)
    };
    let links = |node: u32, number: u64, attempts: [Option<u64>; 2]| {
        says(node, Said::Links(Links { number, attempts: attempts.to_vec() }))
    };
    for (me, breaks) in [(0, false), (1, false), (1, true)] {
        let mut node = Node::with(&whole, (me, 50 + me as u64), saved(&[]), start, limits);
        let other = 1 - me as u32;
        for peer in [NodeId(other), NodeId(2)] {
            node.rendezvous.event(&node.part, (start, Event::Up(peer)), &mut Vec::new()).unwrap();
        }
        let hear = |node: &mut Node<'_>, from: u32, said: Statement| {
            node.statements.hear(NodeId(from), vec![said].into()).unwrap();
        };
        hear(&mut node, other, says(other, Said::Report(Report::default())));
        hear(&mut node, 2, says(2, Said::Report(Report::default())));
        hear(&mut node, 2, links(2, 1, [Some(50), Some(51)]));
        node.tick(at(1)).unwrap();
        (2..29).for_each(|tenths| node.tick(at(tenths)).unwrap());
        hear(&mut node, other, links(other, 1, [Some(50 + me as u64), Some(52)]));
        hear(&mut node, 2, links(2, 2, [None, Some(51)]));
        let mut facts = Facts::new(start);
        if breaks {
            // Node 0 was at its limit first, and has left.
            let lost = Event::Lost { peer: NodeId(0), reason: "it closed".into() };
            node.rendezvous.event(&node.part, (at(30), lost), &mut Vec::new()).unwrap();
            facts.missing.push((NodeId(0), "it closed".into()));
        }
        let mut ended = (29..=50).map(|tenths| (tenths, node.tick_with(at(tenths), &facts)));
        let Some((tenths, Err(RunError::Deadline { nodes, .. }))) =
            ended.find(|(_, ticked)| ticked.is_err())
        else {
            panic!("node {me} has no end")
        };
        let expected = match (me, breaks) {
            (0, _) => (30, vec![NodeId(2)]),
            (_, false) => (50, vec![]),
            (_, true) => (50, vec![NodeId(0)]),
        };
        assert_eq!((tenths, nodes), expected, "{me} {breaks}");
    }
}

proptest! {
    /// Links break and return in any order: the run begins exactly when all links are up.
    #[test]
    fn all_begin_when_all_are_linked(
        spec in prop::sample::select(vec![
            "ring:6", "path:4", "star:5", "complete:4", "torus:3x3", "path:1",
        ]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u8..5), 0..40),
    ) {
        let whole = whole(spec);
        let mut network = Network::new(&whole, &[]);
        let links = network.all_links();
        for (which, change) in changes {
            if links.is_empty() {
                break;
            }
            let link = links[which.index(links.len())];
            match change {
                0 | 1 => network.restart(link.0, change == 1),
                2 if network.links.contains(&link) => network.turn(link, false),
                // The last one stays down.
                _ if !network.links.contains(&link)
                    && network.links.len() + 1 < links.len() =>
                {
                    network.turn(link, true);
                }
                _ => {}
            }
            network.deliver_all().unwrap();
            let none_begins = network.begins().iter().all(Option::is_none);
            prop_assert!(none_begins, "{:?}", network.links);
        }
        for link in links {
            if !network.links.contains(&link) {
                network.turn(link, true);
            }
        }
        network.deliver_all().unwrap();
        let is_first = |at: &Beginning| at.rounds == 0 && !at.from_mean;
        prop_assert!(network.begins().into_iter().all(|at| at.is_some_and(is_first)));
    }
}
