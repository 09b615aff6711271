//! The mixing matrix W in compressed rows, and its conditions.

use crate::units::NodeId;

use super::{Graph, Spectrum};

/// The tolerance of row sums; a node's own weight below it counts as zero.
pub(super) const ROW_TOLERANCE: f64 = 1e-12;

/// A symmetric doubly stochastic matrix on a connected graph, with `rho < 1`.
#[derive(Clone, Debug, PartialEq)]
pub struct MixingMatrix {
    graph: Graph,
    own: Vec<f64>,
    /// One per half link, in the order of the graph's rows.
    weights: Vec<f64>,
    /// The weight of all links, if they have the same: then W = I - a L.
    constant: Option<f64>,
}

/// Why a matrix does not mix.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "a variant's text explains its fields")]
#[non_exhaustive]
pub enum MatrixError {
    /// The number of weights is not the number of links.
    #[error("there are {weights} weights for {links} links")]
    Count { weights: usize, links: usize },
    /// The weight of the link between two nodes is not usable.
    #[error(
        "the link {a} - {b} has the weight {weight}: a weight is a finite number above 0 (below 0 \
         only with allow_negative = true)"
    )]
    Weight { a: NodeId, b: NodeId, weight: f64 },
    /// The weights of a node's links exceed 1 together; `own` is 1 minus them.
    #[error(
        "node {node} would keep the weight {own}: its links weigh more than 1 together (accepted \
         only with allow_negative = true)"
    )]
    Own { node: NodeId, own: f64 },
    /// Two nodes can never agree: node 0, and one of another part.
    #[error("no path joins nodes {a} and {b}: rho = 1, and they would never agree")]
    Disconnected { a: NodeId, b: NodeId },
    /// Disagreement does not shrink: `rho` is the largest modulus of the eigenvalues beside the
    /// first, and `eigenvalue` has it.
    #[error(
        "rho = {rho}: disagreement never shrinks, because the matrix has the eigenvalue \
         {eigenvalue} beside the 1 that it must have; use the weights metropolis or lazy-metropolis"
    )]
    NoGap { rho: f64, eigenvalue: f64 },
}

impl MixingMatrix {
    /// W from one weight per link, in the order of [`Graph::links`]: symmetric because a link has
    /// one weight, stochastic because `w_ii = 1 - sum_j w_ij`.
    ///
    /// `rho < 1` needs no spectrum: a nonnegative W on a connected graph has the eigenvalue 1 once,
    /// and -1 only if the graph is bipartite and every `w_ii` is 0 (Perron and Frobenius). With
    /// negative entries the spectrum is computed.
    ///
    /// # Errors
    /// See [`MatrixError`].
    pub fn new(
        graph: Graph,
        link_weights: &[f64],
        allow_negative: bool,
    ) -> Result<MixingMatrix, MatrixError> {
        let links = graph.links();
        if link_weights.len() != links.len() {
            return Err(MatrixError::Count { weights: link_weights.len(), links: links.len() });
        }
        if let Some((&(a, b), &weight)) = links
            .iter()
            .zip(link_weights)
            .find(|&(_, &w)| !w.is_finite() || w == 0.0 || (w < 0.0 && !allow_negative))
        {
            return Err(MatrixError::Weight { a, b, weight });
        }
        if let Some(b) = graph.unreached() {
            return Err(MatrixError::Disconnected { a: NodeId(0), b });
        }
        let matrix = MixingMatrix::assemble(graph, link_weights);
        let negative = matrix.own.iter().position(|&own| own < 0.0);
        match negative {
            Some(node) if !allow_negative => {
                return Err(MatrixError::Own { node: NodeId::from(node), own: matrix.own[node] });
            }
            _ => matrix.check_gap(negative.is_some() || link_weights.iter().any(|&w| w < 0.0))?,
        }
        Ok(matrix)
    }

