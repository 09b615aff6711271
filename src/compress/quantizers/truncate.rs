//! The leading bits of each number: `truncate`.
//!
//! "Clipping" in Tang, Lian, Yu, Zhang and Liu 2019, DoubleSqueeze: the low-order digits are
//! zeroed, 1.23456 becomes 1.2. Of the 23 bits behind a number's leading one the first b = `bits`
//! are kept,
//!
//! ```text
//! C(x)_i = sign(x_i) 2^(e - b) floor(2^(b - e) |x_i|)        2^e <= |x_i| < 2^(e + 1)
//! ```
//!
//! toward 0, without chance: |C(x)_i - x_i| < 2^(e - b) <= 2^-b |x_i|, and less than 1/(2^b + 1) of
//! |x_i|. Biased; a contraction with delta = 1 - 1/(2^b + 1)^2. Below 2^-126 in magnitude digits
//! are missing, and the bounds with them.
//!
//! Bytes: 9 + b bits a number (sign, eight of the exponent, b), in blocks of 512 numbers: planes of
//! the highest byte, of the next one where there are 16 bits or more, and so on, one byte a number;
//! then what is left, fewer than 8 bits, as [codes](crate::compress::bits). At most 15 bits are
//! kept: with 16 a number takes more than three of its four bytes, and `identity` is the better
//! code.

use crate::compress::prelude::*;

pub(crate) const ENTRY: Entry = Entry {
    name: "truncate",
    summary: "sign, exponent and the leading bits of each number",
    paper: "Tang et al. 2019, DoubleSqueeze (clipping)",
    class_words: "contraction",
    constants: &[("bits", "3: bits kept behind the leading one, 0 to 15; a number takes 9 more")],
    variants: &["bits = 0", "bits = 1", "bits = 7", "bits = 10", "bits = 15"],
    build,
    ..Entry::BLANK
};

params! {
    // 12 bits a number: a byte and a half, and 6% off at the most.
    bits: i64 = 3,
}

fn build(table: &toml::Table) -> Result<Built, ConfigError> {
    let params: Params = config::read("compressor", table)?;
    let bits = within("bits", params.bits, 0, 15)? as u32;
    Ok(Built::new(Truncate { width: 9 + bits }, config::resolved(ENTRY.name, &params)))
}

/// Bits of a number, 9 to 24.
#[derive(Clone, Copy, Debug)]
struct Truncate {
    width: u32,
}

/// The exponent bits of an `f32`: all set in a number that is not finite.
const INFINITE: u32 = 0x7F80_0000;

impl Truncate {
    /// The whole bytes of a number, and the remaining bits.
    #[inline(always)]
    fn planes(self) -> (usize, u32) {
        ((self.width / 8) as usize, self.width % 8)
    }

    /// Bytes of one block, or of a whole vector.
    #[inline(always)]
    fn bytes(self, count: usize) -> usize {
        let (whole, left) = self.planes();
        whole * count + if left == 0 { 0 } else { left.packed_len(count) }
    }
}

impl Compressor for Truncate {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn class(&self, _len: usize) -> Class {
        let most = 1.0 / (f64::from(self.width - 9).exp2() + 1.0);
        Class::Contraction { delta: 1.0 - most * most }
    }

    fn size(&self, len: usize) -> Size {
        Size::Exact(self.bytes(len))
    }

    fn encode(&self, v: &[f32], _noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        let start = out.len();
        out.reserve(self.bytes(v.len()));
        if !encode(v, *self, out) {
            out.truncate(start);
            return Err(NonFinite::known_in(v));
        }
        Ok(())
    }

    fn check(&self, len: usize, bytes: &[u8]) -> Result<(), Malformed> {
        expect_length(bytes, self.bytes(len))?;
        let last = len - len % BLOCK;
        let (whole, left) = self.planes();
        if left > 0
            && !left.is_padded(&bytes[self.bytes(last) + whole * (len - last)..], len - last)
        {
            return Err(Malformed("an unused bit is set".into()));
        }
        match first_not_finite(bytes, *self, len) {
            None => Ok(()),
            Some(index) => Err(Malformed(format!("the number at index {index} is not finite"))),
        }
    }

