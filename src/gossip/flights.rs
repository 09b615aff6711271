//! The flights of one node that are in progress, and the frames and slots that they wait for.
//!
//! `F` is the type of a frame: bytes on a node, nothing in a prediction. A [`Carrier`] sends and
//! takes the frames.

use litemap::LiteMap;

use super::{
    event::Failure,
    plan::{At, Meeting, Plan},
};
use crate::units::{NodeId, Round};

/// Frames that one link may hold and has not sent yet. Two: one is sent while the next is encoded.
pub(crate) const SLOTS: usize = 2;

/// The least number of received frames of one link that may wait for their exchange; more if the
/// plan lets a neighbour be further ahead.
pub(crate) const HELD: usize = 16;

/// Sends and takes the frames of an exchange.
pub(crate) trait Carrier<F> {
    /// Sends one frame to each receiver of the exchange. Their links have free slots.
    ///
    /// # Errors
    /// If a value to send is not finite.
    fn open(&mut self, at: &At, meeting: &Meeting) -> Result<(), Failure>;

    /// Takes the frame of a sender. Senders come in ascending order.
    ///
    /// # Errors
    /// If the frame is malformed, or a copy differs from its owner's.
    fn take(&mut self, at: &At, from: NodeId, frame: F) -> Result<(), Failure>;

    /// Ends the exchange: all its frames have been taken.
    fn close(&mut self, at: &At);
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    at: At,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The exchange waits for slots.
    Opening,
    /// The exchange is open; the frames of this many senders have been taken.
    Waiting(usize),
    Complete,
}

#[derive(Debug)]
struct Link<F> {
    /// Frames that the link holds and has not sent.
    out: usize,
    /// Frames that arrived and wait for their exchange.
    held: LiteMap<At, F>,
}

impl<F> Default for Link<F> {
    fn default() -> Link<F> {
        Link { out: 0, held: LiteMap::new() }
    }
}

/// All flights of one node, with the state of its links.
#[derive(Debug)]
pub(crate) struct Flights<F> {
    id: NodeId,
    links: LiteMap<NodeId, Link<F>>,
    flights: Vec<Flight>,
    limit: usize,
    meeting: Meeting,
}

impl<F> Flights<F> {
    /// No flights yet. A neighbour may be `limit` frames ahead of this node.
    pub(crate) fn new(id: NodeId, limit: usize) -> Flights<F> {
        Flights {
            id,
            links: LiteMap::new(),
            flights: Vec::new(),
            limit: limit.max(HELD),
            meeting: Meeting::default(),
        }
    }

    /// Starts a flight; its first exchange opens at the next [`Flights::advance`] that finds the
    /// slots of its links free.
    pub(crate) fn launch(&mut self, at: At, plan: &dyn Plan) {
        let state = if plan.exchanges(at.flight) == 0 { State::Complete } else { State::Opening };
        self.flights.push(Flight { at, state });
    }

    /// Whether the flight launched in `round` has opened its first exchange.
    pub(crate) fn opened(&self, round: Round, flight: u8) -> bool {
        self.find(round, flight)
            .is_none_or(|flight| flight.at.exchange > 0 || !matches!(flight.state, State::Opening))
    }

    /// Removes a complete flight; `false` while it is under way.
    pub(crate) fn land(&mut self, round: Round, flight: u8) -> bool {
        let complete = |f: &Flight| {
            f.at.round == round && f.at.flight == flight && matches!(f.state, State::Complete)
        };
        let index = self.flights.iter().position(complete);
        index.map(|index| self.flights.remove(index)).is_some()
    }

    /// Whether this flight was launched and has not landed.
    pub(crate) fn contains(&self, round: Round, flight: u8) -> bool {
        self.find(round, flight).is_some()
    }

    /// Whether no flight is in progress.
    pub(crate) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Whether a flight is not complete.
    pub(crate) fn is_busy(&self) -> bool {
        self.flights.iter().any(|flight| !matches!(flight.state, State::Complete))
    }