    fn assemble(graph: Graph, link_weights: &[f64]) -> MixingMatrix {
        let nodes = graph.nodes();
        let mut own = Vec::with_capacity(nodes);
        let mut weights = Vec::with_capacity(2 * link_weights.len());
        for i in 0..nodes {
            let start = weights.len();
            weights.extend(
                graph.halves(NodeId::from(i)).iter().map(|&link| link_weights[link as usize]),
            );
            let rest = 1.0 - weights[start..].iter().sum::<f64>();
            own.push(if rest.abs() <= ROW_TOLERANCE { 0.0 } else { rest });
        }
        let constant =
            link_weights.first().copied().filter(|first| link_weights.iter().all(|w| w == first));
        MixingMatrix { graph, own, weights, constant }
    }

    fn check_gap(&self, negative: bool) -> Result<(), MatrixError> {
        if self.nodes() == 1 {
            return Ok(());
        }
        if negative {
            let spectrum = Spectrum::of(self, None);
            // Weights that are too large to compute with give a gap that is not a number.
            if spectrum.gap.is_nan() || spectrum.gap <= ROW_TOLERANCE {
                let below = -spectrum.lambda_n > spectrum.lambda_2;
                let eigenvalue = if below { spectrum.lambda_n } else { spectrum.lambda_2 };
                return Err(MatrixError::NoGap { rho: spectrum.rho, eigenvalue });
            }
        } else if self.own.iter().all(|&own| own == 0.0) && self.graph.bipartite() {
            return Err(MatrixError::NoGap { rho: 1.0, eigenvalue: -1.0 });
        }
        Ok(())
    }

    /// The number of nodes: the matrix is nodes x nodes.
    pub fn nodes(&self) -> usize {
        self.own.len()
    }

    /// The graph of the off-diagonal entries of W.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// `w_ij`; 0 if there is no link.
    pub fn weight(&self, i: NodeId, j: NodeId) -> f64 {
        if i == j {
            return self.self_weight(i);
        }
        self.graph.neighbours(i).binary_search(&j).map_or(0.0, |at| self.neighbour_weights(i)[at])
    }

    /// w_ii, the weight of node i for its own model.
    pub fn self_weight(&self, i: NodeId) -> f64 {
        self.own[i.index()]
    }

    /// `w_ij` for each neighbour j of i, in the order of [`Graph::neighbours`].
    pub fn neighbour_weights(&self, i: NodeId) -> &[f64] {
        &self.weights[self.graph.row(i)]
    }

    /// The weight a of all links, if they have the same; then W = I - a L with L the graph's
    /// Laplacian.
    pub fn constant(&self) -> Option<f64> {
        self.constant
    }

    /// W in full, row by row.
    pub fn dense(&self) -> Vec<Vec<f64>> {
        let mut rows = vec![vec![0.0; self.nodes()]; self.nodes()];
        for (i, row) in rows.iter_mut().enumerate() {
            let node = NodeId::from(i);
            row[i] = self.own[i];
            for (j, &w) in self.graph.neighbours(node).iter().zip(self.neighbour_weights(node)) {
                row[j.index()] = w;
            }
        }
        rows
    }

