//! Saves the results of a run in every case: each node's own model as soon as it is final or its
//! run ends early, and the mean once it is formed.
//!
//! A model that cannot be written (the disk is full, say) is held and tried again at the end; only
//! then does it become an error.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use litemap::LiteMap;

use crate::{
    config::ConfigError,
    data::{Columns, Preprocessing},
    digest,
    drive::{Elapsed, Lent, RunError},
    gossip::OwnModel,
    learn::{Model, SavedModel, write_tensors},
    run::{
        Agreed, Design, EndError, Ending, RowConstants, RunDirectory, Shared, Single, Summary,
        Whole, class_counts, results::record::Closing,
    },
    units::NodeId,
    vector,
};

/// The file of a run directory that holds the mean of all models.
pub const MEAN_MODEL: &str = "model-mean.safetensors";

/// How long, and how often, models that cannot be written are tried again at the end.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(1);

/// The content of a model file beside the parameters, and the description of a node's part in a
/// run.
#[derive(Clone)]
pub struct RunInfo {
    design: Arc<Design>,
    /// `None` for a program's model.
    model: Option<Model>,
    agreed: Agreed<RowConstants>,
    classes: Vec<String>,
    columns: Option<Columns>,
    /// Rows and rows per class of the nodes whose data is here.
    rows: LiteMap<NodeId, (u64, Vec<u64>)>,
}

impl From<&Whole> for RunInfo {
    fn from(whole: &Whole) -> RunInfo {
        let rows = |(node, shard): (usize, &Arc<Shared>)| {
            (NodeId::from(node), (shard.raw().rows() as u64, class_counts(shard.raw())))
        };
        RunInfo {
            design: Arc::clone(&whole.design),
            model: Some(whole.model.clone()),
            agreed: whole.agreed.clone(),
            classes: whole.classes.clone(),
            columns: whole.shards[0].raw().columns.clone(),
            rows: whole.shards.iter().enumerate().map(rows).collect(),
        }
    }
}

impl From<&Single> for RunInfo {
    fn from(single: &Single) -> RunInfo {
        RunInfo {
            design: Arc::clone(&single.design),
            model: Some(single.model.clone()),
            agreed: single.agreed.clone(),
            classes: single.classes.clone(),
            columns: single.columns().cloned(),
            rows: LiteMap::from_iter([(single.node, (single.rows, single.class_rows.clone()))]),
        }
    }
}

impl RunInfo {
    /// For a program's model, at a node with this many rows.
    pub(crate) fn of_own(design: Arc<Design>, node: NodeId, rows: u64) -> RunInfo {
        RunInfo {
            design,
            model: None,
            agreed: Agreed::default(),
            classes: Vec::new(),
            columns: None,
            rows: LiteMap::from_iter([(node, (rows, Vec::new()))]),
        }
    }
}

/// Shows a line to the user of a program; a command writes it to standard error.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// Saves models and writes a summary of runs that end early. Clones share one state.
#[derive(Clone)]
pub struct Recorder(Arc<Mutex<State>>);

struct State {
    known: RunInfo,
    warn: Warn,
    folder: PathBuf,
    lent: Vec<(NodeId, Lent)>,
    /// The record of each node until its model was saved.
    closings: LiteMap<NodeId, Closing>,
    mean: Option<String>,
    /// Models that could not be written yet.
    waiting: Vec<(PathBuf, Arc<Vec<f32>>)>,
}

impl Recorder {
    /// A recorder for this run directory.
    pub fn new(known: RunInfo, directory: &RunDirectory, warn: Warn) -> Recorder {
        Recorder(Arc::new(Mutex::new(State {
            known,
            warn,
            folder: directory.path().to_path_buf(),
            lent: Vec::new(),
            closings: LiteMap::new(),
            mean: None,
            waiting: Vec::new(),
        })))
    }

    /// A node begins: `lent` is its model while a gradient is computed.
    pub fn begins(&self, node: NodeId, lent: &Lent) {
        let mut state = self.lock();
        state.lent.retain(|(other, _)| *other != node);
        state.lent.push((node, lent.clone()));
    }

    /// A node resumes from a checkpoint: its model is not final.
    pub(crate) fn resumes(&self, node: NodeId) {
        let mut state = self.lock();
        state.closings.remove(&node);
        state.mean = None;
    }

