//! Drives the core on a virtual network in virtual time, on one thread.
//!
//! A [link](crate::links::LinkModel) decides when a frame leaves and arrives, a
//! [machine](crate::links::ComputeModel) how long a gradient takes; on an ideal network, the
//! default, both take no time. The bytes are real: frames are encoded, checked and decoded as they
//! are over libp2p, and a link delivers its next frame only after the last one was recycled, as a
//! reader does. Events are ordered by (time, number), so a run has one trace, whose SHA-256 is its
//! digest. Encoding, evaluation and all other work besides gradients takes no time.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::{
    drive::{self, Conclusion, Elapsed, Ended, Learner, NodeSpec, Observer, RunError},
    gossip::{Effect, Input, Node, Traffic, frame::ENVELOPE, snapshot::Snapshot},
    links::{ComputeModel, Conditions, Lines, Queue},
    units::{NodeId, Round, Time},
};

/// The result of a complete run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Simulated {
    /// The results of all nodes, in their order.
    pub ended: Vec<Ended>,
    /// SHA-256 of the times, nodes and kinds of all events, in hexadecimal digits.
    pub trace: String,
    /// The time of the last event.
    pub time: Time,
    /// The time at which the last node began its first gradient: before it comes the setup.
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
///
/// ```
/// use gradvine::prelude::*;
///
/// let settings = ["run.rounds=20", "topology.file=ring:4", "network.preset=4g"];
/// let whole = Whole::new(Experiment::default_with(&settings.map(String::from))?)?;
/// let slow = sim::run_on(whole.specs(), &whole.conditions, &mut NoopObserver)?;
/// let ideal = sim::run(whole.specs(), &mut NoopObserver)?;
/// // Links cost time; they do not change a synchronous run.
/// assert_eq!(slow.ended[0].model, ideal[0].model);
/// assert!(slow.time > slow.began);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn run_on(
    specs: Vec<NodeSpec>,
    conditions: &Conditions,
    observer: &mut dyn Observer,
) -> Result<Simulated, RunError> {
    let nodes = specs.into_iter().map(|spec| (Node::new(spec.config), spec.learner));
    match run_part(nodes.collect(), conditions, Time(0), None, observer)? {
        RunPart::Over(simulated) => Ok(simulated),
        RunPart::Paused(..) => unreachable!("no rounds are named"),
    }
}

/// A node's core and its learner.
pub type Running = (Node, Box<dyn Learner>);

/// The state of a node in the middle of a run.
pub(crate) struct Paused {
    pub(crate) snapshot: Snapshot,
    /// The merged setup records of all nodes; empty if nothing was agreed on.
    pub(crate) merged: Vec<u8>,
}

/// How a part of a run ends.
pub(crate) enum RunPart {
    /// All nodes have done the rounds of the part; the time is that of the last event.
    Paused(Vec<Paused>, Time),
    Over(Simulated),
}

/// Runs nodes from this time on until all of them have done so many rounds, if their plan
/// [can pause](crate::gossip::plan::can_pause), or to their end.
///
/// # Errors
/// If a node fails, the nodes wait for each other, or the run is over before these rounds without
/// the observer's request.
pub(crate) fn run_part(
    nodes: Vec<Running>,
    conditions: &Conditions,
    begin: Time,
    rounds: Option<Round>,
    observer: &mut dyn Observer,
) -> Result<RunPart, RunError> {
    Network::new(nodes, conditions, begin).run(rounds, observer)
}

struct Host {
    node: Node,
    learner: Box<dyn Learner>,
    traffic: Traffic,
    /// The time at which it began its first gradient.
    began: Option<Time>,
    /// The time at which its last gradient is ready, and the duration of all its gradients.
    computed: Time,
    computing: Time,
    model: Arc<Vec<f32>>,
    mean: Vec<f32>,
    records: Option<Vec<Vec<u8>>>,
    merged: Vec<u8>,
    snapshot: Option<Box<Snapshot>>,
}

impl Host {
    /// Its clocks now. A gradient under way counts with its elapsed part.
    fn elapsed(&self, now: Time) -> Elapsed {
        Elapsed {
            time: now,
            computing: Time(self.computing.0 - self.computed.0.saturating_sub(now.0)),
        }
    }
}

