//! The content of frames: a [`Format`] describes it in advance, a [`Payload`] reads it in place.

use std::sync::Arc;

use super::{
    Blocks, Compressor, Malformed, NonFinite, Size,
    bits::{BLOCK as CODES, Packing},
    sparse::{
        entries::{self, Entries},
        indices::IndexSet,
    },
};
use crate::{rng::Stream, vector};

/// The content of a frame, known to both ends from the plan: its size is known before encoding, its
/// limit before decoding.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Format {
    /// Nothing: the arrival is the message.
    Empty,
    /// This many numbers as `f32`, little-endian.
    Floats(usize),
    /// This many numbers as `f64`, little-endian.
    Doubles(usize),
    /// At most this many opaque bytes (records of a tree exchange).
    Records(usize),
    /// A compressed vector of `len` numbers.
    Compressed {
        /// The compressor that both ends use.
        by: Arc<dyn Compressor>,
        /// The length of the vector.
        len: usize,
    },
    /// At most `most` entries of a vector of `len` numbers, chosen by the sender.
    Sparse {
        /// How many numbers the vector has.
        len: usize,
        /// The bound of the number of entries.
        most: usize,
    },
    /// `len` whole numbers below 2^`width`, packed.
    Codes {
        /// Bits of each, 1 to 8.
        width: u32,
        /// The number of codes in the vector.
        len: usize,
    },
    /// `count` indices of a vector of `len` numbers, `count <= len`.
    Indices {
        /// How many numbers the vector has.
        len: usize,
        /// The number of indices, at most `len`.
        count: usize,
    },
    /// Several payloads, each after its length (`u64`, little-endian).
    Parts(Vec<Format>),
}

impl Format {
    /// The payload's size in bytes.
    pub fn size(&self) -> Size {
        match self {
            Format::Empty => Size::Exact(0),
            Format::Floats(len) => Size::Exact(4 * len),
            Format::Doubles(len) => Size::Exact(8 * len),
            Format::Records(limit) => Size::AtMost(*limit),
            Format::Compressed { by, len } => by.size(*len),
            Format::Sparse { len, most } => Size::AtMost(entries::limit(*len, *most)),
            Format::Codes { width, len } => Size::Exact(width.packed_len(*len)),
            Format::Indices { len, count } => Size::Exact(IndexSet::new(*len, *count).bytes()),
            Format::Parts(parts) => {
                let sizes: Vec<Size> = parts.iter().map(Format::size).collect();
                let limit = sizes.iter().map(|size| size.limit() + 8).sum();
                if sizes.iter().all(|size| matches!(size, Size::Exact(_))) {
                    Size::Exact(limit)
                } else {
                    Size::AtMost(limit)
                }
            }
        }
    }

    /// The length of the vector, if the payload is one.
    pub(crate) fn vector_len(&self) -> Option<usize> {
        match self {
            Format::Floats(len) | Format::Compressed { len, .. } | Format::Sparse { len, .. } => {
                Some(*len)
            }
            _ => None,
        }
    }

    /// Checks that `bytes` can have been written in this format. Changes and allocates nothing.
    ///
    /// # Errors
    /// If they cannot; the message says why.
    pub fn check(&self, bytes: &[u8]) -> Result<(), Malformed> {
        match (self, self.size()) {
            (Format::Compressed { by, len }, _) => return by.check(*len, bytes),
            (Format::Sparse { len, most }, _) => return entries::check(*len, *most, bytes),
            (_, Size::Exact(size)) if bytes.len() != size => {
                return Err(Malformed(format!("{} bytes where {size} belong", bytes.len())));
            }
            (_, Size::AtMost(limit)) if bytes.len() > limit => {
                return Err(Malformed(format!(
                    "{} bytes where at most {limit} belong",
                    bytes.len()
                )));
            }
            _ => {}
        }
        match self {
            Format::Floats(_) => {
                finite(bytes.as_chunks::<4>().0, |b| f32::from_le_bytes(b).is_finite())
            }
            Format::Doubles(_) => {
                finite(bytes.as_chunks::<8>().0, |b| f64::from_le_bytes(b).is_finite())
            }
            Format::Parts(parts) => {
                let mut rest = bytes;
                for part in parts {
                    let (bytes, after) =
                        split_part(rest).ok_or_else(|| Malformed("a part is cut short".into()))?;
                    part.check(bytes)?;
                    rest = after;
                }
                if rest.is_empty() {
                    Ok(())
                } else {
                    Err(Malformed(format!("{} bytes after the last part", rest.len())))
                }
            }
            Format::Codes { width, len } => {
                let last = len % CODES;
                if width.is_padded(&bytes[width.packed_len(len - last)..], last) {
                    Ok(())
                } else {
                    Err(Malformed("an unused bit is set".into()))
                }
            }
            Format::Indices { len, count } => IndexSet::new(*len, *count).check(bytes),
            Format::Empty
            | Format::Records(_)
            | Format::Compressed { .. }
            | Format::Sparse { .. } => Ok(()),
        }
    }

