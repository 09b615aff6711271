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
        begin::rendezvous::Rendezvous,
        effect::{Effect, Facts},
        event::Event,
        members::keys::Named,
        message::{Beginning, Origin, Saved},
        part::Part,
        statements::{Batch, Retained, Statements, news},
    },
    drive::Membership,
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
        let (id, nodes) = (NodeId::from(node), whole.design.topology.nodes());
        let part = Part::new(&whole.design, id, Membership::all(nodes)).unwrap();
        let rendezvous = Rendezvous::new(now, &part, &saved, (None, false));
        let mut statements = Statements::new(&part, Arc::new(Named(id)), attempt);
        statements.report(saved, Origin::default(), false);
        let (told, begins, says) = (Retained::default(), None, Vec::new());
        Node { part, rendezvous, statements, told, begins, says }
    }

    fn tick(&mut self, now: Instant) -> Result<(), String> {
        let mut out = Vec::new();
        let (part, facts) = (&self.part, Facts::new(now));
        let begins = self.rendezvous.tick(now, (part, &mut self.statements), &facts, &mut out);
        self.begins = begins.map_err(|error| error.to_string())?.map(|(at, _)| at);
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
            rendezvous.event(part, event, &mut Vec::new()).unwrap();
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
            self.nodes.iter_mut().try_for_each(|node| node.tick(now))?;
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
