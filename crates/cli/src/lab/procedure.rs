//! The steps of a laboratory run: predict, simulate, build, measure.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    process,
    sync::Arc,
    time::Instant,
};

use gradvine::{
    config::ConfigError,
    drive::{Elapsed, Observer},
    experiment::Compute,
    gossip::{RoundDone, plan},
    predict::predict,
    run::{Recorder, RunDirectory, RunInfo, Summary, Whole, metrics::Metric},
    sim,
    units::{NodeId, Round},
};
use gradvine_lab::{self as lab, Cut, LabError, Router, Setup, Site, Wiring};

use super::{
    super::{
        interrupt::Interrupt,
        print, print_json,
        processes::{self, Process},
        progress::Display,
        run_args::RunArgs,
    },
    Args, Exit, ROUNDS, Transport,
    figures::{Chosen, Expected, Figures, Load, Measurement, Pace, RoundEnd, Stack},
};

/// The port of all nodes: each has a namespace of its own.
const PORT: u16 = 4001;

impl From<LabError> for Exit {
    fn from(error: LabError) -> Exit {
        let message = format!("lab: {error}");
        if let LabError::Missing(_) = error { Exit::Config(message) } else { Exit::Failed(message) }
    }
}

/// Predicts, simulates and measures.
pub fn run(mut args: Args) -> Result<(), Exit> {
    lab::check()?;
    let setup = setup(&args)?;
    prepare(&mut args);
    let whole = args.run.select.whole(args.run.quiet, |experiment| {
        // Real gradients take time, so the simulated ones must too.
        if experiment.network.compute == Compute::None {
            experiment.network.compute = Compute::Measured;
        }
    })?;
    let wiring = wiring(&args, &whole)?;
    let run = &whole.design.experiment.run;
    if args.warm + 1 >= run.rounds {
        let problem = format!(
            "leaves too few of {} rounds to measure: lower it, or raise --rounds",
            run.rounds
        );
        return Err(ConfigError::new("--warm", args.warm, problem).into());
    }
    let keep = args.run.out.is_some() || run.out.is_some();
    let scratch = Scratch::new(keep);
    let interrupt = Interrupt::install()?;
    let expected = predict_and_simulate(&args, &whole, &interrupt)?;
    let place = RunArgs {
        out: args.run.out.clone().or_else(|| scratch.folder.clone()),
        ..args.run.clone()
    };
    let mut directory = place.directory(&whole)?;
    let measurement =
        measure(&args, &whole, (&setup, wiring), &mut directory, &scratch, &interrupt)?;
    let figures = Figures::new(&whole, args.warm, &expected, &measurement);
    directory.write(
        "lab.json",
        &(serde_json::to_string_pretty(&figures).map_err(std::io::Error::from)? + "\n"),
    )?;
    if args.run.json {
        print_json(&figures)?;
    }
    if args.run.speaks() {
        let kept = keep.then(|| format!("kept in          {}\n", directory.path().display()));
        print(&(figures.table() + &kept.unwrap_or_default()))?;
    }
    if figures.same_digest_as_simulated == Some(false) {
        return Err(Exit::Disagrees(
            "the nodes ended with another digest than the simulation".into(),
        ));
    }
    Ok(())
}

/// Builds the sites and links, runs a node at each, and removes everything again, also after
/// errors.
fn measure(
    args: &Args,
    whole: &Whole,
    (setup, wiring): (&Setup, Wiring),
    directory: &mut RunDirectory,
    scratch: &Scratch,
    interrupt: &Interrupt,
) -> Result<Measurement, Exit> {
    lab::clear_leftovers();
    interrupt.otherwise_write(
        &Recorder::new(RunInfo::from(whole), directory, crate::warnings()),
        directory,
    );
    let names: Vec<String> = (0..whole.shards.len()).map(|node| lab::name(0, node)).collect();
    let (doomed, folder) = (names.clone(), scratch.folder.clone());
    interrupt.before_leaving(move || {
        lab::remove(&doomed);
        folder.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
    });
    let mut sites = (names.into_iter().enumerate())
        .map(|(node, name)| Site::new(name, NodeId::from(node), setup))
        .collect::<Result<Vec<Site>, LabError>>()?;
    let transport = whole.design.experiment.run.transport;
    let addresses: Vec<String> =
        sites.iter().map(|site| transport.address(site.address, PORT)).collect();
    // Without test rows: an evaluation would delay the next round.
    processes::write_files(whole, directory, &addresses, false)?;
    let router = Router::start(sites.iter_mut().filter_map(Site::tap).collect(), wiring)?;
    let mut nodes =
        processes::start(whole, directory, |node, program| sites[node.index()].command(program))?;
    let mut watched = Watched::new(args.warm);
    let mut display = Display::new(whole.design.experiment.run.rounds, args.run.speaks(), false);
    let followed = processes::follow(&mut nodes, interrupt, &mut display, &mut |nodes| {
        watched.sample(nodes);
        if router.is_dead() {
            Err(Exit::Failed("lab: the router's thread ended".into()))
        } else {
            Ok(())
        }
    });
    display.finish();
    followed?;
    processes::merge_metrics(&nodes, directory);
    if interrupt.is_set() {
        let done = processes::progress(&nodes).rounds;
        return Err(match processes::interrupted(whole, directory, &nodes) {
            Exit::Interrupted(_) if scratch.folder.is_some() => {
                Exit::Interrupted(format!("stopped in round {done}; no files are kept"))
            }
            exit => exit,
        });
    }
    let stack = Stack {
        transport,
        congestion: (whole.design.experiment.run.congestion.clone())
            .or_else(|| setup.congestion.clone())
            .or_else(|| sites[0].congestion()),
        chosen: match (&whole.design.experiment.run.congestion, &setup.congestion) {
            (Some(_), _) => Chosen::Node,
            (None, Some(_)) => Chosen::Route,
            (None, None) => Chosen::System,
        },
        retransmitted: sites.iter().filter_map(retransmitted).sum(),
    };
    let passed =
        router.stop().map_err(|error| Exit::Failed(format!("lab: a device failed: {error}")))?;
    let summary = processes::gather(whole, directory, &nodes).inspect_err(|_| scratch.leave())?;
    directory.summary(&summary)?;
    Ok(Measurement {
        pace: Pace::of(&measured(&nodes), args.warm),
        load: watched.load(),
        stack,
        passed,
        summary,
    })
}

