//! The files of a node for a stage of training.
//!
//! Each version of the run that changes training begins a stage: a run of all its sites, whose
//! first model is the mean of the stage before. One site that took part in both gives that model to
//! all; each signs how many rounds were done, and what the model needs.

use std::{collections::BTreeMap, fs, path::Path};

use gradvine::{
    config::ConfigError,
    data::{Missing, write_atomically},
    digest,
    experiment::Experiment,
    learn::SavedModel,
};

use crate::{
    acts::Newest,
    book::Book,
    document::{Member, Run},
    ends::{Chosen, Constants, chosen},
    site::Site,
};

/// The folder of the files that are made from the run.
const FOLDER: &str = "run";

/// A stage of training.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The number of the version that it begins with.
    pub number: u64,
    /// The digest of that version.
    pub begins: String,
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
/// are needed for this one anyway, and so all sites make the same choice. A site whose node never
/// began that stage says so too, so none waits for a stage that nobody trained.
///
/// # Errors
/// Who has not said it yet.
fn giver<'a>(book: &'a Book, stage: &Run) -> Result<Option<Chosen<'a>>, NotYet> {
    let Some(before) = book.stage_before(stage.number) else { return Ok(None) };
    let took_part = |member: &&Member| {
        before.members.iter().any(|one| one.name == member.name && one.peer == member.peer)
    };
    let end = |member: &Member| {
        book.notes.end_of(before, &member.name).ok_or_else(|| {
            let (name, number) = (&member.name, before.number);
            NotYet::Waits(format!("{name} has not said how stage {number} ended"))
        })
    };
    let ends = stage.members.iter().filter(took_part).map(end).collect::<Result<Vec<_>, _>>()?;
    Ok(chosen(&ends))
}

/// The present stage, with the model that it begins with, and its experiment.
///
/// # Errors
/// Why there is none yet, or what is wrong.
pub(crate) fn prepare(site: &Site, book: &Book) -> Result<(Stage, Experiment), NotYet> {
    let run = book.run();
    if let Some(conflict) = &book.conflict {
        return Err(NotYet::Waits(format!("{conflict}: see `gradvine settle`")));
    }
    if let Some(refused) = site.refused(book) {
        return Err(NotYet::Waits(format!(
            "the others have adopted what this site refuses, version {}: {}. It leaves the run",
            refused.number, refused.change
        )));
    }
    let Some(begins) = book.stage() else {
        return Err(NotYet::Waits(format!(
            "{} of {} sites have joined",
            run.members.len(),
            run.sites
        )));
    };
    let digest = begins.digest();
    let rounds = Experiment::parse(&begins.experiment, &[])?.run.rounds;
    let (mut left, mut first, mut end) = (rounds, None, None);
    if let Some(Chosen { end: chosen, agreed }) = giver(book, begins)? {
        // Whoever has a mean of the same stage has the same one.
        let own = book.notes.ends.iter().find(|own| own.site == book.site);
        let own = own.filter(|own| agreed && own.mean && own.model == chosen.model);
        if own.is_some_and(|own| (&own.digest, own.rounds) != (&chosen.digest, chosen.rounds)) {
            let (name, number) = (&chosen.site, chosen.stage);
            let why = format!("{name} says that stage {number} has other results than here");
            return Err(NotYet::Wrong(ConfigError::at("run", why)));
        }
        left = rounds.saturating_sub(chosen.rounds);
        if left == 0 {
            return Err(NotYet::Over(chosen.rounds));
        }
        let site = chosen.site.clone();
        first = chosen.model.map(|stage| FirstModel { site, stage, mean: chosen.mean });
        end = Some(chosen);
    }
    // Another change can mend what does not fit.
    let fits = |made: Result<Experiment, ConfigError>| {
        made.map_err(|error| {
            NotYet::Waits(format!(
                "the experiment does not fit the model of the stage before: {error}"
            ))
        })
    };
    let mut experiment = match end {
        Some(end) => fits(end.experiment(&begins.experiment, left))?,
        None => Experiment::parse(&begins.experiment, &[])?,
    };
    let id = format!("run.id={}-{}", run.id, &digest[..12]);
    experiment = fits(Experiment::parse(&experiment.to_toml(), &[id]))?;
    let (number, rounds_before) = (begins.number, rounds - left);
    Ok((Stage { number, begins: digest, rounds_before, first }, experiment))
}

/// Whether the present stage is this one, and begins with the same model.
pub fn is_current(site: &Site, book: &Book, stage: &Stage) -> bool {
    prepare(site, book).is_ok_and(|(now, _)| now == *stage)
}

/// Writes the topology and the experiment of the present stage beside the node file.
///
/// # Errors
/// Why there is none yet, or what is wrong.
pub fn write_files(site: &Site, book: &Book) -> Result<Stage, NotYet> {
    let (made, experiment) = prepare(site, book)?;
    let stage = book.stage().expect("it was prepared");
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
    Ok(made)
}

/// A model as a next stage takes it: its digest, and what was done with the features before
/// training, which every site must keep.
///
/// # Errors
/// If the model cannot be read.
pub fn newest_of(model: &Path, rounds: u64, mean: bool) -> Result<Newest, ConfigError> {
    let saved = SavedModel::read(model)?;
    let digest = digest::of_model(&saved.x);
    let before = saved.preprocessing;
    let mut fills = BTreeMap::new();
    if let Some(schema) = &saved.schema {
        for column in schema.filled(&before.fills).columns {
            if let Missing::Value(value) = column.missing {
                fills.insert(column.name, value);
            }
        }
    }
    let constants = Constants { scale: before.scale, target_scale: before.targets, fills };
    Ok(Newest { rounds, mean, digest, constants })
}
