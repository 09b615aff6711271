//! The rounds of one node: events go to its core, and its core's effects to links and learner.

use std::{
    sync::{Arc, mpsc::RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use super::{
    companion::Job,
    node_state::NodeState,
    pace::{self, Meter},
    patience::{Patience, Seen, Verdict},
};
use crate::{
    drive::{Absence, Conclusion, Elapsed, RunError, Waiting},
    gossip::{Effect, Input},
    mixing::Topology,
    net::life::{
        agreement::saver::Saver,
        clock,
        event::Event,
        limits::{Limits, POLL, WARNING_INTERVAL},
        links::Links,
        observer::NodeObserver,
    },
    run::Checkpoint,
    state::State,
    units::NodeId,
};

/// How long a run that ends early waits for the model that is lent to the last gradient, and how
/// often it polls.
const LAST_GRADIENT: Duration = Duration::from_millis(500);
const SHORT: Duration = Duration::from_millis(10);

/// A node while it runs.
pub(crate) struct Driver<'a> {
    pub id: NodeId,
    pub topology: &'a Topology,
    pub limits: Limits,
    pub links: Box<dyn Links>,
    pub state: NodeState,
    pub saver: Option<Saver>,
    pub observer: &'a mut dyn NodeObserver,
    pub stop: &'a mut dyn FnMut() -> bool,
    pub meter: Meter,
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
        let started = clock::now();
        let next = self.links.next(POLL);
        let waited = clock::since(started);
        // A call that takes longer was held up on this machine: the process was stopped, say.
        if waited <= 2 * POLL && !self.state.is_computing() {
            self.meter.add(waited);
        }
        match next {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(RunError::Network("the host's tasks ended".into()))
            }
        }
    }

    /// Runs from the start to the last record.
    pub(crate) fn drive(&mut self, early: Vec<Event>) -> Result<(), RunError> {
        self.state.started = clock::now();
        self.observer.begins(&self.state.learner.lent);
        if let Some(first) = self.saver.as_ref().and_then(Saver::first) {
            self.feed(first)?;
        }
        for event in early {
            self.take(event)?;
        }
        self.feed(Input::Start)?;
        let mut told = clock::now();
        let mut patience = Patience::new(told, self.links.status().bytes());
        while self.state.records.is_none() {
            if let Some(event) = self.next()? {
                // A link that only breaks and returns carries nothing.
                let moves = !matches!(event, Event::Lost { .. } | Event::Back { .. });
                self.take(event)?;
                if moves {
                    patience.moved(clock::now());
                }
            }
            let round = self.state.node.round();
            if let Some(saver) = &mut self.saver {
                if let Some(request) = saver.look(round) {
                    self.feed(request)?;
                } else if let Some(returned) = saver.due() {
                    return Err(RunError::Absent(Absence { returned, ..Absence::default() }));
                }
            }
            if self.meter.is_due() {
                self.tell(patience.since());
            }
            let now = clock::now();
            if now >= told + WARNING_INTERVAL {
                told = now;
                let away = self.links.status().away();
                if !away.is_empty() {
                    self.observer.away(&away);
                }
            }
            if patience.is_due(now) {
                self.look(&mut patience, now)?;
            }
        }
        Ok(())
    }

    /// Says for what this node waits, if it waits.
    ///
    /// # Errors
    /// If it waits no longer.
    fn look(&mut self, patience: &mut Patience, now: Instant) -> Result<(), RunError> {
        let (status, computing) = (self.links.status(), self.state.is_computing());
        let (lost, beat) = (status.missing(), status.at_work());
        let seen = Seen { now, bytes: status.bytes(), lost: !lost.is_empty(), computing, beat };
        let since = patience.since();
        let verdict = patience.look(&seen, &self.limits);
        let (text, peers) = match verdict {
            Verdict::Quiet => return Ok(()),
            Verdict::Lost => {
                let (links, peers) = self.lost(lost);
                (format!("node {} waits for {links}", self.name(self.id)), peers)
            }
            Verdict::Over(waited) if seen.lost => {
                let (links, nodes) = self.lost(lost);
                let text = format!(
                    "node {} waited {:.1} s in round {} for {links}, which carried nothing",
                    self.name(self.id),
                    waited.as_secs_f64(),
                    self.state.node.round()
                );
                return Err(RunError::Deadline { nodes, text });
            }
            Verdict::Waits => self.waits("waits", since),
            Verdict::Over(waited) => {
                let does = format!("waited {:.1} s", waited.as_secs_f64());
                let (text, nodes) = self.waits(&does, since);
                return Err(RunError::Deadline { nodes, text });
            }
        };
        tracing::warn!("{text}");
        self.observer.waits(&Waiting { peers, text });
        Ok(())
    }

    /// Lost links in words, and their nodes.
    fn lost(&self, lost: Vec<(NodeId, String)>) -> (String, Vec<NodeId>) {
        let trouble =
            |(peer, text): &(NodeId, String)| format!("the link to {} ({text})", self.name(*peer));
        let links = lost.iter().map(trouble).collect::<Vec<_>>().join(", ");
        (links, lost.into_iter().map(|(peer, _)| peer).collect())
    }

    /// Saves this node's model when a run ends early. It does not wait for a gradient, except while
    /// the lent model is being returned.
    pub(crate) fn salvage(&mut self) {
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

    /// Describes what the core does, for whom it waits, and for whom those wait; returns the nodes
    /// at the ends of the chains, too. Nothing has moved since `progress`.
    fn waits(&self, does: &str, progress: Instant) -> (String, Vec<NodeId>) {
        let (status, node) = (self.links.status(), &self.state.node);
        let (name, round) = (self.name(self.id), node.round());
        let Some((_, peers)) = node.waiting_for().filter(|(_, peers)| !peers.is_empty()) else {
            return (format!("node {name} {does} in round {round}"), Vec::new());
        };
        let chain = status.paces().chain(self.id, &peers);
        let names: Vec<&str> = peers.iter().map(|&peer| self.name(peer)).collect();
        let mut text = format!("node {name} {does} in round {round} for {}", names.join(", "));
        for pair in chain.windows(2) {
            text += &format!("; {} waits for {}", self.name(pair[0]), self.name(pair[1]));
        }
        let last = *chain.last().expect("it has one node at least");
        let heard = status.heard(last).filter(|alive| {
            alive.when > progress && clock::since(alive.when) < self.limits.patience
        });
        text += &match heard {
            Some(alive) if alive.absent => format!("; {} waits for a lost link", self.name(last)),
            Some(_) => format!("; {} is computing", self.name(last)),
            None if chain.len() > 1 => format!("; {} gives no sign of work", self.name(last)),
            None => String::new(),
        };
        // The others that this node waits for may have causes of their own.
        match chain.len() {
            1 => (text, peers),
            _ => (text, vec![last]),
        }
    }

    /// Tells the others for whom this node waits, and notices a node that holds the run up.
    fn tell(&mut self, progress: Instant) {
        let status = Arc::clone(self.links.status());
        let lost = status.missing();
        let waits_for = if !lost.is_empty() {
            lost.into_iter().map(|(peer, _)| peer).collect()
        } else if clock::since(progress) < pace::TOLD || self.state.is_computing() {
            Vec::new()
        } else {
            self.state.node.waiting_for().map_or(Vec::new(), |(_, peers)| peers)
        };
        let slow = {
            let mut paces = status.paces();
            let slow = self.meter.turn(&paces);
            paces.set(self.id, waits_for, self.meter.share());
            slow
        };
        if let Some((node, share)) = slow {
            let name = self.name(node);
            let text = format!(
                "node {name} holds the run up: it works all the time, and the others wait for \
                 {share} % of theirs; it is slower than they are, or has more to do"
            );
            tracing::warn!("{text}");
            self.observer.waits(&Waiting { peers: vec![node], text });
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
                    "the link to {} has returned after {:.1} s; frames sent again: {resent}",
                    self.name(*peer),
                    absent.as_secs_f64()
                );
                let up = links - self.links.status().missing().len().min(links);
                self.observer.linked(*peer, up, links);
            }
            Event::Down { peer, reason } => self.observer.link_lost(*peer, reason),
            Event::Left { peer, cause } => {
                if self.limits.may_continue && !cause.leaves {
                    tracing::warn!("node {} cannot continue: {}", self.name(*peer), cause.text);
                }
                self.observer.link_lost(*peer, &cause.text);
            }
            _ => {}
        }
        self.feed(match event {
            Event::Frame { from, bytes } => Input::Frame { from, bytes },
            Event::Piece { from, length, bytes } => Input::Piece { from, length, bytes },
            Event::Taken(peer) => Input::Taken(peer),
            Event::Down { peer, .. } if self.limits.may_continue => {
                return Err(RunError::Absent(Absence::of(peer)));
            }
            // What it says of others, or of all, is its own affair: it does not continue.
            Event::Left { peer, .. } if self.limits.may_continue => {
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
            Event::Rival { peer, text } => {
                tracing::warn!("node {} says: {text}", self.name(peer));
                return Ok(());
            }
            Event::OtherMembership(peer) => return self.meet(peer),
        })
    }

    /// Handles the visit of a node that takes part in another membership.
    fn meet(&mut self, peer: NodeId) -> Result<(), RunError> {
        let is_member = self.topology.neighbours(self.id).contains(&peer);
        if !self.limits.may_continue {
            return Ok(());
        }
        if is_member {
            tracing::info!("members are chosen again");
            return Err(RunError::Absent(Absence::default()));
        }
        if let Some(saver) = &mut self.saver
            && saver.note_return(peer)
        {
            let name = self.links.name(peer);
            tracing::warn!("node {name} has returned: it takes part after the next checkpoint");
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
