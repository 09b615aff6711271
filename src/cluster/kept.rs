//! What every driver of a cluster does with the checkpoints of its node.

use super::{
    Keeps, Restored,
    message::{Beginning, CheckpointId, MOST_ROUNDS, Saved, Stamp},
};
use crate::{
    config::ConfigError,
    drive::{Elapsed, Learner, RunError},
    gossip::snapshot::Snapshot,
    run::{Checkpoint, Checkpoints},
    state::State,
    units::{NodeId, Round},
};

/// How many of the oldest checkpoints a node reports in any case.
const COMMON: usize = 2;

/// What the cluster must know of these checkpoints.
///
/// # Errors
/// If the recorded membership cannot be read.
pub(crate) fn keeps(checkpoints: &Checkpoints) -> Result<Keeps, ConfigError> {
    Ok(Keeps {
        every: checkpoints.every,
        last: checkpoints.last,
        used: checkpoints.used,
        written: checkpoints.results.clone(),
        adopted: checkpoints.membership()?,
    })
}

/// What other nodes must know of these checkpoints, and the newest of them.
///
/// # Errors
/// If all of them are of another node or run.
pub(crate) fn saved(
    checkpoints: Option<&Checkpoints>,
) -> Result<(Saved, Option<Checkpoint>), RunError> {
    let available = checkpoints.map(Checkpoints::available).transpose();
    let (all, newest) = available.map_err(RunError::Setup)?.unwrap_or_default();
    let Some(of) = &newest else { return Ok((Saved::default(), None)) };
    let history = of.history.clone();
    let id = |(membership, rounds, history)| CheckpointId { membership, rounds, history };
    // One of another history is what is left of an attempt that others do not know.
    let all = all.into_iter().map(id).filter(|kept| kept.belongs_to(&history)).collect();
    let common = CheckpointId::within(of.membership, of.common, &history);
    Ok((Saved { kept: reported(all), common, history }, newest))
}

/// Those of these checkpoints, ascending, of which the others hear. While a node writes none, the
/// others retain all since the last common one: that one and the one before are the oldest.
fn reported(mut all: Vec<CheckpointId>) -> Vec<CheckpointId> {
    if all.len() > MOST_ROUNDS {
        all.drain(COMMON..all.len() - (MOST_ROUNDS - COMMON));
    }
    all
}

/// Where a node continues: its core's part of the checkpoint, its clocks, and the merged setup. If
/// the node gives no model, only the bytes in it count.
#[derive(Default)]
pub(crate) struct Place {
    pub restored: Option<Restored>,
    pub before: Elapsed,
    pub setup: Vec<u8>,
}

/// Takes the checkpoint after which the run continues, which may be the newest one. Unless all
/// nodes continue from a mean, puts the learner back to it.
///
/// # Errors
/// If it cannot be used.
pub(crate) fn put_back(
    node: NodeId,
    at: &Beginning,
    checkpoints: Option<&Checkpoints>,
    newest: Option<Checkpoint>,
    learner: &mut dyn Learner,
) -> Result<Place, RunError> {
    let Some(checkpoints) = checkpoints.filter(|_| at.rounds > 0) else {
        return Ok(Place::default());
    };
    if at.without.contains(&node) {
        return Ok(returned(node, at, checkpoints));
    }
    let newest = newest.filter(|newest| newest.snapshot.rounds.0 == at.rounds);
    let mut checkpoint = match newest {
        Some(newest) => newest,
        None => checkpoints.load(at.rounds).map_err(RunError::Setup)?,
    };
    if !at.from_mean {
        let state = std::mem::take(&mut checkpoint.learner);
        learner.prepare(&checkpoint.setup).map_err(RunError::Agreement)?;
        state.restore(|visitor| _ = learner.state(visitor)).map_err(|problem| {
            let problem = format!("of round {} does not fit the learner: {problem}", at.rounds);
            RunError::Setup(ConfigError::at("checkpoint", problem))
        })?;
    }
    let Checkpoint { snapshot, setup: merged, time, computing, .. } = checkpoint;
    let setup = if at.from_mean { Vec::new() } else { merged.clone() };
    let restored = Some(Restored { snapshot, merged });
    Ok(Place { restored, before: Elapsed { time, computing }, setup })
}

