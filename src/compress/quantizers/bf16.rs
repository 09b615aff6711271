//! The upper half of an `f32`: `bf16`.
//!
//! Saturates: numbers that would round to infinity become the greatest finite number, 3.39e38. The
//! relative error is at most 2^-8 over the whole range of normal `f32`, hence delta = 1 - 2^-16.

use super::half_precision::{self, Half, HalfPrecision};
use crate::compress::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "bf16",
    summary: "the upper half of each float: 16 bits, the exponents of f32",
    paper: "Kalamkar et al. 2019, A Study of BFLOAT16 for Deep Learning Training",
    class_words: "contraction (relative error 2^-8)",
    build: |table| Built::without_constants(ENTRY.name, HalfPrecision(Bf16), table),
    ..half_precision::FORMAT
};

#[derive(Debug)]
struct Bf16;

impl Half for Bf16 {
    const NAME: &'static str = ENTRY.name;

    const DELTA: f64 = 1.0 - 1.0 / 65536.0;

    const INFINITE: u16 = 0x7F80;

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
            let upper = (magnitude + 0x7FFF + (magnitude >> 16 & 1)) >> 16;
            let most = u32::from(Bf16::INFINITE) - 1;
            if upper > most { most } else { upper }
        })
    }

    fn add(bytes: &[u8], weight: f32, acc: &mut [f32]) {
        update(acc, bytes.as_chunks().0, |a, word| {
            *a += weight * f32::from_bits(u32::from(u16::from_le_bytes(*word)) << 16);
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
        let edges = [
            0.0,
            -0.0,
            1.0,
            f32::MAX,
            -f32::MAX,
            1.0 + 1.0 / 256.0,
            1.0 + 3.0 / 256.0,
            f32::from_bits(1),
        ];
        let v: Vec<f32> = edges.into_iter().chain(random).collect();
        let mut out = Vec::new();
        assert!(Bf16::encode(&v, &mut out));
        for (x, word) in v.iter().zip(out.as_chunks::<2>().0) {
            let exact = half::bf16::from_f32(*x);
            let expected =
                if exact.is_infinite() { half::bf16::MAX.copysign(exact) } else { exact };
            assert_eq!(u16::from_le_bytes(*word), expected.to_bits(), "{x}");
        }
    }
}
