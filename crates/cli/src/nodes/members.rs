//! `gradvine members`

use std::path::PathBuf;

use gradvine::run::Members;
use gradvine_report::{members_json, members_text};
use gradvine_terminal::{Exit, print_either};

/// The arguments of `gradvine members`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine members london-run     at a node, while it runs or after it
  gradvine members london-run --json

A run whose absence.policy is \"continue\" continues without nodes that stay away. This shows the
members that the node has agreed on last and, once the run is over, all changes.")]
pub(crate) struct Args {
    /// A run directory
    run: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the members of a run.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let members = Members::load(&args.run)?;
    Ok(print_either(args.json, || members_json(&members), || members_text(&members))?)
}
