//! The times of a plan without its numbers: who waits for what, and for how long.
//!
//! A frame here is its size and its place. The plan's steps, flights and meetings, the two slots of
//! a link and its reader, which takes one frame at a time, are followed as the core follows them;
//! gradients take what the machines need. No vector is touched, so a model of any size costs the
//! same.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque},
};

use crate::{
    gossip::{
        air::SLOTS,
        frame::{ENVELOPE, HEADER},
        plan::{self, At, Meeting, Plan, Step},
    },
    links::{Channel, ComputeModel, Conditions, LinkModel},
    units::{NodeId, Round, Time},
};

/// What a run of so many rounds would take.
#[derive(Clone, Debug)]
pub struct Course {
    /// When each round was over on its last node.
    pub rounds: Vec<Time>,
    /// Of each direction of a link that is used.
    pub links: BTreeMap<(NodeId, NodeId), Use>,
    /// Of each node: nanoseconds in which it computed.
    pub computing: Vec<u64>,
}

/// What went over one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Frames.
    pub frames: u64,
    /// Payloads.
    pub payload: u64,
    /// Envelopes, headers and payloads.
    pub wire: u64,
    /// Nanoseconds on the line.
    pub busy: u64,
}

/// Follows a plan for a model of so many `parameters` for so many rounds; what is in the air after
/// the last one is left there.
///
/// # Panics
/// If the plan calls (see [`crate::gossip::plan::is_asynchronous`]): its course depends on the
/// order of events.
pub fn follow(
    plan: &dyn Plan,
    nodes: usize,
    parameters: usize,
    conditions: &Conditions,
    rounds: u64,
) -> Course {
    let mut clockwork = Clockwork {
        plan,
        conditions,
        parameters,
        rounds,
        ahead: plan::crosses(plan),
        now: Time(0),
        nodes: (0..nodes).map(|_| Follower::default()).collect(),
        wires: BTreeMap::new(),
        uplinks: vec![Time(0); nodes],
        events: BinaryHeap::new(),
        posted: 0,
        course: Course {
            rounds: vec![Time(0); rounds as usize],
            links: BTreeMap::new(),
            computing: vec![0; nodes],
        },
    };
    for node in 0..nodes {
        clockwork.go_on(NodeId::from(node));
    }
    while let Some(Reverse((time, _, event))) = clockwork.events.pop() {
        clockwork.now = time;
        clockwork.happen(event);
    }
    clockwork.course
}

/// In the order of their numbers where times are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// One more part of the update is final.
    Part(NodeId),
    /// The gradient is there.
    Computed(NodeId),
    /// The link has room again.
    Left(NodeId, NodeId),
    /// A frame is at its receiver's door.
    Arrives(NodeId, NodeId),
}

#[derive(Default)]
struct Follower {
    round: u64,
    next: usize,
    launched: bool,
    computing: bool,
    /// Parts of the update that are final.
    parts: usize,
    flights: Vec<Flight>,
    /// Frames out, by neighbour.
    out: BTreeMap<NodeId, usize>,
    /// Frames that are here and not yet taken.
    held: BTreeSet<(NodeId, At)>,
}

struct Flight {
    at: At,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Opening,
    /// This many senders' frames are taken.
    Waiting(usize),
    Complete,
}

struct Wire {
    channel: Channel,
    free: Time,
    /// On the way, with the time of arrival.
    flying: VecDeque<At>,
    /// At the door.
    waiting: VecDeque<At>,
    /// Whether the reader has one that was not taken yet.
    held: bool,
}

struct Clockwork<'a> {
    plan: &'a dyn Plan,
    conditions: &'a Conditions,
    /// d.
    parameters: usize,
    rounds: u64,
    /// Whether readers take frames before they are due.
    ahead: bool,
    now: Time,
    nodes: Vec<Follower>,
    wires: BTreeMap<(NodeId, NodeId), Wire>,
    uplinks: Vec<Time>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    posted: u64,
    course: Course,
}

