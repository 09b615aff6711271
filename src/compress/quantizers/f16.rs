//! IEEE 754 half precision: `f16`.
//!
//! Saturates: numbers that would round to infinity become +-65504. The relative error is at most
//! 2^-11 from 6.1e-5 to 65504 in magnitude; below that the grid has steps of 6e-8, and numbers
//! below 3e-8 are lost, so delta is 0 in the worst case over all vectors. Differences of models
//! near their optimum can be that small: `bf16` has the exponents of `f32`.

use half::{
    f16,
    slice::{HalfBitsSliceExt, HalfFloatSliceExt},
};

use super::half_precision::{self, Buffer, CHUNK, Half, HalfPrecision, write_words};
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

const GREATEST: f32 = 65504.0;

impl Half for F16 {
    const NAME: &'static str = ENTRY.name;

    const DELTA: f64 = 0.0;

    const INFINITE: u16 = 0x7C00;

    fn encode(v: &[f32], out: &mut Vec<u8>) -> bool {
        let (mut clamped, mut halves) = (Buffer([0f32; CHUNK]), Buffer([0u16; CHUNK]));
        for chunk in v.chunks(CHUNK) {
            let (clamped, halves) = (&mut clamped.0[..chunk.len()], &mut halves.0[..chunk.len()]);
            if !clamp(chunk, clamped) {
                return false;
            }
            halves.reinterpret_cast_mut::<f16>().convert_from_f32_slice(clamped);
            write_words(halves, out);
        }
        true
    }

    #[inline(always)]
    fn add(bytes: &[u8], weight: f32, acc: &mut [f32]) {
        let (mut halves, mut floats) = (Buffer([0u16; CHUNK]), Buffer([0f32; CHUNK]));
        for (acc, bytes) in acc.chunks_mut(CHUNK).zip(bytes.chunks(2 * CHUNK)) {
            let (halves, floats) = (&mut halves.0[..acc.len()], &mut floats.0[..acc.len()]);
            update(halves, bytes.as_chunks().0, |half, bytes| *half = u16::from_le_bytes(*bytes));
            halves.reinterpret_cast::<f16>().convert_to_f32_slice(floats);
            update(acc, floats, |a, x| *a += weight * *x);
        }
    }
}

kernel! {
    /// Copies `x` into the range of finite halves; false if it holds a NaN or an infinity.
    fn clamp(x: &[f32], out: &mut [f32]) -> bool {
        let mut greatest = 0u32;
        update(out, x, |out, &x| {
            let bits = x.to_bits() & 0x7FFF_FFFF;
            greatest = if bits > greatest { bits } else { greatest };
            let x = if x > GREATEST { GREATEST } else { x };
            *out = if x < -GREATEST { -GREATEST } else { x };
        });
        greatest < f32::INFINITY.to_bits()
    }
}
