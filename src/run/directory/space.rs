//! The disk space of a run directory, compared with the free space, so that a run whose models
//! cannot be saved is refused before it begins.
//!
//! The free space is known on Linux with the feature `net`; elsewhere nothing is refused.

use std::path::Path;

use crate::{
    config::ConfigError,
    memory,
    run::{Design, Warn},
    units::Bytes,
};

/// Bytes of a line of metrics.
const LINE: u64 = 300;
/// Bytes of a model file before its numbers, and per scaled feature.
const HEADER: u64 = 2_000;
const SCALE: u64 = 45;
/// Bytes of a node's part of a summary.
const PART: u64 = 600;
/// Bytes of the experiment, the topology and the summary of any run.
const FILES: u64 = 20_000;

/// The files that a run writes into its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SavedFiles {
    /// Every node's model and the mean; every node's metrics.
    All,
    /// One node's model and the mean; its metrics.
    One,
    /// As `One` for every node in folders of their own, then as `All`.
    Both,
}

/// The size of a run directory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// The models' numbers, exactly.
    pub(crate) models: u64,
    /// An estimate of all files.
    pub all: u64,
}

impl Space {
    /// The space for a run of this design.
    pub fn of(design: &Design, saves: SavedFiles) -> Space {
        let nodes = design.topology.nodes() as u64;
        let run = &design.experiment.run;
        let (models, writers, summaries) = match saves {
            SavedFiles::All => (nodes.saturating_add(1), nodes, 1),
            SavedFiles::One => (2, 1, 1),
            SavedFiles::Both => {
                (nodes.saturating_mul(3).saturating_add(1), nodes.saturating_mul(2), nodes + 1)
            }
        };
        let data = &design.experiment.data;
        let scaled = data.standardize || data.scale.is_some();
        let features = if scaled { design.features as u64 } else { 0 };
        let header = SCALE.saturating_mul(features).saturating_add(HEADER);
        let numbers = models.saturating_mul(4).saturating_mul(design.parameters() as u64);
        let lines = run.rounds.div_ceil(run.evaluate_every.max(1)).saturating_mul(writers);
        let parts = PART.saturating_mul(nodes).saturating_add(FILES).saturating_mul(summaries);
        let rest = [header.saturating_mul(models), LINE.saturating_mul(lines), parts];
        Space { models: numbers, all: rest.into_iter().fold(numbers, u64::saturating_add) }
    }

    /// Checks the space at a directory that exists or will be created; warns if less than twice the
    /// size is free.
    ///
    /// # Errors
    /// If there is not enough even for the models; the error has both figures.
    pub fn check(&self, directory: &Path) -> Result<Option<String>, ConfigError> {
        if memory::is_unlimited() { Ok(None) } else { self.compare(free(directory), directory) }
    }

    /// Checks that there is room, and warns if there is little.
    ///
    /// # Errors
    /// As [`Space::check`].
    pub fn ensure(&self, directory: &Path, warn: &Warn) -> Result<(), ConfigError> {
        if let Some(warning) = self.check(directory)? {
            warn(&format!("warning: {warning}"));
        }
        Ok(())
    }

    fn compare(&self, free: Option<u64>, directory: &Path) -> Result<Option<String>, ConfigError> {
        let Some(free) = free.filter(|free| *free < self.all.saturating_mul(2)) else {
            return Ok(None);
        };
        let (models, all) = (Bytes(self.models), Bytes(self.all));
        if free < self.models {
            let problem = format!(
                "the run's models take {models} there, and {} are free: name a folder on another \
                 disk, or \
                 take fewer nodes or a smaller model; --no-space-check starts nevertheless",
                Bytes(free)
            );
            return Err(ConfigError::new("run.out", directory.display(), problem));
        }
        let there = directory.display();
        Ok(Some(format!(
            "the run will write about {all} to {there}, and {} are free there",
            Bytes(free)
        )))
    }
}

/// The bytes free for this user at a path that exists or will be created; `None` if the system does
/// not say.
#[cfg(all(target_os = "linux", feature = "net"))]
fn free(path: &Path) -> Option<u64> {
    let path = std::path::absolute(path).ok()?;
    let there = path.ancestors().find(|path| path.exists())?;
    let system = rustix::fs::statvfs(there).ok()?;
    // Some file systems count no blocks; those are not full.
    (system.f_blocks > 0).then(|| system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(not(all(target_os = "linux", feature = "net")))]
fn free(_path: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{experiment::Experiment, mixing::Topology};

    fn design(sets: &[&str]) -> Design {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let experiment = Experiment::default_with(&sets).unwrap();
        Design::new(experiment, Arc::new(Topology::parse("ring:4", 0).unwrap()), 64, 10).unwrap()
    }

    #[test]
    fn models_and_lines_are_counted_by_writer() {
        let design = design(&["model.hidden=[100]", "run.rounds=101", "run.evaluate_every=10"]);
        let vector = 4 * (64 * 100 + 100 + 100 * 10 + 10);
        let of = |saves| Space::of(&design, saves);
        assert_eq!(
            [SavedFiles::All, SavedFiles::One, SavedFiles::Both]
                .map(|saves| of(saves).models / vector),
            [5, 2, 13]
        );
        let rest = |saves| of(saves).all - of(saves).models;
        let header = HEADER + 64 * SCALE;
        assert_eq!(rest(SavedFiles::One), 2 * header + 11 * LINE + 4 * PART + FILES);
        assert_eq!(rest(SavedFiles::All), 5 * header + 44 * LINE + 4 * PART + FILES);
        assert_eq!(rest(SavedFiles::Both), 13 * header + 88 * LINE + 5 * (4 * PART + FILES));
    }

    #[test]
    fn models_that_do_not_fit_are_refused_and_a_tight_fit_warns() {
        let space = Space { models: 1_000, all: 1_500 };
        let warned = |free| space.compare(free, Path::new("runs/a"));
        assert_eq!(warned(None), Ok(None));
        assert_eq!(warned(Some(3_000)), Ok(None));
        let warning = "the run will write about 1.5 kB to runs/a, and 3.0 kB are free there";
        assert_eq!(warned(Some(2_999)), Ok(Some(warning.into())));
        assert!(warned(Some(1_000)).unwrap().is_some());
        let error = warned(Some(999)).unwrap_err().to_string();
        assert!(error.starts_with(
            "run.out = runs/a: the run's models take 1.0 kB there, and 999 B are free:"
        ));
    }

    #[test]
    #[cfg(all(target_os = "linux", feature = "net"))]
    fn free_space_is_known_for_a_folder_that_does_not_exist_yet() {
        let folder = tempfile::tempdir().unwrap();
        assert!(free(&folder.path().join("runs/to/be")).is_some_and(|free| free > 0));
    }
}