struct Network<'a> {
    conditions: &'a Conditions,
    hosts: Vec<Host>,
    lines: Lines<'a, Vec<u8>>,
    spare: Vec<Vec<u8>>,
    trace: Sha256,
    events: Queue<Event>,
    effects: Vec<Effect>,
    /// The inputs that a node's learner has returned.
    inputs: Vec<Input>,
    /// How many nodes have done the rounds of this part.
    paused: usize,
}

struct Event {
    node: NodeId,
    kind: EventKind,
}

enum EventKind {
    /// An input for the node's core.
    Input(Input),
    /// The oldest frame in flight from this neighbour arrived.
    Arrival(NodeId),
}

impl EventKind {
    /// A number for the trace.
    fn code(&self) -> u8 {
        match self {
            EventKind::Input(Input::Start) => 0,
            EventKind::Input(Input::Frame { .. }) => 1,
            EventKind::Input(Input::Taken(_)) => 2,
            EventKind::Input(Input::LinkDown { .. }) => 3,
            EventKind::Input(Input::Part { .. }) => 4,
            EventKind::Input(Input::Computed { .. }) => 5,
            EventKind::Input(Input::Record(_)) => 6,
            EventKind::Input(Input::StopAfter(_)) => 7,
            EventKind::Input(Input::Left { .. }) => 9,
            EventKind::Input(Input::ComputeFailed { .. } | Input::Diverged { .. }) => 10,
            EventKind::Input(Input::Snapshot(_)) => 11,
            EventKind::Input(Input::Tally { .. }) => 12,
            EventKind::Input(Input::Piece { .. }) => 13,
            EventKind::Arrival(_) => 8,
        }
    }
}

