//! The files that a command reads: it writes over none of them.
//!
//! A command turns this on ([`protect`]). From then on every file that its user names and that is
//! opened here is remembered, and [`check`] refuses to write there. In other programs, which may
//! well write a file that they have read, nothing is remembered and nothing refused.
//!
//! A file is known by its place on the disk, whatever its name: links make no difference. Files of
//! its own that a run reads and writes again are read by other means.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// What the command has read; `None`: nothing is remembered.
static READ: Mutex<Option<Inputs>> = Mutex::new(None);

/// A file or folder: its device and number, or its full path.
#[cfg(unix)]
type Identity = (u64, u64);
#[cfg(not(unix))]
type Identity = std::path::PathBuf;

/// Files and folders of files that were read.
#[derive(Debug, Default)]
struct Inputs(BTreeSet<Identity>);

impl Inputs {
    fn note(&mut self, path: &Path) {
        self.0.extend(identity(path));
    }

    /// Remembers a file that is open.
    #[cfg(unix)]
    fn note_open(&mut self, descriptor: std::os::fd::BorrowedFd<'_>) {
        let file = descriptor.try_clone_to_owned().map(File::from);
        let found = file.and_then(|file| file.metadata());
        self.0.extend(found.ok().and_then(|found| identity_of(&found)));
    }

    /// Why this path must not be written.
    fn refusal(&self, out: &Path) -> Option<&'static str> {
        let knows = |path: &Path| identity(path).is_some_and(|it| self.0.contains(&it));
        let folder = match out.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        if knows(out) {
            Some("is read by this command: name another file")
        } else if folder.is_dir() && knows(folder) {
            Some("all files of this folder are read: name a file elsewhere")
        } else {
            None
        }
    }
}

/// `None` for what does not exist, and for what is neither a file nor a folder.
fn identity(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    #[cfg(unix)]
    return identity_of(&found);
    #[cfg(not(unix))]
    fs::canonicalize(path).ok().filter(|_| found.is_file() || found.is_dir())
}

#[cfg(unix)]
fn identity_of(found: &fs::Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    (found.is_file() || found.is_dir()).then(|| (found.dev(), found.ino()))
}

fn inputs() -> MutexGuard<'static, Option<Inputs>> {
    READ.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Protects all files that this process reads from now on, and the one that is its standard input.
pub fn protect() {
    let mut inputs = inputs();
    let _known = inputs.get_or_insert_default();
    #[cfg(unix)]
    _known.note_open(std::os::fd::AsFd::as_fd(&io::stdin()));
}

/// Forgets what was read: a next run of the same command reads its own files.
pub fn forget() {
    if let Some(inputs) = inputs().as_mut() {
        *inputs = Inputs::default();
    }
}

/// Remembers a file, or a folder whose files are all read.
pub fn note(path: &Path) {
    if let Some(inputs) = inputs().as_mut() {
        inputs.note(path);
    }
}

/// As [`File::open`], and remembers the file.
///
/// # Errors
/// If it cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    note(path);
    File::open(path)
}

/// As [`fs::read`], and remembers the file.
///
/// # Errors
/// If it cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes).map(|_| bytes)
}

/// As [`fs::read_to_string`], and remembers the file.
///
/// # Errors
/// If it cannot be read, or is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    note(path);
    fs::read_to_string(path)
}

/// Refuses to write over a file that the command reads, or into a folder of files that are all
/// read.
///
/// # Errors
/// If it is one.
pub fn check(out: &Path) -> io::Result<()> {
    let refusal = inputs().as_ref().and_then(|inputs| inputs.refusal(out));
    refusal.map_or(Ok(()), |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_over_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("parts")).unwrap();
        for name in ["in.csv", "other.csv", "parts/1.csv"] {
            fs::write(path(name), "x").unwrap();
        }
        let mut inputs = Inputs::default();
        ["in.csv", "parts", "not there"].iter().for_each(|name| inputs.note(&path(name)));
        let refused = |name: &str| inputs.refusal(&path(name)).is_some();
        assert!(refused("in.csv") && refused("parts/../in.csv"));
        assert!(refused("parts/1.csv") && refused("parts/new.csv"));
        assert!(!refused("other.csv") && !refused("new.csv") && !refused("not there"));
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(path("in.csv"), path("link.csv")).unwrap();
            fs::hard_link(path("in.csv"), path("hard.csv")).unwrap();
            assert!(refused("link.csv") && refused("hard.csv"));
            // As standard input may be.
            let mut inputs = Inputs::default();
            let open = File::open(path("other.csv")).unwrap();
            inputs.note_open(std::os::fd::AsFd::as_fd(&open));
            assert!(inputs.refusal(&path("other.csv")).is_some());
            assert!(inputs.refusal(&path("in.csv")).is_none());
            let mut inputs = Inputs::default();
            inputs.note(Path::new("/dev/null"));
            assert_eq!(inputs.refusal(Path::new("/dev/null")), None);
        }
    }

    #[test]
    fn a_program_may_write_what_it_has_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(read(file.path()).unwrap().is_empty());
        check(file.path()).unwrap();
        crate::files::replace(file.path(), b"new").unwrap();
        assert_eq!(read_to_string(file.path()).unwrap(), "new");
    }
}
