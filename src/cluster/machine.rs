//! The phases of a run at one node, and how each follows from the one before.
//!
//! * Upon the first links, a start again of a neighbour, or new members: opens links, then begins
//!   the [`Rendezvous`].
//! * Upon its end: goes back to the checkpoint on which all agree, and begins the [`Rounds`].
//! * Upon their end: writes the results, then begins the [`Commit`], which ends the run. If some
//!   nodes were no members, it tells those that have returned, as a choice of members does.
//! * Upon an absence, with `absence.policy = "continue"`: opens links to all neighbours for the
//!   [`Choosing`] of members, and begins again with them.
//! * Upon a neighbour that breaks the protocol, or carries nothing: it is refused for a while, and
//!   counts as absent. With `wait` the run ends, and the neighbours get the reason.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    begin::rendezvous::Rendezvous,
    checkpoints::Checkpointing,
    commit::{Commit, Committed},
    effect::{Effect, Facts, Input, Opened, Opening, Outcome, Restored},
    event::Event,
    members::{
        ban::{Ban, Bans},
        choosing::{Before, Choice, Choosing},
        keys::{Keys, OfMembers},
        setbacks::{Setback, Setbacks},
    },
    message::{Beginning, Origin, Saved},
    part::Part,
    rounds::Rounds,
    statements::Statements,
    waiting::limits::{Limits, RESULTS_LINGER},
};
use crate::{
    drive::{Absence, Membership, RunError},
    gossip::{Failure, NodeConfig, tree::Signer},
    run::{
        Design,
        checkpoint::{Every, Written},
    },
    units::{NodeId, Round},
};

/// How long programs that are started again have for their links, if lost links have less.
const RELINK: Duration = Duration::from_secs(60);

/// What is known of a node's checkpoints.
#[derive(Clone, Debug)]
pub(crate) struct Keeps {
    pub every: Every,
    /// Rounds after which none is needed.
    pub last: Option<u64>,
    /// Whether the node has been part of this run before.
    pub used: bool,
    /// The results that it has on its disk.
    pub written: Option<Written>,
    /// The membership that it has recorded last.
    pub adopted: Option<Membership>,
}

/// The terms on which a node takes part.
#[derive(Debug)]
pub(crate) struct Terms {
    pub limits: Limits,
    /// What is known of its checkpoints, if it writes any.
    pub keeps: Option<Keeps>,
    /// Whether it goes back to a checkpoint when a neighbour's program was started again.
    pub resumes: bool,
    /// Whether it leaves only when all nodes have written their results.
    pub confirms: bool,
    /// With them it signs what it says about itself.
    pub keys: Arc<dyn Keys>,
    /// Tells this program from others of its node.
    pub program: u64,
}

/// Where a node is in the run.
enum Phase {
    /// Links are being opened for a rendezvous.
    Opening,
    /// Links are being opened for a choice of members.
    OpeningAll(Absence),
    Rendezvous(Box<Rendezvous>),
    /// Returns to a checkpoint; frames of neighbours that have started earlier wait.
    Restoring(Beginning, Vec<Event>),
    Rounds(Box<Rounds>),
    Commit(Box<Commit>),
    Choosing(Box<Choosing>),
    /// Says goodbye. `clears`: no node needs its checkpoints then.
    Closing {
        outcome: Outcome,
        clears: bool,
    },
    Over,
}

/// Where a node is in the run, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Starting,
    Choosing,
    Restoring,
    Rounds(Round),
    Ending,
}

/// The life of a run at one node.
pub(crate) struct Cluster<'a> {
    node: NodeId,
    design: &'a Design,
    terms: Terms,
    part: Part<'a>,
    phase: Phase,
    /// The configuration of the core at the first beginning, if all nodes are members.
    first: Option<NodeConfig>,
    /// That of the next one.
    config: Option<NodeConfig>,
    /// What nodes have said in this attempt, until its rounds begin.
    statements: Option<Statements>,
    bans: Bans,
    /// Whether this attempt is not the first.
    is_again: bool,
    /// Whether this attempt has resumed the run.
    resumed: bool,
    /// The results that this program, or one before it, has written.
    written: Option<Written>,
    /// Whether this program has results that all nodes may not have.
    has_results: bool,
    /// Whether these are the results of all rounds of the run.
    is_last: bool,
    /// The membership before the choice of another one.
    adopted: Membership,
    /// The choices of members so far.
    choices: u64,
    /// The neighbour of another membership that comes now, and the origin that it shows.
    visitor: Option<(NodeId, Option<Origin>)>,
    setbacks: Setbacks,
    /// How often this node was the first to go back or to choose, and what it shows now.
    origins: u64,
    origin: Origin,
    /// When the last rendezvous began.
    met: Instant,
    farewell: Farewell,
    /// Whether it looks for a neighbour because of which its model has diverged.
    guards: bool,
    /// How many rendezvous in a row have ended although all links of this node were up.
    idle: u32,
}

