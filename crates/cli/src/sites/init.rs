//! `gradvine init`

use std::{fs, path::Path};

use gradvine::{
    config::ConfigError,
    data::Options,
    experiment::Experiment,
    mixing::{FileFormat, Topology},
    net::VERSION,
    units::NodeId,
};
use gradvine_enrol::{Book, Consent, FAMILIES, FORMAT, Run, check_name, now};
use gradvine_tables::{describe, draft, guesses};
use gradvine_terminal::{Exit, note, print, show_reading};

use super::{
    Folder, asked,
    place::{Place, found_addresses, machine, warn_of},
    rows::{self, check_rows},
};

/// The arguments of `gradvine init`
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  gradvine init hospitals --data rows.csv --target diagnosis --sites 5
  gradvine init hospitals --data rows.csv --from experiment.toml --topology four-regions.toml

It makes the key and the node file of this site, and a run that has this site as its only member.
Without --from it drafts an experiment from the columns of the rows: read it with
`gradvine run show` before you invite others. Then `gradvine start`, and for each other site
`gradvine invite SITE`. Training begins once all sites have joined.")]
pub(crate) struct Args {
    /// The name of the run
    name: String,
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    place: Place,
    /// The name of this site [default: this machine's]
    #[arg(long, value_name = "SITE")]
    site: Option<String>,
    /// The column to predict, by name or position [default: the last]
    #[arg(long, value_name = "COLUMN", conflicts_with = "from")]
    target: Option<String>,
    /// With how many sites training begins [default: as many as a topology file has]
    #[arg(long, value_name = "N")]
    sites: Option<usize>,
    /// An experiment file, instead of a draft
    #[arg(long, value_name = "FILE")]
    from: Option<std::path::PathBuf>,
    /// Settings of the experiment
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Who links to whom: a family of graphs that fits any number of sites, or a topology file that
    /// names all sites
    #[arg(long, value_name = "FAMILY|FILE", default_value = "ring")]
    topology: String,
    /// Who must agree to later changes
    #[arg(long, value_name = "WHO", default_value = "majority")]
    consent: Who,
}

/// Who must agree to changes.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Who {
    /// More than half of the sites
    Majority,
    /// All sites
    All,
}

/// Makes a run with this site.
pub(crate) fn run(args: Args) -> Result<(), Exit> {
    check_name(&args.name).map_err(|why| ConfigError::at("NAME", why))?;
    let site = match args.site.clone().or_else(machine) {
        Some(site) => site,
        None => asked(None, "--site", "what is this site called?")?,
    };
    check_name(&site).map_err(|why| ConfigError::at("--site", why))?;
    if gradvine_enrol::Site::has_run(&args.folder.dir) {
        let problem = "this folder holds a run already: name another folder";
        return Err(ConfigError::new("--dir", args.folder.dir.display(), problem).into());
    }
    let data = asked(args.place.data.clone(), "--data", "which file has this site's rows?")?;
    let place = Place { data: Some(data.clone()), ..args.place };
    let (topology, sites) = topology(&args.topology, &site, args.sites)?;
    show_reading();
    let experiment = experiment(&args.from, &data, args.target.as_ref(), &args.set)?;
    let given = place.addresses()?;
    let own = place.make(&args.folder.dir, &format!("site {site} in the run {}", args.name))?;
    let listen = gradvine::run::NodeFile::load(&own.node())?.listen;
    let addresses = if given.is_empty() { found_addresses(&listen) } else { given.clone() };
    let run = Run {
        format: FORMAT,
        id: random_id(),
        name: args.name,
        number: 1,
        previous: None,
        time: now(),
        change: format!("{site} makes the run"),
        reason: None,
        wire: VERSION,
        consent: match args.consent {
            Who::Majority => Consent::Majority,
            Who::All => Consent::All,
        },
        founder: site.clone(),
        sites,
        started: false,
        topology,
        experiment: experiment.to_toml(),
        members: vec![own.member(&site, addresses.clone())],
        invitations: Vec::new(),
        admissions: Vec::new(),
    };
    let version = own.sign(&site, run);
    version.check(None).map_err(|why| ConfigError::at("run", why))?;
    let book = Book { addresses: given, ..Book::new(&site, own.peer(), vec![version]) };
    check_rows(&own, &book.run().experiment, &data)?;
    own.begin(&book)?;
    warn_of(&addresses);
    let run = book.run();
    Ok(print(&format!(
        "{}it is reached at {}\n\nnext:\n  \
         gradvine run show --experiment   read it: it stays so until training starts\n  \
         gradvine start                   here, and leave it running\n  \
         gradvine invite SITE...          {} more\n",
        rows::describe(run)?,
        addresses.join(", "),
        run.sites - 1
    ))?)
}

