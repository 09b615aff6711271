//! `gradvine train`

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{outcome, run_args::RunArgs};
use gradvine::{
    drive::{Observer, RunError},
    net,
    run::{Driven, Finished, Needs, Progress, Session, Whole},
};
use gradvine_processes::{self as processes, Control};
use gradvine_report::banner;
use gradvine_terminal::{Display, Exit, Interrupt, note, run_session, warnings};

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
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// Start one operating-system process per node, from files as in a deployment
    #[arg(long)]
    processes: bool,
    /// Continue with an interrupted run, with the files in its directory
    #[arg(long, value_name = "DIR", conflicts_with_all = RunArgs::SELECTING)]
    resume: Option<PathBuf>,
}

/// Runs every node on this machine.
pub(crate) fn run(mut args: Args) -> Result<(), Exit> {
    if let Some(folder) = args.resume.take() {
        args.run.go_on(folder)?;
    }
    let is_resumed = |folder: &PathBuf| args.run.resumes && processes::is_run(folder);
    if args.processes || args.run.out.as_ref().is_some_and(is_resumed) {
        return with_processes(&args.run);
    }
    watched(&args.run, "train", |whole, watch, folder| {
        Ok(net::together_in(whole, folder, watch)?.into())
    })
}

/// Runs every node as a process of its own.
fn with_processes(args: &RunArgs) -> Result<(), Exit> {
    let whole = args.whole()?;
    Needs::processes(&whole).check_run(&whole.design)?;
    let mut directory = args.directory(&whole)?;
    processes::check_room(&whole, &directory, &warnings())?;
    let interrupt = Interrupt::install()?;
    interrupt.otherwise_save(&whole, &directory);
    interrupt.wait_longer();
    if args.speaks() {
        note!("{}", processes::describe(&whole, &directory));
    }
    let rounds = whole.design.experiment.run.rounds;
    let mut summary = follow(rounds, args.speaks(), &interrupt, |control| {
        processes::run(&whole, &mut directory, control)
    })?;
    if !args.no_baseline {
        summary.pooled = Some(whole.pooled_baseline()?.into());
    }
    directory.summary(&summary)?;
    outcome::show(args, &whole, directory.path(), &summary, 0, "train")
}

/// Shows the progress of nodes that are processes of their own.
pub(crate) fn follow<T>(
    rounds: u64,
    speaks: bool,
    interrupt: &Interrupt,
    run: impl FnOnce(&mut Control<'_>) -> T,
) -> T {
    let mut display = Display::new(rounds, speaks, false, interrupt);
    let mut show = |progress: &Progress| display.show(progress);
    let (program, stop) = (crate::program(), || interrupt.is_set());
    let result = run(&mut Control { program, stop: &stop, show: &mut show, warn: warnings() });
    display.finish();
    result
}

/// Runs an experiment with all nodes in this process: creates the directory, shows progress, saves
/// models and prints the table.
pub(crate) fn watched(
    args: &RunArgs,
    command: &str,
    drive: impl FnOnce(&Whole, &mut dyn Observer, &Path) -> Result<Driven, RunError>,
) -> Result<(), Exit> {
    let simulated = command == "simulate";
    let whole = args.whole()?;
    Needs::together(&whole).check_run(&whole.design)?;
    let interrupt = Interrupt::install()?;
    let mut session = Session::new(Arc::clone(&whole), args.directory(&whole)?, warnings());
    if args.no_baseline {
        session = session.without_baseline();
    }
    if args.speaks() {
        note!("{}", banner(&whole, simulated));
    }
    let finished = run_session(session, &interrupt, args.speaks(), simulated, drive)?;
    let Finished { summary, tree_bytes, directory, .. } = &finished;
    outcome::show(args, &whole, directory, summary, *tree_bytes, command)?;
    Ok(finished.check_complete()?)
}
