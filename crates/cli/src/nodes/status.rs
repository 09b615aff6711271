//! `gradvine status`

use std::path::{Path, PathBuf};

use gradvine_terminal::{Exit, output_width, print, print_json};
use gradvine_watch::{Network, Token, Unread, live, old, read, table};

/// The node file that is meant where none is named.
const DEFAULT: &str = "node.toml";

/// The arguments of `gradvine status`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine status node.toml            a node on this machine, which runs or has ended
  gradvine status 127.0.0.1:9470       a node that serves its page ([status] listen)
  gradvine status node.toml --watch    again once a second, with keys
  gradvine status node.toml --json     for programs; `holding_up` names who is waited for

Each node knows the last state of all, so any node will do. The worst comes first.

Exit codes:
  0    the run trains, or has ended
  2    an argument or a file is wrong
  3    a node delays the run, or the run has not started
  4    the run has failed, or nothing is known of it: the node does not run")]
pub(crate) struct Args {
    /// The node's file, its run folder, or the address of its page [default: node.toml]
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Draw it again once a second, until q is pressed
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// A file with the token that the page asks for
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
}

/// Prints what a node knows of its run.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    let token = args.token.as_deref().map(Token::load).transpose();
    let token = token.map_err(|error| error.with_place("--token"))?;
    let of = match &args.node {
        Some(node) => node.as_str(),
        None if Path::new(DEFAULT).is_file() => DEFAULT,
        None => {
            return Err(Exit::Config(format!(
                "there is no {DEFAULT} here: name a node file, a run folder or an address"
            )));
        }
    };
    if args.watch {
        let mut look = || read(of, token.as_ref()).map_err(|error| error.to_string());
        return live(&mut look).map_err(|error| Exit::Failed(format!("--watch: {error}")));
    }
    let network = read(of, token.as_ref()).map_err(|error| match error {
        Unread::Config(error) => Exit::Config(error.to_string()),
        Unread::Nothing(text) => Exit::Failed(text),
    })?;
    match args.json {
        true => print_json(&network)?,
        false => print(&table(&network, output_width()))?,
    }
    judge(&network)
}

/// The exit code that a script needs.
fn judge(network: &Network) -> Result<(), Exit> {
    if let Some(age) = old(network) {
        let node = &network.node;
        return Err(Exit::Failed(format!(
            "node {node} does not run: it wrote this {age} s ago, and the run was not over"
        )));
    }
    match network.state.as_str() {
        "training" | "finishing" | "done" => Ok(()),
        "failed" | "stopped" => Err(Exit::Failed(network.sentence.clone())),
        _ => Err(Exit::Short(network.sentence.clone())),
    }
}
