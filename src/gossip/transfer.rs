//! The frames of one node: encoding and sending, taking and checking.

use std::{borrow::Cow, sync::Arc};

use litemap::LiteMap;

use super::{
    byzantine::Byzantine,
    event::{Effect, Failure},
    fingerprint::Fingerprints,
    flights::Carrier,
    frame::{self, ENVELOPE, HEADER, Header},
    party::{Local, Party, Received, Writer, payload_noise},
    pieces::is_added,
    plan::{At, Meeting, Plan},
    traffic::{LinkTraffic, Traffic},
    tree::LAST_CALL,
};
use crate::{
    compress::{Format, Malformed, NonFinite, Payload},
    rng::Stream,
    units::NodeId,
    vector,
};

/// Rounds between two checks that copies agree with their owners.
pub(super) const REPLICA_EVERY: u64 = 16;

/// Whether copies agree with their owners after this frame.
fn is_compared(at: &At, plan: &dyn Plan) -> bool {
    at.exchange == 0 && plan.is_compared(at.flight)
}

#[derive(Debug, Default)]
struct Link {
    /// Buffers of frames that the party has taken, if links read ahead, and of frames that were put
    /// together from pieces.
    spare: Vec<Vec<u8>>,
    /// The buffers of the last pieces of frames that were put together: the link gets them in place
    /// of the frames' own buffers.
    pieces: Vec<Vec<u8>>,
    /// Bytes that the rule has sent over the link: `payload` of payloads, `wire` in all.
    payload: u64,
    wire: u64,
}

/// Buffers and counters of the frames of one node.
#[derive(Debug)]
pub(super) struct Transfer {
    id: NodeId,
    seed: u64,
    links: LiteMap<NodeId, Link>,
    /// Sent buffers; reused when no link holds them.
    pool: Vec<Arc<Vec<u8>>>,
    /// Whether a link may deliver its next frame while one is held: if the plan
    /// [crosses](super::plan::crosses).
    ahead: bool,
    theirs: Meeting,
    /// What this node sends in place of its vectors, if it is Byzantine.
    byzantine: Option<Byzantine>,
    /// The greatest norm of a neighbour's vector, if there is a limit.
    max_norm: Option<f64>,
    /// The greatest norm of one that does not explain why this node's model has diverged, if this
    /// node looks for the cause.
    guard: Option<f64>,
    /// A neighbour's vector, while its norm is compared.
    decoded: Vec<f32>,
    fingerprints: Fingerprints,
    pub traffic: Traffic,
}

impl Transfer {
    /// Nothing sent yet. `ahead`: links deliver frames before they are due.
    pub(super) fn new(id: NodeId, seed: u64, neighbours: &[NodeId], ahead: bool) -> Transfer {
        Transfer {
            id,
            seed,
            links: neighbours.iter().map(|&peer| (peer, Link::default())).collect(),
            pool: Vec::new(),
            ahead,
            theirs: Meeting::default(),
            byzantine: None,
            max_norm: None,
            guard: None,
            decoded: Vec::new(),
            fingerprints: Fingerprints::default(),
            traffic: Traffic::default(),
        }
    }

    /// The same, of a node that may be Byzantine.
    #[must_use]
    pub(super) fn byzantine(self, byzantine: Option<Byzantine>) -> Transfer {
        Transfer { byzantine, ..self }
    }

    /// The same, of a node that may refuse long vectors.
    #[must_use]
    pub(super) fn accepting(self, max_norm: Option<f64>) -> Transfer {
        Transfer { max_norm, ..self }
    }

    /// The same, of a node that may look for the cause of its divergence.
    #[must_use]
    pub(super) fn guarding(self, guards: bool) -> Transfer {
        Transfer { guard: guards.then_some(f64::MAX), ..self }
    }

    /// Whether it looks for the cause of its divergence.
    pub(super) fn guards(&self) -> bool {
        self.guard.is_some()
    }

    /// Longer vectors are the cause from now on, if this node looks for it.
    pub(super) fn guard(&mut self, most: f64) {
        self.guard = self.guard.map(|_| most);
    }

    /// Whether norms are compared.
    fn compares_norms(&self) -> bool {
        self.max_norm.is_some() || self.guard.is_some()
    }

