//! The k numbers of greatest magnitude of each chunk, with 2 bits for a value: `chunked-top-k`.
//!
//! Sarfi, Therien, Lidin, Belilovsky: Communication Efficient LLM Pre-training with SparseLoCo
//! (2025): chunks of 4096 numbers, 64 of each, 2 bits for a value. Numbers are chosen in each chunk
//! as by [`top-k`](super::top_k). A part of a vector that has small numbers everywhere is sent as
//! often as the others.
//!
//! With 2 bits a value is its sign and one of two magnitudes: the mean of those of the chunk that
//! are above their mean, and of those that are not. This is a projection, so |C(x) - x|^2 = |x|^2 -
//! |C(x)|^2. By Cauchy and Schwarz |C(x)|^2 >= |kept|_1^2 / k, and of a chunk of c numbers with
//! least kept magnitude t the rest is at most (c - k) t^2. The ratio of both is least where t = 0
//! (one number: 1 / k) or where all kept are equal (k / c): delta = min(1 / k, k / c). With 32 bits
//! values are exact, and delta = k / c.
//!
//! DIFFERENCE: the paper was not at hand; the authors' program has four levels for a tensor, from
//! bins of equal width around the mean. Two magnitudes for each chunk cost 1 bit an entry more.
//!
//! Bytes of a chunk: its two magnitudes as `f32`, a code per entry (1 for negative, 2 for the
//! greater magnitude) in two bits, or the values as `f32`; then the [indices](super::indices)
//! within the chunk. With 64 of 4096 an entry costs 11 bits, and a number of the vector 0.17. The
//! last chunk may be shorter, with k in proportion, rounded up.

use super::{
    indices::IndexSet,
    kept::{Ahead, adder, floats},
    select::{self, Cut},
};
use crate::compress::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "chunked-top-k",
    summary: "the numbers of greatest magnitude of each chunk, with 2 bits for a value",
    paper: "Sarfi et al. 2025, Communication Efficient LLM Pre-training with SparseLoCo",
    class_words: "contraction",
    constants: &[
        ("chunk", "4096 (the authors'): numbers of a chunk, from 2 to 65536"),
        ("k", "64 (the authors'): how many of a chunk are sent, at most `chunk`"),
        ("bits", "2 (the authors'): of a value; 32 for exact values"),
    ],
    variants: &[
        "bits = 32",
        "chunk = 256\nk = 32",
        "chunk = 64\nk = 64",
        "chunk = 2\nk = 1",
        "chunk = 65536\nk = 6000",
    ],
    build,
    cheaper: |own| {
        let k = own.get("k")?.as_integer()?;
        (k > 1).then(|| Cheaper::new("k", k / 2, "about half the bytes"))
    },
};

params! {
    chunk: i64 = 4096,
    k: i64 = 64,
    bits: i64 = 2,
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let chunk = within("chunk", params.chunk, 2, 1 << 16)? as usize;
    let k = within("k", params.k, 1, params.chunk)? as usize;
    let exact = match params.bits {
        2 => false,
        32 => true,
        other => return Err(ConfigError::new("compressor.bits", other, "expected 2 or 32")),
    };
    let compressor = ChunkedTopK { chunk, k, exact };
    Ok(Built::new(compressor, config::resolved(ENTRY.name, &params)))
}

/// Bits of a code, its magnitude's among them.
const CODE: u32 = 2;
const NEGATIVE: u8 = 1;
const GREATER: u8 = 2;
/// Bytes of the two magnitudes.
const LEVELS: usize = 8;

#[derive(Clone, Copy, Debug)]
struct ChunkedTopK {
    chunk: usize,
    k: usize,
    /// Whether values are sent as `f32`, not as codes of two bits.
    exact: bool,
}

/// The layout of one chunk's bytes.
#[derive(Clone, Copy)]
struct Part {
    kept: usize,
    /// Bytes of values, or of magnitudes and codes.
    values: usize,
    set: IndexSet,
}

impl ChunkedTopK {
    /// The layout of a chunk of `len` numbers, 1 to `chunk`.
    fn part(&self, len: usize) -> Part {
        let kept = (self.k * len).div_ceil(self.chunk);
        let values = if self.exact { 4 * kept } else { LEVELS + CODE.packed_len(kept) };
        Part { kept, values, set: IndexSet::new(len, kept) }
    }

    /// The layouts of a full chunk and of the last one of a vector.
    fn parts(&self, len: usize) -> (Part, Part) {
        let full = self.part(self.chunk);
        let rest = len % self.chunk;
        (full, if rest == 0 { full } else { self.part(rest) })
    }

