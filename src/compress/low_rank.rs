//! A low-rank approximation of the vector, read as a matrix: `low-rank`.
//!
//! Vogels, Karimireddy and Jaggi 2019, PowerSGD: Practical Low-Rank Gradient Compression for
//! Distributed Optimization, Algorithm 1. The vector of d numbers is read as a matrix M of m
//! columns, m = floor(sqrt(d)), row by row, the last row padded with zeros: n = ceil(d / m) rows.
//! With r = `rank`, or m if that is less,
//!
//! ```text
//! P = M Q0        P = orthonormalised P        Q = M^T P        C(x) = P Q^T = P P^T M
//! ```
//!
//! one step of the power iteration from a normal Q0, drawn from the payload's stream. C is the
//! projection on r directions: |C(x) - x|^2 <= |x|^2 - |Q|^2 (with = if no row is padded), never
//! more than |x|^2 and in expectation at most (1 - r/m) |x|^2: span(M Q0) holds at least what
//! span(Q0) does, tr((Q0^T A Q0)^-1 Q0^T A^2 Q0) >= tr(Q0^T A Q0) for A = M^T M and orthonormal Q0.
//! Of Gaussian numbers r (n + m - r) / d is kept. Far better if M is nearly of low rank. Columns of
//! P that depend on others (a zero vector, a matrix of lower rank) become zeros.
//!
//! DIFFERENCE: no warm start, because a compressor has no state: the paper's Q0 is the Q of the
//! round before, which approaches the best rank-r approximation in some rounds. DIFFERENCE: one
//! matrix for the whole vector, not one for each tensor of a model. DIFFERENCE: P is not averaged
//! before it is orthonormalised: each node projects by itself.
//!
//! Bytes: P, then Q, both as `f32`, column after column: 4 r (n + m). No number of P exceeds 1 and
//! none of Q `f32::MAX` / 2r (Q saturates), so that no product overflows `f32`.

use super::prelude::*;
use crate::vector::{LANES, update_by_two};

pub(super) const ENTRY: Entry = Entry {
    name: "low-rank",
    summary: "the vector as a square matrix, projected on a few directions found by one power \
              iteration",
    paper: "Vogels et al. 2019, PowerSGD",
    class_words: "contraction (in expectation over the start)",
    constants: &[("rank", "2: directions kept, 1 to 128 (2 is the paper's for images)")],
    variants: &["rank = 1", "rank = 4"],
    build,
    ..Entry::BLANK
};

const MOST: i64 = 128;

params! {
    rank: i64 = 2,
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let rank = within("rank", params.rank, 1, MOST)? as usize;
    Ok(Built::new(LowRank { rank }, config::resolved(ENTRY.name, &params)))
}

#[derive(Debug)]
struct LowRank {
    rank: usize,
}

/// The matrix that a vector is read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    rows: usize,
    columns: usize,
    rank: usize,
}

impl Shape {
    fn cells(self) -> usize {
        self.rank * (self.rows + self.columns)
    }

    /// The limit of the numbers of Q.
    fn greatest(self) -> f32 {
        f32::MAX / (2 * self.rank.max(1)) as f32
    }
}

impl LowRank {
    fn shape(&self, len: usize) -> Shape {
        let columns = len.isqrt();
        Shape {
            rows: if len == 0 { 0 } else { len.div_ceil(columns) },
            columns,
            rank: self.rank.min(columns),
        }
    }
}