/// Checks the arguments for settings, and sets the laboratory's own defaults, which `--set`
/// overrides.
fn prepare(args: &mut Args) {
    let select = &mut args.run.select;
    select.rounds = select.rounds.or(Some(ROUNDS));
    // Then the metrics have the end of every round.
    select.sets.insert(0, "run.evaluate_every=1".into());
    if let Some(transport) = args.transport {
        let name = match transport {
            Transport::Tcp => "tcp",
            Transport::Quic => "quic",
        };
        select.sets.push(format!("run.transport={name}"));
    }
}

fn setup(args: &Args) -> Result<Setup, Exit> {
    if let Some(name) = &args.congestion {
        lab::check_congestion(name)?;
    }
    let sysctl = |text: &String| match text.split_once('=') {
        Some((key, value)) if key.starts_with("net.") => {
            Ok((key.trim().to_string(), value.trim().to_string()))
        }
        _ => Err(ConfigError::new(
            "--sysctl",
            text,
            "expected net.KEY=VALUE: only settings below net. belong to a namespace",
        )),
    };
    let sysctls = args.sysctl.iter().map(sysctl).collect::<Result<_, _>>()?;
    Ok(Setup { congestion: args.congestion.clone(), sysctls })
}

fn wiring(args: &Args, whole: &Whole) -> Result<Wiring, Exit> {
    let topology = &whole.design.topology;
    let cuts =
        args.cut.iter().map(|text| Cut::parse(text, topology)).collect::<Result<Vec<_>, _>>()?;
    let neighbours =
        |a: NodeId| topology.neighbours(a).iter().filter(move |b| a < **b).map(move |&b| (a, b));
    Ok(Wiring {
        conditions: whole.conditions.clone(),
        links: (0..topology.nodes()).map(NodeId::from).flat_map(neighbours).collect(),
        cuts,
        reorders: args.reorder,
    })
}

/// Predicts and simulates the run. The simulation of an asynchronous rule is one of many possible
/// runs.
fn predict_and_simulate(
    args: &Args,
    whole: &Arc<Whole>,
    interrupt: &Interrupt,
) -> Result<Expected, Exit> {
    let (design, conditions) = (&whole.design, &whole.conditions);
    let plan = &*design.rule.plan;
    let fixed = !plan::is_asynchronous(plan);
    let predicted_s =
        fixed.then(|| predict(plan, whole.shards.len(), design.parameters(), conditions).round_s);
    if args.run.speaks() {
        note!(
            "simulating {} rounds of {} parameters",
            design.experiment.run.rounds,
            design.parameters()
        );
    }
    let mut rounds = Rounds { times: vec![Vec::new(); whole.shards.len()], interrupt };
    let simulated = sim::run_on(whole.specs(), conditions, &mut rounds)
        .map_err(|error| Exit::Failed(error.describe(&design.topology)))?;
    if interrupt.is_set() {
        return Err(Exit::Interrupted("stopped in the simulation; no node was started".into()));
    }
    let summary = Summary::new(design, &simulated.ended[0].records).map_err(Exit::Failed)?;
    Ok(Expected {
        predicted_s,
        pace: Pace::of(&rounds.times, args.warm),
        digest: fixed.then_some(summary.digest),
    })
}

/// The time at which each node ended each round, in virtual time.
struct Rounds<'a> {
    times: Vec<Vec<RoundEnd>>,
    interrupt: &'a Interrupt,
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
        self.interrupt.is_set().then(|| {
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

/// A temporary folder for the run.
struct Scratch {
    folder: Option<PathBuf>,
    leave: Cell<bool>,
}

impl Scratch {
    fn new(keep: bool) -> Scratch {
        let folder =
            (!keep).then(|| std::env::temp_dir().join(format!("gradvine-lab-{}", process::id())));
        Scratch { folder, leave: Cell::new(false) }
    }

    /// Keeps the folder, because an error refers to the logs in it.
    fn leave(&self) {
        self.leave.set(true);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder
            && !self.leave.get()
        {
            let _ = fs::remove_dir_all(folder);
        }
    }
}
