//! The rounds of one node: events go to its core, and its core's effects to links and learner.

use std::{sync::mpsc::RecvTimeoutError, thread, time::Duration};

use super::{
    clock,
    companion::Job,
    event::Event,
    limits::Limits,
    links::Links,
    node_state::NodeState,
    saver::Saver,
    worker::{LINE, NodeObserver, POLL},
};
use crate::{
    drive::{Absence, Conclusion, Elapsed, RunError, Waiting},
    gossip::{Effect, Input},
    mixing::Topology,
    run::Checkpoint,
    state::State,
    units::NodeId,
};

/// How long a run that ends early waits for the model that is lent to the last gradient, and how
/// often it polls.
const LAST_GRADIENT: Duration = Duration::from_millis(500);
const SHORT: Duration = Duration::from_millis(10);

/// A node while it runs.
pub(super) struct Driver<'a> {
    pub id: NodeId,
    pub topology: &'a Topology,
    pub limits: Limits,
    pub links: Box<dyn Links>,
    pub state: NodeState,
    pub saver: Option<Saver>,
    pub observer: &'a mut dyn NodeObserver,
    pub stop: &'a mut dyn FnMut() -> bool,
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
        match self.links.next(POLL) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(RunError::Network("the host's tasks ended".into()))
            }
        }
    }

    /// Runs from the start to the last record.
    pub fn drive(&mut self, early: Vec<Event>) -> Result<(), RunError> {
        self.state.started = clock::now();
        self.observer.begins(&self.state.learner.lent);
        if let Some(first) = self.saver.as_ref().and_then(Saver::first) {
            self.feed(first)?;
        }
        for event in early {
            self.take(event)?;
        }
        self.feed(Input::Start)?;
        let (mut progress, mut line) = (clock::now(), clock::now() + LINE);
        let mut bytes = self.links.status().bytes();
        let mut told = progress;
        while self.state.records.is_none() {
            if let Some(event) = self.next()? {
                // A link that only breaks and comes back carries nothing.
                let moves = !matches!(event, Event::Lost { .. } | Event::Back { .. });
                self.take(event)?;
                if moves {
                    progress = clock::now();
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
            let now = clock::now();
            if now >= told + LINE {
                told = now;
                let away = self.links.status().away();
                if !away.is_empty() {
                    self.observer.away(&away);
                }
            }
            if now < line {
                continue;
            }
            line = now + LINE;
            let moved = self.links.status().bytes();
            if moved != bytes {
                // A large frame on a slow link is progress.
                (bytes, progress) = (moved, now);
            }
            let lost = self.links.status().missing();
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
            let beat = self.links.status().at_work();
            let alive = beat.map_or(progress, |beat| beat.when.max(progress));
            let (silence, waited) = (now - alive, now - progress);
            if waited >= self.limits.patience.min(LINE) {
                let at_work = beat.filter(|beat| {
                    beat.when > progress && clock::since(beat.when) < self.limits.patience
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
                let nodes = self.state.node.waiting_for().map_or(Vec::new(), |(_, peers)| peers);
                let text = format!("node {name} waited {seconds:.1} s {}", self.waits());
                return Err(RunError::Deadline { nodes, text });
            }
        }
        Ok(())
    }

    /// Saves this node's model when a run ends early. It does not wait for a gradient, except while
    /// the lent model is being returned.
    pub fn salvage(&mut self) {
        let model = |input: Input| match input {
            Input::Computed { x, .. }
            | Input::ComputeFailed { x, .. }
            | Input::Diverged { x, .. } => Some(x),
            _ => None,
        };
        let request = |effect: Effect| match effect {
            Effect::Compute { x, .. } => Some(x),
            _ => None,
        };
        let back = self.state.inputs.drain(..).find_map(model);
        let mut back = back.or_else(|| self.state.effects.drain(..).find_map(request));
        let until = clock::now() + LAST_GRADIENT;
        loop {
            let waits = self.state.is_computing() && self.state.learner.lent.get().is_none();
            while back.is_none()
                && let Ok(event) = self.links.next(Duration::ZERO)
            {
                if let Event::Computed(input) = event {
                    back = model(input);
                }
            }
            if back.is_some() || !waits || clock::now() >= until {
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
                let up = links - self.links.status().missing().len().min(links);
                self.observer.linked(*peer, up, links);
            }
            Event::Down { peer, reason } => self.observer.link_lost(*peer, reason),
            Event::Left { peer, cause } => {
                if self.limits.goes_on && !cause.leaves {
                    tracing::warn!("node {} cannot go on: {}", self.name(*peer), cause.text);
                }
                self.observer.link_lost(*peer, &cause.text);
            }
            _ => {}
        }
        self.feed(match event {
            Event::Frame { from, bytes } => Input::Frame { from, bytes },
            Event::Piece { from, length, bytes } => Input::Piece { from, length, bytes },
            Event::Taken(peer) => Input::Taken(peer),
            Event::Down { peer, .. } if self.limits.goes_on => {
                return Err(RunError::Absent(Absence::of(peer)));
            }
            // What it says of others, or of all, is its own affair: it does not go on.
            Event::Left { peer, .. } if self.limits.goes_on => {
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
            let name = self.links.name(peer);
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
            Effect::Send { to, frame } => self.links.send(to, frame),
            Effect::Recycle { from, buffer } => self.links.recycle(from, buffer),
            Effect::Compute { round, x, update, parts, overlaps } => {
                state.compute(Job { round, x, update, parts }, overlaps)?;
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
                    self.links.status().set_working(true);
                }
                let last = self.observer.round(state.elapsed(), done);
                if evaluates {
                    self.links.status().set_working(false);
                }
                state.inputs.extend(last.map(Input::StopAfter));
            }
            Effect::Save(own) => {
                let elapsed = state.elapsed();
                self.links.status().set_working(true);
                self.observer.save(elapsed, own);
                self.links.status().set_working(false);
            }
            Effect::Conclude { own, mean } => {
                // Later than the end of the last round: frames in flight have arrived since.
                state.traffic = own.traffic;
                self.links.status().set_working(true);
                self.observer.mean(&mean);
                self.links.status().set_working(false);
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
