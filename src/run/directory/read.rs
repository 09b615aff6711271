//! Reads run directories: the experiment, the measurements and the result of a run.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
};

use super::metrics::Metric;
use crate::{
    config::{ConfigError, Fault},
    drive::Change,
    experiment::Experiment,
    inputs,
    mixing::Topology,
    run::Summary,
    units::NodeId,
};

/// A run, read from its directory.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name in comparisons with other runs.
    pub name: String,
    /// The run directory that was read.
    pub path: PathBuf,
    /// The experiment with all its defaults.
    pub experiment: Experiment,
    /// Every key of it and its value as TOML, in the order of the file.
    pub settings: Vec<(String, String)>,
    /// The links of the run with their weights.
    pub topology: Topology,
    /// The summary; `None` while the run continues, or if it was killed.
    pub summary: Option<Summary>,
    /// Its evaluations, by ascending round.
    pub points: Vec<Point>,
    /// Evaluations with lines missing from some nodes; they are not among the points.
    pub partial: usize,
    /// The last line of each node that wrote any.
    pub last: BTreeMap<u32, Metric>,
}

/// One evaluation: the lines of all nodes for one round.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The rounds done at this evaluation.
    pub round: u64,
    /// Seconds since the start, of the slowest node; virtual time in a simulation.
    pub time_s: f64,
    /// f at the mean of all models; if no process has all nodes, the losses over their last
    /// batches.
    pub train_loss: Option<Span>,
    /// The losses of the nodes' own models on their test rows.
    pub test_loss: Option<Span>,
    /// The shares of their test rows that these classify correctly.
    pub test_accuracy: Option<Span>,
    /// (1/n) sum |x_i - mean|^2.
    pub consensus: Option<f64>,
    /// Payload bytes sent per node, in the mean.
    pub payload: f64,
}

/// Mean, least and greatest over the nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The mean over the nodes.
    pub mean: f64,
    /// The least value of a node.
    pub least: f64,
    /// The greatest value of a node.
    pub greatest: f64,
}

/// How a run ended, from its summary.
#[derive(Clone, Debug, PartialEq)]
pub enum Status {
    /// All nodes have done all rounds.
    Done,
    /// The round in which a value stopped being finite.
    Diverged(u64),
    /// Rounds done when the user stopped it.
    Interrupted(u64),
    /// Why it could not continue.
    Failed(String),
    /// These nodes have missed rounds.
    Short(Vec<String>),
    /// It has no summary: it still runs, or it was killed.
    Unfinished,
}

impl Run {
    /// Reads a run directory. Without a summary it is accepted only if `unfinished` is set.
    ///
    /// # Errors
    /// If a file is missing, or is not one that a run writes: the file, the line or key, the value.
    pub fn load(path: &Path, unfinished: bool) -> Result<Run, ConfigError> {
        Run::load_with(path, unfinished, &mut |_| ())
    }

    /// The same; `see` receives every line of `metrics.jsonl` in the order of the file.
    ///
    /// # Errors
    /// As [`Run::load`].
    pub fn load_with(
        path: &Path,
        unfinished: bool,
        see: &mut dyn FnMut(&Metric),
    ) -> Result<Run, ConfigError> {
        if !path.is_dir() {
            let what = if path.exists() { "is a file" } else { "does not exist" };
            return Err(ConfigError::at("run directory", format!("{what}; {EXPECTED}"))
                .within(path.display()));
        }
        let file = |name: &str| path.join(name);
        let present = |name: &str, when: &str| match file(name).is_file() {
            true => Ok(()),
            false => {
                Err(ConfigError::at(name, format!("is missing: {when}")).within(path.display()))
            }
        };
        present("experiment.toml", &format!("{EXPECTED}{}", runs_below(path)))?;
        present("topology.toml", EXPECTED)?;
        present("metrics.jsonl", EXPECTED)?;
        if !unfinished {
            present(
                "summary.json",
                "the run is not over, or was killed; `unfinished` reads it as far as it has come",
            )?;
        }
        let experiment = Experiment::load(&file("experiment.toml"), &[])?;
        let topology = Topology::load(&file("topology.toml"))?;
        let summary = summary(&file("summary.json"), &topology)?;
        let members = Memberships::of(summary.as_ref(), &topology, &file("summary.json"))?;
        let Lines { rounds, last } =
            lines(&file("metrics.jsonl"), &members, summary.is_none(), see)?;
        let evaluations = rounds.len();
        let expected = |round| last.keys().filter(|node| members.has(**node, round)).count();
        let whole =
            rounds.into_iter().filter(|(round, sums)| sums.count == expected(*round) as u64);
        let points: Vec<Point> = whole.map(|(round, sums)| sums.point(round)).collect();
        Ok(Run {
            name: called(path),
            path: path.to_path_buf(),
            settings: settings(&experiment),
            experiment,
            topology,
            summary,
            partial: evaluations - points.len(),
            points,
            last,
        })
    }

