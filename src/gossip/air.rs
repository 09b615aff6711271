//! What is in the air: flights under way, the frames that wait for them, the slots of each link.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    event::{Effect, Failure, LinkTraffic, Traffic},
    frame::{self, ENVELOPE, HEADER, Header},
    party::{Party, Writer, payload_noise},
    plan::{At, Meeting, Plan},
};
use crate::{
    compress::NonFinite,
    units::{NodeId, Round},
};

/// Frames handed to one link and not yet gone. Two: one on its way while the next is encoded.
pub const SLOTS: usize = 2;

/// Rounds between two proofs that copies agree with their owners.
pub const REPLICA_EVERY: u64 = 16;

/// Frames held for later of one link, at the least; more where the plan lets a neighbour be further
/// ahead.
pub const HELD: usize = 16;

/// One flight under way.
#[derive(Debug)]
struct Flight {
    at: At,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The exchange waits for slots.
    Opening,
    /// The exchange is open; this many senders have been handed to the party.
    Waiting(usize),
    /// All exchanges are over.
    Complete,
}

#[derive(Debug, Default)]
struct Link {
    /// Frames handed over and not yet taken.
    out: usize,
    /// Arrived, checked, not yet due.
    held: BTreeMap<At, Vec<u8>>,
    /// Where the core reads ahead: buffers of frames that were handed to the party.
    spare: Vec<Vec<u8>>,
    /// Bytes of payload and in all that went over it by the rule.
    payload: u64,
    wire: u64,
}

/// The moving parts that every program of exchanges shares.
#[derive(Debug)]
pub struct Air {
    id: NodeId,
    seed: u64,
    links: BTreeMap<NodeId, Link>,
    flights: Vec<Flight>,
    /// Sent buffers; reused once no link holds them.
    pool: Vec<Arc<Vec<u8>>>,
    /// Frames held for later of one link, at the most.
    limit: usize,
    /// Whether a link may deliver its next frame while one is held: where the plan
    /// [crosses](super::plan::crosses).
    ahead: bool,
    meeting: Meeting,
    theirs: Meeting,
    /// Bytes sent so far.
    pub traffic: Traffic,
}

impl Air {
    /// Nothing in the air yet. No neighbour is more than `limit` frames ahead; where `ahead` is
    /// said, they are read before they are due.
    pub fn new(id: NodeId, seed: u64, neighbours: &[NodeId], limit: usize, ahead: bool) -> Air {
        let links = neighbours.iter().map(|&peer| (peer, Link::default())).collect();
        Air {
            id,
            seed,
            links,
            flights: Vec::new(),
            pool: Vec::new(),
            limit: limit.max(HELD),
            ahead,
            meeting: Meeting::default(),
            theirs: Meeting::default(),
            traffic: Traffic::default(),
        }
    }

    /// What went over each link so far, by the rule.
    pub fn by_link(&self) -> Vec<LinkTraffic> {
        let of = |(&to, link): (&NodeId, &Link)| LinkTraffic {
            to,
            payload: link.payload,
            wire: link.wire,
        };
        self.links.iter().map(of).collect()
    }

    /// A flight leaves; its first exchange opens at the next [`Air::advance`] that finds its links'
    /// slots free.
    pub fn launch(&mut self, at: At, plan: &dyn Plan) {
        let state = if plan.exchanges(at.flight) == 0 { State::Complete } else { State::Opening };
        self.flights.push(Flight { at, state });
    }

    /// Whether the flight launched in `round` has opened its first exchange.
    pub fn opened(&self, round: Round, flight: u8) -> bool {
        self.find(round, flight)
            .is_none_or(|flight| flight.at.exchange > 0 || !matches!(flight.state, State::Opening))
    }

    /// Takes a complete flight out of the air; `false` while it is under way.
    pub fn land(&mut self, round: Round, flight: u8) -> bool {
        let complete = |f: &Flight| {
            f.at.round == round && f.at.flight == flight && matches!(f.state, State::Complete)
        };
        match self.flights.iter().position(complete) {
            Some(index) => {
                self.flights.remove(index);
                true
            }
            None => false,
        }
    }

    /// Whether this flight has left and not yet landed.
    pub fn knows(&self, round: Round, flight: u8) -> bool {
        self.find(round, flight).is_some()
    }

    /// Whether anything is under way.
    pub fn is_busy(&self) -> bool {
        self.flights.iter().any(|flight| !matches!(flight.state, State::Complete))
    }

