//! `gradvine simulate`

use gradvine::sim;

use super::{
    Exit,
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
    #[command(flatten)]
    run: RunArgs,
}

/// Runs an experiment on a virtual network.
pub fn run(args: Args) -> Result<(), Exit> {
    watched(&args.run, "simulate", |whole, watch, _| {
        let simulated = sim::run_on(whole.specs(), &whole.conditions, watch)?;
        Ok(RunResult { ended: simulated.ended, trace: Some(simulated.trace) })
    })
}
