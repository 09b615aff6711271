//! Writing a page and its pictures.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

use gradvine::{
    config::ConfigError,
    data::{Kind, check_output, write_atomically},
    units::Bytes,
};

use gradvine_page::MARK;

use super::Page;
use crate::text::count;

impl Page {
    /// Writes the page, and its pictures as single SVG files into a folder, if there is one.
    /// Folders are made.
    ///
    /// # Errors
    /// If a file or folder cannot be written; `place` is `--out` or `--figures` if a folder cannot
    /// be made.
    pub fn write(&self, out: &Path, figures: Option<&Path>) -> Result<(), ConfigError> {
        make(out.parent(), "--out")?;
        write_atomically(out, &[self.html.as_bytes()])?;
        if let Some(folder) = figures {
            make(Some(folder), "--figures")?;
            for picture in &self.pictures {
                let path = folder.join(format!("{}.svg", picture.name));
                write_atomically(&path, &[picture.svg.as_bytes()])?;
            }
        }
        Ok(())
    }

    /// What [`Page::write`] has written, in a line.
    pub fn written(&self, out: &Path, figures: Option<&Path>) -> String {
        let pictures = count(self.pictures.len(), "picture");
        let also = figures.map(|folder| format!(", {pictures} in {}", folder.display()));
        format!(
            "{}: {}, {}{}\n",
            out.display(),
            Bytes(self.html.len() as u64),
            count(self.runs, "run"),
            also.unwrap_or_default()
        )
    }
}

/// Checks that no folder of a run is named twice.
///
/// # Errors
/// With the second one; `place` is `RUN_DIR`.
pub fn check_named_once(runs: &[PathBuf]) -> Result<(), ConfigError> {
    let mut known = BTreeSet::new();
    for path in runs {
        if !known.insert(fs::canonicalize(path).unwrap_or_else(|_| path.clone())) {
            let problem = "is named twice; name each run once";
            return Err(ConfigError::new("RUN_DIR", path.display(), problem));
        }
    }
    Ok(())
}

/// Checks that a page may be written to this file: that it does not exist, or is an earlier page.
///
/// # Errors
/// If it is something else; `place` is `--out`.
pub fn check_replaceable(out: &Path) -> Result<(), ConfigError> {
    let refuse = |why: &str| Err(ConfigError::new("--out", out.display(), why));
    if out.is_dir() {
        return refuse("is a folder; name a file, such as report.html");
    }
    let Ok(file) = File::open(out) else { return check_output("--out", out, Kind::Page) };
    let mut begin = Vec::new();
    let read = file.take(MARK.len() as u64).read_to_end(&mut begin);
    if read.is_err() || (!begin.is_empty() && begin != MARK.as_bytes()) {
        return refuse("exists and is not a report of gradvine; name another file, or remove it");
    }
    check_output("--out", out, Kind::Page)
}

fn make(folder: Option<&Path>, flag: &str) -> Result<(), ConfigError> {
    let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    fs::create_dir_all(folder).map_err(|error| {
        ConfigError::new(flag, folder.display(), format!("the folder cannot be made: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_named_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_path_buf();
        assert!(check_named_once(std::slice::from_ref(&path)).is_ok());
        let error = check_named_once(&[path.clone(), path.join(".")]).unwrap_err();
        assert_eq!(error.place, "RUN_DIR");
    }

    #[test]
    fn only_an_earlier_page_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("made/report.html");
        let page = Page { html: format!("{MARK}\n<html></html>"), pictures: Vec::new(), runs: 1 };
        assert!(check_replaceable(&out).is_ok());
        page.write(&out, None).unwrap();
        let written = page.written(Path::new("a.html"), Some(Path::new("figures")));
        assert_eq!(written, "a.html: 53 B, 1 run, 0 pictures in figures\n");
        assert!(check_replaceable(&out).is_ok());
        fs::write(&out, "<!doctype html><title>mine</title>").unwrap();
        let error = check_replaceable(&out).unwrap_err().to_string();
        assert!(error.contains("is not a report of gradvine"), "{error}");
        let error = check_replaceable(folder.path()).unwrap_err().to_string();
        assert!(error.contains("is a folder"), "{error}");
    }
}
