//! What codes of 16 bits per number share: each number is a float of half the width, little-endian,
//! rounded to nearest, ties to even.

use std::fmt;

use crate::compress::prelude::*;

/// Numbers converted at a time, on the stack.
const CHUNK: usize = 512;

/// A buffer of a chunk that begins with a cache line: else half of the vectors that are stored
/// straddle two lines, which took up to a quarter longer.
#[repr(align(64))]
struct Buffer([u16; CHUNK]);

/// A float format of 16 bits.
pub(super) trait Half: Send + Sync + fmt::Debug {
    /// Its name in the registry.
    const NAME: &'static str;

    /// The delta of the worst case, see [`Class::Contraction`].
    const DELTA: f64;

    /// The bits of infinity: all those of the exponent.
    const INFINITE: u16;

    /// Appends all numbers, or returns false if one is a NaN or an infinity.
    fn encode(v: &[f32], out: &mut Vec<u8>) -> bool;

    /// `acc += weight * C(v)`.
    fn add(bytes: &[u8], weight: f32, acc: &mut [f32]);
}

/// The compressor of a float format.
#[derive(Debug)]
pub(super) struct HalfPrecision<H: Half>(pub(super) H);

impl<H: Half> Compressor for HalfPrecision<H> {
    fn name(&self) -> &'static str {
        H::NAME
    }

    fn class(&self, _len: usize) -> Class {
        Class::Contraction { delta: H::DELTA }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(2 * len)
    }

    fn encode(&self, v: &[f32], _noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        let start = out.len();
        out.reserve(2 * v.len());
        if !H::encode(v, out) {
            out.truncate(start);
            return Err(NonFinite::known_in(v));
        }
        Ok(())
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        expect_length(bytes, 2 * len)?;
        block::check_numbers(bytes, |word| u16::from_le_bytes(*word) & H::INFINITE == H::INFINITE)
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        H::add(bytes, weight, acc);
    }

    fn blocks(&self, _len: usize) -> Option<Blocks> {
        Some(Blocks { numbers: 1, bytes: 2 })
    }
}

/// The values that float formats share.
pub(super) const FORMAT: Entry = Entry {
    cheaper: |_| {
        let words = "a quarter of the bytes: 4 bits for each number";
        Some(Cheaper::new("kind", "min-max", words))
    },
    ..Entry::BLANK
};

/// Appends all numbers, or returns false if one is a NaN or an infinity. `round` makes the bits of
/// a half, without its sign, of those of a float.
#[inline(always)]
pub(super) fn encode(v: &[f32], out: &mut Vec<u8>, round: impl Fn(u32) -> u32) -> bool {
    let mut words = Buffer([0u16; CHUNK]);
    let mut greatest = 0u32;
    for chunk in v.chunks(CHUNK) {
        let words = &mut words.0[..chunk.len()];
        update(words, chunk, |word, &x| {
            let bits = x.to_bits();
            let magnitude = bits & 0x7FFF_FFFF;
            greatest = if magnitude > greatest { magnitude } else { greatest };
            *word = (round(magnitude) | (bits >> 16 & 0x8000)) as u16;
        });
        write_words(words, out);
    }
    greatest < f32::INFINITY.to_bits()
}

/// Appends words as little-endian bytes.
#[inline(always)]
fn write_words(words: &[u16], out: &mut Vec<u8>) {
    if cfg!(target_endian = "little") {
        out.extend_from_slice(bytemuck::cast_slice(words));
    } else {
        out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }
}