    /// Saves a node's own model.
    pub fn save(&self, node: NodeId, elapsed: Elapsed, own: &OwnModel) {
        self.lock().save(node, elapsed, own);
    }

    /// Saves the mean of all models.
    pub fn mean(&self, mean: &[f32]) {
        let mut state = self.lock();
        if state.mean.is_none() {
            state.mean = Some(digest::of_model(mean));
            let path = state.folder.join(MEAN_MODEL);
            state.write(path, mean, None);
        }
    }

    /// Whether the mean has been formed.
    pub(crate) fn has_mean(&self) -> bool {
        self.lock().mean.is_some()
    }

    /// Saves the models that nodes have lent for gradients, for a program that must exit now.
    pub fn salvage(&self) {
        let mut state = self.lock();
        for (node, lent) in std::mem::take(&mut state.lent) {
            if let (Some((rounds, x)), false) = (lent.get(), state.closings.contains_key(&node))
                && rounds.0 > 0
            {
                let own = OwnModel { rounds, x, traffic: Default::default(), links: Vec::new() };
                state.save(node, Elapsed::default(), &own);
            }
        }
    }

    /// Tries again to write the files that could not be written; with `patiently` for a minute, in
    /// which the user may free space.
    ///
    /// # Errors
    /// The first model that still cannot be written.
    pub fn finish(&self, patiently: bool) -> Result<(), ConfigError> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lock().retry() {
                None => return Ok(()),
                Some(error) if !patiently || Instant::now() >= until => {
                    return Err(error);
                }
                Some(_) => {}
            }
            thread::sleep(PAUSE);
        }
    }

    /// Adds to a summary what the nodes have noticed before round 0.
    pub(crate) fn add_warnings(&self, summary: &mut Summary) {
        if let Some(agreed) = self.lock().known.agreed.get() {
            summary.warnings.splice(0..0, agreed.warnings.iter().cloned());
        }
    }

    /// The summary of a run that ended early.
    pub fn summary(&self) -> Summary {
        let state = self.lock();
        let closings: Vec<(NodeId, Closing)> = state.closings.clone().into_iter().collect();
        let mut summary = Summary::of(&state.known.design, &closings);
        summary.mean_digest = state.mean.clone().unwrap_or_default();
        drop(state);
        self.add_warnings(&mut summary);
        summary
    }

    /// Writes the summary of a run that failed after `reached` rounds, and returns the error with
    /// its exit code. If the run never began because its files are wrong, it removes the
    /// directory's files. `node` is set if only this one is here.
    pub fn failed(
        &self,
        directory: &RunDirectory,
        error: RunError,
        reached: u64,
        node: Option<NodeId>,
    ) -> EndError {
        let design = Arc::clone(&self.lock().known.design);
        let text = error.describe(&design.topology);
        if let RunError::Setup(error) = error {
            if reached == 0 {
                directory.discard();
            }
            return EndError::Setup(error);
        }
        let kept = self.finish(!matches!(error, RunError::Interrupted(_)));
        let mut summary = self.summary();
        summary.rounds = if summary.participation.is_empty() { reached } else { summary.rounds };
        let origin = error.cause(node.unwrap_or_default(), &design.topology).node;
        let named = node.is_some() || matches!(error, RunError::Failed { .. });
        summary.failed_at = named.then(|| design.topology.node(origin).name.clone());
        let folder = directory.path().display();
        let ending = Ending::of(&error, &design.topology);
        // Not the node that has waited for others.
        let failed_at = summary.failed_at.clone().filter(|_| ending.awaited.is_empty());
        let mut ended = Ending {
            node: ending.node.clone().or(failed_at),
            rounds: Some(summary.rounds),
            folder: Some(directory.path().to_path_buf()),
            ..ending
        };
        let exit = match &error {
            RunError::Interrupted(round) => {
                summary.interrupt();
                summary.rounds = summary.rounds.max(round.0);
                ended.rounds = Some(summary.rounds);
                let text = format!("stopped in round {round}; the results so far are in {folder}");
                EndError::Interrupted(Ending { text, ..ended })
            }
            _ if self.has_mean() => {
                let text = format!(
                    "all rounds are done and the mean model is saved, but the records of some \
                     nodes are missing: {text} (the others are in {folder})"
                );
                EndError::Short(Ending { text, ..ended })
            }
            _ => {
                summary.diverged_at = error.diverged_at().map(|round| round.0);
                let saved = !summary.participation.is_empty();
                let what = if saved {
                    format!("; the results so far are in {folder}")
                } else {
                    String::new()
                };
                let folder = ended.folder.take_if(|_| saved);
                EndError::Failed(Ending { text: format!("{text}{what}"), folder, ..ended })
            }
        };
        summary.failure = Some(text);
        write_summary(directory, &summary, &self.warn());
        match kept {
            Ok(()) => exit,
            Err(more) => exit.and(more),
        }
    }

    /// Handles a run that has ended without any usable record: the summary has only what this
    /// program knows.
    pub fn unusable(
        &self,
        directory: &RunDirectory,
        why: String,
        kept: Result<(), ConfigError>,
    ) -> EndError {
        let mut summary = self.summary();
        summary.failure = Some(why.clone());
        write_summary(directory, &summary, &self.warn());
        let exit = EndError::Short(Ending {
            text: format!("the models are saved, but no node's record can be used: {why}"),
            folder: Some(directory.path().to_path_buf()),
            ..Ending::default()
        });
        match kept {
            Ok(()) => exit,
            Err(more) => exit.and(more),
        }
    }

    fn warn(&self) -> Warn {
        Arc::clone(&self.lock().warn)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn save(&mut self, node: NodeId, elapsed: Elapsed, own: &OwnModel) {
        let name = self.known.design.topology.node(node).name.clone();
        let (rows, classes) = self.known.rows.get(&node).cloned().unwrap_or_default();
        let mut closing = Closing::early(own, elapsed, rows, classes);
        if vector::first_non_finite(&own.x).is_some() {
            closing.digest = String::new();
            (self.warn)(&format!(
                "warning: the model of node {name} is not finite: it is not saved"
            ));
        } else {
            self.write(self.folder.join(format!("model-{name}.safetensors")), &own.x, Some(&own.x));
        }
        self.closings.insert(node, closing);
    }

    /// Writes the held files; returns the first error, if any remains.
    fn retry(&mut self) -> Option<ConfigError> {
        let mut first = None;
        for (path, x) in std::mem::take(&mut self.waiting) {
            match self.known.write(&path, &x) {
                Ok(()) => (self.warn)(&format!("{} is written now", path.display())),
                Err(error) => {
                    first.get_or_insert(error);
                    self.waiting.push((path, x));
                }
            }
        }
        first
    }

    /// Writes a model or holds it; `shared` avoids a copy.
    fn write(&mut self, path: PathBuf, x: &[f32], shared: Option<&Arc<Vec<f32>>>) {
        if let Err(error) = self.known.write(&path, x) {
            (self.warn)(&format!("warning: {error}; it is tried again at the end, for a minute"));
            self.waiting.push((path, shared.map_or_else(|| Arc::new(x.to_vec()), Arc::clone)));
        }
    }
}

impl RunInfo {
    fn write(&self, path: &std::path::Path, x: &[f32]) -> Result<(), ConfigError> {
        let extra = [("digest".to_string(), digest::of_model(x))].into();
        let Some(model) = &self.model else {
            return Ok(write_tensors(path, &self.design.tensors, x, &extra)?);
        };
        let agreed = self.agreed.get();
        let preprocessing =
            agreed.map(|agreed| Preprocessing::clone(&agreed.preprocessing)).unwrap_or_default();
        let saved = SavedModel {
            model: model.clone().with_targets(preprocessing.targets.clone()),
            x: x.to_vec(),
            preprocessing,
            schema: self.design.experiment.data.schema.clone(),
            classes: self.classes.clone(),
            columns: self.columns.clone(),
            extra,
        };
        Ok(saved.write(path)?)
    }
}

/// Writes a run's summary; if that fails, the models are still saved.
pub fn write_summary(directory: &RunDirectory, summary: &Summary, warn: &Warn) {
    if let Err(error) = directory.summary(summary) {
        let path = directory.path().join("summary.json");
        warn(&format!("warning: {}: the summary cannot be written: {error}", path.display()));
    }
}
