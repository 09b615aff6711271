//! The k-th greatest magnitude of a vector, exactly, in two or three passes and without extra
//! memory.
//!
//! Magnitudes are compared as the bits of |x|, which have the same order. A sample brackets the
//! answer; each pass counts the numbers above the bracket and sorts those inside into bins, and the
//! bin with the answer is the next bracket, until it holds a single magnitude. Few numbers are
//! inside, so a pass costs little more than reading. If the sample is misleading (or all numbers
//! are equal) the passes are slower, at most four of them, and the result is the same.

use super::kernel::kernel;
use crate::rng::mix64;

const BINS: usize = 4096;
/// Numbers of a sample. The width of the bracket falls with their inverse square root, and so does
/// the number of numbers sorted into bins.
const SAMPLE: usize = 16_384;
const BLOCK: usize = 16;

/// The bits of infinity: those of every finite magnitude are below.
const INFINITE: u32 = 0x7F80_0000;

/// The k-th greatest magnitude.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    /// Its bits.
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
/// infinity.
pub(super) fn cut(v: &[f32], k: usize) -> Option<Cut> {
    let mut bins = [0u32; BINS];
    let (mut low, mut width) = bracket(v, k);
    let mut is_checked = false;
    loop {
        // Bins of 2^shift magnitudes, as small as the bracket allows.
        let shift = (32 - (width - 1).leading_zeros()).saturating_sub(BINS.ilog2());
        bins.fill(0);
        let (above, is_finite) = tally(v, low, width, shift, &mut bins);
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
    }
}

/// An estimate: the lowest magnitude and the width of a range that probably holds the `k`-th
/// greatest, and little else.
fn bracket(v: &[f32], k: usize) -> (u32, u32) {
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
    /// 2^shift. Returns the first count and whether all are finite.
    fn tally(v: &[f32], low: u32, width: u32, shift: u32, bins: &mut [u32; BINS]) -> (usize, bool) {
        let end = low + width;
        // Counted in lanes, summed at the end: per block only comparisons and one test whether a
        // number is inside.
        let (mut over, mut greatest) = ([0u32; BLOCK], [0i32; BLOCK]);
        let (blocks, rest) = v.as_chunks::<BLOCK>();
        for block in blocks {
            let mut inside = 0;
            for ((&x, over), greatest) in block.iter().zip(&mut over).zip(&mut greatest) {
                let magnitude = magnitude(x) as i32;
                let is_over = u32::from(magnitude >= end as i32);
                *over += is_over;
                *greatest = if magnitude > *greatest { magnitude } else { *greatest };
                inside |= u32::from(magnitude >= low as i32) & (is_over ^ 1);
            }
            if inside != 0 {
                sort_in(block, low, width, shift, bins);
            }
        }
        let mut above: usize = over.iter().map(|over| *over as usize).sum();
        let mut greatest = greatest.iter().fold(0, |a, &b| if b > a { b } else { a });
        for &x in rest {
            let magnitude = magnitude(x);
            above += usize::from(magnitude >= end);
            greatest = if magnitude as i32 > greatest { magnitude as i32 } else { greatest };
        }
        sort_in(rest, low, width, shift, bins);
        (above, greatest < INFINITE as i32)
    }
}

#[inline(always)]
fn sort_in(x: &[f32], low: u32, width: u32, shift: u32, bins: &mut [u32; BINS]) {
    for &x in x {
        let place = magnitude(x).wrapping_sub(low);
        if place < width {
            bins[(place >> shift) as usize % BINS] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rng::{Purpose, Stream};

    /// The reference: sorts everything.
    fn sorted(v: &[f32], k: usize) -> Cut {
        let mut all: Vec<u32> = v.iter().map(|x| magnitude(*x)).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let greater = all.iter().filter(|m| **m > all[k - 1]).count();
        Cut { magnitude: all[k - 1], ties: k - greater }
    }

    fn agree(v: &[f32]) {
        for k in [1, 2, v.len() / 100, v.len() / 2, v.len() - 1, v.len()] {
            if (1..=v.len()).contains(&k) {
                assert_eq!(cut(v, k), Some(sorted(v, k)), "k = {k} of {}", v.len());
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

    #[test]
    fn what_is_not_finite_is_noticed() {
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for len in [1, 31, 33, 5000] {
                let mut v = vec![1.0; len];
                v[len / 2] = bad;
                assert_eq!(cut(&v, 1), None);
                assert_eq!(cut(&v, len), None);
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
                prop_assert_eq!(cut(&v, k), Some(sorted(&v, k)));
            }
        }
    }
}
