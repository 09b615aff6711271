//! A disk that loses what was not synced when its machine loses power.

use std::{
    fmt,
    io::{self, ErrorKind, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use super::{
    check::check_recorded,
    files::{Contents, Files},
    state::{Bug, World},
    task::pass,
};
use crate::{
    data::{Disk, WriteContents},
    drive::Membership,
    run::Checkpoint,
};

/// The disk of one machine.
pub(super) struct SimulatedDisk {
    machine: usize,
    files: Arc<Files>,
    world: Arc<World>,
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the disk of machine {}", self.machine)
    }
}

impl SimulatedDisk {
    pub(super) fn new(machine: usize, files: Arc<Files>, world: &Arc<World>) -> Arc<SimulatedDisk> {
        Arc::new(SimulatedDisk { machine, files, world: Arc::clone(world) })
    }

    /// Lets time pass: the program may be killed meanwhile.
    fn operate(&self) {
        let slow = self.files.lock().slow;
        let micros = self.world.lock().rng.below(2_000) * u64::from(1 + slow);
        pass(Duration::from_micros(100 + micros));
    }

    /// Plants a bug: a checkpoint without the error memory of its rule.
    fn forget(&self, path: &Path) {
        let bytes = self.files.look(path).expect("it was written");
        let Ok(mut checkpoint) = Checkpoint::from_bytes(&bytes) else { return };
        for (name, values) in &mut checkpoint.snapshot.rule.vectors {
            // Of DeepSqueeze.
            if name == "d" {
                values.fill(0.0);
            }
        }
        let other = path.with_file_name("scratch");
        checkpoint.write(self, &other).expect("there is room");
        let state = &mut *self.files.lock();
        let file = state.names.remove(&other).expect("it was written");
        state.names.insert(path.into(), file);
    }

    /// Plants a bug: a checkpoint that claims to be of the newest membership.
    fn claim(&self, path: &Path, bytes: Vec<u8>) -> Vec<u8> {
        let recorded = path.with_file_name("membership.json");
        let recorded =
            self.files.look(&recorded).and_then(|text| serde_json::from_slice(&text).ok());
        let checkpoint = Checkpoint::from_bytes(&bytes);
        let (Some::<Membership>(recorded), Ok(mut checkpoint)) = (recorded, checkpoint) else {
            return bytes;
        };
        checkpoint.membership = recorded.id;
        let other = path.with_file_name("scratch");
        checkpoint.write(self, &other).expect("there is room");
        let bytes = self.files.look(&other).expect("it was written");
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
        let bytes = self.files.look(path).ok_or_else(missing)?;
        let is_checkpoint = path.to_string_lossy().contains("round-");
        if is_checkpoint && self.world.has(Bug::ReplicaKept) {
            return Ok(self.claim(path, bytes));
        }
        Ok(bytes)
    }

    fn exists(&self, path: &Path) -> bool {
        self.files.lock().names.contains_key(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let state = self.files.lock();
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
                let state = &mut *self.0.files.lock();
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
            let state = &mut *self.files.lock();
            state.contents.push(Contents::default());
            state.names.insert(path.into(), state.contents.len() - 1);
            state.contents.len() - 1
        };
        contents(&mut Counted(self, file))?;
        self.operate();
        if self.world.has(Bug::RenameBeforeSync) {
            return Ok(());
        }
        let contents = &mut self.files.lock().contents[file];
        contents.synced = contents.bytes.clone();
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate();
        if to.to_string_lossy().contains("round-") && self.world.has(Bug::ErrorForgotten) {
            self.forget(from);
        }
        let state = &mut *self.files.lock();
        let file = state.names.remove(from).ok_or_else(missing)?;
        state.names.insert(to.into(), file);
        Ok(())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.operate();
        {
            let state = &mut *self.files.lock();
            state.synced_names = state.names.clone();
        }
        let is_recorded = self.exists(&folder.join("membership.json"));
        if is_recorded {
            check_recorded(&self.world, self.machine);
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.operate();
        self.files.lock().names.remove(path).map(|_| ()).ok_or_else(missing)
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
