//! Examines a node before a run: its files, its machine, its links, and what a round will take.
//!
//! [`examine`] returns a [`Report`] of findings, each with what to do. It takes the node's place in
//! the network: the node itself must not run meanwhile. The neighbours run nodes that wait for the
//! run to begin, or examine their own links at the same time.
//!
//! | file | does |
//! |---|---|
//! | `files` | the node's files, its data, the space for the run |
//! | `machine` | limits and settings of the operating system |
//! | `links` | neighbours: addresses, round trips, rates, clocks, NATs |
//! | `text` | a report as text |
#![forbid(unsafe_code)]

mod files;
mod links;
mod machine;
mod text;

use std::{path::Path, time::Duration};

use gradvine::{
    config::ConfigError,
    data::check_unread,
    drive::RunError,
    links::{LinkModel, conditions},
    mixing::Topology,
    net::{self, ProbeLimits},
    run::Outlook,
    units::NodeId,
};
use serde::Serialize;

pub use links::{AddressFigures, LinkFigures, NeighbourFigures};

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Level {
    /// A fact that needs no remedy.
    Ok,
    /// A run is possible, but slower or less safe than it could be.
    Warning,
    /// A run is not possible.
    Error,
}

/// One fact about the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Only an error makes a run impossible.
    pub level: Level,
    /// What it is about: `key`, `data`, `disk`, `link to tokyo` and so on.
    pub about: String,
    /// One sentence, without the remedy.
    pub text: String,
    /// What the user should do; a warning or an error always has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    fn new(level: Level, about: &str, text: impl Into<String>, remedy: Option<String>) -> Finding {
        Finding { level, about: about.into(), text: text.into(), remedy }
    }

    fn ok(about: &str, text: impl Into<String>) -> Finding {
        Finding::new(Level::Ok, about, text, None)
    }

    fn warning(about: &str, text: impl Into<String>, remedy: &str) -> Finding {
        Finding::new(Level::Warning, about, text, Some(remedy.into()))
    }

    fn error(about: &str, text: impl Into<String>, remedy: &str) -> Finding {
        Finding::new(Level::Error, about, text, Some(remedy.into()))
    }

    /// An error of a file names the place, the value and what is accepted.
    fn wrong(about: &str, error: &dyn std::error::Error) -> Finding {
        Finding::new(Level::Error, about, error.to_string(), None)
    }
}

/// The time of a round on the links as they were measured.
#[derive(Clone, Debug, Serialize)]
pub struct Forecast {
    /// Seconds of a round's gradients on this machine.
    pub gradients_s: f64,
    /// Seconds of a round, gradients included, as the simulator predicts it.
    pub round_s: f64,
    /// Predicted seconds of all rounds of the run.
    pub run_s: f64,
    /// As many as the experiment has, `run.rounds`.
    pub rounds: u64,
    /// Links whose figures are measured, and all links of the topology.
    pub measured: (usize, usize),
    /// The link that a round waits for, if any.
    pub bottleneck: Option<String>,
}

/// What the doctor has found about a node, its links and its machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The node's name, if its files say so.
    pub node: Option<String>,
    /// All findings, in the order in which they were made.
    pub findings: Vec<Finding>,
    /// Each neighbour that was tried, with what was measured on its link.
    pub neighbours: Vec<NeighbourFigures>,
    /// What a round will take, if all neighbours were reached.
    pub forecast: Option<Forecast>,
    /// The topology with the measured figures of this node's links.
    #[serde(skip)]
    pub topology: Option<Topology>,
}

impl Report {
    /// Whether nothing prevents a run.
    pub fn is_fine(&self) -> bool {
        self.findings.iter().all(|finding| finding.level < Level::Error)
    }

