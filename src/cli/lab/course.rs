//! The course of a laboratory run: predict, simulate, build, measure.

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
    experiment::Compute,
    gossip::{RoundDone, plan},
    job::{Observer, Whole},
    lab::{self, Cut, Router, Setup, Site, Trouble, Wiring},
    predict::predict,
    report::Summary,
    sim,
    units::{NodeId, Round, Time},
};

use super::{
    super::{
        interrupt::Interrupt,
        print, print_json,
        processes::{self, Process},
        progress::Display,
        run_args::RunArgs,
    },
    Args, Exit, ROUNDS, Transport,
    figures::{Figures, Load, Pace, Stack},
};

/// Where nodes listen: nobody else is in their namespaces.
const PORT: u16 = 4001;

impl From<Trouble> for Exit {
    fn from(trouble: Trouble) -> Exit {
        let message = format!("lab: {trouble}");
        if let Trouble::Missing(_) = trouble { Exit::Config(message) } else { Exit::Failed(message) }
    }
}

/// Predicts, simulates and measures.
pub fn run(mut args: Args) -> Result<(), Exit> {
    lab::check()?;
    let setup = setup(&args)?;
    prepare(&mut args);
    let whole = args.run.whole_with(|experiment| {
        // Real gradients take time, so virtual ones are to.
        if experiment.network.compute == Compute::None {
            experiment.network.compute = Compute::Measured;
        }
    })?;
    let topology = &whole.design.topology;
    let cuts = args.cut.iter().map(|text| Cut::parse(text, topology)).collect::<Result<Vec<_>, _>>()?;
    let rounds = whole.design.experiment.run.rounds;
    if args.warm + 1 >= rounds {
        let problem = format!("leaves too few of {rounds} rounds to measure: lower it, or raise --rounds");
        return Err(ConfigError::new("--warm", args.warm, problem).into());
    }
    let keep = args.run.out.is_some() || whole.design.experiment.run.out.is_some();
    let scratch = Scratch::new(keep);
    let place = RunArgs { out: args.run.out.clone().or_else(|| scratch.folder.clone()), ..args.run.clone() };
    let interrupt = Interrupt::install()?;
    let (predicted, simulated, digest) = foretell(&args, &whole, &interrupt)?;

    lab::clear_leftovers();
    let mut directory = place.directory(&whole)?;
    interrupt.otherwise_write(&whole.design, &directory);
    let names: Vec<String> = (0..topology.nodes()).map(|node| lab::name(0, node)).collect();
    let (doomed, folder) = (names.clone(), scratch.folder.clone());
    interrupt.before_leaving(move || {
        lab::remove(&doomed);
        folder.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
    });
    let mut sites = (names.into_iter().enumerate())
        .map(|(node, name)| Site::new(name, NodeId::from(node), &setup))
        .collect::<Result<Vec<Site>, Trouble>>()?;
    let transport = whole.design.experiment.run.transport;
    let addresses: Vec<String> = sites.iter().map(|site| transport.address(site.address, PORT)).collect();
    // Without rows to test on: an evaluation would be on the way of the next round.
    processes::write_files(&whole, &directory, &addresses, false)?;
    let devices = sites.iter_mut().filter_map(Site::tap).collect();
    let router = Router::start(devices, wiring(&args, &whole, cuts))?;
    let mut nodes = processes::start(&whole, &directory, |node, program| sites[node.index()].command(program))?;
    let mut load = Watched::new(args.warm);
    let mut display = Display::new(rounds, args.run.speaks(), false);
    let result = processes::follow(&mut nodes, &interrupt, &mut display, &mut |nodes| {
        load.look(nodes);
        if router.is_dead() { Err(Exit::Failed("lab: the router's thread ended".into())) } else { Ok(()) }
    });
    display.finish();
    result?;
    processes::merge_metrics(&nodes, &mut directory)?;
    let done = processes::progress(&nodes).rounds;
    if interrupt.is_set() {
        return Err(match processes::interrupted(&whole, &directory, done)? {
            Exit::Interrupted(_) if !keep => Exit::Interrupted(format!("stopped in round {done}; nothing is kept")),
            exit => exit,
        });
    }
    let retransmitted = sites.iter().filter_map(retransmitted).sum();
    let passed = router.stop().map_err(|error| Exit::Failed(format!("lab: a device failed: {error}")))?;
    let summary = processes::gather(&whole, &directory, &nodes, done).inspect_err(|_| scratch.leave())?;
    directory.summary(&summary)?;
    let stack = Stack {
        transport,
        congestion: setup.congestion.clone().or_else(|| sites[0].congestion()),
        chosen: setup.congestion.is_some(),
        retransmitted,
    };
    let figures = Figures::new(
        &whole,
        args.warm,
        predicted,
        simulated,
        Pace::of(&measured(&nodes), args.warm),
        (digest.as_deref(), &summary),
        load.load(),
        &passed,
        stack,
    );
    let text = serde_json::to_string_pretty(&figures).map_err(std::io::Error::from)? + "\n";
    directory.write("lab.json", &text)?;
    if args.run.json {
        print_json(&figures)?;
    }
    if args.run.speaks() {
        let kept = keep.then(|| format!("kept in          {}\n", directory.path().display()));
        print(&(figures.table() + &kept.unwrap_or_default()))?;
    }
    Ok(())
}

