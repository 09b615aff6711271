//! The times of a run without its numbers: which node waits for which frame, and for how long.
//!
//! Each node steps the core's own `Program` and `Flights`, with sizes in place of frames. Link
//! and compute models give the times. No vector is touched, so a model of any size costs the same.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use crate::{
    gossip::{
        Failure,
        flights::{Carrier, Flights},
        frame::{ENVELOPE, HEADER},
        plan::{self, At, Meeting, Plan},
        program::{Next, Program},
    },
    links::{Channel, ComputeModel, Conditions, LinkModel},
    units::{NodeId, Round, Time},
};

/// How long a run of some rounds takes.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// When each round was over on its last node.
    pub rounds: Vec<Time>,
    /// The traffic of each direction of a link that is used.
    pub(crate) links: BTreeMap<(NodeId, NodeId), Load>,
    /// Nanoseconds that each node computed.
    pub(crate) computing: Vec<u64>,
}

/// The traffic of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Frames.
    pub(crate) frames: u64,
    /// Bytes of payloads.
    pub(crate) payload: u64,
    /// Bytes of envelopes, headers and payloads.
    pub(crate) wire: u64,
    /// Nanoseconds in which the line was busy.
    pub(crate) busy: u64,
}

/// Follows a plan for a model of `parameters` numbers for `rounds` rounds; flights still in flight
/// after the last round are ignored.
///
/// # Panics
/// If the plan calls (see [`crate::gossip::plan::is_asynchronous`]): its times depend on the order
/// of events.
pub fn follow(
    plan: &dyn Plan,
    nodes: usize,
    parameters: usize,
    conditions: &Conditions,
    rounds: u64,
) -> Schedule {
    let ids = || (0..nodes).map(NodeId::from);
    let node = |id| Node { program: Program::default(), flights: Flights::new(id, usize::MAX) };
    let mut clockwork = Clockwork {
        plan,
        conditions,
        parameters,
        rounds,
        nodes: ids().map(node).collect(),
        network: Network {
            plan,
            conditions,
            ahead: plan::crosses(plan),
            now: Time(0),
            wires: BTreeMap::new(),
            uplinks: vec![Time(0); nodes],
            events: BinaryHeap::new(),
            posted: 0,
            loads: BTreeMap::new(),
        },
        ends: vec![Time(0); rounds as usize],
        computing: vec![0; nodes],
    };
    ids().for_each(|node| clockwork.run(node));
    while let Some(Reverse((time, _, event))) = clockwork.network.events.pop() {
        clockwork.network.now = time;
        clockwork.handle(event);
    }
    let Clockwork { network, ends, computing, .. } = clockwork;
    Schedule { rounds: ends, links: network.loads, computing }
}

/// Events at the same time are handled in the order in which they were posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// One more part of the update is final.
    Part(NodeId, u8),
    /// The gradient is computed.
    Computed(NodeId),
    /// The link has sent a frame: a slot is free.
    Left(NodeId, NodeId),
    /// A frame has arrived.
    Arrives(NodeId, NodeId),
}

struct Node {
    program: Program,
    flights: Flights<()>,
}

struct Wire {
    channel: Channel,
    free: Time,
    /// Frames in flight.
    flying: VecDeque<At>,
    /// Frames that have arrived and were not read yet.
    waiting: VecDeque<At>,
    /// Whether the reader holds a frame that its node has not taken.
    held: bool,
}

/// Links and the events of all nodes.
struct Network<'a> {
    plan: &'a dyn Plan,
    conditions: &'a Conditions,
    /// Whether readers take frames before they are due.
    ahead: bool,
    now: Time,
    wires: BTreeMap<(NodeId, NodeId), Wire>,
    uplinks: Vec<Time>,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    posted: u64,
    loads: BTreeMap<(NodeId, NodeId), Load>,
}

