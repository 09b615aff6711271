//! `summary.json`: the description and the results of a run. Every node of a run writes the same
//! one.

use std::{collections::BTreeMap, fs, path::Path};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{
    figures::{self, Judged},
    record::{Closing, MOST_MEASURES, Score, is_none},
};
use crate::{
    config::{ConfigError, Fault},
    drive,
    experiment::{Keep, RunVersion, Weighting},
    gossip::Traffic,
    mixing::Topology,
    run::{Design, Figures, Pooled},
    units::{NodeId, Round},
};

/// Why a run has no summary.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SummaryError {
    /// There is not one record for each node.
    #[error("{records} records of {nodes} nodes")]
    Count {
        /// How many records there are.
        records: usize,
        /// How many nodes the run has.
        nodes: usize,
    },
    /// No record can be used.
    #[error(
        "no node's record can be used{}",
        .unusable.first().map_or(String::new(), |(node, why)| format!("; of node {node}: {why}"))
    )]
    Unusable {
        /// The nodes, and what is wrong with their records.
        unusable: Vec<(NodeId, String)>,
    },
    /// The run cannot have these members.
    #[error(transparent)]
    Members(#[from] ConfigError),
}

/// The summary of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// The name of the rule, `rule.kind`.
    pub rule: String,
    /// The name of the compressor, as it names itself.
    pub compressor: String,
    /// The name that the topology gives itself.
    pub topology: String,
    /// The links of each round, unless every link is used in every round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// The number n of nodes, with those that are not members at the end.
    pub nodes: usize,
    /// The dimension d of the model.
    pub parameters: usize,
    /// How the nodes' losses are weighted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighting: Option<Weighting>,
    /// The names of the classes, if they have names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// The rounds that the run has done.
    pub rounds: u64,
    /// max(|lambda_2|, |lambda_n|) of W; for a schedule the factor per round by which a period
    /// shrinks disagreement.
    pub rho: f64,
    /// 1 - rho, the larger the faster.
    pub gap: f64,
    /// The results at the end.
    #[serde(rename = "final")]
    pub outcome: Outcome,
    /// The result of plain SGD with all rows in one place: the same rounds and schedule, a batch n
    /// times as large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pooled: Option<PooledOutcome>,
    /// Sent by all nodes together. What a node sent that is not a member at the end is known to
    /// a simulation only.
    pub bytes: TotalBytes,
    /// Seconds from the first round to the last record, of the slowest node.
    pub time_s: f64,
    /// The mean share of time in which nodes computed gradients; 0 if nothing takes time.
    #[serde(default)]
    pub computing: f64,
    /// What a reader of the figures could miss.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The rounds in which each node took part, in node order.
    pub participation: IndexMap<String, Participation>,
    /// Nodes whose records are missing or cannot be used, with the reason. They are not in
    /// `participation`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub unusable: IndexMap<String, String>,
    /// The changes of the members, and the returns of nodes without their checkpoints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Change>,
    /// Of a stage of a signed run: the versions of that run so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<RunVersion>,
    /// Nodes that are not members at the end, with the rounds in which they took part.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub away: IndexMap<String, u64>,
    /// SHA-256 of the mean of all models; empty if it was not formed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mean_digest: String,
    /// SHA-256 over the nodes' SHA-256s in node order and that of the mean; empty if one of them is
    /// not known.
    pub digest: String,
    /// SHA-256 of the simulation's events with their times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The round in which a parameter stopped being finite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diverged_at: Option<u64>,
    /// Whether it ended before its last round because the loss on validation rows had not fallen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped_early: bool,
    /// Whether the models are then those of the lowest loss.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept_best: bool,
    /// Whether it was interrupted before its last round.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// Why it could not continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The node that failed first, as far as this node knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<String>,
}

/// A change of the members of a run. All members continued from the mean of some models, and rule
/// and optimizer started from the beginning there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The rounds after which they continued.
    pub round: u64,
    /// The names of the members from then on.
    pub members: Vec<String>,
    /// Links between members that are not used, by the names of their ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<(String, String)>,
    /// The nodes whose models formed the mean; none if the run began there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
}

impl Change {
    /// The changes of a run, with the nodes' names.
    pub fn all(topology: &Topology, history: &[drive::Change]) -> Vec<Change> {
        let name = |node: &NodeId| topology.node(*node).name.clone();
        let names = |nodes: &[NodeId]| nodes.iter().map(name).collect();
        let one = |one: &drive::Change| Change {
            round: one.round.0,
            members: names(&one.members),
            cut: one.cut.iter().map(|(a, b)| (name(a), name(b))).collect(),
            models: names(&one.models),
        };
        history.iter().map(one).collect()
    }