/// What stands in for settings, and the laboratory's own defaults, which `--set` overrides.
fn prepare(args: &mut Args) {
    args.run.rounds = args.run.rounds.or(Some(ROUNDS));
    // Every round's end is in the metrics then.
    args.run.sets.insert(0, "run.evaluate_every=1".into());
    if let Some(transport) = args.transport {
        let name = match transport {
            Transport::Tcp => "tcp",
            Transport::Quic => "quic",
        };
        args.run.sets.push(format!("run.transport={name}"));
    }
}

fn setup(args: &Args) -> Result<Setup, Exit> {
    if let Some(name) = &args.congestion {
        lab::check_congestion(name)?;
    }
    let sysctl = |text: &String| match text.split_once('=') {
        Some((key, value)) if key.starts_with("net.") => Ok((key.trim().to_string(), value.trim().to_string())),
        _ => Err(ConfigError::new(
            "--sysctl",
            text,
            "expected net.KEY=VALUE: a namespace has settings of its own below net. alone",
        )),
    };
    let sysctls = args.sysctl.iter().map(sysctl).collect::<Result<_, _>>()?;
    Ok(Setup { congestion: args.congestion.clone(), sysctls })
}

fn wiring(args: &Args, whole: &Whole, cuts: Vec<Cut>) -> Wiring {
    let topology = &whole.design.topology;
    let neighbours = |a: NodeId| topology.neighbours(a).iter().filter(move |b| a < **b).map(move |&b| (a, b));
    Wiring {
        conditions: whole.conditions.clone(),
        links: (0..topology.nodes()).map(NodeId::from).flat_map(neighbours).collect(),
        cuts,
        reorders: args.reorder,
    }
}

/// Seconds per round as predicted, if the rule's plan is fixed, and as simulated, and the simulation's digest.
#[expect(clippy::type_complexity, reason = "three results of one call")]
fn foretell(
    args: &Args,
    whole: &Arc<Whole>,
    interrupt: &Interrupt,
) -> Result<(Option<f64>, Option<Pace>, Option<String>), Exit> {
    let (design, conditions) = (&whole.design, &whole.conditions);
    let plan = &*design.rule.plan;
    let fixed = !plan::is_asynchronous(plan);
    let predicted = fixed.then(|| predict(plan, whole.shards.len(), design.parameters(), conditions).round_s);
    if args.run.speaks() {
        eprintln!("simulating {} rounds of {} parameters", design.experiment.run.rounds, design.parameters());
    }
    let mut rounds = Rounds { times: vec![Vec::new(); whole.shards.len()], interrupt };
    let simulated = sim::run_on(whole.seats(), conditions, &mut rounds)
        .map_err(|error| Exit::Failed(error.told(&design.topology)))?;
    if interrupt.is_set() {
        return Err(Exit::Interrupted("stopped in the simulation; no node was started".into()));
    }
    let summary = Summary::new(design, &simulated.ended[0].records).map_err(Exit::Failed)?;
    Ok((predicted, Pace::of(&rounds.times, args.warm), fixed.then_some(summary.digest)))
}