    /// `y = W x`, each row summed in ascending order of neighbours after the node's own term.
    ///
    /// # Panics
    /// If the length of `x` or `y` is not the number of nodes.
    pub fn apply(&self, x: &[f64], y: &mut [f64]) {
        assert_eq!((x.len(), y.len()), (self.nodes(), self.nodes()), "one number per node");
        for (i, out) in y.iter_mut().enumerate() {
            let row = self.graph.row(NodeId(i as u32));
            let mut sum = self.own[i] * x[i];
            for (j, w) in self.graph.neighbours(NodeId(i as u32)).iter().zip(&self.weights[row]) {
                sum += w * x[j.index()];
            }
            *out = sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mixing::Weights;

    fn ring(n: u32) -> Graph {
        Graph::new(n as usize, (0..n).map(|i| (i, (i + 1) % n))).unwrap()
    }

    #[test]
    fn matrices_that_cannot_mix_are_refused() {
        let two_parts = Graph::new(4, [(0, 1), (2, 3)]).unwrap();
        assert_eq!(
            MixingMatrix::new(two_parts, &[0.25; 2], false),
            Err(MatrixError::Disconnected { a: NodeId(0), b: NodeId(2) })
        );
        let never = Err(MatrixError::NoGap { rho: 1.0, eigenvalue: -1.0 });
        assert_eq!(MixingMatrix::new(ring(8), &[0.5; 8], false), never);
        assert!(
            MixingMatrix::new(ring(7), &[0.5; 7], false).is_ok(),
            "an odd ring mixes with weights 1/2"
        );
        assert!(matches!(
            MixingMatrix::new(ring(5), &[0.6; 5], false),
            Err(MatrixError::Own { .. })
        ));
        for bad in [0.0, -0.1, f64::NAN, f64::INFINITY] {
            assert!(
                matches!(
                    MixingMatrix::new(ring(5), &[bad; 5], false),
                    Err(MatrixError::Weight { .. })
                ),
                "{bad}"
            );
        }
        assert!(matches!(
            MixingMatrix::new(ring(5), &[0.1; 4], false),
            Err(MatrixError::Count { .. })
        ));
    }

    #[test]
    fn negative_weights_need_permission_and_a_gap() {
        // Star of 5: a = 2 / (1 + 5) leaves the hub 1 - 4/3.
        let star = Graph::new(5, (1..5).map(|i| (0, i))).unwrap();
        assert!(matches!(
            MixingMatrix::new(star.clone(), &[1.0 / 3.0; 4], false),
            Err(MatrixError::Own { .. })
        ));
        assert!(MixingMatrix::new(star.clone(), &[1.0 / 3.0; 4], true).is_ok());
        // lambda_n = 1 - 5 * 0.4 = -1.
        assert!(matches!(MixingMatrix::new(star, &[0.4; 4], true), Err(MatrixError::NoGap { .. })));
        // A negative weight that makes an eigenvalue above one.
        assert!(matches!(
            MixingMatrix::new(ring(4), &[-0.2; 4], true),
            Err(MatrixError::NoGap { .. })
        ));
    }

    #[test]
    fn constants_that_round_badly_leave_a_zero_diagonal() {
        for degree in [3u32, 6, 7, 10, 49] {
            let complete = Graph::new(
                degree as usize + 1,
                (0..=degree).flat_map(|a| (0..a).map(move |b| (a, b))),
            )
            .unwrap();
            let weights = Weights::MaxDegree.of_links(&complete, None).unwrap().unwrap();
            let matrix = MixingMatrix::new(complete, &weights, false).unwrap();
            assert_eq!(matrix.self_weight(NodeId(0)), 0.0);
        }
    }

    proptest! {
        #[test]
        fn stochastic_symmetric_and_mean_preserving(
            n in 1u32..12,
            extra in prop::collection::vec((0u32..12, 0u32..12), 0..20),
            x in prop::collection::vec(-10.0f64..10.0, 12),
        ) {
            let extra = extra.into_iter().map(|(a, b)| (a % n, b % n));
            let pairs = (1..n).map(|i| (i / 3, i)).chain(extra);
            let graph = Graph::new(n as usize, pairs).unwrap();
            for kind in [Weights::Metropolis, Weights::LazyMetropolis] {
                let weights = kind.of_links(&graph, None).unwrap().unwrap();
                let matrix = MixingMatrix::new(graph.clone(), &weights, false).unwrap();
                let dense = matrix.dense();
                let x = &x[..n as usize];
                let mut y = vec![0.0; x.len()];
                matrix.apply(x, &mut y);
                for (i, row) in dense.iter().enumerate() {
                    prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
                    prop_assert!(row.iter().all(|&w| w >= 0.0));
                    let product: f64 = row.iter().zip(x).map(|(w, x)| w * x).sum();
                    prop_assert!((product - y[i]).abs() < 1e-12);
                    for (j, other) in dense.iter().enumerate() {
                        prop_assert_eq!(row[j], other[i]);
                        prop_assert_eq!(row[j], matrix.weight(NodeId::from(i), NodeId::from(j)));
                    }
                }
                prop_assert!((x.iter().sum::<f64>() - y.iter().sum::<f64>()).abs() < 1e-11);
            }
        }
    }
}