    /// The same with the nodes' numbers.
    ///
    /// # Errors
    /// If the topology has no node of a name, or a list is not ascending.
    pub fn numbered(&self, topology: &Topology) -> Result<drive::Change, ConfigError> {
        let number = |name: &String| {
            topology.find(name).ok_or_else(|| {
                let problem = format!("`{}` has no node of this name", topology.name());
                ConfigError::new("history", format!("{name:?}"), problem)
            })
        };
        let numbers = |names: &[String]| {
            let numbers = names.iter().map(number).collect::<Result<Vec<_>, _>>()?;
            if numbers.is_sorted_by(|a, b| a < b) {
                return Ok(numbers);
            }
            let problem = "expected each name once, in the order of the topology";
            Err(ConfigError::new("history", names.join(", "), problem))
        };
        let ends = |(a, b): &(String, String)| Ok((number(a)?, number(b)?));
        Ok(drive::Change {
            id: 0,
            round: Round(self.round),
            members: numbers(&self.members)?,
            cut: self.cut.iter().map(ends).collect::<Result<_, ConfigError>>()?,
            models: numbers(&self.models)?,
        })
    }
}

/// The quality of the models at the end. Unknown values are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// f at the mean of all models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// Mean over the nodes of their own models' test accuracy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy_mean: Option<f64>,
    /// The least of these accuracies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy_min: Option<f64>,
    /// The mean model's accuracy on the test rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_accuracy_of_mean: Option<f64>,
    /// The mean model's loss on the test rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_loss_of_mean: Option<f64>,
    /// The mean model on the test rows of all nodes; rows that all nodes test on count once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<Figures>,
    /// (1/n) sum |x_i - mean|^2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consensus: Option<f64>,
    /// Measures of the program, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measures: BTreeMap<String, OwnMeasure>,
}

/// The nodes' values of one measure of the program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OwnMeasure {
    /// Mean over the nodes, each of its own model.
    pub mean: f64,
    /// The least value of a node.
    pub min: f64,
    /// The greatest value of a node.
    pub max: f64,
    /// Mean over the nodes, all of the mean model.
    pub of_mean: f64,
}

/// The result of plain SGD on the pooled rows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PooledOutcome {
    /// Mean loss over all training rows; NaN if it diverged.
    #[serde(with = "super::record::or_nan")]
    pub train_loss: f64,
    /// The share of test rows classified correctly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
}

impl From<Pooled> for PooledOutcome {
    fn from(pooled: Pooled) -> PooledOutcome {
        PooledOutcome {
            train_loss: pooled.train_loss,
            test_accuracy: pooled.test.and_then(|test| test.accuracy()),
        }
    }
}

/// Bytes sent by all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TotalBytes {
    /// Bytes of payloads, without headers.
    pub payload: u64,
    /// Envelopes, headers and payloads, before encryption.
    pub wire: u64,
    /// Bytes that dense gossip would have sent.
    pub dense: u64,
}

/// One node's part in a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Participation {
    /// Rounds that this node has done.
    pub rounds: u64,
    /// How often its program was started again.
    #[serde(default, skip_serializing_if = "is_none")]
    pub restarts: u64,
    /// The training rows of its shard.
    pub rows: u64,
    /// The training rows of each class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<u64>,
    /// Its own model on its test rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_accuracy: Option<f64>,
    /// The same with all figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<Figures>,
    /// The mean model on its test rows; left out if all nodes test on the same rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_of_mean: Option<Figures>,
    /// Payload bytes that it sent.
    pub bytes_payload: u64,
    /// With envelopes and headers, before encryption.
    #[serde(default)]
    pub bytes_wire: u64,
    /// Bytes that dense gossip would have sent.
    #[serde(default)]
    pub bytes_dense: u64,
    /// The bytes to each neighbour, in node order; empty if a node has more than 64 neighbours, or
    /// if the members of the run changed: links are counted from the last change on.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub links: IndexMap<String, LinkBytes>,
    /// SHA-256 of its model, in hexadecimal digits.
    pub digest: String,
    /// Hash of its arithmetic self-test: if nodes differ, the digest depends on which machine ran
    /// which node.
    pub arithmetic: String,
}

/// The bytes that a node sent to one neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LinkBytes {
    /// Bytes of payloads, without headers.
    pub payload: u64,
    /// Envelopes, headers and payloads, before encryption.
    pub wire: u64,
}

