//! What must hold after every run.

use std::path::Path;

use super::{
    scenario::{Policy, Scenario},
    state::{Outcome, Ran, World},
};
use crate::{
    cluster::members::assembly::check::check_adopted,
    drive::{Ended, Membership, RunError},
    mixing::Topology,
    replay,
    run::{Summary, Whole},
    units::NodeId,
};

/// Where a node records its membership.
const MEMBERSHIP: &str = "run/checkpoints/NODE/membership.json";

/// Checks that W is symmetric with weights of at least 0, and that its rows have the sum 1.
pub(super) fn check_weights(topology: &Topology) {
    let (w, nodes) = (topology.matrix(), topology.nodes());
    for i in (0..nodes).map(NodeId::from) {
        let all = (0..nodes).map(NodeId::from);
        let row: f64 = all.clone().map(|j| w.weight(i, j)).sum();
        assert!((row - 1.0).abs() < 1e-12, "row {i} of W has the sum {row}");
        for j in all {
            let (one, other) = (w.weight(i, j), w.weight(j, i));
            assert!(one == other && one >= 0.0, "W({i}, {j}) = {one}, W({j}, {i}) = {other}");
        }
    }
}

/// Checks the membership that a machine has just recorded against those of the others.
pub(super) fn check_recorded(world: &World, machine: usize) {
    let state = &mut *world.lock();
    let nodes = state.topology.nodes();
    let recorded = |node: usize| {
        let name = &state.topology.node(node.into()).name;
        let path = MEMBERSHIP.replace("NODE", name);
        let bytes = state.machines[node].files.look(Path::new(&path));
        bytes.map_or_else(
            || Membership::all(nodes),
            |bytes| serde_json::from_slice(&bytes).expect("a whole membership"),
        )
    };
    let disks: Vec<Membership> = (0..nodes).map(recorded).collect();
    check_adopted(&state.topology, machine, &disks, &mut state.adopted);
    let Membership { members, cut, .. } = &disks[machine];
    let part = state.topology.restricted(members, cut).expect("a topology of the members");
    check_weights(&part);
}

/// Checks a run that has ended.
///
/// # Errors
/// What is wrong.
pub(super) fn check(scenario: &Scenario, ran: &Ran) -> Result<(), String> {
    let mut over: Vec<&Ended> = Vec::new();
    let mut failed = Vec::new();
    for (machine, outcome) in ran.outcomes.iter().enumerate() {
        match outcome {
            Outcome::Over(ended) => over.push(ended),
            Outcome::Failed(error) => failed.push((machine, error)),
            Outcome::Killed => return Err(format!("machine {machine} was killed last")),
            Outcome::Panicked(text) => return Err(format!("machine {machine}: {text}")),
        }
    }
    let nodes = ran.outcomes.len();
    let all = scenario.policy == Policy::Wait;
    if all && over.len() < nodes && failed.iter().any(|(machine, _)| !scenario.loses(*machine)) {
        return Err(format!("the run should end everywhere: {failed:?}"));
    }
    for (machine, error) in &failed {
        if !matches!(error, RunError::Deadline { .. } | RunError::Alone(_)) {
            return Err(format!("machine {machine}: {error}"));
        }
    }
    let Some(first) = over.first() else {
        return Err(format!("no node has ended: {failed:?}"));
    };
    // A node that has lost its files does not know that it was a member: two memberships without a
    // node in common are possible then.
    let forgets = (0..nodes).any(|machine| scenario.wipes(machine));
    for other in over.iter().filter(|other| !forgets || other.history == first.history) {
        if other.history != first.history {
            return Err(format!("two histories: {:?} and {:?}", first.history, other.history));
        }
        if bits(&other.mean) != bits(&first.mean) {
            return Err("nodes end with different means".into());
        }
    }
    // A node that was away at the end may not know of it, but has the results, or has lost them.
    let has = |machine: &usize| {
        let same = |mean: &Vec<f32>| bits(mean) == bits(&first.mean);
        ran.means[*machine].as_ref().is_some_and(same) || scenario.loses(*machine)
    };
    let with = (0..nodes).filter(has).count();
    if with <= nodes / 2 {
        return Err(format!("{with} of {nodes} nodes have the results: {failed:?}"));
    }
    if scenario.keeps_disks() && all && !first.history.is_empty() {
        return Err(format!("the run has changed: {:?}", first.history));
    }
    let whole = Whole::new(scenario.experiment()).map_err(|error| error.to_string())?;
    let summary = Summary::of_run(&whole.design, &first.records, &first.history)
        .map_err(|error| error.to_string())?;
    let again = replay::replay(&whole, &first.history).map_err(|error| error.to_string())?;
    if summary.digest != again.digest {
        return Err(format!(
            "the digest is {}, that of its history {}: {:?}",
            summary.digest, again.digest, first.history
        ));
    }
    Ok(())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
