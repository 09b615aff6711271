//! The operations of a file system that files which survive a crash need.

use std::{
    fmt::Debug,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use super::super::DataError;
use crate::files;

/// Writes the contents of a file.
pub(crate) type WriteContents<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// A file system: that of the computer, or a simulated one that loses what was not synced.
pub(crate) trait Disk: Debug + Send + Sync {
    /// The contents of a file.
    ///
    /// # Errors
    /// As [`std::fs::read`].
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Whether there is such a file.
    fn exists(&self, path: &Path) -> bool;

    /// The names of the files of a folder.
    ///
    /// # Errors
    /// As [`std::fs::read_dir`].
    fn names(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Makes a folder and those above it, unless they exist. Only its owner can enter it.
    ///
    /// # Errors
    /// As [`std::fs::create_dir_all`].
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Writes a new file, in place of one that may be there, and waits until the disk has its
    /// contents, but not yet its name.
    ///
    /// # Errors
    /// If it cannot be written.
    fn write(&self, path: &Path, contents: WriteContents<'_>) -> io::Result<()>;

    /// Moves a file to another name, where one may be.
    ///
    /// # Errors
    /// As [`std::fs::rename`].
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Waits until the disk has the names of the files of a folder.
    ///
    /// # Errors
    /// As [`File::sync_all`].
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// As [`std::fs::remove_file`].
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    ///
    /// # Errors
    /// As [`std::fs::remove_dir`]: if it is not empty, say.
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The file system of the computer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileSystem;

impl Disk for FileSystem {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder)?.flatten();
        Ok(names.filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        files::create_folder(folder)
    }

    fn write(&self, path: &Path, contents: WriteContents<'_>) -> io::Result<()> {
        let mut file = BufWriter::new(files::create(path)?);
        contents(&mut file)?;
        file.into_inner()?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        // Other systems have no such operation.
        if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        fs::remove_dir(folder)
    }
}

/// The file system of the computer, on which nothing changes: to look at what would happen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadOnly;

impl Disk for ReadOnly {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        FileSystem.read(path)
    }

    fn exists(&self, path: &Path) -> bool {
        FileSystem.exists(path)
    }

    fn names(&self, folder: &Path) -> io::Result<Vec<String>> {
        FileSystem.names(folder)
    }

    fn create_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, _: &Path, _: WriteContents<'_>) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_file(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove_folder(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a file beside `path`, then moves it there: readers see the old file or the whole new one,
/// also after a power cut.
///
/// # Errors
/// If the file cannot be written; an existing one is then unchanged.
pub(crate) fn replace_file(
    disk: &dyn Disk,
    path: &Path,
    contents: WriteContents<'_>,
) -> Result<(), DataError> {
    let temporary = beside(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let written = disk
        .write(&temporary, contents)
        .and_then(|()| disk.rename(&temporary, path))
        .and_then(|()| disk.sync_folder(folder.unwrap_or(Path::new("."))));
    written.map_err(|error| {
        // If the leftover cannot be removed either, the first error is the one to report.
        let _ = disk.remove_file(&temporary);
        DataError::Unwritable(error).within(path.display())
    })
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}
