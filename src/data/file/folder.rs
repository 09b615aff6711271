//! The files of a source, of which a folder has several: the parts of one table.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use super::input::unreadable;
use crate::{
    config::{ConfigError, Fault},
    data::{DataError, Datasets, list},
    inputs,
};

/// The files of a source that is no embedded set: the file, or those of the folder, sorted by name.
/// Those of folders in it are not read, nor those whose names begin with a point or an underscore,
/// as other programs name their notes.
pub(crate) fn files_of(source: &str, datasets: Datasets) -> Result<Vec<PathBuf>, DataError> {
    let path = Path::new(source);
    if !path.exists() {
        let problem = format!(
            "no such file; accepted: a path to a CSV, NPY, NPZ or IDX file (also .gz) or a \
             Parquet or Arrow file, a folder of CSV, Parquet or Arrow files, or one of {}",
            datasets.0.names().join(", ")
        );
        let error = ConfigError::new("data.source", format!("\"{source}\""), problem);
        return Err(error.with_fault(Fault::Unreadable).into());
    }
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    inputs::note(path);
    let listed = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect()
    };
    let mut files = listed().map_err(|error| DataError::Unreadable(error).within(source))?;
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        !name.starts_with(b".") && !name.starts_with(b"_") && file.is_file()
    });
    if files.is_empty() {
        return Err(unreadable("a folder without files: at least one is needed").within(source));
    }
    files.sort();
    refuse_copies(&files).map_err(|error| error.within(source))?;
    Ok(files)
}

/// Refuses a folder that has a table twice: compressed and not, or in two formats, under the same
/// name; or the same bytes under another name, as a backup. Its rows would count twice.
fn refuse_copies(files: &[PathBuf]) -> Result<(), DataError> {
    let refuse = |file: &Path, other: &Path, what: &str| {
        let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
        let value = Some(format!("{} and {}", name(file), name(other)));
        let problem = format!("{what}, so rows would count twice: remove one of them");
        Err(DataError::Structure { place: "files".into(), value, problem })
    };
    let mut names = HashMap::new();
    let mut sizes: HashMap<u64, Vec<&PathBuf>> = HashMap::new();
    for file in files {
        if let Some(other) = names.insert(table_name(file), file) {
            return refuse(other, file, "the same table in two forms");
        }
        let size = fs::metadata(file).map_err(DataError::Unreadable)?.len();
        let alike = sizes.entry(size).or_default();
        // A file without rows is refused later.
        if size > 0
            && let Some(other) = alike.iter().find(|other| is_same(other, file))
        {
            return refuse(other, file, "the same bytes");
        }
        alike.push(file);
    }
    Ok(())
}

/// The name of a file without the endings of the formats of tables.
fn table_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    list::table_endings().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name).to_string()
}

/// Whether two files of one size have the same bytes; unreadable ones are found later.
fn is_same(file: &Path, other: &Path) -> bool {
    let (Ok(file), Ok(other)) = (File::open(file), File::open(other)) else { return false };
    let (mut file, mut other) = (BufReader::new(file), BufReader::new(other));
    loop {
        let (Ok(a), Ok(b)) = (file.fill_buf(), other.fill_buf()) else { return false };
        let length = a.len().min(b.len());
        if a[..length] != b[..length] {
            return false;
        }
        if length == 0 {
            return a.len() == b.len();
        }
        file.consume(length);
        other.consume(length);
    }
}
