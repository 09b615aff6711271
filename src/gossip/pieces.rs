//! Frames that arrive in pieces.
//!
//! A long frame need not be in memory as a whole. If it is made of blocks that are encoded by
//! themselves ([`Compressor::blocks`]: single numbers, or buckets with a scale each), and the rule
//! does nothing but add them to a vector ([`Party::target`]), its pieces are checked when they
//! arrive and added as soon as their exchange is open. Any other frame is put together first.
//!
//! [`Compressor::blocks`]: crate::compress::Compressor::blocks
//! [`Party::target`]: super::party::Party::target
//!
//! The result is the same to the bit, for any pieces: each number of the vector receives its terms
//! in ascending order of senders, because a sender's numbers are added only as far as those of the
//! senders before it ([`Streamed::add`]). So pieces of all senders flow at the same time.
//!
//! Each piece is checked before it is added; the frame's checksum is complete only with its last
//! one. If it does not match, the run ends, and the vector is not used any more: it is never the
//! one that a node saves as its model.

use std::collections::VecDeque;

use super::{
    frame::{FrameError, HEADER, Header, Sealed},
    plan::At,
};
use crate::{
    compress::{Blocks, Format, Malformed},
    rng::Stream,
};

/// A frame of one neighbour whose first pieces have arrived.
#[derive(Debug)]
pub(super) struct Incoming {
    /// The length of the frame.
    length: usize,
    /// How many of its bytes have arrived.
    arrived: usize,
    pub content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    /// The frame is put together.
    Whole(Vec<u8>),
    /// They are added as they arrive.
    Streamed(Streamed),
}

impl Incoming {
    /// A frame of `length` bytes, none of which has arrived.
    pub(super) fn new(length: usize, content: Content) -> Incoming {
        Incoming { length, arrived: 0, content }
    }

    /// Counts the bytes of a piece.
    ///
    /// # Errors
    /// If the frame has fewer.
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), String> {
        if bytes > self.length - self.arrived {
            return Err(format!(
                "a piece of {bytes} bytes where {} are left of the frame",
                self.length - self.arrived
            ));
        }
        self.arrived += bytes;
        Ok(())
    }

    /// Whether all bytes have arrived.
    pub(super) fn is_whole(&self) -> bool {
        self.arrived == self.length
    }
}

/// Numbers that are added piece by piece.
#[derive(Debug)]
pub(super) struct Streamed {
    /// Its place in the algorithm.
    pub at: At,
    header: Vec<u8>,
    /// The checksum that the frame has, and that of what was checked.
    crc_found: u32,
    crc: u32,
    blocks: Blocks,
    /// The bytes of the last block, if it is shorter than the others; else 0.
    last: usize,
    /// The numbers of the frame, those that were checked, and those that were added.
    len: usize,
    checked: usize,
    added: usize,
    /// The first bytes of a block that continues in the next piece.
    rest: Vec<u8>,
    pieces: VecDeque<Piece>,
}

/// A checked piece of a frame.
#[derive(Debug)]
struct Piece {
    /// The block that began in the piece before and ends in this one; else empty.
    first: Vec<u8>,
    /// The bytes of the piece; those from `start` to `end` are whole blocks that were not added.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Streamed {
    /// The frame of `len` numbers in these blocks that begins with this piece and has so many bytes
    /// of payload. The header is not verified yet.
    pub(super) fn begin(
        sealed: &Sealed<'_>,
        piece: &[u8],
        (blocks, len): (Blocks, usize),
        payload: usize,
    ) -> Streamed {
        Streamed {
            at: sealed.header.at,
            header: piece[..HEADER].to_vec(),
            crc_found: sealed.found(),
            crc: sealed.sum,
            blocks,
            last: payload - len / blocks.numbers * blocks.bytes,
            len,
            checked: 0,
            added: 0,
            rest: Vec::new(),
            pieces: VecDeque::new(),
        }
    }

    /// The numbers and bytes of the whole blocks in `bytes` bytes that follow the first `before`
    /// numbers, which end with a block; at most `most` numbers.
    fn whole_blocks(&self, before: usize, bytes: usize, most: usize) -> (usize, usize) {
        let (left, Blocks { numbers, bytes: size }) = (self.len - before, self.blocks);
        let count = (left / numbers).min(bytes / size).min(most / numbers);
        let all = (count * numbers, count * size);
        let (tail, fits) = (left % numbers, bytes - all.1 >= self.last);
        let ends = tail > 0 && count == left / numbers && fits && most - all.0 >= tail;
        if ends { (all.0 + tail, all.1 + self.last) } else { all }
    }

