//! How another program asks a node to leave its run: by the file `leave` in its run directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::lock::{LEAVE, is_in_use};
use crate::{
    config::ConfigError,
    experiment::{Experiment, Policy},
    files,
    run::{RunDirectory, node_file::NodeFile},
};

/// How often a node looks for the request, and a request for its answer.
const LOOK: Duration = Duration::from_millis(300);

/// Looks for the request to leave.
#[derive(Debug)]
pub(crate) struct Departure {
    path: PathBuf,
    looked: Instant,
    asked: bool,
}

impl Departure {
    /// Requests in this run directory.
    pub(crate) fn of(directory: &RunDirectory) -> Departure {
        let path = directory.path().join(LEAVE);
        Departure { path, looked: Instant::now(), asked: false }
    }

    /// Whether the node was asked to leave.
    pub(crate) fn is_asked(&mut self) -> bool {
        if !self.asked && self.looked.elapsed() >= LOOK {
            (self.looked, self.asked) = (Instant::now(), self.path.exists());
        }
        self.asked
    }
}

/// Asks the node of this file to leave its run, and waits until its process has ended. `out`
/// replaces the run directory of the file.
///
/// # Errors
/// If no node runs there, its run cannot continue without it, or it does not end in time.
pub fn leave(node: &Path, out: Option<&Path>, within: Duration) -> Result<PathBuf, ConfigError> {
    let folder = match out {
        Some(out) => out.to_path_buf(),
        None => NodeFile::load(node)?.out,
    };
    let wrong = |problem: String| Err(ConfigError::at(folder.display().to_string(), problem));
    if !is_in_use(&folder) {
        return wrong("no node runs in this run directory".into());
    }
    let experiment = Experiment::load(&folder.join("experiment.toml"), &[])?;
    if experiment.absence.policy == Policy::Wait {
        return wrong(
            "the run has absence.policy = \"wait\": it ends for all nodes if one leaves; to end \
             it, stop the program (Ctrl-C, SIGTERM)"
                .into(),
        );
    }
    let request = folder.join(LEAVE);
    let failed = |error: io::Error| {
        ConfigError::at(request.display().to_string(), format!("cannot be written: {error}"))
    };
    files::create(&request).map_err(failed)?;
    let started = Instant::now();
    while is_in_use(&folder) {
        if started.elapsed() >= within {
            let _ = fs::remove_file(&request);
            return wrong(format!("the node has not left within {} s", within.as_secs()));
        }
        thread::sleep(LOOK);
    }
    let _ = fs::remove_file(&request);
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::directory::lock::lock;

    #[test]
    fn a_folder_has_one_writer_and_a_request_needs_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, request) = (folder.path(), folder.path().join(LEAVE));
        assert!(!is_in_use(path));
        fs::write(&request, "").unwrap();
        let held = lock(path).unwrap();
        assert!(held.is_some() && is_in_use(path) && !request.exists());
        let error = lock(path).unwrap_err().to_string();
        assert!(error.contains("another process writes a run into this folder"), "{error}");
        drop(held);
        assert!(!is_in_use(path));
        let error = leave(path, Some(path), Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("no node runs in this run directory"), "{error}");
    }
}
