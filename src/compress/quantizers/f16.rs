//! IEEE 754 half precision: `f16`. Two bytes a number, little-endian, rounded to nearest, ties to
//! even.
//!
//! Saturates: numbers that would round to infinity become +-65504. The relative error is at most
//! 2^-11 from 6.1e-5 to 65504 in magnitude; below that the grid has steps of 6e-8, and numbers
//! below 3e-8 are lost, so delta is 0 in the worst case over all vectors. Differences of models
//! near their optimum can be that small: `bf16` has the exponents of `f32`.

use half::{
    f16,
    slice::{HalfBitsSliceExt, HalfFloatSliceExt},
};
use serde::{Deserialize, Serialize};

use super::block;
use crate::{
    compress::{
        Blocks, Class, Compressor, Malformed, NonFinite, Size,
        entry::{Built, Cheaper, Entry},
        kernel::kernel,
    },
    config::{self, ConfigError},
    rng::Stream,
    vector::update,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "f16",
    summary: "half precision: 16 bits each, saturating at 65504",
    paper: "IEEE 754-2008, binary16",
    class_words: "contraction (relative error 2^-11 from 6.1e-5 to 65504)",
    constants: &[],
    variants: &[],
    build,
    cheaper: |_| {
        let words = "a quarter of the bytes: 4 bits for each number";
        Some(Cheaper::new("kind", "min-max", words))
    },
};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    Ok(Built::new(F16, config::resolved(ENTRY.name, &params)))
}

#[derive(Debug)]
struct F16;

const GREATEST: f32 = 65504.0;
const INFINITE: u16 = 0x7C00;

/// Numbers converted at a time, on the stack.
const CHUNK: usize = 512;

impl Compressor for F16 {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, _len: usize) -> Class {
        Class::Contraction { delta: 0.0 }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(2 * len)
    }

    fn encode(&self, v: &[f32], _noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        let start = out.len();
        out.reserve(2 * v.len());
        let (mut clamped, mut halves) = ([0f32; CHUNK], [0u16; CHUNK]);
        for chunk in v.chunks(CHUNK) {
            let (clamped, halves) = (&mut clamped[..chunk.len()], &mut halves[..chunk.len()]);
            if !clamp(chunk, clamped) {
                out.truncate(start);
                return Err(NonFinite::known_in(v));
            }
            halves.reinterpret_cast_mut::<f16>().convert_from_f32_slice(clamped);
            write_words(halves, out);
        }
        Ok(())
    }

    fn blocks(&self, _len: usize) -> Option<Blocks> {
        Some(Blocks { numbers: 1, bytes: 2 })
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        block::expect_length(bytes, 2 * len)?;
        check_words(bytes, INFINITE)
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        let (mut halves, mut floats) = ([0u16; CHUNK], [0f32; CHUNK]);
        for (acc, bytes) in acc.chunks_mut(CHUNK).zip(bytes.chunks(2 * CHUNK)) {
            let (halves, floats) = (&mut halves[..acc.len()], &mut floats[..acc.len()]);
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

/// Appends words as little-endian bytes.
#[inline(always)]
pub(super) fn write_words(words: &[u16], out: &mut Vec<u8>) {
    if cfg!(target_endian = "little") {
        out.extend_from_slice(bytemuck::cast_slice(words));
    } else {
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
}

/// Checks that all 16-bit floats of `bytes` are finite: their exponent bits are not those of
/// `infinite`.
pub(super) fn check_words(bytes: &[u8], infinite: u16) -> Result<(), Malformed> {
    let is_bad = |word: &[u8; 2]| u16::from_le_bytes(*word) & infinite == infinite;
    for (index, block) in bytes.as_chunks::<2>().0.chunks(1024).enumerate() {
        if block.iter().fold(false, |bad, word| bad | is_bad(word)) {
            let within = block.iter().position(is_bad).unwrap_or(0);
            return Err(Malformed(format!(
                "the number at index {} is not finite",
                index * 1024 + within
            )));
        }
    }
    Ok(())
}
