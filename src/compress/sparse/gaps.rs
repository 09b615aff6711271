//! Gaps between the indices of random-k, several at once.
//!
//! Method A walks to the least gap g with P(g) <= u, where u is uniform in (0, 1] and P(g) is the
//! product of (others - i) / (left - i) over i = 0..=g: `left` numbers are left, `others` of them
//! will not be chosen. These factors hardly differ from the first, r, so that ln u / ln r, rounded
//! down, is nearly always g, also for the next choices. It is sure if no whole number is nearer
//! than all errors together; the caller walks the other gaps. So the choice is that of the walk, to
//! the index, and the logarithms need not be exact.

use crate::{compress::kernel::kernel, rng::Sequence, vector::update};

/// Gaps that are tried together.
pub(super) const LANES: usize = 16;
/// Uniform numbers that are drawn together.
pub(super) const BATCH: usize = 4 * LANES;

/// A bound on the rounding errors of `f32`, with room: relative, and in a logarithm.
const ROUNDING: f32 = 5e-6;
/// The greatest gap that can be sure. Sums of [`LANES`] of them are exact in `f32`.
const MOST: f32 = 1e6;
/// Added to a number below 2^22, it rounds it to a whole number, which is in the low bits.
const WHOLE: f32 = 12_582_912.0;

kernel! {
    /// Draws numbers in (0, 1] and takes their logarithms.
    pub(super) fn draw(random: &mut Sequence, at: &mut [f64; BATCH], logs: &mut [f32; BATCH]) {
        for at in at.iter_mut() {
            *at = 1.0 - random.uniform();
        }
        update(logs, at, |log, at| *log = ln(*at as f32));
    }

    /// The gaps of the lanes from `first` on, from the logarithms of their uniform numbers, before
    /// which `wanted` of `left` numbers are to be chosen. Returns the first lane that is not sure,
    /// and how many numbers lie up to and with each chosen one.
    pub(super) fn sure(
        logs: &[f32; LANES], first: usize, left: f64, wanted: f64,
    ) -> (usize, [u32; LANES]) {
        let others = left - wanted;
        let slope = -1.0 / ln((others / left) as f32);
        let (per_left, per_other) = ((1.0 / left) as f32, (1.0 / others) as f32);
        let (mut ends, mut parts, mut taken) = ([0; LANES], [0.0; LANES], [0.0; LANES]);
        for i in 0..LANES {
            let steps = -logs[i] * slope;
            let bounded = if (0.0..MOST).contains(&steps) { steps } else { MOST };
            let gap = (bounded - 0.5 + WHOLE).to_bits() - WHOLE.to_bits();
            ends[i] = if i < first { 0 } else { gap + 1 };
            taken[i] = (gap + 1) as i32 as f32;
            parts[i] = steps - gap as i32 as f32;
        }
        add_before::<1>(&mut ends);
        add_before::<2>(&mut ends);
        add_before::<4>(&mut ends);
        add_before::<8>(&mut ends);
        let mut sure = 0u32;
        for i in 0..LANES {
            // The numbers passed before this gap, and those of them that were not chosen. With a
            // and b, their parts of `left` and `others`, |ln(1 - a) + a| <= a^2 up to 1/2, so that
            // a factor's logarithm differs from ln r by at most |a - b| + a^2 + b^2, at every step
            // of the walk.
            let end = ends[i] as i32 as f32;
            let before = end - taken[i];
            let passed = before - (i as i32 - first as i32) as f32;
            let drift = before * per_left - passed * per_other;
            let far = end * per_other;
            let later = taken[i] * (per_other - per_left);
            let factor = drift.abs() + later + 2.0 * far * far + ROUNDING;
            let error = taken[i] * (factor * slope + ROUNDING);
            let is_sure = (far < 0.5) & (parts[i] > error) & (parts[i] < 1.0 - error);
            sure |= u32::from(is_sure) << i;
        }
        (first + (!(sure >> first)).trailing_zeros() as usize, ends)
    }
}

/// Adds to each number the one `N` lanes before.
#[inline(always)]
fn add_before<const N: usize>(ends: &mut [u32; LANES]) {
    let before = *ends;
    for i in N..LANES {
        ends[i] += before[i - N];
    }
}

/// The logarithm of a normal number up to 1, up to 1e-6 of it and 1e-7: with s = (m - 1) / (m + 1)
/// for the mantissa m, ln m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172.
#[inline(always)]
fn ln(x: f32) -> f32 {
    let bits = x.to_bits() as i32;
    // m is between the square roots of 1/2 and 2.
    let power = (bits - std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32) >> 23;
    let m = f32::from_bits((bits - (power << 23)) as u32);
    let s = (m - 1.0) / (m + 1.0);
    let t = s * s;
    let series = s * (2.0 + t * (2.0 / 3.0 + t * (2.0 / 5.0 + t * (2.0 / 7.0))));
    power as f32 * std::f32::consts::LN_2 + series
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    #[test]
    fn logarithms_are_as_near_as_stated() {
        let noise = Stream::new(1, Purpose::Test);
        let near_one = (0..1000u32).map(|i| f32::from_bits(1f32.to_bits() - i));
        let powers = (0..54).map(|i| libm::exp2(-f64::from(i)) as f32);
        let random = (0..200_000).map(|i| libm::exp(-37.0 * noise.f64_at(i)) as f32);
        for x in near_one.chain(powers).chain(random) {
            let exact = libm::log(f64::from(x));
            let error = (f64::from(ln(x)) - exact).abs();
            assert!(error <= 1e-6 * exact.abs() + 1e-7, "ln {x}: {error}");
        }
    }
}
