//! The k-th greatest magnitude of a vector, exactly, mostly in one pass, and without memory of its
//! own.
//!
//! Magnitudes are compared as the bits of |x|, which have the same order. A sample brackets the
//! answer; each pass counts the numbers above the bracket and sorts those inside into bins, and the
//! bin with the answer is the next bracket, until it holds a single magnitude or the caller has
//! room for all that are inside. These are few, so a pass costs little more than reading. If the
//! sample is misleading (or all numbers are equal) the passes are slower, at most four of them, and
//! the result is the same.

use std::cmp::Reverse;

use crate::{compress::kernel::kernel, rng::mix64, vector::update};

const BINS: usize = 4096;
/// Numbers of a sample. The width of the bracket falls with their inverse square root, and so does
/// the number of numbers sorted into bins.
const SAMPLE: usize = 16_384;

/// The bits of infinity: those of every finite magnitude are below.
const INFINITE: u32 = 0x7F80_0000;

/// The k-th greatest magnitude of a vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// Its bits, as [`magnitude`] has them.
    pub(super) magnitude: u32,
    /// How many of the k have exactly this magnitude; the others are greater.
    pub(super) ties: usize,
}

/// The bits of |x|.
#[inline(always)]
pub(super) fn magnitude(x: f32) -> u32 {
    x.to_bits() & 0x7FFF_FFFF
}

/// The `k`-th greatest magnitude of `v`, 1 <= k <= v.len() < 2^32; `None` if `v` holds a NaN or an
/// infinity. If the magnitudes inside the first bracket fit into `room`, one pass over `v` is
/// enough.
pub(super) fn cut(v: &[f32], k: usize, room: &mut [[u8; 4]]) -> Option<Cut> {
    cut_with::<BINS, SAMPLE>(v, k, room)
}

/// [`cut`] for at most some ten thousand numbers: clearing its tables takes less time than reading
/// them.
pub(super) fn cut_of_chunk(v: &[f32], k: usize, room: &mut [[u8; 4]]) -> Option<Cut> {
    cut_with::<256, 512>(v, k, room)
}

fn cut_with<const BINS: usize, const SAMPLE: usize>(
    v: &[f32],
    k: usize,
    room: &mut [[u8; 4]],
) -> Option<Cut> {
    let mut bins = [0u32; BINS];
    let (mut low, mut width) = bracket::<SAMPLE>(v, k);
    let mut is_checked = false;
    loop {
        // Bins of 2^shift magnitudes, as small as the bracket allows.
        let shift = (32 - (width - 1).leading_zeros()).saturating_sub(BINS.ilog2());
        bins.fill(0);
        let (above, is_finite) = tally(v, low, width, shift, &mut bins, room);
        if !is_checked && !is_finite {
            return None;
        }
        is_checked = true;
        let inside: usize = bins.iter().map(|count| *count as usize).sum();
        if above >= k || above + inside < k {
            (low, width) = (0, INFINITE);
            continue;
        }
        let mut above = above;
        let mut bin = BINS - 1;
        while above + (bins[bin] as usize) < k {
            above += bins[bin] as usize;
            bin -= 1;
        }
        let from = (bin as u32) << shift;
        (low, width) = (low + from, (1 << shift).min(width - from));
        if width == 1 {
            return Some(Cut { magnitude: low, ties: k - above });
        }
        if let Some(inside) = room.get_mut(..inside) {
            return Some(cut_among(inside, low, width, k - above));
        }
    }
}

/// The `k`-th greatest of those among the magnitudes that are in this bracket.
fn cut_among(magnitudes: &mut [[u8; 4]], low: u32, width: u32, k: usize) -> Cut {
    let mut count = 0;
    for i in 0..magnitudes.len() {
        if u32::from_le_bytes(magnitudes[i]).wrapping_sub(low) < width {
            magnitudes[count] = magnitudes[i];
            count += 1;
        }
    }
    let key = |bytes: &[u8; 4]| Reverse(u32::from_le_bytes(*bytes));
    let (before, found, _) = magnitudes[..count].select_nth_unstable_by_key(k - 1, key);
    let ties = 1 + before.iter().filter(|bytes| *bytes == found).count();
    Cut { magnitude: u32::from_le_bytes(*found), ties }
}

