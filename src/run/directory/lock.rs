//! Run directories in use: a process that writes a run holds a lock on the file `.lock` in its
//! folder. The system releases it when the process ends, however it ends.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
};

use crate::{config::ConfigError, files};

const LOCK: &str = ".lock";

/// The file that asks the node to leave.
pub(super) const LEAVE: &str = "leave";

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
pub(crate) fn lock(folder: &Path) -> Result<Option<File>, ConfigError> {
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
pub(super) fn is_in_use(folder: &Path) -> bool {
    open(folder, false).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// A folder that cannot be written.
pub(super) fn unwritable(path: &Path, error: &io::Error) -> ConfigError {
    ConfigError::new("run.out", path.display(), format!("cannot be written: {error}"))
}
