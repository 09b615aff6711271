//! Performs the effects of one node's core: frames through the host, gradients through the learner.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use super::{event::Event, host::Host};
use crate::{
    gossip::{Effect, Input, Node, NodeConfig, Part, RoundDone, Traffic},
    job::{self, Conclusion, Elapsed, Ended, Learner, RunError},
    mixing::Topology,
    units::{NodeId, Round, Time},
};

/// A line about what is being waited for, at most so often.
const LINE: Duration = Duration::from_secs(5);

/// How often somebody's wish to stop is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// One node on its thread.
pub struct Worker {
    /// Which node.
    pub id: NodeId,
    /// For names.
    pub topology: Arc<Topology>,
    /// Its links.
    pub host: Host,
    /// From the host's tasks.
    pub events: Receiver<Event>,
    /// To itself, for gradients that are computed beside the core.
    pub own: Sender<Event>,
    /// How long to wait for all neighbours.
    pub connect: Duration,
    /// How long to wait for anything at all.
    pub patience: Duration,
}

/// Sees every round that is done; may name the round after which all nodes stop.
pub type Report<'a> = dyn FnMut(Elapsed, RoundDone) -> Option<Round> + 'a;

/// What learns, and for how many nanoseconds it has.
#[derive(Clone)]
struct SharedLearner {
    learner: Arc<Mutex<Box<dyn Learner>>>,
    computing: Arc<AtomicU64>,
}

struct Job {
    round: Round,
    x: Vec<f32>,
    update: Vec<f32>,
    parts: Vec<Part>,
}

impl Job {
    fn compute(self, learner: &SharedLearner, hand: &mut dyn FnMut(Input)) {
        let Job { round, x, update, parts } = self;
        let (begun, mut counted) = (Instant::now(), 0);
        job::compute(&mut **lock(learner), round, x, update, parts, &mut |input| {
            let so_far = begun.elapsed().as_nanos() as u64;
            // Counted before anybody can act on it.
            learner.computing.fetch_add(so_far - counted, Ordering::Relaxed);
            counted = so_far;
            hand(input);
        });
    }
}

fn lock(learner: &SharedLearner) -> MutexGuard<'_, Box<dyn Learner>> {
    learner.learner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a worker keeps of its node.
struct Keeper {
    node: Node,
    learner: SharedLearner,
    companion: Option<Sender<Job>>,
    own: Sender<Event>,
    started: Instant,
    traffic: Traffic,
    model: Vec<f32>,
    mean: Vec<f32>,
    records: Option<Vec<Vec<u8>>>,
    inputs: VecDeque<Input>,
    effects: Vec<Effect>,
}

impl Worker {
    /// Runs a node to its end and says goodbye. `report` sees every round; `stop` is asked again and again whether to leave now.
    ///
    /// # Errors
    /// If a link breaks, a deadline passes, the node fails, or `stop` says so; the neighbours are told why.
    pub fn run(
        self,
        config: NodeConfig,
        learner: Box<dyn Learner>,
        report: &mut Report<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Ended, RunError> {
        let Worker { id, topology, mut host, events, own, connect, patience } = self;
        let mut keeper = Keeper::new(config, learner, own);
        let watch = Watch { id, topology: &topology, connect, patience };
        let result = watch
            .wait_for_links(&mut keeper, &mut host, &events, report, stop)
            .and_then(|()| watch.drive(&mut keeper, &mut host, &events, report, stop));
        let reason = match &result {
            Ok(()) => None,
            Err(RunError::Interrupted(round)) => Some(format!("interrupted in round {round}")),
            Err(error) => {
                let reason = error.told(&topology);
                tracing::debug!("{reason}");
                Some(reason)
            }
        };
        host.finish(reason);
        result.map(|()| keeper.end())
    }
}

/// The next event, or none for a moment.
///
/// # Errors
/// If somebody wants to stop, or nothing can come any more.
fn next(events: &Receiver<Event>, stop: &mut dyn FnMut() -> bool, round: Round) -> Result<Option<Event>, RunError> {
    let event = match events.recv_timeout(LOOK) {
        Ok(event) => Some(event),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => return Err(RunError::Network("the host's tasks ended".into())),
    };
    if stop() { Err(RunError::Interrupted(round)) } else { Ok(event) }
}

/// Names and deadlines.
struct Watch<'a> {
    id: NodeId,
    topology: &'a Topology,
    connect: Duration,
    patience: Duration,
}

