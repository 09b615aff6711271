//! `gradvine doctor`

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::builder::RangedU64ValueParser;
use gradvine::{config::ConfigError, mixing::Topology, units::NodeId};
use gradvine_doctor::{Options, Report, examine};
use gradvine_terminal::{print, print_json};

use super::Exit;

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
  gradvine doctor london.toml --offline                   files and machine only
  gradvine doctor london.toml --measure measured.toml     then: gradvine plan --topology measured.toml

Exit codes: 0 nothing prevents a run; 2 something does.")]
pub struct Args {
    /// The node's file
    node: PathBuf,
    /// Write the topology with the measured latencies and rates of this node's links; figures that
    /// other nodes have written into the file stay
    #[arg(long, value_name = "FILE")]
    measure: Option<PathBuf>,
    /// Seconds to wait for neighbours that do not answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = up_to_an_hour())]
    wait: u16,
    /// Seconds to send over each link, each way
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = from_1_to_20())]
    send: u16,
    /// Examine files and machine only
    #[arg(long, conflicts_with = "measure")]
    offline: bool,
    /// Print the report as JSON on standard output, and nothing else there
    #[arg(long)]
    json: bool,
}

fn up_to_an_hour() -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(0..=3600)
}

fn from_1_to_20() -> RangedU64ValueParser<u16> {
    RangedU64ValueParser::new().range(1..=20)
}

/// Examines a node and prints what was found.
pub fn run(args: &Args) -> Result<(), Exit> {
    let options = Options {
        wait: Duration::from_secs(args.wait.into()),
        send: Duration::from_secs(args.send.into()),
        offline: args.offline,
    };
    let report = examine(&args.node, options).map_err(|error| Exit::Config(error.to_string()))?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.text())?;
    }
    if let Some(file) = &args.measure {
        write_measured(file, &report)?;
    }
    if report.is_fine() {
        Ok(())
    } else {
        Err(Exit::Config("something prevents a run: see above".into()))
    }
}

/// Writes the measured figures into a topology file, which may have those of other nodes.
fn write_measured(file: &Path, report: &Report) -> Result<(), Exit> {
    let Some(own) = &report.topology else {
        let problem = "not written: not all neighbours were reached";
        return Err(ConfigError::new("--measure", file.display(), problem).into());
    };
    let mut topology = if file.exists() { Topology::load(file)? } else { own.clone() };
    let names = |topology: &Topology| -> Vec<String> {
        (0..topology.nodes()).map(|node| topology.node(NodeId::from(node)).name.clone()).collect()
    };
    if names(&topology) != names(own) {
        let problem = "it holds another topology: name a new file";
        return Err(ConfigError::new("--measure", file.display(), problem).into());
    }
    let node = report.node.as_ref().and_then(|name| {
        (0..own.nodes()).map(NodeId::from).find(|&node| own.node(node).name == *name)
    });
    for neighbour in &report.neighbours {
        let pair = node.map(|node| (node, neighbour.node));
        let figures = pair.and_then(|(a, b)| own.link(a, b));
        if let (Some(pair), Some(figures)) = (pair, figures)
            && let (Some(latency), Some(rate)) = (figures.latency_ms, figures.bandwidth_mbps)
        {
            topology = topology.with_link(pair, latency, rate)?;
        }
    }
    topology.write(file)?;
    Ok(())
}
