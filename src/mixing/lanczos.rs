//! Eigenvalues of W: all of a small one, and the two extreme ones of a sparse W on the complement
//! of the constant vector (Lanczos 1950).
//!
//! Lanczos runs without reorthogonalisation: the basis loses orthogonality and converged
//! eigenvalues appear again as copies, which does not change the extremes (Paige 1971). Memory is
//! four vectors and the tridiagonal; no basis is kept. The constant vector is projected out at
//! every step, so that its eigenvalue 1 does not return. An unfinished run is marked: on a ring of
//! 100,000 the gap is 1.3e-9 and thousands of steps do not find it.

use crate::rng::{Purpose, Stream};

use super::MixingMatrix;

/// The maximum number of steps that `Spectrum::of` takes.
pub const MAX_STEPS: usize = 4_000;

/// Steps between two checks of the tridiagonal matrix.
const CHECK_EVERY: usize = 40;

/// Residuals must fall to this fraction of the distance from the edge (1 or -1).
const TOLERANCE: f64 = 1e-6;

/// The extreme eigenvalues, and how they were found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extremes {
    pub greatest: f64,
    pub least: f64,
    /// The larger of the two residuals.
    pub residual: f64,
    pub steps: usize,
    pub converged: bool,
}

/// All eigenvalues of a symmetric matrix, ascending: Householder reflections make it tridiagonal
/// (Golub and Van Loan, Matrix Computations, algorithm 8.3.1), bisection finds each eigenvalue to
/// the last bit. `rows` has n rows of n numbers; n^3 time. They are not numbers if the matrix has
/// one that is not finite.
pub(super) fn all_eigenvalues(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let n = rows.len();
    // Squares of very large numbers would be infinite. A power of two loses no bit.
    let greatest = rows.iter().flatten().fold(0f64, |greatest, x| greatest.max(x.abs()));
    let exponent = f64::from_bits(greatest.to_bits() & f64::INFINITY.to_bits());
    let scale = exponent.max(f64::MIN_POSITIVE);
    rows.iter_mut().flatten().for_each(|x| *x /= scale);
    let mut off = Vec::with_capacity(n);
    for k in 0..n.saturating_sub(1) {
        // v reflects the column below the diagonal onto its first number.
        let mut v: Vec<f64> = rows[k + 1..].iter().map(|row| row[k]).collect();
        let length = dot(&v, &v).sqrt();
        off.push(length);
        v[0] += length.copysign(v[0]);
        let square = dot(&v, &v);
        if square == 0.0 {
            continue;
        }
        let (below, beta) = (&mut rows[k + 1..], 2.0 / square);
        let p: Vec<f64> = below.iter().map(|row| beta * dot(&row[k + 1..], &v)).collect();
        let share = 0.5 * beta * dot(&p, &v);
        let w: Vec<f64> = p.iter().zip(&v).map(|(p, v)| p - share * v).collect();
        for (i, row) in below.iter_mut().enumerate() {
            for ((a, v_j), w_j) in row[k + 1..].iter_mut().zip(&v).zip(&w) {
                *a -= v[i] * w_j + w[i] * v_j;
            }
        }
    }
    let diagonal: Vec<f64> = rows.iter().enumerate().map(|(i, row)| row[i]).collect();
    (0..n).map(|index| scale * eigenvalue(&diagonal, &off, index)).collect()
}

/// Runs until both ends have converged, the space is exhausted or `limit` steps are done. `matrix`
/// has two nodes or more.
pub(super) fn extremes(matrix: &MixingMatrix, limit: usize) -> Extremes {
    let n = matrix.nodes();
    let random = Stream::new(0, Purpose::Graph).with(n as u64);
    let mut v: Vec<f64> = (0..n as u64).map(|i| random.f64_at(i) - 0.5).collect();
    project(&mut v);
    normalise(&mut v);
    let (mut before, mut w) = (vec![0.0; n], vec![0.0; n]);
    let (mut diagonal, mut off): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut beta = 0.0;
    loop {
        matrix.apply(&v, &mut w);
        let alpha = dot(&v, &w);
        for ((w, v), before) in w.iter_mut().zip(&v).zip(&before) {
            *w -= alpha * v + beta * before;
        }
        project(&mut w);
        diagonal.push(alpha);
        beta = normalise(&mut w);
        let steps = diagonal.len();
        // The complement of the constant vector has n - 1 dimensions; a vanishing beta means that
        // it is exhausted.
        let exhausted = beta < 1e-13;
        if exhausted || steps >= limit || steps % CHECK_EVERY == 0 {
            let found = check(&diagonal, &off, beta);
            if exhausted || found.converged || steps >= limit {
                return Extremes { converged: found.converged || exhausted, ..found };
            }
        }
        off.push(beta);
        // before <- v <- w, and the old `before` is the next scratch.
        std::mem::swap(&mut before, &mut v);
        std::mem::swap(&mut v, &mut w);
    }
}