    /// The blocks of the payload and the numbers of its vector, if the blocks are encoded by
    /// themselves ([`Compressor::blocks`]).
    pub(crate) fn blocks(&self) -> Option<(Blocks, usize)> {
        match self {
            Format::Floats(len) => Some((Blocks { numbers: 1, bytes: 4 }, *len)),
            Format::Compressed { by, len } => Some((by.blocks(*len)?, *len)),
            _ => None,
        }
    }

    /// The format of a stretch of whole [blocks](Format::blocks) of a payload, with so many
    /// numbers.
    pub(crate) fn stretch(&self, numbers: usize) -> Format {
        match self {
            Format::Compressed { by, .. } => Format::Compressed { by: by.clone(), len: numbers },
            _ => Format::Floats(numbers),
        }
    }

    /// Reads checked bytes in place.
    ///
    /// # Panics
    /// If the bytes have not passed [`Format::check`].
    pub fn view<'a>(&'a self, noise: Stream, bytes: &'a [u8]) -> Payload<'a> {
        match self {
            Format::Empty => Payload::Empty,
            Format::Floats(_) => Payload::Floats(bytes),
            Format::Doubles(_) => Payload::Doubles(bytes),
            Format::Records(_) => Payload::Records(bytes),
            Format::Compressed { by, .. } => Payload::Compressed { by: &**by, noise, bytes },
            Format::Sparse { len, .. } => Payload::Sparse { len: *len, bytes },
            Format::Codes { width, len } => Payload::Codes { width: *width, len: *len, bytes },
            Format::Indices { len, count } => Payload::Indices { len: *len, count: *count, bytes },
            Format::Parts(parts) => {
                let mut rest = bytes;
                let views = parts.iter().enumerate().map(|(index, part)| {
                    let (bytes, after) = split_part(rest).expect("the payload was checked");
                    rest = after;
                    part.view(noise.with(index as u64), bytes)
                });
                Payload::Parts(views.collect())
            }
        }
    }

    /// [`Format::check`], and the CRC-32C of `bytes` continued from `sum`; for plain numbers in one
    /// pass.
    pub(crate) fn check_and_sum(&self, bytes: &[u8], sum: u32) -> (Result<(), Malformed>, u32) {
        let Format::Floats(len) = self else {
            return (self.check(bytes), crc32c::crc32c_append(sum, bytes));
        };
        if bytes.len() != 4 * len {
            return (self.check(bytes), crc32c::crc32c_append(sum, bytes));
        }
        let (mut sum, mut all_finite) = (sum, true);
        for part in bytes.chunks(4 * BLOCK) {
            sum = crc32c::crc32c_append(sum, part);
            all_finite &=
                block_is_finite(part.as_chunks::<4>().0, |b| f32::from_le_bytes(b).is_finite());
        }
        (if all_finite { Ok(()) } else { self.check(bytes) }, sum)
    }

    /// Appends `v` in this format, which must be for one vector.
    ///
    /// # Errors
    /// If `v` holds a NaN or an infinity; `out` is then as it was.
    ///
    /// # Panics
    /// If the format is not for a vector of this length.
    pub fn encode(&self, v: &[f32], noise: Stream, out: &mut Vec<u8>) -> Result<(), NonFinite> {
        self.encode_and_sum(v, noise, out).map(|_| ())
    }

    /// [`Format::encode`]; of plain numbers also the CRC-32C of what was appended, taken in the
    /// same pass.
    ///
    /// # Errors
    /// As [`Format::encode`].
    ///
    /// # Panics
    /// As [`Format::encode`].
    pub(crate) fn encode_and_sum(
        &self,
        v: &[f32],
        noise: Stream,
        out: &mut Vec<u8>,
    ) -> Result<Option<u32>, NonFinite> {
        match self {
            Format::Floats(len) => {
                assert_eq!(v.len(), *len);
                let (before, mut sum) = (out.len(), 0);
                for (block, part) in v.chunks(BLOCK).enumerate() {
                    // Checked, copied and summed while it is in the cache.
                    if let Some(index) = vector::first_non_finite(part) {
                        out.truncate(before);
                        return Err(NonFinite { index: block * BLOCK + index, value: part[index] });
                    }
                    let start = out.len();
                    vector::write_floats(part, out);
                    sum = crc32c::crc32c_append(sum, &out[start..]);
                }
                Ok(Some(sum))
            }
            Format::Compressed { by, len } => {
                assert_eq!(v.len(), *len);
                by.encode(v, noise, out)?;
                Ok(None)
            }
            Format::Empty
            | Format::Doubles(_)
            | Format::Records(_)
            | Format::Sparse { .. }
            | Format::Codes { .. }
            | Format::Indices { .. }
            | Format::Parts(_) => {
                panic!(
                    "{self:?} does not carry one vector of floats: the rule and its plan disagree"
                )
            }
        }
    }
}

