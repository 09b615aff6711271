//! The eigenvalues of W, which decide how fast a network agrees.

use std::fmt;

use super::{FamilyMember, MixingMatrix, lanczos};

/// Up to this many nodes a spectrum without a closed form is computed in full.
pub const DENSE_LIMIT: usize = 1_000;

/// The spectrum of a mixing matrix, `1 = lambda_1 >= lambda_2 >= ... >= lambda_n >= -1`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spectrum {
    /// `max(|lambda_2|, |lambda_n|)`: the factor by which one round shrinks disagreement in the
    /// worst case. 0 for a single node.
    pub rho: f64,
    /// `1 - rho`, the larger the faster.
    pub gap: f64,
    /// The second largest eigenvalue; 0 for a single node.
    pub lambda_2: f64,
    /// The smallest eigenvalue; 1 for a single node.
    pub lambda_n: f64,
    /// All eigenvalues in descending order, up to [`DENSE_LIMIT`] nodes.
    pub eigenvalues: Option<Vec<f64>>,
    /// `|I - W|_2 = 1 - lambda_n`.
    pub mu: f64,
    /// Whether all eigenvalues were computed, or the two that count.
    pub method: Method,
    /// For Lanczos: the larger of the two residuals `|W v - lambda v|` with `|v| = 1`. An
    /// eigenvalue lies within this distance of each figure.
    pub residual: Option<f64>,
    /// Whether the figures are correct to six digits of the gap. `false` only if Lanczos ran out of
    /// steps: then rho is a lower bound.
    pub converged: bool,
}

/// How a spectrum was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// From the eigenvalues of the family's Laplacian.
    ClosedForm,
    /// All eigenvalues of the full matrix, by Householder tridiagonalisation and bisection.
    Dense,
    /// The two extreme eigenvalues on the complement of the constant vector, in this many steps.
    Lanczos(usize),
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::ClosedForm => f.write_str("closed form"),
            Method::Dense => f.write_str("dense"),
            Method::Lanczos(steps) => write!(f, "Lanczos, {steps} steps"),
        }
    }
}

impl Spectrum {
    /// Computes it by the best method: the closed form if the family has one and all links weigh
    /// the same, else dense up to [`DENSE_LIMIT`] nodes, else Lanczos.
    pub(crate) fn of(matrix: &MixingMatrix, shape: Option<&FamilyMember>) -> Spectrum {
        if let Some(spectrum) = shape.and_then(|shape| Spectrum::closed_form(matrix, shape)) {
            spectrum
        } else if matrix.nodes() <= DENSE_LIMIT {
            Spectrum::dense(matrix)
        } else {
            Spectrum::lanczos(matrix, lanczos::MAX_STEPS)
        }
    }

    /// `1 - a l` for every Laplacian eigenvalue l; `None` if links differ in weight or the family
    /// has no closed form.
    pub fn closed_form(matrix: &MixingMatrix, shape: &FamilyMember) -> Option<Spectrum> {
        if matrix.nodes() == 1 {
            return Some(Spectrum::single(Method::ClosedForm));
        }
        let a = matrix.constant()?;
        let laplacian = shape.laplacian()?;
        let (least, greatest) = shape.laplacian_range()?;
        let eigenvalues = (matrix.nodes() <= DENSE_LIMIT).then(|| {
            let mut values: Vec<f64> =
                std::iter::once(1.0).chain(laplacian.iter().map(|l| 1.0 - a * l)).collect();
            values.sort_by(|x, y| y.total_cmp(x));
            values
        });
        // From a l rather than from 1 - a l: a gap of 1e-9 keeps all its digits.
        Some(Spectrum::from_ends(a * least, a * greatest, eigenvalues, Method::ClosedForm))
    }

    /// All eigenvalues of the full matrix: n^2 memory, n^3 time.
    pub fn dense(matrix: &MixingMatrix) -> Spectrum {
        let n = matrix.nodes();
        if n == 1 {
            return Spectrum::single(Method::Dense);
        }
        let mut values = lanczos::all_eigenvalues(matrix.dense());
        values.reverse();
        Spectrum::from_ends(1.0 - values[1], 1.0 - values[n - 1], Some(values), Method::Dense)
    }

    /// The extreme eigenvalues by at most `steps` Lanczos steps on the sparse rows.
    pub fn lanczos(matrix: &MixingMatrix, steps: usize) -> Spectrum {
        if matrix.nodes() == 1 {
            return Spectrum::single(Method::Lanczos(0));
        }
        let ends = lanczos::extremes(matrix, steps);
        let spectrum = Spectrum::from_ends(
            1.0 - ends.greatest,
            1.0 - ends.least,
            None,
            Method::Lanczos(ends.steps),
        );
        Spectrum { residual: Some(ends.residual), converged: ends.converged, ..spectrum }
    }

    /// From `1 - lambda_2` and `1 - lambda_n`.
    fn from_ends(
        below_2: f64,
        below_n: f64,
        eigenvalues: Option<Vec<f64>>,
        method: Method,
    ) -> Spectrum {
        let upper = 2.0 - below_n;
        let gap = if below_2 < upper { below_2 } else { upper };
        Spectrum {
            rho: 1.0 - gap,
            gap,
            lambda_2: 1.0 - below_2,
            lambda_n: 1.0 - below_n,
            eigenvalues,
            mu: below_n,
            method,
            residual: None,
            converged: true,
        }
    }