    fn add_into(&self, bytes: &[u8], _noise: Stream, weight: f32, acc: &mut [f32]) {
        add(bytes, *self, weight, acc);
    }

    fn blocks(&self, len: usize) -> Option<Blocks> {
        (BLOCK < len).then(|| Blocks { numbers: BLOCK, bytes: self.bytes(BLOCK) })
    }

    fn bucket(&self, len: usize) -> usize {
        // Each number is encoded by itself: a longer vector has the same error.
        len.min(BLOCK)
    }
}

/// Unpacks one block from the front of `bytes`; returns the number of bytes read.
#[inline(always)]
fn unpack(bytes: &[u8], code: Truncate, numbers: &mut [u32]) -> usize {
    let (whole, left) = code.planes();
    let count = numbers.len();
    let mut shift = 32;
    numbers.fill(0);
    for plane in bytes[..whole * count].chunks_exact(count.max(1)) {
        shift -= 8;
        update(numbers, plane, |number, byte| *number |= u32::from(*byte) << shift);
    }
    let mut used = whole * count;
    if left > 0 {
        let mut codes = [0u8; BLOCK];
        used += left.unpack(&bytes[used..], &mut codes[..count]);
        update(numbers, &codes, |number, code| *number |= u32::from(*code) << (shift - left));
    }
    used
}

kernel! {
    /// Appends all blocks, or returns false at one that holds a NaN or an infinity.
    fn encode(v: &[f32], code: Truncate, out: &mut Vec<u8>) -> bool {
        let (whole, left) = code.planes();
        let (mut codes, mut packed) = ([0u8; BLOCK], [0u8; BLOCK]);
        for block in v.chunks(BLOCK) {
            let mut greatest = 0;
            for x in block {
                let magnitude = x.to_bits() & INFINITE;
                greatest = if magnitude > greatest { magnitude } else { greatest };
            }
            if greatest == INFINITE {
                return false;
            }
            let codes = &mut codes[..block.len()];
            let mut shift = 32;
            for _ in 0..whole {
                shift -= 8;
                update(codes, block, |code, x| *code = (x.to_bits() >> shift) as u8);
                out.extend_from_slice(codes);
            }
            if left > 0 {
                update(codes, block, |code, x| {
                    *code = (x.to_bits() >> (shift - left)) as u8 & ((1 << left) - 1);
                });
                let used = left.pack(codes, &mut packed);
                out.extend_from_slice(&packed[..used]);
            }
        }
        true
    }

    fn add(bytes: &[u8], code: Truncate, weight: f32, acc: &mut [f32]) {
        let (mut numbers, mut rest) = ([0u32; BLOCK], bytes);
        for acc in acc.chunks_mut(BLOCK) {
            let numbers = &mut numbers[..acc.len()];
            rest = &rest[unpack(rest, code, numbers)..];
            update(acc, numbers, |a, number| *a += weight * f32::from_bits(*number));
        }
    }

    fn first_not_finite(bytes: &[u8], code: Truncate, len: usize) -> Option<usize> {
        let (mut numbers, mut rest) = ([0u32; BLOCK], bytes);
        for from in (0..len).step_by(BLOCK) {
            let numbers = &mut numbers[..BLOCK.min(len - from)];
            rest = &rest[unpack(rest, code, numbers)..];
            let greatest =
                numbers.iter().map(|x| x & INFINITE).fold(0, |a, b| if b > a { b } else { a });
            if greatest == INFINITE {
                let found = numbers.iter().position(|x| x & INFINITE == INFINITE);
                return found.map(|index| from + index);
            }
        }
        None
    }
}
