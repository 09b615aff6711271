//! Codes in [blocks](crate::compress::bits), rounded with noise from a counter hash.

use crate::{
    compress::{
        Malformed,
        bits::{BLOCK, Packing},
        kernel,
    },
    rng::Stream,
    vector::update,
};

const HALF: usize = BLOCK / 2;

/// Numbers of each half that are rounded between two prefetches: few enough that the CPU can hold
/// all pending loads.
const PIECE: usize = 64;

/// 1.5 * 2^23: adding this to |t| < 2^22 leaves t, rounded to the nearest integer (ties to even),
/// in the low bits.
const ROUND: f32 = 12_582_912.0;

/// Refuses any length but `expected`.
pub(crate) fn expect_length(bytes: &[u8], expected: usize) -> Result<(), Malformed> {
    if bytes.len() == expected {
        Ok(())
    } else {
        Err(Malformed(format!("{} bytes where {expected} belong", bytes.len())))
    }
}

/// Removes a little-endian float from the front of `bytes` and returns it.
#[inline(always)]
pub(crate) fn take_float(bytes: &mut &[u8]) -> f32 {
    let (float, rest) =
        bytes.split_first_chunk::<4>().expect("a checked payload holds its headers");
    *bytes = rest;
    f32::from_le_bytes(*float)
}

/// Checks the header of a bucket that is one magnitude.
#[inline(always)]
pub(super) fn check_magnitude(mut header: &[u8]) -> Result<(), String> {
    let magnitude = take_float(&mut header);
    if magnitude >= 0.0 && magnitude.is_finite() {
        Ok(())
    } else {
        Err(format!("{magnitude} is not a magnitude"))
    }
}

/// Appends the packed codes of one bucket, whose first number has index `offset` in the vector.
///
/// `place` maps a number to its position t on the grid, 0 <= t <= the greatest code. With noise t
/// is rounded to floor(t + u), u uniform on 2^15 points, so that its expectation is t to within
/// 2^-16; without noise to the nearest integer, ties to even.
///
/// `ahead`, the data after the bucket, is [prefetched](kernel::fetch) meanwhile.
#[inline(always)]
pub(super) fn encode(
    bucket: &[f32],
    ahead: &[f32],
    offset: usize,
    packing: impl Packing,
    noise: Option<Stream>,
    out: &mut Vec<u8>,
    place: impl Fn(f32) -> f32 + Copy,
) {
    let (mut codes, mut packed) = ([0u8; BLOCK], [0u8; BLOCK]);
    let (blocks, rest) = bucket.as_chunks::<BLOCK>();
    let mut index = offset as u32;
    let mut ahead = ahead.chunks(2 * PIECE);
    for block in blocks {
        let (pieces, codes_of) = (block.as_chunks::<PIECE>().0, codes.as_chunks_mut::<PIECE>().0);
        let (low, high) = codes_of.split_at_mut(HALF / PIECE);
        for piece in 0..HALF / PIECE {
            kernel::fetch(ahead.next().unwrap_or_default());
            let (x, y) = (&pieces[piece], &pieces[piece + HALF / PIECE]);
            let (a, b) = (&mut low[piece], &mut high[piece]);
            match noise {
                Some(noise) => {
                    let index = index.wrapping_add((piece * PIECE) as u32);
                    round_pair(x, y, noise, index, a, b, place);
                }
                None => {
                    round_nearest(x, a, place);
                    round_nearest(y, b, place);
                }
            }
        }
        let used = packing.pack(&codes, &mut packed);
        out.extend_from_slice(&packed[..used]);
        index = index.wrapping_add(BLOCK as u32);
    }
    if !rest.is_empty() {
        let (x, y) = rest.split_at(HALF.min(rest.len()));
        let (a, b) = codes[..rest.len()].split_at_mut(x.len());
        match noise {
            Some(noise) => {
                round_low(x, noise, index, a, place);
                round_high(y, noise, index, b, place);
            }
            None => {
                round_nearest(x, a, place);
                round_nearest(y, b, place);
            }
        }
        let used = packing.pack(&codes[..rest.len()], &mut packed);
        out.extend_from_slice(&packed[..used]);
    }
}

/// Each bucket of numbers with its bytes. An iterator, not a function that takes a closure: the
/// closure would be compiled once, without the dispatch level of the kernel.
#[inline(always)]
pub(super) fn buckets<'a>(
    acc: &'a mut [f32],
    bucket: usize,
    bytes: &'a [u8],
    bucket_bytes: usize,
) -> impl Iterator<Item = (&'a mut [f32], &'a [u8])> {
    let (mut acc, mut bytes) = (acc.chunks_mut(bucket), bytes.chunks(bucket_bytes));
    std::iter::from_fn(move || Some((acc.next()?, bytes.next()?)))
}

