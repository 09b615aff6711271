//! A set of k indices below `len` in as few bytes as k and `len` allow.
//!
//! Either a bitmap, or Elias and Fano's code (1974): the l low bits of each index in a row, then
//! the rest of each in unary, as a bitmap in which index j of the set, with high part h, sets bit
//! `h + j`. The size of both follows from k and `len`, and the smaller is used (the bitmap if they
//! tie), so the choice is not sent. About log2(len / k) + 2 bits an index.

use crate::{compress::Malformed, vector::update};

/// The code of a set of `count` indices below `len`; `count <= len <= 2^32`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexSet {
    len: usize,
    count: usize,
    code: Code,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Code {
    Bitmap,
    EliasFano { low_bits: u32, low_bytes: usize, high_bits: usize },
}

/// Indices whose low bits are written together: they are whole bytes.
const GROUP: usize = 8;

impl IndexSet {
    /// The smaller code for sets of this size.
    pub(crate) fn new(len: usize, count: usize) -> IndexSet {
        let mut best = (len.div_ceil(8), Code::Bitmap);
        if count > 0 {
            for low_bits in 0..=(len - 1).checked_ilog2().unwrap_or(0) {
                let low_bytes = (count * low_bits as usize).div_ceil(8);
                let high_bits = count + ((len - 1) >> low_bits);
                let bytes = low_bytes + high_bits.div_ceil(8);
                if bytes < best.0 {
                    best = (bytes, Code::EliasFano { low_bits, low_bytes, high_bits });
                }
            }
        } else {
            best = (0, Code::EliasFano { low_bits: 0, low_bytes: 0, high_bits: 0 });
        }
        IndexSet { len, count, code: best.1 }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self.code {
            Code::Bitmap => self.len.div_ceil(8),
            Code::EliasFano { low_bytes, high_bits, .. } => low_bytes + high_bits.div_ceil(8),
        }
    }

    /// Sets the elements from `position` on, a multiple of [`GROUP`], to `indices`, which ascend.
    /// `out` started as zeros.
    #[inline(always)]
    pub(crate) fn put(&self, out: &mut [u8], position: usize, indices: &[u32]) {
        debug_assert!(position.is_multiple_of(GROUP), "low bits of a group begin in a byte");
        match self.code {
            Code::Bitmap => set_bits(out, indices.iter().map(|&index| index as usize)),
            Code::EliasFano { low_bits, low_bytes, .. } => {
                let mask = ((1u64 << low_bits) - 1) as u32;
                for (group, indices) in indices.chunks(GROUP).enumerate() {
                    put_low(out, position + group * GROUP, low_bits, mask, indices);
                }
                let high = |index: u32| (u64::from(index) >> low_bits) as usize;
                let bits = indices.iter().enumerate().map(|(i, &x)| high(x) + position + i);
                set_bits(&mut out[low_bytes..], bits);
            }
        }
    }

    /// Calls `visit` with each index in ascending order. `bytes` has passed [`IndexSet::check`].
    #[inline(always)]
    pub(crate) fn visit(&self, bytes: &[u8], mut visit: impl FnMut(u32)) {
        match self.code {
            Code::Bitmap => visit_bits(bytes, |bit| visit(bit as u32)),
            Code::EliasFano { low_bits, low_bytes, .. } => {
                let mut position = 0;
                visit_bits(&bytes[low_bytes..], |bit| {
                    let upper = ((bit - position) as u64) << low_bits;
                    visit((upper | low_part(bytes, position, low_bits)) as u32);
                    position += 1;
                });
            }
        }
    }

    /// Whether bytes of the right length are a set of `count` ascending indices below `len`, with
    /// unused bits 0.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), Malformed> {
        let (low, high, most) = match self.code {
            Code::Bitmap => (bytes, bytes, self.len),
            Code::EliasFano { low_bytes, high_bits, .. } => {
                let (low, high) = bytes.split_at(low_bytes);
                (low, high, high_bits)
            }
        };
        let ones: usize = high.iter().map(|byte| byte.count_ones() as usize).sum();
        if ones != self.count {
            return Err(Malformed(format!("{ones} indices where {} belong", self.count)));
        }
        if !is_clear_from(high, most) {
            return Err(Malformed("an unused bit of the indices is set".into()));
        }
        let Code::EliasFano { low_bits, .. } = self.code else { return Ok(()) };
        if !is_clear_from(low, self.count * low_bits as usize) {
            return Err(Malformed("an unused bit of the indices is set".into()));
        }
        let (mut position, mut next, mut wrong) = (0, 0u64, None);
        visit_bits(high, |bit| {
            let upper = ((bit - position) as u64) << low_bits;
            let index = upper | low_part(bytes, position, low_bits);
            if index < next || index >= self.len as u64 {
                wrong.get_or_insert(index);
            }
            next = index + 1;
            position += 1;
        });
        match wrong {
            Some(index) => {
                Err(Malformed(format!("index {index} is out of order or not below {}", self.len)))
            }
            None => Ok(()),
        }
    }
}

