//! Runs kept in a folder, so that a long study continues where it was stopped.
//!
//! A run is found by everything that decides it: its experiment with absolute paths, the text of
//! its topology file, the sizes and times of its data files, and where it ends. Whether the program
//! still computes the same is tried on the first run that is found: it is repeated, and unless it
//! gives the same points and digest, no run of the folder is taken.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::UNIX_EPOCH,
};

use gradvine::{config::ConfigError, data::write_atomically, experiment::Experiment};
use serde::{Deserialize, Serialize};

use super::{
    running::Until,
    trace::{Status, Trace},
};
use crate::figure::Target;

/// The folder of kept runs.
#[derive(Debug)]
pub struct RunCache {
    folder: PathBuf,
    /// Whether the first run that was found is the one that the program computes.
    trusted: OnceLock<bool>,
}

/// A file of the folder.
#[derive(Serialize, Deserialize)]
struct File {
    /// All that decides the run, as text: [`identity`] writes it.
    of: String,
    trace: Trace,
}

impl RunCache {
    /// The runs in a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn in_folder(folder: &Path) -> Result<RunCache, ConfigError> {
        fs::create_dir_all(folder)
            .map_err(|error| ConfigError::new("--keep", folder.display(), error.to_string()))?;
        Ok(RunCache { folder: folder.to_path_buf(), trusted: OnceLock::new() })
    }

    /// The run of an experiment: the kept one, or a new one, which is kept unless it was
    /// interrupted. A run that was given up is taken if it would be given up now. A run that cannot
    /// be written is only not kept.
    pub fn or_run(
        &self,
        experiment: &Experiment,
        until: Until<'_>,
        run: &dyn Fn(Until<'_>) -> Trace,
    ) -> Trace {
        let of = identity(experiment, until.target);
        let path = self.folder.join(format!("{:016x}.toml", short(&of)));
        if let Some(kept) = read(&path, &of)
            && *self.trusted.get_or_init(|| same(&kept, &run(until_again(&kept, until))))
            && !(kept.status == Status::GivenUp && last_time(&kept) <= until.seconds)
        {
            return kept;
        }
        let file = File { of, trace: run(until) };
        if file.trace.status != Status::Interrupted
            && let Ok(text) = toml::to_string(&file)
        {
            let _ = write_atomically(&path, &[text.as_bytes()]);
        }
        file.trace
    }
}

/// Where a repetition of a run has to end: one that was given up ends at its last point.
fn until_again<'a>(kept: &Trace, until: Until<'a>) -> Until<'a> {
    let before = kept.points.iter().rev().nth(1).map_or(0.0, |point| point.time_s);
    let seconds = if kept.status == Status::GivenUp { before } else { f64::INFINITY };
    Until { seconds, ..until }
}

fn last_time(trace: &Trace) -> f64 {
    trace.points.last().map_or(0.0, |point| point.time_s)
}

/// Whether two runs have the same points and models.
fn same(a: &Trace, b: &Trace) -> bool {
    let text = |trace: &Trace| toml::to_string(trace).ok();
    text(a).is_some() && text(a) == text(b)
}

fn read(path: &Path, of: &str) -> Option<Trace> {
    let file: File = toml::from_str(&fs::read_to_string(path).ok()?).ok()?;
    (file.of == of).then_some(file.trace)
}

/// Everything that decides a run, as text.
fn identity(experiment: &Experiment, until: Option<&Target>) -> String {
    let moved = experiment.moved();
    let mut text = moved.to_toml();
    if let Some(topology) =
        moved.topology.file.as_ref().and_then(|file| fs::read_to_string(file).ok())
    {
        let _ = write!(text, "\n{topology}");
    }
    let data = &moved.data;
    for path in data.sources.iter().flatten().chain([&data.source]).chain(&data.labels) {
        if let Ok(found) = fs::metadata(path) {
            let time = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
            let _ = write!(text, "\n{path}: {} bytes, {time:?}", found.len());
        }
    }
    let _ = write!(text, "\n{:?}", until.map(|target| (target.metric, target.value)));
    text
}

/// FNV-1a of 64 bits: names a file; its text is compared too.
fn short(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn experiment(rounds: u64) -> Experiment {
        Experiment::default_with(&[format!("run.rounds={rounds}"), "topology.file=ring:3".into()])
            .unwrap()
    }

    #[test]
    fn a_kept_run_is_repeated_once_and_then_taken() {
        let folder = tempfile::tempdir().unwrap();
        let count = Cell::new(0);
        let get = |kept: &RunCache, rounds: u64| {
            let run = |_: Until<'_>| {
                count.set(count.get() + 1);
                Trace::of(Ok(experiment(rounds)), None, Until::LAST_ROUND, &|| false)
            };
            kept.or_run(&experiment(rounds), Until::LAST_ROUND, &run)
        };
        let kept = RunCache::in_folder(folder.path()).unwrap();
        let first = [get(&kept, 2), get(&kept, 3)];
        assert_eq!(count.get(), 2);
        // Another program start: the first is repeated, the second only read.
        let again = RunCache::in_folder(folder.path()).unwrap();
        let second = [get(&again, 2), get(&again, 3)];
        assert_eq!(count.get(), 3);
        for (a, b) in first.iter().zip(&second) {
            assert!(same(a, b), "{a:?} {b:?}");
        }
        assert_ne!(first[0].digest, first[1].digest);
    }

    #[test]
    fn runs_of_another_program_are_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let trace = |digest: &str| {
            let mut trace = Trace::of(Ok(experiment(1)), None, Until::LAST_ROUND, &|| false);
            trace.digest = digest.into();
            trace
        };
        let kept = RunCache::in_folder(folder.path()).unwrap();
        kept.or_run(&experiment(1), Until::LAST_ROUND, &|_| trace("old"));
        kept.or_run(&experiment(2), Until::LAST_ROUND, &|_| trace("old"));
        let again = RunCache::in_folder(folder.path()).unwrap();
        for rounds in [1, 2] {
            let found = again.or_run(&experiment(rounds), Until::LAST_ROUND, &|_| trace("new"));
            assert_eq!(found.digest, "new", "{rounds} rounds");
        }
        // A target is part of what decides a run.
        let target = Target { metric: crate::figure::Figure::TrainLoss, value: 0.1 };
        let aimed = Until { target: Some(&target), ..Until::LAST_ROUND };
        let other = again.or_run(&experiment(1), aimed, &|_| trace("other"));
        assert_eq!(other.digest, "other");
    }
}
