//! The steps of a laboratory run: predict, simulate, build, measure.

use std::{fs, io, path::Path, sync::Arc, time::Instant};

use gradvine::{
    config::ConfigError,
    drive::{Elapsed, Observer},
    experiment::{Compute, Experiment},
    gossip::{RoundDone, plan},
    predict::predict,
    run::{EndError, RunDirectory, Summary, Whole, metrics::Metric},
    sim,
    units::{NodeId, Round},
};
use gradvine_processes::{self as processes, Control, Process};

use crate::{
    Cut, LabError, Router, Setup, Site, Wiring,
    figures::{Chosen, Expected, Figures, Load, Measurement, Pace, RoundEnd, Stack},
};

/// The port of all nodes: each has a namespace of its own.
const PORT: u16 = 4001;

/// A run of real nodes in namespaces, joined by a router that shapes the links.
pub struct Laboratory {
    /// What all namespaces have in common.
    pub setup: Setup,
    /// The links and their cuts.
    pub wiring: Wiring,
    /// Rounds to leave out of the figures, while TCP finds its window.
    pub warm: u64,
}

impl Wiring {
    /// The links of a run with its conditions, some of them cut for a while: `cuts` as
    /// [`Cut::parse`] reads them.
    ///
    /// # Errors
    /// If a cut is malformed or names no link.
    pub fn of(whole: &Whole, cuts: &[String], reorders: bool) -> Result<Wiring, ConfigError> {
        let topology = &whole.design.topology;
        let cuts =
            cuts.iter().map(|text| Cut::parse(text, topology)).collect::<Result<Vec<_>, _>>()?;
        let neighbours = |a: NodeId| {
            topology.neighbours(a).iter().filter(move |b| a < **b).map(move |&b| (a, b))
        };
        Ok(Wiring {
            conditions: whole.conditions.clone(),
            links: (0..topology.nodes()).map(NodeId::from).flat_map(neighbours).collect(),
            cuts,
            reorders,
        })
    }
}

/// The names of the namespaces of this process's laboratory.
pub fn names(nodes: usize) -> Vec<String> {
    (0..nodes).map(|node| crate::name(0, node)).collect()
}

/// Lets gradients take their time in the simulation too, as they do in reality.
pub fn measure_gradients(experiment: &mut Experiment) {
    if experiment.network.compute == Compute::None {
        experiment.network.compute = Compute::Measured;
    }
}

impl Laboratory {
    /// A laboratory for a run, of which `warm` rounds are left out of the figures.
    ///
    /// # Errors
    /// If too few rounds are left; `place` is `--warm`.
    pub fn new(
        whole: &Whole,
        setup: Setup,
        wiring: Wiring,
        warm: u64,
    ) -> Result<Laboratory, ConfigError> {
        let rounds = whole.design.experiment.run.rounds;
        if warm.saturating_add(1) >= rounds {
            let problem = format!(
                "leaves too few of {rounds} rounds to measure: lower it, or raise --rounds"
            );
            return Err(ConfigError::new("--warm", warm, problem));
        }
        Ok(Laboratory { setup, wiring, warm })
    }

    /// Measures as [`Laboratory::measure`] does, and writes `lab.json` into the run directory: what
    /// was expected beside what was measured.
    ///
    /// # Errors
    /// As [`Laboratory::measure`], or if the file cannot be written.
    pub fn figures(
        self,
        whole: &Whole,
        expected: &Expected,
        directory: &mut RunDirectory,
        control: &mut Control<'_>,
    ) -> Result<Figures, LabError> {
        let warm = self.warm;
        let measurement = self.measure(whole, directory, control)?;
        let figures = Figures::new(whole, warm, expected, &measurement);
        let text = serde_json::to_string_pretty(&figures).map_err(io::Error::from);
        let written = text.and_then(|text| directory.write("lab.json", &(text + "\n")));
        written.map_err(EndError::from)?;
        Ok(figures)
    }

