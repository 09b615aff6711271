//! Performs the effects of one node's core: frames through the host, gradients through the learner.

use std::{
    collections::{BTreeMap, VecDeque},
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Mutex, TryLockError,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    companion::{Job, SharedLearner, companion},
    event::{Difference, Event, note_difference, refusal},
    gathering::Gathering,
    host::Host,
    limits::Limits,
    status::Status,
};
use crate::{
    drive::{Conclusion, Elapsed, Ended, Learner, Lent, RunError, Waiting, describe_panic},
    gossip::{Effect, Failure, Input, Node, NodeConfig, OwnModel, RoundDone, Traffic},
    mixing::Topology,
    units::{NodeId, Round, Time},
};

/// The interval between two messages about waiting.
const LINE: Duration = Duration::from_secs(5);

/// How often `stop` is called.
const POLL: Duration = Duration::from_millis(100);

/// How long a run that ends early waits for the model that is lent to the last gradient, and how
/// often it polls.
const LAST_GRADIENT: Duration = Duration::from_millis(500);
const SHORT: Duration = Duration::from_millis(10);

/// One node on its thread.
pub struct Worker {
    /// Which node.
    pub id: NodeId,
    /// The topology, for names.
    pub topology: Arc<Topology>,
    /// The host with its links.
    pub host: Host,
    /// Events of the host's tasks.
    pub events: Receiver<Event>,
    /// Sender of the worker's own events: gradients from another thread.
    pub own: Sender<Event>,
    /// Time limits.
    pub limits: Limits,
}

/// Receives the events of one node.
pub trait NodeObserver {
    /// A round is over. May return the round after which all nodes stop.
    fn round(&mut self, elapsed: Elapsed, done: RoundDone) -> Option<Round>;

    /// The node begins.
    fn begins(&mut self, lent: &Lent);

    /// The link to `peer` is up, as number `up` of the node's `links`.
    fn linked(&mut self, peer: NodeId, up: usize, links: usize);

    /// A link broke.
    fn link_lost(&mut self, peer: NodeId, reason: &str);

    /// The node has waited for some seconds.
    fn waits(&mut self, waiting: &Waiting);

    /// The node's own model is final, or the run ends early with this one.
    fn save(&mut self, elapsed: Elapsed, own: OwnModel);

    /// The mean of all models is formed.
    fn mean(&mut self, mean: &[f32]);
}

/// The state of a node that the worker keeps.
struct NodeState {
    node: Node,
    learner: SharedLearner,
    companion: Option<Sender<Job>>,
    own: Sender<Event>,
    started: Instant,
    traffic: Traffic,
    model: Arc<Vec<f32>>,
    mean: Vec<f32>,
    records: Option<Vec<Vec<u8>>>,
    inputs: VecDeque<Input>,
    effects: Vec<Effect>,
}

impl Worker {
    /// Runs a node to its end and says goodbye. `observer` receives every round and the models to
    /// save; `stop` is called again and again and returns whether to leave now.
    ///
    /// # Errors
    /// If a link breaks, a deadline passes, the node fails, or `stop` returns true; the neighbours
    /// get the reason.
    pub fn run(
        self,
        config: NodeConfig,
        learner: Box<dyn Learner>,
        observer: &mut dyn NodeObserver,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Ended, RunError> {
        let Worker { id, topology, host, events, own, limits } = self;
        let state = NodeState::new(config, learner, own, Arc::clone(host.status()));
        let mut driver =
            Driver { id, topology: &topology, limits, host, events, state, observer, stop };
        // A panic in code of the program (evaluations, events): the neighbours get the reason and
        // the model is saved before it goes on.
        let result =
            panic::catch_unwind(AssertUnwindSafe(|| driver.gather().and_then(|()| driver.drive())));
        let (result, payload) = match result {
            Ok(result) => (result, None),
            Err(payload) => {
                let (round, reason) = (driver.state.node.round(), describe_panic(&*payload));
                let failure = Failure::Gradient { round, reason };
                (Err(RunError::Failed { node: id, failure }), Some(payload))
            }
        };
        if result.is_err() {
            driver.salvage();
        }
        let Driver { host, state, stop, .. } = driver;
        let reason = result.as_ref().err().map(|error| {
            let cause = error.cause(id, &topology);
            tracing::debug!("{}", cause.text);
            cause
        });
        // A node that leaves early has its own, short limit.
        let early = reason.is_some();
        host.finish(reason, &mut || !early && stop());
        if let Some(payload) = payload {
            panic::resume_unwind(payload);
        }
        result.map(|()| state.end())
    }
}

/// A node while it runs.
struct Driver<'a> {
    id: NodeId,
    topology: &'a Topology,
    limits: Limits,
    host: Host,
    events: Receiver<Event>,
    state: NodeState,
    observer: &'a mut dyn NodeObserver,
    stop: &'a mut dyn FnMut() -> bool,
}

