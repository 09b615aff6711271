//! The history of a run's members, as an experiment or a summary gives it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::summary::{self, Summary};
use crate::{
    config::ConfigError,
    drive::{Change, Membership},
    experiment::Selection,
    gossip::plan,
    inputs,
    mixing::Topology,
    run::{
        Design,
        checkpoint::MEMBERSHIP,
        directory::folder::{AWAY, CHECKPOINTS},
    },
    units::{NodeId, Round},
};

/// The most changes of members of a simulation: one every minute of a week.
const MOST_CHANGES: usize = 10_000;

/// The members of a run, as its directory knows them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Members {
    /// The topology of the run.
    pub topology: Topology,
    /// The membership that was adopted last.
    pub membership: Membership,
    /// Why nodes are away, by name, as the node of the directory has seen it last.
    pub reasons: BTreeMap<String, String>,
    /// The changes, if the run is over.
    pub history: Vec<summary::Change>,
}

impl Members {
    /// Reads the directory of a run, at a node or of a whole run.
    ///
    /// # Errors
    /// If it is not a run directory, or one of its files is wrong.
    pub fn load(run: &Path) -> Result<Members, ConfigError> {
        let topology = Topology::load(&run.join("topology.toml"))?;
        let mut membership = Membership::all(topology.nodes());
        let nodes = (0..topology.nodes()).map(NodeId::from);
        for name in nodes.clone().map(|node| &topology.node(node).name) {
            let path = run.join(CHECKPOINTS).join(name).join(MEMBERSHIP);
            let wrong =
                |problem: String| ConfigError::at("membership", problem).within(path.display());
            let Ok(bytes) = fs::read(&path) else { continue };
            let found: Membership =
                serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
            let ends = found.cut.iter().flat_map(|(a, b)| [a, b]);
            if found.members.iter().chain(ends).any(|node| node.index() >= topology.nodes()) {
                return Err(wrong("it names nodes that the topology does not have".into()));
            }
            if found.id > membership.id {
                membership = found;
            }
        }
        let path = run.join("summary.json");
        let wrong = |problem: String| ConfigError::at("summary", problem).within(path.display());
        let history = match fs::read(&path) {
            Ok(bytes) => {
                Summary::from_json(&bytes).map_err(|error| wrong(error.to_string()))?.history
            }
            // The run is not over.
            Err(_) => Vec::new(),
        };
        // A simulation and the parent of processes write no membership.
        if let Some(last) = history.last().filter(|_| membership.id == 0) {
            let last = last.numbered(&topology).map_err(|error| wrong(error.to_string()))?;
            (membership.members, membership.cut) = (last.members, last.cut);
        }
        // It informs people only: without it no reason is shown.
        let reasons = fs::read(run.join(AWAY)).unwrap_or_default();
        let reasons = serde_json::from_slice(&reasons).unwrap_or_default();
        Ok(Members { topology, membership, reasons, history })
    }
}

/// The history that `network.absent` asks for.
///
/// # Errors
/// If the run cannot have it.
pub(crate) fn absences(design: &Design) -> Result<Vec<Change>, ConfigError> {
    let topology = &design.topology;
    let all: Vec<NodeId> = (0..topology.nodes()).map(NodeId::from).collect();
    let mut history = Vec::new();
    let mut before = 0;
    for absent in &design.experiment.network.absent {
        let number = |name: &String| {
            topology.find(name).ok_or_else(|| {
                let problem = format!("`{}` has no node of this name", topology.name());
                ConfigError::new("network.absent", format!("{name:?}"), problem)
            })
        };
        let away = absent.nodes.iter().map(number).collect::<Result<Vec<_>, _>>()?;
        let (from, until) = (absent.from, absent.until);
        if from <= before || until <= from || until >= design.experiment.run.rounds {
            let problem = format!(
                "expected from above {before}, until above from and below run.rounds, {}",
                design.experiment.run.rounds
            );
            let value = format!("from {from} until {until}");
            return Err(ConfigError::new("network.absent", value, problem));
        }
        before = until;
        let here: Vec<NodeId> = all.iter().copied().filter(|node| !away.contains(node)).collect();
        let change = |round: u64, members: &[NodeId]| Change {
            round: Round(round),
            members: members.to_vec(),
            models: here.clone(),
            ..Change::default()
        };
        history.extend([change(from, &here), change(until, &all)]);
    }
    if !history.is_empty() {
        let named = |error: ConfigError| ConfigError::at("network.absent", error.to_string());
        check_history(design, &history).map_err(named)?;
    }
    Ok(history)
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

/// The history of a summary's run, for a repetition with this design: if its summary has the
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

/// Checks that a history fits a run.
///
/// # Errors
/// If it does not.
pub fn check_history(design: &Design, history: &[Change]) -> Result<(), ConfigError> {
    let wrong = |problem: String| Err(ConfigError::at("history", problem));
    let rounds = design.experiment.run.rounds;
    if history.len() > MOST_CHANGES {
        let count = history.len();
        return wrong(format!("{count} changes: at most {MOST_CHANGES} are accepted"));
    }
    let (mut before, mut designed) = (0, BTreeSet::new());
    let all: Vec<NodeId> = (0..design.topology.nodes()).map(NodeId::from).collect();
    let mut members = &all;
    for change in history {
        let round = change.round.0;
        if round < before || round > rounds || (round == 0) != change.models.is_empty() {
            return wrong(format!(
                "a change after round {round}: expected ascending rounds up to {rounds}, and \
                 models from round 1 on"
            ));
        }
        if designed.insert((&change.members, &change.cut)) {
            design.restricted(&change.members, &change.cut)?;
        }
        let models = &change.models;
        let has = |members: &[NodeId], node| members.binary_search(node).is_ok();
        let were = models.iter().all(|node| has(members, node) && has(&change.members, node));
        if !were || !models.is_sorted_by(|a, b| a < b) {
            return wrong(format!(
                "models of {models:?} after round {round}: expected, ascending, nodes that were \
                 members before and after it"
            ));
        }
        (before, members) = (round, &change.members);
    }
    if !history.is_empty() && !plan::can_pause(&*design.rule.plan) {
        return wrong("the members of a run with this rule cannot change".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn a_history_of_too_many_changes_is_refused_before_they_are_looked_at() {
        let experiment = Experiment::default_with(&[]).unwrap();
        let topology = Arc::new(Topology::parse("ring:3", 0).unwrap());
        let design = Design::new(experiment, topology, 4, 2).unwrap();
        let all: Vec<NodeId> = (0..3).map(NodeId).collect();
        let change = |round: u64| Change {
            round: Round(1 + round / 100),
            members: all.clone(),
            models: all.clone(),
            ..Change::default()
        };
        let history: Vec<Change> = (0..200_000).map(change).collect();
        let error = check_history(&design, &history).unwrap_err().to_string();
        assert!(error.contains("200000 changes: at most 10000 are accepted"), "{error}");
        check_history(&design, &history[..MOST_CHANGES]).unwrap();
    }
}