/// When each node's rounds were over, in virtual time.
struct Rounds<'a> {
    times: Vec<Vec<(u64, f64)>>,
    interrupt: &'a Interrupt,
}

impl Observer for Rounds<'_> {
    fn round(&mut self, node: NodeId, now: Time, done: RoundDone) {
        self.times[node.index()].push((done.round.0 + 1, now.seconds()));
    }

    fn stop_after(&mut self) -> Option<Round> {
        self.interrupt.is_set().then(|| Round(self.times.iter().map(|times| times.len() as u64).max().unwrap_or(0) + 1))
    }
}

/// When each node's rounds were over, by its own clock.
fn measured(nodes: &[Process]) -> Vec<Vec<(u64, f64)>> {
    nodes.iter().map(|node| node.metrics.iter().map(|metric| (metric.round, metric.time_s)).collect()).collect()
}

/// TCP segments that were sent again, of all nodes in a place.
fn retransmitted(site: &Site) -> Option<u64> {
    // `/proc/net` would be the main thread's namespace.
    let text = site.within(|| fs::read_to_string("/proc/thread-self/net/snmp")).ok()?.ok()?;
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (keys, values) = (lines.next()?, lines.next()?);
    let at = keys.split_whitespace().position(|key| key == "RetransSegs")?;
    values.split_whitespace().nth(at)?.parse().ok()
}

/// What the nodes' processes have used of the machine, from the first warm round on.
struct Watched {
    warm: u64,
    begin: Option<(Instant, u64, f64)>,
    end: Option<(Instant, u64, f64)>,
}

impl Watched {
    fn new(warm: u64) -> Watched {
        Watched { warm, begin: None, end: None }
    }

    fn look(&mut self, nodes: &[Process]) {
        // One that has ended takes its times with it.
        let used: Option<Vec<f64>> = nodes.iter().map(|node| cpu_seconds(node.id()?)).collect();
        let rounds = processes::progress(nodes).rounds;
        if let Some(used) = used
            && rounds >= self.warm
        {
            let sample = (Instant::now(), rounds, used.iter().sum());
            self.begin.get_or_insert(sample);
            self.end = Some(sample);
        }
    }

    fn load(&self) -> Option<Load> {
        let ((begin, first, before), (end, last, after)) = (self.begin?, self.end?);
        let (time, rounds) = ((end - begin).as_secs_f64(), last - first);
        (rounds > 0).then(|| Load { cores: (after - before) / time, round_s: (after - before) / rounds as f64 })
    }
}

/// Seconds of a core that a process has used.
fn cpu_seconds(process: u32) -> Option<f64> {
    /// Of the kernel's clock, on every machine that Linux runs on.
    const TICKS: f64 = 100.0;
    let text = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("stat")).ok()?;
    // The name in brackets may have spaces: the state after it is the third field, times are the 14th and 15th.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / TICKS)
}

/// A folder for a run that is not to be kept.
struct Scratch {
    folder: Option<PathBuf>,
    leave: Cell<bool>,
}

impl Scratch {
    fn new(keep: bool) -> Scratch {
        let folder = (!keep).then(|| std::env::temp_dir().join(format!("gradvine-lab-{}", process::id())));
        Scratch { folder, leave: Cell::new(false) }
    }

    /// Leaves it where it is: an error speaks of the logs in it.
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