    fn bytes(&self, len: usize) -> usize {
        let (full, last) = self.parts(len);
        let is_cut = usize::from(!len.is_multiple_of(self.chunk));
        len / self.chunk * full.bytes() + is_cut * last.bytes()
    }

    /// Calls `visit` with each chunk's first index, layout, values and indices.
    fn each<'a>(
        &self,
        len: usize,
        mut bytes: &'a [u8],
        mut visit: impl FnMut(usize, Part, &'a [u8], &'a [u8]) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let (full, last) = self.parts(len);
        for start in (0..len).step_by(self.chunk) {
            let part = if start + self.chunk <= len { full } else { last };
            let (here, rest) = bytes.split_at(part.bytes());
            let (values, indices) = here.split_at(part.values);
            visit(start, part, values, indices)?;
            bytes = rest;
        }
        Ok(())
    }
}

impl Part {
    fn bytes(&self) -> usize {
        self.values + self.set.bytes()
    }
}

impl Compressor for ChunkedTopK {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, len: usize) -> Class {
        let (chunk, k) = (self.chunk as f64, self.k as f64);
        let kept = if len < self.chunk && len > 0 {
            self.part(len).kept as f64 / len as f64
        } else {
            k / chunk
        };
        let delta = if self.exact { kept } else { kept.min(1.0 / k) };
        Class::Contraction { delta }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(self.bytes(len))
    }

    fn encode(&self, v: &[f32], _noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        let (start, bytes) = (out.len(), self.bytes(v.len()));
        // Room for the values of one chunk behind the payload.
        let room = self.part(self.chunk.min(v.len())).kept;
        out.resize(start + bytes + 4 * room, 0);
        let (payload, room) = out[start..].split_at_mut(bytes);
        let is_finite = encode(self, v, payload, room.as_chunks_mut::<4>().0);
        out.truncate(start + bytes);
        if is_finite {
            return Ok(());
        }
        out.truncate(start);
        Err(NonFinite::known_in(v))
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        expect_length(bytes, self.bytes(len))?;
        self.each(len, bytes, |start, part, values, indices| {
            let wrong = |what: String| Malformed(format!("chunk {}: {what}", start / self.chunk));
            if self.exact {
                check_floats(values).map_err(|Malformed(what)| wrong(what))?;
            } else {
                let (levels, codes) = values.split_at(LEVELS);
                let (low, high) = two(levels);
                if !(low >= 0.0 && high >= low && high.is_finite()) {
                    return Err(wrong(format!("{low} and {high} are not two magnitudes")));
                }
                let last = part.kept % BLOCK;
                let before = CODE.packed_len(part.kept - last);
                if !CODE.is_padded(&codes[before..], last) {
                    return Err(wrong("an unused bit is set".into()));
                }
            }
            part.set.check(indices).map_err(|Malformed(what)| wrong(what))
        })
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        add(self, bytes, weight, acc);
    }

    fn entries(&self, len: usize, bytes: &[u8], _noise: Stream, visit: Visit<'_>) -> bool {
        let read = self.each(len, bytes, |start, part, values, indices| {
            let mut position = 0;
            part.set.visit(indices, |index| {
                visit(start as u32 + index, value(self.exact, values, position));
                position += 1;
            });
            Ok(())
        });
        read.is_ok()
    }

    fn most_entries(&self, len: usize) -> Option<usize> {
        let (full, last) = self.parts(len);
        let is_cut = usize::from(!len.is_multiple_of(self.chunk));
        Some(len / self.chunk * full.kept + is_cut * last.kept)
    }

    fn bucket(&self, len: usize) -> usize {
        self.chunk.min(len)
    }
}

/// The two magnitudes at the front of a chunk's values.
#[inline(always)]
fn two(mut levels: &[u8]) -> (f32, f32) {
    (block::take_float(&mut levels), block::take_float(&mut levels))
}

/// The value of an entry.
fn value(exact: bool, values: &[u8], position: usize) -> f32 {
    if exact {
        return floats(&values[4 * position..]).next().unwrap_or(0.0);
    }
    let (levels, codes) = values.split_at(LEVELS);
    let mut block = [0; BLOCK];
    let (number, place) = (position / BLOCK, position % BLOCK);
    let from = CODE.packed_len(number * BLOCK);
    // The block's length does not matter to a code that is in it, unless it is the last one.
    let held = ((codes.len() - from) * 8 / CODE as usize).min(BLOCK);
    CODE.unpack(&codes[from..], &mut block[..held]);
    level(two(levels), block[place])
}