impl Summary {
    /// Notes that the run was interrupted. It has then not stopped by itself.
    pub fn interrupt(&mut self) {
        (self.interrupted, self.stopped_early, self.kept_best) = (true, false, false);
    }

    /// Reads the file `summary.json` of a run.
    ///
    /// # Errors
    /// If it cannot be read, or is no summary.
    pub fn read(path: &Path) -> Result<Summary, ConfigError> {
        let wrong = |problem: String| ConfigError::at("file", problem).within(path.display());
        let text = fs::read(path).map_err(|error| {
            wrong(format!("cannot be read: {error}")).with_fault(Fault::Unreadable)
        })?;
        Summary::from_json(&text)
            .map_err(|error| wrong(format!("is not the summary of a run: {error}")))
    }

    /// Reads the text of a file `summary.json`.
    ///
    /// # Errors
    /// If it is no summary.
    pub fn from_json(text: &[u8]) -> serde_json::Result<Summary> {
        serde_json::from_slice(text)
    }

    /// The text of a file `summary.json`.
    ///
    /// # Errors
    /// If a number in it has no place in JSON.
    pub fn to_json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// A summary without results, as known before a run.
    pub fn blank(design: &Design) -> Summary {
        let rate = design.schedule.rate(&design.topology);
        Summary {
            rule: design.rule_name().to_string(),
            compressor: design.compressor.name().to_string(),
            topology: design.topology.name().to_string(),
            schedule: (!design.schedule.is_static()).then(|| design.schedule.name().to_string()),
            nodes: design.topology.nodes(),
            parameters: design.parameters(),
            weighting: design.experiment.data.weighting,
            classes: design.experiment.data.classes.clone().unwrap_or_default(),
            rounds: 0,
            rho: rate.rho,
            gap: rate.gap,
            outcome: Outcome::default(),
            pooled: None,
            bytes: TotalBytes::default(),
            time_s: 0.0,
            computing: 0.0,
            warnings: design.remarks.clone(),
            participation: IndexMap::new(),
            history: Vec::new(),
            versions: design.experiment.versions.clone(),
            away: IndexMap::new(),
            unusable: IndexMap::new(),
            mean_digest: String::new(),
            digest: String::new(),
            trace: None,
            diverged_at: None,
            stopped_early: false,
            kept_best: false,
            interrupted: false,
            failure: None,
            failed_at: None,
        }
    }

    /// The summary of a run with this history of its members, from the closing records of the last
    /// ones, in their order.
    ///
    /// # Errors
    /// As [`Summary::new`], or if the run cannot have such members.
    pub fn of_run(
        design: &Design,
        records: &[Vec<u8>],
        history: &[drive::Change],
    ) -> Result<Summary, SummaryError> {
        let Some(last) = history.last() else { return Summary::new(design, records) };
        let part = design.restricted(&last.members, &last.cut)?;
        let mut summary = Summary::new(&part, records)?;
        summary.add_history(&design.topology, history);
        Ok(summary)
    }

    /// The summary from all nodes' closing records, in node order. A record that cannot be used is
    /// listed in `unusable`.
    ///
    /// # Errors
    /// If there is not one record for each node, or none can be used.
    pub fn new(design: &Design, records: &[Vec<u8>]) -> Result<Summary, SummaryError> {
        let nodes = design.topology.nodes();
        if records.len() != nodes {
            return Err(SummaryError::Count { records: records.len(), nodes });
        }
        let (mut closings, mut unusable) = (Vec::new(), Vec::new());
        for (node, bytes) in records.iter().enumerate() {
            let read = Closing::from_bytes(bytes).and_then(|closing| {
                closing.check(design)?;
                if closing.mean.is_none() {
                    Err("it has no mean model".into())
                } else {
                    Ok(closing)
                }
            });
            match read {
                Ok(closing) => closings.push((NodeId::from(node), closing)),
                Err(why) => unusable.push((NodeId::from(node), printable(&why))),
            }
        }
        let Some(mean) =
            most_common(closings.iter().filter_map(|(_, closing)| closing.mean.as_deref()))
        else {
            return Err(SummaryError::Unusable { unusable });
        };
        let mean = mean.to_string();
        closings.retain(|(node, closing)| {
            let same = closing.mean.as_ref() == Some(&mean);
            if !same {
                unusable.push((*node, "its mean model is another than most nodes have".into()));
            }
            same
        });
        unusable.sort();
        let mut summary = Summary::of(design, &closings);
        if unusable.is_empty() {
            let digests = closings.iter().map(|(_, closing)| closing.digest.as_str());
            summary.digest =
                crate::digest::of_run(digests, &mean).expect("the digests were checked");
        }
        let name = |node: NodeId| design.topology.node(node).name.clone();
        summary.unusable = unusable.into_iter().map(|(node, why)| (name(node), why)).collect();
        summary.mean_digest = mean;
        Ok(summary)
    }

