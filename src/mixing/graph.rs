//! A simple undirected graph in compressed rows: no loops, no parallel links, neighbours in
//! ascending order.
//!
//! It implements petgraph's visitor traits, so that petgraph's algorithms run on it directly.

use petgraph::{
    algo::articulation_points::articulation_points,
    graphmap::UnGraphMap,
    visit::{GraphBase, IntoNeighbors, VisitMap, Visitable},
};

use super::{MAX_LINKS, MAX_NODES, TopologyError};
use crate::units::NodeId;

/// Neighbours of all nodes in one array, each row ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    offsets: Vec<usize>,
    neighbours: Vec<NodeId>,
    /// For each entry of `neighbours`, the index of its link in `links`.
    halves: Vec<u32>,
    links: Vec<(NodeId, NodeId)>,
}

impl Graph {
    /// The graph of these pairs. Pairs may come in any order and direction; parallel ones merge,
    /// loops are left out (a node's own weight is not a link).
    ///
    /// # Errors
    /// If there are 0 or more than [`MAX_NODES`] nodes, an end is not below `nodes`, or more than
    /// [`MAX_LINKS`] links remain.
    pub fn new(
        nodes: usize,
        pairs: impl IntoIterator<Item = (u32, u32)>,
    ) -> Result<Graph, TopologyError> {
        if nodes == 0 || nodes > MAX_NODES {
            let problem = format!("a topology has 1 to {MAX_NODES} nodes");
            return Err(TopologyError::Size { of: "nodes", found: Some(nodes), problem });
        }
        let mut links = Vec::new();
        for (a, b) in pairs {
            if let Some(end) = [a, b].into_iter().find(|&end| end as usize >= nodes) {
                return Err(TopologyError::Link {
                    line: None,
                    ends: None,
                    key: None,
                    value: Some(format!("{a} - {b}")),
                    problem: format!(
                        "there is no node {end}: the last of {nodes} is {}",
                        nodes - 1
                    ),
                });
            }
            if a != b {
                links.push(if a < b { (NodeId(a), NodeId(b)) } else { (NodeId(b), NodeId(a)) });
            }
            if links.len() > 2 * MAX_LINKS {
                merge(&mut links)?;
            }
        }
        merge(&mut links)?;
        Ok(Graph::compress(nodes, links))
    }

    /// Counting sort of both halves of every link; since `links` ascend, every row ascends.
    fn compress(nodes: usize, links: Vec<(NodeId, NodeId)>) -> Graph {
        let mut offsets = vec![0; nodes + 1];
        for (a, b) in &links {
            offsets[a.index() + 1] += 1;
            offsets[b.index() + 1] += 1;
        }
        for i in 0..nodes {
            offsets[i + 1] += offsets[i];
        }
        let mut neighbours = vec![NodeId(0); 2 * links.len()];
        let mut halves = vec![0; 2 * links.len()];
        let mut next = offsets.clone();
        // Lower neighbours first: all links (x, i) precede, in order of x, the links (i, y).
        for lower in [true, false] {
            for (link, &(a, b)) in (0u32..).zip(&links) {
                let (row, neighbour) = if lower { (b, a) } else { (a, b) };
                let at = &mut next[row.index()];
                neighbours[*at] = neighbour;
                halves[*at] = link;
                *at += 1;
            }
        }
        Graph { offsets, neighbours, halves, links }
    }

    /// The nodes without which the others are not all connected, ascending.
    pub fn cut_nodes(&self) -> Vec<NodeId> {
        let graph = UnGraphMap::<u32, ()>::from_edges(self.links.iter().map(|(a, b)| (a.0, b.0)));
        let mut found: Vec<NodeId> = articulation_points(&graph).into_iter().map(NodeId).collect();
        found.sort_unstable();
        found
    }

    /// The number of nodes, isolated ones included.
    pub fn nodes(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The links (a, b) with a < b, ascending.
    pub fn links(&self) -> &[(NodeId, NodeId)] {
        &self.links
    }

    /// The neighbours of a node, ascending, without itself.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn neighbours(&self, node: NodeId) -> &[NodeId] {
        &self.neighbours[self.row(node)]
    }

    /// For each neighbour of a node, in the order of [`Graph::neighbours`], the index of the link
    /// to it in [`Graph::links`].
    pub(super) fn halves(&self, node: NodeId) -> &[u32] {
        &self.halves[self.row(node)]
    }

    /// The range of a node's row in arrays of half links.
    pub(super) fn row(&self, node: NodeId) -> std::ops::Range<usize> {
        self.offsets[node.index()]..self.offsets[node.index() + 1]
    }

    /// The number of a node's neighbours.
    pub fn degree(&self, node: NodeId) -> usize {
        self.row(node).len()
    }