    /// Predicts, then simulates the run. The simulation of an asynchronous rule is one of many
    /// possible runs.
    ///
    /// # Errors
    /// [`EndError::Interrupted`] if `stop` says so; [`EndError::Failed`] if the run diverges.
    pub fn expect(
        &self,
        whole: &Arc<Whole>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Expected, EndError> {
        let (design, conditions) = (&whole.design, &whole.conditions);
        let plan = &*design.rule.plan;
        let fixed = !plan::is_asynchronous(plan);
        let nodes = whole.shards.len();
        let predicted_s =
            fixed.then(|| predict(plan, nodes, design.parameters(), conditions).round_s);
        let mut rounds = Rounds { times: vec![Vec::new(); nodes], stop };
        let simulated = sim::run_on(whole.specs(), conditions, &mut rounds)
            .map_err(|error| EndError::of(error, &design.topology))?;
        if stop() {
            return Err(EndError::Interrupted(
                "stopped in the simulation; no node was started".into(),
            ));
        }
        let summary = Summary::new(design, &simulated.ended[0].records)
            .map_err(|why| EndError::failed(why.to_string()))?;
        Ok(Expected {
            predicted_s,
            pace: Pace::of(&rounds.times, self.warm),
            digest: fixed.then_some(summary.digest),
        })
    }

    /// Builds the sites and links, runs a node at each, and removes everything again, also after
    /// errors. The run directory gets the nodes' files and results.
    ///
    /// # Errors
    /// [`LabError::Run`] if a node fails or the run is interrupted, otherwise if the sites cannot
    /// be built.
    pub fn measure(
        self,
        whole: &Whole,
        directory: &mut RunDirectory,
        control: &mut Control<'_>,
    ) -> Result<Measurement, LabError> {
        crate::clear_leftovers();
        let setup = &self.setup;
        let mut sites = (names(whole.shards.len()).into_iter().enumerate())
            .map(|(node, name)| Site::new(name, NodeId::from(node), setup))
            .collect::<Result<Vec<Site>, LabError>>()?;
        let run = &whole.design.experiment.run;
        let addresses: Vec<String> =
            sites.iter().map(|site| run.transport.address(site.address, PORT)).collect();
        // Without test rows: an evaluation would delay the next round.
        processes::write_files(whole, directory, &addresses, false)?;
        let router = Router::start(sites.iter_mut().filter_map(Site::tap).collect(), self.wiring)?;
        let mut nodes = processes::start(whole, directory, |node| {
            sites[node.index()].command(&control.program)
        })?;
        let mut watched = Watched::new(self.warm);
        processes::follow(&mut nodes, control, None, &mut |nodes| {
            watched.sample(nodes);
            if router.is_dead() {
                Err(EndError::failed("lab: the router's thread ended"))
            } else {
                Ok(())
            }
        })?;
        processes::merge_metrics(&nodes, directory, &control.warn);
        if (control.stop)() {
            let end = processes::interrupted(whole, directory, &nodes, &control.warn);
            return Err(end.into());
        }
        let stack = Stack {
            transport: run.transport,
            congestion: (run.congestion.clone())
                .or_else(|| setup.congestion.clone())
                .or_else(|| sites[0].congestion()),
            chosen: match (&run.congestion, &setup.congestion) {
                (Some(_), _) => Chosen::Node,
                (None, Some(_)) => Chosen::Route,
                (None, None) => Chosen::System,
            },
            retransmitted: sites.iter().filter_map(retransmitted).sum(),
        };
        let passed = router
            .stop()
            .map_err(|error| EndError::failed(format!("lab: a device failed: {error}")))?;
        let summary = processes::gather(whole, directory, &nodes, &control.warn)?;
        directory.summary(&summary).map_err(EndError::from)?;
        Ok(Measurement {
            pace: Pace::of(&measured(&nodes), self.warm),
            load: watched.load(),
            stack,
            passed,
            summary,
        })
    }
}

/// The time at which each node ended each round, in virtual time.
struct Rounds<'a> {
    times: Vec<Vec<RoundEnd>>,
    stop: &'a dyn Fn() -> bool,
}

impl Observer for Rounds<'_> {
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone) {
        self.times[node.index()].push(RoundEnd {
            round: done.round.0 + 1,
            time_s: elapsed.time.seconds(),
            computing_s: elapsed.computing.seconds(),
        });
    }

    fn stop_after(&mut self) -> Option<Round> {
        (self.stop)().then(|| {
            Round(self.times.iter().map(|times| times.len() as u64).max().unwrap_or(0) + 1)
        })
    }
}

/// The time at which each node ended each round, by its own clock.
fn measured(nodes: &[Process]) -> Vec<Vec<RoundEnd>> {
    let round_end = |metric: &Metric| RoundEnd {
        round: metric.round,
        time_s: metric.time_s,
        computing_s: metric.computing_s,
    };
    nodes.iter().map(|node| node.metrics.iter().map(round_end).collect()).collect()
}

/// The number of TCP segments that all nodes at a site have retransmitted.
fn retransmitted(site: &Site) -> Option<u64> {
    // `/proc/net` would show the main thread's namespace.
    let text = site.within(|| fs::read_to_string("/proc/thread-self/net/snmp")).ok()?.ok()?;
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (keys, values) = (lines.next()?, lines.next()?);
    let at = keys.split_whitespace().position(|key| key == "RetransSegs")?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// CPU time of the nodes' processes and of the whole machine, from the first warm round on.
struct Watched {
    warm: u64,
    begin: Option<Sample>,
    end: Option<Sample>,
}

#[derive(Clone, Copy)]
struct Sample {
    at: Instant,
    rounds: u64,
    /// CPU seconds of the nodes, and of the whole machine.
    nodes_s: f64,
    all_s: f64,
}

impl Watched {
    fn new(warm: u64) -> Watched {
        Watched { warm, begin: None, end: None }
    }

    fn sample(&mut self, nodes: &[Process]) {
        // The times of a process are lost once it has ended.
        let used: Option<f64> = nodes.iter().map(|node| cpu_seconds(node.id()?)).sum();
        let rounds = processes::progress(nodes).rounds;
        if let (Some(nodes_s), Some(all_s)) = (used, busy_seconds())
            && rounds >= self.warm
        {
            let sample = Sample { at: Instant::now(), rounds, nodes_s, all_s };
            self.begin.get_or_insert(sample);
            self.end = Some(sample);
        }
    }

    fn load(&self) -> Option<Load> {
        let (begin, end) = (self.begin?, self.end?);
        let (time, rounds) = ((end.at - begin.at).as_secs_f64(), end.rounds - begin.rounds);
        let used = end.nodes_s - begin.nodes_s;
        (rounds > 0).then(|| Load {
            cores: used / time,
            round_s: used / rounds as f64,
            machine_cores: (end.all_s - begin.all_s) / time,
        })
    }
}

/// The kernel's clock ticks per second, the same on every machine that runs Linux.
const TICKS: f64 = 100.0;

/// CPU seconds that this machine has used since it booted: for programs, the kernel and interrupts.
fn busy_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<f64> = text
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|ticks| ticks.parse().ok())
        .collect();
    let &[user, nice, system, _idle, _iowait, irq, softirq, ..] = &ticks[..] else { return None };
    Some((user + nice + system + irq + softirq) / TICKS)
}

/// CPU seconds of a process.
fn cpu_seconds(process: u32) -> Option<f64> {
    let text =
        fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).ok()?;
    // The name in brackets may contain spaces: after it the state is the third field, and the times
    // are the 14th and 15th.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / TICKS)
}