/// Where a node continues that gives no model: it has returned, or lacks the checkpoint of the
/// others. What it has sent counts, as far as it knows: until it left, or lost its checkpoints.
fn returned(node: NodeId, at: &Beginning, checkpoints: &Checkpoints) -> Place {
    let me = at.history.last().and_then(|change| change.members.get(node.index()));
    let (mut was_member, mut until) = (true, Round(at.rounds));
    for change in &at.history {
        let is_member = me.is_some_and(|me| change.members.contains(me));
        match (was_member, is_member) {
            (true, false) => until = change.round,
            (true, true) => until = Round(at.rounds),
            (false, _) => {}
        }
        was_member = is_member;
    }
    let Some(checkpoint) = checkpoints.newest_until(until.0) else { return Place::default() };
    let Checkpoint { snapshot, time, computing, .. } = checkpoint;
    let restored = Some(Restored { snapshot, merged: Vec::new() });
    Place { restored, before: Elapsed { time, computing }, setup: Vec::new() }
}

/// The rounds begin: later checkpoints belong to an attempt that no node continues with. Those of
/// before stay until all members have a new one: fewer than now may have this one soon.
///
/// Where all continue from a mean, later ones have other bits than the checkpoints that will have
/// their rounds. So none comes back once this has returned, also if the power fails.
///
/// # Errors
/// If one cannot be removed, and all continue from a mean.
pub(crate) fn begin(
    node: NodeId,
    at: &Beginning,
    checkpoints: &Checkpoints,
) -> Result<(), RunError> {
    let lacks = at.without.contains(&node);
    let kept = |saved| saved < at.rounds || (saved == at.rounds && !lacks);
    match at.from_mean {
        true => checkpoints.remove_all_but(kept).map_err(RunError::Setup)?,
        false => checkpoints.retain(kept),
    }
    checkpoints.begin();
    Ok(())
}

impl Stamp {
    /// The checkpoint of a node with this state, which has worked so long.
    pub(crate) fn checkpoint(
        self,
        snapshot: Snapshot,
        learner: State,
        setup: Vec<u8>,
        elapsed: Elapsed,
    ) -> Checkpoint {
        let Stamp { common, membership, history } = self;
        let Elapsed { time, computing } = elapsed;
        Checkpoint {
            snapshot,
            learner,
            setup,
            time,
            computing,
            common,
            membership,
            history,
            ..Checkpoint::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::checkpoint::{Every, Owner};

    /// Those after the round where the rounds begin go; those before stay, also where all continue
    /// from a mean, and where this node has nothing to give to it.
    #[test]
    fn checkpoints_of_before_stay_at_a_beginning() {
        let rounds_after = |from_mean, without: &[NodeId]| -> Vec<u64> {
            let run = tempfile::tempdir().unwrap();
            let sections = ["a".into(), "b".into(), "c".into()];
            let owner = Owner::of(("run", 1), (NodeId(0), "rome".into()), &sections);
            let all = Checkpoints::open(run.path(), Every::Rounds(1), owner, &sections).unwrap();
            for rounds in [10, 20, 30] {
                let mut checkpoint = Checkpoint::default();
                checkpoint.snapshot.rounds = Round(rounds);
                all.write(&checkpoint).unwrap();
            }
            let without = without.to_vec();
            let at = Beginning { rounds: 20, from_mean, without, ..Beginning::default() };
            begin(NodeId(0), &at, &all).unwrap();
            all.available().unwrap().0.into_iter().map(|(_, rounds, _)| rounds).collect()
        };
        assert_eq!(rounds_after(false, &[]), [10, 20]);
        assert_eq!(rounds_after(true, &[NodeId(1)]), [10, 20]);
        assert_eq!(rounds_after(true, &[NodeId(0)]), [10]);
    }

    #[test]
    fn the_last_common_checkpoint_is_reported_however_many_came_since() {
        let id = |number: u64| CheckpointId::new(7, 10 * number, &[]);
        let rounds = |count| -> Vec<u64> {
            let reported = reported((1..=count).map(id).collect());
            reported.into_iter().map(|kept| kept.rounds).collect()
        };
        assert_eq!(rounds(3), [10, 20, 30]);
        assert_eq!(rounds(64).len(), 64);
        let many = rounds(200);
        assert_eq!((many.len(), &many[..3], many[63]), (64, &[10, 20, 1390][..], 2000));
    }
}