    /// All degrees, in node order.
    pub fn degrees(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.offsets.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// The index of the link between two nodes in [`Graph::links`].
    pub fn link_index(&self, a: NodeId, b: NodeId) -> Option<usize> {
        if a.index() >= self.nodes() {
            return None;
        }
        let at = self.neighbours(a).binary_search(&b).ok()?;
        Some(self.halves(a)[at] as usize)
    }

    /// Writes every node's distance in links from `start` to `distances` (`u32::MAX` if there is no
    /// path), and returns the nodes in the order in which they were reached.
    pub fn distances(&self, start: NodeId, distances: &mut Vec<u32>, order: &mut Vec<NodeId>) {
        distances.clear();
        distances.resize(self.nodes(), u32::MAX);
        order.clear();
        order.push(start);
        distances[start.index()] = 0;
        let mut head = 0;
        while head < order.len() {
            let node = order[head];
            head += 1;
            for &next in self.neighbours(node) {
                if distances[next.index()] == u32::MAX {
                    distances[next.index()] = distances[node.index()] + 1;
                    order.push(next);
                }
            }
        }
    }

    /// A node that no path joins to node 0, or `None` if the graph is connected.
    pub fn unreached(&self) -> Option<NodeId> {
        let (mut distances, mut order) = (Vec::new(), Vec::new());
        self.distances(NodeId(0), &mut distances, &mut order);
        distances.iter().position(|&d| d == u32::MAX).map(NodeId::from)
    }

    /// Whether the nodes of this connected graph form two halves such that every link joins both.
    pub fn bipartite(&self) -> bool {
        petgraph::algo::is_bipartite_undirected(self, NodeId(0))
    }

    /// The longest of all shortest paths of this connected graph, in links: exact, by iFUB
    /// (Crescenzi et al. 2013), which starts in the middle of a long path and searches only from
    /// nodes that are far enough out. Fast on sparse graphs with a periphery; on an expander it is
    /// one breadth-first search per node.
    pub fn diameter(&self) -> usize {
        let (mut distances, mut order) = (Vec::new(), Vec::new());
        let (mut longest, root) = self.double_sweep();
        self.distances(root, &mut distances, &mut order);
        let (levels, outward) = (distances.clone(), order.clone());
        for &node in outward.iter().rev() {
            // The distance of two nodes at this level or nearer is at most twice the level.
            if longest >= 2 * levels[node.index()] {
                break;
            }
            self.distances(node, &mut distances, &mut order);
            longest = longest.max(eccentricity(&distances, &order));
        }
        longest as usize
    }

    /// A lower bound of the diameter, from two breadth-first searches; exact on trees.
    pub fn diameter_at_least(&self) -> usize {
        self.double_sweep().0 as usize
    }

    /// The length of a long shortest path and the node in its middle.
    fn double_sweep(&self) -> (u32, NodeId) {
        let (mut distances, mut order) = (Vec::new(), Vec::new());
        self.distances(NodeId(0), &mut distances, &mut order);
        let far = order.last().copied().unwrap_or(NodeId(0));
        self.distances(far, &mut distances, &mut order);
        let length = eccentricity(&distances, &order);
        let mut middle = order.last().copied().unwrap_or(NodeId(0));
        while distances[middle.index()] > length / 2 {
            let nearer = distances[middle.index()] - 1;
            middle = *self
                .neighbours(middle)
                .iter()
                .find(|next| distances[next.index()] == nearer)
                .expect("breadth-first search reached every node but the first from a nearer one");
        }
        (length, middle)
    }
}

/// Sorts links and drops the parallel ones.
fn merge(links: &mut Vec<(NodeId, NodeId)>) -> Result<(), TopologyError> {
    links.sort_unstable();
    links.dedup();
    if links.len() > MAX_LINKS {
        return Err(TopologyError::too_many("links", MAX_LINKS));
    }
    Ok(())
}

fn eccentricity(distances: &[u32], order: &[NodeId]) -> u32 {
    order.last().map_or(0, |node| distances[node.index()])
}

/// The nodes that a petgraph algorithm has seen.
#[derive(Clone, Debug)]
pub struct Visited(Vec<bool>);

impl VisitMap<NodeId> for Visited {
    fn visit(&mut self, node: NodeId) -> bool {
        !std::mem::replace(&mut self.0[node.index()], true)
    }

    fn is_visited(&self, node: &NodeId) -> bool {
        self.0[node.index()]
    }

    fn unvisit(&mut self, node: NodeId) -> bool {
        std::mem::replace(&mut self.0[node.index()], false)
    }
}

impl GraphBase for Graph {
    type EdgeId = usize;
    type NodeId = NodeId;
}

impl<'a> IntoNeighbors for &'a Graph {
    type Neighbors = std::iter::Copied<std::slice::Iter<'a, NodeId>>;

    fn neighbors(self, node: NodeId) -> Self::Neighbors {
        self.neighbours(node).iter().copied()
    }
}

impl Visitable for Graph {
    type Map = Visited;

    fn visit_map(&self) -> Visited {
        Visited(vec![false; self.nodes()])
    }

