//! Drives the core on a virtual network in virtual time, on one thread.
//!
//! The network is ideal so far: a frame arrives at the moment it is sent, links keep their order and lose nothing, and computing
//! takes no time. The bytes are real: frames are encoded, checked and decoded as they are over libp2p, and a link holds back its
//! next frame until the last one was recycled, as a reader does. Events are ordered by (time, number), so a run has one trace.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

use crate::{
    gossip::{Effect, Input, Node, NodeConfig, Traffic},
    job::{self, Conclusion, Ended, Learner, Observer, RunError},
    units::{NodeId, Time},
};

/// One node of a simulation.
pub struct Seat {
    /// What the core needs.
    pub config: NodeConfig,
    /// What learns.
    pub learner: Box<dyn Learner>,
}

/// Runs all nodes to their end.
///
/// # Errors
/// If a node fails or the nodes wait for each other.
pub fn run(seats: Vec<Seat>, observer: &mut dyn Observer) -> Result<Vec<Ended>, RunError> {
    let mut network = Network::new(seats);
    for node in 0..network.hosts.len() {
        network.post(NodeId::from(node), Input::Start);
    }
    let mut stopping = false;
    while let Some(event) = network.next() {
        network.now = event.time;
        network.deliver(event, observer)?;
        if !stopping && let Some(last) = observer.stop_after() {
            stopping = true;
            for node in 0..network.hosts.len() {
                network.post(NodeId::from(node), Input::StopAfter(last));
            }
        }
    }
    network.end()
}

struct Host {
    node: Node,
    learner: Box<dyn Learner>,
    traffic: Traffic,
    model: Vec<f32>,
    mean: Vec<f32>,
    records: Option<Vec<Vec<u8>>>,
}

/// One direction of a link.
#[derive(Default)]
struct Wire {
    /// Sent, not yet delivered.
    queue: VecDeque<Vec<u8>>,
    /// Delivered, not yet recycled.
    held: bool,
    /// Recycled buffers.
    spare: Vec<Vec<u8>>,
}

struct Network {
    now: Time,
    hosts: Vec<Host>,
    wires: BTreeMap<(NodeId, NodeId), Wire>,
    events: BinaryHeap<Reverse<Event>>,
    posted: u64,
    effects: Vec<Effect>,
    /// What a node's learner has answered.
    inputs: Vec<Input>,
}

struct Event {
    time: Time,
    number: u64,
    node: NodeId,
    input: Input,
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.number == other.number
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> std::cmp::Ordering {
        (self.time, self.number).cmp(&(other.time, other.number))
    }
}

impl Network {
    fn new(seats: Vec<Seat>) -> Network {
        let host = |seat: Seat| Host {
            node: Node::new(seat.config),
            learner: seat.learner,
            traffic: Traffic::default(),
            model: Vec::new(),
            mean: Vec::new(),
            records: None,
        };
        Network {
            now: Time(0),
            hosts: seats.into_iter().map(host).collect(),
            wires: BTreeMap::new(),
            events: BinaryHeap::new(),
            posted: 0,
            effects: Vec::new(),
            inputs: Vec::new(),
        }
    }

    fn post(&mut self, node: NodeId, input: Input) {
        self.events.push(Reverse(Event { time: self.now, number: self.posted, node, input }));
        self.posted += 1;
    }

    fn next(&mut self) -> Option<Event> {
        self.events.pop().map(|Reverse(event)| event)
    }

    fn deliver(&mut self, event: Event, observer: &mut dyn Observer) -> Result<(), RunError> {
        let id = event.node;
        let mut effects = std::mem::take(&mut self.effects);
        self.hosts[id.index()].node.handle(event.input, &mut effects);
        for effect in effects.drain(..) {
            self.perform(id, effect, observer)?;
        }
        self.effects = effects;
        Ok(())
    }

    fn perform(&mut self, id: NodeId, effect: Effect, observer: &mut dyn Observer) -> Result<(), RunError> {
        let host = &mut self.hosts[id.index()];
        match effect {
            Effect::Compute { round, x, update, parts, overlaps: _ } => {
                let mut inputs = std::mem::take(&mut self.inputs);
                job::compute(&mut *host.learner, round, x, update, parts, &mut |input| inputs.push(input));
                inputs.drain(..).for_each(|input| self.post(id, input));
                self.inputs = inputs;
            }
            Effect::Send { to, frame } => {
                let wire = self.wires.entry((id, to)).or_default();
                let mut bytes = wire.spare.pop().unwrap_or_default();
                bytes.clear();
                bytes.extend_from_slice(&frame);
                wire.queue.push_back(bytes);
                drop(frame);
                self.post(id, Input::Taken(to));
                self.pass(id, to);
            }
            Effect::Recycle { from, buffer } => {
                let wire = self.wires.entry((from, id)).or_default();
                wire.held = false;
                wire.spare.push(buffer);
                self.pass(from, id);
            }
            Effect::Prepared(records) => host.learner.prepare(&records).map_err(RunError::Setup)?,
            Effect::RoundDone(done) => {
                host.traffic = done.traffic;
                observer.round(id, self.now, done);
            }
            Effect::Conclude { rounds, model, mean, traffic } => {
                // Later than the last round's: what was in the air has landed since.
                host.traffic = traffic;
                let conclusion = Conclusion { rounds, model: &model, mean: &mean, traffic, time: self.now };
                let record = host.learner.conclude(&conclusion);
                (host.model, host.mean) = (model, mean);
                self.post(id, Input::Record(record));
            }
            Effect::Finished(records) => host.records = Some(records),
            Effect::Failed(failure) => return Err(RunError::Failed { node: id, failure }),
        }
        Ok(())
    }

    /// Delivers the next frame of a wire if its reader is free.
    fn pass(&mut self, from: NodeId, to: NodeId) {
        let wire = self.wires.entry((from, to)).or_default();
        if wire.held {
            return;
        }
        if let Some(bytes) = wire.queue.pop_front() {
            wire.held = true;
            self.post(to, Input::Frame { from, bytes });
        }
    }

    fn end(self) -> Result<Vec<Ended>, RunError> {
        let stuck: Vec<String> = (self.hosts.iter().enumerate())
            .filter(|(_, host)| host.records.is_none())
            .map(|(id, host)| match host.node.waiting_for() {
                Some((at, peers)) => format!("node {id} waits at {at} for {peers:?}"),
                None => format!("node {id} waits in round {}", host.node.round()),
            })
            .collect();
        if !stuck.is_empty() {
            return Err(RunError::Stuck(stuck.join("; ")));
        }
        let ended = |host: Host| {
            let records = host.records.expect("every node has finished");
            Ended { model: host.model, mean: host.mean, records, traffic: host.traffic }
        };
        Ok(self.hosts.into_iter().map(ended).collect())
    }
}
