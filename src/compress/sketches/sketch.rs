//! Count sketches: tables that estimate a vector's large numbers and can be added.
//!
//! Charikar, Chen and Farach-Colton 2002, Finding Frequent Items in Data Streams, section 3. Of a
//! vector g a row j of c cells keeps
//!
//! ```text
//! S_j[h_j(i)] += s_j(i) g_i        ghat_i = median over rows of s_j(i) S_j[h_j(i)]        l2^2 = median over rows of |S_j|^2
//! ```
//!
//! with cells h_j and signs s_j from a [hash](super::hashing). S is linear: S(a) + S(b) = S(a + b),
//! so tables of different nodes add. One row is unbiased with a variance of at most |g|^2 / c; the
//! median of r rows is off by more than sqrt(3/c) |g| with a probability that falls exponentially
//! in r (Lemma 2). The estimate of |g| is that of Alon, Matias and Szegedy 1996, in the form of
//! Thorup and Zhang 2004.
//!
//! ```
//! use gradvine::{compress::{CountSketch, SketchShape}, rng::{Purpose, Stream}};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let hashes = Stream::new(7, Purpose::Rule);            // the same on every node
//! let shape = SketchShape { rows: 5, columns: 200 };
//! let mut one = CountSketch::new(shape, 3000, hashes);
//! let mut other = CountSketch::new(shape, 3000, hashes);
//! let mut g = vec![0.01; 3000];
//! one.accumulate(&g)?;
//! g[1234] = 5.0;
//! other.accumulate(&g)?;
//! // Or table_mut() += bytes from a neighbour.
//! one.merge(&other);
//! assert!((one.estimate(1234) - 5.01).abs() < 0.5);
//! let mut heaviest = Vec::new();
//! one.top(1, &mut heaviest);
//! assert_eq!(heaviest, [1234]);
//! # Ok(())
//! # }
//! ```

use super::{
    cells::{self, Heaviest, MOST_ROWS, around, flipped},
    hashing::{Hash, Place, block_of},
};
use crate::{
    compress::{NonFinite, sparse::random_k::choose},
    rng::Stream,
    vector,
};

/// The most cells of a row: a position is drawn with 29 bits.
pub(super) const MOST_COLUMNS: usize = 1 << 26;

/// The size of a sketch's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SketchShape {
    /// r: rows, 1 to 15, of which medians are taken.
    pub rows: usize,
    /// c: cells of a row, 1 to 2^26.
    pub columns: usize,
}

impl SketchShape {
    /// Cells in all, four bytes each.
    pub fn cells(self) -> usize {
        self.rows * self.columns
    }

    /// The hashes of the rows, of which the first `rows` count.
    pub(super) fn hashes(self, hashes: Stream) -> [Hash; MOST_ROWS] {
        let mut all = [Hash::default(); MOST_ROWS];
        for (row, hash) in all.iter_mut().enumerate().take(self.rows) {
            *hash = Hash::of_row(hashes, row);
        }
        all
    }
}

/// The sketch of a vector of `len` numbers.
#[derive(Debug)]
pub struct CountSketch {
    shape: SketchShape,
    len: usize,
    hashes: [Hash; MOST_ROWS],
    table: Vec<f32>,
    /// Kept between selections to reuse its memory.
    heaviest: Heaviest,
}

impl CountSketch {
    /// The sketch of a zero vector. Sketches that are added need the same shape, length and stream:
    /// one from the run's seed, not from a node's.
    ///
    /// # Panics
    /// If the shape is out of its bounds, or `len` is not below 2^32.
    pub fn new(shape: SketchShape, len: usize, hashes: Stream) -> CountSketch {
        assert!(
            (1..=MOST_ROWS).contains(&shape.rows) && (1..=MOST_COLUMNS).contains(&shape.columns),
            "{shape:?}"
        );
        assert!(u32::try_from(len).is_ok(), "{len} numbers are too many for a sketch");
        let (hashes, table) = (shape.hashes(hashes), vec![0.0; shape.cells()]);
        CountSketch { shape, len, hashes, table, heaviest: Heaviest::default() }
    }

    /// Sets all cells to 0.
    pub fn clear(&mut self) {
        self.table.fill(0.0);
    }

    /// Adds S(`v`). A cell that would overflow `f32` stays at the greatest finite number.
    ///
    /// # Errors
    /// If `v` holds a NaN or an infinity; the table may then hold a part of `v`.
    ///
    /// # Panics
    /// If `v` has another length.
    pub fn accumulate(&mut self, v: &[f32]) -> Result<(), NonFinite> {
        assert_eq!(v.len(), self.len);
        cells::accumulate(v, &self.hashes[..self.shape.rows], self.shape.columns, &mut self.table)
    }

    /// Adds the sketch of a vector whose only number is `value` at `index`.
    ///
    /// # Panics
    /// If there is no such number.
    pub fn add_at(&mut self, index: usize, value: f32) {
        self.each_cell(index, |cell, signs, i| *cell += flipped(value, signs, i));
    }

    /// Sets the cells of a number to 0, which also removes what other numbers have in these cells.
    ///
    /// # Panics
    /// If there is no such number.
    pub fn clear_at(&mut self, index: usize) {
        self.each_cell(index, |cell, _, _| *cell = 0.0);
    }

