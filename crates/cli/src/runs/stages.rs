//! `gradvine simulate --history SITE`: the stages of a signed run again, one after the other.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf, absolute},
};

use gradvine::{
    config::ConfigError,
    experiment::Experiment,
    learn::Init,
    run::{NodeFile, Summary},
};
use gradvine_enrol::{Book, Run, check_history, read_book};
use gradvine_terminal::{Exit, Interrupt, note};

use super::{again::run_again, run_args::RunArgs};
use crate::sites::{aside, model_in};

/// The experiment of a run directory.
const EXPERIMENT: &str = "experiment.toml";

/// A stage that this site has trained.
struct Trained<'a> {
    run: &'a Run,
    folder: PathBuf,
    /// Whether its nodes ended it together, with a mean.
    has_mean: bool,
    /// The rounds that it has done.
    rounds: u64,
}

/// Whether this folder is one of a site.
pub(super) fn is_site(folder: &Path) -> bool {
    folder.join("run.json").is_file() && folder.join("node.toml").is_file()
}

/// Repeats all stages of the run of the site in this folder. `rows` names the rows of other sites:
/// `SITE=FILE`.
pub(super) fn run(
    args: &RunArgs,
    folder: &Path,
    rows: &[String],
    interrupt: &Interrupt,
) -> Result<(), Exit> {
    let named = args.select.experiment.is_some() || args.select.topology.is_some();
    if named || args.select.init.is_some() || args.select.rounds.is_some() {
        let problem = "the run of a site has its own experiments, topologies, models and rounds";
        return Err(ConfigError::new("--history", folder.display(), problem).into());
    }
    let file = NodeFile::load(&folder.join("node.toml"))?;
    let book = read(folder)?;
    let rows = rows_of(&file, &book, rows)?;
    let stages = trained(&book, &file.out)?;
    let out = args.out.clone().unwrap_or_else(|| format!("{}-again", book.run().name).into());
    let out = absolute(&out).map_err(|error| {
        ConfigError::new("--out", out.display(), format!("is no path: {error}"))
    })?;
    let mut models: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut same = 0;
    for (place, stage) in stages.iter().enumerate() {
        let number = stage.run.number;
        if !stage.has_mean {
            note!(
                "stage {number} was cut off after round {}, without a mean: it cannot be repeated",
                stage.rounds
            );
            continue;
        }
        let before = place.checked_sub(1).map(|before| &stages[before]);
        let first = first_model(&book, stage, before, &models)?;
        let again = arguments(args, stage, first.as_deref(), &rows, &out)?;
        if args.speaks() {
            let sites = stage.run.members.iter().map(|member| member.name.as_str());
            let sites = sites.collect::<Vec<_>>().join(", ");
            note!("stage {number}, {} rounds: {sites}", stage.rounds);
        }
        let path = stage.folder.join("summary.json");
        let ended = run_again(&again, &Summary::read(&path)?, &path, interrupt)?;
        models.insert(number, ended.join("model-mean.safetensors"));
        same += 1;
    }
    if args.speaks() {
        note!("{same} of {} stages end with the digests that the sites had", stages.len());
    }
    Ok(())
}

