//! `gradvine train`

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::Arc,
};

use gradvine::{
    drive::{Elapsed, Ended, Lent, Observer, RunError},
    experiment::SplitKind,
    gossip::{OwnModel, RoundDone},
    net::{self, RunCard},
    run::{Checkpoints, Needs, Progress, Recorder, RunInfo, SavedFiles, Watch, Whole},
    units::{NodeId, Round},
};

use gradvine_processes::{self as processes, Control};
use gradvine_terminal::{Display, Interrupt, note, warnings};

use super::{
    Exit, outcome,
    run_args::{RunArgs, is_run_of_processes, room},
};

/// The arguments of `gradvine train`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine train                             the default experiment
  gradvine train --processes                 the same, one operating-system process per node
  gradvine train my.toml --topology torus:4x4 --set rule.kind=dcd --set compressor.bits=8
  gradvine train --set run.transport=quic --rounds 100

The run directory holds experiment.toml (every default filled in), metrics.jsonl, \
                        model-*.safetensors, summary.json and MODEL.md.")]
pub struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// Start one operating-system process per node, from files as in a deployment
    #[arg(long)]
    processes: bool,
    /// Go on with an interrupted run, with the files in its directory
    #[arg(long, value_name = "DIR", conflicts_with_all = RunArgs::SELECTING)]
    resume: Option<PathBuf>,
}

/// Runs every node on this machine.
pub fn run(mut args: Args) -> Result<(), Exit> {
    if let Some(folder) = args.resume.take() {
        args.run.go_on(folder)?;
    }
    let goes_on = |folder: &PathBuf| args.run.resumes && is_run_of_processes(folder);
    if args.processes || args.run.out.as_ref().is_some_and(goes_on) {
        return with_processes(&args.run);
    }
    watched(&args.run, "train", |whole, watch, folder| {
        let card = RunCard::new(&whole.design);
        let checkpoints = Checkpoints::of_all(&whole.design, folder, card.texts());
        let checkpoints = checkpoints.map_err(RunError::Setup)?;
        let ended = net::together_from(
            whole.specs(),
            &whole.design,
            whole.design.experiment.run.transport,
            &|node| Some(checkpoints[node.index()].clone()),
            watch,
        )?;
        Ok(RunResult { ended, trace: None })
    })
}

/// Runs every node as a process of its own.
fn with_processes(args: &RunArgs) -> Result<(), Exit> {
    let whole = args.whole()?;
    Needs::processes(&whole).check_run(&whole.design)?;
    let mut directory = args.directory(&whole)?;
    room(&whole.design, SavedFiles::Both, directory.path()).inspect_err(|_| directory.discard())?;
    let interrupt = Interrupt::install()?;
    let (info, warn) = (RunInfo::from(&*whole), warnings());
    interrupt.otherwise_write(&Recorder::new(info, &directory, Arc::clone(&warn)), &directory);
    interrupt.wait_longer();
    if args.speaks() {
        let folder = directory.path().display();
        note!(
            "{} processes, one per node; start one by hand with: gradvine node \
             {folder}/nodes/NAME/node.toml",
            whole.shards.len()
        );
    }
    let mut display = Display::new(whole.design.experiment.run.rounds, args.speaks(), false);
    let mut show = |progress: &Progress| {
        interrupt.reached(progress.rounds);
        display.show(progress);
    };
    let (program, stop) = (crate::program(), || interrupt.is_set());
    let mut control = Control { program, stop: &stop, show: &mut show, warn };
    let summary = processes::run(&whole, &mut directory, &mut control);
    display.finish();
    let mut summary = summary?;
    if !args.no_baseline {
        summary.pooled = Some(whole.pooled_baseline()?.into());
    }
    directory.summary(&summary)?;
    outcome::show(args, &whole, &directory, &summary, None, "train")
}

/// The result of a run.
pub struct RunResult {
    /// The nodes.
    pub ended: Vec<Ended>,
    /// The digest of a simulation's events.
    pub trace: Option<String>,
}