impl Compressor for LowRank {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, len: usize) -> Class {
        let shape = self.shape(len);
        Class::Contraction { delta: shape.rank.max(1) as f64 / shape.columns.max(1) as f64 }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(4 * self.shape(len).cells())
    }

    fn encode(&self, v: &[f32], noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        let greatest = greatest(v).ok_or_else(|| NonFinite::known_in(v))?;
        let shape = self.shape(v.len());
        let start = out.len();
        out.resize(start + 4 * shape.cells(), 0);
        let cells = out[start..].as_chunks_mut::<4>().0;
        let (p, q) = cells.split_at_mut(shape.rank * shape.rows);
        draw(noise, power_near(greatest), q);
        multiply(v, shape, q, p);
        orthonormalise(shape.rows, p);
        multiply_transposed(v, shape, p, q);
        Ok(())
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        let shape = self.shape(len);
        expect_length(bytes, 4 * shape.cells())?;
        let (p, q) = bytes.as_chunks::<4>().0.split_at(shape.rank * shape.rows);
        for (name, numbers, most) in [("P", p, 1.0), ("Q", q, shape.greatest())] {
            if !all_within(numbers, most) {
                return Err(Malformed(format!(
                    "a number of {name} is not from -{most:e} to {most:e}"
                )));
            }
        }
        Ok(())
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        let shape = self.shape(acc.len());
        let (p, q) = bytes.as_chunks::<4>().0.split_at(shape.rank * shape.rows);
        add(p, q, shape, weight, acc);
    }

    fn gaussian_error(&self, len: usize) -> Option<f64> {
        // C keeps the r columns of M Q0, and r of n dimensions of the rest, which is independent of
        // them.
        let Shape { rows, columns, rank } = self.shape(len);
        let kept = rank as f64 * (rows + columns - rank) as f64 / len as f64;
        (len > nominal::MOST_SAMPLED).then_some(1.0 - kept)
    }
}

/// A power of two that scales numbers of this magnitude to about 1, so that products do not
/// overflow.
fn power_near(greatest: f32) -> f32 {
    let exponent = (greatest.to_bits() >> 23) as i32 - 127;
    f32::from_bits(((127 - exponent.clamp(-100, 100)) as u32) << 23)
}

/// Q0: normal numbers times `scale`.
fn draw(noise: Stream, scale: f32, q: &mut [[u8; 4]]) {
    let mut normal = noise.sequence();
    for cell in q {
        *cell = (normal.normal() as f32 * scale).to_le_bytes();
    }
}

/// Numbers of a row that are multiplied with all directions while they are in the cache.
const STRIP: usize = 2048;

kernel! {
    /// The greatest magnitude, if all are finite.
    fn greatest(v: &[f32]) -> Option<f32> {
        range(v).map(|(low, high)| if -low > high { -low } else { high })
    }

    /// P = M Q0.
    fn multiply(v: &[f32], shape: Shape, q: &[[u8; 4]], p: &mut [[u8; 4]]) {
        for (i, row) in v.chunks(shape.columns.max(1)).enumerate() {
            for (k, q) in q.chunks_exact(shape.columns).enumerate() {
                p[k * shape.rows + i] = dot(row, q).to_le_bytes();
            }
        }
    }

    /// Q = M^T P, saturated.
    fn multiply_transposed(v: &[f32], shape: Shape, p: &[[u8; 4]], q: &mut [[u8; 4]]) {
        q.fill([0; 4]);
        for (i, row) in v.chunks(shape.columns.max(1)).enumerate() {
            for (k, q) in q.chunks_exact_mut(shape.columns).enumerate() {
                let weight = f32::from_le_bytes(p[k * shape.rows + i]);
                update(q, row, |q, x| *q = (f32::from_le_bytes(*q) + weight * x).to_le_bytes());
            }
        }
        // A sum of finite products may become infinite, but not a NaN.
        let most = shape.greatest();
        for cell in q {
            let x = f32::from_le_bytes(*cell);
            let x = if x > most { most } else { x };
            *cell = (if x < -most { -most } else { x }).to_le_bytes();
        }
    }

    /// `acc += weight * P Q^T`.
    fn add(p: &[[u8; 4]], q: &[[u8; 4]], shape: Shape, weight: f32, acc: &mut [f32]) {
        let mut sums = [0f32; STRIP];
        for (i, row) in acc.chunks_mut(shape.columns.max(1)).enumerate() {
            for (strip, acc) in row.chunks_mut(STRIP).enumerate() {
                let sums = &mut sums[..acc.len()];
                sums.fill(0.0);
                for (k, q) in q.chunks_exact(shape.columns).enumerate() {
                    let factor = f32::from_le_bytes(p[k * shape.rows + i]);
                    update(sums, &q[strip * STRIP..], |sum, q| {
                        *sum += factor * f32::from_le_bytes(*q);
                    });
                }
                update(acc, sums, |a, sum| *a += weight * *sum);
            }
        }
    }

    fn all_within(numbers: &[[u8; 4]], most: f32) -> bool {
        numbers.iter().fold(true, |all, x| all & (f32::from_le_bytes(*x).abs() <= most))
    }

    /// Gram-Schmidt, each column twice, so that it is orthogonal to the others in `f32` as well.
    fn orthonormalise(rows: usize, p: &mut [[u8; 4]]) {
        for k in 0..p.len() / rows.max(1) {
            let (before, rest) = p.split_at_mut(k * rows);
            let column = &mut rest[..rows];
            let whole = product(column, column);
            for _ in 0..2 {
                for other in before.chunks_exact(rows) {
                    let part = product(column, other);
                    update(column, other, |x, other| {
                        *x = ((read(*x) - part * read(*other)) as f32).to_le_bytes();
                    });
                }
            }
            let left = product(column, column);
            // Rounding errors that remain of a column that depends on the others are no direction;
            // a column of zeros is none either.
            let scale = if left > DEPENDENT * whole { 1.0 / left.sqrt() } else { 0.0 };
            for x in column.iter_mut() {
                *x = ((read(*x) * scale) as f32).to_le_bytes();
            }
        }
    }
}

