//! A run with all nodes in this process, from its first round to the files of its directory.

use std::{
    cell::RefCell,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    EndError, Ending, Progress, Recorder, RunDirectory, RunInfo, Summary, Warn, Watch, Whole,
};
use crate::{
    drive::{Elapsed, Ended, Lent, Observer, RunError},
    gossip::{OwnModel, RoundDone, Traffic},
    units::{NodeId, Round},
};

/// A run with all nodes in this process that writes its directory: metrics, models and summary.
///
/// ```
/// use std::sync::Arc;
///
/// use gradvine::{prelude::*, run::{RunDirectory, Session}};
///
/// let folder = tempfile::tempdir()?;
/// let settings = ["topology.file=ring:3", "run.rounds=5"].map(String::from);
/// let whole = Arc::new(Whole::new(Experiment::default_with(&settings)?)?);
/// let warn: gradvine::run::Warn = Arc::new(|line: &str| eprintln!("{line}"));
/// let directory = RunDirectory::begin(&whole, &folder.path().join("run"), &warn)?;
/// let session = Session::new(whole, directory, warn);
/// let finished = session.run(&mut |_| (), &|| false, |whole, observer, _| {
///     Ok(sim::run(whole.specs(), observer)?.into())
/// })?;
/// assert_eq!(finished.summary.rounds, 5);
/// assert!(folder.path().join("run/model-mean.safetensors").is_file());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    whole: Arc<Whole>,
    directory: RunDirectory,
    recorder: Recorder,
    warn: Warn,
    baseline: bool,
}

/// The results of a run with all nodes in this process. They are in its directory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finished {
    /// What the run has done.
    pub summary: Summary,
    /// The bytes that formed the mean over a spanning tree.
    pub tree_bytes: u64,
    /// The path of the run directory.
    pub directory: PathBuf,
}

impl Finished {
    /// Checks that the run was not stopped before its last round.
    ///
    /// # Errors
    /// [`EndError::Interrupted`], with the place of the results so far.
    pub fn check_complete(&self) -> Result<(), EndError> {
        if !self.summary.interrupted {
            return Ok(());
        }
        let (rounds, folder) = (self.summary.rounds, &self.directory);
        let place = folder.display();
        Err(EndError::Interrupted(Ending {
            text: format!("stopped after round {rounds}; the results so far are in {place}"),
            rounds: Some(rounds),
            folder: Some(folder.clone()),
            ..Ending::default()
        }))
    }
}

/// The nodes of a run that a driver has run to its end.
#[derive(Debug)]
pub struct Driven {
    /// The nodes, in their order.
    pub ended: Vec<Ended>,
    /// The digest of a simulation's events.
    pub trace: Option<String>,
}

impl From<Vec<Ended>> for Driven {
    fn from(ended: Vec<Ended>) -> Driven {
        Driven { ended, trace: None }
    }
}

/// What happens while such a run lasts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SessionEvent<'a> {
    /// All nodes have done another round.
    Progress(&'a Progress),
    /// The run continues from checkpoints, after this many rounds.
    Resumed {
        /// The rounds that the checkpoints have done.
        rounds: u64,
    },
}

impl Session {
    /// A run whose directory [`RunDirectory::begin`] has made, or which continues in its directory.
    pub fn new(whole: Arc<Whole>, directory: RunDirectory, warn: Warn) -> Session {
        let recorder = Recorder::new(RunInfo::from(&*whole), &directory, Arc::clone(&warn));
        Session { whole, directory, recorder, warn, baseline: true }
    }

    /// Leaves out the comparison with plain SGD on the pooled rows.
    #[must_use]
    pub fn without_baseline(mut self) -> Session {
        self.baseline = false;
        self
    }

    /// The resolved run, with the data of all nodes.
    pub fn whole(&self) -> &Arc<Whole> {
        &self.whole
    }