/// An estimate: the lowest magnitude and the width of a range that probably holds the `k`-th
/// greatest, and little else.
fn bracket<const SAMPLE: usize>(v: &[f32], k: usize) -> (u32, u32) {
    let count = (v.len() / 32).min(SAMPLE);
    if count < 64 {
        return (0, INFINITE);
    }
    let mut sample = [0u32; SAMPLE];
    let sample = &mut sample[..count];
    let stride = v.len() / count;
    for (i, kept) in sample.iter_mut().enumerate() {
        // At a random position within its stride, so that a periodic vector does not bias the
        // sample.
        *kept = magnitude(v[i * stride + (mix64(i as u64) % stride as u64) as usize]);
    }
    let fraction = k as f64 / v.len() as f64;
    let rank = fraction * count as f64;
    let spread = 4.0 * (rank * (1.0 - fraction)).sqrt() + 3.0;
    let mut ranked = |rank: f64| *sample.select_nth_unstable_by(rank as usize, |a, b| b.cmp(a)).1;
    let high = if rank > spread { ranked(rank - spread).min(INFINITE - 1) } else { INFINITE - 1 };
    let low = if rank + spread < count as f64 { ranked(rank + spread).min(high) } else { 0 };
    (low, high - low + 1)
}

kernel! {
    /// Counts the magnitudes from `low + width` on, and those below it from `low` on into bins of
    /// 2^shift; writes as many of the latter into `room` as fit. Returns the first count and
    /// whether all are finite.
    fn tally(
        v: &[f32], low: u32, width: u32, shift: u32, bins: &mut [u32], room: &mut [[u8; 4]],
    ) -> (usize, bool) {
        let end = (low + width) as i32;
        // In lanes, summed at the end.
        let (mut over, mut greatest) = ([0u32; MASK], [0i32; MASK]);
        let inside = |block: &[f32; MASK]| {
            let mut inside = 0;
            for i in 0..MASK {
                let magnitude = magnitude(block[i]) as i32;
                let is_over = u32::from(magnitude >= end);
                over[i] += is_over;
                greatest[i] = if magnitude > greatest[i] { magnitude } else { greatest[i] };
                inside |= (u32::from(magnitude >= low as i32) & (is_over ^ 1)) << i;
            }
            inside
        };
        compact(v, inside, |position, run| {
            let mut room = room.get_mut(position..).unwrap_or_default().iter_mut();
            for &index in run {
                let magnitude = magnitude(v[index as usize]);
                bins[((magnitude - low) >> shift) as usize & (bins.len() - 1)] += 1;
                if let Some(free) = room.next() {
                    *free = magnitude.to_le_bytes();
                }
            }
        });
        let over = over.iter().map(|over| *over as usize).sum();
        (over, greatest.iter().all(|&greatest| greatest < INFINITE as i32))
    }
}

/// Numbers compared together, one bit of a mask each.
const MASK: usize = 32;
/// Indices that are passed on together, while their numbers are in the nearest cache.
const RUN: usize = 1024;

