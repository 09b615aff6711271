//! One message on a link: a fixed header, then the payload.
//!
//! ```text
//! round u64 | flight u8 | exchange u16 | replica u32 | checksum u32 | payload
//! ```
//! All little-endian. `replica` is the CRC-32C of the sender's public copy after this frame (0: not
//! computed); with it a receiver checks that no difference was lost. `checksum` is the CRC-32C of
//! the header before it and the payload. The link adds its own envelope (length and sequence
//! number), so one frame can go to all neighbours.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::{Deserialize, Serialize};

use super::plan::At;
use crate::units::Round;

/// The bytes before the payload.
pub const HEADER: usize = 19;

/// The bytes that a link puts before a frame: length and sequence number, 8 each.
pub(crate) const ENVELOPE: usize = 16;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The position of this frame in the algorithm.
    pub at: At,
    /// CRC-32C of the sender's public copy once this frame is applied; `None` if not computed.
    pub replica: Option<u32>,
}

/// Bytes from a peer that are not a frame. The sender is at fault; no state has changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame of this length, which is shorter than a header.
    #[error("a frame of {0} bytes: a frame has at least {HEADER}")]
    Short(usize),
    /// The checksum does not match.
    #[error(
        "the checksum {found:08x} does not match the bytes' {computed:08x}: damaged on its way or \
         wrongly made"
    )]
    Checksum {
        /// The checksum in the frame.
        found: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A header that does not decode.
    #[error("the header does not decode: {0}")]
    Header(String),
}

#[derive(Serialize, Deserialize)]
struct Wire {
    round: u64,
    flight: u8,
    exchange: u16,
    replica: u32,
    checksum: u32,
}

fn layout() -> Configuration<LittleEndian, Fixint, Limit<HEADER>> {
    bincode::config::standard().with_fixed_int_encoding().with_limit::<HEADER>()
}

/// Two sums are combined in some 10 us, in which the sum over this many bytes is formed again.
const SHORT: usize = 64 << 10;

/// Reserves space for the header at the start of an empty buffer; [`seal`] writes it once the
/// payload is complete.
pub fn reserve(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(HEADER, 0);
}

/// Writes the header of a finished frame. `payload_sum` is the CRC-32C of the payload, if already
/// known.
///
/// # Panics
/// If the buffer did not start with [`reserve`].
pub fn seal(header: &Header, payload_sum: Option<u32>, buffer: &mut [u8]) {
    let mut wire = Wire {
        round: header.at.round.0,
        flight: header.at.flight,
        exchange: header.at.exchange,
        replica: header.replica.unwrap_or(0),
        checksum: 0,
    };
    let write = |wire: &Wire, buffer: &mut [u8]| {
        let written = bincode::serde::encode_into_slice(wire, &mut buffer[..HEADER], layout());
        assert_eq!(written.ok(), Some(HEADER), "a header is {HEADER} bytes");
    };
    write(&wire, buffer);
    let length = buffer.len() - HEADER;
    wire.checksum = match payload_sum.filter(|_| length > SHORT) {
        Some(sum) => crc32c::crc32c_combine(header_sum(buffer), sum, length),
        None => crc32c::crc32c_append(header_sum(buffer), &buffer[HEADER..]),
    };
    write(&wire, buffer);
}

/// A frame whose header decodes and whose checksum has not been compared yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sealed<'a> {
    /// The header, not verified yet.
    pub(crate) header: Header,
    pub(crate) payload: &'a [u8],
    /// The CRC-32C of the header bytes that it covers; the sum over the payload continues from it.
    pub(crate) sum: u32,
    found: u32,
}

