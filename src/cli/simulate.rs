//! `gradvine simulate`

use gradvine::sim;

use super::{Exit, run_args::RunArgs, train::watched};

/// The arguments of `gradvine simulate`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine simulate                                  the default experiment
  gradvine simulate my.toml --topology hypercube:16
  gradvine simulate --set rule.kind=d-psgd --set compressor.kind=identity --rounds 200

The same experiment with the same seed ends with the same digest as `gradvine train`.")]
pub struct Args {
    #[command(flatten)]
    run: RunArgs,
}

/// Runs an experiment on an ideal virtual network.
pub fn run(args: Args) -> Result<(), Exit> {
    watched(&args.run, "simulate", |whole, watch| sim::run(whole.seats(), watch))
}