    /// What this node gives for its vector, if it is Byzantine; else the vector.
    pub(super) fn distorted<'a>(&self, at: &At, own: &'a [f32]) -> Cow<'a, [f32]> {
        let noise = payload_noise(self.seed, self.id, None, at);
        let distort = |byzantine: Byzantine| Cow::Owned(byzantine.distort(own, noise));
        self.byzantine.map_or(Cow::Borrowed(own), distort)
    }

    /// Refuses a vector of a rule that is longer than the limit.
    fn check_norm(&mut self, at: &At, format: &Format, payload: &Payload<'_>) -> Received {
        if !self.compares_norms() || at.flight >= LAST_CALL {
            return Ok(());
        }
        let Some(len) = format.vector_len() else { return Ok(()) };
        self.decoded.clear();
        self.decoded.resize(len, 0.0);
        payload.add_into(1.0, &mut self.decoded);
        let norm = vector::norm_squared(&self.decoded).sqrt();
        let above = |most: &f64| norm.is_nan() || norm > *most;
        if let Some(most) = self.max_norm.filter(above) {
            let text =
                format!("the norm of the vector is {norm:e}, above robust.max_norm = {most}");
            return Err(Malformed(text));
        }
        match self.guard.filter(above) {
            Some(most) => Err(Malformed(format!(
                "the norm of the vector is {norm:e}: one above {most:e} makes the models of its \
                 neighbours diverge"
            ))),
            None => Ok(()),
        }
    }

    /// Continues the counts of an earlier part of the run.
    pub(super) fn count_from(&mut self, traffic: Traffic, links: &[LinkTraffic]) {
        self.traffic = traffic;
        for LinkTraffic { to, payload, wire } in links {
            if let Some(link) = self.links.get_mut(to) {
                (link.payload, link.wire) = (*payload, *wire);
            }
        }
    }

    /// Bytes that the rule has sent over each link.
    pub(super) fn by_link(&self) -> Vec<LinkTraffic> {
        let of = |(&to, link): (&NodeId, &Link)| LinkTraffic {
            to,
            payload: link.payload,
            wire: link.wire,
        };
        self.links.iter().map(of).collect()
    }

    /// Lets a link deliver its next frame while the last one is held, if links read ahead.
    pub(super) fn read_on(&mut self, from: NodeId, out: &mut Vec<Effect>) {
        if let Some(link) = self.links.get_mut(&from).filter(|_| self.ahead) {
            let buffer = link.pieces.pop().or_else(|| link.spare.pop()).unwrap_or_default();
            out.push(Effect::Recycle { from, buffer });
        }
    }

    /// Returns the buffer of a frame that has been taken: the link may deliver its next one.
    pub(super) fn recycle(&mut self, from: NodeId, buffer: Vec<u8>, out: &mut Vec<Effect>) {
        let Some(link) = self.links.get_mut(&from) else { return };
        let buffer = match link.pieces.pop() {
            Some(piece) => {
                link.spare.push(buffer);
                piece
            }
            None => buffer,
        };
        out.push(Effect::Recycle { from, buffer });
    }

    /// Whether frames of the rule may be added piece by piece.
    pub(super) fn may_add_pieces(&self) -> bool {
        !self.ahead && !self.compares_norms()
    }

    /// A buffer for a frame that is put together from pieces.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub(super) fn whole(&mut self, from: NodeId, length: usize) -> Result<Vec<u8>, String> {
        let spare = self.links.get_mut(&from).and_then(|link| link.spare.pop());
        let mut buffer = spare.unwrap_or_default();
        buffer.clear();
        let reserved = buffer.try_reserve_exact(length);
        reserved.map_err(|error| format!("a frame of {length} bytes: {error}"))?;
        Ok(buffer)
    }

    /// Keeps the buffer of the last piece of a frame until the frame has been taken.
    pub(super) fn keep_piece(&mut self, from: NodeId, piece: Vec<u8>) {
        if let Some(link) = self.links.get_mut(&from) {
            link.pieces.push(piece);
        }
    }

    /// The encoder's noise of a frame that this node receives.
    pub(super) fn noise(&mut self, at: &At, from: NodeId, plan: &dyn Plan) -> Stream {
        self.theirs.clear();
        plan.meet(from, at, &mut self.theirs);
        let to = (!self.theirs.shared).then_some(self.id);
        payload_noise(self.seed, from, to, at)
    }

    /// Drops the buffers of a neighbour whose link ended.
    pub(super) fn forget(&mut self, peer: NodeId) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.spare.clear();
            link.pieces.clear();
        }
    }

    /// Frees the buffers of sent frames: the next frames have another size.
    pub(super) fn forget_buffers(&mut self) {
        self.pool.clear();
        self.links.iter_mut().for_each(|(_, link)| link.spare.clear());
    }

    /// Checks the norm of a call, if there is a limit.
    pub(super) fn check_call(&mut self, from: NodeId, ask: &[u8], plan: &dyn Plan) -> Received {
        if !self.compares_norms() {
            return Ok(());
        }
        let (header, payload) = frame::read(ask);
        let noise = payload_noise(self.seed, from, Some(self.id), &header.at);
        let format = plan.format(&header.at, from);
        self.check_norm(&header.at, format, &format.view(noise, payload))
    }

    /// Passes a call to the party, which answers it later.
    pub(super) fn apply_call(
        &self,
        from: NodeId,
        ask: &[u8],
        plan: &dyn Plan,
        party: &mut dyn Party,
        local: &mut Local,
    ) {
        let (header, payload) = frame::read(ask);
        let noise = payload_noise(self.seed, from, Some(self.id), &header.at);
        let view = plan.format(&header.at, from).view(noise, payload);
        party.answers().expect(ANSWERS).called(local, &header.at, from, &view);
    }

    /// Passes a call to the party and sends its answer. The link has a slot.
    ///
    /// # Errors
    /// If the answer is not finite.
    pub(super) fn answer(
        &mut self,
        from: NodeId,
        ask: Vec<u8>,
        plan: &dyn Plan,
        party: &mut dyn Party,
        local: &mut Local,
        out: &mut Vec<Effect>,
    ) -> Result<(), Failure> {
        let (header, payload) = frame::read(&ask);
        let at = header.at;
        let back = At { exchange: 1, ..at };
        let noise = payload_noise(self.seed, from, Some(self.id), &at);
        let view = plan.format(&at, from).view(noise, payload);
        let mut frame = self.buffer();
        let buffer = Arc::get_mut(&mut frame).expect("a frame that no other holds");
        frame::reserve(buffer);
        let noise = payload_noise(self.seed, self.id, Some(from), &back);
        let format = plan.format(&back, self.id);
        let mut writer = Writer::new(format, Some(from), noise, buffer).byzantine(self.byzantine);
        let answers = party.answers().expect(ANSWERS);
        answers.answer(local, &at, &view, &mut writer).map_err(diverged(&at))?;
        let sum = writer.sum();
        frame::seal(&Header { at: back, replica: None }, sum, buffer);
        self.pool.push(Arc::clone(&frame));
        self.send(from, &frame, &back, out);
        self.recycle(from, ask, out);
        Ok(())
    }

    /// Sends a frame with these bytes. The link has a slot.
    pub(super) fn send_bytes(&mut self, to: NodeId, at: At, payload: &[u8], out: &mut Vec<Effect>) {
        let mut frame = self.buffer();
        let buffer = Arc::get_mut(&mut frame).expect("a frame that no other holds");
        frame::reserve(buffer);
        buffer.extend_from_slice(payload);
        frame::seal(&Header { at, replica: None }, None, buffer);
        self.pool.push(Arc::clone(&frame));
        self.send(to, &frame, &at, out);
    }

    fn encode(
        &mut self,
        at: &At,
        to: Option<NodeId>,
        plan: &dyn Plan,
        party: &mut dyn Party,
        local: &mut Local,
    ) -> Result<Arc<Vec<u8>>, Failure> {
        let mut frame = self.buffer();
        let buffer = Arc::get_mut(&mut frame).expect("a frame that no other holds");
        frame::reserve(buffer);
        let format = plan.format(at, self.id);
        let noise = payload_noise(self.seed, self.id, to, at);
        let byzantine = self.byzantine.filter(|_| at.flight < LAST_CALL);
        let mut writer = Writer::new(format, to, noise, buffer).byzantine(byzantine);
        party.outgoing(local, at, &mut writer).map_err(diverged(at))?;
        let sum = writer.sum();
        party.sent(local, at, to, &format.view(noise, &buffer[HEADER..]));
        let proof = is_compared(at, plan) && at.round.0.is_multiple_of(REPLICA_EVERY);
        let copies = party.copies().filter(|_| proof);
        let replica = copies.and_then(|copies| copies.own(local, to)).map(frame::replica_digest);
        frame::seal(&Header { at: *at, replica }, sum, buffer);
        self.pool.push(Arc::clone(&frame));
        Ok(frame)
    }

    /// Adds a frame to the fingerprint of the vector of `of`, which all its neighbours have a copy
    /// of.
    fn share(&mut self, of: NodeId, at: &At, frame: &[u8], vector: &[f32], out: &mut Vec<Effect>) {
        let (round, flight) = (at.round, at.flight);
        if let Some(fingerprint) = self.fingerprints.add(of, at, frame, vector) {
            out.push(Effect::Shared { round, flight, of, fingerprint });
        }
    }

    /// A frame that no link holds any more, or a new one.
    fn buffer(&mut self) -> Arc<Vec<u8>> {
        match self.pool.iter().position(|frame| Arc::strong_count(frame) == 1) {
            Some(free) => self.pool.swap_remove(free),
            None => Arc::new(Vec::new()),
        }
    }

    fn send(&mut self, to: NodeId, frame: &Arc<Vec<u8>>, at: &At, out: &mut Vec<Effect>) {
        let link = self.links.get_mut(&to).expect("slots were checked");
        let (payload, wire) = ((frame.len() - HEADER) as u64, (frame.len() + ENVELOPE) as u64);
        if at.flight >= LAST_CALL {
            self.traffic.tree += wire;
        } else {
            self.traffic.payload += payload;
            self.traffic.wire += wire;
            link.payload += payload;
            link.wire += wire;
        }
        out.push(Effect::Send { to, frame: Arc::clone(frame) });
    }
}

