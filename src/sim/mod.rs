//! Drives the core on a virtual network in virtual time, on one thread.
//!
//! A frame leaves and arrives when its [link](crate::links::LinkModel) says so, and a gradient
//! takes what the [machine](crate::links::ComputeModel) needs; on an ideal network, the default,
//! nothing takes any time. The bytes are real: frames are encoded, checked and decoded as they are
//! over libp2p, and a link holds back its next frame until the last one was recycled, as a reader
//! does. Events are ordered by (time, number), so a run has one trace, whose SHA-256 is its digest.
//! Encoding, evaluation and whatever else a node does besides gradients takes no time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use crate::{
    drive::{self, Conclusion, Elapsed, Ended, Learner, NodeSpec, Observer, RunError},
    gossip::{Effect, Input, Node, Traffic, frame::ENVELOPE},
    links::{Channel, ComputeModel, Conditions},
    units::{NodeId, Time},
};

/// A run that came to its end.
#[derive(Debug)]
pub struct Simulated {
    /// The nodes.
    pub ended: Vec<Ended>,
    /// SHA-256 of the times, nodes and kinds of all events, in hexadecimal digits.
    pub trace: String,
    /// When the last event was.
    pub time: Time,
    /// When the last node began its first gradient: what comes before is the setup.
    pub began: Time,
}

/// Runs all nodes to their end on an ideal network.
///
/// # Errors
/// If a node fails or the nodes wait for each other.
pub fn run(specs: Vec<NodeSpec>, observer: &mut dyn Observer) -> Result<Vec<Ended>, RunError> {
    run_on(specs, &Conditions::ideal(), observer).map(|simulated| simulated.ended)
}

/// Runs all nodes to their end.
///
/// # Errors
/// If a node fails or the nodes wait for each other.
pub fn run_on(
    specs: Vec<NodeSpec>,
    conditions: &Conditions,
    observer: &mut dyn Observer,
) -> Result<Simulated, RunError> {
    let mut network = Network::new(specs, conditions);
    for node in 0..network.hosts.len() {
        network.post(NodeId::from(node), Input::Start);
    }
    let mut stopping = false;
    while let Some(event) = network.next() {
        network.now = event.time;
        if let Err(error) = network.deliver(event, observer) {
            network.salvage(observer);
            return Err(error);
        }
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
    /// When it began its first gradient.
    began: Option<Time>,
    /// When its last gradient is ready, and how long all of them took.
    computed: Time,
    computing: Time,
    model: Arc<Vec<f32>>,
    mean: Vec<f32>,
    records: Option<Vec<Vec<u8>>>,
}

impl Host {
    /// Its clocks, now. Of a gradient under way, what has been computed of it.
    fn elapsed(&self, now: Time) -> Elapsed {
        Elapsed {
            time: now,
            computing: Time(self.computing.0 - self.computed.0.saturating_sub(now.0)),
        }
    }
}

/// One direction of a link.
struct Wire {
    channel: Channel,
    /// When the last frame has left.
    free: Time,
    /// On the way.
    flying: VecDeque<Vec<u8>>,
    /// Arrived, not yet delivered.
    queue: VecDeque<Vec<u8>>,
    /// Delivered, not yet recycled.
    held: bool,
    /// Recycled buffers.
    spare: Vec<Vec<u8>>,
}

struct Network<'a> {
    conditions: &'a Conditions,
    now: Time,
    hosts: Vec<Host>,
    wires: BTreeMap<(NodeId, NodeId), Wire>,
    /// When what each node has sent has left, where its links share a line.
    uplinks: Vec<Time>,
    trace: Sha256,
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
    what: What,
}

enum What {
    /// For the node's core.
    Input(Input),
    /// The oldest frame on the way from there is here.
    Arrival(NodeId),
}