impl Watch<'_> {
    fn name(&self, node: NodeId) -> &str {
        &self.topology.node(node).name
    }

    /// Until every link is up. Frames of neighbours that are further are held meanwhile.
    fn wait_for_links(
        &self,
        keeper: &mut Keeper,
        host: &mut Host,
        events: &Receiver<Event>,
        report: &mut Report<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), RunError> {
        let started = Instant::now();
        let mut missing: BTreeSet<NodeId> = self.topology.neighbours(self.id).iter().copied().collect();
        let mut line = started + LINE;
        while !missing.is_empty() {
            match next(events, stop, Round(0))? {
                Some(Event::Up(peer)) => {
                    missing.remove(&peer);
                    let (all, name) = (self.topology.neighbours(self.id).len(), self.name(peer));
                    tracing::info!("linked with {name} ({} of {all})", all - missing.len());
                }
                Some(event) => self.take(event, keeper, host, report)?,
                None => {}
            }
            let now = Instant::now();
            if now >= started + self.connect {
                let (id, seconds) = (self.name(self.id), self.connect.as_secs_f64());
                return Err(RunError::Deadline(format!("node {id} waited {seconds} s for {}", self.troubles(host))));
            }
            if now >= line {
                line = now + LINE;
                tracing::warn!("node {} waits for {}", self.name(self.id), self.troubles(host));
            }
        }
        Ok(())
    }

    /// Who is missing and why, as far as it is known.
    fn troubles(&self, host: &Host) -> String {
        let one = |(node, trouble): (NodeId, String)| format!("{} ({trouble})", self.name(node));
        host.status().missing().into_iter().map(one).collect::<Vec<_>>().join(", ")
    }

    fn drive(
        &self,
        keeper: &mut Keeper,
        host: &mut Host,
        events: &Receiver<Event>,
        report: &mut Report<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), RunError> {
        keeper.started = Instant::now();
        keeper.inputs.push_back(Input::Start);
        self.settle(keeper, host, report)?;
        let (mut heard, mut bytes, mut line) = (Instant::now(), host.status().bytes(), Instant::now() + LINE);
        while keeper.records.is_none() {
            if let Some(event) = next(events, stop, keeper.node.round())? {
                self.take(event, keeper, host, report)?;
                heard = Instant::now();
                line = heard + LINE;
            }
            let now = Instant::now();
            if now < line {
                continue;
            }
            line = now + LINE;
            let moved = host.status().bytes();
            if moved != bytes {
                // A large frame on a slow link is progress.
                (bytes, heard) = (moved, now);
            }
            let silence = now - heard;
            if silence >= self.patience.min(LINE) && !keeper.is_computing() {
                tracing::warn!("node {} waits {}", self.name(self.id), self.waits(keeper));
            }
            if silence >= self.patience && !keeper.is_computing() {
                let seconds = silence.as_secs_f64();
                return Err(RunError::Deadline(format!(
                    "node {} waited {seconds:.1} s {}",
                    self.name(self.id),
                    self.waits(keeper)
                )));
            }
        }
        Ok(())
    }

    fn waits(&self, keeper: &Keeper) -> String {
        match keeper.node.waiting_for() {
            Some((at, peers)) => {
                let names: Vec<&str> = peers.iter().map(|&peer| self.name(peer)).collect();
                format!("at {at} for {}", names.join(", "))
            }
            None => format!("in round {}", keeper.node.round()),
        }
    }

    fn take(
        &self,
        event: Event,
        keeper: &mut Keeper,
        host: &mut Host,
        report: &mut Report<'_>,
    ) -> Result<(), RunError> {
        let input = match event {
            Event::Frame { from, bytes } => Input::Frame { from, bytes },
            Event::Taken(peer) => Input::Taken(peer),
            Event::Down { peer, reason } => Input::LinkDown { peer, reason },
            Event::Computed(input) => input,
            Event::Up(_) | Event::Goodbye(_) => return Ok(()),
            Event::Fatal(error) => return Err(error),
        };
        keeper.inputs.push_back(input);
        self.settle(keeper, host, report)
    }

    /// Handles inputs and performs effects until nothing is left to do here.
    fn settle(&self, keeper: &mut Keeper, host: &mut Host, report: &mut Report<'_>) -> Result<(), RunError> {
        while let Some(input) = keeper.inputs.pop_front() {
            let mut effects = std::mem::take(&mut keeper.effects);
            keeper.node.handle(input, &mut effects);
            for effect in effects.drain(..) {
                self.perform(effect, keeper, host, report)?;
            }
            keeper.effects = effects;
        }
        Ok(())
    }

    fn perform(
        &self,
        effect: Effect,
        keeper: &mut Keeper,
        host: &mut Host,
        report: &mut Report<'_>,
    ) -> Result<(), RunError> {
        match effect {
            Effect::Send { to, frame } => host.send(to, frame),
            Effect::Recycle { from, buffer } => host.recycle(from, buffer),
            Effect::Compute { round, x, update, parts, overlaps } => {
                keeper.compute(Job { round, x, update, parts }, overlaps);
            }
            Effect::Prepared(merged) => keeper.learner().prepare(&merged).map_err(RunError::Setup)?,
            Effect::RoundDone(done) => {
                keeper.traffic = done.traffic;
                let last = report(keeper.elapsed(), done);
                keeper.inputs.extend(last.map(Input::StopAfter));
            }
            Effect::Conclude { rounds, model, mean, traffic, links } => {
                // Later than the last round's: what was in the air has landed since.
                keeper.traffic = traffic;
                let elapsed = keeper.elapsed();
                let conclusion = Conclusion { rounds, model: &model, mean: &mean, traffic, links: &links, elapsed };
                let record = keeper.learner().conclude(&conclusion);
                (keeper.model, keeper.mean) = (model, mean);
                keeper.inputs.push_back(Input::Record(record));
            }
            Effect::Finished(records) => keeper.records = Some(records),
            Effect::Failed(failure) => return Err(RunError::Failed { node: self.id, failure }),
        }
        Ok(())
    }
}

