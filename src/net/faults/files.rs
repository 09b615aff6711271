//! The files on a disk: what programs see of them, and what is left when the power fails.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::rng::Sequence;

/// The contents of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pub bytes: Vec<u8>,
    /// What the disk has of it.
    pub synced: Vec<u8>,
}

/// The files of one machine.
#[derive(Debug, Default)]
pub(super) struct Files(Mutex<Tables>);

/// The tables of a file system, in memory and on the disk.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub contents: Vec<Contents>,
    /// The files, by their places in `contents`.
    pub names: BTreeMap<PathBuf, usize>,
    /// The same as the disk has it.
    pub synced_names: BTreeMap<PathBuf, usize>,
    pub is_full: bool,
    /// Operations take longer by this factor.
    pub slow: u32,
}

impl Files {
    pub(super) fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The machine loses power.
    pub(super) fn lose_power(&self, rng: &mut Sequence) {
        let state = &mut *self.lock();
        // A disk may have more names than it was asked to sync.
        if rng.below(2) == 0 {
            state.names = state.synced_names.clone();
        }
        for contents in &mut state.contents {
            contents.bytes = contents.synced.clone();
        }
        state.synced_names = state.names.clone();
    }

    pub(super) fn wipe(&self) {
        let state = &mut *self.lock();
        state.names.clear();
        state.synced_names.clear();
    }

    /// Damages the newest checkpoint, if there is one.
    pub(super) fn damage(&self, rng: &mut Sequence) {
        let state = &mut *self.lock();
        let newest =
            state.names.iter().rfind(|(path, _)| path.to_string_lossy().contains("round-"));
        if let Some((_, &file)) = newest {
            let contents = &mut state.contents[file];
            let at = rng.below(contents.bytes.len().max(1) as u64) as usize;
            match (rng.below(2), contents.bytes.get_mut(at)) {
                (0, Some(byte)) => *byte ^= 0x20,
                _ => contents.bytes.truncate(at),
            }
            contents.synced = contents.bytes.clone();
        }
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.lock().is_full = is_full;
    }

    pub(super) fn set_slow(&self, slow: u32) {
        self.lock().slow = slow;
    }

    /// The contents of a file, without delay.
    pub(super) fn look(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.lock();
        state.names.get(path).map(|&file| state.contents[file].bytes.clone())
    }
}
