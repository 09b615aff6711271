//! `gradvine identity`

use std::path::PathBuf;

use gradvine::net::identity;
use gradvine_terminal::{Exit, print_either};
use serde_json::json;

/// The arguments of `gradvine identity`
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  gradvine identity new london.key      makes a key and prints its \
                  PeerId, for the topology file\n  gradvine identity show london.key     prints \
                  the PeerId again"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Make a key file (readable by its owner only) and print its PeerId
    New {
        /// The file to make; it must not exist
        file: PathBuf,
        /// Print an object
        #[arg(long)]
        json: bool,
    },
    /// Print the PeerId of a key file
    Show {
        /// The key file
        file: PathBuf,
        /// Print an object
        #[arg(long)]
        json: bool,
    },
}

/// Creates or reads a key.
pub(crate) fn run(args: Args) -> Result<(), Exit> {
    let (key, file, json) = match args.command {
        Command::New { file, json } => (identity::create(&file)?, file, json),
        Command::Show { file, json } => (identity::load(&file)?, file, json),
    };
    let peer = key.public().to_peer_id().to_string();
    let object = || json!({ "file": file, "peer": peer });
    Ok(print_either(json, object, || format!("{peer}\n"))?)
}