impl Driver<'_> {
    fn name(&self, node: NodeId) -> &str {
        &self.topology.node(node).name
    }

    /// Waits a moment for the next event.
    ///
    /// # Errors
    /// If `stop` returns true, or the channel is closed.
    fn next(&mut self) -> Result<Option<Event>, RunError> {
        if (self.stop)() {
            return Err(RunError::Interrupted(self.state.node.round()));
        }
        match self.events.recv_timeout(POLL) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(RunError::Network("the host's tasks ended".into()))
            }
        }
    }

    /// Runs until all nodes are linked. Frames of neighbours that have begun are held meanwhile; a
    /// link that breaks may come up again.
    fn gather(&mut self) -> Result<(), RunError> {
        let started = Instant::now();
        let neighbours = self.topology.neighbours(self.id).len();
        let mut gathering = Gathering::new(self.topology, self.id);
        let mut differences: BTreeMap<NodeId, Difference> = BTreeMap::new();
        // The last message of each neighbour that left: the first cause.
        let mut before: BTreeMap<NodeId, String> = BTreeMap::new();
        // Whether any neighbour has had the same files and program: then not only this node has
        // them.
        let mut agrees = false;
        let mut line = started + LINE;
        loop {
            match self.next()? {
                Some(Event::Up(peer) | Event::Back { peer, .. }) => {
                    agrees = true;
                    differences.remove(&peer);
                    before.remove(&peer);
                    gathering.up(peer);
                    let up = neighbours - gathering.missing();
                    tracing::info!("linked with {} ({up} of {neighbours})", self.name(peer));
                    self.observer.linked(peer, up, neighbours);
                }
                Some(Event::Lost { peer, reason }) => {
                    tracing::warn!(
                        "the link to {} broke before the run began: {reason}; waiting for it",
                        self.name(peer)
                    );
                    gathering.down(peer);
                    self.observer.link_lost(peer, &reason);
                }
                Some(Event::Restarted(peer)) => {
                    let reason = "its program was started again".into();
                    self.feed(Input::LinkDown { peer, reason })?;
                }
                Some(Event::Left { peer, cause }) => {
                    tracing::warn!(
                        "{} left before the run began: {}; waiting for it",
                        self.name(peer),
                        cause.text
                    );
                    gathering.down(peer);
                    self.observer.link_lost(peer, &cause.text);
                    before.insert(peer, cause.text.clone());
                    self.feed(Input::Left { peer, cause })?;
                }
                Some(Event::Start { from, message }) => gathering.message(from, message),
                // Before the run it means no more than the loss of the link, which follows.
                Some(Event::Goodbye(_)) => {}
                Some(Event::Differs { peer, difference }) => {
                    before.insert(peer, difference.to_string());
                    note_difference(&mut differences, peer, difference)
                }
                Some(event) => self.take(event)?,
                None => {}
            }
            if !agrees && !differences.is_empty() && differences.len() == neighbours {
                return Err(refusal(&differences));
            }
            let now = Instant::now();
            let own = (gathering.missing() > 0).then(|| {
                format!("node {} waits for {}", self.name(self.id), self.troubles(&before))
            });
            for (to, message) in gathering.new_messages(own.as_deref(), now >= line) {
                self.host.send_start(to, message);
            }
            if gathering.begins() {
                self.host.status().begin();
                return Ok(());
            }
            let waits = || {
                let (name, reason) = (self.name(self.id), gathering.reason(own.as_deref()));
                let host = self
                    .host
                    .status()
                    .of_host()
                    .map(|trouble| format!("; {trouble}"))
                    .unwrap_or_default();
                if own.is_some() {
                    format!("{reason}{host}")
                } else {
                    format!("node {name} is linked, the run has not begun: {reason}{host}")
                }
            };
            if now >= started + self.limits.connect {
                if !agrees
                    && differences
                        .values()
                        .any(|difference| matches!(difference, Difference::Files(_)))
                {
                    return Err(refusal(&differences));
                }
                let seconds = self.limits.connect.as_secs_f64();
                let text = format!("after {seconds} s {}", waits());
                let lacks = self.host.status().of_host().is_some();
                return Err(if lacks { RunError::Host(text) } else { RunError::Deadline(text) });
            }
            if now >= line {
                line = now + LINE;
                let text = waits();
                tracing::warn!("{text}");
                let missing = self.host.status().missing();
                let peers = missing.into_iter().map(|(peer, _)| peer).collect();
                self.observer.waits(&Waiting { peers, text });
            }
        }
    }

    /// The missing neighbours and the causes, as far as they are known. `before`: the last messages
    /// of those that left.
    fn troubles(&self, before: &BTreeMap<NodeId, String>) -> String {
        let one = |(node, trouble): (NodeId, String)| {
            let said = before.get(&node).filter(|said| !trouble.contains(*said));
            let said = said.map_or_else(String::new, |said| format!("; before that: {said}"));
            format!("{} ({trouble}{said})", self.name(node))
        };
        self.host.status().missing().into_iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// Runs from the start to the last record.
    fn drive(&mut self) -> Result<(), RunError> {
        self.state.started = Instant::now();
        self.observer.begins(&self.state.learner.lent);
        self.feed(Input::Start)?;
        let (mut progress, mut line) = (Instant::now(), Instant::now() + LINE);
        let mut bytes = self.host.status().bytes();
        while self.state.records.is_none() {
            if let Some(event) = self.next()? {
                // A link that only breaks and comes back carries nothing.
                let moves = !matches!(event, Event::Lost { .. } | Event::Back { .. });
                self.take(event)?;
                if moves {
                    progress = Instant::now();
                    line = progress + LINE;
                }
            }
            let now = Instant::now();
            if now < line {
                continue;
            }
            line = now + LINE;
            let moved = self.host.status().bytes();
            if moved != bytes {
                // A large frame on a slow link is progress.
                (bytes, progress) = (moved, now);
            }
            let lost = self.host.status().missing();
            if !lost.is_empty() {
                // Each lost link has its own deadline.
                let trouble = |(peer, text): &(NodeId, String)| {
                    format!("the link to {} ({text})", self.name(*peer))
                };
                let links = lost.iter().map(trouble).collect::<Vec<_>>().join(", ");
                let text = format!("node {} waits for {links}", self.name(self.id));
                tracing::warn!("{text}");
                let peers = lost.into_iter().map(|(peer, _)| peer).collect();
                self.observer.waits(&Waiting { peers, text });
                progress = now;
                continue;
            }
            if self.state.is_computing() {
                continue;
            }
            let beat = self.host.status().at_work();
            let alive = beat.map_or(progress, |beat| beat.when.max(progress));
            let (silence, waited) = (now - alive, now - progress);
            if waited >= self.limits.patience.min(LINE) {
                let at_work = beat.filter(|beat| {
                    beat.when > progress && beat.when.elapsed() < self.limits.patience
                });
                let at_work = at_work.map(|beat| {
                    let does = if beat.absent { "waits for a lost link" } else { "is computing" };
                    format!("; node {} {does}", self.name(beat.node))
                });
                let (name, place) = (self.name(self.id), self.waits());
                let text = format!("node {name} waits {place}{}", at_work.unwrap_or_default());
                tracing::warn!("{text}");
                let peers = self.state.node.waiting_for().map_or(Vec::new(), |(_, peers)| peers);
                self.observer.waits(&Waiting { peers, text });
            }
            let most = match beat {
                Some(beat) if beat.absent => self.limits.absence,
                _ => self.limits.work,
            };
            if silence >= self.limits.patience
                || waited >= self.limits.patience.saturating_add(most)
            {
                let (name, seconds) = (self.name(self.id), waited.as_secs_f64());
                return Err(RunError::Deadline(format!(
                    "node {name} waited {seconds:.1} s {}",
                    self.waits()
                )));
            }
        }
        Ok(())
    }

    /// Saves this node's model when a run ends early. It does not wait for a gradient, except while
    /// the lent model is being returned.
    fn salvage(&mut self) {
        let model = |input: Input| match input {
            Input::Computed { x, .. } | Input::ComputeFailed { x, .. } => Some(x),
            _ => None,
        };
        let request = |effect: Effect| match effect {
            Effect::Compute { x, .. } => Some(x),
            _ => None,
        };
        let back = self.state.inputs.drain(..).find_map(model);
        let mut back = back.or_else(|| self.state.effects.drain(..).find_map(request));
        let until = Instant::now() + LAST_GRADIENT;
        loop {
            let waits = self.state.is_computing() && self.state.learner.lent.get().is_none();
            while back.is_none()
                && let Ok(event) = self.events.try_recv()
            {
                if let Event::Computed(input) = event {
                    back = model(input);
                }
            }
            if back.is_some() || !waits || Instant::now() >= until {
                break;
            }
            thread::sleep(SHORT);
        }
        let lent = || back.or_else(|| self.state.learner.lent.get().map(|(_, x)| x.to_vec()));
        if let Some(own) = self.state.node.salvage(lent) {
            let elapsed = self.state.elapsed();
            self.observer.save(elapsed, own);
        }
    }

    /// Describes what the core waits for.
    fn waits(&self) -> String {
        let node = &self.state.node;
        match node.waiting_for() {
            Some((at, peers)) => {
                let names: Vec<&str> = peers.iter().map(|&peer| self.name(peer)).collect();
                format!("at {at} for {}", names.join(", "))
            }
            None => format!("in round {}", node.round()),
        }
    }

    /// Handles an event of the host during the run.
    fn take(&mut self, event: Event) -> Result<(), RunError> {
        match &event {
            Event::Lost { peer, reason } => {
                tracing::warn!("the link to {} is lost: {reason}; reconnecting", self.name(*peer));
                self.observer.link_lost(*peer, reason);
            }
            Event::Back { peer, absent, resent } => {
                let links = self.topology.neighbours(self.id).len();
                tracing::warn!(
                    "the link to {} is back after {:.1} s; frames sent again: {resent}",
                    self.name(*peer),
                    absent.as_secs_f64()
                );
                let up = links - self.host.status().missing().len().min(links);
                self.observer.linked(*peer, up, links);
            }
            Event::Down { peer, reason } => self.observer.link_lost(*peer, reason),
            Event::Left { peer, cause } => self.observer.link_lost(*peer, &cause.text),
            _ => {}
        }
        self.feed(match event {
            Event::Frame { from, bytes } => Input::Frame { from, bytes },
            Event::Taken(peer) => Input::Taken(peer),
            Event::Down { peer, reason } => Input::LinkDown { peer, reason },
            Event::Left { peer, cause } => Input::Left { peer, cause },
            Event::Computed(input) => input,
            Event::Goodbye(peer) if self.state.node.owes_its_model() => {
                let reason = format!(
                    "it said goodbye in round {}, before the run was over",
                    self.state.node.round()
                );
                Input::LinkDown { peer, reason }
            }
            Event::Restarted(peer) => {
                let reason = "its program was started again".into();
                Input::LinkDown { peer, reason }
            }
            Event::Up(_)
            | Event::Lost { .. }
            | Event::Back { .. }
            | Event::Goodbye(_)
            | Event::Start { .. }
            | Event::Differs { .. } => return Ok(()),
        })
    }

    /// Handles an input and all inputs that follow from it here, and performs their effects.
    fn feed(&mut self, input: Input) -> Result<(), RunError> {
        self.state.inputs.push_back(input);
        while let Some(input) = self.state.inputs.pop_front() {
            let NodeState { node, effects, .. } = &mut self.state;
            node.handle(input, effects);
            // Effects that an error leaves are there for `salvage`.
            effects.reverse();
            while let Some(effect) = self.state.effects.pop() {
                self.perform(effect)?;
            }
        }
        Ok(())
    }

    fn perform(&mut self, effect: Effect) -> Result<(), RunError> {
        let state = &mut self.state;
        match effect {
            Effect::Send { to, frame } => self.host.send(to, frame),
            Effect::Recycle { from, buffer } => self.host.recycle(from, buffer),
            Effect::Compute { round, x, update, parts, overlaps } => {
                state.compute(Job { round, x, update, parts }, overlaps);
            }
            Effect::Prepared(merged) => {
                state
                    .learner
                    .work(|learner| learner.prepare(&merged))
                    .map_err(RunError::Agreement)?;
            }
            Effect::RoundDone(done) => {
                state.traffic = done.traffic;
                // The observer evaluates the model in it.
                let evaluates = done.model.is_some();
                if evaluates {
                    self.host.status().set_working(true);
                }
                let last = self.observer.round(state.elapsed(), done);
                if evaluates {
                    self.host.status().set_working(false);
                }
                state.inputs.extend(last.map(Input::StopAfter));
            }
            Effect::Save(own) => {
                let elapsed = state.elapsed();
                self.host.status().set_working(true);
                self.observer.save(elapsed, own);
                self.host.status().set_working(false);
            }
            Effect::Conclude { own, mean } => {
                // Later than the end of the last round: frames in flight have arrived since.
                state.traffic = own.traffic;
                self.host.status().set_working(true);
                self.observer.mean(&mean);
                self.host.status().set_working(false);
                let conclusion = Conclusion::new(&own, &mean, state.elapsed());
                let record = state.learner.work(|learner| learner.conclude(&conclusion));
                (state.model, state.mean) = (own.x, mean);
                state.inputs.push_back(Input::Record(record));
            }
            Effect::Finished(records) => state.records = Some(records),
            Effect::Failed(failure) => return Err(RunError::Failed { node: self.id, failure }),
        }
        Ok(())
    }
}

