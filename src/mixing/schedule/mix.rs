//! The matrix W of one round, in compressed rows and columns.

use crate::{mixing::matrix::ROW_TOLERANCE, units::NodeId};

/// A doubly stochastic matrix, symmetric or not: `w_ij > 0` if i receives from j.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    own: Vec<f64>,
    /// The start of each node's senders in `from` and `weights`.
    senders: Vec<u32>,
    from: Vec<NodeId>,
    weights: Vec<f64>,
    /// The start of each node's receivers in `to`.
    receivers: Vec<u32>,
    to: Vec<NodeId>,
}

/// One node's part of one round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn<'a> {
    /// w_ii, its weight for its own model.
    pub own: f64,
    /// The nodes from which it receives, ascending.
    pub from: &'a [NodeId],
    /// w_ij for each of them.
    pub weights: &'a [f64],
    /// The nodes to which it sends, ascending.
    pub to: &'a [NodeId],
}

impl Mix {
    /// W from its entries `(i, j, w_ij)` off the diagonal, in any order; `w_ii` is the rest to 1.
    ///
    /// # Panics
    /// If an entry is on the diagonal, repeated, not finite or 0, or a column does not sum to 1:
    /// then the recipe is wrong.
    pub fn new(nodes: usize, mut entries: Vec<(NodeId, NodeId, f64)>) -> Mix {
        entries.sort_unstable_by_key(|&(i, j, _)| (i, j));
        assert!(
            entries.windows(2).all(|pair| (pair[0].0, pair[0].1) != (pair[1].0, pair[1].1)),
            "one weight a link"
        );
        assert!(
            entries.iter().all(|&(i, j, w)| i != j && w.is_finite() && w != 0.0),
            "weights of other nodes"
        );
        let mut own = vec![0.0; nodes];
        let mut columns = vec![0.0; nodes];
        for &(i, j, w) in &entries {
            own[i.index()] += w;
            columns[j.index()] += w;
        }
        for (own, column) in own.iter_mut().zip(&columns) {
            // As for the matrix of a topology: a rest within rounding counts as 0.
            let rest = 1.0 - *own;
            *own = if rest.abs() <= ROW_TOLERANCE { 0.0 } else { rest };
            assert!(
                (*own + column - 1.0).abs() <= ROW_TOLERANCE,
                "a column sums to {}, not to 1",
                *own + column
            );
        }
        let senders = offsets(nodes, entries.iter().map(|entry| entry.0));
        let from = entries.iter().map(|entry| entry.1).collect();
        let weights = entries.iter().map(|entry| entry.2).collect();
        entries.sort_unstable_by_key(|&(i, j, _)| (j, i));
        let receivers = offsets(nodes, entries.iter().map(|entry| entry.1));
        let to = entries.iter().map(|entry| entry.0).collect();
        Mix { own, senders, from, weights, receivers, to }
    }

    /// Pairs that each move towards the other by the weight.
    ///
    /// # Panics
    /// As [`Mix::new`].
    pub fn pairs(nodes: usize, pairs: &[(u32, u32, f64)]) -> Mix {
        let both =
            |&(a, b, w): &(u32, u32, f64)| [(NodeId(a), NodeId(b), w), (NodeId(b), NodeId(a), w)];
        Mix::new(nodes, pairs.iter().flat_map(both).collect())
    }

    /// One node's part of the round.
    pub fn turn(&self, node: NodeId) -> Turn<'_> {
        let (senders, receivers) = (range(&self.senders, node), range(&self.receivers, node));
        Turn {
            own: self.own[node.index()],
            from: &self.from[senders.clone()],
            weights: &self.weights[senders],
            to: &self.to[receivers],
        }
    }

    /// The number of nodes: the matrix is nodes x nodes.
    pub fn nodes(&self) -> usize {
        self.own.len()
    }

    /// `w_ij`; 0 if i does not receive from j.
    pub fn weight(&self, i: NodeId, j: NodeId) -> f64 {
        let turn = self.turn(i);
        if i == j {
            turn.own
        } else {
            turn.from.binary_search(&j).map_or(0.0, |at| turn.weights[at])
        }
    }

    /// All (i, j) with i receiving from j.
    pub fn arcs(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        let nodes = (0..self.nodes()).map(NodeId::from);
        nodes.flat_map(|i| self.turn(i).from.iter().map(move |&j| (i, j)))
    }

    /// W in full, row by row.
    pub fn dense(&self) -> Vec<Vec<f64>> {
        let mut rows = vec![vec![0.0; self.nodes()]; self.nodes()];
        for (i, row) in rows.iter_mut().enumerate() {
            let turn = self.turn(NodeId::from(i));
            row[i] = turn.own;
            for (j, &w) in turn.from.iter().zip(turn.weights) {
                row[j.index()] = w;
            }
        }
        rows
    }

    /// `y = W x`, or `W' x`.
    pub(super) fn apply(&self, transposed: bool, x: &[f64], y: &mut [f64]) {
        for ((y, x), own) in y.iter_mut().zip(x).zip(&self.own) {
            *y = own * x;
        }
        for i in 0..self.nodes() {
            let turn = self.turn(NodeId::from(i));
            for (j, w) in turn.from.iter().zip(turn.weights) {
                let (to, from) = if transposed { (j.index(), i) } else { (i, j.index()) };
                y[to] += w * x[from];
            }
        }
    }
}

/// The starts of the nodes' parts in a list that is sorted by node.
fn offsets(nodes: usize, sorted: impl Iterator<Item = NodeId>) -> Vec<u32> {
    let mut offsets = vec![0; nodes + 1];
    for node in sorted {
        offsets[node.index() + 1] += 1;
    }
    for i in 0..nodes {
        offsets[i + 1] += offsets[i];
    }
    offsets
}

fn range(offsets: &[u32], node: NodeId) -> std::ops::Range<usize> {
    offsets[node.index()] as usize..offsets[node.index() + 1] as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(node: u32) -> NodeId {
        NodeId(node)
    }

    #[test]
    fn rows_and_columns_of_a_directed_round() {
        let mix = Mix::new(3, vec![(id(1), id(0), 0.5), (id(2), id(1), 0.5), (id(0), id(2), 0.5)]);
        assert_eq!(
            mix.turn(id(1)),
            Turn { own: 0.5, from: &[id(0)], weights: &[0.5], to: &[id(2)] }
        );
        assert_eq!(mix.dense(), [[0.5, 0.0, 0.5], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]);
        let (mut y, x) = ([0.0; 3], [1.0, 2.0, 4.0]);
        mix.apply(false, &x, &mut y);
        assert_eq!(y, [2.5, 1.5, 3.0]);
        mix.apply(true, &x, &mut y);
        assert_eq!(y, [1.5, 3.0, 2.5]);
    }

    #[test]
    #[should_panic(expected = "a column sums to")]
    fn a_matrix_that_is_only_row_stochastic_is_refused() {
        Mix::new(3, vec![(id(0), id(1), 0.5), (id(2), id(1), 0.5)]);
    }

    #[test]
    #[should_panic(expected = "one weight a link")]
    fn a_link_has_one_weight() {
        Mix::pairs(3, &[(0, 1, 0.25), (1, 0, 0.25)]);
    }
}
