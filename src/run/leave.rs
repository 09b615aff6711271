//! Run directories in use, and how another program asks a node to leave its run.
//!
//! A process that writes a run holds a lock on the file `.lock` in its folder; the system releases
//! it when the process ends, however it ends. The file `leave` asks the node to leave.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use super::{RunDirectory, directory::unwritable, single::NodeFile};
use crate::{
    config::ConfigError,
    experiment::{Experiment, Policy},
    files,
};

const LOCK: &str = ".lock";
const LEAVE: &str = "leave";

/// How often a node looks for the request, and a request for its answer.
const LOOK: Duration = Duration::from_millis(300);

/// Opens the file of the lock. One of another user can be locked, although not written.
fn open(folder: &Path, create: bool) -> io::Result<File> {
    let path = folder.join(LOCK);
    let file = match create {
        true => files::open_or_create(&path),
        false => File::options().write(true).open(&path),
    };
    file.or_else(|error| match error.kind() {
        io::ErrorKind::InvalidInput => Err(error),
        _ => File::open(&path).map_err(|_| error),
    })
}

/// Holds the lock of a folder, where the file system has locks.
///
/// # Errors
/// If another process holds it, or the folder cannot be written.
pub(super) fn lock(folder: &Path) -> Result<Option<File>, ConfigError> {
    let file = open(folder, true).map_err(|error| unwritable(folder, &error))?;
    let taken = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => {
            let problem = "another process writes a run into this folder: wait until it ends, stop \
                           it, or name another folder";
            return Err(ConfigError::new("run.out", folder.display(), problem));
        }
        Err(TryLockError::Error(_)) => false,
    };
    // A request to an earlier process.
    let _ = fs::remove_file(folder.join(LEAVE));
    Ok(taken.then_some(file))
}

/// Removes the lock's file from a folder that is given up.
pub(super) fn forget(folder: &Path) {
    let _ = fs::remove_file(folder.join(LOCK));
}

/// Whether a process holds the lock of a folder.
fn is_in_use(folder: &Path) -> bool {
    open(folder, false).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

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
/// If no node runs there, its run cannot go on without it, or it does not end in time.
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
    let begun = Instant::now();
    while is_in_use(&folder) {
        if begun.elapsed() >= within {
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
