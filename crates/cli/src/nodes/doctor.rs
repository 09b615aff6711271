//! `gradvine doctor`

use std::{ops::RangeInclusive, path::PathBuf, time::Duration};

use clap::builder::RangedU64ValueParser;
use gradvine_doctor::{Options, examine};
use gradvine_terminal::{Exit, output_width, print_either};

/// The arguments of `gradvine doctor`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
It examines what a run needs and says what to do: the node's files, data, disk, ports and the
settings of the system; then each neighbour at each address: the connection, its encryption, the
round trip, the rate each way, the clock, a NAT on the way; and from these the time of a round.

It takes the node's place: stop the node first. The neighbours may wait in `gradvine node`, or run
`gradvine doctor` at the same time.

Examples:
  gradvine doctor london.toml
  gradvine doctor london.toml --offline                files and machine only
  gradvine doctor london.toml --measure measured.toml  then: gradvine plan --topology measured.toml

Exit codes: 0 nothing prevents a run; 2 something does.")]
pub(crate) struct Args {
    /// The node's file
    node: PathBuf,
    /// Write the topology with the measured latencies and rates of this node's links; figures that
    /// other nodes have written into the file stay
    #[arg(long, value_name = "FILE")]
    measure: Option<PathBuf>,
    /// Seconds to wait for neighbours that do not answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds(0..=3600))]
    wait: u16,
    /// Seconds to send over each link, each way
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = seconds(1..=20))]
    send: u16,
    /// Examine files and machine only
    #[arg(long, conflicts_with = "measure")]
    offline: bool,
    /// Print the report as JSON on standard output, and nothing else there
    #[arg(long)]
    json: bool,
}

fn seconds(range: RangeInclusive<u64>) -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(range)
}

/// Examines a node and prints what was found.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let options = Options {
        wait: Duration::from_secs(args.wait.into()),
        send: Duration::from_secs(args.send.into()),
        offline: args.offline,
    };
    let report = examine(&args.node, options).map_err(|error| Exit::Config(error.to_string()))?;
    print_either(args.json, || &report, || report.text(output_width()))?;
    if let Some(file) = &args.measure {
        report.write_measured(file)?;
    }
    let wrong = || Exit::Config("something prevents a run: see above".into());
    report.is_fine().then_some(()).ok_or_else(wrong)
}
