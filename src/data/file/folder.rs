//! The files of a source, of which a folder has several: the parts of one table.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use super::input::unreadable;
use crate::{
    config::{ConfigError, Fault},
    data::{DataError, Datasets, list, table::parts::Copy},
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
    refuse_names(&files).map_err(|error| error.within(source))?;
    Ok(files)
}

/// Refuses a folder that has a table in two forms under one name, compressed and not, or in two
/// formats: if one of them is older, its rows would count twice.
fn refuse_names(files: &[PathBuf]) -> Result<(), DataError> {
    let mut names = HashMap::new();
    for file in files {
        if let Some(other) = names.insert(table_name(file), file) {
            return Err(twice(other, file, "one name in two forms"));
        }
    }
    Ok(())
}

/// Refuses a folder of which two files have the same rows, in whatever spelling.
pub(crate) fn refuse_copy(
    source: &str,
    files: &[PathBuf],
    copy: Option<Copy>,
) -> Result<(), DataError> {
    let Some(Copy { files: (one, other), rows }) = copy else { return Ok(()) };
    let (Some(one), Some(other)) = (files.get(one), files.get(other)) else { return Ok(()) };
    Err(twice(one, other, &format!("the same {rows} rows")).within(source))
}

fn twice(one: &Path, other: &Path, what: &str) -> DataError {
    let name = |path: &Path| path.file_name().unwrap_or_default().display().to_string();
    let value = Some(format!("{} and {}", name(one), name(other)));
    let problem = format!("{what}, so rows would count twice: remove one of them");
    DataError::Structure { place: "files".into(), value, problem }
}

/// The name of a file without the endings of the formats of tables.
fn table_name(file: &Path) -> String {
    let name = file.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    list::table_endings().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name).to_string()
}
