//! Makes a [`Dataset`] from a name: finds the bytes, limits their size, detects the format.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    array::Numbers,
    classes, csv,
    dataset::{Columns, Dataset, Task},
    embedded, idx,
    inflate::inflate,
    npy,
};
use crate::{config::ConfigError, memory};

/// The largest accepted file, in bytes: 8 GiB, which as `f32` exceeds one node's memory in most
/// cases.
pub const MAX_FILE_BYTES: u64 = 8 << 30;

/// Options of a reader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// CSV: whether the first line names the columns. If unknown: it does if it has text where the
    /// next line has a number.
    pub header: Option<bool>,
    /// CSV and NPY: the target column, by name or position (from 0; negative from the end); for
    /// regression a comma-separated list is accepted. Default: the last column.
    pub target: Option<String>,
    /// CSV: the features by name, in the order of the model's inputs, and the targets, if `target`
    /// is not given. The file may have its columns in any order, and others, which are ignored.
    pub columns: Option<Columns>,
    /// Whether a file without names is accepted although `columns` is given: its columns are then
    /// taken by position.
    pub by_position: bool,
    /// Whether the targets are classes or numbers.
    pub task: Task,
    /// The names of the classes, in the order of the model's outputs: labels are these names. If
    /// none of them is a number, labels may also be their positions from 0.
    pub class_names: Option<Vec<String>>,
    /// CSV: whether labels that are text are accepted without `class_names`: the classes are then
    /// those of the file, sorted. Only where all rows of a run are in it.
    pub number_classes: bool,
    /// The number of classes of the model; more in the file are an error.
    pub classes: Option<usize>,
    /// The required number of features per row.
    pub inputs: Option<usize>,
    /// CSV, for prediction: a file of `inputs` columns without a named target holds only features.
    /// Its targets are then all 0.
    pub bare: bool,
    /// NPY and IDX: the file of labels. Default: `images-idx3-ubyte` becomes `labels-idx1-ubyte`;
    /// `NAME.npy` has `NAME-labels.npy` beside it, or its labels in the target column; `NAME.idx`
    /// has `NAME-labels.idx`.
    pub labels_file: Option<PathBuf>,
}

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Comma-separated text.
    Csv,
    /// NumPy's array format, versions 1 to 3.
    Npy,
    /// The format of the MNIST files.
    Idx,
}

impl Format {
    /// The format of a file: by its name (without `.gz`), else by its first bytes.
    pub fn of(name: &str, bytes: &[u8]) -> Format {
        let lower = name.to_ascii_lowercase();
        let lower = lower.strip_suffix(".gz").unwrap_or(&lower);
        if lower.ends_with(".csv") {
            Format::Csv
        } else if lower.ends_with(".npy") || bytes.starts_with(npy::MAGIC) {
            Format::Npy
        } else if lower.ends_with(".idx") || lower.ends_with("-ubyte") || bytes.starts_with(&[0, 0])
        {
            Format::Idx
        } else {
            Format::Csv
        }
    }
}

/// Loads an embedded set (`digits`, `breast-cancer`) or a file: CSV, NPY or IDX, each also
/// gzip-compressed.
///
/// # Errors
/// If the file cannot be read or is not in the expected format: the message names the file, the
/// line (or row, or byte offset), the value, and the accepted ones.
pub fn load(source: &str, options: &Options) -> Result<Dataset, ConfigError> {
    if let Some(set) = embedded::EMBEDDED.find(source) {
        if let Some(labels) = &options.labels_file {
            let problem = format!("{source} holds its labels itself: leave the key out");
            return Err(ConfigError::new("data.labels_file", labels.display(), problem));
        }
        if let Some(header) = options.header {
            let problem = format!("{source} has a fixed format: leave the key out");
            return Err(ConfigError::new("data.header", header, problem));
        }
        return parse(source, set.bytes, None, options);
    }
    let path = Path::new(source);
    if !path.exists() {
        let names = embedded::EMBEDDED.names();
        let problem = format!(
            "no such file; accepted: a path to a CSV, NPY or IDX file (also .gz), or one of {}",
            names.join(", ")
        );
        return Err(ConfigError::new("data.source", format!("\"{source}\""), problem));
    }
    let bytes = read(path)?;
    let labels = match labels_path(source, options) {
        Some(labels) => Some((labels.display().to_string(), read(&labels)?)),
        None => None,
    };
    parse(
        source,
        &bytes,
        labels.as_ref().map(|(name, bytes)| (name.as_str(), bytes.as_slice())),
        options,
    )
}

