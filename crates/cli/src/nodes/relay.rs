//! `gradvine relay`

use std::path::PathBuf;

use gradvine::net::{Relay, RelayEvent, RelayFile};
use gradvine_terminal::{Exit, Interrupt, note, print};

/// The arguments of `gradvine relay`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
RELAY.toml (paths are relative to it):
  key        = \"relay.key\"                   made by `gradvine identity new`
  listen     = [\"/ip4/0.0.0.0/tcp/4100\"]     addresses that the nodes can reach
  topologies = [\"four-regions.toml\"]         the nodes that it serves
  link_mbps  = 100.0                         the most for a link, in each direction
  total_mbps = 1000.0                        the most for all links together

It prints the addresses to give nodes without a public address in the topology. Such nodes reserve a
place at the relay when they start; their neighbours reach them there, and the two try to connect
directly (hole punching). If that fails, the link stays on the relay if the experiment says
run.relayed = true. Links are encrypted end to end; the relay sees lengths and times only.

Examples:
  gradvine relay relay.toml

`gradvine files relay` explains every key. It runs until it is interrupted.")]
pub(crate) struct Args {
    /// The relay's file
    relay: PathBuf,
    /// Print the addresses only, no events
    #[arg(long, short)]
    quiet: bool,
    /// How lines on standard error are written
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: super::Format,
}

/// Runs a relay until it is interrupted.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let file = RelayFile::load(&args.relay)?;
    let relay = Relay::start(&file).map_err(|error| error.within(args.relay.display()))?;
    let interrupt = Interrupt::install()?;
    print(&relay.describe())?;
    let show = |event: RelayEvent| {
        if !args.quiet {
            note!("{event}");
        }
    };
    relay.run(show, || interrupt.is_set());
    Ok(())
}
