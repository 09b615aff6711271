//! `gradvine leave`

use std::{path::PathBuf, time::Duration};

use gradvine::run;
use gradvine_terminal::{Exit, print};

/// The arguments of `gradvine leave`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine leave london.toml      on the machine where `gradvine node london.toml` runs

The others continue without the node at once: their links share its weights. This needs
absence.policy = \"continue\" and enough nodes for a quorum. The node's process ends with
exit code 0; start it again with `gradvine node` to return.")]
pub(crate) struct Args {
    /// The node's file
    node: PathBuf,
    /// The run directory of the node, if it is not the file's
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Wait so many seconds for the node to end
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    within: u64,
}

/// Asks a node to leave its run.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let within = Duration::from_secs(args.within);
    let folder = run::leave(&args.node, args.out.as_deref(), within)?;
    Ok(print(&format!(
        "the node has left its run; its model is in {}\nto return: gradvine node {}\n",
        folder.display(),
        args.node.display()
    ))?)
}