/// The book of the site in this folder; no key is needed to read it.
fn read(folder: &Path) -> Result<Book, ConfigError> {
    let path = folder.join("run.json");
    let wrong = |problem: String| ConfigError::at("--history", problem).within(path.display());
    let text = fs::read(&path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let book = read_book(&text).map_err(wrong)?;
    check_history(&book.history).map_err(wrong)?;
    Ok(book)
}

/// The rows of each site whose rows are known: those of this one, and those that are named.
fn rows_of(
    file: &NodeFile,
    book: &Book,
    named: &[String],
) -> Result<BTreeMap<String, String>, ConfigError> {
    let own = file.data.iter().map(|data| (book.site.clone(), data.clone()));
    let mut rows: BTreeMap<String, String> = own.collect();
    for text in named {
        let wrong = |problem: String| Err(ConfigError::new("--rows", text, problem));
        let Some((site, rows_of_site)) = text.split_once('=') else {
            return wrong("expected the name of a site and its file, such as lyon=lyon.csv".into());
        };
        if !book.history.iter().any(|version| version.run.member(site).is_some()) {
            return wrong(format!("the run {} had no site {site}", book.run().name));
        }
        rows.insert(site.into(), rows_of_site.into());
    }
    Ok(rows)
}

/// The stages that this site has trained, the first one first.
fn trained<'a>(book: &'a Book, out: &Path) -> Result<Vec<Trained<'a>>, ConfigError> {
    let mut all = Vec::new();
    let mut next = book.stage();
    while let Some(run) = next {
        next = book.stage_before(run.number);
        let is_newest = book.training.last().is_some_and(|last| last.stage == run.number);
        let folder = if is_newest { out.to_path_buf() } else { aside(out, run.number) };
        let Ok(summary) = Summary::read(&folder.join("summary.json")) else {
            // The last one may have ended before it began, and one in the middle too.
            match all.is_empty() && next.is_some() || was_passed_over(book, run) {
                true => continue,
                false => {
                    let problem = format!(
                        "has no results of stage {}, with which the run began: name the folder of \
                         a site that has trained it",
                        run.number
                    );
                    return Err(ConfigError::new("--history", folder.display(), problem));
                }
            }
        };
        let has_mean = !summary.mean_digest.is_empty() && summary.failure.is_none();
        all.push(Trained { run, folder, has_mean, rounds: summary.rounds });
    }
    all.reverse();
    Ok(all)
}

/// Whether this site took part in a stage that was replaced before its node did a round of it.
fn was_passed_over(book: &Book, run: &Run) -> bool {
    let took_part = run.member(&book.site).is_some_and(|one| one.peer == book.peer);
    let at = book.training.iter().position(|one| book.begun(one) == Some(run));
    let rounds = |at: usize| book.training.get(at).map(|one| one.rounds_before);
    took_part && at.is_none_or(|at| rounds(at) == rounds(at + 1))
}

/// The model that a stage begins with: the mean of the stage before, which was repeated, or, where
/// that was cut off, the model of this site.
fn first_model(
    book: &Book,
    stage: &Trained<'_>,
    before: Option<&Trained<'_>>,
    repeated: &BTreeMap<u64, PathBuf>,
) -> Result<Option<PathBuf>, ConfigError> {
    let experiment = Experiment::load(&stage.folder.join(EXPERIMENT), &[])?;
    let (Some(Init::From(giver)), Some(before)) = (experiment.model.init, before) else {
        return Ok(None);
    };
    if let Some(model) = repeated.get(&before.run.number) {
        return Ok(Some(model.clone()));
    }
    if giver == book.site {
        return Ok(Some(model_in(&before.folder, &giver, false)));
    }
    let (number, cut) = (stage.run.number, before.run.number);
    let problem = format!(
        "stage {number} begins with the model of {giver}, as stage {cut} was cut off: name the \
         folder of that site"
    );
    Err(ConfigError::at("--history", problem))
}

/// The arguments of a stage.
fn arguments(
    args: &RunArgs,
    stage: &Trained<'_>,
    first: Option<&Path>,
    rows: &BTreeMap<String, String>,
    out: &Path,
) -> Result<RunArgs, ConfigError> {
    let number = stage.run.number;
    let source = |member: &gradvine_enrol::Member| {
        rows.get(&member.name).map(|rows| quoted(rows)).ok_or_else(|| {
            let problem = format!(
                "the rows of {} are needed, which took part in stage {number}: --rows {}=FILE",
                member.name, member.name
            );
            ConfigError::at("--rows", problem)
        })
    };
    let sources = stage.run.members.iter().map(source).collect::<Result<Vec<_>, _>>()?;
    let mut again = args.clone();
    again.select.experiment = Some(stage.folder.join(EXPERIMENT));
    again.select.topology = Some(stage.folder.join("topology.toml").display().to_string());
    again.select.sets.push(format!("data.sources=[{}]", sources.join(",")));
    if let Some(model) = first {
        again.select.sets.push(format!("model.init={}", quoted(&model.display().to_string())));
    }
    again.out = Some(out.join(format!("stage-{number}")));
    again.no_baseline = true;
    Ok(again)
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}
