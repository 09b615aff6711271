//! A history of members as a schedule: what a real run has decided, by the same clusters.
//!
//! A history says who continued after which round, and from whose models; not why the others were
//! absent. So a change is performed as what it leaves behind: all programs end once all members
//! have the checkpoint of its round, and those of the new members start with that checkpoint and
//! the recorded membership on their disks, as if the whole network had been started again then.

use std::path::{Path, PathBuf};

use super::{
    Story,
    machine::Machine,
    schedule::{Fault, Kind, When},
    wire::Happening,
    world::{TRIES, World},
};
use crate::{
    cluster::message::MOST_CHANGES,
    config::ConfigError,
    drive::{Change, Membership, Observer, RunError},
    experiment::Selection,
    gossip::plan,
    inputs,
    links::Conditions,
    mixing::Topology,
    run::{Design, Summary, Whole, check_history, checkpoint::Every},
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
    // The nodes are asked in the round before: if losses end the run there, they have done it by
    // then, and the model of the lowest counts.
    let stop = last.map(|last| Fault {
        when: When::Round(last.0),
        length: Time(0),
        kind: Kind::Stop(last),
    });
    history.iter().map(change).chain(stop).collect()
}

/// The file of the experiment of a run that is to be repeated: the one that is selected or, if
/// nothing is, the one beside the run's summary.
///
/// # Errors
/// If none is there, or it is that of one node, which has only its own rows.
pub fn experiment_of(
    selection: &Selection,
    summary: &Path,
) -> Result<Option<PathBuf>, ConfigError> {
    inputs::note(summary);
    if *selection != Selection::default() {
        return Ok(selection.experiment.clone());
    }
    let beside = summary.with_file_name("experiment.toml");
    let wrong = |why: &str| {
        let problem = format!("{why}: name the experiment of all nodes, as for a first run");
        Err(ConfigError::new("history", summary.display(), problem))
    };
    if !beside.is_file() {
        return wrong("no experiment.toml is beside this summary");
    }
    let is_of_one = Topology::load(&summary.with_file_name("topology.toml")).is_ok_and(|all| {
        let model = |node: usize| format!("model-{}.safetensors", all.node(node.into()).name);
        let has = |node: &usize| summary.with_file_name(model(*node)).exists();
        all.nodes() > 1 && (0..all.nodes()).filter(has).count() == 1
    });
    if is_of_one {
        return wrong("the experiment.toml beside this summary is that of one node");
    }
    Ok(Some(beside))
}

/// The history of a summary's run, for [`repeat`] with this design. If the summary of that has the
/// same digest, the run could be repeated.
///
/// # Errors
/// If it names nodes that the topology does not have, or does not fit the run.
pub fn history_of(summary: &Summary, design: &Design) -> Result<Vec<Change>, ConfigError> {
    let changes = summary.history.iter().map(|one| one.numbered(&design.topology));
    let history: Vec<Change> = changes.collect::<Result<_, _>>()?;
    check_history(design, &history)?;
    Ok(history)
}

/// What differs in the summary of a repeated run from the one in this file, in words; `None` if
/// both have the same digest.
pub fn difference(repeated: &Summary, expected: &Summary, file: &Path) -> Option<String> {
    (repeated.digest != expected.digest).then(|| {
        format!(
            "the repeated run ends with the digest {}, that in {} is {}",
            repeated.digest,
            file.display(),
            expected.digest
        )
    })
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
            program.is_some_and(|program| program.checkpoints.newest() == round)
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
            let is_left = self.leave_on_disk(node, was_member, change);
            let ended = match self.membership.place(node) {
                Some(_) => is_left.map_err(|error| error.to_string()),
                None => Err("it is not a member".into()),
            };
            match ended {
                Ok(()) => self.post(0, Happening::Start(node)),
                ended => {
                    let machine = &mut self.machines[node.index()];
                    (machine.ended, machine.tries) = (Some(ended), TRIES);
                }
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
