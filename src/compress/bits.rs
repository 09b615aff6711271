//! Packing small codes: planar within a block of at most [`BLOCK`].
//!
//! Four-bit codes of a block of 512 take 256 bytes, and byte i holds codes i (low half) and i + 256
//! (high half): whole vectors are shifted and merged. With neighbouring codes in one byte, shuffles
//! would be needed (half the speed). Two-bit and one-bit codes likewise, four and eight to a byte.
//! Any other width is a sum of those: five bits are a plane of the four low bits, then a plane of
//! the fifth. A block of n codes takes ceil(n w / 8) bytes per plane of w bits, and unused bits
//! are 0.

use crate::vector::update;

/// The most codes in a block; all blocks of a bucket are full except the last.
pub(super) const BLOCK: usize = 512;

/// A packing of small codes into bytes, in blocks. A `u32` packs codes of that many bits, 1 to 8.
pub(super) trait Packing: Copy {
    /// The number of bytes that `count` codes take.
    fn packed_len(self, count: usize) -> usize;

    /// Packs one block of codes into the front of `out`; returns the number of bytes written.
    fn pack(self, codes: &[u8], out: &mut [u8; BLOCK]) -> usize;

    /// Unpacks one block of `codes.len()` codes from the front of `bytes`; returns the number of
    /// bytes read. Panics if `bytes` is shorter than the block.
    fn unpack(self, bytes: &[u8], codes: &mut [u8]) -> usize;

    /// Whether the unused part of one packed block of `count` codes is 0, as [`Packing::pack`]
    /// leaves it.
    fn is_padded(self, bytes: &[u8], count: usize) -> bool;

    /// Whether none of `count` codes exceeds `greatest`.
    fn is_within(self, packed: &[u8], count: usize, greatest: u8) -> bool;
}

impl Packing for u32 {
    #[inline]
    fn packed_len(self, count: usize) -> usize {
        packed_len(count, self)
    }

    #[inline(always)]
    fn pack(self, codes: &[u8], out: &mut [u8; BLOCK]) -> usize {
        pack(codes, self, out)
    }

    #[inline(always)]
    fn unpack(self, bytes: &[u8], codes: &mut [u8]) -> usize {
        unpack(bytes, self, codes)
    }

    #[inline]
    fn is_padded(self, bytes: &[u8], count: usize) -> bool {
        is_padded(bytes, count, self)
    }

    #[inline]
    fn is_within(self, packed: &[u8], count: usize, greatest: u8) -> bool {
        u32::from(greatest) == (1u32 << self) - 1 || greatest_code(packed, count, self) <= greatest
    }
}

super::kernel::kernel! {
    fn greatest_code(packed: &[u8], count: usize, width: u32) -> u8 {
        let mut codes = [0; BLOCK];
        let (mut rest, mut greatest) = (packed, 0);
        for from in (0..count).step_by(BLOCK) {
            let codes = &mut codes[..BLOCK.min(count - from)];
            rest = &rest[unpack(rest, width, codes)..];
            greatest = codes.iter().fold(greatest, |a, &b| if b > a { b } else { a });
        }
        greatest
    }
}

/// Bytes for `count` codes of `width` bits (1 to 8), in blocks.
#[inline]
fn packed_len(count: usize, width: u32) -> usize {
    count / BLOCK * (BLOCK / 8 * width as usize) + block_len(count % BLOCK, width)
}

/// Bytes for one block of `count` codes.
#[inline(always)]
fn block_len(count: usize, width: u32) -> usize {
    let mut bytes = 0;
    for w in PLANES {
        bytes += (count * (width & w) as usize).div_ceil(8);
    }
    bytes
}

/// The bits of each plane of a code, the lowest bits first. A width has the planes whose sum it is.
const PLANES: [u32; 4] = [8, 4, 2, 1];

/// The position in the code of the lowest bit of the plane of `w` bits.
#[inline(always)]
fn lowest_bit(width: u32, w: u32) -> u32 {
    width & !(2 * w - 1)
}

/// Packs one block of codes, each below `2^width`, into the front of `out`; returns the number of
/// bytes written.
#[inline(always)]
fn pack(codes: &[u8], width: u32, out: &mut [u8; BLOCK]) -> usize {
    let mut used = 0;
    for w in PLANES {
        let (shift, rest) = (lowest_bit(width, w), &mut out[used..]);
        used += match width & w {
            8 => pack_plane::<8>(codes, shift, rest),
            4 => pack_plane::<4>(codes, shift, rest),
            2 => pack_plane::<2>(codes, shift, rest),
            1 => pack_plane::<1>(codes, shift, rest),
            _ => 0,
        };
    }
    used
}

