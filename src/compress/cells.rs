//! The loops over a sketch's table, which is rows of cells, one behind the other: `f32`, or their bytes in a frame.
//!
//! Each cell receives its numbers in ascending order of index, so a table is the same to the bit at every dispatch level.

use super::{
    NonFinite,
    hashing::{BLOCK, Hash, Place, block_of},
    kernel::kernel,
};

/// The most rows of a sketch.
pub(super) const MOST_ROWS: usize = 15;

/// Numbers that go into one row after the other while they are near.
const TILE: usize = 1 << 16;

/// Numbers whose estimates are sorted together.
const LANES: usize = 8;

/// One number of a table.
pub(super) trait Cell: Copy {
    fn read(self) -> f32;
    fn of(x: f32) -> Self;
}

impl Cell for f32 {
    #[inline(always)]
    fn read(self) -> f32 {
        self
    }
    #[inline(always)]
    fn of(x: f32) -> f32 {
        x
    }
}

impl Cell for [u8; 4] {
    #[inline(always)]
    fn read(self) -> f32 {
        f32::from_le_bytes(self)
    }
    #[inline(always)]
    fn of(x: f32) -> [u8; 4] {
        x.to_le_bytes()
    }
}

/// x with its sign changed if bit `i` of `signs` is set.
#[inline(always)]
pub(super) fn flipped(x: f32, signs: u32, i: usize) -> f32 {
    let flip = if signs & (1 << i) == 0 { 0 } else { 1 << 31 };
    f32::from_bits(x.to_bits() ^ flip)
}

kernel! {
    /// Adds `v` to a table of floats, or says what of `v` is not finite; the table then holds a part of it.
    pub(super) fn accumulate(v: &[f32], hashes: &[Hash], columns: usize, table: &mut [f32]) -> Result<(), NonFinite> {
        accumulate_into(v, hashes, columns, table)
    }

    /// As [`accumulate`], for a table in a frame.
    pub(super) fn accumulate_bytes(v: &[f32], hashes: &[Hash], columns: usize, table: &mut [[u8; 4]]) -> Result<(), NonFinite> {
        accumulate_into(v, hashes, columns, table)
    }

    /// Writes the estimates of all numbers.
    pub(super) fn estimate_all(hashes: &[Hash], columns: usize, table: &[f32], out: &mut [f32]) {
        estimates(hashes, columns, table, out.len(), |start, found| out[start..start + found.len()].copy_from_slice(found));
    }

    /// `acc += weight * estimate` for all numbers, from a table in a frame.
    pub(super) fn add_estimates(hashes: &[Hash], columns: usize, table: &[[u8; 4]], weight: f32, acc: &mut [f32]) {
        estimates(hashes, columns, table, acc.len(), |start, found| {
            for (acc, found) in acc[start..].iter_mut().zip(found) {
                *acc += weight * *found;
            }
        });
    }

    /// Shows `heaviest` the estimates of all numbers.
    pub(super) fn find_heaviest(hashes: &[Hash], columns: usize, table: &[f32], len: usize, heaviest: &mut Heaviest) {
        estimates(hashes, columns, table, len, |start, found| heaviest.see(start, found));
    }
}

#[inline(always)]
fn accumulate_into<C: Cell>(v: &[f32], hashes: &[Hash], columns: usize, table: &mut [C]) -> Result<(), NonFinite> {
    for (tile, numbers) in v.chunks(TILE).enumerate() {
        if let Some(NonFinite { index, value }) = NonFinite::first_in(numbers) {
            return Err(NonFinite { index: tile * TILE + index, value });
        }
        for (hash, row) in hashes.iter().zip(table.chunks_exact_mut(columns)) {
            scatter(numbers, tile * TILE, hash, row);
        }
    }
    // Sums of finite numbers may leave `f32`, but only to an infinity: it becomes the greatest number there is.
    for cell in table {
        *cell = C::of(saturated(cell.read()));
    }
    Ok(())
}

#[inline(always)]
fn saturated(x: f32) -> f32 {
    let x = if x > f32::MAX { f32::MAX } else { x };
    if x < -f32::MAX { -f32::MAX } else { x }
}