#[inline(always)]
fn level((low, high): (f32, f32), code: u8) -> f32 {
    let magnitude = if code & GREATER == 0 { low } else { high };
    if code & NEGATIVE == 0 { magnitude } else { -magnitude }
}

/// The mean magnitude of the values above the mean, and of the others.
#[inline(always)]
fn levels(values: &[[u8; 4]]) -> (f32, f32, f64) {
    let magnitude = |bytes: &[u8; 4]| f64::from(f32::from_le_bytes(*bytes).abs());
    let total: f64 = values.iter().map(magnitude).sum();
    let mean = total / values.len() as f64;
    let (mut above, mut count) = (0.0, 0);
    for magnitude in values.iter().map(magnitude) {
        if magnitude > mean {
            above += magnitude;
            count += 1;
        }
    }
    if count == 0 || count == values.len() {
        return (mean as f32, mean as f32, mean);
    }
    let low = (total - above) / (values.len() - count) as f64;
    (low as f32, (above / count as f64) as f32, mean)
}

kernel! {
    /// Writes all chunks into `out`, which is all zeros, or returns false at a NaN or an infinity.
    fn encode(c: &ChunkedTopK, v: &[f32], out: &mut [u8], room: &mut [[u8; 4]]) -> bool {
        let (full, last) = c.parts(v.len());
        let mut out = out;
        for numbers in v.chunks(c.chunk) {
            let part = if numbers.len() == c.chunk { full } else { last };
            let (here, rest) = out.split_at_mut(part.bytes());
            let (values, indices) = here.split_at_mut(part.values);
            let room = &mut room[..part.kept];
            let Some(cut) = select::cut_of_chunk(numbers, part.kept, room) else { return false };
            gather(numbers, cut, part.set, room, indices);
            if c.exact {
                values.copy_from_slice(room.as_flattened());
            } else {
                quantize(room, values);
            }
            out = rest;
        }
        true
    }

    /// `acc += weight * C(v)`.
    fn add(c: &ChunkedTopK, bytes: &[u8], weight: f32, acc: &mut [f32]) {
        let (full, last) = c.parts(acc.len());
        let mut bytes = bytes;
        for acc in acc.chunks_mut(c.chunk) {
            let part = if acc.len() == c.chunk { full } else { last };
            let (here, rest) = bytes.split_at(part.bytes());
            let (values, indices) = here.split_at(part.values);
            if c.exact {
                let mut adder = adder(weight, values, acc);
                part.set.visit(indices, |index| adder.push(index));
                adder.finish();
            } else {
                add_codes(part, values, indices, weight, acc);
            }
            bytes = rest;
        }
    }
}

/// Writes the entries above the cut, and the first of those equal to it.
#[inline(always)]
fn gather(v: &[f32], cut: Cut, set: IndexSet, values: &mut [[u8; 4]], indices: &mut [u8]) {
    select::visit_kept(v, cut, |position, run| {
        update(&mut values[position..], run, |value, &index| {
            *value = v[index as usize].to_le_bytes();
        });
        set.put(indices, position, run);
    });
}

/// Writes the two magnitudes and then the codes.
#[inline(always)]
fn quantize(values: &[[u8; 4]], out: &mut [u8]) {
    let (low, high, mean) = levels(values);
    let (head, mut out) = out.split_at_mut(LEVELS);
    head[..4].copy_from_slice(&low.to_le_bytes());
    head[4..].copy_from_slice(&high.to_le_bytes());
    let (mut codes, mut packed) = ([0u8; BLOCK], [0u8; BLOCK]);
    for values in values.chunks(BLOCK) {
        update(&mut codes, values, |code, bytes| {
            let x = f32::from_le_bytes(*bytes);
            let greater = if f64::from(x.abs()) > mean { GREATER } else { 0 };
            *code = greater | if x < 0.0 { NEGATIVE } else { 0 };
        });
        let used = CODE.pack(&codes[..values.len()], &mut packed);
        let (here, rest) = out.split_at_mut(used);
        here.copy_from_slice(&packed[..used]);
        out = rest;
    }
}

