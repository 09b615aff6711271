//! The times of a run without its numbers: which node waits for which frame, and for how long.
//!
//! Each node steps the core's own `Program` and `Flights`, with sizes in place of frames. Link
//! and compute models give the times. No vector is touched, so a model of any size costs the same.

use std::collections::BTreeMap;

use crate::{
    gossip::{
        Failure,
        flights::{Carrier, Flights},
        frame::{ENVELOPE, HEADER},
        plan::{self, At, Meeting, Plan},
        program::{Next, Program},
    },
    links::{ComputeModel, Conditions, Lines, LinkModel, Queue},
    units::{NodeId, Round, Time},
};

/// How long a run of some rounds takes.
#[derive(Clone, Debug)]
pub struct Timetable {
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
    pub(crate) frames: u64,
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
) -> Timetable {
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
            lines: Lines::new(conditions, nodes),
            events: Queue::new(Time(0)),
            loads: BTreeMap::new(),
        },
        ends: vec![Time(0); rounds as usize],
        computing: vec![0; nodes],
    };
    ids().for_each(|node| clockwork.run(node));
    while let Some(event) = clockwork.network.events.next() {
        clockwork.handle(event);
    }
    let Clockwork { network, ends, computing, .. } = clockwork;
    Timetable { rounds: ends, links: network.loads, computing }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// One more part of the update is final.
    Part(NodeId, u8),
    Computed(NodeId),
    /// The link has sent a frame: a slot is free.
    Left(NodeId, NodeId),
    Arrives(NodeId, NodeId),
}

struct Node {
    program: Program,
    flights: Flights<()>,
}

/// Links and the events of all nodes.
struct Network<'a> {
    plan: &'a dyn Plan,
    conditions: &'a Conditions,
    /// Whether readers take frames before they are due.
    ahead: bool,
    lines: Lines<'a, At>,
    events: Queue<Event>,
    loads: BTreeMap<(NodeId, NodeId), Load>,
}

impl Network<'_> {
    fn send(&mut self, node: NodeId, to: NodeId, at: At) {
        let payload = self.plan.format(&at, node).size().limit();
        let frame = HEADER + payload + ENVELOPE;
        let passage = self.lines.send(self.events.now(), (node, to), at, frame);
        let load = self.loads.entry((node, to)).or_default();
        load.frames += 1;
        load.payload += payload as u64;
        load.wire += frame as u64;
        load.busy += self.conditions.link(node, to).line_time(LinkModel::on_the_line(frame));
        self.events.post(passage.left, Event::Left(node, to));
        self.events.post(passage.arrives, Event::Arrives(node, to));
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
        self.network.lines.release(from, self.node);
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
                self.network.lines.arrive(from, to);
                self.read(from, to);
                to
            }
        };
        self.run(node);
    }

    /// Passes the next frame of a link to its node, if it may be read.
    fn read(&mut self, from: NodeId, to: NodeId) {
        if let Some(at) = self.network.lines.read(from, to, self.network.ahead) {
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
        let (now, nodes) = (self.network.events.now(), self.nodes.len());
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
                    self.network.events.post(Time(now.0 + after), Event::Part(node, part));
                }
                self.network.events.post(Time(now.0 + time), Event::Computed(node));
            }
            Next::RoundDone(Round(round)) => {
                let end = &mut self.ends[round as usize];
                *end = (*end).max(now);
            }
        }
        true
    }
}