#[inline(always)]
fn pack_plane<const W: usize>(codes: &[u8], shift: u32, out: &mut [u8]) -> usize {
    let mask = (0xFFu16 >> (8 - W)) as u8;
    let stride = (codes.len() * W).div_ceil(8);
    let out = &mut out[..stride];
    for (place, part) in codes.chunks(stride.max(1)).enumerate() {
        let up = (place * W) as u32;
        if place == 0 {
            update(out, part, |byte, code| *byte = (code >> shift) & mask);
        } else {
            update(out, part, |byte, code| *byte |= ((code >> shift) & mask) << up);
        }
    }
    stride
}

/// Unpacks one block of `codes.len()` codes from the front of `bytes`; returns the number of bytes
/// read.
///
/// # Panics
/// If `bytes` is shorter than the block.
#[inline(always)]
fn unpack(bytes: &[u8], width: u32, codes: &mut [u8]) -> usize {
    let mut used = 0;
    for w in PLANES {
        let (shift, rest) = (lowest_bit(width, w), &bytes[used..]);
        used += match width & w {
            8 => unpack_plane::<8>(rest, shift, codes),
            4 => unpack_plane::<4>(rest, shift, codes),
            2 => unpack_plane::<2>(rest, shift, codes),
            1 => unpack_plane::<1>(rest, shift, codes),
            _ => 0,
        };
    }
    used
}

#[inline(always)]
fn unpack_plane<const W: usize>(bytes: &[u8], shift: u32, codes: &mut [u8]) -> usize {
    let mask = (0xFFu16 >> (8 - W)) as u8;
    let stride = (codes.len() * W).div_ceil(8);
    let bytes = &bytes[..stride];
    for (place, part) in codes.chunks_mut(stride.max(1)).enumerate() {
        let down = (place * W) as u32;
        if shift == 0 {
            update(part, bytes, |code, byte| *code = (byte >> down) & mask);
        } else {
            update(part, bytes, |code, byte| *code |= ((byte >> down) & mask) << shift);
        }
    }
    stride
}

/// Whether the unused bits of one packed block of `count` codes are 0, as [`pack`] leaves them.
#[inline]
fn is_padded(bytes: &[u8], count: usize, width: u32) -> bool {
    let mut rest = bytes;
    PLANES.into_iter().filter(|w| width & w != 0).all(|w| {
        let per_byte = 8 / w as usize;
        let stride = count.div_ceil(per_byte);
        let (plane, after) = rest.split_at(stride);
        rest = after;
        // Code i is at byte i % stride, place i / stride: the unused ones are the last of the
        // stride * per_byte.
        (count..stride * per_byte).all(|i| {
            let mask = (0xFFu16 >> (8 - w)) as u8;
            (plane[i % stride] >> ((i / stride) as u32 * w)) & mask == 0
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    #[test]
    fn codes_come_back_at_every_width_and_length() {
        let stream = Stream::new(1, Purpose::Test);
        for width in 1..=8 {
            for count in (0..70).chain([127, 255, 256, 257, 500, 511, 512]) {
                let codes: Vec<u8> =
                    (0..count).map(|i| (stream.u64_at(i as u64) >> (64 - width)) as u8).collect();
                let mut out = [0xAA; BLOCK];
                let used = pack(&codes, width, &mut out);
                assert_eq!(used, packed_len(count, width), "{count} codes of {width} bits");
                assert!(is_padded(&out[..used], count, width));
                let mut back = vec![0xFF; count];
                assert_eq!(unpack(&out[..used], width, &mut back), used);
                assert_eq!(back, codes, "{count} codes of {width} bits");
            }
        }
    }

    #[test]
    fn a_full_block_is_planar() {
        let codes: Vec<u8> = (0..512).map(|i| (i % 13) as u8).collect();
        let mut out = [0; BLOCK];
        assert_eq!(pack(&codes, 4, &mut out), 256);
        for i in 0..256 {
            assert_eq!(out[i], codes[i] | codes[i + 256] << 4);
        }
    }

    #[test]
    fn a_set_unused_bit_is_noticed() {
        let mut out = [0; BLOCK];
        let used = pack(&[1, 1, 1], 1, &mut out);
        assert_eq!((used, out[0]), (1, 0b111));
        assert!(!is_padded(&[0b1111], 3, 1));
        let used = pack(&[3, 2, 1], 5, &mut out);
        assert_eq!(used, 3);
        assert!(is_padded(&out[..3], 3, 5));
        assert!(!is_padded(&[out[0], out[1] | 0x80, out[2]], 3, 5));
    }
}