/// A random name of a run: 32 hexadecimal digits.
fn random_id() -> String {
    let bytes = gradvine::net::Keypair::generate_ed25519().derive_secret(b"gradvine run");
    let bytes = bytes.expect("an Ed25519 key has a secret");
    bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The topology of the document, and the number of sites.
fn topology(text: &str, site: &str, sites: Option<usize>) -> Result<(String, usize), Exit> {
    let path = Path::new(text);
    if !path.is_file() {
        if !FAMILIES.contains(&text) {
            let problem = format!(
                "expected one of {}, or a topology file that names all sites",
                FAMILIES.join(", ")
            );
            return Err(ConfigError::new("--topology", text, problem).into());
        }
        let sites = match sites {
            Some(sites) => sites,
            None => {
                let answer =
                    asked(None, "--sites", "how many sites will take part, with this one?")?;
                answer
                    .parse()
                    .map_err(|_| ConfigError::new("--sites", answer, "expected a number"))?
            }
        };
        if !(2..=gradvine_enrol::MOST_SITES).contains(&sites) {
            let problem = format!("expected 2 to {}", gradvine_enrol::MOST_SITES);
            return Err(ConfigError::new("--sites", sites, problem).into());
        }
        return Ok((text.into(), sites));
    }
    let topology = Topology::load(path).map_err(ConfigError::from)?;
    if topology.find(site).is_none() {
        let names: Vec<&str> = (0..topology.nodes())
            .map(|node| topology.node(NodeId::from(node)).name.as_str())
            .collect();
        let problem = format!("expected a node of {text}: {}", names.join(", "));
        return Err(ConfigError::new("--site", site, problem).into());
    }
    if let Some(sites) = sites.filter(|sites| *sites != topology.nodes()) {
        let problem = format!("{text} names {} sites", topology.nodes());
        return Err(ConfigError::new("--sites", sites, problem).into());
    }
    Ok((topology.to_text(FileFormat::Toml), topology.nodes()))
}

/// The experiment of a file, or a draft from the columns of the rows.
fn experiment(
    from: &Option<std::path::PathBuf>,
    data: &str,
    target: Option<&String>,
    sets: &[String],
) -> Result<Experiment, ConfigError> {
    let mut experiment = match from {
        Some(file) => Experiment::load(file, sets)?,
        None => {
            let options = Options { target: target.cloned(), ..Options::default() };
            let names = [("data.target", "--target"), ("data.source", "--data")];
            let described = describe(data, &options)
                .map_err(|error| ConfigError::from(error).renamed(&names))?;
            for (column, (_, remark)) in described.columns.iter().zip(guesses(&described)) {
                if let Some(remark) = remark {
                    note!("column {}: {remark}", column.name);
                }
            }
            Experiment::parse(&draft(&described, data), sets)?
        }
    };
    // Each site has its own rows, and the topology is that of the run.
    let neutral = Experiment::parse("", &[])?;
    experiment.data.source = neutral.data.source;
    (experiment.data.sources, experiment.data.sizes) = (None, None);
    experiment.topology = neutral.topology;
    Ok(experiment)
}

/// Reads a topology file as the document has it.
pub(super) fn topology_text(path: &Path) -> Result<String, ConfigError> {
    match fs::metadata(path) {
        Ok(_) => Ok(Topology::load(path)?.to_text(FileFormat::Toml)),
        Err(_) if FAMILIES.contains(&path.to_string_lossy().as_ref()) => {
            Ok(path.to_string_lossy().into())
        }
        Err(error) => Err(ConfigError::new("--topology", path.display(), error.to_string())),
    }
}