/// How long a node that has left a choice does not return to it because of a neighbour that has not
/// left it yet.
const SAME_CHOICE: Duration = Duration::from_secs(5);

/// How many there may be: a node between others can hold back what all must know.
const MOST_IDLE: u32 = 10;

/// How far a node is in telling those that were no members that the run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Farewell {
    /// The run is not over, or all nodes have its results.
    None,
    /// It does so once its links are closed.
    Due,
    Now,
}

impl<'a> Cluster<'a> {
    /// A node of this design, and the effects with which it begins. `config` is that of its core if
    /// all nodes are members.
    ///
    /// # Errors
    /// If the run cannot continue with the membership that the node has recorded.
    pub(crate) fn new(
        now: Instant,
        design: &'a Design,
        config: NodeConfig,
        terms: Terms,
        out: &mut Vec<Effect>,
    ) -> Result<Cluster<'a>, RunError> {
        let (node, nodes) = (config.id, design.topology.nodes());
        let recorded = terms.keeps.as_ref().and_then(|keeps| keeps.adopted.clone());
        let membership = recorded.unwrap_or_else(|| Membership::all(nodes));
        let first = membership.is_whole(nodes).then_some(config);
        let written = terms.keeps.as_ref().and_then(|keeps| keeps.written.clone());
        // It may have recorded a later membership since.
        let written = written.filter(|written| written.is_of(&membership, nodes));
        let part = Part::new(design, node, membership)?;
        let mut cluster = Cluster {
            node,
            design,
            terms,
            part,
            phase: Phase::Opening,
            first,
            config: None,
            statements: None,
            bans: Bans::default(),
            is_again: false,
            resumed: false,
            written,
            has_results: false,
            is_last: false,
            adopted: Membership::default(),
            choices: 0,
            visitor: None,
            setbacks: Setbacks::default(),
            origins: 0,
            origin: Origin::default(),
            met: now,
            farewell: Farewell::None,
            guards: false,
            idle: 0,
        };
        cluster.originate(None);
        cluster.open(now, false, out);
        Ok(cluster)
    }

    /// The members, as this node sees them.
    pub(crate) fn part(&self) -> &Part<'a> {
        &self.part
    }

    /// Whether it is in the rounds: then a tick each 100 ms is enough.
    pub(crate) fn is_in_rounds(&self) -> bool {
        matches!(self.phase, Phase::Rounds(_))
    }

    /// Where it is in the run.
    pub(crate) fn standing(&self) -> Standing {
        match &self.phase {
            Phase::Opening | Phase::Rendezvous(_) => Standing::Starting,
            _ if self.farewell == Farewell::Now => Standing::Ending,
            Phase::OpeningAll(_) | Phase::Choosing(_) => Standing::Choosing,
            Phase::Restoring(..) => Standing::Restoring,
            Phase::Rounds(rounds) => Standing::Rounds(rounds.round()),
            Phase::Commit(_) | Phase::Closing { .. } | Phase::Over => Standing::Ending,
        }
    }

    /// Takes an input, and adds what follows from it.
    pub(crate) fn handle(&mut self, now: Instant, input: Input, out: &mut Vec<Effect>) {
        self.visitor = match &input {
            Input::Event(Event::OtherMembership { peer, because }) => {
                Some((*peer, because.clone()))
            }
            _ => None,
        };
        match input {
            Input::Event(event) => self.event(now, event, out),
            Input::Core(input) => {
                if let Phase::Rounds(rounds) = &mut self.phase {
                    let fed = rounds.input(&self.part, input, out);
                    self.after_rounds(now, fed, out);
                }
            }
            Input::Tick(facts) => self.tick(now, &facts, out),
            Input::Opened(opened) => self.opened(now, opened, out),
            Input::Restored(restored) => self.restored(now, restored, out),
            Input::Recorded(recorded) => {
                if let Phase::Choosing(choosing) = &mut self.phase
                    && let Err(error) = choosing.recorded(&self.part, recorded, out)
                {
                    self.end(error, out);
                }
            }
            Input::Unwritten => {
                // Where a majority decides, it needs the results of a majority only.
                if let (Phase::Commit(commit), false) =
                    (&mut self.phase, self.terms.limits.may_continue)
                {
                    commit.lacks_results();
                }
            }
            Input::Stop => self.asked_to_leave(now, out),
            Input::Failed(error) => self.fail(now, error, out),
            Input::Panicked(reason) => {
                let round = match &self.phase {
                    Phase::Rounds(rounds) => rounds.round(),
                    _ => Round(0),
                };
                let failure = Failure::Gradient { round, reason };
                self.fail(now, RunError::Failed { node: self.part.id, failure }, out);
            }
            Input::Closed => {
                let before = std::mem::replace(&mut self.phase, Phase::Over);
                if let Phase::Closing { outcome, clears } = before {
                    // From here on a node that was started again finds its results in its files.
                    // Not before the neighbours have heard whose results are written: they may
                    // wait for that.
                    if clears {
                        out.push(Effect::Clear { folder: !self.terms.confirms });
                    }
                    match self.farewell {
                        Farewell::Due => self.say_farewell(now, out),
                        Farewell::None | Farewell::Now => out.push(Effect::End(outcome)),
                    }
                }
            }
        }
    }

    fn event(&mut self, now: Instant, event: Event, out: &mut Vec<Effect>) {
        let is_same_choice = now < self.met + SAME_CHOICE
            && matches!(&event, Event::OtherMembership { because: Some(origin), .. }
                if *origin == self.origin);
        if let Phase::Rendezvous(_) | Phase::Restoring(..) = &self.phase
            && let Some(early) = &mut self.statements
        {
            match event {
                Event::Told { from, batch } => {
                    if let Err(failure) = early.hear(from, batch) {
                        let error = RunError::Failed { node: self.part.id, failure };
                        self.not_begun(now, error, out);
                    }
                    return;
                }
                Event::Restarted { peer, .. } => early.forget(peer),
                _ => {}
            }
        }
        // One that leaves again and again must not keep the others from beginning.
        if let (Phase::Rendezvous(_), Event::Left { peer, .. }) = (&self.phase, &event)
            && self.terms.limits.may_continue
            && self.took_part()
            && let Some(times) = self.setbacks.exceed(self.part.number(*peer))
        {
            return self.give_up(now, *peer, times, out);
        }
        match &mut self.phase {
            Phase::Rendezvous(_) if is_same_choice => {}
            Phase::Rendezvous(rendezvous) => {
                if let Err(error) = rendezvous.event(&self.part, (now, event), out) {
                    self.not_begun(now, error, out);
                }
            }
            Phase::Restoring(_, early) => early.push(event),
            Phase::Rounds(rounds) => {
                let fed = rounds.event(&self.part, event, out);
                self.after_rounds(now, fed, out);
            }
            Phase::Commit(commit) => {
                let committed = commit.event(now, &self.part, event, out);
                self.after_commit(now, committed, out);
            }
            Phase::Choosing(choosing) => {
                if let Err(error) = choosing.event(now, &self.part, event, out) {
                    self.not_chosen(now, error, out);
                }
            }
            Phase::Opening | Phase::OpeningAll(_) | Phase::Closing { .. } | Phase::Over => {}
        }
    }

    fn tick(&mut self, now: Instant, facts: &Facts, out: &mut Vec<Effect>) {
        match &mut self.phase {
            Phase::Rendezvous(rendezvous) => {
                let Some(statements) = &mut self.statements else { return };
                match rendezvous.tick(now, (&self.part, statements), facts, out) {
                    Ok(None) => {}
                    Ok(Some((at, early))) => {
                        out.push(Effect::Restore { at: at.clone(), node: self.part.id });
                        self.phase = Phase::Restoring(at, early);
                    }
                    Err(error) => self.not_begun(now, error, out),
                }
            }
            Phase::Rounds(rounds) => {
                let ticked = rounds.tick(now, &self.part, facts, out);
                self.after_rounds(now, ticked, out);
            }
            Phase::Commit(commit) => {
                let committed = commit.tick(now, &self.part, facts, out);
                self.after_commit(now, committed, out);
            }
            Phase::Choosing(choosing) => {
                let chosen = choosing.tick(now, &self.part, facts, out);
                self.after_choice(now, chosen, out);
            }
            _ => {}
        }
    }

    /// This node is the first to go back or to choose; because of a neighbour, if of any, by its
    /// number in the topology of the run.
    fn originate(&mut self, about: Option<NodeId>) {
        self.origins += 1;
        let number = self.terms.program.wrapping_add(self.origins);
        let origin = Origin { node: self.node, number, about, ..Origin::default() };
        self.show(origin.signed(&*self.terms.keys));
    }

    fn show(&mut self, origin: Origin) {
        self.setbacks.shows(&origin);
        self.origin = origin;
    }

    /// Counts what a neighbour costs, which shows this origin; this node shows it in turn. Returns
    /// how often there was such a cost if it was too often.
    fn count(&mut self, number: NodeId, shown: Option<Origin>) -> Option<u32> {
        match self.setbacks.count(number, shown, &self.design.topology, &*self.terms.keys) {
            Setback::TooMany(times) => return Some(times),
            Setback::Of(Some(origin)) => self.show(origin),
            Setback::Of(None) => self.originate(Some(number)),
        }
        None
    }

    /// Opens the links of an attempt.
    fn open(&mut self, now: Instant, resets: bool, out: &mut Vec<Effect>) {
        (self.phase, self.statements) = (Phase::Opening, None);
        let (membership, because) = (self.part.membership.clone(), self.origin.clone());
        let bans = self.bans_at(now);
        out.push(Effect::Open(Opening { membership, chooses: false, resets, because, bans }));
    }

    fn bans_at(&self, now: Instant) -> Vec<(NodeId, Ban)> {
        let ban = |&peer: &NodeId| Some((peer, self.bans.of(peer, now)?));
        self.design.topology.neighbours(self.node).iter().filter_map(ban).collect()
    }

    /// Upon links that are open, or cannot be opened.
    fn opened(&mut self, now: Instant, opened: Result<Opened, RunError>, out: &mut Vec<Effect>) {
        let Opened { attempt, setup, saved, has_started, newest } = match opened {
            Ok(opened) => opened,
            Err(error) => return self.end(error, out),
        };
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::OpeningAll(absence) => {
                let before = Before {
                    adopted: std::mem::take(&mut self.adopted),
                    has_started,
                    newest,
                    results: self.written.as_ref().map(|written| written.number),
                    absence,
                    choice: self.choices,
                    is_over: self.farewell == Farewell::Now,
                };
                let choosing = Choosing::new(now, &self.part, Arc::clone(&self.terms.keys), before);
                self.phase = Phase::Choosing(Box::new(choosing));
            }
            _ => {
                let first = self.first.take();
                self.config = Some(first.unwrap_or_else(|| self.part.config(setup)));
                let keys = Arc::clone(&self.terms.keys);
                let mut statements = Statements::new(&self.part, keys, attempt);
                self.meet(now, &saved);
                statements.report(saved, self.origin.clone(), self.guards);
                self.statements = Some(statements);
            }
        }
    }

    /// Begins the rendezvous.
    fn meet(&mut self, now: Instant, saved: &Saved) {
        let limits = &self.terms.limits;
        // Nodes that were part of the run may take as long to return as lost links.
        let limit = match self.took_part() {
            _ if self.is_over() => Some(RESULTS_LINGER),
            true if limits.may_continue => limits.absence,
            true => limits.absence.map(|absence| absence.max(limits.connect.min(RELINK))),
            false => Some(limits.start.unwrap_or(limits.connect)),
        };
        (self.resumed, self.met) = (false, now);
        let waits = (limit, limits.may_continue);
        let rendezvous = Rendezvous::new(now, &self.part, saved, waits);
        self.phase = Phase::Rendezvous(Box::new(rendezvous));
    }

    /// Whether this node has been part of the run before.
    fn took_part(&self) -> bool {
        self.is_again || self.terms.keeps.as_ref().is_some_and(|keeps| keeps.used)
    }

    /// Whether this node has results of the run.
    fn is_over(&self) -> bool {
        let written = self.terms.keeps.as_ref().is_some_and(|keeps| keeps.written.is_some());
        self.has_results || self.written.is_some() || (!self.is_again && written)
    }

    /// Upon a rendezvous that has failed.
    fn not_begun(&mut self, now: Instant, error: RunError, out: &mut Vec<Effect>) {
        let Limits { may_continue, start, .. } = self.terms.limits;
        match error {
            RunError::Absent(absence) => self.join(now, absence, out),
            // The run can continue without the nodes that are absent.
            RunError::Deadline { nodes: late, text }
                if may_continue && (self.took_part() || start.is_some() || self.is_over()) =>
            {
                self.idle = if late.is_empty() { self.idle + 1 } else { 0 };
                if self.idle > MOST_IDLE {
                    return self.end(RunError::Deadline { nodes: late, text }, out);
                }
                out.push(Effect::Warn(text));
                self.join(now, Absence { late, ..Absence::default() }, out);
            }
            RunError::Failed { failure, .. } if may_continue && failure.culprit().is_some() => {
                self.has_results = false;
                self.refuse(now, failure, out);
            }
            error => {
                // A node with results keeps the model of the last round.
                if !self.has_results {
                    out.push(Effect::SaveNewest);
                }
                let outcome = match (&error, self.has_results) {
                    // The other nodes have left: all of them have their results.
                    (RunError::Deadline { .. }, true) => Some(Outcome::Results),
                    _ => None,
                };
                self.end_with(error, outcome, out);
            }
        }
    }

    /// Upon the checkpoint from which the run continues, if it continues from one.
    fn restored(
        &mut self,
        now: Instant,
        restored: Result<Option<Restored>, RunError>,
        out: &mut Vec<Effect>,
    ) {
        if !matches!(self.phase, Phase::Restoring(..)) {
            return;
        }
        let Phase::Restoring(at, early) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return;
        };
        let restored = match restored {
            Ok(restored) => restored,
            Err(error) => return self.not_begun(now, error, out),
        };
        if self.took_part() || at.rounds > 0 {
            self.resumed = true;
            out.push(Effect::Resumes(Round(at.rounds)));
        }
        if !at.without.is_empty() {
            out.push(Effect::Warn(format!(
                "no checkpoint of round {} at {}: all nodes continue from the mean of the other \
                 nodes' models, with rule and optimizer as at the beginning of a run",
                at.rounds,
                self.part.names(&at.without)
            )));
        }
        out.push(Effect::Begin { at: at.clone(), node: self.part.id });
        let saves = self.terms.keeps.as_ref().map(|keeps| {
            let when = (keeps.every, keeps.last);
            Checkpointing::new(now, when, &self.part, &at)
        });
        let mut config = self.config.take().expect("it is made when links are opened");
        config.signer = self.terms.confirms.then(|| -> Arc<dyn Signer> {
            Arc::new(OfMembers::new(&self.terms.keys, &self.part, at.attempts.clone()))
        });
        self.guards = at.guards;
        config.guards = self.guards;
        let statements = self.statements.take().expect("they are made when links are opened");
        let (limits, saves) = (self.terms.limits, (saves, statements));
        let mut rounds = Rounds::new(now, config, (at, restored), saves, limits);
        (self.has_results, self.idle) = (false, 0);
        let started = rounds.start(&self.part, early, out);
        self.phase = Phase::Rounds(Box::new(rounds));
        self.after_rounds(now, started, out);
    }

    /// Goes on after a step of the rounds.
    fn after_rounds(&mut self, now: Instant, step: Result<(), RunError>, out: &mut Vec<Effect>) {
        let Phase::Rounds(rounds) = &self.phase else { return };
        match step {
            Err(error) => self.broken_off(now, error, out),
            Ok(()) if rounds.is_finished() => self.finished(now, out),
            Ok(()) => {}
        }
    }

    /// Upon rounds that have ended early.
    fn broken_off(&mut self, now: Instant, error: RunError, out: &mut Vec<Effect>) {
        let Phase::Rounds(mut rounds) = std::mem::replace(&mut self.phase, Phase::Over) else {
            return;
        };
        let may_continue = self.terms.limits.may_continue;
        let (awaited, first) = match &error {
            RunError::Deadline { nodes, .. } => (rounds.awaited(nodes), rounds.first_awaited()),
            _ => (None, None),
        };
        let returned = rounds.returned().to_vec();
        let because = rounds.because();
        self.setbacks.after(rounds.has_advanced());
        let has_guarded = self.guards;
        self.guards &= !rounds.has_advanced();
        out.push(Effect::Salvage(rounds.into_remains(&self.part)));
        match error {
            RunError::Restarted(peer) if self.terms.resumes => {
                self.again(now, peer, because, out);
            }
            RunError::Absent(mut absence) => {
                // The choice of members awaits these nodes.
                absence.returned.extend(returned);
                self.forget_results();
                self.join(now, absence, out);
            }
            RunError::Failed { failure, .. } if may_continue && failure.culprit().is_some() => {
                self.forget_results();
                self.refuse(now, failure, out);
            }
            // A neighbour's vector may be the cause: this node goes back, and looks for it.
            RunError::Failed { failure, .. }
                if may_continue && failure.is_divergence() && !has_guarded =>
            {
                self.forget_results();
                self.look_for_cause(now, &failure, out);
            }
            // One that this node awaits itself is left out. Of others their neighbours decide.
            RunError::Deadline { text, .. } if may_continue => {
                self.forget_results();
                match awaited {
                    Some(peer) => self.ban(now, peer, text, out),
                    None => self.ask_others(now, (first, text), out),
                }
            }
            error => self.end(error, out),
        }
    }

    /// A node that has continued forms its results again.
    fn forget_results(&mut self) {
        if self.resumed {
            self.written = None;
        }
    }

    /// Upon results that are about to be written.
    fn finished(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let Phase::Rounds(rounds) = phase else { return };
        self.setbacks.after(rounds.has_advanced());
        let (done, run) = (rounds.round().0, &self.design.experiment.run);
        // The losses end a run for good. A user, or a training of its own, may continue it.
        let by_losses = self.terms.confirms && run.stop_early.is_some();
        self.is_last = by_losses || done >= run.rounds;
        self.has_results = true;
        let (written, statements) = rounds.into_results();
        self.written = written;
        match self.terms.confirms {
            true => {
                let number = self.written.as_ref().map_or(0, |written| written.number);
                let limits = self.terms.limits;
                let commit = Commit::new(now, &self.part, limits, statements, number);
                self.phase = Phase::Commit(Box::new(commit));
            }
            false => self.leave(false, true, out),
        }
    }

    /// Says goodbye at the end of the run. `all`: no node needs the checkpoints.
    fn leave(&mut self, over: bool, all: bool, out: &mut Vec<Effect>) {
        let nodes = self.design.topology.nodes();
        let is_whole = self.part.membership.members.len() == nodes;
        if over && all && self.terms.limits.may_continue && !is_whole {
            self.farewell = Farewell::Due;
        }
        out.push(Effect::Close { reason: None, over });
        self.phase = Phase::Closing { outcome: Outcome::Results, clears: self.is_last && all };
    }

    /// Goes on after a step of the commit.
    fn after_commit(&mut self, now: Instant, committed: Option<Committed>, out: &mut Vec<Effect>) {
        match committed {
            None => {}
            Some(Committed::Over) => self.leave(true, true, out),
            Some(Committed::Unknown) => self.leave(true, false, out),
            Some(Committed::Restarted(peer, because)) => self.again(now, peer, because, out),
            Some(Committed::Absent(absence)) => self.join(now, absence, out),
            Some(Committed::Refused(failure)) => self.refuse(now, failure, out),
        }
    }

    /// Upon the end of a run at which some nodes were no members: tells those that have returned.
    fn say_farewell(&mut self, now: Instant, out: &mut Vec<Effect>) {
        self.farewell = Farewell::Now;
        self.originate(None);
        self.choose(now, Absence::default(), out);
    }

    /// Begins to choose members, or joins a neighbour that does; unless one that is late, or that
    /// one, has been the cause too often.
    fn join(&mut self, now: Instant, absence: Absence, out: &mut Vec<Effect>) {
        let many = match self.visitor.take() {
            Some((peer, shown)) => {
                self.count(self.part.number(peer), shown).map(|times| (peer, times))
            }
            None => {
                let late: Vec<NodeId> = self.part.all_numbers(absence.late.clone());
                self.originate(late.first().copied());
                let times = late.iter().map(|number| self.setbacks.exceed(*number));
                let times: Vec<Option<u32>> = times.collect();
                absence.late.iter().zip(times).find_map(|(peer, times)| Some((*peer, times?)))
            }
        };
        match many {
            Some((peer, times)) => self.give_up(now, peer, times, out),
            None => self.choose(now, absence, out),
        }
    }

    /// Upon a neighbour whose program was started again: this node returns to a checkpoint.
    fn again(
        &mut self,
        now: Instant,
        peer: NodeId,
        because: Option<Origin>,
        out: &mut Vec<Effect>,
    ) {
        if let Some(times) = self.count(self.part.number(peer), because) {
            return self.give_up(now, peer, times, out);
        }
        out.push(Effect::Warn(format!(
            "node {} was started again: this node returns to the newest checkpoint that all nodes \
             have",
            self.part.name(peer)
        )));
        if !self.has_results {
            self.forget_results();
        }
        self.is_again = true;
        self.open(now, true, out);
    }

    /// Waits no longer for a neighbour that starts again and again: the run gets no further.
    fn give_up(&mut self, now: Instant, peer: NodeId, times: u32, out: &mut Vec<Effect>) {
        let text = format!(
            "node {} was started again {times} times, or has left, gone back or chosen members as \
             often, and the run got no further meanwhile",
            self.part.name(peer)
        );
        match self.terms.limits.may_continue {
            true => self.ban(now, peer, text, out),
            false => self.end(RunError::Deadline { nodes: vec![peer], text }, out),
        }
    }

    /// Refuses a neighbour that has broken the protocol, and continues without it.
    fn refuse(&mut self, now: Instant, failure: Failure, out: &mut Vec<Effect>) {
        let Some(peer) = failure.culprit() else { return };
        let reason = failure.describe(&|node| self.part.name(node).to_string());
        self.ban(now, peer, reason, out);
    }

    /// Upon a model that has diverged: the rounds since the newest common checkpoint are done
    /// again, and each vector of a neighbour is compared with how far this node's own model can
    /// have come.
    fn look_for_cause(&mut self, now: Instant, failure: &Failure, out: &mut Vec<Effect>) {
        let text = failure.describe(&|node| self.part.name(node).to_string());
        out.push(Effect::Warn(format!(
            "{text}; this node returns to the newest checkpoint that all nodes have, and looks \
             whether a neighbour is the cause"
        )));
        (self.guards, self.is_again) = (true, true);
        self.originate(None);
        self.open(now, true, out);
    }

    /// Chooses members because of a node that this one does not await itself. Its neighbour on the
    /// way to that one may have hidden that it is the cause, so it has a budget.
    fn ask_others(
        &mut self,
        now: Instant,
        (first, text): (Option<NodeId>, String),
        out: &mut Vec<Effect>,
    ) {
        out.push(Effect::Warn(text.clone()));
        let number = first.map(|first| self.part.number(first));
        match number.and_then(|number| self.setbacks.exceed(number)) {
            Some(_) => self.ban(now, first.unwrap_or_default(), text, out),
            None => {
                self.originate(number);
                self.choose(now, Absence::default(), out);
            }
        }
    }

    fn ban(&mut self, now: Instant, peer: NodeId, reason: String, out: &mut Vec<Effect>) {
        let number = self.part.number(peer);
        let seconds = self.bans.add(number, reason.clone(), now).as_secs();
        let name = self.part.name(peer);
        out.push(Effect::Warn(format!("{reason}; this node refuses node {name} for {seconds} s")));
        // Of others their neighbours decide.
        let absence = match self.part.is_member_neighbour(peer) {
            true => Absence::of(peer),
            false => Absence::default(),
        };
        self.originate(Some(number));
        self.choose(now, absence, out);
    }

    /// Begins to choose members. The absence names nodes by their numbers among the members.
    fn choose(&mut self, now: Instant, absence: Absence, out: &mut Vec<Effect>) {
        let Absence { late, returned } = absence;
        let (mut late, returned) = (self.part.all_numbers(late), self.part.all_numbers(returned));
        late.extend(self.part.unused().filter(|peer| !returned.contains(peer)));
        let all = Membership::all(self.design.topology.nodes());
        let part = Part::new(self.design, self.node, all.clone());
        let part = part.expect("the run can have all nodes as members");
        self.adopted = std::mem::replace(&mut self.part, part).membership;
        self.phase = Phase::OpeningAll(Absence { late, returned });
        self.statements = None;
        self.choices += 1;
        let (bans, because) = (self.bans_at(now), self.origin.clone());
        out.push(Effect::Open(Opening {
            membership: all,
            chooses: true,
            resets: false,
            because,
            bans,
        }));
    }

    /// Goes on after a step of the choice.
    fn after_choice(
        &mut self,
        now: Instant,
        chosen: Result<Option<Choice>, RunError>,
        out: &mut Vec<Effect>,
    ) {
        match chosen {
            Ok(None) => {}
            Ok(Some(Choice::Continue(membership))) => {
                match Part::new(self.design, self.node, membership) {
                    Ok(part) => self.part = part,
                    Err(error) => return self.end(error, out),
                }
                (self.has_results, self.written, self.is_again) = (false, None, true);
                self.open(now, true, out);
            }
            Ok(Some(Choice::Over)) => {
                if self.farewell == Farewell::None {
                    out.push(Effect::Clear { folder: false });
                }
                let outcome = match self.has_results {
                    true => Outcome::Results,
                    false => Outcome::Failed(RunError::Over),
                };
                self.phase = Phase::Over;
                out.push(Effect::End(outcome));
            }
            Err(error) => self.end(error, out),
        }
    }

    /// Upon a neighbour that broke the protocol of the choice: the choice begins again without it.
    fn not_chosen(&mut self, now: Instant, error: RunError, out: &mut Vec<Effect>) {
        let RunError::Failed { failure, .. } = error else { return self.end(error, out) };
        if self.farewell == Farewell::Now {
            return self.end(RunError::Failed { node: self.part.id, failure }, out);
        }
        let phase = std::mem::replace(&mut self.phase, Phase::Over);
        let Phase::Choosing(choosing) = phase else { return };
        let (adopted, results) = choosing.into_adopted();
        if results.is_none() {
            self.written = None;
        }
        self.refuse(now, failure, out);
        self.adopted = adopted;
    }

    /// Upon the wish of the user to leave.
    fn asked_to_leave(&mut self, now: Instant, out: &mut Vec<Effect>) {
        let error = match &self.phase {
            Phase::Rendezvous(rendezvous) => rendezvous.interrupted(),
            Phase::Choosing(choosing) => choosing.interrupted(),
            Phase::Rounds(rounds) => RunError::Interrupted(rounds.round()),
            Phase::Commit(_) if self.terms.limits.may_continue => {
                // The others may continue without it.
                let rounds = Round(self.design.experiment.run.rounds);
                return self.end(RunError::Interrupted(rounds), out);
            }
            Phase::Commit(_) => return self.leave(true, false, out),
            _ => return,
        };
        self.fail(now, error, out);
    }

    /// Upon an error of the phase.
    fn fail(&mut self, now: Instant, error: RunError, out: &mut Vec<Effect>) {
        match &self.phase {
            Phase::Rendezvous(_) | Phase::Restoring(..) => self.not_begun(now, error, out),
            Phase::Rounds(_) => self.broken_off(now, error, out),
            Phase::Commit(_) if !self.terms.limits.may_continue => self.leave(true, false, out),
            Phase::Closing { .. } | Phase::Over => {}
            _ => self.end(error, out),
        }
    }

    /// Ends with an error; the neighbours get the reason.
    fn end(&mut self, error: RunError, out: &mut Vec<Effect>) {
        self.end_with(error, None, out);
    }

    /// The same, but to the user it may be another end.
    fn end_with(&mut self, error: RunError, outcome: Option<Outcome>, out: &mut Vec<Effect>) {
        let cause = error.cause(self.part.id, self.part.topology());
        out.push(Effect::Debug(cause.text.clone()));
        out.push(Effect::Close { reason: Some(cause), over: false });
        let failed = match self.farewell {
            Farewell::Now => Outcome::Results,
            Farewell::None | Farewell::Due => Outcome::Failed(self.part.blame(error)),
        };
        self.phase = Phase::Closing { outcome: outcome.unwrap_or(failed), clears: false };
    }
}