impl<'a> Network<'a> {
    fn new(nodes: Vec<Running>, conditions: &'a Conditions, begin: Time) -> Network<'a> {
        let host = |(node, learner): Running| Host {
            node,
            learner,
            traffic: Traffic::default(),
            began: None,
            computed: Time(0),
            computing: Time(0),
            model: Arc::default(),
            mean: Vec::new(),
            records: None,
            merged: Vec::new(),
            snapshot: None,
        };
        Network {
            conditions,
            lines: Lines::new(conditions, nodes.len()),
            spare: Vec::new(),
            hosts: nodes.into_iter().map(host).collect(),
            trace: Sha256::new(),
            events: Queue::new(begin),
            effects: Vec::new(),
            inputs: Vec::new(),
            paused: 0,
        }
    }

    /// Runs all nodes until they have done so many rounds, or to their end.
    fn run(
        mut self,
        rounds: Option<Round>,
        observer: &mut dyn Observer,
    ) -> Result<RunPart, RunError> {
        for node in (0..self.hosts.len()).map(NodeId::from) {
            if let Some(rounds) = rounds {
                self.post(node, Input::Snapshot(rounds));
            }
            self.post(node, Input::Start);
        }
        let mut stopping = false;
        while let Some(event) = self.events.next() {
            if let Err(error) = self.deliver(event, observer) {
                self.salvage(observer);
                return Err(error);
            }
            if !stopping && let Some(last) = observer.stop_after() {
                stopping = true;
                for node in 0..self.hosts.len() {
                    self.post(NodeId::from(node), Input::StopAfter(last));
                }
            }
            if let Some(rounds) = rounds.filter(|&rounds| !stopping && self.is_paused(rounds)) {
                return self.pause(rounds);
            }
        }
        self.end().map(RunPart::Over)
    }

    /// Whether all nodes have done so many rounds. A run that stops early may end before.
    fn is_paused(&self, rounds: Round) -> bool {
        let done = |host: &Host| host.snapshot.as_ref().is_some_and(|done| done.rounds == rounds);
        self.paused == self.hosts.len() && self.hosts.iter().all(done)
    }

    /// Takes the states of all nodes after these rounds.
    fn pause(self, rounds: Round) -> Result<RunPart, RunError> {
        let now = self.events.now();
        let paused = self.hosts.into_iter().map(|host| match host.snapshot {
            Some(snapshot) if snapshot.rounds == rounds => {
                Ok(Paused { snapshot: *snapshot, merged: host.merged })
            }
            _ => Err(RunError::Stuck(format!("the run is over before round {rounds}"))),
        });
        Ok(RunPart::Paused(paused.collect::<Result<_, _>>()?, now))
    }

    fn post(&mut self, node: NodeId, input: Input) {
        self.post_at(self.events.now(), node, EventKind::Input(input));
    }

    fn post_at(&mut self, time: Time, node: NodeId, kind: EventKind) {
        self.events.post(time, Event { node, kind });
    }

    fn deliver(&mut self, event: Event, observer: &mut dyn Observer) -> Result<(), RunError> {
        let id = event.node;
        self.trace.update(self.events.now().0.to_le_bytes());
        self.trace.update(id.0.to_le_bytes());
        self.trace.update([event.kind.code()]);
        let input = match event.kind {
            EventKind::Input(input) => input,
            EventKind::Arrival(from) => {
                self.lines.arrive(from, id);
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
            Effect::Snapshot(snapshot) => {
                host.snapshot = Some(snapshot);
                self.paused += 1;
            }
            Effect::Compute { round, x, update, parts, overlaps: _ } => {
                let (now, d) = (self.events.now(), x.len());
                let starts: Vec<usize> = parts.iter().map(|part| part.start).collect();
                let mut inputs = std::mem::take(&mut self.inputs);
                drive::compute(&mut *host.learner, round, x, update, parts, &mut |input| {
                    inputs.push(input);
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
                    self.post_at(Time(now.0 + after), id, EventKind::Input(input));
                }
                self.inputs = inputs;
            }
            // Nobody signs anything here.
            Effect::Shared { .. } | Effect::Initial { .. } => {}
            Effect::Send { to, frame } => self.send(id, to, &frame),
            Effect::Recycle { from, buffer } => {
                self.lines.release(from, id);
                self.spare.push(buffer);
                self.pass(from, id);
            }
            Effect::Prepared(merged) => {
                host.learner.prepare(&merged).map_err(RunError::Agreement)?;
                host.merged = merged;
            }
            Effect::RoundDone(done) => {
                host.traffic = done.traffic;
                let elapsed = host.elapsed(self.events.now());
                observer.round(id, elapsed, done);
            }
            Effect::Save(own) => observer.save(id, host.elapsed(self.events.now()), &own),
            Effect::Conclude { own, mean } => {
                // Later than the end of the last round: frames in flight have arrived since.
                host.traffic = own.traffic;
                observer.mean(&mean);
                let conclusion = Conclusion::new(&own, &mean, host.elapsed(self.events.now()));
                let record = host.learner.conclude(&conclusion);
                (host.model, host.mean) = (own.x, mean);
                self.post(id, Input::Record(record));
            }
            Effect::Finished(records) => host.records = Some(records),
            Effect::Failed(failure) => return Err(RunError::Failed { node: id, failure }),
        }
        Ok(())
    }

    /// Saves each node's model when a run ends early.
    fn salvage(&self, observer: &mut dyn Observer) {
        for (node, host) in self.hosts.iter().enumerate() {
            let node = NodeId::from(node);
            let lent = |event: &Event| match &event.kind {
                EventKind::Input(
                    Input::Computed { x, .. }
                    | Input::ComputeFailed { x, .. }
                    | Input::Diverged { x, .. },
                ) if event.node == node => Some(x.clone()),
                _ => None,
            };
            if let Some(own) = host.node.salvage(|| self.events.iter().find_map(lent)) {
                observer.save(node, host.elapsed(self.events.now()), &own);
            }
        }
    }

    fn send(&mut self, id: NodeId, to: NodeId, frame: &[u8]) {
        let now = self.events.now();
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        let passage = self.lines.send(now, (id, to), bytes, frame.len() + ENVELOPE);
        self.post_at(passage.left, id, EventKind::Input(Input::Taken(to)));
        if passage.arrives == now {
            self.lines.arrive(id, to);
            self.pass(id, to);
        } else {
            self.post_at(passage.arrives, to, EventKind::Arrival(id));
        }
    }

    /// Delivers the next frame of a link if its reader is free.
    fn pass(&mut self, from: NodeId, to: NodeId) {
        if let Some(bytes) = self.lines.read(from, to, false) {
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
        let now = self.events.now();
        let Network { hosts, trace, .. } = self;
        let began = hosts.iter().filter_map(|host| host.began).max().unwrap_or(Time(0));
        let ended = |host: Host| {
            let records = host.records.expect("every node has finished");
            Ended {
                model: Arc::unwrap_or_clone(host.model),
                mean: host.mean,
                records,
                traffic: host.traffic,
                history: Vec::new(),
            }
        };
        let trace = crate::digest::hex(&trace.finalize());
        Ok(Simulated { ended: hosts.into_iter().map(ended).collect(), trace, time: now, began })
    }
}
