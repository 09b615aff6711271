//! What takes part in exchanges: a rule, or one of the tree exchanges around it.

use super::plan::At;
use crate::{
    compress::{
        Entries, Format, Malformed, NonFinite, Payload, encode_codes, encode_entries,
        encode_indices,
    },
    rng::{Purpose, Stream},
    units::NodeId,
};

/// One side of a flight's exchanges. Never waits; never sees a clock, a link or a compressor's
/// name.
///
/// For each exchange the engine calls, in this order: [`Party::outgoing`] and [`Party::sent`] (once
/// for a shared encoding, else once per receiver), [`Party::received`] for every sender in
/// ascending order, [`Party::close`]; after the flight's last exchange, when the program says so,
/// [`Party::land`].
pub trait Party: Send {
    /// Writes what `to` shall receive (`None`: all the same).
    ///
    /// # Errors
    /// If a value is not finite.
    fn outgoing(
        &mut self,
        at: &At,
        to: Option<NodeId>,
        out: &mut Writer<'_>,
    ) -> Result<(), NonFinite>;

    /// The same bytes, as the receivers will read them: whatever they add to a copy, its owner adds
    /// here.
    ///
    /// Called only for a frame that arrives: a driver whose links may lose frames calls it, as
    /// [`Party::received`] at the other end, when that is known; with reliable links that is at
    /// once. So what depends on both ends (copies, mass that moves) belongs here, never into
    /// [`Party::outgoing`]. A shared encoding arrives everywhere or it does not count.
    fn sent(&mut self, _at: &At, _to: Option<NodeId>, _own: &Payload<'_>) {}

    /// What `from` sent.
    ///
    /// # Errors
    /// If the payload has the right size but no meaning; nothing has changed then.
    fn received(&mut self, at: &At, from: NodeId, payload: &Payload<'_>) -> Result<(), Malformed>;

    /// Answers `from`, which calls, at any time of this node's rounds: takes what it asks, and
    /// writes what it gets. Only where the plan calls.
    ///
    /// # Errors
    /// If a value is not finite.
    fn answer(
        &mut self,
        at: &At,
        _from: NodeId,
        _ask: &Payload<'_>,
        _out: &mut Writer<'_>,
    ) -> Result<(), NonFinite> {
        unreachable!("{at}: no call is in this plan")
    }

    /// Takes what `from` brings that calls; [`Party::answer`] follows when nobody is too far
    /// behind. Only where the plan has a bound.
    fn called(&mut self, at: &At, _from: NodeId, _ask: &Payload<'_>) {
        unreachable!("{at}: no bound is in this plan")
    }

    /// All of an exchange is in.
    fn close(&mut self, _at: &At) {}

    /// Folds a finished flight into the state.
    fn land(&mut self, _at: &At) {}

    /// The public copy of a node's model that is held here (`None`: this node's own), for the proof
    /// that copies agree.
    fn replica(&self, _of: Option<NodeId>) -> Option<&[f32]> {
        None
    }

    /// The public copy of this node's model that `to` alone holds, where every neighbour has
    /// another.
    fn replica_for(&self, _to: NodeId) -> Option<&[f32]> {
        None
    }
}

/// Where a party writes a payload: straight into the frame's buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    format: &'a Format,
    noise: Stream,
    buffer: &'a mut Vec<u8>,
    sum: Option<u32>,
}

impl<'a> Writer<'a> {
    /// A writer of one payload in this format.
    pub fn new(format: &'a Format, noise: Stream, buffer: &'a mut Vec<u8>) -> Writer<'a> {
        buffer.reserve_exact(format.size().limit());
        Writer { format, noise, buffer, sum: None }
    }

    /// Writes one vector, compressed if the plan says so.
    ///
    /// # Errors
    /// If it holds a NaN or an infinity.
    ///
    /// # Panics
    /// If the plan's format is for something else.
    pub fn vector(&mut self, v: &[f32]) -> Result<(), NonFinite> {
        self.sum = self.format.encode_and_sum(v, self.noise, self.buffer)?;
        Ok(())
    }

    /// The CRC-32C of the payload, where writing it has taken it already.
    pub(super) fn sum(&self) -> Option<u32> {
        self.sum
    }

    /// Writes entries of a vector.
    ///
    /// # Errors
    /// If a value is a NaN or an infinity.
    ///
    /// # Panics
    /// If the plan's format is for something else, or for fewer entries.
    pub fn entries(&mut self, entries: &Entries) -> Result<(), NonFinite> {
        encode_entries(self.format, entries, self.buffer)
    }

    /// Writes packed codes. `fill` is given blocks in turn, each with the place of its first code,
    /// and writes all of it.
    ///
    /// # Errors
    /// What `fill` says.
    ///
    /// # Panics
    /// If the plan's format is for something else.
    pub fn codes(
        &mut self,
        fill: impl FnMut(usize, &mut [u8]) -> Result<(), NonFinite>,
    ) -> Result<(), NonFinite> {
        encode_codes(self.format, self.buffer, fill)
    }

    /// Writes ascending indices of a vector.
    ///
    /// # Panics
    /// If the plan's format is for something else, or for another number of them.
    pub fn indices(&mut self, indices: &[u32]) {
        encode_indices(self.format, indices, self.buffer);
    }

    /// Writes double-precision numbers.
    ///
    /// # Panics
    /// If the plan's format is for something else.
    pub fn doubles(&mut self, v: &[f64]) {
        assert!(
            matches!(self.format, Format::Doubles(len) if *len == v.len()),
            "{:?} does not carry doubles",
            self.format
        );
        self.buffer.extend(v.iter().flat_map(|x| x.to_le_bytes()));
    }

    /// Writes bytes with a meaning of their own.
    ///
    /// # Panics
    /// If the plan's format is for something else.
    pub fn records(&mut self, bytes: &[u8]) {
        assert!(
            matches!(self.format, Format::Records(_)),
            "{:?} does not carry records",
            self.format
        );
        self.buffer.extend_from_slice(bytes);
    }
}

/// The stream of randomness of one payload, known to both ends. `to` is `None` for an encoding that
/// all receivers share.
pub fn payload_noise(seed: u64, from: NodeId, to: Option<NodeId>, at: &At) -> Stream {
    let peer = to.map_or(0, |to| u64::from(to.0) + 1);
    let stream = Stream::new(seed, Purpose::Compress).node(from).with(peer).round(at.round);
    stream.with(u64::from(at.flight)).with(u64::from(at.exchange))
}