/// Runs an experiment with all nodes in this process: creates the directory, shows progress, saves
/// models and prints the table.
pub fn watched(
    args: &RunArgs,
    command: &str,
    drive: impl FnOnce(&Whole, &mut dyn Observer, &Path) -> Result<RunResult, RunError>,
) -> Result<(), Exit> {
    let whole = args.whole()?;
    Needs::together(&whole).check_run(&whole.design)?;
    let directory = RefCell::new(args.directory(&whole)?);
    let interrupt = Interrupt::install()?;
    let recorder = Recorder::new(RunInfo::from(&*whole), &directory.borrow(), warnings());
    interrupt.otherwise_write(&recorder, &directory.borrow());
    if args.speaks() {
        note!("{}", banner(&whole, command));
    }
    let mut display =
        Display::new(whole.design.experiment.run.rounds, args.speaks(), command == "simulate");
    let result = {
        let metric = |metric: &_| warn(directory.borrow_mut().metric(metric));
        let progress = |progress: &Progress| {
            interrupt.reached(progress.rounds);
            display.show(progress);
        };
        let watch =
            Watch::new(Arc::clone(&whole), metric, progress).stopping(|| interrupt.is_set());
        let path = directory.borrow().path().to_path_buf();
        let resumed = &mut |rounds| {
            warn(directory.borrow_mut().rewind(rounds));
            if args.speaks() {
                note!("the run goes on after round {rounds}");
            }
        };
        drive(&whole, &mut Kept { watch, recorder: &recorder, resumed }, &path)
    };
    display.finish();
    let mut directory = directory.into_inner();
    let end = match result {
        Ok(result) => outcome::conclude(
            args,
            &whole,
            &directory,
            &recorder,
            &result,
            interrupt.is_set(),
            command,
        ),
        Err(error) => Err(recorder.failed(&directory, error, interrupt.rounds(), None).into()),
    };
    // Last, because a disk that was full may have room now.
    warn(directory.finish());
    end
}

/// A line of metrics that cannot be written does not end a run.
pub fn warn(result: std::io::Result<()>) {
    if let Err(error) = result {
        note!("warning: {error}");
    }
}

/// Watches a run and saves its models.
struct Kept<'a> {
    watch: Watch<'a>,
    recorder: &'a Recorder,
    /// Called once with the rounds after which the run goes on.
    resumed: &'a mut dyn FnMut(u64),
}

impl Observer for Kept<'_> {
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone) {
        self.watch.round(node, elapsed, done);
    }

    fn resumes(&mut self, node: NodeId, rounds: Round) {
        if self.watch.resumes(node, rounds) {
            (self.resumed)(rounds.0);
        }
    }

    fn begins(&mut self, node: NodeId, lent: &Lent) {
        self.recorder.begins(node, lent);
    }

    fn save(&mut self, node: NodeId, elapsed: Elapsed, own: &OwnModel) {
        self.recorder.save(node, elapsed, own);
    }

    fn mean(&mut self, mean: &[f32]) {
        self.recorder.mean(mean);
    }

    fn stop_after(&mut self) -> Option<Round> {
        self.watch.stop_after()
    }
}

/// Two lines that describe the run before it starts.
fn banner(whole: &Whole, command: &str) -> String {
    let design = &whole.design;
    let data = &design.experiment.data;
    let rows: usize = whole.shards.iter().map(|shard| shard.raw().rows()).sum();
    let test = whole.tests.rows();
    let from = match &data.sources {
        Some(sources) => format!("{} sources, one for each node", sources.len()),
        None => format!("{} split {}", data.source, name_of(data.split)),
    };
    let how = match command {
        "train" => "libp2p hosts on loopback, encrypted",
        _ => "nodes on a virtual network",
    };
    format!(
        "{} x {how}: {} with {} on {}\n{} rows of {from}, {test} for testing; {} parameters, {} \
         rounds",
        design.topology.nodes(),
        design.rule_name(),
        design.compressor.name(),
        design.topology.name(),
        rows,
        design.parameters(),
        design.experiment.run.rounds
    )
}

/// The name of a split, as in experiments.
fn name_of(split: SplitKind) -> String {
    let value = serde_json::to_value(split).ok();
    value.and_then(|value| value.as_str().map(String::from)).unwrap_or_default()
}