impl Clockwork<'_> {
    fn post(&mut self, time: Time, event: Event) {
        self.events.push(Reverse((time, self.posted, event)));
        self.posted += 1;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Part(node) => {
                self.nodes[node.index()].parts += 1;
                self.go_on(node);
            }
            Event::Computed(node) => {
                self.nodes[node.index()].computing = false;
                self.go_on(node);
            }
            Event::Left(node, to) => {
                *self.nodes[node.index()].out.entry(to).or_default() -= 1;
                self.go_on(node);
            }
            Event::Arrives(from, to) => {
                let wire = self.wires.get_mut(&(from, to)).expect("frames arrive over wires");
                let at = wire.flying.pop_front().expect("what arrives has flown");
                wire.waiting.push_back(at);
                self.read(from, to);
                self.go_on(to);
            }
        }
    }

    /// The reader of a link takes the next frame if it has none.
    fn read(&mut self, from: NodeId, to: NodeId) {
        let wire = self.wires.get_mut(&(from, to)).expect("a link that is read");
        if (!wire.held || self.ahead)
            && let Some(at) = wire.waiting.pop_front()
        {
            wire.held = true;
            self.nodes[to.index()].held.insert((from, at));
        }
    }

    /// As far as a node goes now.
    fn go_on(&mut self, node: NodeId) {
        loop {
            let mut flown = false;
            for index in 0..self.nodes[node.index()].flights.len() {
                flown |= self.fly(node, index);
            }
            if !self.step(node) && !flown {
                return;
            }
        }
    }

    /// Moves one flight; `false` if it has to wait.
    fn fly(&mut self, node: NodeId, index: usize) -> bool {
        let (at, state) = (
            self.nodes[node.index()].flights[index].at,
            self.nodes[node.index()].flights[index].state,
        );
        let mut meeting = Meeting::default();
        self.plan.meet(node, &at, &mut meeting);
        let next = match state {
            State::Complete => return false,
            State::Opening => {
                let full = |peer: &NodeId| {
                    self.nodes[node.index()].out.get(peer).is_some_and(|out| *out >= SLOTS)
                };
                if meeting.send.iter().any(full) {
                    return false;
                }
                for &to in &meeting.send {
                    self.send(node, to, at);
                }
                State::Waiting(0)
            }
            // Taken one by one, in order, so that readers go on to what follows.
            State::Waiting(done) => match meeting.wait.get(done) {
                Some(&from) => {
                    if !self.nodes[node.index()].held.remove(&(from, at)) {
                        return false;
                    }
                    self.wires.get_mut(&(from, node)).expect("it came over this").held = false;
                    self.read(from, node);
                    State::Waiting(done + 1)
                }
                None if at.exchange + 1 < self.plan.exchanges(at.flight) => {
                    self.nodes[node.index()].flights[index].at.exchange += 1;
                    State::Opening
                }
                None => State::Complete,
            },
        };
        self.nodes[node.index()].flights[index].state = next;
        true
    }

    fn send(&mut self, node: NodeId, to: NodeId, at: At) {
        let payload = self.plan.format(&at, node).size().limit();
        let frame = HEADER + payload + ENVELOPE;
        let conditions = self.conditions;
        let wire = self.wires.entry((node, to)).or_insert_with(|| Wire {
            channel: Channel::new(*conditions.link(node, to), conditions.dice(node, to)),
            free: Time(0),
            flying: VecDeque::new(),
            waiting: VecDeque::new(),
            held: false,
        });
        let free =
            if conditions.shared_uplink { &mut self.uplinks[node.index()] } else { &mut wire.free };
        let passage = wire.channel.send(self.now, frame, free);
        wire.flying.push_back(at);
        let used = self.course.links.entry((node, to)).or_default();
        used.frames += 1;
        used.payload += payload as u64;
        used.wire += frame as u64;
        used.busy += conditions.link(node, to).line_time(LinkModel::on_the_line(frame));
        *self.nodes[node.index()].out.entry(to).or_default() += 1;
        self.post(passage.left, Event::Left(node, to));
        self.post(passage.arrives, Event::Arrives(node, to));
    }

    /// One step of the round's program; `false` if the node has to wait.
    fn step(&mut self, node: NodeId) -> bool {
        let (plan, now) = (self.plan, self.now);
        let follower = &mut self.nodes[node.index()];
        if follower.round >= self.rounds {
            return false;
        }
        let round = Round(follower.round);
        let done = match plan.steps().get(follower.next) {
            Some(&Step::Launch(flight)) => {
                let at = At { round, flight, exchange: 0 };
                if !follower.launched {
                    let state =
                        if plan.exchanges(flight) == 0 { State::Complete } else { State::Opening };
                    follower.flights.push(Flight { at, state });
                    follower.launched = true;
                    return true;
                }
                let opening = |f: &Flight| f.at == at && f.state == State::Opening;
                let opened = !follower.flights.iter().any(opening);
                follower.launched = !opened;
                opened
            }
            Some(Step::Gradient) => {
                let time = self.conditions.compute_time(self.nodes.len(), node, round);
                self.nodes[node.index()].computing = true;
                self.nodes[node.index()].parts = 0;
                self.course.computing[node.index()] += time;
                for &start in plan.parts() {
                    let after = ComputeModel::until_part(time, self.parameters, start);
                    self.post(Time(now.0 + after), Event::Part(node));
                }
                self.post(Time(now.0 + time), Event::Computed(node));
                true
            }
            Some(&Step::Part(part)) => follower.parts > usize::from(part),
            Some(Step::Join) => !follower.computing,
            Some(&Step::Land { flight, lag }) => match round.0.checked_sub(u64::from(lag)) {
                Some(launched) => {
                    let lands = |f: &Flight| {
                        f.at.round.0 == launched
                            && f.at.flight == flight
                            && f.state == State::Complete
                    };
                    match follower.flights.iter().position(lands) {
                        Some(index) => {
                            follower.flights.remove(index);
                            true
                        }
                        None => false,
                    }
                }
                None => true,
            },
            None => {
                let over = &mut self.course.rounds[round.0 as usize];
                *over = (*over).max(now);
                follower.round += 1;
                follower.next = 0;
                return true;
            }
        };
        self.nodes[node.index()].next += usize::from(done);
        done
    }
}
