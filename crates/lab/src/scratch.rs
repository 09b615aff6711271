//! A temporary folder for a run that keeps no files.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    process,
};

use gradvine::run::EndError;

use super::{LabError, names, remove};

/// The folder of a run in the laboratory. Dropping it removes the folder, unless files are kept.
pub struct Scratch {
    folder: Option<PathBuf>,
    stays: Cell<bool>,
}

impl Scratch {
    /// A folder for this process; none if the run keeps its files elsewhere.
    pub fn new(keep: bool) -> Scratch {
        let name = format!("gradvine-lab-{}", process::id());
        Scratch {
            folder: (!keep).then(|| std::env::temp_dir().join(name)),
            stays: Cell::new(false),
        }
    }

    /// Its path, if there is one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Removes the folder and the namespaces of a run with so many nodes: for a program that must
    /// exit in the middle of it.
    pub fn clean_up(&self, nodes: usize) -> impl FnOnce() + Send + use<> {
        let (names, folder) = (names(nodes), self.folder.clone());
        move || {
            remove(&names);
            folder.iter().for_each(|folder| drop(fs::remove_dir_all(folder)));
        }
    }

    /// How a run ended that had come to this round. A run that failed keeps its folder, because the
    /// error refers to the logs in it.
    pub fn explain(&self, error: LabError, round: u64) -> EndError {
        match error {
            LabError::Run(EndError::Interrupted(_)) if self.folder.is_some() => {
                let text = format!("stopped in round {round}; no files are kept");
                EndError::Interrupted(text.into())
            }
            LabError::Run(end) => {
                self.stays.set(true);
                end
            }
            error => error.into(),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder
            && !self.stays.get()
        {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_failed_keeps_its_folder() {
        let scratch = Scratch::new(false);
        let folder = scratch.folder().unwrap().to_path_buf();
        fs::create_dir_all(&folder).unwrap();
        drop(scratch);
        assert!(!folder.exists());
        fs::create_dir_all(&folder).unwrap();
        let scratch = Scratch::new(false);
        let failed = scratch.explain(EndError::failed("node a ended").into(), 3);
        assert_eq!(failed.to_string(), "node a ended");
        drop(scratch);
        assert!(folder.exists());
        let scratch = Scratch::new(false);
        let stopped = scratch.explain(EndError::Interrupted("stopped".into()).into(), 3);
        assert_eq!(stopped.to_string(), "stopped in round 3; no files are kept");
        fs::remove_dir_all(&folder).unwrap();
        assert!(Scratch::new(true).folder().is_none());
    }
}
