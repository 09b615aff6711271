//! Performs the effects of one node's core: frames through the host, gradients through the learner.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    companion::{Job, Owned},
    confirm::{Again, Confirmation},
    event::Event,
    host::Host,
    limits::Limits,
    node_state::NodeState,
    restore::{put_back, report_return, save_newest, saved},
    saver::Saver,
    start::{Begun, Starter},
};
use crate::{
    drive::{
        Absence, Conclusion, Elapsed, Ended, Lent, Membership, RunError, Waiting, describe_panic,
    },
    gossip::{Effect, Failure, Input, NodeConfig, OwnModel, RoundDone},
    mixing::Topology,
    run::{Checkpoint, Checkpoints},
    state::State,
    units::{NodeId, Round},
};

/// The interval between two messages about waiting.
pub(super) const LINE: Duration = Duration::from_secs(5);

/// How often `stop` is called.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// How long a run that ends early waits for the model that is lent to the last gradient, and how
/// often it polls.
const LAST_GRADIENT: Duration = Duration::from_millis(500);
const SHORT: Duration = Duration::from_millis(10);

/// How long a node that was started again when it had its results looks for the others, which may
/// need it.
const RESULTS: Duration = Duration::from_secs(10);

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

    /// The node goes on after this many rounds; reports of later rounds no longer count.
    fn resumes(&mut self, rounds: Round);

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

    /// The run is over: write the results now.
    fn ended(&mut self, ended: &Ended);
}

/// What a node begins with.
pub struct Start {
    /// Its core.
    pub config: NodeConfig,
    /// The members of the run: the topology is that of their links.
    pub membership: Membership,
    /// Its learner.
    pub learner: Owned,
    /// Its checkpoints, if it writes any.
    pub checkpoints: Option<Checkpoints>,
    /// Whether it has been part of this run before.
    pub again: bool,
    /// Whether it leaves only when all nodes have written their results.
    pub confirms: bool,
    /// The results of an earlier attempt, whose other nodes may not all have theirs.
    pub results: Option<Ended>,
}

/// Why an attempt of a node has stopped.
pub enum Stopped {
    /// The run ends early.
    Failed(RunError),
    /// The program of a neighbour was started again: this node must go back to a checkpoint. Its
    /// neighbours got no reason. The results are there if it had written them.
    Restarted(NodeId, Option<Box<Ended>>),
    /// The members must be chosen again.
    Absent(Absence),
    /// A neighbour broke the protocol, and the run can go on without it.
    Broken(NodeId, Failure),
}

