//! The effects of a node.

use std::sync::Arc;

use super::{
    machine::Program,
    wire::{Happening, Message},
    world::{TICK, TRIES, World},
};
use crate::{
    cluster::{
        Cluster, Effect, Facts, Input, Opened, Opening, Outcome, Restored, Terms,
        event::Event,
        kept::{self, Place},
        members::{assembly::News, keys::Named},
        message::{Beginning, Stamp},
        statements::{Retained, next_attempt},
        waiting::{
            limits::Limits,
            pace::{Alive, Pace, Paces},
        },
    },
    drive::{self, Change, Conclusion, Ended, Learner, Membership, RunError},
    experiment::Policy,
    gossip::{self, Cause, UpdatePart, snapshot::Snapshot, tree::Readers},
    links::ComputeModel,
    run::checkpoint::Every,
    state::State,
    status::{self, Board, Record},
    units::{NodeId, Round, Time},
};

/// How often a program says what it does.
const SAYS: u64 = 1_000_000_000;

/// How long a node says goodbye: with a reason, and without one at the most.
const GOODBYE: u64 = 300_000_000;
const PARTING: u64 = 5_000_000_000;

/// How long a disk takes to write a checkpoint, and how many may wait for it.
const WRITE: u64 = 2_000_000;
const WRITES: usize = 2;

