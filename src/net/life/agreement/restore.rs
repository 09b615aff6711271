//! Puts a node back to a checkpoint.

use std::sync::Arc;

use crate::{
    config::ConfigError,
    drive::{Elapsed, RunError},
    gossip::OwnModel,
    mixing::Topology,
    net::{
        life::{
            observer::NodeObserver,
            rounds::companion::{Owned, lock},
        },
        link::wire::{Beginning, CheckpointId, MOST_ROUNDS, Saved},
    },
    run::{Checkpoint, Checkpoints},
    units::NodeId,
};

/// What other nodes must know of these checkpoints, and the newest of them.
///
/// # Errors
/// If all of them are of another node or run.
pub(crate) fn saved(
    node: NodeId,
    checkpoints: &Option<Checkpoints>,
) -> Result<(Saved, Option<Checkpoint>), RunError> {
    let available = checkpoints.as_ref().map(Checkpoints::available).transpose();
    let (all, newest) = available.map_err(RunError::Setup)?.unwrap_or_default();
    let kept = |&(membership, rounds): &(u64, u64)| CheckpointId { membership, rounds };
    let kept = all[all.len().saturating_sub(MOST_ROUNDS)..].iter().map(kept).collect();
    let mut saved = Saved { nodes: vec![(node, kept)], ..Saved::default() };
    if let Some(newest) = &newest {
        saved.common = CheckpointId { membership: newest.membership, rounds: newest.common };
        saved.history.clone_from(&newest.history);
    }
    Ok((saved, newest))
}

/// Says which nodes returned without their checkpoints.
pub(crate) fn report_return(at: &Beginning, topology: &Topology) {
    if at.without.is_empty() {
        return;
    }
    let name = |node: &NodeId| topology.node(*node).name.as_str();
    let names: Vec<&str> = at.without.iter().map(name).collect();
    tracing::warn!(
        "no checkpoint of round {} at {}: all nodes continue from the mean of the other nodes' \
         models, with rule and optimizer as at the beginning of a run",
        at.rounds,
        names.join(", ")
    );
}

/// Takes the checkpoint after which the run continues, which may be the newest one. Unless all
/// nodes continue from a mean, puts the learner back to it.
///
/// # Errors
/// If it cannot be used.
pub(crate) fn put_back(
    node: NodeId,
    at: &Beginning,
    checkpoints: &Option<Checkpoints>,
    newest: &mut Option<Checkpoint>,
    learner: &Owned,
) -> Result<Option<Checkpoint>, RunError> {
    let Some(checkpoints) = checkpoints.as_ref().filter(|_| at.rounds > 0) else {
        return Ok(None);
    };
    if at.without.contains(&node) {
        // It may have one of this round, of an earlier membership.
        return Ok(None);
    }
    let mut checkpoint = match newest.take_if(|newest| newest.snapshot.rounds.0 == at.rounds) {
        Some(newest) => newest,
        None => checkpoints.load(at.rounds).map_err(RunError::Setup)?,
    };
    if at.from_mean {
        return Ok(Some(checkpoint));
    }
    let (mut learner, state) = (lock(learner), std::mem::take(&mut checkpoint.learner));
    learner.prepare(&checkpoint.setup).map_err(RunError::Agreement)?;
    state.restore(|visitor| _ = learner.state(visitor)).map_err(|problem| {
        let problem = format!("of round {} does not fit the learner: {problem}", at.rounds);
        RunError::Setup(ConfigError::at("checkpoint", problem))
    })?;
    Ok(Some(checkpoint))
}

/// Saves the model of the newest checkpoint, for a run that does not continue.
pub(crate) fn save_newest(newest: Option<Checkpoint>, observer: &mut dyn NodeObserver) {
    let Some(Checkpoint { mut snapshot, time, computing, .. }) = newest else { return };
    let (rounds, traffic) = (snapshot.rounds, snapshot.traffic);
    let links = std::mem::take(&mut snapshot.links);
    let own = OwnModel { rounds, x: Arc::new(snapshot.into_model()), traffic, links };
    observer.save(Elapsed { time, computing }, own);
}
