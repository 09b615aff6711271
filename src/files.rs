//! Files and folders of a run directory. Others may be able to write there, in `/tmp` say, and
//! place links in it: nothing here follows one, files are made new, and only the owner can enter
//! the folders.
//!
//! Paths that the user names, such as that of the run directory itself, may be links.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::inputs;

/// Makes a new file. One that has this name is removed first, or the link that has it, but not what
/// the link leads to.
///
/// # Errors
/// If it cannot be removed or made.
pub fn create(path: &Path) -> io::Result<File> {
    // Somebody may make another one meanwhile.
    const TRIES: usize = 3;
    inputs::check(path)?;
    let mut result = create_new(path);
    for _ in 0..TRIES {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(path)?;
                result = create_new(path);
            }
            _ => break,
        }
    }
    result
}

/// Never follows a link.
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Opens a file to write at its end, and makes it if it does not exist.
///
/// # Errors
/// If it cannot be opened, is a link, or has a second name.
pub fn append(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().append(true))
}

/// Opens a file to write from its start, as it is, and makes it if it does not exist.
///
/// # Errors
/// If it cannot be opened, is a link, or has a second name.
pub(crate) fn open_or_create(path: &Path) -> io::Result<File> {
    open(path, OpenOptions::new().write(true))
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let refuse = || {
        let text = format!(
            "{} is a link, has a second name, or is no file: nothing in a run directory is \
             followed; remove it",
            path.display()
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(refuse());
    }
    #[cfg(all(target_os = "linux", feature = "net"))]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        // Opening a named pipe would wait for its reader.
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    }
    let file = options.create(true).truncate(false).open(path)?;
    let there = file.metadata()?;
    #[cfg(unix)]
    let names = std::os::unix::fs::MetadataExt::nlink(&there);
    #[cfg(not(unix))]
    let names = 1;
    if there.is_file() && names <= 1 { Ok(file) } else { Err(refuse()) }
}

/// Writes a file beside `path`, then moves it there: readers see the old file or the whole new one.
/// It is not safe from a power cut: [`data::write_atomically`](crate::data::write_atomically) is.
///
/// # Errors
/// If it cannot be written; an existing one is then unchanged.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    inputs::check(path)?;
    rewrite(path, bytes)
}

/// As [`replace`], also of a file that was read: its contents go into the new one.
///
/// # Errors
/// As [`replace`].
pub(crate) fn rewrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    let part = path.with_file_name(name);
    let written = create(&part).and_then(|mut file| file.write_all(bytes));
    written.and_then(|()| fs::rename(&part, path)).inspect_err(|_| {
        // If the leftover cannot be removed either, the first error is the one to report.
        let _ = fs::remove_file(&part);
    })
}

/// Makes a folder and those above it, unless they exist. Only the owner can enter those that it
/// makes.
///
/// # Errors
/// If one cannot be made.
pub fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// A link with one of these names in a folder, or directly below one of them; `None` if there is
/// none.
pub(crate) fn find_link(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    let is_link = |path: &PathBuf| path.is_symlink();
    names.iter().map(|name| folder.join(name)).find_map(|path| {
        if is_link(&path) {
            return Some(path);
        }
        fs::read_dir(&path).ok()?.flatten().map(|entry| entry.path()).find(is_link)
    })
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_are_replaced_or_refused_but_never_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (mine, link) = (folder.path().join("mine"), folder.path().join("link"));
        let is_unchanged = || fs::read_to_string(&mine).unwrap() == "precious";
        fs::write(&mine, "precious").unwrap();
        symlink(&mine, &link).unwrap();
        for refused in [append(&link), open_or_create(&link)] {
            assert!(refused.unwrap_err().to_string().contains("nothing in a run directory is"));
        }
        symlink(&mine, folder.path().join("a.part")).unwrap();
        replace(&folder.path().join("a"), b"new").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "new");
        create(&link).unwrap().write_all(b"new").unwrap();
        assert!(is_unchanged() && !link.is_symlink());
        // A second name of a file, and a link that leads nowhere.
        let (second, nowhere) = (folder.path().join("second"), folder.path().join("nowhere"));
        fs::hard_link(&mine, &second).unwrap();
        assert!(append(&second).is_err() && is_unchanged());
        create(&second).unwrap();
        symlink(folder.path().join("made"), &nowhere).unwrap();
        assert!(append(&nowhere).is_err());
        create(&nowhere).unwrap();
        assert!(!folder.path().join("made").exists() && is_unchanged());
        append(&second).unwrap().write_all(b"one").unwrap();
        append(&second).unwrap().write_all(b"two").unwrap();
        assert_eq!(fs::read_to_string(&second).unwrap(), "onetwo");
        assert!(create(folder.path()).is_err(), "a folder is not removed");
    }

    #[test]
    fn folders_are_the_owners_and_links_below_them_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs/first");
        create_folder(&path).unwrap();
        create_folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(find_link(folder.path(), &["runs", "none"]), None);
        symlink("/", folder.path().join("runs/second")).unwrap();
        assert_eq!(find_link(folder.path(), &["runs"]), Some(folder.path().join("runs/second")));
    }
}