/// Sets the low bits of a group that begins with element `position`; if they are at most 8 each,
/// as one word.
#[inline(always)]
fn put_low(low: &mut [u8], position: usize, low_bits: u32, mask: u32, group: &[u32]) {
    let at = position * low_bits as usize;
    if low_bits <= 8
        && let Some(bytes) = low[at / 8..].first_chunk_mut::<8>()
    {
        let join = |word, &index: &u32| (word << low_bits) | u64::from(index & mask);
        let word = group.iter().rev().fold(0, join);
        *bytes = (u64::from_le_bytes(*bytes) | word).to_le_bytes();
        return;
    }
    for (i, index) in group.iter().enumerate() {
        let at = at + i * low_bits as usize;
        let word = u64::from(index & mask) << (at % 8);
        let used = (at % 8 + low_bits as usize).div_ceil(8);
        update(&mut low[at / 8..at / 8 + used], &word.to_le_bytes(), |byte, bits| *byte |= *bits);
    }
}

/// Sets these bits, which ascend: one access for all bits of a word.
#[inline(always)]
fn set_bits(bitmap: &mut [u8], bits: impl Iterator<Item = usize>) {
    let mut put = |at: usize, word: u64| {
        update(&mut bitmap[8 * at..], &word.to_le_bytes(), |byte, bits| *byte |= *bits);
    };
    let (mut at, mut word) = (0, 0);
    for bit in bits {
        if bit / 64 != at {
            put(at, word);
            (at, word) = (bit / 64, 0);
        }
        word |= 1 << (bit % 64);
    }
    put(at, word);
}

/// The low bits of element `position`: `low_bits` (at most 32) from bit `position * low_bits` of
/// `bytes`, which begin with them.
#[inline(always)]
fn low_part(bytes: &[u8], position: usize, low_bits: u32) -> u64 {
    let at = position * low_bits as usize;
    let rest = &bytes[at / 8..];
    let word = rest.first_chunk().copied().unwrap_or_else(|| {
        let mut word = [0u8; 8];
        word[..rest.len()].copy_from_slice(rest);
        word
    });
    (u64::from_le_bytes(word) >> (at % 8)) & ((1 << low_bits) - 1)
}

/// Calls `visit` with the position of each set bit, in ascending order.
#[inline(always)]
fn visit_bits(bitmap: &[u8], mut visit: impl FnMut(usize)) {
    let (words, rest) = bitmap.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    for (index, word) in words.iter().chain([&last]).enumerate() {
        let mut bits = u64::from_le_bytes(*word);
        while bits != 0 {
            visit(index * 64 + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
}

/// Whether all bits from `bit` on are 0.
fn is_clear_from(bitmap: &[u8], bit: usize) -> bool {
    match bitmap.get(bit / 8..) {
        Some([first, rest @ ..]) => first >> (bit % 8) == 0 && rest.iter().all(|byte| *byte == 0),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(len: usize, indices: &[u32]) -> (IndexSet, Vec<u8>) {
        let set = IndexSet::new(len, indices.len());
        let mut bytes = vec![0; set.bytes()];
        for (number, run) in indices.chunks(2 * GROUP).enumerate() {
            set.put(&mut bytes, number * 2 * GROUP, run);
        }
        (set, bytes)
    }

    fn read(set: &IndexSet, bytes: &[u8]) -> Vec<u32> {
        let mut indices = Vec::new();
        set.visit(bytes, |index| indices.push(index));
        indices
    }

    proptest! {
        #[test]
        fn sets_come_back(len in 1usize..3000, keep in 0.0..1.0f64, seed: u64) {
            let stream = crate::rng::Stream::new(seed, crate::rng::Purpose::Test);
            let kept = |i: &u32| stream.f64_at(u64::from(*i)) < keep;
            let indices: Vec<u32> = (0..len as u32).filter(kept).collect();
            let (set, bytes) = write(len, &indices);
            prop_assert!(set.check(&bytes).is_ok());
            prop_assert_eq!(read(&set, &bytes), indices);
        }

        #[test]
        fn arbitrary_bytes_are_a_set_or_refused(
            len in 1usize..200,
            count in 0usize..40,
            bytes: Vec<u8>,
        ) {
            let set = IndexSet::new(len, count.min(len));
            let mut bytes = bytes;
            bytes.resize(set.bytes(), 0);
            if set.check(&bytes).is_ok() {
                let indices = read(&set, &bytes);
                prop_assert_eq!(indices.len(), count.min(len));
                prop_assert!(indices.is_sorted_by(|a, b| a < b));
                prop_assert!(indices.iter().all(|i| (*i as usize) < len));
                // Each set has one encoding only.
                prop_assert_eq!(write(len, &indices).1, bytes);
            }
        }
    }

    #[test]
    fn the_smaller_code_is_taken() {
        assert_eq!(IndexSet::new(1000, 500).code, Code::Bitmap);
        assert_eq!(IndexSet::new(1000, 500).bytes(), 125);
        assert_eq!(IndexSet::new(1000, 0).bytes(), 0);
        assert_eq!(IndexSet::new(1, 1).bytes(), 1);
        let sparse = IndexSet::new(25_000_000, 250_000);
        let bits = sparse.bytes() as f64 * 8.0 / 250_000.0;
        assert!((8.0..8.7).contains(&bits), "{bits} bits an index; the entropy is 8.08");
    }

    #[test]
    fn the_greatest_index_comes_back() {
        let (set, bytes) = write(u32::MAX as usize, &[0, 7, u32::MAX - 1]);
        assert!(set.check(&bytes).is_ok());
        assert_eq!(read(&set, &bytes), [0, 7, u32::MAX - 1]);
    }
}