/// `acc += weight * value(code)` over the packed codes of one bucket.
#[inline(always)]
pub(super) fn add(
    packed: &[u8],
    packing: impl Packing,
    weight: f32,
    acc: &mut [f32],
    value: impl Fn(f32) -> f32 + Copy,
) {
    let mut codes = [0u8; BLOCK];
    let mut packed = packed;
    let (blocks, rest) = acc.as_chunks_mut::<BLOCK>();
    for block in blocks {
        packed = &packed[packing.unpack(packed, &mut codes)..];
        update(block, &codes, |a, &code| *a += weight * value(f32::from(code)));
    }
    let codes = &mut codes[..rest.len()];
    packing.unpack(packed, codes);
    update(rest, codes, |a, &code| *a += weight * value(f32::from(code)));
}

/// Rounding noise in (-1/2, 1/2) from the 15 bits of `word` under the mask 0x7FFF00: an odd
/// multiple of 2^-16, so that no sum t + noise with t <= 255 leaves (-1/2, 255.5) by its own
/// rounding.
#[inline(always)]
fn centred(word: u32) -> f32 {
    f32::from_bits(0x3F80_0000 | (word & 0x7F_FF00)) - (1.5 - 1.0 / 65536.0)
}

#[inline(always)]
fn low(word: u32) -> f32 {
    centred(word << 8)
}

#[inline(always)]
fn high(word: u32) -> f32 {
    centred(word >> 8)
}

#[inline(always)]
fn rounded(t: f32) -> u8 {
    (t + ROUND).to_bits() as u8
}

/// A piece of both halves of a full block: one hash gives the noise of numbers i and i + 256.
#[inline(always)]
fn round_pair(
    x: &[f32; PIECE],
    y: &[f32; PIECE],
    noise: Stream,
    index: u32,
    a: &mut [u8; PIECE],
    b: &mut [u8; PIECE],
    place: impl Fn(f32) -> f32,
) {
    for i in 0..PIECE {
        let word = noise.u32_at(index.wrapping_add(i as u32));
        a[i] = rounded(place(x[i]) + low(word));
        b[i] = rounded(place(y[i]) + high(word));
    }
}

#[inline(always)]
fn round_low(x: &[f32], noise: Stream, index: u32, codes: &mut [u8], place: impl Fn(f32) -> f32) {
    for (i, (&x, code)) in (0u32..).zip(x.iter().zip(codes)) {
        *code = rounded(place(x) + low(noise.u32_at(index.wrapping_add(i))));
    }
}

#[inline(always)]
fn round_high(x: &[f32], noise: Stream, index: u32, codes: &mut [u8], place: impl Fn(f32) -> f32) {
    for (i, (&x, code)) in (0u32..).zip(x.iter().zip(codes)) {
        *code = rounded(place(x) + high(noise.u32_at(index.wrapping_add(i))));
    }
}

#[inline(always)]
fn round_nearest(x: &[f32], codes: &mut [u8], place: impl Fn(f32) -> f32) {
    update(codes, x, |code, &x| *code = rounded(place(x)));
}

/// Checks that all `f32` of `bytes` are finite.
pub(in crate::compress) fn check_floats(bytes: &[u8]) -> Result<(), Malformed> {
    check_numbers(bytes, |float| !f32::from_le_bytes(*float).is_finite())
}

/// Checks numbers of N bytes each; the error names the first one that is not finite.
#[inline(always)]
pub(super) fn check_numbers<const N: usize>(
    bytes: &[u8],
    is_bad: impl Fn(&[u8; N]) -> bool,
) -> Result<(), Malformed> {
    // By blocks, so that the pass over valid bytes is branch-free.
    for (index, block) in bytes.as_chunks::<N>().0.chunks(1024).enumerate() {
        if block.iter().fold(false, |bad, number| bad | is_bad(number)) {
            let index = index * 1024 + block.iter().position(&is_bad).unwrap_or(0);
            return Err(Malformed(format!("the number at index {index} is not finite")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn noise_is_centred_and_never_carries_a_whole_number_away() {
        let mut sum = 0.0;
        for k in 0..1u32 << 15 {
            let noise = centred(k << 8);
            assert_eq!((low(k), high(k << 16)), (noise, noise));
            sum += f64::from(noise);
            for whole in [0u8, 1, 127, 254, 255] {
                assert_eq!(rounded(f32::from(whole) + noise), whole);
            }
        }
        assert_eq!(sum, 0.0);
    }

    #[test]
    fn a_block_and_its_pieces_draw_the_same_noise() {
        let noise = Stream::new(3, Purpose::Test);
        let x: Vec<f32> = (0..BLOCK).map(|i| (i % 15) as f32 + 0.3).collect();
        let (mut full, mut cut) = (Vec::new(), Vec::new());
        encode(&x, &[], 1024, 8, Some(noise), &mut full, |t| t);
        encode(&x[..500], &x, 1024, 8, Some(noise), &mut cut, |t| t);
        assert_eq!(full[..500], cut);
    }
}
