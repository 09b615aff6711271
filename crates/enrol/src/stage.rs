//! The files of a node for a stage of training.
//!
//! Each version of the run that changes training begins a stage: a run of all its sites, whose
//! first model is the mean of the stage before. The site that gives that model to all is the first
//! one that took part in both; it signs how many rounds were done, and what the model needs.

use std::{collections::BTreeMap, fs, path::Path};

use gradvine::{
    config::ConfigError, data::write_atomically, digest, experiment::Experiment, learn::SavedModel,
};

use crate::{
    book::{Book, Newest, Site},
    document::Run,
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
    /// The run has not begun, or this site waits for another one.
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

/// The site that gives its model to all in a stage, and the stage that it is from.
fn giver<'a>(book: &'a Book, stage: &'a Run) -> Option<(&'a str, u64)> {
    let before = book.stage_before(stage.number)?;
    let took_part = |name: &str, peer: &str| {
        before.members.iter().any(|member| member.name == name && member.peer == peer)
    };
    let site = stage.members.iter().find(|member| took_part(&member.name, &member.peer))?;
    Some((&site.name, before.number))
}

/// Writes the topology and the experiment of the present stage beside the node file.
///
/// # Errors
/// Why there is none yet, or what is wrong.
pub fn write_files(site: &Site, book: &Book) -> Result<Stage, NotYet> {
    let run = book.run();
    let Some(stage) = book.stage() else {
        return Err(NotYet::Waits(format!(
            "{} of {} sites have joined",
            run.members.len(),
            run.sites
        )));
    };
    let digest = stage.digest();
    let mut sets = vec![format!("run.id={}-{}", run.id, &digest[..12])];
    let giver = giver(book, stage);
    let (mut rounds_before, mut first) = (0, None);
    if let Some((name, number)) = giver {
        let Some(end) = book.notes.end_of(number, name) else {
            return Err(NotYet::Waits(format!("{name} has not said how stage {number} ended")));
        };
        // Whoever took part has the same results.
        let own = book.notes.end_of(number, &book.site);
        if own.is_some_and(|own| !own.agrees_with(end)) {
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
            sets.extend(end.settings.iter().cloned());
            first = Some(FirstModel { site: name.into(), stage, mean: end.mean });
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
