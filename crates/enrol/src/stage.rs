//! The files of a node for a stage of training.
//!
//! Each version of the run that changes training begins a stage: a run of all its sites, whose
//! first model is the mean of the stage before. One site that took part in both gives that model to
//! all; each signs how many rounds were done, and what the model needs.

use std::{collections::BTreeMap, fs, path::Path};

use gradvine::{
    config::ConfigError, data::write_atomically, digest, experiment::Experiment, learn::SavedModel,
};

use crate::{
    book::{Book, Newest, Site},
    document::{Member, Run},
    notes::StageEnd,
};

/// The folder of the files that are made from the run.
const FOLDER: &str = "run";

/// A stage of training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The number of the version that it begins with.
    pub number: u64,
    /// The rounds of the stages before it.
    pub rounds_before: u64,
    /// Whose model all begin with, if there was one.
    pub first: Option<FirstModel>,
}

/// The model that a stage begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstModel {
    /// The site that gives it to all.
    pub site: String,
    /// The stage that it is from.
    pub stage: u64,
    /// Whether it is the mean of that stage, or the site's own.
    pub mean: bool,
}

/// Why the files of a stage cannot be written.
#[derive(Clone, Debug)]
pub enum NotYet {
    /// The run has not started, or this site waits for another one.
    Waits(String),
    /// All rounds of the run are done.
    Over(u64),
    /// The files are wrong.
    Wrong(ConfigError),
}

impl From<ConfigError> for NotYet {
    fn from(error: ConfigError) -> NotYet {
        NotYet::Wrong(error)
    }
}

/// How the stage before this one has ended at the site that gives its model to all in this one;
/// none for a first stage. The members that took part in both must all have said how it ended: they
/// are needed for this one anyway, and so all sites make the same choice.
///
/// The results that most of them have count, of those that formed a mean. If none did, as a site
/// was gone, the model of the most rounds does. Of several sites it is the first one's.
///
/// # Errors
/// Who has not said it yet.
fn giver<'a>(book: &'a Book, stage: &Run) -> Result<Option<&'a StageEnd>, NotYet> {
    let Some(before) = book.stage_before(stage.number) else { return Ok(None) };
    let took_part = |member: &&Member| {
        before.members.iter().any(|one| one.name == member.name && one.peer == member.peer)
    };
    let end = |member: &Member| {
        book.notes.end_of(before.number, &member.name).ok_or_else(|| {
            let (name, number) = (&member.name, before.number);
            NotYet::Waits(format!("{name} has not said how stage {number} ended"))
        })
    };
    let ends = stage.members.iter().filter(took_part).map(end).collect::<Result<Vec<_>, _>>()?;
    Ok(chosen(&ends))
}

/// The end whose model all begin with.
fn chosen<'a>(ends: &[&'a StageEnd]) -> Option<&'a StageEnd> {
    let means: Vec<&StageEnd> = ends.iter().filter(|end| end.mean).copied().collect();
    let alike = |end: &StageEnd| means.iter().filter(|other| end.is_like(other)).count();
    // The first of those that are equal.
    let first = |best: Option<(usize, &'a StageEnd)>, (count, end)| match best {
        Some((most, _)) if most >= count => best,
        _ => Some((count, end)),
    };
    let mean = means.iter().map(|end| (alike(end), *end)).fold(None, first);
    let rounds = |end: &StageEnd| end.model.map_or(0, |_| 1 + end.rounds as usize);
    let any = ends.iter().map(|end| (rounds(end), *end)).fold(None, first);
    mean.or(any).map(|(_, end)| end)
}

/// Writes the topology and the experiment of the present stage beside the node file.
///
/// # Errors
/// Why there is none yet, or what is wrong.
pub fn write_files(site: &Site, book: &Book) -> Result<Stage, NotYet> {
    let run = book.run();
    if let Some(refused) = site.refused(book) {
        return Err(NotYet::Waits(format!(
            "the others have adopted what this site refuses, version {}: {}. It leaves the run",
            refused.number, refused.change
        )));
    }
    let Some(stage) = book.stage() else {
        return Err(NotYet::Waits(format!(
            "{} of {} sites have joined",
            run.members.len(),
            run.sites
        )));
    };
    let digest = stage.digest();
    let mut sets = vec![format!("run.id={}-{}", run.id, &digest[..12])];
    let (mut rounds_before, mut first) = (0, None);
    if let Some(end) = giver(book, stage)? {
        let (name, number) = (&end.site, end.stage);
        // Whoever took part has the same results.
        let own = book.notes.end_of(number, &book.site);
        if own.is_some_and(|own| own.mean && end.mean && !own.is_like(end)) {
            let why = format!("{name} says that stage {number} has other results than here");
            return Err(NotYet::Wrong(ConfigError::at("run", why)));
        }
        rounds_before = end.rounds;
        let rounds = Experiment::parse(&stage.experiment, &[])?.run.rounds;
        let Some(left) = rounds.checked_sub(end.rounds).filter(|left| *left > 0) else {
            return Err(NotYet::Over(end.rounds));
        };
        sets.push(format!("run.rounds={left}"));
        if let Some(stage) = end.model {
            sets.push(format!("model.init=from:{name}"));
            // Nobody accepts other values than those that were signed.
            sets.push(format!("model.init_digest=\"{}\"", end.digest));
            sets.extend(end.settings.iter().cloned());
            first = Some(FirstModel { site: name.clone(), stage, mean: end.mean });
        }
    }
    let experiment = Experiment::parse(&stage.experiment, &sets)?;
    // The addresses of now, on which no digest depends.
    let moved: BTreeMap<_, _> = book.notes.addresses();
    let topology = stage.network(&moved)?;
    let folder = site.folder.join(FOLDER);
    let wrong = |path: &Path| {
        let place = path.display().to_string();
        move |error: String| ConfigError::at("run", error).within(place)
    };
    fs::create_dir_all(&folder).map_err(|error| wrong(&folder)(error.to_string()))?;
    for (name, text) in
        [("topology.toml", topology.to_toml()), ("experiment.toml", experiment.to_toml())]
    {
        let path = folder.join(name);
        write_atomically(&path, &[text.as_bytes()])
            .map_err(|error| wrong(&path)(error.to_string()))?;
    }
    Ok(Stage { number: stage.number, rounds_before, first })
}

/// A model as a next stage takes it: its digest, and what was done with the features before
/// training, which every site must keep.
///
/// # Errors
/// If the model cannot be read.
pub fn newest_of(model: &Path, rounds: u64, mean: bool) -> Result<Newest, ConfigError> {
    let saved = SavedModel::read(model)?;
    let digest = digest::of_model(&saved.x);
    let mut settings = Vec::new();
    let mut set = |key: &str, value: Result<toml::Value, toml::ser::Error>| {
        let value = value.map_err(|error| ConfigError::at(key, error.to_string()))?;
        settings.push(format!("{key}={value}"));
        Ok::<(), ConfigError>(())
    };
    let constants = &saved.preprocessing;
    if let Some(scale) = &constants.scale {
        set("data.scale", toml::Value::try_from(scale))?;
    }
    if let Some(targets) = &constants.targets {
        set("data.target_scale", toml::Value::try_from(targets))?;
    }
    if let Some(schema) = &saved.schema {
        set("data.schema", toml::Value::try_from(schema.filled(&constants.fills)))?;
    }
    Ok(Newest { rounds, mean, digest, settings })
}