const ANSWERS: &str = "a rule whose plan calls answers calls";

fn diverged(at: &At) -> impl Fn(NonFinite) -> Failure {
    let round = at.round;
    move |NonFinite { index, value }| Failure::Diverged { round, index, value }
}

/// Carries the frames of one party's exchanges.
pub(super) struct Exchange<'a> {
    pub transfer: &'a mut Transfer,
    /// The plan of the exchanges.
    pub plan: &'a dyn Plan,
    /// The participant, which writes and takes payloads.
    pub party: &'a mut dyn Party,
    pub local: &'a mut Local,
    /// The effects for the driver.
    pub out: &'a mut Vec<Effect>,
}

impl Carrier<Vec<u8>> for Exchange<'_> {
    fn open(&mut self, at: &At, meeting: &Meeting) -> Result<(), Failure> {
        let Exchange { transfer, plan, party, local, out } = self;
        if meeting.shared {
            let frame = transfer.encode(at, None, *plan, *party, local)?;
            if is_compared(at, *plan)
                && !meeting.send.is_empty()
                && let Some(own) = party.copies().and_then(|copies| copies.own(local, None))
            {
                let id = transfer.id;
                transfer.share(id, at, &frame, own, out);
            }
            meeting.send.iter().for_each(|&to| transfer.send(to, &frame, at, out));
        } else {
            for &to in &meeting.send {
                let frame = transfer.encode(at, Some(to), *plan, *party, local)?;
                transfer.send(to, &frame, at, out);
            }
        }
        Ok(())
    }

    fn take(&mut self, at: &At, from: NodeId, bytes: Vec<u8>) -> Result<(), Failure> {
        let Exchange { transfer, plan, party, local, out } = self;
        let (header, payload) = frame::read(&bytes);
        let noise = transfer.noise(at, from, *plan);
        let format = plan.format(at, from);
        let added = is_added(payload, format);
        if !added {
            let view = format.view(noise, payload);
            transfer
                .check_norm(at, format, &view)
                .and_then(|()| party.received(local, at, from, &view))
                .map_err(|error| Failure::Peer { peer: from, reason: format!("{at}: {error}") })?;
        }
        if let Some(theirs) = header.replica
            && let Some(copies) = party.copies()
            && let Some(copy) = copies.of(local, from)
            && theirs != frame::replica_digest(copy)
        {
            return Err(Failure::Replica { peer: from, at: *at });
        }
        if is_compared(at, *plan)
            && transfer.theirs.shared
            && let Some(copy) = party.copies().and_then(|copies| copies.of(local, from))
        {
            transfer.share(from, at, &bytes, copy, out);
        }
        if added {
            // Its pieces have been returned.
            return Ok(());
        }
        match transfer.links.get_mut(&from).filter(|_| transfer.ahead) {
            Some(link) => link.spare.push(bytes),
            None => transfer.recycle(from, bytes, out),
        }
        Ok(())
    }

    fn close(&mut self, at: &At) {
        self.party.close(self.local, at);
    }
}