/// Adds the entries of a chunk.
#[inline(always)]
fn add_codes(part: Part, values: &[u8], indices: &[u8], weight: f32, acc: &mut [f32]) {
    let (levels, mut packed) = values.split_at(LEVELS);
    let levels = two(levels);
    let table: [f32; 4] = std::array::from_fn(|code| weight * level(levels, code as u8));
    let (mut codes, mut left, mut held, mut next) = ([0u8; BLOCK], part.kept, 0, 0);
    let mut adder = Ahead::new(|block: &[u32]| {
        for &index in block {
            if next == held {
                held = left.min(BLOCK);
                packed = &packed[CODE.unpack(packed, &mut codes[..held])..];
                (left, next) = (left - held, 0);
            }
            acc[index as usize] += table[usize::from(codes[next] & 3)];
            next += 1;
        }
    });
    part.set.visit(indices, |index| adder.push(index));
    adder.finish();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compress,
        rng::Purpose,
        vector::{distance_squared, norm_squared},
    };

    fn decoded(text: &str, v: &[f32]) -> (usize, Vec<f32>) {
        let c = compress::build(&toml::from_str(text).unwrap()).unwrap().compressor;
        let (noise, mut bytes) = (Stream::new(1, Purpose::Test), Vec::new());
        c.encode(v, noise, &mut bytes).unwrap();
        c.check(v.len(), &bytes).unwrap();
        let mut x = vec![0.0; v.len()];
        c.add_into(&bytes, noise, 1.0, &mut x);
        let mut visited = vec![0.0; v.len()];
        assert!(c.entries(v.len(), &bytes, noise, &mut |i, value| visited[i as usize] = value));
        assert_eq!(visited, x);
        (bytes.len(), x)
    }

    fn normal(len: usize) -> Vec<f32> {
        let mut normal = Stream::new(4, Purpose::Test).sequence();
        (0..len).map(|_| normal.normal() as f32).collect()
    }

    #[test]
    fn a_chunk_as_long_as_the_vector_with_exact_values_is_top_k() {
        let v = normal(3000);
        let (_, chunked) = decoded("kind = 'chunked-top-k'\nchunk = 3000\nk = 77\nbits = 32", &v);
        let (_, whole) = decoded("kind = 'top-k'\nk = 77", &v);
        assert_eq!(chunked, whole);
    }

    #[test]
    fn each_chunk_sends_its_greatest_with_two_magnitudes() {
        let mut v = vec![0.0; 11];
        v[..8].copy_from_slice(&[4.0, -1.0, 0.5, 0.0, 0.25, -0.125, 0.0, 0.0]);
        v[8..].copy_from_slice(&[-9.0, 9.0, 1.0]);
        let (_, x) = decoded("kind = 'chunked-top-k'\nchunk = 4\nk = 3", &v);
        // Kept 4, 1, 0.5 with mean 1.83: 4 is above it, 1 and 0.5 are not. Of the last chunk, with
        // three numbers, ceil(3 * 3 / 4) = 3 are kept: 9 is above their mean, 1 is not.
        assert_eq!(x[..4], [4.0, -0.75, 0.75, 0.0]);
        assert_eq!(x[8..], [-9.0, 9.0, 1.0]);
    }

    #[test]
    fn two_bits_are_a_projection_of_what_is_kept() {
        let v = normal(50_000);
        for k in [1, 64, 700, 4096] {
            let text = format!("kind = 'chunked-top-k'\nk = {k}");
            let (_, x) = decoded(&text, &v);
            let (_, exact) = decoded(&format!("{text}\nbits = 32"), &v);
            let off = norm_squared(&v) - norm_squared(&x);
            assert!((distance_squared(&x, &v) / off - 1.0).abs() < 1e-5, "k = {k}");
            let lost = distance_squared(&x, &exact) / norm_squared(&exact);
            assert!(lost < if k == 1 { 1e-12 } else { 0.16 }, "k = {k}: {lost}");
            assert!(x.iter().zip(&exact).all(|(a, b)| a * b >= 0.0 && (*b == 0.0) == (*a == 0.0)));
        }
    }

    #[test]
    fn the_bound_is_reached_by_one_great_number_and_by_equal_ones() {
        let text = "kind = 'chunked-top-k'\nchunk = 64\nk = 8";
        for (v, part) in [(vec![1.0; 64], 8.0 / 64.0), (vec![0.0; 64], 0.0)] {
            let (_, x) = decoded(text, &v);
            assert!((norm_squared(&x) - part * 64.0).abs() < 1e-9);
        }
    }

    #[test]
    fn sizes_are_those_of_the_description() {
        let (bytes, _) = decoded("kind = 'chunked-top-k'", &normal(40_960));
        assert_eq!(bytes, 10 * (8 + 16 + 64));
        assert_eq!(decoded("kind = 'chunked-top-k'", &[]).0, 0);
    }
}
