//! `gradvine run`

use gradvine_enrol::{Book, now};
use gradvine_terminal::{Exit, print, print_json};

use super::Folder;

/// The arguments of `gradvine run`
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Show the run: its sites, its digest, its settings
    Show {
        #[command(flatten)]
        folder: Folder,
        /// Print the experiment file
        #[arg(long, conflicts_with_all = ["topology", "json"])]
        experiment: bool,
        /// Print the topology file
        #[arg(long, conflicts_with = "json")]
        topology: bool,
        /// Print the newest version as an object
        #[arg(long)]
        json: bool,
    },
    /// Show all versions of the run: what changed, when, and who agreed
    Log {
        #[command(flatten)]
        folder: Folder,
        /// Print an array
        #[arg(long)]
        json: bool,
    },
}

/// Shows the run of this site.
pub(crate) fn run(args: &Args) -> Result<(), Exit> {
    match &args.command {
        Command::Show { folder, experiment, topology, json } => {
            let book = folder.site()?.book()?;
            let run = book.run();
            if *json {
                return Ok(print_json(run)?);
            }
            if *experiment {
                return Ok(print(&run.experiment)?);
            }
            if *topology {
                let moved = book.notes.addresses();
                return Ok(print(&run.network(&moved)?.to_toml())?);
            }
            Ok(print(&shown(&book))?)
        }
        Command::Log { folder, json } => {
            let book = folder.site()?.book()?;
            match json {
                true => Ok(print_json(&book.history)?),
                false => Ok(print(&log(&book))?),
            }
        }
    }
}

fn shown(book: &Book) -> String {
    let run = book.run();
    let mut text = format!("run {}, version {}, digest {}\n", run.name, run.number, run.digest());
    text += &match run.started {
        true => format!("{} sites, training has started\n", run.members.len()),
        false => format!("{} of {} sites have joined\n", run.members.len(), run.sites),
    };
    for member in &run.members {
        let own = if member.name == book.site { " (this site)" } else { "" };
        text += &format!(
            "  {}{own}  {}\n      {}\n",
            member.name,
            member.peer,
            book.addresses_of(member).join(", ")
        );
    }
    for one in &run.invitations {
        let left = one.expires.saturating_sub(now());
        let until = match left {
            0 => "has expired".to_string(),
            left => format!("expires in {} h", left.div_ceil(3600)),
        };
        text += &format!("  {}  is invited by {}; the ticket {until}\n", one.site, one.by);
    }
    let topology = run.topology.lines().next().unwrap_or_default();
    text += &match run.topology.contains('\n') {
        true => "topology of a file: gradvine run show --topology\n".to_string(),
        false => format!("topology {topology}\n"),
    };
    text += "experiment: gradvine run show --experiment\n";
    if let Some(conflict) = &book.conflict {
        text += &format!("contradiction: {conflict}: gradvine settle\n");
    }
    for one in book.proofs() {
        text += &format!("contradiction: {one}; it is settled: gradvine remove\n");
    }
    text
}

fn log(book: &Book) -> String {
    let mut text = String::new();
    for version in &book.history {
        let run = &version.run;
        text += &format!("{}  {}  {}", run.number, &run.digest()[..12], run.change);
        if let Some(reason) = &run.reason {
            text += &format!(" ({reason})");
        }
        let names: Vec<&str> = version.signatures.keys().map(String::as_str).collect();
        text += &format!("; signed by {}\n", names.join(", "));
    }
    text
}
