//! A spanning tree of the topology, for exact sums, metrics and digests.

use crate::units::NodeId;

use super::Graph;

/// The breadth-first tree from node 0, neighbours in ascending order: every node computes the same
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanningTree {
    parents: Vec<Option<NodeId>>,
    depths: Vec<u32>,
    offsets: Vec<usize>,
    children: Vec<NodeId>,
    /// The number of nodes in the subtree of each, itself included.
    below: Vec<u32>,
    /// A numbering in which every subtree is a range, with its root first.
    places: Vec<u32>,
}

impl SpanningTree {
    /// The tree of a connected graph. Nodes without a path to node 0 have neither parent nor
    /// children.
    pub fn of(graph: &Graph) -> SpanningTree {
        let n = graph.nodes();
        let (mut depths, mut order) = (Vec::new(), Vec::new());
        graph.distances(NodeId(0), &mut depths, &mut order);
        let mut parents = vec![None; n];
        let mut seen = vec![false; n];
        seen[0] = true;
        let mut offsets = vec![0; n + 1];
        for &node in &order {
            for &next in graph.neighbours(node) {
                if !std::mem::replace(&mut seen[next.index()], true) {
                    parents[next.index()] = Some(node);
                    offsets[node.index() + 1] += 1;
                }
            }
        }
        for i in 0..n {
            offsets[i + 1] += offsets[i];
        }
        let mut children = vec![NodeId(0); offsets[n]];
        let mut next = offsets.clone();
        for (i, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                children[next[parent.index()]] = NodeId::from(i);
                next[parent.index()] += 1;
            }
        }
        let mut below = vec![1; n];
        for &node in order.iter().rev() {
            if let Some(parent) = parents[node.index()] {
                below[parent.index()] += below[node.index()];
            }
        }
        let mut places = vec![0; n];
        for &node in &order {
            let mut place = places[node.index()] + 1;
            for child in &children[offsets[node.index()]..offsets[node.index() + 1]] {
                places[child.index()] = place;
                place += below[child.index()];
            }
        }
        SpanningTree { parents, depths, offsets, children, below, places }
    }

    /// The node one step nearer to node 0; `None` for node 0 itself.
    pub fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.parents[node.index()]
    }

    /// The nodes whose parent this is, ascending.
    pub fn children(&self, node: NodeId) -> &[NodeId] {
        &self.children[self.offsets[node.index()]..self.offsets[node.index() + 1]]
    }

    /// The number of links between a node and node 0.
    pub fn depth(&self, node: NodeId) -> usize {
        self.depths[node.index()] as usize
    }

    /// The number of nodes in a node's subtree, itself included.
    pub fn below(&self, node: NodeId) -> usize {
        self.below[node.index()] as usize
    }

    /// Whether a node is in the subtree of another, which may be itself.
    pub fn is_below(&self, node: NodeId, ancestor: NodeId) -> bool {
        let (node_at, first) = (self.places[node.index()], self.places[ancestor.index()]);
        (first..first + self.below[ancestor.index()]).contains(&node_at)
    }

    /// The depth of the deepest node.
    pub fn height(&self) -> usize {
        self.depths
            .iter()
            .filter(|&&depth| depth != u32::MAX)
            .max()
            .map_or(0, |&depth| depth as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_of_six() {
        let graph = Graph::new(6, (0..6).map(|i| (i, (i + 1) % 6))).unwrap();
        let tree = SpanningTree::of(&graph);
        let parents: Vec<_> = (0..6).map(|i| tree.parent(NodeId(i)).map(|p| p.0)).collect();
        assert_eq!(parents, [None, Some(0), Some(1), Some(2), Some(5), Some(0)]);
        assert_eq!(tree.children(NodeId(0)), [NodeId(1), NodeId(5)]);
        assert_eq!((tree.depth(NodeId(3)), tree.height()), (3, 3));
    }

    #[test]
    fn every_node_but_the_root_is_a_child_one_deeper() {
        let graph =
            Graph::new(20, (0..20).flat_map(|i| [(i, (i * 7 + 1) % 20), (i, (i + 1) % 20)]))
                .unwrap();
        let tree = SpanningTree::of(&graph);
        for i in 1..20 {
            let parent = tree.parent(NodeId(i)).unwrap();
            assert!(tree.children(parent).contains(&NodeId(i)));
            assert_eq!(tree.depth(NodeId(i)), tree.depth(parent) + 1);
            assert!(graph.link_index(parent, NodeId(i)).is_some());
        }
        assert_eq!((0..20).map(|i| tree.children(NodeId(i)).len()).sum::<usize>(), 19);
        assert_eq!(tree.below(NodeId(0)), 20);
        for (node, ancestor) in (0..20).flat_map(|a| (0..20).map(move |b| (NodeId(a), NodeId(b)))) {
            let mut upwards = std::iter::successors(Some(node), |&node| tree.parent(node));
            assert_eq!(tree.is_below(node, ancestor), upwards.any(|node| node == ancestor));
        }
        for ancestor in (0..20).map(NodeId) {
            let below = (0..20).filter(|&node| tree.is_below(NodeId(node), ancestor)).count();
            assert_eq!(tree.below(ancestor), below);
        }
    }
}