/// The extreme eigenvalues of the tridiagonal matrix and their residuals as eigenvalues of W.
fn check(diagonal: &[f64], off: &[f64], beta: f64) -> Extremes {
    let m = diagonal.len();
    let (least, greatest) = (eigenvalue(diagonal, off, 0), eigenvalue(diagonal, off, m - 1));
    let residual = |theta: f64| beta * last_component(diagonal, off, theta).abs();
    let (low, high) = (residual(least), residual(greatest));
    // Relative to the distance from the edges, but no finer than double precision can resolve.
    let fine = |residual: f64, margin: f64| residual <= (TOLERANCE * margin).max(1e-14);
    Extremes {
        greatest,
        least,
        residual: low.max(high),
        steps: m,
        converged: fine(high, 1.0 - greatest) && fine(low, 1.0 + least),
    }
}

/// The eigenvalue number `index`, ascending, by Sturm bisection to the last bit; not a number if
/// the matrix has one that is not finite.
fn eigenvalue(diagonal: &[f64], off: &[f64], index: usize) -> f64 {
    let radius =
        |i: usize| off.get(i).map_or(0.0, |x| x.abs()) + if i > 0 { off[i - 1].abs() } else { 0.0 };
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for (i, &centre) in diagonal.iter().enumerate() {
        low = low.min(centre - radius(i));
        high = high.max(centre + radius(i));
    }
    loop {
        let middle = low + 0.5 * (high - low);
        let is_between = low < middle && middle < high;
        if !is_between {
            return middle;
        }
        if below(diagonal, off, middle) > index {
            high = middle;
        } else {
            low = middle;
        }
    }
}

/// The number of eigenvalues below x: the negative pivots of T - x I (Sturm).
fn below(diagonal: &[f64], off: &[f64], x: f64) -> usize {
    let mut pivot = 1.0;
    let mut count = 0;
    for (i, &centre) in diagonal.iter().enumerate() {
        let square = if i > 0 { off[i - 1] * off[i - 1] } else { 0.0 };
        if pivot == 0.0 {
            pivot = f64::MIN_POSITIVE;
        }
        pivot = centre - x - square / pivot;
        count += usize::from(pivot < 0.0);
    }
    count
}

/// The last component of the unit eigenvector of `theta`, by two steps of inverse iteration.
fn last_component(diagonal: &[f64], off: &[f64], theta: f64) -> f64 {
    let m = diagonal.len();
    let mut x = vec![1.0 / (m as f64).sqrt(); m];
    for _ in 0..2 {
        solve(diagonal, off, theta, &mut x);
        normalise(&mut x);
    }
    x[m - 1]
}

/// `x <- (T - theta I)^-1 x` by Gaussian elimination with partial pivoting; a vanishing pivot is
/// replaced by a tiny one, as inverse iteration at an eigenvalue needs it.
fn solve(diagonal: &[f64], off: &[f64], theta: f64, x: &mut [f64]) {
    let m = diagonal.len();
    let tiny = |pivot: f64| if pivot.abs() < 1e-18 { 1e-18 } else { pivot };
    let mut upper: Vec<[f64; 3]> = Vec::with_capacity(m); // each row from its diagonal on
    let mut row = [diagonal[0] - theta, off.first().copied().unwrap_or(0.0), 0.0];
    for i in 1..m {
        let next = [off[i - 1], diagonal[i] - theta, off.get(i).copied().unwrap_or(0.0)];
        let (pivot, other) = if next[0].abs() > row[0].abs() {
            x.swap(i - 1, i);
            (next, row)
        } else {
            (row, next)
        };
        let factor = other[0] / tiny(pivot[0]);
        x[i] -= factor * x[i - 1];
        upper.push(pivot);
        row = [other[1] - factor * pivot[1], other[2] - factor * pivot[2], 0.0];
    }
    upper.push(row);
    for i in (0..m).rev() {
        let after = |k: usize| x.get(i + k).copied().unwrap_or(0.0);
        x[i] = (x[i] - upper[i][1] * after(1) - upper[i][2] * after(2)) / tiny(upper[i][0]);
    }
}