    /// How the run ended, by the worst that happened.
    pub fn status(&self) -> Status {
        let Some(summary) = &self.summary else { return Status::Unfinished };
        if let Some(round) = summary.diverged_at {
            return Status::Diverged(round);
        }
        if summary.interrupted {
            return Status::Interrupted(summary.rounds);
        }
        if let Some(why) = &summary.failure {
            return Status::Failed(why.clone());
        }
        let short = summary.short_of(summary.rounds_of(self.experiment.run.rounds));
        let short: Vec<String> = short.iter().map(|(name, _)| name.to_string()).collect();
        if short.is_empty() { Status::Done } else { Status::Short(short) }
    }

    /// Whether its times are simulated.
    pub fn simulated(&self) -> bool {
        self.summary.as_ref().is_some_and(|summary| summary.trace.is_some())
    }

    /// Rounds done, as far as they are known.
    pub fn rounds(&self) -> u64 {
        let seen = self.last.values().map(|metric| metric.round).min().unwrap_or(0);
        self.summary.as_ref().map_or(seen, |summary| summary.rounds)
    }

    /// The bytes that a node sent: payload, wire, dense. From the summary, else from its last
    /// metrics.
    pub fn sent(&self, node: usize) -> Option<[u64; 3]> {
        let name = &self.topology.node(node.into()).name;
        let part = self.summary.as_ref().and_then(|summary| summary.participation.get(name));
        match part {
            Some(part) if part.bytes_wire > 0 || part.bytes_payload == 0 => {
                Some([part.bytes_payload, part.bytes_wire, part.bytes_dense])
            }
            _ => {
                let metric = self.last.get(&u32::try_from(node).ok()?)?;
                Some([metric.bytes_payload, metric.bytes_wire, metric.bytes_dense])
            }
        }
    }
}

/// The text in every error about a directory.
const EXPECTED: &str = "`gradvine train`, `node` and `simulate` write run directories";

/// Lists run directories inside a folder that is not a run directory itself, for the error message.
fn runs_below(path: &Path) -> String {
    let Ok(entries) = fs::read_dir(path) else { return String::new() };
    let mut below: Vec<String> = (entries.filter_map(Result::ok))
        .map(|entry| entry.path())
        .filter(|path| path.join("experiment.toml").is_file())
        .map(|path| path.display().to_string())
        .collect();
    below.sort();
    let rest = if below.len() > 3 { " and others" } else { "" };
    below.truncate(3);
    if below.is_empty() { String::new() } else { format!("; here are {}{rest}", below.join(", ")) }
}

