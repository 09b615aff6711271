//! The loops over a sketch's table: rows of cells, one row after another. Cells are `f32`, or their
//! bytes in a frame.
//!
//! Each cell receives its numbers in ascending order of index, so a table is the same to the bit at
//! every dispatch level.

use super::hashing::{BLOCK, Hash, Place, Walk, block_of};
use crate::{
    compress::{NonFinite, kernel::kernel},
    vector::update,
};

/// The most rows of a sketch.
pub(super) const MOST_ROWS: usize = 15;

/// Numbers that are added to one row after another while they are in the cache.
const TILE: usize = 1 << 16;

/// Numbers that are estimated together, a multiple of all block lengths: few enough that all rows
/// fit the first-level cache.
const CHUNK: usize = 512;

/// Numbers whose estimates are sorted in parallel.
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
    /// Adds `v` to a table of floats, or reports a number of `v` that is not finite; the table then
    /// holds a part of `v`.
    pub(super) fn accumulate(
        v: &[f32],
        hashes: &[Hash],
        columns: usize,
        table: &mut [f32],
    ) -> Result<(), NonFinite> {
        accumulate_into(v, hashes, columns, table)
    }

    /// As [`accumulate`], for a table in a frame.
    pub(super) fn accumulate_bytes(
        v: &[f32],
        hashes: &[Hash],
        columns: usize,
        table: &mut [[u8; 4]],
    ) -> Result<(), NonFinite> {
        accumulate_into(v, hashes, columns, table)
    }

    /// Writes the estimates of all numbers.
    pub(super) fn estimate_all(hashes: &[Hash], columns: usize, table: &[f32], out: &mut [f32]) {
        estimates(hashes, columns, table, out.len(), |start, found| {
            out[start..start + found.len()].copy_from_slice(found);
        });
    }

    /// `acc += weight * estimate` for all numbers, from a table in a frame.
    pub(super) fn add_estimates(
        hashes: &[Hash],
        columns: usize,
        table: &[[u8; 4]],
        weight: f32,
        acc: &mut [f32],
    ) {
        estimates(hashes, columns, table, acc.len(), |start, found| {
            update(&mut acc[start..], found, |acc, found| *acc += weight * *found);
        });
    }

    /// Passes the estimates of all numbers to `heaviest`.
    pub(super) fn find_heaviest(
        hashes: &[Hash],
        columns: usize,
        table: &[f32],
        len: usize,
        heaviest: &mut Heaviest,
    ) {
        estimates(hashes, columns, table, len, |start, found| {
            for (block, found) in found.chunks(BLOCK).enumerate() {
                heaviest.see(start + block * BLOCK, found);
            }
        });
    }
}