/// The part of a column's square that must remain after orthogonalization.
const DEPENDENT: f64 = 1e-10;

/// The inner product in fixed lanes of `f32`, used only to find the directions.
#[inline(always)]
fn dot(x: &[f32], y: &[[u8; 4]]) -> f32 {
    let mut sums = [0f32; 2 * LANES];
    let y = &y[..x.len()];
    let ((x, x_rest), (y, y_rest)) =
        (x.as_chunks::<{ 2 * LANES }>(), y.as_chunks::<{ 2 * LANES }>());
    for (k, x) in x.iter().enumerate() {
        update_by_two(&mut sums, x, &y[k], |sum, x, y| *sum += x * f32::from_le_bytes(*y));
    }
    update_by_two(&mut sums, x_rest, y_rest, |sum, x, y| *sum += x * f32::from_le_bytes(*y));
    sums.iter().sum()
}

/// The inner product of two columns in fixed lanes of `f64`.
#[inline(always)]
fn product(x: &[[u8; 4]], y: &[[u8; 4]]) -> f64 {
    let mut sums = [0f64; LANES];
    let y = &y[..x.len()];
    let ((x, x_rest), (y, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (k, x) in x.iter().enumerate() {
        update_by_two(&mut sums, x, &y[k], |sum, x, y| *sum += read(*x) * read(*y));
    }
    update_by_two(&mut sums, x_rest, y_rest, |sum, x, y| *sum += read(*x) * read(*y));
    sums.iter().sum()
}

#[inline(always)]
fn read(cell: [u8; 4]) -> f64 {
    f64::from(f32::from_le_bytes(cell))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matrices_are_nearly_square() {
        let shape = |len| LowRank { rank: 3 }.shape(len);
        for (len, rows, columns, rank) in [
            (0, 0, 0, 0),
            (1, 1, 1, 1),
            (2, 2, 1, 1),
            (8, 4, 2, 2),
            (9, 3, 3, 3),
            (12, 4, 3, 3),
            (1000, 33, 31, 3),
        ] {
            assert_eq!(shape(len), Shape { rows, columns, rank });
        }
        for len in 1..3000 {
            let Shape { rows, columns, .. } = shape(len);
            assert!(rows * columns >= len && (rows - 1) * columns < len && rows <= columns + 2);
        }
    }

    #[test]
    fn powers_bring_every_magnitude_into_the_middle() {
        for greatest in [f32::MAX, 1e30, 1.0, 3e-5, 1e-38, f32::from_bits(1), 0.0] {
            let scaled = f64::from(greatest) * f64::from(power_near(greatest));
            assert!(
                greatest == 0.0 || (1e-15..1e9).contains(&scaled),
                "{greatest} becomes {scaled}"
            );
        }
    }
}
