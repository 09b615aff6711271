//! A history of members as a schedule: what a real run has decided, by the same clusters.
//!
//! A history says who continued after which round, and from whose models; not why the others were
//! absent. So a change is performed as what it leaves behind: all programs end once all members
//! have the checkpoint of its round, and those of the new members start with that checkpoint and
//! the recorded membership on their disks, as if the whole network had been started again then.

use super::{
    Story,
    machine::Machine,
    schedule::{Fault, Kind, When},
    wire::Happening,
    world::World,
};
use crate::{
    cluster::message::MOST_CHANGES,
    config::ConfigError,
    drive::{Change, Membership, Observer, RunError},
    gossip::plan,
    links::Conditions,
    run::{Whole, check_history, checkpoint::Every},
    units::{NodeId, Round, Time},
};

/// Repeats a run with this history of its members, on an ideal network. `rounds`: after so many it
/// ended, if it ended before its last one.
///
/// # Errors
/// If the run cannot have this history, or the observer ends it.
pub fn repeat(
    whole: &Whole,
    history: &[Change],
    rounds: Option<u64>,
    observer: &mut dyn Observer,
) -> Result<Story, RunError> {
    let design = &whole.design;
    check_history(design, history).map_err(RunError::Setup)?;
    if plan::is_asynchronous(&*design.rule.plan) {
        let problem = "with this rule the order of events decides how a run ends, so that its \
                       history does not repeat it; `simulate` without --history repeats a \
                       simulation";
        let error = ConfigError::new("rule.kind", design.rule_name(), problem);
        return Err(RunError::Setup(error));
    }
    let quorum = design.experiment.absence.quorum_of(design.topology.nodes());
    let is_few = |change: &&Change| (1..quorum).contains(&change.models.len());
    if let Some(few) = history.iter().find(is_few) {
        let problem = format!(
            "after round {} the mean of the models of {} nodes: a run continues from the models of \
             at least {quorum} nodes (absence.quorum)",
            few.round,
            few.models.len()
        );
        return Err(RunError::Setup(ConfigError::at("history", problem)));
    }
    if history.len() > MOST_CHANGES {
        let problem = format!("{} changes: a run records at most {MOST_CHANGES}", history.len());
        return Err(RunError::Setup(ConfigError::at("history", problem)));
    }
    let early = rounds.filter(|rounds| *rounds < design.experiment.run.rounds);
    let last = early.and_then(|rounds| Some(Round(rounds.checked_sub(1)?)));
    World::new(whole, &Conditions::ideal(), &schedule(history, last), observer).run()
}

/// The schedule of a run with this history that was asked to end after the round `last`.
fn schedule(history: &[Change], last: Option<Round>) -> Vec<Fault> {
    let change = |change: &Change| Fault {
        when: match change.models.is_empty() {
            true => When::At(Time(0)),
            false => When::Checkpoint(change.round),
        },
        length: Time(0),
        kind: Kind::Members(change.clone()),
    };
    let stop = |last| Fault { when: When::At(Time(0)), length: Time(0), kind: Kind::Stop(last) };
    history.iter().map(change).chain(last.map(stop)).collect()
}

impl World<'_> {
    /// How often programs that start now write checkpoints: in a run with a history, where the next
    /// change needs one.
    pub(super) fn every(&self) -> Every {
        match self.faults.iter().any(|fault| matches!(fault.kind, Kind::Members(_))) {
            true => Every::Once(self.by_checkpoint.last().map_or(Round(u64::MAX), |next| next.0)),
            false => Every::of(&self.whole.design),
        }
    }

    /// A member has a checkpoint of this round. Once all have it, the change that waits for it
    /// begins. Returns whether it does.
    pub(super) fn has_checkpoint(&mut self, round: u64) -> bool {
        let has = |node: &NodeId| {
            let program = self.machines[node.index()].program.as_ref();
            program.is_some_and(|program| program.checkpoints.rounds().contains(&round))
        };
        let is_next = self.by_checkpoint.last().is_some_and(|(next, _)| next.0 == round);
        if !is_next || !self.membership.members.iter().all(has) {
            return false;
        }
        if let Some((_, index)) = self.by_checkpoint.pop() {
            self.begin(index);
        }
        true
    }

    /// The members change: all programs end, and those of the new members start from what the
    /// change has left on their disks.
    pub(super) fn change(&mut self, change: &Change) {
        let Change { round, members, cut, .. } = change;
        // Also where the same members continue: some have lost their checkpoints, or had left.
        let before = std::mem::take(&mut self.membership);
        let known = [before.id].into_iter();
        self.membership = Membership::after(known, members.clone(), cut.clone());
        for node in (0..self.machines.len()).map(NodeId::from) {
            self.machines[node.index()].program = None;
            self.drop_links(node);
            let was_member = before.place(node).is_some();
            if was_member && self.membership.place(node).is_none() {
                // It has no part in the rounds that it did meanwhile.
                self.observer.resumes(node, *round);
            }
            let files = std::mem::take(&mut self.machines[node.index()].files);
            self.machines[node.index()] = Machine { files, rounds: round.0, ..Machine::default() };
            match self.leave_on_disk(node, was_member, change) {
                Ok(()) => self.post(0, Happening::Start(node)),
                Err(error) => self.ended(node, Err(error.to_string())),
            }
        }
    }

    /// Leaves on a node's disk what it has after a change: the checkpoint, if it gives its model or
    /// leaves; none, if it has lost its own. Nodes that were away have theirs from before.
    ///
    /// # Errors
    /// If a file cannot be used.
    fn leave_on_disk(
        &self,
        node: NodeId,
        was_member: bool,
        change: &Change,
    ) -> Result<(), ConfigError> {
        let machine = &self.machines[node.index()];
        let is_member = self.membership.place(node).is_some();
        if was_member && is_member && !change.models.contains(&node) {
            machine.files.wipe();
        }
        let checkpoints = machine.checkpoints(&self.whole.design, node, self.every())?;
        if was_member {
            checkpoints.retain(|round| round == change.round.0);
        }
        match is_member {
            true => checkpoints.adopt(&self.membership),
            false => Ok(()),
        }
    }
}