fn called(path: &Path) -> String {
    let full = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    full.file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn summary(path: &Path, topology: &Topology) -> Result<Option<Summary>, ConfigError> {
    if !path.exists() {
        return Ok(None);
    }
    let wrong =
        |place: &str, problem: String| ConfigError::at(place, problem).within(path.display());
    let bytes = inputs::read(path).map_err(|error| {
        wrong("summary", format!("cannot be read: {error}")).with_fault(Fault::Unreadable)
    })?;
    let summary = Summary::from_json(&bytes).map_err(|error| {
        wrong("summary", format!("{error}; expected the summary of a finished run"))
    })?;
    if summary.nodes != topology.nodes() {
        let problem = format!("topology.toml beside it has {}", topology.nodes());
        return Err(ConfigError::new("nodes", summary.nodes, problem).within(path.display()));
    }
    Ok(Some(summary))
}

/// Which nodes were members in which rounds.
struct Memberships {
    nodes: usize,
    history: Vec<Change>,
}

impl Memberships {
    fn of(
        summary: Option<&Summary>,
        topology: &Topology,
        path: &Path,
    ) -> Result<Memberships, ConfigError> {
        let changes = summary.iter().flat_map(|summary| &summary.history);
        let history = changes.map(|change| change.numbered(topology)).collect::<Result<_, _>>();
        let history = history.map_err(|error: ConfigError| error.within(path.display()))?;
        Ok(Memberships { nodes: topology.nodes(), history })
    }

    /// Whether a node was a member when so many rounds were done.
    fn has(&self, node: u32, rounds: u64) -> bool {
        let changes = self.history.partition_point(|change| change.round.0 < rounds);
        let change = self.history[..changes].last();
        change.is_none_or(|change| change.members.binary_search(&NodeId(node)).is_ok())
    }
}

struct Lines {
    rounds: BTreeMap<u64, Sums>,
    last: BTreeMap<u32, Metric>,
}

/// Reads one line at a time: a long run's file is larger than the data kept from it. `open` says
/// that the run may be writing the last line just now.
fn lines(
    path: &Path,
    members: &Memberships,
    open: bool,
    see: &mut dyn FnMut(&Metric),
) -> Result<Lines, ConfigError> {
    let nodes = members.nodes;
    let cannot = |error: std::io::Error| {
        ConfigError::at("metrics", format!("cannot be read: {error}"))
            .with_fault(Fault::Unreadable)
            .within(path.display())
    };
    let mut reader = BufReader::new(inputs::open(path).map_err(cannot)?);
    let (mut rounds, mut last): (BTreeMap<u64, Sums>, BTreeMap<u32, Metric>) = Default::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(cannot)? == 0 {
            break;
        }
        let place = format!("line {number}");
        let metric = match Metric::from_json(&line) {
            Ok(metric) => metric,
            Err(_) if open && !line.ends_with(b"\n") => break,
            Err(error) => {
                let text = String::from_utf8_lossy(&line);
                let problem =
                    format!("{error}; expected one evaluation of one node, as a run writes it");
                return Err(
                    ConfigError::new(place, text.trim_end(), problem).within(path.display())
                );
            }
        };
        if metric.node as usize >= nodes {
            let problem =
                format!("expected a node from 0 to {}: topology.toml has {nodes}", nodes - 1);
            return Err(ConfigError::new(format!("{place}: node"), metric.node, problem)
                .within(path.display()));
        }
        if let Some(before) = last.get(&metric.node).filter(|before| before.round >= metric.round) {
            let problem =
                format!("node {} was in round {} before; rounds ascend", metric.node, before.round);
            return Err(ConfigError::new(format!("{place}: round"), metric.round, problem)
                .within(path.display()));
        }
        see(&metric);
        // A node that left may have done rounds that the others repeated without it.
        if members.has(metric.node, metric.round) {
            rounds.entry(metric.round).or_default().add(&metric);
        }
        last.insert(metric.node, metric);
    }
    Ok(Lines { rounds, last })
}

/// Sums over the nodes' lines of one round.
#[derive(Default)]
struct Sums {
    count: u64,
    time_s: f64,
    train_loss: Sum,
    test_loss: Sum,
    test_accuracy: Sum,
    consensus: Option<f64>,
    payload: f64,
}

#[derive(Default)]
struct Sum {
    count: u64,
    sum: f64,
    ends: Option<(f64, f64)>,
}

impl Sums {
    fn add(&mut self, metric: &Metric) {
        self.count += 1;
        self.time_s = self.time_s.max(metric.time_s);
        self.train_loss.add(metric.train_loss);
        self.test_loss.add(metric.test_loss);
        self.test_accuracy.add(metric.test_accuracy);
        self.consensus = self.consensus.or(metric.consensus);
        self.payload += metric.bytes_payload as f64;
    }

    fn point(&self, round: u64) -> Point {
        Point {
            round,
            time_s: self.time_s,
            train_loss: self.train_loss.span(),
            test_loss: self.test_loss.span(),
            test_accuracy: self.test_accuracy.span(),
            consensus: self.consensus,
            payload: self.payload / self.count as f64,
        }
    }
}

impl Sum {
    fn add(&mut self, value: Option<f64>) {
        let Some(value) = value else { return };
        self.count += 1;
        self.sum += value;
        let (least, greatest) = self.ends.unwrap_or((value, value));
        self.ends = Some((least.min(value), greatest.max(value)));
    }

    fn span(&self) -> Option<Span> {
        let (least, greatest) = self.ends?;
        // The mean of equal values is that value, even if their sum was rounded.
        let mean = (self.sum / self.count as f64).clamp(least, greatest);
        Some(Span { mean, least, greatest })
    }
}

/// Every key of an experiment with its value.
fn settings(experiment: &Experiment) -> Vec<(String, String)> {
    fn flatten(prefix: &str, table: toml::Table, into: &mut Vec<(String, String)>) {
        for (key, value) in table {
            let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
            match value {
                toml::Value::Table(table) => flatten(&key, table, into),
                value => into.push((key, value.to_string())),
            }
        }
    }
    let mut settings = Vec::new();
    flatten("", toml::from_str(&experiment.to_toml()).unwrap_or_default(), &mut settings);
    settings
}