impl NodeState {
    fn new(
        config: NodeConfig,
        learner: Box<dyn Learner>,
        own: Sender<Event>,
        status: Arc<Status>,
    ) -> NodeState {
        NodeState {
            node: Node::new(config),
            learner: SharedLearner {
                waits: learner.waits(),
                learner: Arc::new(Mutex::new(learner)),
                computing: Arc::default(),
                lent: Lent::default(),
                status,
            },
            companion: None,
            own,
            started: Instant::now(),
            traffic: Traffic::default(),
            model: Arc::default(),
            mean: Vec::new(),
            records: None,
            inputs: VecDeque::new(),
            effects: Vec::new(),
        }
    }

    fn elapsed(&self) -> Elapsed {
        Elapsed {
            time: Time(self.started.elapsed().as_nanos() as u64),
            computing: Time(self.learner.computing.load(Ordering::Relaxed)),
        }
    }

    /// Computes in place if there is nothing else to do meanwhile, else on another thread.
    fn compute(&mut self, job: Job, overlaps: bool) {
        if !overlaps && !self.learner.waits {
            return job.compute(&self.learner, &mut |input| self.inputs.push_back(input));
        }
        let companion =
            self.companion.get_or_insert_with(|| companion(self.learner.clone(), self.own.clone()));
        companion.send(job).expect("the companion lives as long as its queue");
    }

    /// Whether another thread computes a gradient.
    fn is_computing(&self) -> bool {
        self.companion.is_some()
            && matches!(self.learner.learner.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn end(self) -> Ended {
        let records = self.records.unwrap_or_default();
        Ended {
            model: Arc::unwrap_or_clone(self.model),
            mean: self.mean,
            records,
            traffic: self.traffic,
        }
    }
}
