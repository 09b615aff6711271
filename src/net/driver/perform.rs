//! The effects of a node, one after the other.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{
    Driver,
    companion::{Job, lock},
    saver::Saver,
    work::Work,
};
use crate::{
    cluster::{
        Effect, Input, Opened, Opening,
        effect::Remains,
        event::Event,
        kept::{self, Place},
        message::{Beginning, Stamp},
        statements::next_attempt,
    },
    drive::{Change, Conclusion, Elapsed, Ended, RunError},
    gossip::{self, Cause, OwnModel, snapshot::Snapshot},
    net::link::session::random,
    run::Checkpoint,
    state,
    status::{State, clock},
    units::NodeId,
};

/// How long a run that ends early waits for the model that is lent to the last gradient, and how
/// often it polls.
const LAST_GRADIENT: Duration = Duration::from_millis(500);
const SHORT: Duration = Duration::from_millis(10);

impl Driver<'_> {
    /// Performs an effect.
    ///
    /// # Errors
    /// Why it cannot be performed.
    pub(super) fn perform(&mut self, effect: Effect) -> Result<(), RunError> {
        match effect {
            Effect::Core(effect) => return self.perform_core(effect),
            Effect::Open(opening) => {
                let opened = self.open(&opening);
                self.inputs.push_back(Input::Opened(opened));
            }
            Effect::SendNews { to, news } => {
                if let Some(links) = &self.links {
                    links.send_news(to, news);
                }
            }
            Effect::Tell(statements) => {
                if let Some(links) = &self.links {
                    links.tell(statements);
                }
            }
            Effect::Pace { waits_for, share } => {
                self.telling.pace(waits_for, share);
            }
            Effect::Restore { at, node } => {
                let restored = self.restore(&at, node);
                self.inputs.push_back(Input::Restored(restored));
            }
            Effect::Begin { at, node } => {
                if let Err(error) = self.begin(&at, node) {
                    self.inputs.push_front(Input::Failed(error));
                }
            }
            Effect::Write { snapshot, stamp } => self.write(*snapshot, stamp),
            Effect::Retain(rounds) => self.retain(&|saved| saved >= rounds),
            Effect::Record(membership) => {
                let recorded = self
                    .checkpoints
                    .as_ref()
                    .map_or(Ok(()), |kept| kept.adopt(&membership).map_err(RunError::Setup));
                self.inputs.push_back(Input::Recorded(recorded));
            }
            Effect::Results { records, history } => self.end(records, history),
            Effect::Salvage(remains) => self.salvage(*remains),
            Effect::SaveNewest => self.save_newest(),
            Effect::Clear { folder } => self.clear(folder),
            Effect::Close { reason, over } => {
                self.close(reason, over);
                self.inputs.push_back(Input::Closed);
            }
            Effect::End(outcome) => self.outcome = Some(outcome),
            Effect::Info(text) => tracing::info!("{text}"),
            Effect::Debug(text) => tracing::debug!("{text}"),
            Effect::Warn(text) => {
                self.telling.warn(&text);
                tracing::warn!("{text}");
            }
            Effect::Linked { peer, up, links } => self.observer.linked(peer, up, links),
            Effect::LinkLost { peer, reason } => self.observer.link_lost(peer, &reason),
            Effect::Waits(waiting) => self.observer.waits(&waiting),
            Effect::Away(nodes) => self.observer.away(&nodes),
            Effect::Resumes(rounds) => self.observer.resumes(rounds),
        }
        Ok(())
    }

    /// Performs an effect of the core.
    ///
    /// # Errors
    /// If the learner cannot prepare, or the system refuses a thread.
    fn perform_core(&mut self, effect: gossip::Effect) -> Result<(), RunError> {
        let (Some(links), Some(work)) = (&mut self.links, &mut self.work) else { return Ok(()) };
        let inputs = &mut self.inputs;
        match effect {
            gossip::Effect::Send { to, frame } => links.send(to, frame),
            gossip::Effect::Recycle { from, buffer } => links.recycle(from, buffer),
            gossip::Effect::Compute { round, x, update, parts, overlaps } => {
                let mut hand = |input| inputs.push_back(Input::Core(input));
                work.compute(Job { round, x, update, parts }, overlaps, &mut hand)?;
            }
            gossip::Effect::Prepared(merged) => {
                work.learner
                    .work(|learner| learner.prepare(&merged))
                    .map_err(RunError::Agreement)?;
                work.setup = merged;
            }
            gossip::Effect::RoundDone(done) => {
                work.traffic = done.traffic;
                self.telling.round(done.round.0 + 1, done.loss);
                let elapsed = work.elapsed();
                // The observer evaluates the model in it.
                let last = match done.model {
                    Some(_) => work.at_work(|| self.observer.round(elapsed, done)),
                    None => self.observer.round(elapsed, done),
                };
                inputs.extend(last.map(|last| Input::Core(gossip::Input::StopAfter(last))));
            }
            gossip::Effect::Save(own) => {
                let (elapsed, own) = (work.elapsed(), renumbered(own, &self.members));
                work.at_work(|| self.observer.save(elapsed, own));
            }
            gossip::Effect::Conclude { own, mean } => {
                // Later than the end of the last round: frames in flight have arrived since.
                work.traffic = own.traffic;
                work.at_work(|| self.observer.mean(&mean));
                let restarts = self.checkpoints.as_ref().map_or(0, |kept| kept.restarts);
                let conclusion = Conclusion::new(&own, &mean, work.elapsed());
                let conclusion = Conclusion { restarts, ..conclusion };
                let record = work.learner.work(|learner| learner.conclude(&conclusion));
                (work.model, work.mean) = (own.x, mean);
                inputs.push_back(Input::Core(gossip::Input::Record(record)));
            }
            gossip::Effect::Shared { .. }
            | gossip::Effect::Initial { .. }
            | gossip::Effect::Snapshot(_)
            | gossip::Effect::Finished(_)
            | gossip::Effect::Failed(_) => unreachable!("the cluster handles these"),
        }
        Ok(())
    }

    /// Opens links, in place of those that are open.
    fn open(&mut self, opening: &Opening) -> Result<Opened, RunError> {
        (self.work, self.links, self.own, self.newest) = (None, None, None, None);
        self.telling.reopen();
        let all = self.cluster.part().whole.topology.nodes();
        if opening.resets {
            self.reset();
        }
        let needs_setup = !opening.chooses && (opening.resets || !opening.membership.is_whole(all));
        let setup = needs_setup.then(|| lock(&self.learner).setup()).flatten();
        let part = self.cluster.part();
        let (links, own) = self.network.open(part, opening, self.resumes)?;
        (self.links, self.own) = (Some(links), Some(own));
        self.members.clone_from(&opening.membership.members);
        let kept = self.checkpoints.as_ref();
        if opening.chooses {
            let has_started = kept.is_some_and(|kept| kept.has_started());
            let newest = kept.map_or(0, |kept| kept.newest());
            return Ok(Opened { has_started, newest, ..Opened::default() });
        }
        let (saved, newest) = kept::saved(kept)?;
        self.newest = newest;
        self.attempt = next_attempt(self.attempt, clock(), random());
        Ok(Opened { attempt: self.attempt, setup, saved, ..Opened::default() })
    }

    /// Goes back to a checkpoint.
    fn restore(
        &mut self,
        at: &Beginning,
        node: NodeId,
    ) -> Result<Option<crate::cluster::Restored>, RunError> {
        if let Some(links) = &self.links {
            // A link that breaks from now on is lost until its session is resumed.
            links.status().begin();
        }
        let kept = self.checkpoints.as_ref();
        let is_of = |newest: &mut Checkpoint| newest.snapshot.rounds.0 == at.rounds;
        let newest = self.newest.take_if(is_of);
        let learner = &mut **lock(&self.learner);
        let Place { restored, before, setup } = kept::put_back(node, at, kept, newest, learner)?;
        self.before = (before, setup);
        Ok(restored)
    }

    /// The rounds begin.
    ///
    /// # Errors
    /// If checkpoints of an attempt that has failed stay on the disk.
    fn begin(&mut self, at: &Beginning, node: NodeId) -> Result<(), RunError> {
        self.newest = None;
        let (Some(links), Some(own)) = (&self.links, &self.own) else { return Ok(()) };
        if let Some(kept) = &self.checkpoints {
            kept::begin(node, at, kept)?;
        }
        let saver = self.checkpoints.clone().map(|kept| Saver::new(kept, own.clone()));
        let before = std::mem::take(&mut self.before);
        let learner = (self.learner.clone(), self.ends.clone());
        let status = links.status().clone();
        self.telling.begin(Instant::now(), at.rounds, before.0);
        let work = Work::new(before, learner, saver, own.clone(), status);
        self.observer.members(&self.members);
        self.observer.begins(&work.learner.lent);
        self.work = Some(work);
        Ok(())
    }

    /// Writes a checkpoint.
    fn write(&mut self, snapshot: Snapshot, stamp: Stamp) {
        let Some(work) = &mut self.work else { return };
        let mut learner = state::State::default();
        work.learner.work(|learns| _ = learns.state(&mut learner));
        let setup = work.setup.clone();
        let checkpoint = stamp.checkpoint(snapshot, learner, setup, work.elapsed());
        let durable = work.saver.as_mut().and_then(|saver| saver.save(checkpoint));
        self.inputs.extend(durable.map(Input::Event));
    }

    fn retain(&self, kept: &dyn Fn(u64) -> bool) {
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.retain(kept);
        }
    }

    /// Writes the results.
    fn end(&mut self, records: Vec<Vec<u8>>, history: Vec<Change>) {
        let Some(work) = &mut self.work else { return };
        let (model, mean) = (std::mem::take(&mut work.model), std::mem::take(&mut work.mean));
        let model = std::sync::Arc::unwrap_or_clone(model);
        let ended = Ended { model, mean, records, traffic: work.traffic, history };
        if !self.observer.ended(&ended) {
            self.inputs.push_back(Input::Unwritten);
        }
        self.ended = Some(ended);
    }

    /// Removes all checkpoints: the run is over. Without `folder` it stays, so that a node that is
    /// started again knows that the run was its own.
    fn clear(&mut self, folder: bool) {
        if let Some(work) = &mut self.work {
            work.saver = None;
        }
        match &self.checkpoints {
            Some(checkpoints) if folder => checkpoints.remove(),
            _ => self.retain(&|_| false),
        }
    }

    fn close(&mut self, reason: Option<Cause>, over: bool) {
        let (now, part) = (Instant::now(), self.cluster.part());
        let (end, why) = match &reason {
            Some(cause) if cause.leaves => (State::Left, cause.text.as_str()),
            Some(cause) => (State::Failed, cause.text.as_str()),
            None => (State::Done, ""),
        };
        let record = self.telling.last(now, part, end, why);
        self.board.say(now, record);
        let Some(mut links) = self.links.take() else { return };
        if over {
            links.set_over();
        }
        // A node that leaves early has its own, short limit.
        let early = reason.is_some();
        links.finish(reason, &mut || !early && (self.stop)());
    }

    /// Saves this node's model when a run ends early. It does not wait for a gradient, except while
    /// the lent model is being returned.
    fn salvage(&mut self, remains: Remains) {
        let Remains { node, lent, numbers } = remains;
        let Some(work) = &self.work else { return };
        let queued = self.inputs.drain(..).find_map(|input| match input {
            Input::Core(input) => input.into_model(),
            _ => None,
        });
        let request = |effect: Effect| match effect {
            Effect::Core(gossip::Effect::Compute { x, .. }) => Some(x),
            _ => None,
        };
        let mut x = lent.or(queued).or_else(|| self.left.drain(..).find_map(request));
        let until = Instant::now() + LAST_GRADIENT;
        loop {
            let waits = work.is_computing() && work.learner.lent.get().is_none();
            while x.is_none()
                && let Some(Ok(event)) = self.links.as_ref().map(|links| links.next(Duration::ZERO))
            {
                if let Event::Computed(input) = event {
                    x = input.into_model();
                }
            }
            if x.is_some() || !waits || Instant::now() >= until {
                break;
            }
            thread::sleep(SHORT);
        }
        let lent = || x.or_else(|| work.learner.lent.get().map(|(_, x)| x.to_vec()));
        if let Some(own) = node.salvage(lent) {
            self.observer.save(work.elapsed(), renumbered(own, &numbers));
        }
    }

    /// Saves the model of the newest checkpoint, for a run that does not continue.
    fn save_newest(&mut self) {
        let Some(Checkpoint { mut snapshot, time, computing, .. }) = self.newest.take() else {
            return;
        };
        let (rounds, traffic) = (snapshot.rounds, snapshot.traffic);
        let links = std::mem::take(&mut snapshot.links);
        let own = OwnModel { rounds, x: snapshot.into_model().into(), traffic, links };
        let own = renumbered(own, &self.members);
        self.observer.save(Elapsed { time, computing }, own);
    }
}

/// The same with the numbers of nodes in the topology of the run.
fn renumbered(mut own: OwnModel, numbers: &[NodeId]) -> OwnModel {
    for link in &mut own.links {
        link.to = numbers.get(link.to.index()).copied().unwrap_or(link.to);
    }
    own
}