    fn reset_map(&self, map: &mut Visited) {
        map.0.clear();
        map.0.resize(self.nodes(), false);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All distances by Floyd and Warshall, as an independent reference.
    fn all_distances(graph: &Graph) -> Vec<Vec<usize>> {
        let n = graph.nodes();
        let mut d = vec![vec![usize::MAX / 4; n]; n];
        for (i, row) in d.iter_mut().enumerate() {
            row[i] = 0;
        }
        for (a, b) in graph.links() {
            d[a.index()][b.index()] = 1;
            d[b.index()][a.index()] = 1;
        }
        for k in 0..n {
            for i in 0..n {
                for j in 0..n {
                    d[i][j] = d[i][j].min(d[i][k] + d[k][j]);
                }
            }
        }
        d
    }

    #[test]
    fn cut_nodes_are_those_without_which_others_are_apart() {
        for (nodes, pairs) in [
            (5, vec![(0, 1), (0, 2), (0, 3), (0, 4)]),
            (5, vec![(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]),
            (6, vec![(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 5), (5, 3)]),
            (1, vec![]),
        ] {
            let graph = Graph::new(nodes, pairs.iter().copied()).unwrap();
            // Without the node, from the first other one.
            let is_cut = |node: &NodeId| {
                let first = (0..nodes as u32).find(|other| *other != node.0);
                let mut open: Vec<u32> = first.into_iter().collect();
                let mut seen = std::collections::BTreeSet::from([node.0]);
                while let Some(one) = open.pop() {
                    if seen.insert(one) {
                        open.extend(graph.neighbours(NodeId(one)).iter().map(|other| other.0));
                    }
                }
                seen.len() < nodes
            };
            let expected: Vec<NodeId> = (0..nodes as u32).map(NodeId).filter(is_cut).collect();
            assert_eq!(graph.cut_nodes(), expected, "{pairs:?}");
        }
    }

    #[test]
    fn parallel_links_merge_and_loops_vanish() {
        let graph = Graph::new(3, [(1, 0), (0, 1), (1, 1), (2, 1)]).unwrap();
        assert_eq!(graph.links(), [(NodeId(0), NodeId(1)), (NodeId(1), NodeId(2))]);
        assert_eq!(graph.neighbours(NodeId(1)), [NodeId(0), NodeId(2)]);
    }

    #[test]
    fn impossible_sizes_and_ends_are_refused() {
        for nodes in [0, MAX_NODES + 1] {
            let error = Graph::new(nodes, []).unwrap_err();
            let TopologyError::Size { of: "nodes", found, .. } = error else { panic!("{error}") };
            assert_eq!(found, Some(nodes));
        }
        assert!(Graph::new(2, [(0, 2)]).unwrap_err().to_string().contains("no node 2"));
    }

    proptest! {
        #[test]
        fn rows_ascend_and_agree_with_the_links(
            n in 1usize..12,
            pairs in prop::collection::vec((0u32..12, 0u32..12), 0..40),
        ) {
            let pairs: Vec<_> =
                pairs.into_iter().map(|(a, b)| (a % n as u32, b % n as u32)).collect();
            let graph = Graph::new(n, pairs.clone()).unwrap();
            for i in 0..n {
                let row = graph.neighbours(NodeId::from(i));
                prop_assert!(row.windows(2).all(|pair| pair[0] < pair[1]));
                for j in 0..n {
                    let joins = |&(a, b): &(u32, u32)| {
                        let ends = (a as usize, b as usize);
                        ends == (i, j) || ends == (j, i)
                    };
                    let linked = i != j && pairs.iter().any(joins);
                    prop_assert_eq!(linked, row.contains(&NodeId::from(j)));
                    let index = graph.link_index(NodeId::from(i), NodeId::from(j));
                    prop_assert_eq!(linked, index.is_some());
                    if let Some(index) = index {
                        let ends = (NodeId::from(i.min(j)), NodeId::from(i.max(j)));
                        prop_assert_eq!(graph.links()[index], ends);
                    }
                }
            }
        }

        #[test]
        fn distances_and_diameter_agree_with_floyd_warshall(
            n in 1usize..14,
            pairs in prop::collection::vec((0u32..14, 0u32..14), 0..30),
        ) {
            let chain = (1..n as u32).map(|i| (i / 2, i)); // connected by a binary tree
            let more = pairs.into_iter().map(|(a, b)| (a % n as u32, b % n as u32));
            let graph = Graph::new(n, chain.chain(more)).unwrap();
            let reference = all_distances(&graph);
            let (mut distances, mut order) = (Vec::new(), Vec::new());
            for (i, row) in reference.iter().enumerate() {
                graph.distances(NodeId::from(i), &mut distances, &mut order);
                prop_assert!(distances.iter().zip(row).all(|(&a, &b)| a as usize == b));
            }
            let diameter = reference.iter().flatten().copied().max().unwrap();
            prop_assert_eq!(graph.diameter(), diameter);
            prop_assert!(graph.diameter_at_least() <= diameter);
            prop_assert_eq!(graph.unreached(), None);
        }
    }
}