/// Appends entries in a sparse format.
///
/// # Panics
/// If the format is for something else, or for fewer entries.
pub(crate) fn encode_entries(
    format: &Format,
    entries: &Entries,
    out: &mut Vec<u8>,
) -> Result<(), NonFinite> {
    let Format::Sparse { len, most } = format else { panic!("{format:?} does not carry entries") };
    assert!(entries.len() <= *most, "{} entries where the plan says {most}", entries.len());
    entries::write(*len, entries, out)
}

/// Appends packed codes. `fill` writes one block of codes, from the given position on, each below
/// 2^width.
///
/// # Panics
/// If the format is for something else.
pub(crate) fn encode_codes(
    format: &Format,
    out: &mut Vec<u8>,
    mut fill: impl FnMut(usize, &mut [u8]) -> Result<(), NonFinite>,
) -> Result<(), NonFinite> {
    let Format::Codes { width, len } = *format else { panic!("{format:?} does not carry codes") };
    let (mut codes, mut packed) = ([0; CODES], [0; CODES]);
    for from in (0..len).step_by(CODES) {
        let codes = &mut codes[..CODES.min(len - from)];
        fill(from, codes)?;
        let used = width.pack(codes, &mut packed);
        out.extend_from_slice(&packed[..used]);
    }
    Ok(())
}

/// Appends ascending indices in their format.
///
/// # Panics
/// If the format is for something else, or for another number of indices.
pub(crate) fn encode_indices(format: &Format, indices: &[u32], out: &mut Vec<u8>) {
    let Format::Indices { len, count } = format else {
        panic!("{format:?} does not carry indices")
    };
    assert_eq!(indices.len(), *count, "as many indices as the plan says");
    let (set, start) = (IndexSet::new(*len, *count), out.len());
    out.resize(start + set.bytes(), 0);
    set.put(&mut out[start..], 0, indices);
}

/// Numbers that are checked together.
const BLOCK: usize = 4096;

/// Whether all numbers are finite: one branch a block, so that the pass runs at the memory's speed.
fn finite<const N: usize>(
    numbers: &[[u8; N]],
    is_finite: impl Fn([u8; N]) -> bool,
) -> Result<(), Malformed> {
    for (block, part) in numbers.chunks(BLOCK).enumerate() {
        if !block_is_finite(part, &is_finite) {
            let index = block * BLOCK + part.iter().position(|b| !is_finite(*b)).unwrap_or(0);
            return Err(Malformed(format!("the number at index {index} is not finite")));
        }
    }
    Ok(())
}

fn block_is_finite<const N: usize>(part: &[[u8; N]], is_finite: impl Fn([u8; N]) -> bool) -> bool {
    part.iter().fold(true, |all, b| all & is_finite(*b))
}

fn split_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