    /// Adds the table of another sketch.
    ///
    /// # Panics
    /// If it is of another shape, length or stream.
    pub fn merge(&mut self, other: &CountSketch) {
        assert_eq!((self.shape, self.len, self.hashes), (other.shape, other.len, other.hashes));
        vector::axpy(1.0, &other.table, &mut self.table);
    }

    /// ghat at `index`.
    ///
    /// # Panics
    /// If there is no such number.
    pub fn estimate(&self, index: usize) -> f32 {
        assert!(index < self.len, "number {index} of {}", self.len);
        cells::estimate(&self.hashes[..self.shape.rows], self.shape.columns, &self.table, index)
    }

    /// All of ghat, in one pass.
    ///
    /// # Panics
    /// If `out` has another length than the vector.
    pub fn estimate_all(&self, out: &mut [f32]) {
        assert_eq!(out.len(), self.len);
        cells::estimate_all(&self.hashes[..self.shape.rows], self.shape.columns, &self.table, out);
    }

    /// An estimate of |g|^2: the median over rows.
    pub fn l2_squared(&self) -> f64 {
        let mut squares = [0f64; MOST_ROWS];
        let squares = &mut squares[..self.shape.rows];
        for (square, row) in squares.iter_mut().zip(self.table.chunks_exact(self.shape.columns)) {
            *square = vector::norm_squared(row);
        }
        squares.sort_unstable_by(f64::total_cmp);
        let middle = squares.len() / 2;
        if squares.len() % 2 == 1 {
            squares[middle]
        } else {
            0.5 * squares[middle - 1] + 0.5 * squares[middle]
        }
    }

    /// HEAVYMIX (Ivkin et al. 2019, Communication-efficient Distributed SGD with Sketching,
    /// Algorithm 1): the `k` indices H = {i: ghat_i^2 >= l2^2 / k}, filled up with others that
    /// `noise` chooses, all sets of them equally likely; in ascending order, distinct, and k of
    /// them unless the vector is shorter.
    ///
    /// If H has more than k, the k of greatest |ghat|. DIFFERENCE: a number estimated at 0 is never
    /// heavy, so for the sketch of a zero vector all are drawn.
    pub fn heavy_mix(&mut self, k: usize, noise: Stream, out: &mut Vec<u32>) {
        out.clear();
        let k = k.min(self.len);
        if k == 0 {
            return;
        }
        let least = root_bits(self.l2_squared() / k as f64).max(1);
        self.find(k, least);
        let mut heavy = self.heaviest.indices().peekable();
        let (known, len) = (heavy.len(), self.len);
        // Rank j among the others is index j plus the number of heavy ones before it.
        let mut before = 0;
        choose(len - known, k - known, noise, |rank| {
            while let Some(index) = heavy.next_if(|index| *index as usize <= rank + before) {
                out.push(index);
                before += 1;
            }
            out.push((rank + before) as u32);
        });
        out.extend(heavy);
    }

    /// The `k` indices of greatest |ghat|, of equal ones the first; in ascending order, and k of
    /// them unless the vector is shorter.
    pub fn top(&mut self, k: usize, out: &mut Vec<u32>) {
        out.clear();
        self.find(k.min(self.len), 0);
        out.extend(self.heaviest.indices());
    }

    fn find(&mut self, k: usize, least: u32) {
        self.heaviest.reset(k, least);
        let hashes = &self.hashes[..self.shape.rows];
        cells::find_heaviest(hashes, self.shape.columns, &self.table, self.len, &mut self.heaviest);
    }

    fn each_cell(&mut self, index: usize, mut change: impl FnMut(&mut f32, u32, usize)) {
        assert!(index < self.len, "number {index} of {}", self.len);
        let (columns, length) = (self.shape.columns, block_of(self.shape.columns));
        for (hash, row) in self.hashes.iter().zip(self.table.chunks_exact_mut(columns)) {
            let Place { start, signs } = hash.place(index / length, columns);
            change(&mut row[around(start + index % length, columns)], signs, index % length);
        }
    }

    /// The numbers of rows and columns.
    pub fn shape(&self) -> SketchShape {
        self.shape
    }

    /// The length of the vector.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the vector has no numbers at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The cells, row after row: they are sent, and added up.
    pub fn table(&self) -> &[f32] {
        &self.table
    }

    /// The cells, to add a neighbour's or to divide by the number of nodes.
    pub fn table_mut(&mut self) -> &mut [f32] {
        &mut self.table
    }
}

/// The bits of the least magnitude whose square is at least `square`, which is not negative.
fn root_bits(square: f64) -> u32 {
    let is_enough = |x: f32| f64::from(x) * f64::from(x) >= square;
    let mut root = square.sqrt() as f32;
    while root > 0.0 && is_enough(root.next_down()) {
        root = root.next_down();
    }
    while root < f32::INFINITY && !is_enough(root) {
        root = root.next_up();
    }
    root.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_exact() {
        for square in [0.0, 1e-80, 2e-45, 0.5, 1.0, 2.0, 9.0, 1e30, f64::from(f32::MAX).powi(2)] {
            let root = f32::from_bits(root_bits(square));
            assert!(f64::from(root).powi(2) >= square, "{square}");
            assert!(root == 0.0 || f64::from(root.next_down()).powi(2) < square, "{square}");
        }
        assert_eq!(root_bits(1e80), f32::INFINITY.to_bits());
    }
}