#[inline(always)]
fn accumulate_into<C: Cell>(
    v: &[f32],
    hashes: &[Hash],
    columns: usize,
    table: &mut [C],
) -> Result<(), NonFinite> {
    for (tile, numbers) in v.chunks(TILE).enumerate() {
        if let Some(NonFinite { index, value }) = NonFinite::first_in(numbers) {
            return Err(NonFinite { index: tile * TILE + index, value });
        }
        for (hash, row) in hashes.iter().zip(table.chunks_exact_mut(columns)) {
            scatter(numbers, tile * TILE, hash, row);
        }
    }
    // Sums of finite numbers may overflow `f32`, but only to an infinity, which becomes the
    // greatest finite number.
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

/// Adds `numbers` to one row. The first has index `offset`, a multiple of all block lengths.
#[inline(always)]
fn scatter<C: Cell>(numbers: &[f32], offset: usize, hash: &Hash, row: &mut [C]) {
    let (columns, length) = (row.len(), block_of(row.len()));
    let mut walk = hash.walk(offset / length);
    for numbers in numbers.chunks(length) {
        let Place { start, signs } = walk.step(columns);
        let cells = row
            .get_mut(start..start + BLOCK)
            .and_then(|cells| <&mut [C; BLOCK]>::try_from(cells).ok());
        match (cells, <&[f32; BLOCK]>::try_from(numbers)) {
            (Some(cells), Ok(numbers)) => {
                for i in 0..BLOCK {
                    cells[i] = C::of(cells[i].read() + flipped(numbers[i], signs, i));
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

/// Wraps the index of a cell at or past the end of a row to the row's start.
#[inline(always)]
pub(super) fn around(cell: usize, columns: usize) -> usize {
    if cell < columns { cell } else { cell - columns }
}

/// Calls `visit` with the estimates of all `len` numbers, in order, one chunk at a time, each with
/// the index of its first number.
#[inline(always)]
fn estimates<C: Cell>(
    hashes: &[Hash],
    columns: usize,
    table: &[C],
    len: usize,
    mut visit: impl FnMut(usize, &[f32]),
) {
    let mut walks = [Walk::default(); MOST_ROWS];
    for (walk, hash) in walks.iter_mut().zip(hashes) {
        *walk = hash.walk(0);
    }
    let (mut keys, mut found) = ([[0i32; CHUNK]; MOST_ROWS], [0f32; CHUNK]);
    for start in (0..len).step_by(CHUNK) {
        let count = CHUNK.min(len - start);
        for (i, row) in table.chunks_exact(columns).enumerate() {
            gather(&mut walks[i], row, &mut keys[i][..count]);
        }
        medians(hashes.len(), &keys, &mut found[..count]);
        visit(start, &found[..count]);
    }
}

/// Writes the keys of one row's estimates of the next numbers.
#[inline(always)]
fn gather<C: Cell>(walk: &mut Walk, row: &[C], keys: &mut [i32]) {
    let columns = row.len();
    for keys in keys.chunks_mut(block_of(columns)) {
        let Place { start, signs } = walk.step(columns);
        let cells =
            row.get(start..start + BLOCK).and_then(|cells| <&[C; BLOCK]>::try_from(cells).ok());
        match (cells, <&mut [i32; BLOCK]>::try_from(&mut *keys)) {
            (Some(cells), Ok(keys)) => {
                for i in 0..BLOCK {
                    keys[i] = key_of(flipped(cells[i].read(), signs, i));
                }
            }
            _ => {
                for (i, key) in keys.iter_mut().enumerate() {
                    *key = key_of(flipped(row[around(start + i, columns)].read(), signs, i));
                }
            }
        }
    }
}

/// An integer with the order of floats: minimum and maximum of two integers are single
/// instructions, where a comparison that swaps two floats compiled to a branch.
#[inline(always)]
fn key_of(x: f32) -> i32 {
    let bits = x.to_bits() as i32;
    bits ^ ((bits >> 31) & i32::MAX)
}

/// The float of a key.
#[inline(always)]
fn float_of(key: i32) -> f32 {
    f32::from_bits((key ^ ((key >> 31) & i32::MAX)) as u32)
}

kernel! {
    /// The medians of columns of `rows` keys; for an even number the mean of the two in the middle.
    fn medians(rows: usize, keys: &[[i32; CHUNK]; MOST_ROWS], found: &mut [f32]) {
        match rows {
            1 => medians_of::<1>(keys, found),
            2 => medians_of::<2>(keys, found),
            3 => medians_of::<3>(keys, found),
            4 => medians_of::<4>(keys, found),
            5 => medians_of::<5>(keys, found),
            6 => medians_of::<6>(keys, found),
            7 => medians_of::<7>(keys, found),
            8 => medians_of::<8>(keys, found),
            9 => medians_of::<9>(keys, found),
            10 => medians_of::<10>(keys, found),
            11 => medians_of::<11>(keys, found),
            12 => medians_of::<12>(keys, found),
            13 => medians_of::<13>(keys, found),
            14 => medians_of::<14>(keys, found),
            _ => medians_of::<15>(keys, found),
        }
    }
}

/// A bubble sort from the greatest value down to the middle: without branches, on eight columns in
/// parallel.
#[inline(always)]
fn medians_of<const R: usize>(keys: &[[i32; CHUNK]; MOST_ROWS], found: &mut [f32]) {
    for (part, found) in found.chunks_mut(LANES).enumerate() {
        let mut lanes = [[0i32; LANES]; R];
        update(&mut lanes, keys, |lanes, keys| *lanes = keys.as_chunks().0[part]);
        for sorted in 0..=R / 2 {
            for row in 1..R - sorted {
                let (lower, upper) = lanes.split_at_mut(row);
                let (low, high) = (&mut lower[row - 1], &mut upper[0]);
                for i in 0..LANES {
                    (low[i], high[i]) = (low[i].min(high[i]), low[i].max(high[i]));
                }
            }
        }
        let mut middle = [0.0; LANES];
        update(&mut middle, &lanes[R / 2], |middle, key| *middle = float_of(*key));
        if R.is_multiple_of(2) {
            update(&mut middle, &lanes[R / 2 - 1], |middle, below| {
                *middle = 0.5 * *middle + 0.5 * float_of(*below);
            });
        }
        found.copy_from_slice(&middle[..found.len()]);
    }
}

/// The estimate of one number.
pub(super) fn estimate(hashes: &[Hash], columns: usize, table: &[f32], index: usize) -> f32 {
    let (block, within) = (index / block_of(columns), index % block_of(columns));
    let mut found = [0f32; MOST_ROWS];
    let found = &mut found[..hashes.len()];
    for ((hash, row), found) in hashes.iter().zip(table.chunks_exact(columns)).zip(found.iter_mut())
    {
        let Place { start, signs } = hash.place(block, columns);
        *found = flipped(row[around(start + within, columns)], signs, within);
    }
    found.sort_unstable_by_key(|x| key_of(*x));
    let middle = found[found.len() / 2];
    if found.len().is_multiple_of(2) {
        0.5 * middle + 0.5 * found[found.len() / 2 - 1]
    } else {
        middle
    }
}

/// The `wanted` numbers of greatest magnitude among those seen; of equal ones the first.
#[derive(Debug, Default)]
pub(super) struct Heaviest {
    wanted: usize,
    /// The bits of the least magnitude that can still be selected.
    least: u32,
    found: Vec<(u32, f32)>,
}

impl Heaviest {
    /// Starts again: selects at most `wanted` numbers, whose magnitudes have at least the bits
    /// `least`.
    pub(super) fn reset(&mut self, wanted: usize, least: u32) {
        // If none is wanted, no magnitude qualifies.
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
        for (i, &x) in numbers.iter().enumerate() {
            if magnitude(x) >= self.least {
                self.found.push(((start + i) as u32, x));
            }
        }
        if self.found.len() >= (2 * self.wanted).max(4096) {
            self.prune();
        }
    }

    /// Drops all but the `wanted` greatest. Later numbers must exceed the least of them, because an
    /// equal one has a higher index.
    fn prune(&mut self) {
        if self.found.len() > self.wanted {
            let order = |a: &(u32, f32), b: &(u32, f32)| {
                magnitude(b.1).cmp(&magnitude(a.1)).then(a.0.cmp(&b.0))
            };
            let (_, last, _) = self.found.select_nth_unstable_by(self.wanted - 1, order);
            self.least = magnitude(last.1) + 1;
            self.found.truncate(self.wanted);
        }
    }

    /// The indices of the entries, ascending.
    pub(super) fn indices(&mut self) -> impl ExactSizeIterator<Item = u32> {
        self.prune();
        self.found.sort_unstable_by_key(|(index, _)| *index);
        self.found.iter().map(|(index, _)| *index)
    }
}

/// The bits of |x|, which have the same order.
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
            let mut numbers = [[0f32; CHUNK]; MOST_ROWS];
            numbers[..rows].iter_mut().flatten().for_each(|x| *x = (random.below(9) as f32) - 4.0);
            for count in [1, 7, 8, 100, CHUNK] {
                let mut found = vec![0f32; count];
                medians(rows, &numbers.map(|row| row.map(key_of)), &mut found);
                for (at, found) in found.into_iter().enumerate() {
                    let mut column: Vec<f32> = numbers[..rows].iter().map(|row| row[at]).collect();
                    column.sort_unstable_by(f32::total_cmp);
                    let (middle, below) = (column[rows / 2], column[(rows - 1) / 2]);
                    assert_eq!(found, (middle + below) / 2.0, "{column:?}");
                }
            }
        }
    }

    #[test]
    fn keys_are_in_the_order_of_their_floats() {
        let floats = [
            -f32::MAX,
            -2.0,
            -1.5,
            -f32::from_bits(1),
            -0.0,
            0.0,
            f32::from_bits(7),
            0.1,
            3.0,
            f32::MAX,
        ];
        assert!(floats.map(key_of).is_sorted_by(|a, b| a < b));
        assert!(floats.iter().all(|x| float_of(key_of(*x)).to_bits() == x.to_bits()));
    }

    #[test]
    fn the_heaviest_are_kept_whatever_the_order() {
        let mut random = Stream::new(2, Purpose::Test).sequence();
        for (len, wanted) in
            [(10, 3), (20_000, 1), (20_000, 100), (30_000, 9000), (50, 50), (50, 80), (50, 0)]
        {
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
                x.chunks(BLOCK)
                    .enumerate()
                    .for_each(|(i, numbers)| heaviest.see(i * BLOCK, numbers));
                assert_eq!(heaviest.indices().collect::<Vec<_>>(), expected);
            }
        }
    }
}