    /// Moves every flight as far as it goes. `true` if anything moved.
    pub fn advance(
        &mut self,
        plan: &dyn Plan,
        party: &mut dyn Party,
        out: &mut Vec<Effect>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for index in 0..self.flights.len() {
            while self.step(index, plan, party, out)? {
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Holds a checked frame until its exchange wants it.
    ///
    /// # Errors
    /// The reason why the neighbour cannot have sent it.
    pub fn hold(
        &mut self,
        from: NodeId,
        at: At,
        bytes: Vec<u8>,
        out: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let Some(link) = self.links.get_mut(&from) else {
            return Err("it is not a neighbour".into());
        };
        if link.held.len() >= self.limit {
            return Err(format!(
                "it is {} frames ahead: a neighbour waits for ours long before",
                self.limit
            ));
        }
        if link.held.insert(at, bytes).is_some() {
            return Err(format!("a second frame for {at}"));
        }
        if self.ahead {
            out.push(Effect::Recycle { from, buffer: link.spare.pop().unwrap_or_default() });
        }
        Ok(())
    }

    /// Forgets what came from this neighbour: it begins anew.
    pub fn forget(&mut self, peer: NodeId) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.held.clear();
            link.spare.clear();
        }
    }

    /// Gives up the buffers of frames that were sent: what follows is of another size.
    pub fn forget_buffers(&mut self) {
        self.pool.clear();
        self.links.values_mut().for_each(|link| link.spare.clear());
    }

    /// Whether a frame can be handed to this link now.
    pub fn has_slot(&self, peer: NodeId) -> bool {
        self.links.get(&peer).is_some_and(|link| link.out < SLOTS)
    }

    /// Hands a call to the party, which is to be answered later.
    pub fn hear(&self, from: NodeId, ask: &[u8], plan: &dyn Plan, party: &mut dyn Party) {
        let (header, payload) = frame::read(ask);
        let noise = payload_noise(self.seed, from, Some(self.id), &header.at);
        party.called(&header.at, from, &plan.format(&header.at, from).view(noise, payload));
    }

    /// Hands a call to the party and sends its answer. The link has a slot.
    ///
    /// # Errors
    /// If the answer is not finite.
    pub fn answer(
        &mut self,
        from: NodeId,
        ask: Vec<u8>,
        plan: &dyn Plan,
        party: &mut dyn Party,
        out: &mut Vec<Effect>,
    ) -> Result<(), Failure> {
        let (header, payload) = frame::read(&ask);
        let at = header.at;
        let back = At { exchange: 1, ..at };
        let view = plan
            .format(&at, from)
            .view(payload_noise(self.seed, from, Some(self.id), &at), payload);
        let mut frame = self.buffer();
        let buffer = Arc::get_mut(&mut frame).expect("a frame that nobody else holds");
        frame::reserve(buffer);
        let noise = payload_noise(self.seed, self.id, Some(from), &back);
        let mut writer = Writer::new(plan.format(&back, self.id), noise, buffer);
        let diverged =
            |NonFinite { index, value }| Failure::Diverged { round: at.round, index, value };
        party.answer(&at, from, &view, &mut writer).map_err(diverged)?;
        let sum = writer.sum();
        frame::seal(&Header { at: back, replica: None }, sum, buffer);
        self.pool.push(Arc::clone(&frame));
        self.send(from, &frame, &back, out);
        out.push(Effect::Recycle { from, buffer: ask });
        Ok(())
    }

    /// A link has taken its oldest frame.
    pub fn taken(&mut self, peer: NodeId) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.out = link.out.saturating_sub(1);
        }
    }

    /// Whose frames the oldest unfinished flight waits for, or whose slots, for the log.
    pub fn waiting_for(&self, plan: &dyn Plan) -> Option<(At, Vec<NodeId>)> {
        let flight = self.flights.iter().find(|flight| !matches!(flight.state, State::Complete))?;
        let mut meeting = Meeting::default();
        plan.meet(self.id, &flight.at, &mut meeting);
        let holds = |peer: &NodeId| {
            self.links.get(peer).is_some_and(|link| link.held.contains_key(&flight.at))
        };
        let full = |peer: &NodeId| self.links.get(peer).is_some_and(|link| link.out >= SLOTS);
        let peers = match flight.state {
            State::Opening => meeting.send.into_iter().filter(full).collect(),
            State::Waiting(done) => {
                meeting.wait.into_iter().skip(done).filter(|peer| !holds(peer)).collect()
            }
            State::Complete => Vec::new(),
        };
        Some((flight.at, peers))
    }

    fn find(&self, round: Round, flight: u8) -> Option<&Flight> {
        self.flights.iter().find(|f| f.at.round == round && f.at.flight == flight)
    }

    /// One move of one flight; `false` if it has to wait.
    fn step(
        &mut self,
        index: usize,
        plan: &dyn Plan,
        party: &mut dyn Party,
        out: &mut Vec<Effect>,
    ) -> Result<bool, Failure> {
        let at = self.flights[index].at;
        let mut meeting = std::mem::take(&mut self.meeting);
        meeting.clear();
        plan.meet(self.id, &at, &mut meeting);
        let next = match self.flights[index].state {
            State::Complete => Ok(None),
            State::Opening => self
                .open(&at, &meeting, plan, party, out)
                .map(|opened| opened.then_some(State::Waiting(0))),
            State::Waiting(done) => match meeting.wait.get(done) {
                Some(&from) => self
                    .take(&at, from, plan, party, out)
                    .map(|taken| taken.then_some(State::Waiting(done + 1))),
                None => {
                    party.close(&at);
                    if at.exchange + 1 < plan.exchanges(at.flight) {
                        self.flights[index].at.exchange += 1;
                        Ok(Some(State::Opening))
                    } else {
                        Ok(Some(State::Complete))
                    }
                }
            },
        };
        self.meeting = meeting;
        let next = next?;
        let moved = next.is_some();
        if let Some(state) = next {
            self.flights[index].state = state;
        }
        Ok(moved)
    }

    /// Encodes and sends, if all slots are free.
    fn open(
        &mut self,
        at: &At,
        meeting: &Meeting,
        plan: &dyn Plan,
        party: &mut dyn Party,
        out: &mut Vec<Effect>,
    ) -> Result<bool, Failure> {
        if meeting.send.iter().any(|peer| self.links.get(peer).is_none_or(|link| link.out >= SLOTS))
        {
            return Ok(false);
        }
        if meeting.shared {
            let frame = self.encode(at, None, plan, party)?;
            for &to in &meeting.send {
                self.send(to, &frame, at, out);
            }
        } else {
            for &to in &meeting.send {
                let frame = self.encode(at, Some(to), plan, party)?;
                self.send(to, &frame, at, out);
            }
        }
        Ok(true)
    }

    fn encode(
        &mut self,
        at: &At,
        to: Option<NodeId>,
        plan: &dyn Plan,
        party: &mut dyn Party,
    ) -> Result<Arc<Vec<u8>>, Failure> {
        let mut frame = self.buffer();
        let buffer = Arc::get_mut(&mut frame).expect("a frame that nobody else holds");
        frame::reserve(buffer);
        let format = plan.format(at, self.id);
        let noise = payload_noise(self.seed, self.id, to, at);
        let diverged =
            |NonFinite { index, value }| Failure::Diverged { round: at.round, index, value };
        let mut writer = Writer::new(format, noise, buffer);
        party.outgoing(at, to, &mut writer).map_err(diverged)?;
        let sum = writer.sum();
        party.sent(at, to, &format.view(noise, &buffer[HEADER..]));
        let proof = at.exchange == 0 && at.round.0.is_multiple_of(REPLICA_EVERY);
        let replica = if proof {
            to.map_or_else(|| party.replica(None), |to| party.replica_for(to))
        } else {
            None
        };
        let replica = replica.map(frame::replica_digest);
        frame::seal(&Header { at: *at, replica }, sum, buffer);
        self.pool.push(Arc::clone(&frame));
        Ok(frame)
    }

    /// A frame that nobody holds any more, or a new one.
    fn buffer(&mut self) -> Arc<Vec<u8>> {
        match self.pool.iter().position(|frame| Arc::strong_count(frame) == 1) {
            Some(free) => self.pool.swap_remove(free),
            None => Arc::new(Vec::new()),
        }
    }

    fn send(&mut self, to: NodeId, frame: &Arc<Vec<u8>>, at: &At, out: &mut Vec<Effect>) {
        let link = self.links.get_mut(&to).expect("slots were checked");
        link.out += 1;
        let (payload, wire) = ((frame.len() - HEADER) as u64, (frame.len() + ENVELOPE) as u64);
        if at.flight >= super::tree::FAREWELL {
            self.traffic.tree += wire;
        } else {
            self.traffic.payload += payload;
            self.traffic.wire += wire;
            link.payload += payload;
            link.wire += wire;
        }
        out.push(Effect::Send { to, frame: Arc::clone(frame) });
    }

    /// Hands the frame of `from` to the party, if it is here.
    fn take(
        &mut self,
        at: &At,
        from: NodeId,
        plan: &dyn Plan,
        party: &mut dyn Party,
        out: &mut Vec<Effect>,
    ) -> Result<bool, Failure> {
        let Some(bytes) = self.links.get_mut(&from).and_then(|link| link.held.remove(at)) else {
            return Ok(false);
        };
        let (header, payload) = frame::read(&bytes);
        self.theirs.clear();
        plan.meet(from, at, &mut self.theirs);
        let to = (!self.theirs.shared).then_some(self.id);
        let view = plan.format(at, from).view(payload_noise(self.seed, from, to, at), payload);
        party
            .received(at, from, &view)
            .map_err(|error| Failure::Peer { peer: from, reason: format!("{at}: {error}") })?;
        if let (Some(theirs), Some(copy)) = (header.replica, party.replica(Some(from)))
            && theirs != frame::replica_digest(copy)
        {
            return Err(Failure::Replica { peer: from, at: *at });
        }
        match self.links.get_mut(&from).filter(|_| self.ahead) {
            Some(link) => link.spare.push(bytes),
            None => out.push(Effect::Recycle { from, buffer: bytes }),
        }
        Ok(true)
    }
}