    /// The spectrum of W = (1), a single node.
    fn single(method: Method) -> Spectrum {
        Spectrum {
            rho: 0.0,
            gap: 1.0,
            lambda_2: 0.0,
            lambda_n: 1.0,
            eigenvalues: Some(vec![1.0]),
            mu: 0.0,
            method,
            residual: None,
            converged: true,
        }
    }

    /// The least number of rounds t with `rho^t <= 0.01`: disagreement (the norm, not its square)
    /// shrinks to a hundredth. `None` if rho is not below 1.
    pub fn mixing_time(&self) -> Option<u64> {
        const TARGET: f64 = 0.01;
        if self.gap <= 0.0 || self.gap.is_nan() {
            return None;
        }
        if self.rho <= TARGET {
            return Some(1);
        }
        let rate = libm::log1p(-self.gap);
        // A rho such as 0.1 has no exact double: a quotient that is above an integer by a rounding
        // error counts as that integer.
        Some((libm::log(TARGET) / rate - 1e-9).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mixing::{Graph, Topology, Weights};

    fn spectrum(spec: &str) -> Spectrum {
        Topology::parse(spec, 0).unwrap().spectrum().clone()
    }

    fn weighted(spec: &str, weights: Weights) -> Spectrum {
        Topology::parse_with(spec, Some(weights), 0).unwrap().spectrum().clone()
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn measured_table() {
        for (spec, gap) in [
            ("ring:8", 0.195_262),
            ("ring:16", 0.050_747),
            ("ring:36", 0.010_128),
            ("ring:64", 0.003_210),
            ("ring:100", 0.001_316),
            ("complete:8", 1.0),
            ("hypercube:8", 0.5),
            ("torus:4x4", 0.4),
            ("torus:6x6", 0.2),
        ] {
            let s = spectrum(spec);
            assert!((s.gap - gap).abs() < 5e-7, "{spec}: {}", s.gap);
        }
        for (spec, weights, rho) in [
            ("ring:8", Weights::BestConstant, 0.7445),
            ("ring:8", Weights::LazyMetropolis, 0.9024),
            ("star:8", Weights::Metropolis, 0.875),
            ("path:8", Weights::Metropolis, 0.949),
        ] {
            let s = weighted(spec, weights);
            assert!((s.rho - rho).abs() < 1e-3, "{spec} {weights}: {}", s.rho);
        }
    }

    #[test]
    fn mixing_times() {
        assert_eq!(spectrum("ring:8").mixing_time(), Some(22));
        assert_eq!(spectrum("complete:8").mixing_time(), Some(1));
        assert_eq!(spectrum("complete:1").mixing_time(), Some(1));
        let with = |rho: f64| {
            Spectrum { rho, gap: 1.0 - rho, ..Spectrum::single(Method::Dense) }.mixing_time()
        };
        assert_eq!(
            (with(0.1), with(0.01), with(0.011), with(1.0), with(1.2)),
            (Some(2), Some(1), Some(2), None, None)
        );
        for rho in [0.05, 0.3, 0.5, 0.9, 0.999] {
            let t = with(rho).unwrap() as i32;
            assert!(rho.powi(t) <= 0.01 && rho.powi(t - 1) > 0.01, "{rho} {t}");
        }
    }

    #[test]
    fn closed_form_agrees_with_dense_for_every_family_and_weights() {
        for spec in [
            "ring:9",
            "ring:12",
            "path:7",
            "torus:4x6",
            "torus:2x4",
            "complete:6",
            "star:7",
            "hypercube:16",
            "exponential:12",
        ] {
            for weights in [
                Weights::Metropolis,
                Weights::LazyMetropolis,
                Weights::MaxDegree,
                Weights::BestConstant,
            ] {
                let Ok(topology) = Topology::parse_with(spec, Some(weights), 0) else { continue };
                let closed = topology.spectrum();
                assert_eq!(closed.method, Method::ClosedForm, "{spec} {weights}");
                let dense = Spectrum::dense(topology.matrix());
                let pairs = closed
                    .eigenvalues
                    .as_ref()
                    .unwrap()
                    .iter()
                    .zip(dense.eigenvalues.as_ref().unwrap());
                pairs.for_each(|(a, b)| assert!(near(*a, *b), "{spec} {weights}: {a} {b}"));
                assert!(
                    near(closed.rho, dense.rho)
                        && near(closed.lambda_2, dense.lambda_2)
                        && near(closed.mu, dense.mu)
                );
            }
        }
    }

    #[test]
    fn best_constant_balances_the_ends() {
        let s = weighted("torus:4x5", Weights::BestConstant);
        assert!((s.lambda_2 + s.lambda_n).abs() < 1e-8);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn lanczos_agrees_with_dense(
            n in 2u32..60,
            extra in prop::collection::vec((0u32..60, 0u32..60), 0..120),
        ) {
            let extra = extra.into_iter().map(|(a, b)| (a % n, b % n));
            let pairs = (1..n).map(|i| (i / 2, i)).chain(extra);
            let graph = Graph::new(n as usize, pairs).unwrap();
            let weights = Weights::Metropolis.of_links(&graph, None).unwrap().unwrap();
            let matrix = MixingMatrix::new(graph, &weights, false).unwrap();
            let (dense, sparse) = (Spectrum::dense(&matrix), Spectrum::lanczos(&matrix, 500));
            prop_assert!(sparse.converged);
            prop_assert!((dense.lambda_2 - sparse.lambda_2).abs() < 1e-8, "{} \
                {}", dense.lambda_2, sparse.lambda_2);
            prop_assert!((dense.lambda_n - sparse.lambda_n).abs() < 1e-8, "{} \
                {}", dense.lambda_n, sparse.lambda_n);
        }
    }
}
