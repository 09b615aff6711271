//! Packing codes 0, 1 and 2 five to a byte, as the digits of a number to base 3: 3^5 = 243.
//!
//! Planar like [bits](super::bits): of a block of n codes byte i is the sum of 3^j times code i + j
//! ceil(n / 5), so whole vectors are multiplied and added. Unused digits are 0.

use super::{
    bits::{BLOCK, Packing},
    kernel::kernel,
};
use crate::vector::update;

/// Five codes to a byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trits;

const PER_BYTE: usize = 5;

/// The bytes of a vector register.
const VECTOR: usize = 32;

impl Packing for Trits {
    #[inline(always)]
    fn packed_len(self, count: usize) -> usize {
        count / BLOCK * BLOCK.div_ceil(PER_BYTE) + (count % BLOCK).div_ceil(PER_BYTE)
    }

    #[inline(always)]
    fn pack(self, codes: &[u8], out: &mut [u8; BLOCK]) -> usize {
        let stride = codes.len().div_ceil(PER_BYTE);
        let out = &mut out[..stride];
        out.fill(0);
        // The last digits first; each later one multiplies the sum by 3 before it is added.
        for part in codes.chunks(stride.max(1)).rev() {
            for byte in out.iter_mut() {
                *byte = byte.wrapping_add(byte.wrapping_add(*byte));
            }
            update(out, part, |byte, code| *byte = byte.wrapping_add(*code));
        }
        stride
    }

    #[inline(always)]
    fn unpack(self, bytes: &[u8], codes: &mut [u8]) -> usize {
        let stride = codes.len().div_ceil(PER_BYTE);
        let bytes = &bytes[..stride];
        if stride < VECTOR {
            for (i, byte) in bytes.iter().enumerate() {
                let mut rest = [*byte];
                for code in codes[i..].iter_mut().step_by(stride) {
                    [*code] = last_digits(&mut rest);
                }
            }
            return stride;
        }
        // The last of these vectors begins within the one before.
        for start in (0..stride).step_by(VECTOR).map(|start| start.min(stride - VECTOR)) {
            let mut rest = [0; VECTOR];
            update(&mut rest, &bytes[start..start + VECTOR], |rest, byte| *rest = *byte);
            for j in 0..PER_BYTE {
                let digits = last_digits(&mut rest);
                update(&mut codes[j * stride + start..], &digits, |code, digit| *code = *digit);
            }
        }
        stride
    }

    #[inline]
    fn is_padded(self, bytes: &[u8], count: usize) -> bool {
        let stride = count.div_ceil(PER_BYTE);
        let digit = |i: usize| bytes[i % stride] / [1, 3, 9, 27, 81][i / stride] % 3;
        (count..stride * PER_BYTE).all(|i| digit(i) == 0)
    }

    #[inline]
    fn is_within(self, packed: &[u8], _count: usize, greatest: u8) -> bool {
        assert_eq!(greatest, 2, "digits to base 3 are all in use");
        greatest_byte(packed) < 243
    }
}

/// The last digits of bytes, which are divided by 3.
#[inline(always)]
fn last_digits<const N: usize>(bytes: &mut [u8; N]) -> [u8; N] {
    let mut digits = [0; N];
    for i in 0..N {
        let third = ((u16::from(bytes[i]) * 171) >> 9) as u8;
        digits[i] = bytes[i].wrapping_sub(third.wrapping_add(third.wrapping_add(third)));
        bytes[i] = third;
    }
    digits
}

kernel! {
    fn greatest_byte(packed: &[u8]) -> u8 {
        packed.iter().fold(0, |a, &b| if b > a { b } else { a })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, Stream};

    #[test]
    fn every_byte_divides_by_three() {
        for byte in 0..=255u16 {
            assert_eq!((byte * 171) >> 9, byte / 3);
        }
    }

    #[test]
    fn codes_come_back_at_every_length() {
        let stream = Stream::new(1, Purpose::Test);
        for count in 0..=BLOCK {
            let codes: Vec<u8> = (0..count).map(|i| (stream.u64_at(i as u64) % 3) as u8).collect();
            let mut out = [0xAA; BLOCK];
            let used = Trits.pack(&codes, &mut out);
            assert_eq!(used, Trits.packed_len(count));
            let stride = count.div_ceil(5);
            for (i, byte) in out[..used].iter().enumerate() {
                let digit = |j: usize| codes.get(i + j * stride).copied().unwrap_or(0);
                assert_eq!(
                    *byte,
                    digit(0) + 3 * digit(1) + 9 * digit(2) + 27 * digit(3) + 81 * digit(4)
                );
            }
            assert!(
                Trits.is_padded(&out[..used], count) && Trits.is_within(&out[..used], count, 2)
            );
            let mut back = vec![0xFF; count];
            assert_eq!(Trits.unpack(&out[..used], &mut back), used);
            assert_eq!(back, codes, "{count} codes");
        }
    }

    #[test]
    fn what_no_digits_give_is_noticed() {
        // Seven codes take two bytes: numbers 7, 8 and 9 are digits 3 of byte 1 and 4 of both.
        assert!(Trits.is_padded(&[26 + 27 * 2, 26], 7));
        for bytes in [[81, 0], [0, 27], [0, 81], [242, 0]] {
            assert!(!Trits.is_padded(&bytes, 7), "{bytes:?}");
        }
        assert!(!Trits.is_within(&[243], 5, 2) && !Trits.is_within(&[0, 255, 3], 15, 2));
    }
}
