//! The trait of the participants in exchanges: rules, and the tree exchanges around them.

use super::{byzantine::Byzantine, plan::At};
use crate::{
    compress::{
        Entries, Format, Malformed, NonFinite, Payload, encode_codes, encode_entries,
        encode_indices,
    },
    rng::{Purpose, Stream},
    units::NodeId,
};

/// The model of one node and the buffer of its update, both of d numbers. The engine owns them and
/// lends both to the learner while a gradient is computed; they are empty meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// x_i: the point of the next gradient.
    pub x: Vec<f32>,
    /// The update, the sum of step times direction, once the gradient is computed; afterwards a
    /// buffer that a rule may use until the next gradient.
    pub update: Vec<f32>,
}

impl Local {
    /// A model at `x`, with an update of zeros.
    pub fn new(x: Vec<f32>) -> Local {
        Local { update: vec![0.0; x.len()], x }
    }
}

/// The result of writing a payload; the error is the first number that is not finite.
pub type Encoded = Result<(), NonFinite>;

/// The result of taking a payload; the error says why it is malformed although its size is right.
pub type Received = Result<(), Malformed>;

/// A weight and the vector to which payloads are added with it, if a rule does nothing else with
/// them.
pub type Target<'a> = Option<(f32, &'a mut [f32])>;

/// One side of a flight's exchanges. It never waits and never sees a clock, a link or a
/// compressor's name.
///
/// For each exchange the engine calls, in this order: [`Party::outgoing`] and [`Party::sent`] (once
/// for a shared encoding, else once per receiver), [`Party::received`] for every sender in
/// ascending order, [`Party::close`].
pub trait Party: Send {
    /// Writes the payload for one receiver ([`Writer::receiver`]) or for all.
    ///
    /// # Errors
    /// If a value is not finite.
    fn outgoing(&mut self, local: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded;

    /// Takes this node's own payload as its receivers decode it: what they add to a copy, its owner
    /// adds here.
    ///
    /// Called only for a frame that arrives. A driver whose links may lose frames calls it, like
    /// [`Party::received`] at the other end, once the arrival is known; with reliable links that is
    /// at once. So state that depends on both ends (copies, mass that moves) is changed here, never
    /// in [`Party::outgoing`]. A shared encoding counts only if all receivers get it.
    fn sent(&mut self, _local: &mut Local, _at: &At, _to: Option<NodeId>, _own: &Payload<'_>) {}

    /// The weight of the payload of `from` and the vector to which it is added, if the rule does
    /// nothing else with it: then long frames are added piece by piece, as they arrive. A piece may
    /// turn out to belong to a damaged frame, which ends the run, so the vector must not be the
    /// model that the node then saves.
    fn target<'a>(&'a mut self, _: &'a mut Local, _: &At, _from: NodeId) -> Target<'a> {
        None
    }

    /// Takes the payload of `from`. A rule whose [`Party::target`] says where it is added needs no
    /// other.
    ///
    /// # Errors
    /// If the payload has the right size but is malformed; no state has changed.
    fn received(&mut self, local: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        let Some((weight, acc)) = self.target(local, at, from) else {
            return Err(Malformed("the rule takes no frames".into()));
        };
        p.add_into(weight, acc);
        Ok(())
    }

    /// Ends an exchange: all its frames have been taken.
    fn close(&mut self, _local: &mut Local, _at: &At) {}

    /// The copies that it keeps of its neighbours' vectors, if any.
    fn copies(&self) -> Option<&dyn Copies> {
        None
    }

    /// Its side of calls, if the plan calls.
    fn answers(&mut self) -> Option<&mut dyn Answers> {
        None
    }
}

/// Vectors that a node and its neighbours hold in common. The engine regularly compares copies with
/// their owners' vectors.
pub trait Copies {
    /// This node's own vector: the one that `to` has a copy of, or that all have if `to` is `None`.
    fn own<'a>(&'a self, local: &'a Local, to: Option<NodeId>) -> Option<&'a [f32]>;

    /// The copy of the vector of `from`.
    fn of<'a>(&'a self, local: &'a Local, from: NodeId) -> Option<&'a [f32]>;
}

/// The called side of a plan that calls.
pub trait Answers {
    /// Applies the update of a call of `from`; [`Answers::answer`] follows when no node is too far
    /// behind. Only if the plan has a bound.
    fn called(&mut self, _local: &mut Local, _at: &At, _from: NodeId, _ask: &Payload<'_>) {}

    /// Answers the caller, at any time in this node's rounds: takes the payload of the call, unless
    /// the plan has a bound, and writes the answer.
    ///
    /// # Errors
    /// If a value is not finite.
    fn answer(
        &mut self,
        local: &mut Local,
        at: &At,
        ask: &Payload<'_>,
        out: &mut Writer<'_>,
    ) -> Encoded;
}

/// Room for records in a new buffer, which grows if they are longer.
const SHORT_RECORDS: usize = 16 << 10;

/// The writer of a payload, straight into the frame's buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    format: &'a Format,
    to: Option<NodeId>,
    noise: Stream,
    byzantine: Option<Byzantine>,
    buffer: &'a mut Vec<u8>,
    sum: Option<u32>,
}

impl<'a> Writer<'a> {
    /// A writer of one payload in this format, for one receiver or for all.
    pub fn new(
        format: &'a Format,
        to: Option<NodeId>,
        noise: Stream,
        buffer: &'a mut Vec<u8>,
    ) -> Writer<'a> {
        let room = match format {
            // Most are far shorter than the limit.
            Format::Records(limit) => *limit.min(&SHORT_RECORDS),
            format => format.size().limit(),
        };
        buffer.reserve_exact(room);
        Writer { format, to, noise, byzantine: None, buffer, sum: None }
    }

    /// The same, of a node that may be Byzantine.
    #[must_use]
    pub(super) fn byzantine(self, byzantine: Option<Byzantine>) -> Writer<'a> {
        Writer { byzantine, ..self }
    }

    /// The receiver; `None` if all receive the same payload.
    pub fn receiver(&self) -> Option<NodeId> {
        self.to
    }

    /// Writes one vector, compressed if the plan says so.
    ///
    /// # Errors
    /// If it holds a NaN or an infinity.
    ///
    /// # Panics
    /// If the plan's format is for something else.
    pub fn vector(&mut self, v: &[f32]) -> Result<(), NonFinite> {
        let distorted = self.byzantine.map(|byzantine| byzantine.distort(v, self.noise));
        let v = distorted.as_deref().unwrap_or(v);
        self.sum = self.format.encode_and_sum(v, self.noise, self.buffer)?;
        Ok(())
    }

    /// The CRC-32C of the payload, if writing it has computed it.
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

    /// Writes packed codes. `fill` is called for one block after another, with the position of the
    /// block's first code, and writes all of it.
    ///
    /// # Errors
    /// The error of `fill`.
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
        self.buffer.reserve(8 * v.len());
        for x in v {
            self.buffer.extend_from_slice(&x.to_le_bytes());
        }
    }

    /// Writes opaque bytes.
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

/// The random stream of one payload, known to both ends. `to` is `None` for an encoding that all
/// receivers share.
pub fn payload_noise(seed: u64, from: NodeId, to: Option<NodeId>, at: &At) -> Stream {
    let peer = to.map_or(0, |to| u64::from(to.0) + 1);
    let stream = Stream::new(seed, Purpose::Compress).node(from).with(peer).round(at.round);
    stream.with(u64::from(at.flight)).with(u64::from(at.exchange))
}