impl Keeper {
    fn new(config: NodeConfig, learner: Box<dyn Learner>, own: Sender<Event>) -> Keeper {
        Keeper {
            node: Node::new(config),
            learner: SharedLearner { learner: Arc::new(Mutex::new(learner)), computing: Arc::default() },
            companion: None,
            own,
            started: Instant::now(),
            traffic: Traffic::default(),
            model: Vec::new(),
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

    fn learner(&self) -> MutexGuard<'_, Box<dyn Learner>> {
        lock(&self.learner)
    }

    /// In place where nothing is to be done meanwhile, else beside the core.
    fn compute(&mut self, job: Job, overlaps: bool) {
        if !overlaps {
            return job.compute(&self.learner, &mut |input| self.inputs.push_back(input));
        }
        let companion = self.companion.get_or_insert_with(|| companion(self.learner.clone(), self.own.clone()));
        companion.send(job).expect("the companion lives as long as its queue");
    }

    /// Whether a gradient is being computed beside the core.
    fn is_computing(&self) -> bool {
        self.companion.is_some() && matches!(self.learner.learner.try_lock(), Err(TryLockError::WouldBlock))
    }

    fn end(self) -> Ended {
        Ended { model: self.model, mean: self.mean, records: self.records.unwrap_or_default(), traffic: self.traffic }
    }
}

/// A thread that computes gradients while frames are handled.
fn companion(learner: SharedLearner, own: Sender<Event>) -> Sender<Job> {
    let (jobs, queue) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for job in queue {
            let mut heard = true;
            job.compute(&learner, &mut |input| heard &= own.send(Event::Computed(input)).is_ok());
            if !heard {
                return;
            }
        }
    });
    jobs
}
