//! A disk that loses what was not synced when its machine loses power.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use super::{
    program,
    world::{Bug, World},
};
use crate::{
    data::{Disk, WriteContents},
    drive::Membership,
    rng::Sequence,
    run::Checkpoint,
};

/// The contents of a file.
#[derive(Clone, Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    /// What the disk has of it.
    synced: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    contents: Vec<Contents>,
    /// The files, by their places in `contents`.
    names: BTreeMap<PathBuf, usize>,
    /// The same as the disk has it.
    synced_names: BTreeMap<PathBuf, usize>,
    is_full: bool,
    /// Operations take longer by this factor.
    slow: u32,
}

/// The disk of one machine.
pub(super) struct SimulatedDisk {
    machine: usize,
    world: Weak<World>,
    state: Mutex<State>,
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the disk of machine {}", self.machine)
    }
}

impl SimulatedDisk {
    pub(super) fn new(machine: usize, world: Weak<World>) -> Arc<SimulatedDisk> {
        Arc::new(SimulatedDisk { machine, world, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn world(&self) -> Arc<World> {
        self.world.upgrade().expect("the world outlives its machines")
    }

    /// Lets time pass: the program may be killed meanwhile.
    fn operate(&self) {
        let slow = self.lock().slow;
        let world = self.world();
        let micros = world.lock().rng.below(2_000) * u64::from(1 + slow);
        program::pass(Duration::from_micros(100 + micros));
    }

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

impl SimulatedDisk {
    /// Plants a bug: a checkpoint without the error memory of its rule.
    fn forget(&self, path: &Path) {
        let bytes = self.look(path).expect("it was written");
        let Ok(mut checkpoint) = Checkpoint::from_bytes(&bytes) else { return };
        for (name, values) in &mut checkpoint.snapshot.rule.vectors {
            // Of DeepSqueeze.
            if name == "d" {
                values.fill(0.0);
            }
        }
        let other = path.with_file_name("scratch");
        checkpoint.write(self, &other).expect("there is room");
        let state = &mut *self.lock();
        let file = state.names.remove(&other).expect("it was written");
        state.names.insert(path.into(), file);
    }

    /// Plants a bug: a checkpoint that claims to be of the newest membership.
    fn claim(&self, path: &Path, bytes: Vec<u8>) -> Vec<u8> {
        let recorded = path.with_file_name("membership.json");
        let recorded = self.look(&recorded).and_then(|text| serde_json::from_slice(&text).ok());
        let checkpoint = Checkpoint::from_bytes(&bytes);
        let (Some::<Membership>(recorded), Ok(mut checkpoint)) = (recorded, checkpoint) else {
            return bytes;
        };
        checkpoint.membership = recorded.id;
        let other = path.with_file_name("scratch");
        checkpoint.write(self, &other).expect("there is room");
        let bytes = self.look(&other).expect("it was written");
        let _ = self.remove_file(&other);
        bytes
    }
}

fn missing() -> io::Error {
    ErrorKind::NotFound.into()
}

impl Disk for SimulatedDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.operate();
        let bytes = self.look(path).ok_or_else(missing)?;
        let is_checkpoint = path.to_string_lossy().contains("round-");
        if is_checkpoint && self.world().has(Bug::ReplicaKept) {
            return Ok(self.claim(path, bytes));
        }
        Ok(bytes)
    }

    fn exists(&self, path: &Path) -> bool {
        self.lock().names.contains_key(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.lock();
        let here = state.names.keys().filter(|path| path.parent() == Some(folder));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_str()?.to_string())).collect())
    }

    fn create_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, path: &Path, contents: WriteContents<'_>) -> io::Result<()> {
        struct Counted<'a>(&'a SimulatedDisk, usize);
        impl Write for Counted<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let state = &mut *self.0.lock();
                if state.is_full {
                    return Err(ErrorKind::StorageFull.into());
                }
                state.contents[self.1].bytes.extend_from_slice(bytes);
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        self.operate();
        let file = {
            let state = &mut *self.lock();
            state.contents.push(Contents::default());
            state.names.insert(path.into(), state.contents.len() - 1);
            state.contents.len() - 1
        };
        contents(&mut Counted(self, file))?;
        self.operate();
        if self.world().has(Bug::RenameBeforeSync) {
            return Ok(());
        }
        let contents = &mut self.lock().contents[file];
        contents.synced = contents.bytes.clone();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate();
        if to.to_string_lossy().contains("round-") && self.world().has(Bug::ErrorForgotten) {
            self.forget(from);
        }
        let state = &mut *self.lock();
        let file = state.names.remove(from).ok_or_else(missing)?;
        state.names.insert(to.into(), file);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.operate();
        {
            let state = &mut *self.lock();
            state.synced_names = state.names.clone();
        }
        let is_recorded = self.exists(&folder.join("membership.json"));
        if is_recorded {
            self.world().check_recorded(self.machine);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.operate();
        self.lock().names.remove(path).map(|_| ()).ok_or_else(missing)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        self.operate();
        // Folders have no entries of their own.
        match self.names(folder)?.is_empty() {
            true => Ok(()),
            false => Err(ErrorKind::DirectoryNotEmpty.into()),
        }
    }
}