/// For each byte, which of its bits are set, in ascending order.
const BITS: [[u8; 8]; 256] = {
    let (mut bits, mut byte) = ([[0; 8]; 256], 0);
    while byte < 256 {
        let (mut bit, mut count) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                bits[byte][count] = bit as u8;
                count += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    bits
};

/// Calls `visit` with the indices of the k numbers that `cut` keeps, ascending, in runs, and with
/// the position of a run's first among them, a multiple of [`RUN`].
#[inline(always)]
pub(super) fn visit_kept(v: &[f32], cut: Cut, visit: impl FnMut(usize, &[u32])) {
    let mut ties = cut.ties;
    let kept = |block: &[f32; MASK]| {
        let (mut above, mut equal) = (0u32, 0u32);
        for (i, &x) in block.iter().enumerate() {
            let magnitude = magnitude(x) as i32;
            above |= u32::from(magnitude > cut.magnitude as i32) << i;
            equal |= u32::from(magnitude == cut.magnitude as i32) << i;
        }
        let count = equal.count_ones() as usize;
        if count <= ties {
            ties -= count;
            return above | equal;
        }
        while ties > 0 {
            above |= equal & equal.wrapping_neg();
            equal &= equal - 1;
            ties -= 1;
        }
        above
    };
    compact(v, kept, visit);
}

/// Calls `visit` with the indices of the numbers that `mask` selects, as in [`visit_kept`]. For
/// each byte of a mask, eight places of the run are written and as many kept as bits are set: no
/// branch depends on a number.
#[inline(always)]
fn compact(
    v: &[f32],
    mut mask: impl FnMut(&[f32; MASK]) -> u32,
    mut visit: impl FnMut(usize, &[u32]),
) {
    let (blocks, rest) = v.as_chunks::<MASK>();
    let (mut last, present) = ([0.0; MASK], (1 << rest.len()) - 1);
    last[..rest.len()].copy_from_slice(rest);
    let (mut run, mut held, mut position) = ([0u32; RUN + MASK + 8], 0, 0);
    for number in 0..=blocks.len() {
        let mask = match blocks.get(number) {
            Some(block) => mask(block),
            None => mask(&last) & present,
        };
        for (part, byte) in mask.to_le_bytes().into_iter().enumerate() {
            let first = (number * MASK + part * 8) as u32;
            update(&mut run[held..held + 8], &BITS[usize::from(byte)], |place, &bit| {
                *place = first + u32::from(bit);
            });
            held += byte.count_ones() as usize;
        }
        let is_last = number == blocks.len();
        if held >= RUN || is_last {
            let full = if is_last { held } else { RUN };
            visit(position, &run[..full]);
            run.copy_within(full..held, 0);
            (position, held) = (position + full, held - full);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compress::kernel::plainly;
    use crate::rng::{Purpose, Stream};

    /// The reference: it sorts the whole vector.
    fn sorted(v: &[f32], k: usize) -> Cut {
        let mut all: Vec<u32> = v.iter().map(|x| magnitude(*x)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let greater = all.iter().filter(|m| **m > all[k - 1]).count();
        Cut { magnitude: all[k - 1], ties: k - greater }
    }

    fn agree(v: &[f32]) {
        for k in [1, 2, v.len() / 100, v.len() / 2, v.len() - 1, v.len()] {
            if (1..=v.len()).contains(&k) {
                for room in [0, v.len() / 2, v.len()] {
                    let found = cut(v, k, &mut vec![[0; 4]; room]);
                    assert_eq!(found, Some(sorted(v, k)), "k = {k} of {}, {room}", v.len());
                }
            }
        }
    }

    #[test]
    fn exact_on_friendly_and_hostile_vectors() {
        let mut normal = Stream::new(1, Purpose::Test).sequence();
        let gaussian: Vec<f32> = (0..50_000).map(|_| normal.normal() as f32).collect();
        agree(&gaussian);
        agree(&vec![1.5; 50_000]);
        agree(&vec![0.0; 50_000]);
        agree(&(0..50_000).map(|i| i as f32).collect::<Vec<_>>());
        agree(&(0..50_000).map(|i| f32::from_bits((i * 40_000) as u32)).collect::<Vec<_>>());
        agree(&(0..50_000).map(|i| if i % 97 == 0 { -3e38 } else { 1e-40 }).collect::<Vec<_>>());
        // The sampled positions differ from all others.
        let (count, stride) = (50_000 / 32, 50_000 / (50_000 / 32));
        let mut misleading = gaussian;
        for i in 0..count {
            misleading[i * stride + (mix64(i as u64) % stride as u64) as usize] = 1e-30;
        }
        agree(&misleading);
    }

    kernel! {
        fn kept(v: &[f32], cut: Cut) -> Vec<u32> {
            let mut all = Vec::new();
            visit_kept(v, cut, |position, run| {
                assert_eq!(position, all.len());
                all.extend_from_slice(run);
            });
            all
        }
    }

    #[test]
    fn the_greatest_are_kept_and_of_equals_the_first() {
        let mut random = Stream::new(2, Purpose::Test).sequence();
        for len in (1..200).chain(2 * RUN - 40..2 * RUN + 40) {
            let values = 1 + random.below(300);
            let v: Vec<f32> = (0..len).map(|_| random.below(values) as f32 - 9.0).collect();
            for k in [1, len / 10, len / 2, RUN.min(len), len - 1, len] {
                let k = k.max(1);
                let mut order: Vec<u32> = (0..len as u32).collect();
                order.sort_by_key(|&i| Reverse(magnitude(v[i as usize])));
                order.truncate(k);
                order.sort_unstable();
                let cut = cut(&v, k, &mut []).unwrap();
                assert!(kept(&v, cut) == order, "{k} of {len}");
                assert!(plainly(|| kept(&v, cut)) == order, "{k} of {len}, plain");
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_noticed() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for len in [1, 31, 33, 5000] {
                let mut v = vec![1.0; len];
                v[len / 2] = bad;
                assert_eq!(cut(&v, 1, &mut []), None);
                assert_eq!(cut(&v, len, &mut [[0; 4]; 10]), None);
            }
        }
    }

    proptest! {
        #[test]
        fn exact_on_any_bits(
            bits in prop::collection::vec(any::<u32>(), 1..300),
            at in 0.0..1.0f64,
        ) {
            let finite = |b: &u32| Some(f32::from_bits(*b)).filter(|x| x.is_finite());
            let v: Vec<f32> = bits.iter().filter_map(finite).collect();
            if !v.is_empty() {
                let k = 1 + (at * v.len() as f64) as usize % v.len();
                prop_assert_eq!(cut(&v, k, &mut []), Some(sorted(&v, k)));
                prop_assert_eq!(cut(&v, k, &mut [[0; 4]; 300]), Some(sorted(&v, k)));
            }
        }
    }
}
