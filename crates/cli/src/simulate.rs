//! `gradvine simulate`

use std::path::{Path, PathBuf};

use gradvine::{
    config::ConfigError,
    replay::{replay, simulate},
    run::Summary,
};

use super::{
    Exit, outcome,
    run_args::RunArgs,
    train::{RunResult, watched},
};

/// The arguments of `gradvine simulate`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine simulate                                  the default experiment
  gradvine simulate my.toml --topology hypercube:16
  gradvine simulate --set rule.kind=d-psgd --set compressor.kind=identity --rounds 200
  gradvine simulate --topology topologies/four-regions.toml --set network.compute=measured
  gradvine simulate --set network.preset=4g --set network.compute=fixed --set network.compute_ms=20

The same experiment with the same seed ends with the same digest as `gradvine train`. Latencies and
bandwidths come from the topology file's links, the rest from [network]: preset (ideal, data-center,
ethernet, 4g, 5g, shanghai-boston), latency_ms, bandwidth_mbps, jitter_ms, loss, variation, uplink,
compute. Times in metrics.jsonl and summary.json are virtual; one seed gives one trace.")]
pub struct Args {
    /// Repeat a run whose members changed: the summary of that run.
    #[arg(long, value_name = "SUMMARY")]
    history: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

/// Runs an experiment on a virtual network.
pub fn run(args: Args) -> Result<(), Exit> {
    if let Some(path) = &args.history {
        return repeat(&args.run, path);
    }
    watched(&args.run, "simulate", |whole, watch, _| {
        let simulated = simulate(whole, watch)?;
        Ok(RunResult { ended: simulated.ended, trace: Some(simulated.trace) })
    })
}

/// Repeats a run whose members changed, and compares the digests.
fn repeat(args: &RunArgs, path: &Path) -> Result<(), Exit> {
    let wrong = |problem: String| ConfigError::at("file", problem).within(path.display());
    let text = std::fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let expected: Summary = serde_json::from_slice(&text)
        .map_err(|error| wrong(format!("is not the summary of a run: {error}")))?;
    let whole = args.whole()?;
    let topology = &whole.design.topology;
    let history = expected.history.iter().map(|change| change.numbered(topology));
    let history = history.collect::<Result<Vec<_>, _>>().map_err(|e| e.within(path.display()))?;
    let directory = args.directory(&whole)?;
    let summary = replay(&whole, &history).inspect_err(|_| directory.discard()).map_err(
        |error| match error {
            gradvine::drive::RunError::Setup(error) => Exit::from(error.within(path.display())),
            error => Exit::Failed(error.describe(topology)),
        },
    )?;
    directory.summary(&summary)?;
    match outcome::show(args, &whole, &directory, &summary, None, "simulate") {
        // It is as complete as the run that it repeats.
        Ok(()) | Err(Exit::Short(_)) => {}
        Err(error) => return Err(error),
    }
    match summary.digest == expected.digest {
        true => Ok(()),
        false => Err(Exit::Disagrees(format!(
            "the repeated run ends with the digest {}, that in {} is {}",
            summary.digest,
            path.display(),
            expected.digest
        ))),
    }
}
