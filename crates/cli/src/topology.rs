//! `gradvine topology`

mod check;
mod list;

use std::path::{Path, PathBuf};

use gradvine::{
    config::ConfigError,
    mixing::{self, FileFormat, LinkInfo, Schedule, Topology, Weights},
    units::NodeId,
};

use gradvine_report::topology::{Figures, Rounds};

use gradvine_terminal::{print, print_json};

/// The maximum number of links that `show` lists one by one.
const MAX_LISTED: usize = 40;

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
pub struct Args {
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
    #[command(
        after_help = "Examples:\n  gradvine topology check topologies/*.toml\n  gradvine topology \
                      check net.toml --json"
    )]
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
    }
}

/// Runs the subcommand.
///
/// # Errors
/// [`ConfigError`] if a file or argument is wrong; an I/O error if standard output is closed.
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::List { json } => list::run(json),
        Command::Show { source, schedule, svg, json } => {
            let topology = source.read()?;
            let schedule =
                schedule.map(|name| read_schedule(&name, &topology, source.seed)).transpose()?;
            show(&topology, schedule.as_ref(), svg.as_deref(), json)
        }
        Command::Make { source, out, name } => make(&source, &out, name),
        Command::Check { files, json } => check::run(&files, json),
    }
}

fn read_schedule(name: &str, topology: &Topology, seed: u64) -> Result<Schedule, ConfigError> {
    Schedule::new(name, topology, seed)
        .map_err(|error| ConfigError { place: "--schedule".into(), ..error })
}

fn show(
    topology: &Topology,
    schedule: Option<&Schedule>,
    picture: Option<&Path>,
    json: bool,
) -> anyhow::Result<()> {
    if let Some(path) = picture {
        std::fs::write(path, mixing::svg(topology)).map_err(|error| {
            ConfigError::at("--svg", format!("cannot be written: {error}")).within(path.display())
        })?;
    }
    let mut figures = Figures::of(topology);
    figures.schedule = schedule.map(|schedule| Rounds::of(schedule, topology));
    if json {
        return Ok(print_json(&figures)?);
    }
    let mut text = figures.to_string();
    text += &links(topology);
    text += "\n";
    text += &mixing::draw(topology);
    if let Some(path) = picture {
        text += &format!("\npicture: {}\n", path.display());
    }
    Ok(print(&text)?)
}

fn make(source: &Source, out: &Path, name: Option<String>) -> anyhow::Result<()> {
    FileFormat::expect(out)?;
    let mut topology = source.read()?;
    if let Some(name) = name {
        topology = topology.with_name(name)?;
    }
    topology.write(out)?;
    Ok(print(&format!("{}: {}\n", out.display(), Figures::of(&topology).in_short()))?)
}

/// The links of a small topology, unless they are all alike.
fn links(topology: &Topology) -> String {
    let known = |link: &LinkInfo| link.latency_ms.is_some() || link.bandwidth_mbps.is_some();
    let all: Vec<_> =
        topology.edges().filter_map(|(a, b)| Some((a, b, topology.link(a, b)?))).collect();
    let alike =
        topology.matrix().constant().is_some() && !all.iter().any(|(_, _, link)| known(link));
    if alike || all.len() > MAX_LISTED {
        return String::new();
    }
    let name = |id: NodeId| topology.node(id).name.as_str();
    let words: Vec<String> =
        all.iter().map(|&(a, b, _)| format!("{} - {}", name(a), name(b))).collect();
    let widest = words.iter().map(|word| word.chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "\n  {:<widest$}  {:>9}  {:>11}  {:>12}\n",
        "link", "weight", "one way", "bandwidth"
    );
    for (word, (_, _, link)) in words.iter().zip(&all) {
        let latency = link.latency_ms.map_or_else(|| "-".into(), |ms| format!("{ms} ms"));
        let bandwidth =
            link.bandwidth_mbps.map_or_else(|| "-".into(), |rate| format!("{rate} Mbit/s"));
        text +=
            &format!("  {word:<widest$}  {:>9.6}  {latency:>11}  {bandwidth:>12}\n", link.weight);
    }
    text
}
