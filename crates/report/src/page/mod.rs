//! Runs as one page: the page that nodes serve, with the data of the runs inside. It needs no
//! network and no other file.
//!
//! Of one run it shows what a node's page shows, and how good the model is. Several runs are
//! compared: curves of each, with a band over its nodes, final figures, settings that differ; each
//! can be chosen. The page contains no dates of its own: the same run directories give the same
//! bytes. Its size is bounded for any runs: curves are thinned and tables are cut, and it says
//! where.
//!
//! | file | makes |
//! |---|---|
//! | `loaded` | [`Loaded`]: a run with the curves of its nodes |
//! | `state` | what is known of a run and its nodes, as of a network |
//! | `lines` | curves of runs, and of seeds together |
//! | `quality` | how good the models are on test rows: nodes, classes, confusion matrix |
//! | `characteristics` | curves of ROC and calibration |
//! | `traffic` | bytes of nodes and links |
//! | `graph` | topologies and their spectra |
//! | `tables` | final figures; settings that differ between the runs |
//! | `notes` | what matters for the comparison of figures |
//! | `pictures` | curves as SVG files |
//! | `words` | numbers and names |
//! | `write` | the files |

mod characteristics;
mod graph;
mod lines;
mod loaded;
mod notes;
mod pictures;
mod quality;
mod state;
mod tables;
mod traffic;
mod words;
mod write;

pub use loaded::Loaded;
pub use pictures::Picture;
pub use write::{check_named_once, check_replaceable};

use gradvine::run::{Run, Summary};
use gradvine_page::{Block, Curves, Network, Section, Series, VERSION, written};
use serde::Serialize;

use words::{count, number, percent, short, visible};

/// The maximum number of lines of a picture of runs, and of columns of the differences.
const MOST_CURVES: usize = 24;
/// The maximum number of runs of which the page has more than a row.
const MOST_RUNS: usize = 200;
/// The maximum number of nodes that are drawn; of others the tables say how many there are.
const MOST_NODES: usize = 512;
/// A longer experiment file is cut, in characters.
const LONGEST_FILE: usize = 65_536;

/// A page and its pictures.
#[derive(Clone, Debug)]
pub struct Page {
    /// A complete HTML page that loads nothing.
    pub html: String,
    /// The curves on it as pictures.
    pub pictures: Vec<Picture>,
    /// The number of runs on it.
    pub runs: usize,
}

/// What the page reads.
#[derive(Serialize)]
struct Data {
    version: u32,
    /// What the page was made from.
    about: String,
    runs: Vec<One>,
    /// All runs compared; `None` of a single run.
    all: Option<All>,
}

/// A run on the page.
#[derive(Serialize)]
struct One {
    name: String,
    status: Network,
    curves: Curves,
    /// Its figures over all nodes.
    whole: Series,
    /// Rounds after which its members changed.
    marks: Vec<u64>,
    first: Vec<Section>,
    /// Sections beside its network.
    beside: Vec<Section>,
    rest: Vec<Section>,
}

/// All runs on the page.
#[derive(Serialize)]
struct All {
    status: Network,
    curves: Curves,
    marks: Vec<u64>,
    /// One line for each group of runs in which only the seeds differ; empty without such a group.
    groups: Vec<Series>,
    first: Vec<Section>,
    beside: Vec<Section>,
    rest: Vec<Section>,
}

/// The page of some runs, in their order.
///
/// # Panics
/// If there are none.
pub fn page(mut loaded: Vec<Loaded>) -> Page {
    assert!(!loaded.is_empty(), "a page shows at least one run");
    distinguish(&mut loaded);
    let runs: Vec<&Run> = loaded.iter().map(|loaded| &loaded.run).collect();
    let directories = if runs.len() == 1 { "directory" } else { "directories" };
    let data = Data {
        version: VERSION,
        about: format!(
            "Made by gradvine {} from {} run {directories}.",
            env!("CARGO_PKG_VERSION"),
            words::grouped(runs.len() as u64)
        ),
        runs: loaded.iter().take(MOST_RUNS).map(|one| self::one(one, loaded.len())).collect(),
        all: (runs.len() > 1).then(|| all(&runs)),
    };
    let pictures = pictures::pictures(&runs);
    Page { html: written(&data), pictures, runs: runs.len() }
}