/// Reads a dataset from the bytes of a file, compressed or not, and of its file of labels, if there
/// is one. Names are only for messages and for [`Format::of`].
///
/// # Errors
/// As [`load`].
pub fn parse(
    name: &str,
    bytes: &[u8],
    labels: Option<(&str, &[u8])>,
    options: &Options,
) -> Result<Dataset, ConfigError> {
    let inflated = inflate(name, bytes)?;
    let bytes = inflated.as_deref().unwrap_or(bytes);
    if bytes.is_empty() {
        return Err(
            ConfigError::at("line 1", "the file is empty: at least one row is needed").within(name)
        );
    }
    if let Some(names) = &options.class_names {
        classes::check(names, options)?;
    }
    let format = Format::of(name, bytes);
    if format != Format::Csv && options.columns.is_some() && !options.by_position {
        let problem = "only CSV files with a header name their columns: leave the key out";
        return Err(ConfigError::at("data.columns", problem));
    }
    if format == Format::Csv {
        if let Some((file, _)) = labels {
            return Err(ConfigError::new(
                "data.labels_file",
                file,
                "a CSV file holds its labels itself: use data.target",
            ));
        }
        return csv::read(name, bytes, options).map_err(|error| blame(error, name));
    }
    let features = numbers(name, bytes).map_err(|error| error.within(name))?;
    let Some((file, labels)) = labels else {
        if format == Format::Idx {
            let problem =
                "an IDX file of features needs a file of labels: name it as data.labels_file";
            return Err(ConfigError::at("labels", problem).within(name));
        }
        return features.table(name, options).map_err(|error| blame(error, name));
    };
    let inflated = inflate(file, labels)?;
    let labels =
        numbers(file, inflated.as_deref().unwrap_or(labels)).map_err(|error| error.within(file))?;
    features.with_targets(name, &labels, file, options).map_err(|error| blame(error, name))
}

/// An error about a key of the configuration does not belong to the data file; all others do.
fn blame(error: ConfigError, name: &str) -> ConfigError {
    if error.place.starts_with("data.") {
        ConfigError { problem: format!("{} (in {name})", error.problem), ..error }
    } else {
        error.within(name)
    }
}

fn numbers<'a>(name: &str, bytes: &'a [u8]) -> Result<Numbers<'a>, ConfigError> {
    match Format::of(name, bytes) {
        Format::Npy => npy::read(bytes),
        Format::Idx => idx::read(bytes),
        Format::Csv => Err(ConfigError::at("byte 0", "an NPY or IDX file is needed here")),
    }
}

/// The file of labels: the option, or the customary name.
fn labels_path(source: &str, options: &Options) -> Option<PathBuf> {
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

fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let fail = |error: std::io::Error| {
        ConfigError::at("cannot be read", error.to_string()).within(path.display())
    };
    let mut file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        return Err(ConfigError::at("cannot be read", "a folder, but a file is needed")
            .within(path.display()));
    }
    let too_large = || {
        let problem = format!("at most {MAX_FILE_BYTES} bytes are accepted");
        ConfigError::new("size", metadata.len(), problem).within(path.display())
    };
    if metadata.len() > MAX_FILE_BYTES {
        return Err(too_large());
    }
    memory::require(
        metadata.len(),
        "size",
        &metadata.len().to_string(),
        "the file",
        "cut it into shards, or take a machine with more",
    )
    .map_err(|error| error.within(path.display()))?;
    let mut bytes = Vec::new();
    // The size is a hint (a pipe has none); reading is limited again.
    let _ = bytes.try_reserve_exact(usize::try_from(metadata.len()).unwrap_or(0));
    let length = (&mut file).take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if length as u64 > MAX_FILE_BYTES { Err(too_large()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_first_bytes_decide_the_format() {
        for (name, bytes, format) in [
            ("a.csv.gz", &b"1,2"[..], Format::Csv),
            ("A.CSV", b"\0\0", Format::Csv),
            ("a.npy", b"1,2", Format::Npy),
            ("a", npy::MAGIC, Format::Npy),
            ("t10k-images-idx3-ubyte.gz", b"", Format::Idx),
            ("a.bin", b"\0\0\x08\x01", Format::Idx),
            ("a.txt", b"1,2", Format::Csv),
        ] {
            assert_eq!(Format::of(name, bytes), format, "{name}");
        }
    }

    #[test]
    fn the_embedded_sets_have_their_documented_sizes() {
        let digits = load("digits", &Options::default()).unwrap();
        assert_eq!((digits.rows(), digits.inputs(), digits.outputs()), (1797, 64, 10));
        assert!(digits.features.iter().all(|&x| (0.0..=16.0).contains(&x) && x.fract() == 0.0));
        let cancer = load("breast-cancer", &Options::default()).unwrap();
        assert_eq!(
            (cancer.rows(), cancer.inputs(), cancer.class_names()),
            (569, 30, &["malignant".to_string(), "benign".into()][..])
        );
        assert_eq!(cancer.labels().unwrap().iter().filter(|&&label| label == 0).count(), 212);
        assert_eq!((cancer.features[[0, 0]], cancer.features[[568, 29]]), (17.99, 0.07039));
    }

    #[test]
    fn a_missing_source_is_refused_with_the_known_ones() {
        let error = load("digit", &Options::default()).unwrap_err().to_string();
        assert!(
            error.starts_with("data.source = \"digit\": no such file; accepted: ")
                && error.ends_with("digits, breast-cancer")
        );
        assert!(load("/", &Options::default()).unwrap_err().to_string().contains("a folder"));
    }
}
