//! `gradvine simulate`

use std::path::PathBuf;

use gradvine::{
    config::ConfigError,
    run::{Summary, experiment_of},
    simulation::simulate,
};
use gradvine_terminal::{Exit, Interrupt};

use super::{again::run_again, faulty, run_args::RunArgs, stages, train::watched};

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
    /// or settings are given, the experiment is the one in it. Of a folder of a site: all stages of
    /// its run, with the rows of all sites
    #[arg(long, value_name = "RUN|SITE")]
    history: Option<PathBuf>,
    /// With the folder of a site: the rows of another one; may be repeated
    #[arg(long, value_name = "SITE=FILE", requires = "history")]
    rows: Vec<String>,
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
        if stages::is_site(path) {
            return stages::run(&args.run, path, &args.rows, &Interrupt::install()?);
        }
        if let Some(rows) = args.rows.first() {
            let problem = format!("{} is no folder of a site", path.display());
            return Err(ConfigError::new("--rows", rows, problem).into());
        }
        if path.is_dir() {
            path.push("summary.json");
        }
        if !path.is_file() {
            let problem = "no such file; expected a run directory, its summary.json, or the folder \
                           of a site";
            return Err(ConfigError::new("--history", path.display(), problem).into());
        }
        let expected = Summary::read(path)?;
        args.run.select.experiment = experiment_of(&args.run.select.selection(), path)?;
        return run_again(&args.run, &expected, path, &Interrupt::install()?).map(drop);
    }
    if let Some(faults) = &args.faults {
        return faulty::run(&args.run, faults);
    }
    watched(&args.run, "simulate", |whole, watch, _| Ok(simulate(whole, watch)?.into()))
}