/// Uses paths as names for runs whose folders have the same name. No name has a character that
/// pages cannot show.
fn distinguish(loaded: &mut [Loaded]) {
    let names: Vec<String> = loaded.iter().map(|loaded| loaded.run.name.clone()).collect();
    for Loaded { run, .. } in loaded {
        if names.iter().filter(|name| **name == run.name).count() > 1 {
            run.name = run.path.display().to_string();
        }
        run.name = visible(&run.name);
    }
}

/// A run that is one of so many.
fn one(loaded: &Loaded, runs: usize) -> One {
    let run = &loaded.run;
    let changes = run.summary.iter().flat_map(|summary| &summary.history);
    let whole = match run.last.len() {
        known if known < run.topology.nodes() => format!("mean of {}", count(known, "node")),
        _ => "all nodes".to_string(),
    };
    let only = std::slice::from_ref(&run);
    let notes = notes::notes(only).map(|notes| section("notes", "Notes", vec![notes]));
    let figures = vec![Block::Table(tables::summary(only)), Block::Text { text: about(run, runs) }];
    let mut rest = vec![section("quality", "How good the model is", quality::blocks(run))];
    rest.push(section("traffic", "Bytes", traffic::blocks(run)));
    rest.push(section("topology", "Topology", graph::blocks(run)));
    rest.push(section("settings", "Settings", vec![settings(run)]));
    One {
        name: run.name.clone(),
        status: state::network(run),
        curves: loaded.curves(runs),
        whole: lines::whole(run, &whole, runs),
        marks: changes.map(|change| change.round).collect(),
        first: notes.into_iter().collect(),
        beside: vec![section("run", "The run", figures)],
        rest,
    }
}

/// All runs compared.
fn all(runs: &[&Run]) -> All {
    let mut first = vec![Block::Table(tables::summary(runs))];
    first.push(Block::Text {
        text: "* the best of its column among runs that came to their end. Lower is better for \
               losses, distances and bytes. The band of a curve reaches from the least to the \
               greatest of the run's nodes; of seeds it is the 95 % interval of their mean."
            .into(),
    });
    first.extend(notes::notes(runs));
    let differences = match tables::differences(runs) {
        Some(table) => Block::Table(table),
        None => Block::Text { text: "Nothing: all settings and topologies are the same.".into() },
    };
    let groups = lines::groups(runs);
    let mut sentence = format!("{} compared", count(runs.len(), "run"));
    if runs.len() > MOST_RUNS {
        sentence += &format!(": curves of the first {MOST_RUNS}");
    }
    All {
        status: state::of_all(&sentence),
        curves: Curves::default(),
        marks: Vec::new(),
        groups,
        first: vec![section("runs", "The runs", first)],
        beside: Vec::new(),
        rest: vec![section("differences", "What differs", vec![differences])],
    }
}

fn section(id: &'static str, title: &str, blocks: Vec<Block>) -> Section {
    Section { id, title: title.into(), blocks }
}

/// What a run was, in sentences; it is one of so many.
fn about(run: &Run, runs: usize) -> String {
    let mut text = format!("{}.", run.path.display());
    let most = lines::most(runs);
    if run.points.len() > most {
        text += &format!(" Curves are thinned to {most} points that keep the peaks of the loss.");
    }
    let Some(summary) = &run.summary else { return text };
    let Summary { parameters, nodes, pooled, digest, .. } = summary;
    text += &format!(" {} on {}.", count(*parameters, "parameter"), count(*nodes, "node"));
    if let Some(pooled) = pooled {
        let accuracy = pooled
            .test_accuracy
            .map_or_else(String::new, |share| format!(", test accuracy {}", percent(share)));
        text += &format!(
            " Plain SGD on all rows in one place: training loss {}{accuracy}.",
            number(pooled.train_loss)
        );
    }
    if !digest.is_empty() {
        text += &format!(" Digest {}.", short(digest, 128));
    }
    text
}

fn settings(run: &Run) -> Block {
    let mut text = run.experiment.to_toml();
    if text.chars().count() > LONGEST_FILE {
        text = short(&text, LONGEST_FILE) + "\n# The rest is in the run directory.\n";
    }
    Block::File { title: "experiment.toml with all its defaults".into(), text }
}
