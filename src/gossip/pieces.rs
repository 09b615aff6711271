//! Frames that arrive in pieces.
//!
//! A long frame need not be in memory as a whole. If every number of it is encoded by itself, and
//! the rule does nothing but add them to a vector ([`Party::target`]), its pieces are checked when
//! they arrive and added as soon as their exchange is open. Any other frame is put together first.
//!
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
    compress::{Format, Malformed},
    rng::Stream,
};

/// A frame of one neighbour whose first pieces have arrived.
#[derive(Debug)]
pub struct Incoming {
    /// The length of the frame.
    length: usize,
    /// How many of its bytes have arrived.
    arrived: usize,
    /// What becomes of them.
    pub content: Content,
}

/// What becomes of pieces.
#[derive(Debug)]
pub enum Content {
    /// The frame is put together.
    Whole(Vec<u8>),
    /// They are added as they arrive.
    Streamed(Streamed),
}

impl Incoming {
    /// A frame of `length` bytes, none of which has arrived.
    pub fn new(length: usize, content: Content) -> Incoming {
        Incoming { length, arrived: 0, content }
    }

    /// Counts the bytes of a piece.
    ///
    /// # Errors
    /// If the frame has fewer.
    pub fn count(&mut self, bytes: usize) -> Result<(), String> {
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
    pub fn is_whole(&self) -> bool {
        self.arrived == self.length
    }
}

/// Numbers that are added piece by piece.
#[derive(Debug)]
pub struct Streamed {
    /// Its place in the algorithm.
    pub at: At,
    header: Vec<u8>,
    /// The checksum that the frame has, and that of what was checked.
    crc_found: u32,
    crc: u32,
    /// Bytes of a number.
    width: usize,
    /// The numbers of the frame, those that were checked, and those that were added.
    len: usize,
    checked: usize,
    added: usize,
    /// The first bytes of a number that continues in the next piece.
    rest: Vec<u8>,
    /// Checked pieces, each with its first byte that was not added yet.
    pieces: VecDeque<(Vec<u8>, usize)>,
}

impl Streamed {
    /// The frame of `len` numbers of `width` bytes that begins with this piece. The header is not
    /// verified yet.
    pub fn begin(sealed: &Sealed<'_>, piece: &[u8], width: usize, len: usize) -> Streamed {
        Streamed {
            at: sealed.header.at,
            header: piece[..HEADER].to_vec(),
            crc_found: sealed.found(),
            crc: sealed.sum,
            width,
            len,
            checked: 0,
            added: 0,
            rest: Vec::new(),
            pieces: VecDeque::new(),
        }
    }

    /// Takes the next piece, from its byte `start` on, once it is checked.
    ///
    /// # Errors
    /// If it holds what no encoder writes.
    pub fn take(
        &mut self,
        mut piece: Vec<u8>,
        mut start: usize,
        format: &Format,
    ) -> Result<(), Malformed> {
        if !self.rest.is_empty() {
            // Only if someone cuts frames within numbers.
            let mut whole = std::mem::take(&mut self.rest);
            whole.extend_from_slice(&piece[start..]);
            (piece, start) = (whole, 0);
        }
        let numbers = (piece.len() - start) / self.width;
        self.rest.extend_from_slice(&piece[start + numbers * self.width..]);
        piece.truncate(start + numbers * self.width);
        let (checked, crc) = format.stretch(numbers).check_and_sum(&piece[start..], self.crc);
        self.crc = crc;
        checked.map_err(|Malformed(problem)| {
            Malformed(format!("from the number at index {} on: {problem}", self.checked))
        })?;
        self.checked += numbers;
        self.pieces.push_back((piece, start));
        Ok(())
    }

    /// Verifies the frame once all of it has arrived.
    ///
    /// # Errors
    /// If its checksum does not match.
    pub fn verify(&self) -> Result<(), FrameError> {
        let (found, computed) = (self.crc_found, self.crc);
        if found == computed { Ok(()) } else { Err(FrameError::Checksum { found, computed }) }
    }

    /// `acc += weight * payload`, as far as it has arrived, but at most for the first `most`
    /// numbers; passes on the buffers of pieces that are no longer needed.
    pub fn add(
        &mut self,
        (weight, acc): (f32, &mut [f32]),
        most: usize,
        format: &Format,
        noise: Stream,
        mut free: impl FnMut(Vec<u8>),
    ) {
        while let Some((piece, start)) = self.pieces.front_mut() {
            let numbers =
                ((piece.len() - *start) / self.width).min(most.saturating_sub(self.added));
            let bytes = &piece[*start..*start + numbers * self.width];
            let some = &mut acc[self.added..self.added + numbers];
            format.view(noise, bytes).add_into(weight, some);
            self.added += numbers;
            *start += numbers * self.width;
            if *start < piece.len() {
                return;
            }
            free(self.pieces.pop_front().expect("it was there").0);
        }
    }

    /// How many numbers were added.
    pub fn added(&self) -> usize {
        self.added
    }

    /// Whether all numbers were added.
    pub fn is_over(&self) -> bool {
        self.added == self.len
    }

    /// What remains of the frame once its numbers were added: its header.
    pub fn into_header(self) -> Vec<u8> {
        self.header
    }
}

/// Whether these bytes are what [`Streamed::into_header`] leaves of a frame in this format.
pub fn is_added(payload: &[u8], format: &Format) -> bool {
    payload.is_empty() && format.plain().is_some_and(|(_, len)| len > 0)
}

/// The header of a frame that begins with this piece, if the piece is long enough.
pub fn header_of(piece: &[u8]) -> Option<(Sealed<'_>, Header)> {
    let sealed = Sealed::new(piece).ok()?;
    Some((sealed, sealed.header))
}