impl What {
    /// For the trace.
    fn code(&self) -> u8 {
        match self {
            What::Input(Input::Start) => 0,
            What::Input(Input::Frame { .. }) => 1,
            What::Input(Input::Taken(_)) => 2,
            What::Input(Input::LinkDown { .. }) => 3,
            What::Input(Input::Part { .. }) => 4,
            What::Input(Input::Computed { .. }) => 5,
            What::Input(Input::Record(_)) => 6,
            What::Input(Input::StopAfter(_)) => 7,
            What::Input(Input::Left { .. }) => 9,
            What::Input(Input::ComputeFailed { .. }) => 10,
            What::Arrival(_) => 8,
        }
    }
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

impl<'a> Network<'a> {
    fn new(specs: Vec<NodeSpec>, conditions: &'a Conditions) -> Network<'a> {
        let host = |spec: NodeSpec| Host {
            node: Node::new(spec.config),
            learner: spec.learner,
            traffic: Traffic::default(),
            began: None,
            computed: Time(0),
            computing: Time(0),
            model: Arc::default(),
            mean: Vec::new(),
            records: None,
        };
        Network {
            conditions,
            now: Time(0),
            uplinks: vec![Time(0); specs.len()],
            hosts: specs.into_iter().map(host).collect(),
            wires: BTreeMap::new(),
            trace: Sha256::new(),
            events: BinaryHeap::new(),
            posted: 0,
            effects: Vec::new(),
            inputs: Vec::new(),
        }
    }

    fn post(&mut self, node: NodeId, input: Input) {
        self.post_at(self.now, node, What::Input(input));
    }

    fn post_at(&mut self, time: Time, node: NodeId, what: What) {
        self.events.push(Reverse(Event { time, number: self.posted, node, what }));
        self.posted += 1;
    }

    fn next(&mut self) -> Option<Event> {
        self.events.pop().map(|Reverse(event)| event)
    }

    fn deliver(&mut self, event: Event, observer: &mut dyn Observer) -> Result<(), RunError> {
        let id = event.node;
        self.trace.update(event.time.0.to_le_bytes());
        self.trace.update(id.0.to_le_bytes());
        self.trace.update([event.what.code()]);
        let input = match event.what {
            What::Input(input) => input,
            What::Arrival(from) => {
                let wire = self.wire(from, id);
                let bytes = wire.flying.pop_front().expect("what arrives has flown");
                wire.queue.push_back(bytes);
                self.pass(from, id);
                return Ok(());
            }
        };
        let mut effects = std::mem::take(&mut self.effects);
        self.hosts[id.index()].node.handle(input, &mut effects);
        for effect in effects.drain(..) {
            self.perform(id, effect, observer)?;
        }
        self.effects = effects;
        Ok(())
    }

    fn perform(
        &mut self,
        id: NodeId,
        effect: Effect,
        observer: &mut dyn Observer,
    ) -> Result<(), RunError> {
        let host = &mut self.hosts[id.index()];
        match effect {
            Effect::Compute { round, x, update, parts, overlaps: _ } => {
                let (now, d) = (self.now, x.len());
                let starts: Vec<usize> = parts.iter().map(|part| part.start).collect();
                let mut inputs = std::mem::take(&mut self.inputs);
                drive::compute(&mut *host.learner, round, x, update, parts, &mut |input| {
                    inputs.push(input)
                });
                let time = self.conditions.compute_time(self.hosts.len(), id, round);
                let host = &mut self.hosts[id.index()];
                host.began.get_or_insert(now);
                host.computed = Time(now.0 + time);
                host.computing.0 += time;
                for input in inputs.drain(..) {
                    let after = match &input {
                        Input::Part { part, .. } => {
                            ComputeModel::until_part(time, d, starts[usize::from(*part)])
                        }
                        _ => time,
                    };
                    self.post_at(Time(now.0 + after), id, What::Input(input));
                }
                self.inputs = inputs;
            }
            Effect::Send { to, frame } => self.send(id, to, &frame),
            Effect::Recycle { from, buffer } => {
                let wire = self.wire(from, id);
                wire.held = false;
                wire.spare.push(buffer);
                self.pass(from, id);
            }
            Effect::Prepared(merged) => {
                host.learner.prepare(&merged).map_err(RunError::Agreement)?
            }
            Effect::RoundDone(done) => {
                host.traffic = done.traffic;
                let elapsed = host.elapsed(self.now);
                observer.round(id, elapsed, done);
            }
            Effect::Save(own) => observer.save(id, host.elapsed(self.now), &own),
            Effect::Conclude { own, mean } => {
                // Later than the last round's: what was in the air has landed since.
                host.traffic = own.traffic;
                observer.mean(&mean);
                let conclusion = Conclusion::new(&own, &mean, host.elapsed(self.now));
                let record = host.learner.conclude(&conclusion);
                (host.model, host.mean) = (own.x, mean);
                self.post(id, Input::Record(record));
            }
            Effect::Finished(records) => host.records = Some(records),
            Effect::Failed(failure) => return Err(RunError::Failed { node: id, failure }),
        }
        Ok(())
    }

    /// A run that ends early: what each node has is saved.
    fn salvage(&self, observer: &mut dyn Observer) {
        for (node, host) in self.hosts.iter().enumerate() {
            let node = NodeId::from(node);
            let lent = |Reverse(event): &Reverse<Event>| match &event.what {
                What::Input(Input::Computed { x, .. } | Input::ComputeFailed { x, .. })
                    if event.node == node =>
                {
                    Some(x.clone())
                }
                _ => None,
            };
            if let Some(own) = host.node.salvage(|| self.events.iter().find_map(lent)) {
                observer.save(node, host.elapsed(self.now), &own);
            }
        }
    }

    fn wire(&mut self, from: NodeId, to: NodeId) -> &mut Wire {
        let conditions = self.conditions;
        self.wires.entry((from, to)).or_insert_with(|| Wire {
            channel: Channel::new(*conditions.link(from, to), conditions.dice(from, to)),
            free: Time(0),
            flying: VecDeque::new(),
            queue: VecDeque::new(),
            held: false,
            spare: Vec::new(),
        })
    }

    fn send(&mut self, id: NodeId, to: NodeId, frame: &[u8]) {
        let now = self.now;
        let mut free = self.uplinks[id.index()];
        let shared = self.conditions.shared_uplink;
        let wire = self.wire(id, to);
        let mut bytes = wire.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        let passage = wire.channel.send(
            now,
            frame.len() + ENVELOPE,
            if shared { &mut free } else { &mut wire.free },
        );
        let at_once = passage.arrives == now;
        if at_once {
            wire.queue.push_back(bytes);
        } else {
            wire.flying.push_back(bytes);
        }
        self.uplinks[id.index()] = free;
        self.post_at(passage.left, id, What::Input(Input::Taken(to)));
        if at_once {
            self.pass(id, to);
        } else {
            self.post_at(passage.arrives, to, What::Arrival(id));
        }
    }

    /// Delivers the next frame of a wire if its reader is free.
    fn pass(&mut self, from: NodeId, to: NodeId) {
        let wire = self.wire(from, to);
        if wire.held {
            return;
        }
        if let Some(bytes) = wire.queue.pop_front() {
            wire.held = true;
            self.post(to, Input::Frame { from, bytes });
        }
    }

    fn end(self) -> Result<Simulated, RunError> {
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
        let Network { hosts, trace, now, .. } = self;
        let began = hosts.iter().filter_map(|host| host.began).max().unwrap_or(Time(0));
        let ended = |host: Host| {
            let records = host.records.expect("every node has finished");
            Ended {
                model: Arc::unwrap_or_clone(host.model),
                mean: host.mean,
                records,
                traffic: host.traffic,
            }
        };
        let trace = crate::digest::hex(&trace.finalize());
        Ok(Simulated { ended: hosts.into_iter().map(ended).collect(), trace, time: now, began })
    }
}