    /// The summary from the records of some nodes, in node order. It has no digest.
    pub(crate) fn of(design: &Design, closings: &[(NodeId, Closing)]) -> Summary {
        let mut summary = Summary::blank(design);
        let names: Vec<&str> = (0..design.topology.nodes())
            .map(|node| design.topology.node(node.into()).name.as_str())
            .collect();
        let Judged { of_all, own, mut of_mean, warnings } = Judged::of(design, closings);
        of_mean.resize(closings.len(), None);
        for (((node, closing), test), test_of_mean) in closings.iter().zip(own).zip(of_mean) {
            let part = Participation { test, test_of_mean, ..Participation::of(closing, &names) };
            summary.add(names[node.index()], part, closing.time_s);
        }
        let all: Vec<&Closing> = closings.iter().map(|(_, closing)| closing).collect();
        summary.rounds = all.iter().map(|closing| closing.rounds).min().unwrap_or(0);
        let share = |closing: &&Closing| {
            if closing.time_s > 0.0 { closing.computing_s / closing.time_s } else { 0.0 }
        };
        summary.computing = all.iter().map(share).sum::<f64>() / all.len().max(1) as f64;
        if all.iter().any(|closing| closing.mean.is_some()) {
            let run = &design.experiment.run;
            summary.stopped_early = run.stop_early.is_some() && summary.rounds < run.rounds;
            let keeps_best = run.stop_early.as_ref().is_some_and(|stop| stop.keep == Keep::Best);
            summary.kept_best = summary.stopped_early && keeps_best;
            summary.outcome = Outcome { test: of_all, ..Outcome::of(&all, design.by_rows()) };
            summary.warnings.extend(warnings);
            summary.warnings.extend(figures::training_warning(design, summary.outcome.train_loss));
        }
        summary
    }

    /// Adds the history of the members: rounds in which a node was not a member do not count as its
    /// own, and nodes that are not members at the end are listed.
    fn add_history(&mut self, topology: &Topology, history: &[drive::Change]) {
        self.nodes = topology.nodes();
        self.history = Change::all(topology, history);
        if !history.is_empty() {
            self.participation.values_mut().for_each(|part| part.links.clear());
        }
        let all: Vec<NodeId> = (0..topology.nodes()).map(NodeId::from).collect();
        for &node in &all {
            let (mut missed, mut from, mut member) = (0, 0, true);
            for change in history {
                if !member {
                    missed += change.round.0.saturating_sub(from);
                }
                (from, member) = (change.round.0, change.members.contains(&node));
            }
            if !member {
                missed += self.rounds.saturating_sub(from);
            }
            let name = &topology.node(node).name;
            if let Some(part) = self.participation.get_mut(name) {
                part.rounds = part.rounds.saturating_sub(missed);
            } else if !member {
                self.away.insert(name.clone(), self.rounds.saturating_sub(missed));
            }
        }
    }

    /// Adds what the nodes sent that are not members at the end. `sent` has the bytes of all nodes.
    pub fn add_sent_before(&mut self, topology: &Topology, sent: &[Traffic]) {
        let away = self.away.keys().filter_map(|name| topology.find(name)).collect::<Vec<_>>();
        for traffic in away.into_iter().filter_map(|node| sent.get(node.index())) {
            self.add_bytes([traffic.payload, traffic.wire, traffic.dense]);
        }
    }