    /// Writes the measured figures of this node's links into a topology file. Figures that other
    /// nodes have written into it stay.
    ///
    /// # Errors
    /// If not all neighbours were reached, or the file holds another topology; `place` is then
    /// `--measure`. If the file cannot be read or written.
    pub fn write_measured(&self, file: &Path) -> Result<(), ConfigError> {
        let wrong = |problem: &str| ConfigError::new("--measure", file.display(), problem);
        let Some(own) = &self.topology else {
            return Err(wrong("not written: not all neighbours were reached"));
        };
        // It is read next, so that the figures in it stay.
        check_unread("--measure", file)?;
        let mut topology = if file.exists() { Topology::load(file)? } else { own.clone() };
        let nodes = || (0..own.nodes()).map(NodeId::from);
        let name = |node: NodeId| own.node(node).name.as_str();
        let same = topology.nodes() == own.nodes()
            && nodes().all(|node| topology.node(node).name == name(node));
        if !same {
            return Err(wrong("it holds another topology: name a new file"));
        }
        let node = self.node.as_deref().and_then(|own| nodes().find(|&node| name(node) == own));
        for neighbour in &self.neighbours {
            let pair = node.map(|node| (node, neighbour.node));
            let figures = pair.and_then(|(a, b)| own.link(a, b));
            if let (Some(pair), Some(figures)) = (pair, figures)
                && let (Some(latency), Some(rate)) = (figures.latency_ms, figures.bandwidth_mbps)
            {
                topology = topology.with_link(pair, latency, rate)?;
            }
        }
        Ok(topology.write(file)?)
    }
}

/// How long an examination takes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long to wait for neighbours that do not answer.
    pub wait: Duration,
    /// How long to send over each link, each way.
    pub send: Duration,
    /// Examine files and machine only.
    pub offline: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { wait: Duration::from_secs(10), send: Duration::from_secs(2), offline: false }
    }
}

/// Examines the node of this file.
///
/// # Errors
/// If the network's threads or the host cannot be started; everything else is a finding.
pub fn examine(path: &Path, options: Options) -> Result<Report, RunError> {
    let mut report = Report::default();
    let Some(node) = files::examine(path, &mut report) else {
        machine::examine(None, &mut report);
        return Ok(report);
    };
    machine::examine(Some(&node), &mut report);
    if options.offline || node.place.neighbours() == 0 {
        return Ok(report);
    }
    let limits = ProbeLimits { wait: options.wait, send: options.send };
    let examination = net::examine(&node.place, limits)?;
    links::judge(&node, &examination, &mut report);
    forecast(&node, &mut report);
    Ok(report)
}

/// What a round will take on the measured links, the topology's figures for the others.
fn forecast(node: &files::Examined, report: &mut Report) {
    let Some(single) = &node.single else { return };
    let mut topology = (*single.design.topology).clone();
    let mut pairs = Vec::new();
    for neighbour in &report.neighbours {
        let Some(link) = &neighbour.link else { return };
        let pair = (node.place.node, neighbour.node);
        let (latency, rate) = (link.round_trip_ms / 2.0, link.sent_mbps.min(link.received_mbps));
        match topology.clone().with_link(pair, latency, rate) {
            Ok(changed) => topology = changed,
            Err(error) => report.findings.push(Finding::wrong("links", &error)),
        }
        pairs.push(pair);
    }
    let gradients_s = single.gradients_take().unwrap_or(0.0);
    let experiment = &single.design.experiment;
    let computed = conditions(&experiment.network, &topology, &experiment.run, &mut || gradients_s);
    let outlook = computed.and_then(|mut conditions| {
        conditions.compute.mean = (gradients_s * 1e9) as u64;
        let known = |model: &LinkModel| model.rate.is_finite();
        let measured = conditions.links.values().filter(|model| known(model)).count();
        let steps = u64::from(experiment.optimizer.local_steps);
        let gradients = experiment.run.rounds.saturating_mul(steps);
        Outlook::of(&single.design, &conditions, gradients).map(|outlook| (outlook, measured))
    });
    match outlook {
        Err(error) => {
            // A rule whose nodes call each other has no fixed round.
            report.findings.push(Finding::new(Level::Warning, "forecast", error.to_string(), None));
        }
        Ok((outlook, measured)) => {
            let name = |id| topology.node(id).name.clone();
            report.forecast = Some(Forecast {
                gradients_s,
                round_s: outlook.prediction.round_s,
                run_s: outlook.run_s(),
                rounds: outlook.rounds,
                measured: (measured, topology.links()),
                bottleneck: (outlook.prediction.bottleneck())
                    .map(|link| format!("{} -> {}", name(link.from), name(link.to))),
            });
        }
    }
    report.topology = Some(topology);
}
