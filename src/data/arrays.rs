//! A dataset from files of arrays: features, and labels in a column, an array or a file of their
//! own.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use super::{
    DataError,
    dataset::Dataset,
    file::input::{Counted, error_of, open},
    format::{Content, Format},
    open::Opened,
    options::Options,
    table::classes,
};
use crate::config::ConfigError;

/// Features, and targets in a column or in a file of their own, from the bytes of arrays.
pub(super) fn arrays(
    name: &str,
    format: &Format,
    bytes: &[u8],
    labels: Option<(&str, &[u8])>,
    options: &Options,
) -> Result<Dataset, DataError> {
    classes::check(options)?;
    let no_names = "only CSV files with a header, Parquet and Arrow files name their columns: \
                    leave the key out";
    if options.columns.is_some() && !options.by_position {
        return Err(ConfigError::at("data.columns", no_names).into());
    }
    if let Some(column) = &options.identifier {
        let problem = "only CSV, Parquet and Arrow files have columns of text: leave the key out";
        return Err(ConfigError::new("data.identifier", column, problem).into());
    }
    if options.schema.is_some() {
        return Err(ConfigError::at("data.schema", no_names).into());
    }
    let array = match format.content {
        Content::Array(array) => array,
        Content::Archive(read) => match labels {
            None => return read(name, bytes, options),
            Some((labels, _)) => return Err(no_labels_file(format.file, labels)),
        },
        _ => return Err(no_array().within(name)),
    };
    let features = (array.read)(bytes).map_err(|error| error.within(name))?;
    let Some((file, labels)) = labels else {
        if array.labels_apart && !features.is_bare(options) {
            let problem = format!(
                "{} of features needs a file of labels: name it as data.labels_file",
                format.file
            );
            return Err(DataError::structure("labels", problem).within(name));
        }
        return features.table(name, options).map_err(|error| error.of(name));
    };
    let opened = Opened::new(file, labels, Some(labels.len() as u64))?;
    let label_format = opened.format;
    let inflated = if opened.compressed { Some(opened.whole()?) } else { None };
    let bytes = inflated.as_deref().unwrap_or(labels);
    let labels = match label_format.content {
        Content::Array(array) => (array.read)(bytes),
        _ => Err(no_array()),
    };
    let labels = labels.map_err(|error| error.within(file))?;
    features.with_targets(name, &labels, file, options).map_err(|error| error.of(name))
}

fn no_array() -> DataError {
    DataError::format("byte 0", "expected an NPY or IDX file")
}

pub(super) fn no_labels_file(what: &str, file: &str) -> DataError {
    let problem = format!("{what} holds its labels itself: use data.target");
    ConfigError::new("data.labels_file", file, problem).into()
}

/// The file of labels: the option, or the customary name.
pub(super) fn labels_path(source: &str, options: &Options) -> Option<PathBuf> {
    if let Some(path) = &options.labels_file {
        return Some(path.clone());
    }
    if options.target.is_some() {
        return None;
    }
    let (stem, gz) = match source.strip_suffix(".gz") {
        Some(stem) => (stem, ".gz"),
        None => (source, ""),
    };
    let custom = if let Some(at) = stem.rfind("images-idx3-ubyte") {
        format!("{}labels-idx1-ubyte{}", &stem[..at], &stem[at + "images-idx3-ubyte".len()..])
    } else if let Some(stem) = stem.strip_suffix(".npy") {
        format!("{stem}-labels.npy")
    } else {
        format!("{}-labels.idx", stem.strip_suffix(".idx")?)
    };
    [format!("{custom}{gz}"), custom.clone(), format!("{custom}.gz")]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.exists())
}

/// The bytes of a file of labels, compressed or not.
pub(super) fn read_labels(path: &Path) -> Result<Vec<u8>, DataError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let read = open(path).and_then(|(file, total)| {
        Counted::new(file, &name, total).read_to_end(&mut bytes).map_err(error_of)
    });
    read.map_err(|error| error.within(&name))?;
    Ok(bytes)
}