impl World<'_> {
    /// A machine starts its program.
    pub(super) fn start(&mut self, node: NodeId) {
        let (every, is_member) = (self.every(), self.membership.place(node).is_some());
        let machine = &mut self.machines[node.index()];
        if !is_member
            || machine.down > 0
            || machine.program.is_some()
            || machine.ended == Some(Ok(()))
        {
            return;
        }
        let whole = self.whole;
        let design = &whole.design;
        let opened = machine.checkpoints(design, node, every);
        let kept = opened.and_then(|opened| Ok((kept::keeps(&opened)?, opened)));
        let complete = machine.results.is_some();
        machine.starts += 1;
        let again = machine.starts > 1;
        let (keeps, checkpoints) = match kept {
            // It has its results, and all others have theirs.
            Ok((_, kept)) if complete && kept.is_empty() => return self.ended(node, Ok(())),
            Ok(kept) => kept,
            Err(error) => return self.ended(node, Err(error.to_string())),
        };
        if again {
            self.restarts += 1;
            self.note(Some(node), "its program starts again".into());
        }
        let mut learner: Box<dyn Learner> = Box::new(whole.learner(node));
        let config = design.node(node, learner.setup(), Readers::Everyone);
        let mut initial = State::default();
        learner.state(&mut initial);
        let limits = Limits::of(&design.experiment);
        let keys = Arc::new(Named(node));
        let board = Board::new(node, design.topology.nodes(), keys.clone());
        let keeps = Some(keeps);
        let (resumes, confirms, program) = (true, true, self.id());
        let terms = Terms { limits, keeps, resumes, confirms, keys, program };
        let mut effects = Vec::new();
        let cluster = Cluster::new(self.instant(), design, config, terms, &mut effects);
        let cluster = match cluster {
            Ok(cluster) => cluster,
            Err(error) => return self.ended(node, Err(error.describe(&design.topology))),
        };
        let (now, number) = (self.now(), self.id());
        let program = Program::new(cluster, learner, checkpoints, board, now, number);
        let program = Program { complete, initial, ..program };
        self.machines[node.index()].program = Some(program);
        self.perform_all(node, effects);
        self.post(TICK, Happening::Tick { machine: node, program: number });
    }

    /// A program gets a tick.
    pub(super) fn tick(&mut self, node: NodeId, number: u64) {
        let is_it = |program: &Program<'_>| program.number == number;
        if !self.machines[node.index()].program.as_ref().is_some_and(is_it) {
            return;
        }
        self.post(TICK, Happening::Tick { machine: node, program: number });
        if self.now().0 % SAYS < TICK {
            self.say_record(node);
        }
        #[cfg(test)]
        self.hostile_tick(node);
        self.tick_now(node);
    }

    /// A program says what it does, and passes on what it has heard.
    fn say_record(&mut self, node: NodeId) {
        #[cfg(test)]
        if self.is_mute {
            return;
        }
        let (now, round) = (self.instant(), self.machines[node.index()].rounds);
        let Some(program) = &self.machines[node.index()].program else { return };
        let doing = if program.begun { status::State::Computing } else { Default::default() };
        let waits_for = program.waits_for.clone();
        program.board.say(now, Record { state: doing, round, waits_for, ..Record::default() });
        for (wire, side) in self.wires_of(node) {
            let Some(program) = &self.machines[node.index()].program else { return };
            let end = &mut self.wires[wire].sides[side];
            if end.up {
                let news = program.board.news(now, &mut end.told_records);
                self.say(wire, side, Message::Records(news));
            }
        }
    }

    fn tick_now(&mut self, node: NodeId) {
        if let Some(facts) = self.facts(node) {
            self.feed(node, Input::Tick(Box::new(facts)));
        }
        self.try_to_close(node);
    }

    /// What a program knows of its links and of the others.
    fn facts(&self, node: NodeId) -> Option<Facts> {
        let program = self.machines[node.index()].program.as_ref()?;
        let (part, now) = (program.cluster.part(), self.instant());
        let mut facts = Facts::new(now);
        for peer in &part.neighbours {
            let wire = self.wire_between(node, peer.number);
            let end = &self.wires[wire].sides[self.wires[wire].side(node)];
            match (end.up, peer.unused) {
                (true, _) => {}
                (false, false) => facts.missing.push((peer.node, end.problem.clone())),
                (false, true) => facts.away.push((peer.node, end.problem.clone())),
            }
        }
        (facts.bytes, facts.acted) = (program.bytes, self.at(program.acted));
        let mut paces = Paces::default();
        for (place, number) in part.numbers.iter().enumerate() {
            let Some(other) = &self.machines[number.index()].program else { continue };
            let place = NodeId::from(place);
            let local = |node: &NodeId| {
                part.numbers.iter().position(|number| number == node).map(NodeId::from)
            };
            let waits_for = other.waits_for.iter().filter_map(local).collect();
            paces.set(place, Pace { waits_for, waiting: other.share });
            let lost = self
                .wires_of(*number)
                .iter()
                .any(|&(wire, side)| self.wires[wire].sides[side].lost.is_some());
            if *number != node && (other.computing || lost) {
                let alive = Alive { node: place, when: now, absent: lost && !other.computing };
                facts.at_work = Some(alive);
                facts.heard.insert(place, alive);
            }
        }
        facts.paces = paces;
        facts.computing = program.computing;
        Some(facts)
    }

    /// Passes an input to a program, and performs what follows.
    pub(super) fn feed(&mut self, node: NodeId, input: Input) {
        let now = self.now();
        let acts = !matches!(input, Input::Tick(_));
        let Some(program) = &mut self.machines[node.index()].program else { return };
        program.inputs.push_back(input);
        self.perform_all(node, Vec::new());
        if acts && let Some(program) = &mut self.machines[node.index()].program {
            program.acted = now;
            // Before the rounds it looks again after each event.
            if !program.cluster.is_in_rounds() {
                self.tick_now(node);
            }
        }
    }

    fn perform_all(&mut self, node: NodeId, mut effects: Vec<Effect>) {
        loop {
            for effect in effects.drain(..) {
                self.perform(node, effect);
            }
            let now = self.instant();
            let Some(program) = &mut self.machines[node.index()].program else { return };
            if program.blocked {
                return;
            }
            let Some(input) = program.inputs.pop_front() else { return };
            program.cluster.handle(now, input, &mut effects);
        }
    }

    fn reply(&mut self, node: NodeId, input: Input) {
        if let Some(program) = &mut self.machines[node.index()].program {
            program.inputs.push_back(input);
        }
    }

    fn perform(&mut self, node: NodeId, effect: Effect) {
        match effect {
            Effect::Core(effect) => self.perform_core(node, effect),
            Effect::Open(opening) => {
                let opened = self.open(node, &opening);
                self.reply(node, Input::Opened(opened));
            }
            Effect::SendNews { to, news } => self.send_news(node, to, news),
            Effect::Tell(statements) => self.tell_all(node, statements),
            Effect::Pace { waits_for, share } => {
                if let Some(program) = &mut self.machines[node.index()].program {
                    program.waits_for =
                        waits_for.iter().map(|other| program.number(*other)).collect();
                    program.share = share;
                }
            }
            Effect::Restore { at, node: place } => {
                let restored = self.restore(node, &at, place);
                self.reply(node, Input::Restored(restored));
            }
            Effect::Begin { at, node: place } => self.begin_rounds(node, &at, place),
            Effect::Write { snapshot, stamp } => self.write_checkpoint(node, *snapshot, stamp),
            Effect::Retain(rounds) => {
                #[cfg(test)]
                let before = self.on_disk(node);
                if let Some(program) = &self.machines[node.index()].program {
                    program.checkpoints.retain(|saved| saved >= rounds);
                }
                #[cfg(test)]
                self.check_removed(node, &before, None);
            }
            Effect::Record(membership) => self.record(node, &membership),
            Effect::Results { records, history } => self.write_results(node, records, history),
            Effect::Clear { folder } => {
                #[cfg(test)]
                self.check_over(node);
                self.write_all(node);
                if let Some(program) = &self.machines[node.index()].program {
                    match folder {
                        true => program.checkpoints.remove(),
                        false => program.checkpoints.retain(|_| false),
                    }
                }
            }
            Effect::Close { reason, .. } => self.say_goodbye(node, reason),
            Effect::End(outcome) => self.finish(node, outcome),
            Effect::Salvage(_) => self.stop_computing(node),
            Effect::Warn(text) => self.note(Some(node), text),
            Effect::Resumes(rounds) => self.resume(node, rounds),
            Effect::SaveNewest
            | Effect::Info(_)
            | Effect::Debug(_)
            | Effect::Linked { .. }
            | Effect::LinkLost { .. }
            | Effect::Waits(_)
            | Effect::Away(_) => {}
        }
    }

    /// Tells the neighbours what a node and others have said.
    fn tell_all(&mut self, node: NodeId, statements: Retained) {
        #[cfg(test)]
        self.check_told(node, &statements);
        if let Some(program) = &mut self.machines[node.index()].program {
            program.statements = statements;
        }
        for (wire, side) in self.wires_of(node) {
            self.pass_on(wire, side);
        }
    }

    fn write_results(&mut self, node: NodeId, records: Vec<Vec<u8>>, history: Vec<Change>) {
        let machine = &mut self.machines[node.index()];
        let Some(program) = &mut machine.program else { return };
        let model = Arc::unwrap_or_clone(std::mem::take(&mut program.model));
        let (mean, traffic) = (std::mem::take(&mut program.mean), program.traffic);
        match machine.files.is_full() {
            true => program.inputs.push_back(Input::Unwritten),
            false => machine.results = Some(Ended { model, mean, records, traffic, history }),
        }
        #[cfg(test)]
        self.check_results(node);
    }

    fn resume(&mut self, node: NodeId, rounds: Round) {
        let machine = &mut self.machines[node.index()];
        if let Some(program) = &mut machine.program {
            program.resumed = true;
        }
        // As a real node removes its summary: it is that of another end.
        machine.results = None;
        self.observer.resumes(node, rounds);
        self.repeated += machine.rounds.saturating_sub(rounds.0);
        machine.rounds = rounds.0;
    }

    pub(super) fn stop_computing(&mut self, node: NodeId) {
        if let Some(program) = &mut self.machines[node.index()].program {
            program.computing = false;
        }
    }

    fn perform_core(&mut self, node: NodeId, effect: gossip::Effect) {
        let now = self.now();
        let machine = &mut self.machines[node.index()];
        let Some(program) = &mut machine.program else { return };
        match effect {
            gossip::Effect::Send { to, frame } => {
                let to = program.number(to);
                self.send(node, to, frame);
            }
            gossip::Effect::Recycle { from, .. } => {
                let from = program.number(from);
                let wire = self.wire_between(node, from);
                let side = self.wires[wire].side(node);
                self.wires[wire].sides[side].held = false;
                self.read(wire, side);
            }
            gossip::Effect::Compute { round, x, update, parts, overlaps: _ } => {
                self.compute(node, round, (x, update), parts);
            }
            gossip::Effect::Prepared(merged) => match program.learner.prepare(&merged) {
                Ok(()) => program.setup = merged,
                Err(error) => {
                    program.inputs.push_front(Input::Failed(RunError::Agreement(error)));
                }
            },
            gossip::Effect::RoundDone(done) => {
                program.traffic = done.traffic;
                let elapsed = program.elapsed(now);
                self.observer.round(node, elapsed, done);
                machine.rounds += 1;
                let rounds = machine.rounds;
                self.moved = now;
                self.stop_if_due(node);
                self.reached(rounds);
            }
            gossip::Effect::Save(mut own) => {
                for link in &mut own.links {
                    link.to = program.number(link.to);
                }
                self.observer.save(node, program.elapsed(now), &own);
            }
            gossip::Effect::Conclude { own, mean } => {
                program.traffic = own.traffic;
                self.observer.mean(&mean);
                let conclusion = Conclusion::new(&own, &mean, program.elapsed(now));
                let record = program.learner.conclude(&conclusion);
                (program.model, program.mean) = (own.x, mean);
                program.inputs.push_back(Input::Core(gossip::Input::Record(record)));
            }
            gossip::Effect::Shared { .. }
            | gossip::Effect::Initial { .. }
            | gossip::Effect::Snapshot(_)
            | gossip::Effect::Finished(_)
            | gossip::Effect::Failed(_) => unreachable!("the cluster handles these"),
        }
    }

    /// Computes a gradient, which takes a while.
    fn compute(
        &mut self,
        node: NodeId,
        round: Round,
        (x, update): (Vec<f32>, Vec<f32>),
        parts: Vec<UpdatePart>,
    ) {
        let slow = 1.0 + self.machines[node.index()].slow;
        let time = self.conditions.compute_time(self.machines.len(), node, round) as f64 * slow;
        let time = time as u64;
        let Some(program) = &mut self.machines[node.index()].program else { return };
        let starts: Vec<usize> = parts.iter().map(|part| part.start).collect();
        let (d, generation) = (x.len(), program.incarnation);
        let mut inputs = Vec::new();
        let mut hand = |input| inputs.push(input);
        drive::compute(&mut *program.learner, round, x, update, parts, &mut hand);
        program.computing = true;
        program.spent.0 += time;
        for input in inputs {
            let after = match &input {
                gossip::Input::Part { part, .. } => {
                    ComputeModel::until_part(time, d, starts[usize::from(*part)])
                }
                _ => time,
            };
            let input = Input::Event(Event::Computed(input));
            self.post(after, Happening::Input { machine: node, generation, input });
        }
    }

    /// Opens links, in place of those that are open.
    fn open(&mut self, node: NodeId, opening: &Opening) -> Result<Opened, RunError> {
        #[cfg(test)]
        self.check_opens(node, opening);
        self.drop_links(node);
        self.write_all(node);
        let (incarnation, now) = (self.id(), self.now());
        let machine = &mut self.machines[node.index()];
        let Some(program) = &mut machine.program else { return Ok(Opened::default()) };
        (program.incarnation, program.chooses) = (incarnation, opening.chooses);
        program.numbers.clone_from(&opening.membership.members);
        (program.because, program.closing) = (Some(opening.because.clone()), None);
        program.statements = Retained::default();
        program.bans.clone_from(&opening.bans);
        (program.begun, program.computing) = (false, false);
        (program.bytes, program.waits_for, program.share) = (0, Vec::new(), None);
        if opening.resets {
            let learner = &mut program.learner;
            let _ = program.initial.clone().restore(|visitor| _ = learner.state(visitor));
        }
        let kept = &program.checkpoints;
        if opening.chooses {
            let (has_started, newest) = (kept.has_started(), kept.newest());
            return Ok(Opened { has_started, newest, ..Opened::default() });
        }
        let all = program.cluster.part().whole.topology.nodes();
        let needs_setup = opening.resets || !opening.membership.is_whole(all);
        let setup = needs_setup.then(|| program.learner.setup()).flatten();
        let (saved, _) = kept::saved(Some(kept))?;
        program.attempt = next_attempt(program.attempt, now.0 / 1_000_000, incarnation);
        Ok(Opened { attempt: program.attempt, setup, saved, ..Opened::default() })
    }

    fn send_news(&mut self, node: NodeId, to: NodeId, news: News) {
        let Some(program) = &self.machines[node.index()].program else { return };
        let to = program.number(to);
        let wire = self.wire_between(node, to);
        let side = self.wires[wire].side(node);
        if self.wires[wire].sides[side].up {
            self.say(wire, side, Message::Chooses(news));
        }
    }

    /// Goes back to a checkpoint.
    fn restore(
        &mut self,
        node: NodeId,
        at: &Beginning,
        place: NodeId,
    ) -> Result<Option<Restored>, RunError> {
        let machine = &mut self.machines[node.index()];
        let Some(program) = &mut machine.program else { return Ok(None) };
        program.begun = true;
        let kept = Some(&program.checkpoints);
        let Place { restored, before, setup } =
            kept::put_back(place, at, kept, None, &mut *program.learner)?;
        (program.before, program.setup) = (before.time, setup);
        if restored.is_some() {
            program.spent = before.computing;
        }
        Ok(restored)
    }

    /// The rounds begin.
    fn begin_rounds(&mut self, node: NodeId, at: &Beginning, place: NodeId) {
        let now = self.now();
        #[cfg(test)]
        let before = self.on_disk(node);
        #[cfg(test)]
        self.check_begins(node, at);
        let Some(program) = &mut self.machines[node.index()].program else { return };
        if let Err(error) = kept::begin(place, at, &program.checkpoints) {
            program.inputs.push_front(Input::Failed(error));
        }
        program.started = now;
        #[cfg(test)]
        self.check_removed(node, &before, Some(at));
        self.stop_if_due(node);
    }

    /// Asks a node to end the run, if the next round is the last that the user wants. If losses end
    /// it in the round before, they have done so by now, and the model of the lowest counts.
    fn stop_if_due(&mut self, node: NodeId) {
        let machine = &mut self.machines[node.index()];
        let last = self.last.filter(|last| last.0 <= machine.rounds);
        if let (Some(last), Some(program)) = (last, &mut machine.program) {
            program.inputs.push_back(Input::Core(gossip::Input::StopAfter(last)));
        }
    }

    /// Records a membership.
    fn record(&mut self, node: NodeId, membership: &Membership) {
        let Some(program) = &mut self.machines[node.index()].program else { return };
        let recorded = program.checkpoints.adopt(membership).map_err(RunError::Setup);
        #[cfg(test)]
        let is_recorded = recorded.is_ok();
        program.inputs.push_back(Input::Recorded(recorded));
        #[cfg(test)]
        if is_recorded {
            self.check_recorded(node);
        }
    }

    /// Begins to write a checkpoint. As a real node, a program whose third one is due waits.
    fn write_checkpoint(&mut self, node: NodeId, snapshot: Snapshot, stamp: Stamp) {
        let now = self.now();
        let machine = &mut self.machines[node.index()];
        let Some(program) = &mut machine.program else { return };
        if let Every::Time(_) = program.checkpoints.every
            && program.writes.len() >= WRITES
        {
            let text = format!("no checkpoint of round {}: the disk is too slow", snapshot.rounds);
            return self.note(Some(node), text);
        }
        let mut learner = State::default();
        program.learner.state(&mut learner);
        let (elapsed, setup) = (program.elapsed(now), program.setup.clone());
        let checkpoint = stamp.checkpoint(snapshot, learner, setup, elapsed);
        program.writes.push_back(checkpoint);
        program.blocked = program.writes.len() > WRITES;
        // Where a change waits for it, no round passes meanwhile.
        let takes = match program.checkpoints.every {
            Every::Once(_) => 0,
            _ => WRITE + machine.slow_disk,
        };
        program.written = Time(program.written.max(now).0 + takes);
        let (when, generation) = (program.written, program.incarnation);
        self.post_at(when, Happening::Written { machine: node, generation });
    }

    /// A checkpoint is written, if it still was to be.
    pub(super) fn written(&mut self, node: NodeId) {
        let Some(program) = &mut self.machines[node.index()].program else { return };
        let Some(checkpoint) = program.writes.pop_front() else { return };
        let rounds = checkpoint.snapshot.rounds.0;
        program.blocked = false;
        let written = program.checkpoints.write(&checkpoint);
        #[cfg(test)]
        if written.is_ok() {
            self.check_written(node, (checkpoint.membership, rounds));
        }
        match written {
            Ok(()) if self.has_checkpoint(rounds) => {}
            Ok(()) => self.feed(node, Input::Event(Event::Durable(rounds))),
            Err(_) => {
                self.note(Some(node), format!("no checkpoint of round {rounds}: the disk is full"));
                self.perform_all(node, Vec::new());
            }
        }
    }

    /// Writes all that was to be written, before links are opened or files removed.
    fn write_all(&mut self, node: NodeId) {
        let Some(program) = &mut self.machines[node.index()].program else { return };
        program.blocked = false;
        for checkpoint in std::mem::take(&mut program.writes) {
            let Some(program) = &self.machines[node.index()].program else { return };
            let written = program.checkpoints.write(&checkpoint);
            #[cfg(test)]
            if written.is_ok() {
                self.check_written(node, (checkpoint.membership, checkpoint.snapshot.rounds.0));
            }
            drop(written);
        }
    }

    /// A node says goodbye once its neighbours have all its frames.
    fn say_goodbye(&mut self, node: NodeId, reason: Option<Cause>) {
        let now = self.now();
        let early = reason.is_some();
        let within = if early { GOODBYE } else { PARTING };
        let Some(program) = &mut self.machines[node.index()].program else { return };
        let (until, generation) = (Time(now.0 + within), program.incarnation);
        program.closing = Some((until, early));
        self.post_at(until, Happening::Closed { machine: node, generation });
        if early {
            for (wire, side) in self.wires_of(node) {
                if self.wires[wire].sides[side].up {
                    self.say(wire, side, Message::Goodbye(reason.clone()));
                }
            }
        }
        self.try_to_close(node);
    }

    /// Says what is left to say at the end of a run, and closes when all is said.
    fn try_to_close(&mut self, node: NodeId) {
        let Some(program) = &self.machines[node.index()].program else { return };
        let Some((_, false)) = program.closing else { return };
        let mut waits = false;
        for (wire, side) in self.wires_of(node) {
            let end = &mut self.wires[wire].sides[side];
            if !end.up || end.over {
                continue;
            }
            if end.outbox.is_empty() && !std::mem::replace(&mut end.told_goodbye, true) {
                self.say(wire, side, Message::Goodbye(None));
            }
            let end = &self.wires[wire].sides[side];
            waits |= !(end.told_goodbye && end.goodbye);
        }
        if !waits {
            self.feed_closed(node);
        }
    }

    fn feed_closed(&mut self, node: NodeId) {
        if let Some(program) = &mut self.machines[node.index()].program {
            program.closing = Some((Time(0), true));
            program.inputs.push_back(Input::Closed);
            self.perform_all(node, Vec::new());
        }
    }

    /// A program ends.
    fn finish(&mut self, node: NodeId, outcome: Outcome) {
        let design = &self.whole.design;
        let may_continue = design.experiment.absence.policy == Policy::Continue;
        #[cfg(test)]
        self.check_ends(node, &outcome);
        let Some(program) = &self.machines[node.index()].program else { return };
        let outcome = match outcome {
            Outcome::Results if self.machines[node.index()].results.is_some() => Ok(()),
            Outcome::Results => {
                // Somebody has to make room before it is of use to start it again.
                self.machines[node.index()].tries = TRIES;
                Err("the results cannot be written: the disk is full".into())
            }
            Outcome::Failed(error)
                if program.complete && error.confirms(program.resumed, may_continue) =>
            {
                program.checkpoints.retain(|_| false);
                Ok(())
            }
            Outcome::Failed(error) => Err(error.describe(&design.topology)),
        };
        self.ended(node, outcome);
    }
}
