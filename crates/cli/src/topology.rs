//! `gradvine topology`

use std::path::{Path, PathBuf};

use gradvine::{
    config::ConfigError,
    mixing::{Schedule, Topology, Weights},
    net::check_deployment,
};
use gradvine_report::topology::{Checks, Figures, Listing, Rounds, sheet, write_file, write_svg};
use gradvine_terminal::{Exit, note, print, print_either};

/// The folder of the topology files, relative to the project.
const FOLDER: &str = "topologies";

/// The arguments of `gradvine topology`
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  \
    gradvine topology list                                     families, weights, schedules, \
    files\n  \
    gradvine topology show ring:16                             how fast sixteen nodes in a ring \
    agree\n  \
    gradvine topology show torus:4x4 --svg torus.svg           the same as a picture, with the \
    spectrum\n  \
    gradvine topology show ring:8 --weights best-constant\n  \
    gradvine topology make random-regular:16:4 net.toml --seed 7\n  \
    gradvine topology make net.toml net.graphml                another format\n  \
    gradvine topology check topologies/*.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// List the families of graphs, the kinds of weights, the schedules and the files in
    /// topologies/
    List {
        /// Print an object
        #[arg(long)]
        json: bool,
    },
    /// Show a topology: spectral gap, mixing time, diameter, a drawing
    #[command(after_help = "Examples:\n  \
        gradvine topology show ring:16\n  \
        gradvine topology show torus:4x4 --svg torus.svg\n  \
        gradvine topology show exponential:16 --schedule one-peer-exponential\n  \
        gradvine topology show net.toml --weights best-constant --json")]
    Show {
        #[command(flatten)]
        source: Source,
        /// Also show a schedule: one-peer-exponential, base-2, random-matching, epidemic:N
        #[arg(long, value_name = "NAME")]
        schedule: Option<String>,
        /// Write a picture of the graph and its spectrum
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Print an object
        #[arg(long)]
        json: bool,
    },
    /// Write a topology file, from a family or from a file in another format
    #[command(after_help = "Examples:\n  \
        gradvine topology make random-regular:16:4 net.toml --seed 7\n  \
        gradvine topology make net.toml net.graphml")]
    Make {
        #[command(flatten)]
        source: Source,
        /// The file to write: .toml, .graphml, .dot, .gv or .csv
        out: PathBuf,
        /// The topology's name in the file
        #[arg(long)]
        name: Option<String>,
    },
    /// Check files; for each invalid one print the place and the problem
    #[command(after_help = "Examples:\n  \
        gradvine topology check topologies/*.toml\n  \
        gradvine topology check net.toml --json")]
    Check {
        /// Topology files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print an array of objects
        #[arg(long)]
        json: bool,
    },
}

/// The source of a topology.
#[derive(clap::Args, Debug)]
struct Source {
    /// A file, or a family with its arguments, such as ring:8 or torus:4x4
    #[arg(value_name = "SPEC|FILE")]
    spec: String,
    /// Other weights: metropolis, max-degree, lazy-metropolis, best-constant or given
    #[arg(long)]
    weights: Option<Weights>,
    /// The seed of a random graph without its own seed, and of a random schedule
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Source {
    fn read(&self) -> Result<Topology, ConfigError> {
        Topology::parse_with(&self.spec, self.weights, self.seed)
            .map_err(|error| error.of_spec("topology", &self.spec))
    }
}

pub(crate) fn run(args: Args) -> Result<(), Exit> {
    match args.command {
        Command::List { json } => {
            let listing = Listing::of(Path::new(FOLDER));
            Ok(print_either(json, || listing.to_json(), || listing.text())?)
        }
        Command::Show { source, schedule, svg, json } => {
            let topology = source.read()?;
            let schedule = schedule.map(|name| Schedule::new(&name, &topology, source.seed));
            let wrong = |error| ConfigError::from(error).with_place("--schedule");
            let schedule = schedule.transpose().map_err(wrong)?;
            svg.iter().try_for_each(|svg| write_svg(svg, &topology))?;
            show(&topology, schedule.as_ref(), svg.as_deref(), json)
        }
        Command::Make { source, out, name } => {
            let figures = Figures::of(&write_file(source.read()?, &out, name)?);
            Ok(print(&format!("{}: {}\n", out.display(), figures.in_short()))?)
        }
        Command::Check { files, json } => check(&files, json),
    }
}

fn show(
    topology: &Topology,
    schedule: Option<&Schedule>,
    picture: Option<&Path>,
    json: bool,
) -> Result<(), Exit> {
    let mut figures = Figures::of(topology);
    figures.schedule = schedule.map(|schedule| Rounds::of(schedule, topology));
    let line = picture.map(|path| format!("\npicture: {}\n", path.display())).unwrap_or_default();
    Ok(print_either(json, || &figures, || sheet(topology, &figures) + &line)?)
}

/// Prints a line for each valid file on standard output, and each problem on standard error.
fn check(files: &[PathBuf], json: bool) -> Result<(), Exit> {
    let checks = Checks::of(files, &check_deployment);
    print_either(json, || checks.to_json(), || checks.text())?;
    let mut errors = checks.into_errors();
    // The caller reports one error: the last of them.
    let Some(last) = errors.pop() else { return Ok(()) };
    for error in errors {
        note!("error: {error}");
    }
    Err(last.into())
}