/// Sums in 8 lanes of fixed order.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    let (x_chunks, y_chunks) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    let rest: f64 = x_chunks.remainder().iter().zip(y_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in x_chunks.zip(y_chunks) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// Scales to length one and returns the length; a zero vector stays.
fn normalise(x: &mut [f64]) -> f64 {
    let length = dot(x, x).sqrt();
    if length > 0.0 {
        let scale = 1.0 / length;
        x.iter_mut().for_each(|x| *x *= scale);
    }
    length
}

fn project(x: &mut [f64]) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    x.iter_mut().for_each(|x| *x -= mean);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixing::{Spectrum, Topology};

    /// The tridiagonal matrix of a path has the eigenvalues 2 cos(pi k / (m + 1)) and known
    /// eigenvectors.
    #[test]
    fn tridiagonal_of_a_path() {
        let m = 50;
        let (diagonal, off) = (vec![0.0; m], vec![1.0; m - 1]);
        let exact = |k: usize| 2.0 * (std::f64::consts::PI * k as f64 / (m + 1) as f64).cos();
        for index in [0, 1, 25, 48, 49] {
            assert!((eigenvalue(&diagonal, &off, index) - exact(m - index)).abs() < 1e-14);
        }
        let sine = (std::f64::consts::PI * m as f64 / (m + 1) as f64).sin();
        let component = (2.0 / (m + 1) as f64).sqrt() * sine;
        assert!((last_component(&diagonal, &off, exact(1)).abs() - component.abs()).abs() < 1e-10);
    }

    #[test]
    fn all_eigenvalues_agree_with_another_library() {
        let random = Stream::new(7, Purpose::Test);
        for n in [1, 2, 3, 10, 60] {
            // Symmetric, with a row that is diagonal already.
            let number = |i: usize, j: usize| match (i.min(j), i.max(j)) {
                (a, b) if a == n / 2 && b > a => 0.0,
                (a, b) => random.f64_at((a * n + b) as u64) - 0.5,
            };
            let rows = (0..n).map(|i| (0..n).map(|j| number(i, j)).collect()).collect();
            let reference = nalgebra::DMatrix::from_fn(n, n, number).symmetric_eigenvalues();
            let mut reference: Vec<f64> = reference.iter().copied().collect();
            reference.sort_by(f64::total_cmp);
            for (own, other) in all_eigenvalues(rows).into_iter().zip(reference) {
                assert!((own - other).abs() < 1e-13 * n as f64, "{n}: {own} {other}");
            }
        }
    }

    #[test]
    fn very_large_and_very_small_matrices_have_eigenvalues() {
        for size in [1e-200, 1e-308, 1e155, 1e300] {
            let values = all_eigenvalues(vec![vec![0.0, size], vec![size, 0.0]]);
            assert!((values[0] / size + 1.0).abs() < 1e-13, "{values:?}");
            assert!((values[1] / size - 1.0).abs() < 1e-13, "{values:?}");
        }
        for wrong in [f64::INFINITY, f64::NAN] {
            assert!(all_eigenvalues(vec![vec![wrong; 3]; 3]).iter().all(|value| value.is_nan()));
        }
    }

    #[test]
    fn torus_of_ten_thousand_to_ten_digits() {
        let topology = Topology::parse("torus:100x100", 0).unwrap();
        let (closed, found) =
            (topology.spectrum(), Spectrum::lanczos(topology.matrix(), MAX_STEPS));
        assert!(found.converged);
        assert!(
            (found.lambda_2 - closed.lambda_2).abs() < 1e-10,
            "{} {}",
            found.lambda_2,
            closed.lambda_2
        );
        assert!((found.lambda_n - closed.lambda_n).abs() < 1e-10);
        assert!(found.residual.unwrap() < 1e-8);
    }

    #[test]
    fn a_long_ring_is_reported_as_not_converged() {
        let topology = Topology::parse("ring:100000", 0).unwrap();
        let found = Spectrum::lanczos(topology.matrix(), 200);
        assert!(!found.converged);
        assert!(found.rho < topology.spectrum().rho, "an unfinished rho is a lower bound");
    }

    #[test]
    fn two_nodes_exhaust_the_space_in_one_step() {
        let topology = Topology::parse("complete:2", 0).unwrap();
        let found = Spectrum::lanczos(topology.matrix(), 10);
        assert!(found.converged && found.rho.abs() < 1e-15);
    }
}