    /// Advances every flight as far as possible. `true` if one has moved.
    ///
    /// # Errors
    /// Those of the carrier.
    pub(crate) fn advance(
        &mut self,
        plan: &dyn Plan,
        carrier: &mut impl Carrier<F>,
    ) -> Result<bool, Failure> {
        let mut moved = false;
        for index in 0..self.flights.len() {
            while self.step(index, plan, carrier)? {
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Buffers a frame that the plan expects until its exchange takes it.
    ///
    /// # Errors
    /// The reason why the neighbour cannot have sent it.
    pub(crate) fn hold(&mut self, from: NodeId, at: At, frame: F) -> Result<(), String> {
        let link = self.links.entry(from).or_default();
        if link.held.len() >= self.limit {
            return Err(format!(
                "it is {} frames ahead: a neighbour waits for ours long before",
                self.limit
            ));
        }
        match link.held.insert(at, frame) {
            Some(_) => Err(format!("a second frame for {at}")),
            None => Ok(()),
        }
    }

    /// Whether a frame of this neighbour waits for its exchange.
    pub(crate) fn holds(&self, from: NodeId, at: &At) -> bool {
        self.links.get(&from).is_some_and(|link| link.held.contains_key(at))
    }

    /// The exchanges that are open, with the number of senders whose frames have been taken.
    pub(crate) fn open(&self) -> impl Iterator<Item = (At, usize)> + '_ {
        self.flights.iter().filter_map(|flight| match flight.state {
            State::Waiting(done) => Some((flight.at, done)),
            State::Opening | State::Complete => None,
        })
    }

    /// Drops the frames of a neighbour whose link ended.
    pub(crate) fn forget(&mut self, peer: NodeId) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.held.clear();
        }
    }

    /// Whether this link can hold one more frame.
    pub(crate) fn has_slot(&self, peer: NodeId) -> bool {
        self.links.get(&peer).is_none_or(|link| link.out < SLOTS)
    }

    /// Takes a slot of a link, for a frame that no flight sends.
    pub(crate) fn take_slot(&mut self, peer: NodeId) {
        self.links.entry(peer).or_default().out += 1;
    }

    /// Frees a slot: a link has sent its oldest frame.
    pub(crate) fn free_slot(&mut self, peer: NodeId) {
        if let Some(link) = self.links.get_mut(&peer) {
            link.out = link.out.saturating_sub(1);
        }
    }

    /// The oldest flight that is not complete, and the neighbours whose frames or slots it waits
    /// for.
    pub(crate) fn waiting_for(&self, plan: &dyn Plan) -> Option<(At, Vec<NodeId>)> {
        let flight = self.flights.iter().find(|flight| !matches!(flight.state, State::Complete))?;
        let mut meeting = Meeting::default();
        plan.meet(self.id, &flight.at, &mut meeting);
        let holds = |peer: &NodeId| {
            self.links.get(peer).is_some_and(|link| link.held.contains_key(&flight.at))
        };
        let peers = match flight.state {
            State::Opening => {
                meeting.send.into_iter().filter(|&peer| !self.has_slot(peer)).collect()
            }
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

    /// One transition of one flight; `false` if it has to wait.
    fn step(
        &mut self,
        index: usize,
        plan: &dyn Plan,
        carrier: &mut impl Carrier<F>,
    ) -> Result<bool, Failure> {
        let Flight { at, state } = self.flights[index];
        let mut meeting = std::mem::take(&mut self.meeting);
        meeting.clear();
        plan.meet(self.id, &at, &mut meeting);
        let next = self.next(at, state, &meeting, plan, carrier);
        self.meeting = meeting;
        let Some(next) = next? else { return Ok(false) };
        self.flights[index] = next;
        Ok(true)
    }

    fn next(
        &mut self,
        at: At,
        state: State,
        meeting: &Meeting,
        plan: &dyn Plan,
        carrier: &mut impl Carrier<F>,
    ) -> Result<Option<Flight>, Failure> {
        let state = match state {
            State::Complete => return Ok(None),
            State::Opening => {
                if !meeting.send.iter().all(|&peer| self.has_slot(peer)) {
                    return Ok(None);
                }
                carrier.open(&at, meeting)?;
                meeting.send.iter().for_each(|&peer| self.take_slot(peer));
                State::Waiting(0)
            }
            State::Waiting(done) => match meeting.wait.get(done) {
                Some(&from) => {
                    let frame = self.links.get_mut(&from).and_then(|link| link.held.remove(&at));
                    let Some(frame) = frame else { return Ok(None) };
                    carrier.take(&at, from, frame)?;
                    State::Waiting(done + 1)
                }
                None => {
                    carrier.close(&at);
                    if at.exchange + 1 < plan.exchanges(at.flight) {
                        let at = At { exchange: at.exchange + 1, ..at };
                        return Ok(Some(Flight { at, state: State::Opening }));
                    }
                    State::Complete
                }
            },
        };
        Ok(Some(Flight { at, state }))
    }
}
