//! Makes a [`Dataset`] from a name: finds the bytes, limits their size, detects the format.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use super::{
    DataError,
    arrays::{arrays, labels_path, no_labels_file, read_labels},
    dataset::Dataset,
    embedded,
    file::folder::{files_of, refuse_copy},
    open::{Opened, no_table},
    options::Options,
    table::{encode::Encoder, rows::TextRows},
};
use crate::config::ConfigError;

/// Loads an embedded set (`digits`, `breast-cancer`) or a file: CSV, NPY, NPZ or IDX, each also
/// gzip-compressed, or Parquet or Arrow (cargo features `parquet` and `arrow`). The CSV, Parquet
/// and Arrow files of a folder are read as one table, in the order of their names: all have the
/// same columns, by name in any order if they have names.
///
/// # Errors
/// If the file cannot be read or is not in the expected format: the message names the file, the
/// line (or row, or byte offset), the value, and the accepted ones.
pub fn load(source: &str, options: &Options) -> Result<Dataset, DataError> {
    if let Some(set) = options.datasets.0.find(source) {
        if let Some(labels) = &options.labels_file {
            let problem = format!("{source} holds its labels itself: leave the key out");
            return Err(ConfigError::new("data.labels_file", labels.display(), problem).into());
        }
        if let Some(header) = options.header {
            let problem = format!("{source} has a fixed format: leave the key out");
            return Err(ConfigError::new("data.header", header, problem).into());
        }
        return parse(source, set.bytes, None, options);
    }
    let files = files_of(source, options.datasets)?;
    let mut encoder = Encoder::new(options)?;
    for file in &files {
        let name = file.display().to_string();
        let opened = Opened::file(file, &name)?;
        if opened.format.is_table() {
            opened.read(options.header, &mut encoder)?;
            continue;
        }
        if Path::new(source).is_dir() {
            let problem = "is not a table, but a folder's files are the parts of one";
            return Err(no_table(problem).within(&name));
        }
        let (format, bytes) = (opened.format, opened.whole()?);
        let labels = match labels_path(source, options) {
            Some(labels) => Some((labels.display().to_string(), read_labels(&labels)?)),
            None => None,
        };
        let labels = labels.as_ref().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        return arrays(source, format, &bytes, labels, options);
    }
    if let Some(labels) = &options.labels_file {
        return Err(no_labels_file("a table", &labels.display().to_string()));
    }
    refuse_copy(source, &files, encoder.copy())?;
    encoder.finish(source).map_err(|error| error.of(source))
}

/// Reads the rows of an embedded set, a CSV, Parquet or Arrow file, or those of a folder.
pub(super) fn tables(
    source: &str,
    options: &Options,
    rows: &mut impl TextRows,
) -> Result<(), DataError> {
    if let Some(set) = options.datasets.0.find(source) {
        let opened = Opened::new(source, set.bytes, Some(set.bytes.len() as u64))?;
        return opened.read(options.header, rows);
    }
    let files = files_of(source, options.datasets)?;
    for file in &files {
        let name = file.display().to_string();
        let opened = Opened::file(file, &name)?;
        opened.read(options.header, rows)?;
    }
    refuse_copy(source, &files, rows.copy())
}

/// Reads a dataset from a stream, such as standard input, as [`load`] reads it from a file. The
/// name is only for messages and for its format.
///
/// # Errors
/// As [`load`].
pub fn read(name: &str, source: impl Read, options: &Options) -> Result<Dataset, DataError> {
    let opened = Opened::new(name, source, None)?;
    if opened.format.is_table() {
        return table(opened, options);
    }
    arrays(name, opened.format, &opened.whole()?, None, options)
}

/// Reads a dataset from the bytes of a file, compressed or not, and of its file of labels, if there
/// is one. Names are only for messages and for its format.
///
/// # Errors
/// As [`load`].
pub fn parse(
    name: &str,
    bytes: &[u8],
    labels: Option<(&str, &[u8])>,
    options: &Options,
) -> Result<Dataset, DataError> {
    let opened = Opened::new(name, bytes, Some(bytes.len() as u64))?;
    if opened.format.is_table() {
        return match labels {
            Some((file, _)) => Err(no_labels_file("a table", file)),
            None => table(opened, options),
        };
    }
    let format = opened.format;
    let inflated = if opened.compressed { Some(opened.whole()?) } else { None };
    arrays(name, format, inflated.as_deref().unwrap_or(bytes), labels, options)
}

/// A table of one file.
fn table(opened: Opened<'_>, options: &Options) -> Result<Dataset, DataError> {
    let (name, mut encoder) = (opened.name, Encoder::new(options)?);
    opened.read(options.header, &mut encoder)?;
    encoder.finish(name).map_err(|error| error.of(name))
}

/// The path of a source: beside `folder` if a file or a folder is there, else as it is. The name of
/// an embedded set is never that of a folder.
pub(crate) fn beside(folder: &Path, source: &str) -> String {
    path_beside(folder, source).map_or_else(|| source.into(), |path| path.display().to_string())
}

/// The file or the folder of a source beside `folder`, if there is one.
pub(crate) fn path_beside(folder: &Path, source: &str) -> Option<PathBuf> {
    let path = folder.join(source);
    let is_set = embedded::EMBEDDED.find(source).is_some();
    (path.is_file() || (path.is_dir() && !is_set)).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_this_program_cannot_read_are_refused() {
        for (name, bytes, feature) in
            [("a.arrow", &b"ARROW1\0\0"[..], "arrow"), ("a", b"PAR1 and so on", "parquet")]
        {
            let error = parse(name, bytes, None, &Options::default()).unwrap_err().to_string();
            let problem = "format: this program is built without the feature that reads";
            assert!(error.starts_with(&format!("{name}: {problem}")), "{error}");
            assert!(error.contains(&format!("--features {feature}")), "{error}");
        }
    }
}
