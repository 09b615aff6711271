//! `gradvine simulate`

use std::path::{Path, PathBuf};

use gradvine::{
    drive::RunError,
    replay::{difference, experiment_of, history_of, replay, simulate},
    run::Summary,
};
use gradvine_terminal::Exit;

use super::{faulty, outcome, run_args::RunArgs, train::watched};

/// The arguments of `gradvine simulate`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine simulate                                  the default experiment
  gradvine simulate my.toml --topology hypercube:16
  gradvine simulate --set rule.kind=d-psgd --set compressor.kind=identity --rounds 200
  gradvine simulate --topology topologies/four-regions.toml --set network.compute=measured
  gradvine simulate --set network.preset=4g --set network.compute=fixed --set network.compute_ms=20
  gradvine simulate --set checkpoint.every_rounds=10 --faults seed:7

The same experiment with the same seed ends with the same digest as `gradvine train`. Latencies and
bandwidths come from the topology file's links, the rest from [network]: preset (ideal, data-center,
ethernet, 4g, 5g, shanghai-boston), latency_ms, bandwidth_mbps, jitter_ms, loss, variation, uplink,
compute. Times in metrics.jsonl and summary.json are virtual; one seed gives one trace.")]
pub(crate) struct Args {
    /// Repeat a run whose members changed: its run directory, or its summary. Unless an experiment
    /// or settings are given, the experiment is the one in it.
    #[arg(long, value_name = "RUN")]
    history: Option<PathBuf>,
    /// What goes wrong: a file with [[fault]] tables, or seed:N for faults drawn from a number.
    /// Prints what each node decides and when, and what it costs
    #[arg(long, value_name = "FILE|seed:N", conflicts_with = "history")]
    faults: Option<String>,
    #[command(flatten)]
    run: RunArgs,
}

/// Runs an experiment on a virtual network.
pub(crate) fn run(mut args: Args) -> Result<(), Exit> {
    if let Some(path) = &mut args.history {
        if path.is_dir() {
            path.push("summary.json");
        }
        let expected = Summary::read(path)?;
        args.run.select.experiment = experiment_of(&args.run.select.selection(), path)?;
        return run_again(&args.run, &expected, path);
    }
    if let Some(faults) = &args.faults {
        return faulty::run(&args.run, faults);
    }
    watched(&args.run, "simulate", |whole, watch, _| Ok(simulate(whole, watch)?.into()))
}

/// Repeats a run whose members changed, and compares the digests.
fn run_again(args: &RunArgs, expected: &Summary, path: &Path) -> Result<(), Exit> {
    let whole = args.whole()?;
    let history = history_of(expected, &whole.design.topology);
    let history = history.map_err(|error| error.within(path.display()))?;
    let directory = args.directory(&whole)?;
    let repeated = replay(&whole, &history).inspect_err(|_| directory.discard());
    let summary = repeated.map_err(|error| match error {
        RunError::Setup(error) => Exit::from(error.within(path.display())),
        error => Exit::Failed(error.describe(&whole.design.topology)),
    })?;
    directory.summary(&summary)?;
    match outcome::show(args, &whole, directory.path(), &summary, 0, "simulate") {
        // It is as complete as the run that it repeats.
        Ok(()) | Err(Exit::Short(_)) => {}
        Err(error) => return Err(error),
    }
    difference(&summary, expected, path).map_or(Ok(()), |why| Err(Exit::Disagrees(why)))
}