    fn add_bytes(&mut self, more: [u64; 3]) {
        let sums = [&mut self.bytes.payload, &mut self.bytes.wire, &mut self.bytes.dense];
        for (sum, more) in sums.into_iter().zip(more) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Adds what a node has done and sent.
    pub fn add(&mut self, name: &str, part: Participation, time_s: f64) {
        self.add_bytes([part.bytes_payload, part.bytes_wire, part.bytes_dense]);
        self.time_s = self.time_s.max(time_s);
        self.participation.insert(name.to_string(), part);
    }

    /// The nodes that took part in fewer rounds than these, with their rounds.
    pub fn short_of(&self, rounds: u64) -> Vec<(&str, u64)> {
        let parts = self.participation.iter().map(|(name, part)| (name.as_str(), part.rounds));
        let away = self.away.iter().map(|(name, rounds)| (name.as_str(), *rounds));
        parts.chain(away).filter(|(_, part)| *part < rounds).collect()
    }

    /// The rounds of a run that had so many: fewer if it stopped early.
    pub fn rounds_of(&self, rounds: u64) -> u64 {
        if self.stopped_early { self.rounds.min(rounds) } else { rounds }
    }

    /// Dense bytes per payload byte.
    pub fn ratio(&self) -> Option<f64> {
        (self.bytes.payload > 0).then(|| self.bytes.dense as f64 / self.bytes.payload as f64)
    }
}

/// A printable error about a record, which may repeat its bytes: no control characters, and no
/// longer than a line.
fn printable(why: &str) -> String {
    why.chars().map(|c| if c.is_control() { '?' } else { c }).take(300).collect()
}

/// The most frequent value; of several the first.
fn most_common<'a>(values: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut counts: IndexMap<&str, usize> = IndexMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

impl Outcome {
    fn of(closings: &[&Closing], by_rows: bool) -> Outcome {
        let nodes = closings.len() as f64;
        let weight = |closing: &&Closing| if by_rows { closing.rows as f64 } else { 1.0 };
        let weights: f64 = closings.iter().map(weight).sum();
        let own: Vec<f64> =
            closings.iter().filter_map(|closing| closing.test.as_ref()?.accuracy()).collect();
        let of_mean: Vec<Score> =
            closings.iter().filter_map(|closing| closing.test_of_mean).collect();
        let rows = of_mean.iter().fold(0u64, |rows, score| rows.saturating_add(score.rows));
        let correct =
            of_mean.iter().try_fold(0u64, |sum, score| Some(sum.saturating_add(score.correct?)));
        let all = own.len() == closings.len();
        Outcome {
            train_loss: Some(
                closings
                    .iter()
                    .map(|closing| weight(closing) * closing.train_loss_of_mean)
                    .sum::<f64>()
                    / weights,
            )
            .filter(|loss| !loss.is_nan()),
            test_accuracy_mean: all.then(|| own.iter().sum::<f64>() / nodes),
            test_accuracy_min: own.iter().copied().reduce(f64::min).filter(|_| all),
            test_accuracy_of_mean: correct
                .filter(|_| rows > 0)
                .map(|correct| correct as f64 / rows as f64),
            test_loss_of_mean: (rows > 0).then(|| {
                of_mean.iter().map(|score| score.loss * score.rows as f64).sum::<f64>()
                    / rows as f64
            }),
            test: None,
            consensus: Some(
                closings.iter().map(|closing| closing.distance_squared).sum::<f64>() / nodes,
            ),
            measures: own_measures(closings),
        }
    }
}

/// Every measure that at least one node has of its own model and of the mean.
fn own_measures(closings: &[&Closing]) -> BTreeMap<String, OwnMeasure> {
    let names = closings.iter().flat_map(|closing| closing.measures.keys()).take(MOST_MEASURES);
    let measure = |name: &String| {
        let own = closings.iter().filter_map(|closing| closing.measures.get(name).copied());
        let own: Vec<f64> = own.collect();
        let of_mean = closings.iter().filter_map(|closing| closing.measures_of_mean.get(name));
        let of_mean: Vec<f64> = of_mean.copied().collect();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let measure = OwnMeasure {
            mean: mean(&own),
            min: own.iter().copied().reduce(f64::min)?,
            max: own.iter().copied().reduce(f64::max)?,
            of_mean: if of_mean.is_empty() { return None } else { mean(&of_mean) },
        };
        Some((name.clone(), measure))
    };
    names.filter_map(measure).collect()
}

impl Participation {
    fn of(closing: &Closing, names: &[&str]) -> Participation {
        let link = |[to, payload, wire]: [u64; 3]| {
            let name = usize::try_from(to).ok().and_then(|to| names.get(to))?;
            Some(((*name).to_string(), LinkBytes { payload, wire }))
        };
        Participation {
            rounds: closing.rounds,
            restarts: closing.restarts,
            rows: closing.rows,
            classes: closing.classes.clone(),
            test_accuracy: closing.test.as_ref().and_then(Score::accuracy),
            test: None,
            test_of_mean: None,
            bytes_payload: closing.bytes[0],
            bytes_wire: closing.bytes[1],
            bytes_dense: closing.bytes[2],
            links: closing.links.iter().copied().filter_map(link).collect(),
            digest: closing.digest.clone(),
            arithmetic: closing.arithmetic.clone(),
        }
    }
}