    /// Takes the next piece, from its byte `start` on, once it is checked.
    ///
    /// # Errors
    /// If it holds what no encoder writes.
    pub(super) fn take(
        &mut self,
        bytes: Vec<u8>,
        mut start: usize,
        format: &Format,
    ) -> Result<(), Malformed> {
        let mut first = Vec::new();
        if !self.rest.is_empty() {
            let is_last = self.len - self.checked < self.blocks.numbers;
            let size = if is_last { self.last } else { self.blocks.bytes };
            let missing = (size - self.rest.len()).min(bytes.len() - start);
            self.rest.extend_from_slice(&bytes[start..start + missing]);
            start += missing;
            if self.rest.len() == size {
                first = std::mem::take(&mut self.rest);
                let numbers = self.blocks.numbers.min(self.len - self.checked);
                self.check(&first, numbers, format)?;
            }
        }
        let (numbers, size) = self.whole_blocks(self.checked, bytes.len() - start, usize::MAX);
        let end = start + size;
        self.check(&bytes[start..end], numbers, format)?;
        self.rest.extend_from_slice(&bytes[end..]);
        self.pieces.push_back(Piece { first, bytes, start, end });
        Ok(())
    }

    /// Checks whole blocks, and continues the checksum.
    fn check(&mut self, bytes: &[u8], numbers: usize, format: &Format) -> Result<(), Malformed> {
        let (checked, crc) = format.stretch(numbers).check_and_sum(bytes, self.crc);
        self.crc = crc;
        checked.map_err(|Malformed(problem)| {
            Malformed(format!("from the number at index {} on: {problem}", self.checked))
        })?;
        self.checked += numbers;
        Ok(())
    }

    /// Verifies the frame once all of it has arrived.
    ///
    /// # Errors
    /// If its checksum does not match.
    pub(super) fn verify(&self) -> Result<(), FrameError> {
        let (found, computed) = (self.crc_found, self.crc);
        if found == computed { Ok(()) } else { Err(FrameError::Checksum { found, computed }) }
    }

    /// `acc += weight * payload`, as far as it has arrived, but at most for the first `most`
    /// numbers; passes on the buffers of pieces that are no longer needed.
    pub(super) fn add(
        &mut self,
        (weight, acc): (f32, &mut [f32]),
        most: usize,
        format: &Format,
        noise: Stream,
        mut free: impl FnMut(Vec<u8>),
    ) {
        while let Some(Piece { mut first, bytes, mut start, end }) = self.pieces.pop_front() {
            let mut stretch = |blocks: &[u8]| {
                let most = most.saturating_sub(self.added);
                let (numbers, size) = self.whole_blocks(self.added, blocks.len(), most);
                let some = &mut acc[self.added..self.added + numbers];
                let format = format.stretch(numbers);
                format.view(noise, &blocks[..size]).add_into(weight, some);
                self.added += numbers;
                size
            };
            if !first.is_empty() && stretch(&first) > 0 {
                first.clear();
            }
            if first.is_empty() {
                start += stretch(&bytes[start..end]);
            }
            if start < end || !first.is_empty() {
                self.pieces.push_front(Piece { first, bytes, start, end });
                return;
            }
            free(bytes);
        }
    }

    /// How many numbers were added.
    pub(super) fn added(&self) -> usize {
        self.added
    }

    /// Whether all numbers were added.
    pub(super) fn is_over(&self) -> bool {
        self.added == self.len
    }

    /// What remains of the frame once its numbers were added: its header.
    pub(super) fn into_header(self) -> Vec<u8> {
        self.header
    }
}

/// Whether these bytes are what [`Streamed::into_header`] leaves of a frame in this format.
pub(super) fn is_added(payload: &[u8], format: &Format) -> bool {
    payload.is_empty() && format.blocks().is_some_and(|(_, len)| len > 0)
}

/// The header of a frame that begins with this piece, if the piece is long enough.
pub(super) fn header_of(piece: &[u8]) -> Option<(Sealed<'_>, Header)> {
    let sealed = Sealed::new(piece).ok()?;
    Some((sealed, sealed.header))
}