/// Adds the numbers from `offset` on, a multiple of all block lengths, to one row.
#[inline(always)]
fn scatter<C: Cell>(numbers: &[f32], offset: usize, hash: &Hash, row: &mut [C]) {
    let (columns, length) = (row.len(), block_of(row.len()));
    for (block, numbers) in numbers.chunks(length).enumerate() {
        let Place { start, signs } = hash.place(offset / length + block, columns);
        let cells = row.get_mut(start..start + BLOCK).and_then(|cells| <&mut [C; BLOCK]>::try_from(cells).ok());
        match (cells, <&[f32; BLOCK]>::try_from(numbers)) {
            (Some(cells), Ok(numbers)) => {
                for (i, (cell, &x)) in cells.iter_mut().zip(numbers).enumerate() {
                    *cell = C::of(cell.read() + flipped(x, signs, i));
                }
            }
            _ => {
                for (i, &x) in numbers.iter().enumerate() {
                    let cell = &mut row[around(start + i, columns)];
                    *cell = C::of(cell.read() + flipped(x, signs, i));
                }
            }
        }
    }
}

/// A cell at or behind the end of a row counts from its start.
#[inline(always)]
pub(super) fn around(cell: usize, columns: usize) -> usize {
    if cell < columns { cell } else { cell - columns }
}

/// Calls `visit` with the estimates of all `len` numbers, in order, a block at a time, each with the index of its first.
#[inline(always)]
fn estimates<C: Cell>(hashes: &[Hash], columns: usize, table: &[C], len: usize, visit: impl FnMut(usize, &[f32])) {
    match hashes.len() {
        1 => estimates_of(1, hashes, columns, table, len, visit),
        3 => estimates_of(3, hashes, columns, table, len, visit),
        5 => estimates_of(5, hashes, columns, table, len, visit),
        7 => estimates_of(7, hashes, columns, table, len, visit),
        rows => estimates_of(rows, hashes, columns, table, len, visit),
    }
}

/// `rows` is known where this is compiled, for the usual numbers of them.
#[inline(always)]
fn estimates_of<C: Cell>(
    rows: usize,
    hashes: &[Hash],
    columns: usize,
    table: &[C],
    len: usize,
    mut visit: impl FnMut(usize, &[f32]),
) {
    let length = block_of(columns);
    let mut read = [[0f32; BLOCK]; MOST_ROWS];
    let mut found = [0f32; BLOCK];
    for block in 0..len.div_ceil(length) {
        let count = length.min(len - block * length);
        for ((hash, row), read) in hashes.iter().zip(table.chunks_exact(columns)).zip(&mut read) {
            let Place { start, signs } = hash.place(block, columns);
            match row.get(start..start + BLOCK).and_then(|cells| <&[C; BLOCK]>::try_from(cells).ok()) {
                Some(cells) => {
                    for (i, (read, cell)) in read.iter_mut().zip(cells).enumerate() {
                        *read = flipped(cell.read(), signs, i);
                    }
                }
                None => {
                    for (i, read) in read[..count].iter_mut().enumerate() {
                        *read = flipped(row[around(start + i, columns)].read(), signs, i);
                    }
                }
            }
        }
        for from in (0..BLOCK).step_by(LANES) {
            let mut lanes = [[0f32; LANES]; MOST_ROWS];
            for (lanes, read) in lanes.iter_mut().zip(&read).take(rows) {
                lanes.copy_from_slice(&read[from..from + LANES]);
            }
            found[from..from + LANES].copy_from_slice(&medians(rows, &mut lanes));
        }
        visit(block * length, &found[..count]);
    }
}

/// The medians of columns of `rows` numbers: of an even number the mean of the two in the middle.
///
/// The greatest goes to the end, then the next, until the middle is reached: comparisons without branches, eight columns abreast.
#[inline(always)]
fn medians(rows: usize, lanes: &mut [[f32; LANES]; MOST_ROWS]) -> [f32; LANES] {
    for sorted in 0..=rows / 2 {
        for row in 1..rows - sorted {
            let (lower, upper) = lanes.split_at_mut(row);
            for (low, high) in lower[row - 1].iter_mut().zip(&mut upper[0]) {
                let (a, b) = (*low, *high);
                *low = if b < a { b } else { a };
                *high = if b < a { a } else { b };
            }
        }
    }
    let mut middle = lanes[rows / 2];
    if rows.is_multiple_of(2) {
        for (middle, below) in middle.iter_mut().zip(&lanes[rows / 2 - 1]) {
            *middle = 0.5 * *middle + 0.5 * below;
        }
    }
    middle
}

/// The estimate of one number.
pub(super) fn estimate(hashes: &[Hash], columns: usize, table: &[f32], index: usize) -> f32 {
    let length = block_of(columns);
    let mut lanes = [[0f32; LANES]; MOST_ROWS];
    for ((hash, row), lanes) in hashes.iter().zip(table.chunks_exact(columns)).zip(&mut lanes) {
        let Place { start, signs } = hash.place(index / length, columns);
        lanes[0] = flipped(row[around(start + index % length, columns)], signs, index % length);
    }
    medians(hashes.len(), &mut lanes)[0]
}