impl<'a> Sealed<'a> {
    /// Decodes a frame's header.
    ///
    /// # Errors
    /// If the bytes are too short.
    pub(crate) fn new(frame: &'a [u8]) -> Result<Sealed<'a>, FrameError> {
        let wire = decode(frame)?;
        Ok(Sealed {
            header: wire.header(),
            payload: &frame[HEADER..],
            sum: header_sum(frame),
            found: wire.checksum,
        })
    }

    /// The checksum in the frame.
    pub(crate) fn found(&self) -> u32 {
        self.found
    }

    /// Compares the frame's checksum with `computed`, which is `sum` continued over the payload.
    ///
    /// # Errors
    /// If they differ.
    pub(crate) fn verify(&self, computed: u32) -> Result<(), FrameError> {
        if self.found == computed {
            Ok(())
        } else {
            Err(FrameError::Checksum { found: self.found, computed })
        }
    }
}

/// Splits a frame into its header and payload.
///
/// # Errors
/// If the bytes are short or their checksum does not match.
#[cfg(test)]
pub(crate) fn open(frame: &[u8]) -> Result<(Header, &[u8]), FrameError> {
    let sealed = Sealed::new(frame)?;
    sealed.verify(crc32c::crc32c_append(sealed.sum, sealed.payload))?;
    Ok((sealed.header, sealed.payload))
}

/// Splits a frame that [`Sealed::verify`] has accepted, without another pass over it.
///
/// # Panics
/// If it has not.
pub(crate) fn read(frame: &[u8]) -> (Header, &[u8]) {
    (decode(frame).expect("the frame was opened before").header(), &frame[HEADER..])
}

/// The checksum of a frame that [`Sealed::verify`] has accepted, or of its header alone.
///
/// # Panics
/// If the bytes are shorter than a header.
pub(crate) fn checksum(frame: &[u8]) -> u32 {
    decode(frame).expect("the frame was opened before").checksum
}

impl Wire {
    fn header(&self) -> Header {
        let at = At { round: Round(self.round), flight: self.flight, exchange: self.exchange };
        Header { at, replica: (self.replica != 0).then_some(self.replica) }
    }
}

fn decode(frame: &[u8]) -> Result<Wire, FrameError> {
    let head = frame.get(..HEADER).ok_or(FrameError::Short(frame.len()))?;
    let (wire, _) = bincode::serde::decode_from_slice(head, layout())
        .map_err(|error| FrameError::Header(error.to_string()))?;
    Ok(wire)
}

/// The digest of a public copy as frames carry it: CRC-32C of its little-endian bytes, never 0.
pub(crate) fn replica_digest(x: &[f32]) -> u32 {
    let digest = if cfg!(target_endian = "little") {
        crc32c::crc32c(bytemuck::cast_slice(x))
    } else {
        x.iter().fold(0, |crc, x| crc32c::crc32c_append(crc, &x.to_le_bytes()))
    };
    digest.max(1)
}

fn header_sum(frame: &[u8]) -> u32 {
    crc32c::crc32c(&frame[..HEADER - 4])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Vec<u8> {
        let mut buffer = vec![9; 100];
        reserve(&mut buffer);
        buffer.extend_from_slice(b"payload");
        let at = At { round: Round(0x0102_0304_0506_0708), flight: 9, exchange: 0x0a0b };
        seal(&Header { at, replica: Some(0x0c0d_0e0f) }, None, &mut buffer);
        buffer
    }

    #[test]
    fn golden_bytes() {
        let expected: Vec<u8> = [
            &[8, 7, 6, 5, 4, 3, 2, 1, 9, 0x0b, 0x0a, 0x0f, 0x0e, 0x0d, 0x0c][..],
            &GOLDEN_CHECKSUM,
            b"payload",
        ]
        .concat();
        assert_eq!(frame(), expected);
    }

    /// CRC-32C (Castagnoli) of the other bytes, computed by an independent bitwise implementation.
    const GOLDEN_CHECKSUM: [u8; 4] = [173, 21, 251, 139];

    #[test]
    fn a_sum_that_is_known_makes_the_same_frame() {
        for length in [7, SHORT + 1] {
            let mut known = frame();
            known.resize(HEADER + length, 5);
            let header = open(&frame()).unwrap().0;
            seal(&header, None, &mut known);
            let mut other = known.clone();
            other[..HEADER].fill(0);
            seal(&header, Some(crc32c::crc32c(&known[HEADER..])), &mut other);
            assert_eq!(other, known, "{length} bytes");
        }
    }

    #[test]
    fn round_trip() {
        let frame = frame();
        let (header, payload) = open(&frame).unwrap();
        assert_eq!(
            (header.at.round.0, header.replica, payload),
            (0x0102_0304_0506_0708, Some(0x0c0d_0e0f), &b"payload"[..])
        );
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let frame = frame();
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open(&damaged).is_err(), "bit {bit}");
        }
        for length in 0..frame.len() {
            assert!(open(&frame[..length]).is_err(), "length {length}");
        }
    }
}