/// Checked bytes, read in place.
#[derive(Debug)]
pub enum Payload<'a> {
    /// No bytes: the arrival is the message.
    Empty,
    /// Numbers as `f32`, least significant byte first.
    Floats(&'a [u8]),
    /// Numbers as `f64`, least significant byte first.
    Doubles(&'a [u8]),
    /// Records of a tree exchange, not read yet.
    Records(&'a [u8]),
    /// A vector that is encoded by a compressor.
    Compressed {
        /// The compressor that has encoded it.
        by: &'a dyn Compressor,
        /// The sender's stream of random numbers for this exchange.
        noise: Stream,
        /// The payload that [`Compressor::encode`] has written.
        bytes: &'a [u8],
    },
    /// Entries that the sender has chosen.
    Sparse {
        /// How many numbers the vector has.
        len: usize,
        /// The entries as [`Format::Sparse`] has them.
        bytes: &'a [u8],
    },
    /// Whole numbers below 2^`width`, packed.
    Codes {
        /// Bits of each code, 1 to 8.
        width: u32,
        /// The number of codes in the vector.
        len: usize,
        /// The codes, packed without gaps.
        bytes: &'a [u8],
    },
    /// Indices of a vector, each at most once.
    Indices {
        /// How many numbers the vector has.
        len: usize,
        /// The number of indices, at most `len`.
        count: usize,
        /// The indices as [`Format::Indices`] has them.
        bytes: &'a [u8],
    },
    /// Several payloads, in the order of the formats.
    Parts(Vec<Payload<'a>>),
}

impl Payload<'_> {
    /// `acc += weight * payload`, one pass; sparse touches only its own entries.
    ///
    /// # Panics
    /// If the payload is not one vector of `acc.len()` numbers: the rule and its plan disagree.
    pub fn add_into(&self, weight: f32, acc: &mut [f32]) {
        match self {
            Payload::Floats(bytes) => vector::axpy_bytes(weight, bytes, acc),
            Payload::Compressed { by, noise, bytes } => by.add_into(bytes, *noise, weight, acc),
            Payload::Sparse { len, bytes } if *len == acc.len() => {
                entries::add_into(bytes, weight, acc);
            }
            other => panic!("{other:?} is not one vector: the rule and its plan disagree"),
        }
    }

    /// The bytes, and the encoder's stream of a compressed vector: what [`Format::view`] needs to
    /// read them again. No bytes for parts and for an empty payload.
    pub fn parts(&self) -> (&[u8], Option<Stream>) {
        match self {
            Payload::Compressed { bytes, noise, .. } => (bytes, Some(*noise)),
            Payload::Floats(bytes)
            | Payload::Doubles(bytes)
            | Payload::Records(bytes)
            | Payload::Sparse { bytes, .. }
            | Payload::Codes { bytes, .. }
            | Payload::Indices { bytes, .. } => (bytes, None),
            Payload::Empty | Payload::Parts(_) => (&[], None),
        }
    }

    /// `acc += weight * (payload - from)` in one pass, of plain numbers.
    ///
    /// # Panics
    /// If the payload is not as many plain numbers: the rule and its plan disagree.
    pub fn add_difference_into(&self, weight: f32, from: &[f32], acc: &mut [f32]) {
        let Payload::Floats(bytes) = self else {
            panic!("{self:?} is not plain: the rule and its plan disagree")
        };
        vector::axpy_difference_bytes(weight, bytes, from, acc);
    }

    /// Passes packed codes to `visit`, one block at a time, with the position of its first code.
    ///
    /// # Panics
    /// If the payload is something else: the rule and its plan disagree.
    pub fn codes(&self, mut visit: impl FnMut(usize, &[u8])) {
        let Payload::Codes { width, len, bytes } = *self else {
            panic!("{self:?} is no codes: the rule and its plan disagree")
        };
        let (mut codes, mut rest) = ([0; CODES], bytes);
        for from in (0..len).step_by(CODES) {
            let codes = &mut codes[..CODES.min(len - from)];
            rest = &rest[width.unpack(rest, codes)..];
            visit(from, codes);
        }
    }

    /// `x = payload`.
    ///
    /// # Panics
    /// As [`Payload::add_into`].
    pub fn write_into(&self, x: &mut [f32]) {
        if let Payload::Floats(bytes) = self {
            vector::read_floats(bytes, x);
        } else {
            x.fill(0.0);
            self.add_into(1.0, x);
        }
    }

    /// Sets `out` to the indices, ascending.
    ///
    /// # Panics
    /// If the payload is something else: the rule and its plan disagree.
    pub fn indices(&self, out: &mut Vec<u32>) {
        let Payload::Indices { len, count, bytes } = self else {
            panic!("{self:?} has no indices: the rule and its plan disagree")
        };
        out.clear();
        IndexSet::new(*len, *count).visit(bytes, |index| out.push(index));
    }

    /// The entries of a sparse vector in ascending order of index; `false` if it is dense.
    pub fn entries(&self, len: usize, visit: &mut dyn FnMut(u32, f32)) -> bool {
        match self {
            Payload::Compressed { by, noise, bytes } => by.entries(len, bytes, *noise, visit),
            Payload::Sparse { len: own, bytes } if *own == len => {
                entries::visit(len, bytes, visit);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;

    #[test]
    fn indices_come_back_and_wrong_ones_are_refused() {
        let (format, some) = (Format::Indices { len: 1000, count: 3 }, [0, 512, 999]);
        let (mut bytes, mut read) = (Vec::new(), vec![7]);
        encode_indices(&format, &some, &mut bytes);
        assert_eq!(Size::Exact(bytes.len()), format.size());
        format.check(&bytes).unwrap();
        format.view(Stream::new(0, Purpose::Test), &bytes).indices(&mut read);
        assert_eq!(read, some);
        assert!(format.check(&bytes[1..]).is_err());
        assert!(
            Format::Indices { len: 999, count: 3 }.check(&bytes).is_err(),
            "999 is not below 999"
        );
        bytes.fill(0xFF);
        assert!(format.check(&bytes).is_err());
    }
}