/// Up to `wanted` numbers of the greatest magnitudes of those that it has seen; of equal ones the first.
#[derive(Debug, Default)]
pub(super) struct Heaviest {
    wanted: usize,
    /// The bits of the least magnitude that is still of interest.
    least: u32,
    found: Vec<(u32, f32)>,
}

impl Heaviest {
    /// Starts anew: `wanted` numbers at the most, whose magnitudes have at least these bits.
    pub(super) fn reset(&mut self, wanted: usize, least: u32) {
        // Of no number wanted none is of interest.
        (self.wanted, self.least) = (wanted, if wanted == 0 { u32::MAX } else { least });
        self.found.clear();
    }

    #[inline(always)]
    fn see(&mut self, start: usize, numbers: &[f32]) {
        let least = self.least;
        if numbers.iter().fold(false, |any, &x| any | (magnitude(x) >= least)) {
            self.take(start, numbers);
        }
    }

    #[inline(never)]
    fn take(&mut self, start: usize, numbers: &[f32]) {
        let numbers = (start as u32..).zip(numbers.iter().copied());
        self.found.extend(numbers.filter(|(_, x)| magnitude(*x) >= self.least));
        if self.found.len() >= (2 * self.wanted).max(4096) {
            self.prune();
        }
    }

    /// Drops all but the `wanted` greatest. What comes later must exceed the least of them: an equal one has a higher index.
    fn prune(&mut self) {
        if self.found.len() > self.wanted {
            let order = |a: &(u32, f32), b: &(u32, f32)| magnitude(b.1).cmp(&magnitude(a.1)).then(a.0.cmp(&b.0));
            let (_, last, _) = self.found.select_nth_unstable_by(self.wanted - 1, order);
            self.least = magnitude(last.1) + 1;
            self.found.truncate(self.wanted);
        }
    }

    /// Their indices, ascending.
    pub(super) fn indices(&mut self) -> impl ExactSizeIterator<Item = u32> {
        self.prune();
        self.found.sort_unstable_by_key(|(index, _)| *index);
        self.found.iter().map(|(index, _)| *index)
    }
}

/// The bits of |x|, which are in the same order.
#[inline(always)]
fn magnitude(x: f32) -> u32 {
    x.to_bits() & 0x7FFF_FFFF
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    #[test]
    fn medians_are_those_of_sorted_numbers() {
        let mut random = Stream::new(1, Purpose::Test).sequence();
        for rows in 1..=MOST_ROWS {
            for _ in 0..200 {
                let mut lanes = [[0f32; LANES]; MOST_ROWS];
                lanes.iter_mut().take(rows).flatten().for_each(|x| *x = (random.below(9) as f32) - 4.0);
                let before = lanes;
                let found = medians(rows, &mut lanes);
                for (lane, found) in found.into_iter().enumerate() {
                    let mut column: Vec<f32> = before[..rows].iter().map(|row| row[lane]).collect();
                    column.sort_unstable_by(f32::total_cmp);
                    let expected =
                        if rows % 2 == 1 { column[rows / 2] } else { (column[rows / 2] + column[rows / 2 - 1]) / 2.0 };
                    assert_eq!(found, expected, "{column:?}");
                }
            }
        }
    }

    #[test]
    fn the_heaviest_are_kept_whatever_the_order() {
        let mut random = Stream::new(2, Purpose::Test).sequence();
        for (len, wanted) in [(10, 3), (20_000, 1), (20_000, 100), (30_000, 9000), (50, 50), (50, 80), (50, 0)] {
            let x: Vec<f32> = (0..len).map(|_| random.below(5000) as f32 - 2500.0).collect();
            let mut ascending = x.clone();
            ascending.sort_unstable_by(|a, b| a.abs().total_cmp(&b.abs()));
            for x in [x, ascending] {
                let mut order: Vec<u32> = (0..len as u32).collect();
                order.sort_by(|&a, &b| x[b as usize].abs().total_cmp(&x[a as usize].abs()));
                let mut expected = order[..wanted.min(len)].to_vec();
                expected.sort_unstable();
                let mut heaviest = Heaviest::default();
                heaviest.reset(wanted, 0);
                x.chunks(BLOCK).enumerate().for_each(|(i, numbers)| heaviest.see(i * BLOCK, numbers));
                assert_eq!(heaviest.indices().collect::<Vec<_>>(), expected);
            }
        }
    }
}