impl Network<'_> {
    fn post(&mut self, time: Time, event: Event) {
        self.events.push(Reverse((time, self.posted, event)));
        self.posted += 1;
    }

    /// Takes the next frame of a link, unless its reader holds one.
    fn read(&mut self, from: NodeId, to: NodeId) -> Option<At> {
        let wire = self.wires.get_mut(&(from, to))?;
        if wire.held && !self.ahead {
            return None;
        }
        let at = wire.waiting.pop_front()?;
        wire.held = true;
        Some(at)
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
        let load = self.loads.entry((node, to)).or_default();
        load.frames += 1;
        load.payload += payload as u64;
        load.wire += frame as u64;
        load.busy += conditions.link(node, to).line_time(LinkModel::on_the_line(frame));
        self.post(passage.left, Event::Left(node, to));
        self.post(passage.arrives, Event::Arrives(node, to));
    }
}

/// Sends the frames of one node, and frees the readers of those that it takes.
struct Sender<'a, 'b> {
    node: NodeId,
    network: &'a mut Network<'b>,
    /// The senders whose frames were taken.
    taken: Vec<NodeId>,
}

impl Carrier<()> for Sender<'_, '_> {
    fn open(&mut self, at: &At, meeting: &Meeting) -> Result<(), Failure> {
        meeting.send.iter().for_each(|&to| self.network.send(self.node, to, *at));
        Ok(())
    }

    fn take(&mut self, _at: &At, from: NodeId, (): ()) -> Result<(), Failure> {
        if let Some(wire) = self.network.wires.get_mut(&(from, self.node)) {
            wire.held = false;
        }
        self.taken.push(from);
        Ok(())
    }

    fn close(&mut self, _at: &At) {}
}

struct Clockwork<'a> {
    plan: &'a dyn Plan,
    conditions: &'a Conditions,
    /// d.
    parameters: usize,
    rounds: u64,
    nodes: Vec<Node>,
    network: Network<'a>,
    /// When each round was over.
    ends: Vec<Time>,
    computing: Vec<u64>,
}

impl Clockwork<'_> {
    fn handle(&mut self, event: Event) {
        let node = match event {
            Event::Part(node, part) => {
                self.nodes[node.index()].program.finish_part(part);
                node
            }
            Event::Computed(node) => {
                self.nodes[node.index()].program.finish_gradient();
                node
            }
            Event::Left(node, to) => {
                self.nodes[node.index()].flights.free_slot(to);
                node
            }
            Event::Arrives(from, to) => {
                if let Some(wire) = self.network.wires.get_mut(&(from, to)) {
                    wire.waiting.extend(wire.flying.pop_front());
                }
                self.read(from, to);
                to
            }
        };
        self.run(node);
    }

    /// Passes the next frame of a link to its node, if it may be read.
    fn read(&mut self, from: NodeId, to: NodeId) {
        if let Some(at) = self.network.read(from, to) {
            let held = self.nodes[to.index()].flights.hold(from, at, ());
            debug_assert!(held.is_ok(), "a plan sends each frame once");
        }
    }

    /// Advances a node as far as possible.
    fn run(&mut self, node: NodeId) {
        loop {
            let mut sender = Sender { node, network: &mut self.network, taken: Vec::new() };
            let moved = self.nodes[node.index()].flights.advance(self.plan, &mut sender);
            let taken = sender.taken;
            taken.into_iter().for_each(|from| self.read(from, node));
            // A carrier without numbers cannot fail.
            if !self.step(node) && !moved.unwrap_or(false) {
                return;
            }
        }
    }

    /// One step of the node's program; `false` if it has to wait.
    fn step(&mut self, node: NodeId) -> bool {
        let (now, nodes) = (self.network.now, self.nodes.len());
        let Node { program, flights } = &mut self.nodes[node.index()];
        if program.round().0 >= self.rounds {
            return false;
        }
        match program.advance(self.plan, flights, |_| true) {
            Next::Wait => return false,
            Next::Continue | Next::Land(_) => {}
            Next::Gradient(round) => {
                let time = self.conditions.compute_time(nodes, node, round);
                self.computing[node.index()] += time;
                for (part, &start) in (0..).zip(self.plan.parts()) {
                    let after = ComputeModel::until_part(time, self.parameters, start);
                    self.network.post(Time(now.0 + after), Event::Part(node, part));
                }
                self.network.post(Time(now.0 + time), Event::Computed(node));
            }
            Next::RoundDone(Round(round)) => {
                let end = &mut self.ends[round as usize];
                *end = (*end).max(now);
            }
        }
        true
    }
}
