//! IEEE 754 half precision: `f16`.
//!
//! Saturates: numbers that would round to infinity become +-65504. The relative error is at most
//! 2^-11 from 6.1e-5 to 65504 in magnitude; below that the grid has steps of 6e-8, and numbers
//! below 3e-8 are lost, so delta is 0 in the worst case over all vectors. Differences of models
//! near their optimum can be that small: `bf16` has the exponents of `f32`.

use super::half_precision::{self, Half, HalfPrecision};
use crate::compress::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "f16",
    summary: "half precision: 16 bits each, saturating at 65504",
    paper: "IEEE 754-2008, binary16",
    class_words: "contraction (relative error 2^-11 from 6.1e-5 to 65504)",
    build: |table| Built::without_constants(ENTRY.name, HalfPrecision(F16), table),
    ..half_precision::FORMAT
};

#[derive(Debug)]
struct F16;

/// The bits of the greatest number, of the least normal one, and of the float in which the last
/// bit counts as much as in a subnormal half.
const GREATEST: u32 = 65504f32.to_bits();
const NORMAL: u32 = 0x3880_0000;
const SUBNORMALS: f32 = 0.5;

/// How much greater the exponent of a float is, in its bits.
const BIAS: u32 = (127 - 15) << 23;

impl Half for F16 {
    const NAME: &'static str = ENTRY.name;

    const DELTA: f64 = 0.0;

    const INFINITE: u16 = 0x7C00;

    #[inline(always)]
    fn encode(v: &[f32], out: &mut Vec<u8>) -> bool {
        encode(v, out)
    }

    #[inline(always)]
    fn add(bytes: &[u8], weight: f32, acc: &mut [f32]) {
        add(bytes, weight, acc);
    }
}

kernel! {
    /// Appends all numbers, or returns false if one is a NaN or an infinity.
    fn encode(v: &[f32], out: &mut Vec<u8>) -> bool {
        half_precision::encode(v, out, |magnitude| {
            let m = if magnitude > GREATEST { GREATEST } else { magnitude };
            let normal = m.wrapping_sub(BIAS).wrapping_add(0xFFF + (m >> 13 & 1)) >> 13;
            // The addition rounds.
            let sum = (f32::from_bits(m) + SUBNORMALS).to_bits();
            let subnormal = sum.wrapping_sub(SUBNORMALS.to_bits());
            if m < NORMAL { subnormal } else { normal }
        })
    }

    fn add(bytes: &[u8], weight: f32, acc: &mut [f32]) {
        update(acc, bytes.as_chunks().0, |a, word| {
            let bits = u32::from(u16::from_le_bytes(*word));
            let m = bits & 0x7FFF;
            let normal = (m << 13) + BIAS;
            let subnormal = f32::from_bits(m | SUBNORMALS.to_bits()) - SUBNORMALS;
            let x = if m < 0x400 { subnormal.to_bits() } else { normal };
            *a += weight * f32::from_bits(x | (bits & 0x8000) << 16);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    #[test]
    fn agrees_with_the_half_crate_but_saturates() {
        let stream = Stream::new(5, Purpose::Test);
        let random =
            (0..20_000).map(|i| f32::from_bits(stream.u64_at(i) as u32)).filter(|x| x.is_finite());
        // Each half, each middle of two, and the floats beside both.
        let halves = (0..0x7C00).map(|bits| half::f16::from_bits(bits).to_f32());
        let around = halves.clone().zip(halves.skip(1)).flat_map(|(x, next)| {
            [x, x.midpoint(next)].into_iter().flat_map(|x| [x.next_down(), x, x.next_up(), -x])
        });
        let v: Vec<f32> = random.chain(around).chain([65_519.9, 65_520.0, f32::MAX]).collect();
        let mut bytes = Vec::new();
        assert!(encode(&v, &mut bytes));
        let mut back = vec![-0.0; v.len()];
        add(&bytes, 1.0, &mut back);
        for ((x, word), back) in v.iter().zip(bytes.as_chunks::<2>().0).zip(back) {
            let want = half::f16::from_f32(x.clamp(-65504.0, 65504.0));
            assert_eq!(u16::from_le_bytes(*word), want.to_bits(), "{x:e}");
            assert_eq!(back.to_bits(), want.to_f32().to_bits(), "{x:e}");
        }
        assert!(!encode(&[1.0, f32::NAN], &mut bytes) && !encode(&[f32::INFINITY], &mut bytes));
    }
}