impl From<RunError> for Stopped {
    fn from(error: RunError) -> Stopped {
        match error {
            RunError::Absent(peers) => Stopped::Absent(peers),
            error => Stopped::Failed(error),
        }
    }
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
        start: Start,
        observer: &mut dyn NodeObserver,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Ended, Stopped> {
        let Worker { id, topology, host, events, own, limits } = self;
        let Start { config, membership, learner, checkpoints, again, confirms, results } = start;
        let rounds_in_all = config.rounds;
        let (saved, mut newest) = saved(id, &checkpoints);
        // Nodes that were part of the run may take as long to return as lost links.
        let is_over =
            results.is_some() || checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.over);
        let again = again || checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.used);
        let limit = match again {
            _ if is_over => Some(RESULTS),
            true if limits.goes_on => limits.absence,
            true => limits.absence.map(|absence| absence.max(limits.connect)),
            false => Some(limits.start.unwrap_or(limits.connect)),
        };
        let start = limits.start.is_some();
        let begun = Starter {
            id,
            topology: &topology,
            membership: &membership,
            host: &host,
            events: &events,
            observer,
            stop,
            limit,
            goes_on: limits.goes_on,
            saved: &saved,
        }
        .gather();
        let begun = begun.and_then(|begun| {
            Ok((put_back(id, &begun.at, &checkpoints, &mut newest, &learner)?, begun))
        });
        let (restored, Begun { at, early }) = match begun {
            Ok(begun) => begun,
            Err(RunError::Absent(peers)) => return Err(Stopped::Absent(peers)),
            // The run can go on without the nodes that are not here.
            Err(RunError::Deadline(text)) if limits.goes_on && !is_over && (again || start) => {
                tracing::warn!("{text}");
                let missing = host.status().missing().into_iter();
                let late = missing.map(|(peer, _)| peer).collect();
                return Err(Stopped::Absent(Absence { late, ..Absence::default() }));
            }
            Err(error) => {
                save_newest(newest, observer);
                host.finish(Some(error.cause(id, &topology)), &mut || false);
                return match (error, results) {
                    // The other nodes have left: all of them have their results.
                    (RunError::Deadline(_), Some(results)) => Ok(results),
                    (error, _) => Err(error.into()),
                };
            }
        };
        if at.rounds > rounds_in_all {
            let why = format!("the run should go on after round {} of {rounds_in_all}", at.rounds);
            return Err(RunError::Network(why).into());
        }
        // It is as large as the state of the rule.
        drop(newest);
        if again || at.rounds > 0 {
            observer.resumes(Round(at.rounds));
        }
        report_return(&at, &topology);
        let status = Arc::clone(host.status());
        let restarts = checkpoints.as_ref().map_or(0, |checkpoints| checkpoints.restarts);
        let saver = checkpoints.map(|checkpoints| {
            Saver::new(checkpoints, Arc::clone(&status), &topology, id, at.clone(), membership.id)
        });
        let mut state = NodeState::new(config, (&at, restored), learner, own, status);
        (state.history, state.restarts) = (at.history, restarts);
        let mut driver =
            Driver { id, topology: &topology, limits, host, events, state, saver, observer, stop };
        // A panic in code of the program (evaluations, events): the neighbours get the reason and
        // the model is saved before it goes on.
        let result = panic::catch_unwind(AssertUnwindSafe(|| driver.drive(early)));
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
        let Driver { mut host, state, stop, saver, observer, events, .. } = driver;
        match result {
            Err(RunError::Restarted(peer)) => return Err(Stopped::Restarted(peer, None)),
            Err(RunError::Absent(peers)) => return Err(Stopped::Absent(peers)),
            Err(RunError::Failed { ref failure, .. }) if limits.goes_on => {
                if let Some(peer) = failure.culprit() {
                    return Err(Stopped::Broken(peer, failure.clone()));
                }
            }
            _ => {}
        }
        let over = result.is_ok() && state.node.round().0 >= rounds_in_all;
        let mut result = result.map(|()| state.end());
        if let Ok(ended) = &mut result {
            observer.ended(ended);
            let Limits { patience, goes_on, .. } = limits;
            let (topology, events) = (&topology, &events);
            if confirms {
                let waits = Confirmation { id, topology, host: &host, events, patience, goes_on };
                match waits.wait(stop) {
                    None => {}
                    Some(Again::Restarted(peer)) => {
                        let results = Box::new(std::mem::take(ended));
                        return Err(Stopped::Restarted(peer, Some(results)));
                    }
                    Some(Again::Absent(peers)) => return Err(Stopped::Absent(peers)),
                }
                host.set_over();
            }
        }
        let reason = result.as_ref().err().map(|error| {
            let cause = error.cause(id, &topology);
            tracing::debug!("{}", cause.text);
            cause
        });
        // From here on a node that was started again finds its results in its files.
        if let Some(saver) = saver.filter(|_| over) {
            saver.clear(confirms);
        }
        // A node that leaves early has its own, short limit.
        let early = reason.is_some();
        host.finish(reason, &mut || !early && stop());
        if let Some(payload) = payload {
            panic::resume_unwind(payload);
        }
        Ok(result?)
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
    saver: Option<Saver>,
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

    /// Runs from the start to the last record.
    fn drive(&mut self, early: Vec<Event>) -> Result<(), RunError> {
        self.state.started = Instant::now();
        self.observer.begins(&self.state.learner.lent);
        if let Some(first) = self.saver.as_ref().and_then(Saver::first) {
            self.feed(first)?;
        }
        for event in early {
            self.take(event)?;
        }
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
            let round = self.state.node.round();
            if let Some(saver) = &mut self.saver {
                if let Some(request) = saver.look(round) {
                    self.feed(request)?;
                } else if let Some(back) = saver.due() {
                    return Err(RunError::Absent(Absence { back, ..Absence::default() }));
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
                Some(beat) if beat.absent => self.limits.absence.unwrap_or(Duration::MAX),
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
            Event::Down { peer, .. } if self.limits.goes_on => {
                return Err(RunError::Absent(Absence::of(peer)));
            }
            Event::Left { peer, cause } if self.limits.goes_on && cause.leaves => {
                return Err(RunError::Absent(Absence::of(peer)));
            }
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
            Event::Restarted(peer) => return Err(RunError::Restarted(peer)),
            Event::Up(_)
            | Event::Lost { .. }
            | Event::Back { .. }
            | Event::Goodbye(_)
            | Event::Start { .. }
            | Event::Differs { .. } => return Ok(()),
            Event::Elsewhere(peer) => return self.meet(peer),
        })
    }

    /// Handles the visit of a node that takes part in another membership.
    fn meet(&mut self, peer: NodeId) -> Result<(), RunError> {
        let is_member = self.topology.neighbours(self.id).contains(&peer);
        if !self.limits.goes_on {
            return Ok(());
        }
        if is_member {
            tracing::info!("members are chosen again");
            return Err(RunError::Absent(Absence::default()));
        }
        if let Some(saver) = &mut self.saver
            && saver.visit(peer)
        {
            let name = self.host.name(peer);
            tracing::warn!("node {name} is back: it takes part after the next checkpoint");
        }
        Ok(())
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
                state.setup = merged;
            }
            Effect::Snapshot(snapshot) => {
                let Some(saver) = &mut self.saver else { return Ok(()) };
                let mut learner = State::default();
                state.learner.work(|learns| _ = learns.state(&mut learner));
                let Elapsed { time, computing } = state.elapsed();
                let (snapshot, setup) = (*snapshot, state.setup.clone());
                let checkpoint = Checkpoint {
                    snapshot,
                    learner,
                    setup,
                    time,
                    computing,
                    ..Checkpoint::default()
                };
                state.inputs.extend(saver.save(checkpoint));
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
                let conclusion = Conclusion {
                    restarts: state.restarts,
                    ..Conclusion::new(&own, &mean, state.elapsed())
                };
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
