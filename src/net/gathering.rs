//! When a run begins: once every node is linked with all its neighbours.
//!
//! Nodes are started one after the other, and some are started again: until all are there, a link
//! that breaks costs nothing. So no node begins before the root of the topology's spanning tree
//! knows that all are linked.
//!
//! * A node that is linked with all its neighbours, and whose children in the tree are ready, says
//!   *ready* to its parent; the root says *begin*.
//! * A node that is not, or no longer, says who is missing, to its parent and to its children, so
//!   that every node can tell its user.
//! * Upon *begin* a node passes it on to its children, and begins when its own links are up.

use std::collections::{BTreeMap, BTreeSet};

use super::wire::Word;
use crate::{
    mixing::{SpanningTree, Topology},
    units::NodeId,
};

/// How far a child is.
#[derive(Clone, Debug, PartialEq)]
enum Child {
    Unheard,
    Ready,
    Waiting(String),
}

/// One node's view of the start.
#[derive(Debug)]
pub(super) struct Gathering {
    parent: Option<NodeId>,
    children: BTreeMap<NodeId, Child>,
    /// Neighbours whose link is down.
    missing: BTreeSet<NodeId>,
    /// What the parent says of the rest of the network.
    elsewhere: Option<String>,
    begun: bool,
    /// The last word to each node of the tree.
    said: BTreeMap<NodeId, Word>,
}

impl Gathering {
    /// No link is up yet.
    pub fn new(topology: &Topology, node: NodeId) -> Gathering {
        Gathering::of(&topology.spanning_tree(), topology.neighbours(node), node)
    }

    fn of(tree: &SpanningTree, neighbours: &[NodeId], node: NodeId) -> Gathering {
        Gathering {
            parent: tree.parent(node),
            children: tree.children(node).iter().map(|&child| (child, Child::Unheard)).collect(),
            missing: neighbours.iter().copied().collect(),
            elsewhere: None,
            begun: false,
            said: BTreeMap::new(),
        }
    }

    /// Upon a link that comes up.
    pub fn up(&mut self, peer: NodeId) {
        self.missing.remove(&peer);
        self.said.remove(&peer);
    }

    /// Upon a link that breaks: what its other end said does not count any more.
    pub fn down(&mut self, peer: NodeId) {
        self.missing.insert(peer);
        if let Some(child) = self.children.get_mut(&peer) {
            *child = Child::Unheard;
        }
        if self.parent == Some(peer) {
            // A parent that was started again gathers anew.
            (self.elsewhere, self.begun) = (None, false);
        }
    }

    /// Upon a word of a neighbour; of one that is neither parent nor child it means nothing.
    pub fn word(&mut self, from: NodeId, word: Word) {
        if let Some(child) = self.children.get_mut(&from) {
            match word {
                Word::Ready => *child = Child::Ready,
                Word::Waiting(text) => *child = Child::Waiting(text),
                Word::Begin => {}
            }
        } else if self.parent == Some(from) {
            match word {
                Word::Begin => self.begun = true,
                Word::Waiting(text) => self.elsewhere = Some(text),
                Word::Ready => {}
            }
        }
    }

    /// Neighbours whose link is down.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Whether this node begins now.
    pub fn begins(&self) -> bool {
        self.begun && self.missing.is_empty()
    }

    /// Why the run has not begun, as far as it is known here. `own` says who is missing here, if
    /// anyone is.
    pub fn reason(&self, own: Option<&str>) -> String {
        let below = self.children.values().find_map(|child| match child {
            Child::Waiting(text) => Some(text.as_str()),
            Child::Unheard | Child::Ready => None,
        });
        let known = own.or(below).or(self.elsewhere.as_deref());
        known.unwrap_or("it is not known yet which links are missing elsewhere").to_string()
    }

    /// What is to be said now that was not said before; `again` repeats all of it.
    pub fn say(&mut self, own: Option<&str>, again: bool) -> Vec<(NodeId, Word)> {
        let ready =
            self.missing.is_empty() && self.children.values().all(|child| *child == Child::Ready);
        if ready && self.parent.is_none() {
            self.begun = true;
        }
        let mut words = Vec::new();
        if let Some(parent) = self.parent.filter(|_| !self.begun) {
            // What the parent has told is not told back.
            let above = self.elsewhere.take();
            words.push((parent, if ready { Word::Ready } else { Word::Waiting(self.reason(own)) }));
            self.elsewhere = above;
        }
        for &child in self.children.keys() {
            words.push((
                child,
                if self.begun { Word::Begin } else { Word::Waiting(self.reason(own)) },
            ));
        }
        words.retain(|(to, word)| {
            let new = self.said.get(to) != Some(word);
            !self.missing.contains(to) && (new || again)
        });
        self.said.extend(words.iter().cloned());
        words
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Network {
        topology: Topology,
        nodes: Vec<Gathering>,
        /// Links that are up, the lower number first.
        links: BTreeSet<(usize, usize)>,
    }

    impl Network {
        fn new(spec: &str) -> Network {
            let topology = Topology::parse(spec, 0).unwrap();
            let nodes =
                (0..topology.nodes()).map(|node| Gathering::new(&topology, node.into())).collect();
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

        /// A node that ends and is started again: all its links are down, and it knows nothing.
        fn restart(&mut self, node: usize) {
            let own: Vec<_> =
                self.links.iter().copied().filter(|(a, b)| *a == node || *b == node).collect();
            own.into_iter().for_each(|link| self.turn(link, false));
            self.nodes[node] = Gathering::new(&self.topology, node.into());
        }

        /// Until nothing more is said.
        fn settle(&mut self) {
            for _ in 0..1000 {
                let mut quiet = true;
                for node in 0..self.nodes.len() {
                    let own =
                        (self.nodes[node].missing() > 0).then(|| format!("node {node} waits"));
                    for (to, word) in self.nodes[node].say(own.as_deref(), false) {
                        quiet = false;
                        self.nodes[to.index()].word(node.into(), word);
                    }
                }
                if quiet {
                    return;
                }
            }
            panic!("they never stop talking");
        }
    }

    #[test]
    fn everybody_knows_who_is_missing() {
        let mut network = Network::new("path:5");
        network
            .all_links()
            .into_iter()
            .filter(|link| *link != (3, 4))
            .for_each(|link| network.turn(link, true));
        network.settle();
        for node in 0..3 {
            assert_eq!(network.nodes[node].reason(None), "node 3 waits", "node {node}");
        }
        assert!(network.nodes.iter().all(|node| !node.begins()));
    }

    proptest! {
        /// Whatever breaks and comes back before: the run begins when all links are up, and not
        /// before.
        #[test]
        fn all_begin_when_all_are_linked(
            spec in prop::sample::select(vec!["ring:6", "path:4", "star:5", "complete:4", "torus:3x3", "path:1"]),
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
                    _ if !network.links.contains(&link) && network.links.len() + 1 < links.len() => network.turn(link, true),
                    _ => {}
                }
                network.settle();
                prop_assert!(network.nodes.iter().all(|node| !node.begins()), "{:?}", network.links);
            }
            for link in links {
                if !network.links.contains(&link) {
                    network.turn(link, true);
                }
            }
            network.settle();
            prop_assert!(network.nodes.iter().all(Gathering::begins));
        }
    }
}