    /// The directory that the run is written into.
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// What saves the models: a program that must exit in the middle of the run asks it to.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Runs. `drive` hands the nodes to a driver, with an observer and the path of the directory.
    /// `show` receives what happens; `stop` is asked after every round whether to end the run.
    ///
    /// # Errors
    /// If the run ended early, or its results cannot be written. The results so far are written
    /// first. A run that was stopped between rounds is no error: [`Finished::check_complete`].
    pub fn run(
        self,
        show: &mut dyn FnMut(SessionEvent<'_>),
        stop: &dyn Fn() -> bool,
        drive: impl FnOnce(&Whole, &mut dyn Observer, &Path) -> Result<Driven, RunError>,
    ) -> Result<Finished, EndError> {
        let Session { whole, directory, recorder, warn, baseline } = self;
        let check = |result: io::Result<()>| {
            // A line of metrics that cannot be written does not end a run.
            if let Err(error) = result {
                warn(&format!("warning: {error}"));
            }
        };
        let path = directory.path().to_path_buf();
        let (directory, show, mut reached) = (RefCell::new(directory), RefCell::new(show), 0);
        let driven = {
            let metric = |metric: &_| check(directory.borrow_mut().metric(metric));
            let progress = |progress: &Progress| {
                reached = progress.rounds;
                (*show.borrow_mut())(SessionEvent::Progress(progress));
            };
            let watch = Watch::new(Arc::clone(&whole), metric, progress).stopping(stop);
            let resumed = &mut |rounds| {
                check(directory.borrow_mut().rewind(rounds));
                (*show.borrow_mut())(SessionEvent::Resumed { rounds });
            };
            let mut recording = Recording { watch, recorder: &recorder, resumed };
            drive(&whole, &mut recording, &path).map(|driven| (driven, recording.watch.sent()))
        };
        let mut directory = directory.into_inner();
        let end = match driven {
            Ok(driven) => conclude(&whole, &directory, &recorder, driven, stop(), baseline, &warn),
            Err(error) => Err(recorder.failed(&directory, error, reached, None)),
        };
        // Last, because a disk that was full may have room now.
        check(directory.finish());
        end
    }
}

/// Writes the summary of a run whose models are saved.
fn conclude(
    whole: &Whole,
    directory: &RunDirectory,
    recorder: &Recorder,
    (driven, sent): (Driven, Vec<Traffic>),
    interrupted: bool,
    baseline: bool,
    warn: &Warn,
) -> Result<Finished, EndError> {
    let Driven { ended, trace } = driven;
    let kept = recorder.finish(!interrupted);
    let mut summary = match Summary::of_run(&whole.design, &ended[0].records, &ended[0].history) {
        Ok(summary) => summary,
        Err(why) => return Err(recorder.unusable(directory, why.to_string(), kept)),
    };
    summary.add_sent_before(&whole.design.topology, &sent);
    recorder.add_warnings(&mut summary);
    summary.record_warnings().for_each(|line| warn(&format!("warning: {line}")));
    summary.trace = trace;
    if interrupted {
        summary.interrupt();
    }
    if baseline && !interrupted {
        summary.pooled = Some(whole.pooled_baseline()?.into());
    }
    debug_assert!(
        ended.iter().all(|one| one.mean == ended[0].mean),
        "every node forms the same mean"
    );
    let written = directory.summary(&summary);
    kept.map_err(|error| EndError::failed(error.to_string()))?;
    written?;
    let tree_bytes = ended.iter().map(|one| one.traffic.tree).sum();
    Ok(Finished { summary, tree_bytes, directory: directory.path().to_path_buf() })
}

/// Watches a run and saves its models.
struct Recording<'a> {
    watch: Watch<'a>,
    recorder: &'a Recorder,
    /// Called once with the rounds after which the run continues.
    resumed: &'a mut dyn FnMut(u64),
}

impl Observer for Recording<'_> {
    fn round(&mut self, node: NodeId, elapsed: Elapsed, done: RoundDone) {
        self.watch.round(node, elapsed, done);
    }

    fn resumes(&mut self, node: NodeId, rounds: Round) {
        self.recorder.resumes(node);
        if self.watch.resumes(node, rounds) {
            (self.resumed)(rounds.0);
        }
    }

    fn begins(&mut self, node: NodeId, lent: &Lent) {
        self.recorder.begins(node, lent);
    }

    fn save(&mut self, node: NodeId, elapsed: Elapsed, own: &OwnModel) {
        self.recorder.save(node, elapsed, own);
    }

    fn mean(&mut self, mean: &[f32]) {
        self.recorder.mean(mean);
    }

    fn stop_after(&mut self) -> Option<Round> {
        self.watch.stop_after()
    }
}
