//! The disk of a machine, in memory: a loss of power takes what was not synced.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::data::{Disk, WriteContents};

/// The contents of a file.
#[derive(Clone, Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    /// What the disk has of it.
    synced: Vec<u8>,
}

/// The tables of a file system, in memory and on the disk.
#[derive(Debug, Default)]
struct Tables {
    contents: Vec<Contents>,
    /// The files, by their places in `contents`.
    names: BTreeMap<PathBuf, usize>,
    /// The same as the disk has it.
    synced_names: BTreeMap<PathBuf, usize>,
    /// How many faults keep it full.
    full: u32,
    /// After so many operations that change something, none succeeds.
    left: Option<u32>,
}

/// The disk of one machine.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Tables>);

fn missing() -> io::Error {
    ErrorKind::NotFound.into()
}

impl Memory {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables, for an operation that changes them.
    ///
    /// # Errors
    /// If the program is killed before it.
    fn change(&self) -> io::Result<MutexGuard<'_, Tables>> {
        let mut tables = self.lock();
        match &mut tables.left {
            Some(0) => return Err(ErrorKind::Interrupted.into()),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(tables)
    }

    /// From now on so many operations succeed; all with `None`.
    pub(super) fn allow(&self, operations: Option<u32>) {
        self.lock().left = operations;
    }

    /// The machine loses power. A disk may have more names than it was asked to sync.
    pub(super) fn lose_power(&self, keeps_names: bool) {
        let tables = &mut *self.lock();
        if !keeps_names {
            tables.names = tables.synced_names.clone();
        }
        for contents in &mut tables.contents {
            contents.bytes.clone_from(&contents.synced);
        }
        tables.synced_names = tables.names.clone();
    }

    /// All files are lost.
    pub(super) fn wipe(&self) {
        let tables = &mut *self.lock();
        tables.names.clear();
        tables.synced_names.clear();
        tables.contents.clear();
    }

    /// The newest checkpoint, if there is one, loses its second half.
    pub(super) fn damage(&self) {
        let tables = &mut *self.lock();
        let is_checkpoint = |path: &Path| path.to_string_lossy().contains("round-");
        let newest = tables.names.iter().rfind(|(path, _)| is_checkpoint(path));
        if let Some((_, &file)) = newest {
            let contents = &mut tables.contents[file];
            contents.bytes.truncate(contents.bytes.len() / 2);
            contents.synced.clone_from(&contents.bytes);
        }
    }

    /// A fault fills the disk, or one more of them is over.
    pub(super) fn fill(&self, is_full: bool) {
        let tables = &mut *self.lock();
        tables.full = if is_full { tables.full + 1 } else { tables.full - 1 };
    }

    /// Whether a checkpoint of this round is there, also if the power fails.
    #[cfg(test)]
    pub(super) fn is_durable(&self, rounds: u64) -> bool {
        let tables = self.lock();
        let name = format!("round-{rounds:012}");
        let mut all = tables.names.iter();
        all.any(|(path, file)| {
            let contents = &tables.contents[*file];
            path.to_string_lossy().contains(&name)
                && tables.synced_names.get(path) == Some(file)
                && !contents.synced.is_empty()
        })
    }

    pub(super) fn is_full(&self) -> bool {
        self.lock().full > 0
    }
}

/// A file that is being written.
struct Open<'a> {
    tables: &'a mut Tables,
    file: usize,
}

impl Write for Open<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tables.full > 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.tables.contents[self.file].bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let tables = self.lock();
        let file = *tables.names.get(path).ok_or_else(missing)?;
        Ok(tables.contents[file].bytes.clone())
    }

    fn exists(&self, path: &Path) -> bool {
        self.lock().names.contains_key(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let tables = self.lock();
        let here = tables.names.keys().filter(|path| path.parent() == Some(folder));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_str()?.to_string())).collect())
    }

    fn create_folder(&self, _folder: &Path) -> io::Result<()> {
        // Folders have no entries of their own.
        Ok(())
    }

    fn write(&self, path: &Path, contents: WriteContents<'_>) -> io::Result<()> {
        let tables = &mut *self.change()?;
        let file = tables.contents.len();
        tables.contents.push(Contents::default());
        tables.names.insert(path.into(), file);
        contents(&mut Open { tables, file })?;
        let contents = &mut tables.contents[file];
        contents.synced.clone_from(&contents.bytes);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let tables = &mut *self.change()?;
        let file = tables.names.remove(from).ok_or_else(missing)?;
        tables.names.insert(to.into(), file);
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        let tables = &mut *self.change()?;
        tables.synced_names = tables.names.clone();
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change()?.names.remove(path).map(|_| ()).ok_or_else(missing)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        match self.names(folder)?.is_empty() {
            true => Ok(()),
            false => Err(ErrorKind::DirectoryNotEmpty.into()),
        }
    }
}
