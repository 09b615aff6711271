//! Makes a [`Dataset`] from a name: finds the bytes, limits their size, detects the format.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    array::Numbers,
    classes, csv,
    dataset::{Columns, Dataset, Task},
    embedded,
    encode::{Encoder, Rows},
    idx,
    inflate::{self, Inflate},
    input::{Count, Counted, error_of, peek},
    npy, npz, records,
    schema::Schema,
};
use crate::{
    config::{ConfigError, Fault},
    memory,
};

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
    /// Tables and NPY: the target column, by name or position (from 0; negative from the end); for
    /// regression a comma-separated list is accepted. Default: the last column. NPZ: the array of
    /// labels, or a column of the only array. Default: `y`, `labels` or `target`.
    pub target: Option<String>,
    /// Tables: the features by name, in the order of the model's inputs, and the targets, if
    /// `target` is not given. The file may have its columns in any order, and others, which are
    /// ignored.
    pub columns: Option<Columns>,
    /// Tables: the features by name, what they hold and how they become the model's inputs, instead
    /// of the features of `columns`.
    pub schema: Option<Schema>,
    /// Whether a file without names is accepted although `columns` is given: its columns are then
    /// taken by position.
    pub by_position: bool,
    /// Tables: a column that is read as text into [`Dataset::identifiers`], by name or position as
    /// `target`. By position it is no feature, and not the target unless `target` names it.
    pub identifier: Option<String>,
    /// Whether the targets are classes or numbers.
    pub task: Task,
    /// The names of the classes, in the order of the model's outputs: labels are these names. If
    /// none of them is a number, labels may also be their positions from 0.
    pub class_names: Option<Vec<String>>,
    /// Tables: whether labels that are text are accepted without `class_names`: the classes are
    /// then those of the file, sorted. Only where all rows of a run are in it.
    pub number_classes: bool,
    /// The number of classes of the model; more in the file are an error.
    pub classes: Option<usize>,
    /// The required number of features per row.
    pub inputs: Option<usize>,
    /// For prediction: a file of `inputs` columns without a named target, or an array of features
    /// without one of labels, holds only features. Its targets are then all 0.
    pub bare: bool,
    /// NPY and IDX: the file of labels. Default: `images-idx3-ubyte` becomes `labels-idx1-ubyte`;
    /// `NAME.npy` has `NAME-labels.npy` beside it, or its labels in the target column; `NAME.idx`
    /// has `NAME-labels.idx`.
    pub labels_file: Option<PathBuf>,
}

/// The first bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";
/// The first bytes of an Arrow file.
pub(super) const ARROW: &[u8] = b"ARROW1";
/// The first bytes of a message of Arrow, with which a stream begins.
pub(super) const ARROW_MESSAGE: &[u8] = &[0xFF; 4];

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Comma-separated text.
    Csv,
    /// Apache Parquet, with the cargo feature `parquet`.
    Parquet,
    /// Arrow's own format, as a file (also called Feather) or as a stream, with the cargo feature
    /// `arrow`.
    Arrow,
    /// NumPy's array format, versions 1 to 3.
    Npy,
    /// NumPy's archive of arrays: one of features, one of labels.
    Npz,
    /// The format of the MNIST files.
    Idx,
}

impl Format {
    /// The formats that a folder may hold.
    const TABLES: &str = "CSV files (also .gz), Parquet and Arrow files";

    /// Whether it is a table with columns of several kinds, and not an array of numbers.
    fn is_table(self) -> bool {
        match self {
            Format::Csv | Format::Parquet | Format::Arrow => true,
            Format::Npy | Format::Npz | Format::Idx => false,
        }
    }

    /// The format of a file: by its name (without `.gz`), else by its first bytes.
    pub(crate) fn of(name: &str, bytes: &[u8]) -> Format {
        let lower = name.to_ascii_lowercase();
        let lower = lower.strip_suffix(".gz").unwrap_or(&lower);
        if lower.ends_with(".csv") {
            Format::Csv
        } else if bytes.starts_with(PARQUET) || lower.ends_with(".parquet") {
            Format::Parquet
        } else if bytes.starts_with(ARROW)
            || bytes.starts_with(ARROW_MESSAGE)
            || [".arrow", ".arrows", ".feather"].iter().any(|end| lower.ends_with(end))
        {
            Format::Arrow
        } else if lower.ends_with(".npy") || bytes.starts_with(npy::MAGIC) {
            Format::Npy
        } else if lower.ends_with(".npz") {
            Format::Npz
        } else if lower.ends_with(".idx") || lower.ends_with("-ubyte") || bytes.starts_with(&[0, 0])
        {
            Format::Idx
        } else if bytes.starts_with(npz::MAGIC) {
            Format::Npz
        } else {
            Format::Csv
        }
    }
}

/// Loads an embedded set (`digits`, `breast-cancer`) or a file: CSV, NPY, NPZ or IDX, each also
/// gzip-compressed, or Parquet or Arrow (cargo features `parquet` and `arrow`). The CSV, Parquet
/// and Arrow files of a folder are read as one table, in the order of their names: all have the
/// same columns, by name in any order if they have names.
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
    let path = existing(source)?;
    let files = if path.is_dir() { files_of(path)? } else { vec![path.to_path_buf()] };
    if let Some(names) = &options.class_names {
        classes::check(names, options)?;
    }
    let mut encoder = Encoder::new(options)?;
    for file in &files {
        let name = file.display().to_string();
        let (stream, total) = open_file(file)?;
        let opened = open(&name, stream, total).map_err(|error| error.within(&name))?;
        if opened.format.is_table() {
            opened.read(&name, options.header, &mut encoder)?;
            continue;
        }
        if path.is_dir() {
            let problem = format!(
                "is no table, but a folder's files are the parts of one: {} are accepted",
                Format::TABLES
            );
            return Err(ConfigError::at("format", problem).within(name));
        }
        let bytes = opened.whole(&name)?;
        let labels = match labels_path(source, options) {
            Some(labels) => Some((labels.display().to_string(), read_labels(&labels)?)),
            None => None,
        };
        let labels = labels.as_ref().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        return arrays(source, &bytes, labels, options);
    }
    if let Some(labels) = &options.labels_file {
        return Err(no_labels_file(&labels.display().to_string()));
    }
    encoder.finish(source).map_err(|error| blame(error, source))
}

/// The path of a source that is no embedded set.
fn existing(source: &str) -> Result<&Path, ConfigError> {
    let path = Path::new(source);
    if !path.exists() {
        let names = embedded::EMBEDDED.names();
        let problem = format!(
            "no such file; accepted: a path to a CSV, NPY, NPZ or IDX file (also .gz) or a \
             Parquet or Arrow file, a folder of CSV, Parquet or Arrow files, or one of {}",
            names.join(", ")
        );
        let error = ConfigError::new("data.source", format!("\"{source}\""), problem);
        return Err(error.with_fault(Fault::Unreadable));
    }
    Ok(path)
}

/// Reads the rows of an embedded set, a CSV, Parquet or Arrow file, or those of a folder.
pub(super) fn tables(
    source: &str,
    header: Option<bool>,
    rows: &mut impl Rows,
) -> Result<(), ConfigError> {
    let no_table = |name: &str| {
        let problem = format!("is no table: {} are accepted", Format::TABLES);
        Err(ConfigError::at("format", problem).within(name))
    };
    if let Some(set) = embedded::EMBEDDED.find(source) {
        let opened = open(source, set.bytes, Some(set.bytes.len() as u64))?;
        return opened.read(source, header, rows);
    }
    let path = existing(source)?;
    let files = if path.is_dir() { files_of(path)? } else { vec![path.to_path_buf()] };
    for file in &files {
        let name = file.display().to_string();
        let (stream, total) = open_file(file)?;
        let opened = open(&name, stream, total).map_err(|error| error.within(&name))?;
        if !opened.format.is_table() {
            return no_table(&name);
        }
        opened.read(&name, header, rows)?;
    }
    Ok(())
}

/// Reads a dataset from a stream, such as standard input, as [`load`] reads it from a file. The
/// name is only for messages and for `Format::of`.
///
/// # Errors
/// As [`load`].
pub fn read(name: &str, source: impl Read, options: &Options) -> Result<Dataset, ConfigError> {
    let opened = open(name, source, None).map_err(|error| error.within(name))?;
    if opened.format.is_table() {
        return table(name, opened, options);
    }
    let bytes = opened.whole(name)?;
    arrays(name, &bytes, None, options)
}

/// Reads a dataset from the bytes of a file, compressed or not, and of its file of labels, if there
/// is one. Names are only for messages and for `Format::of`.
///
/// # Errors
/// As [`load`].
pub fn parse(
    name: &str,
    bytes: &[u8],
    labels: Option<(&str, &[u8])>,
    options: &Options,
) -> Result<Dataset, ConfigError> {
    let total = Some(bytes.len() as u64);
    let opened = open(name, bytes, total).map_err(|error| error.within(name))?;
    if opened.format.is_table() {
        return match labels {
            Some((file, _)) => Err(no_labels_file(file)),
            None => table(name, opened, options),
        };
    }
    let inflated = if opened.compressed { Some(opened.whole(name)?) } else { None };
    arrays(name, inflated.as_deref().unwrap_or(bytes), labels, options)
}

/// A table of one file.
fn table(name: &str, opened: Opened<'_>, options: &Options) -> Result<Dataset, ConfigError> {
    if let Some(names) = &options.class_names {
        classes::check(names, options)?;
    }
    let mut encoder = Encoder::new(options)?;
    opened.read(name, options.header, &mut encoder)?;
    encoder.finish(name).map_err(|error| blame(error, name))
}

fn no_labels_file(file: &str) -> ConfigError {
    let problem = "a table holds its labels itself: use data.target";
    ConfigError::new("data.labels_file", file, problem)
}

/// Features, and targets in a column or in a file of their own, from the bytes of arrays.
fn arrays(
    name: &str,
    bytes: &[u8],
    labels: Option<(&str, &[u8])>,
    options: &Options,
) -> Result<Dataset, ConfigError> {
    if let Some(names) = &options.class_names {
        classes::check(names, options)?;
    }
    if options.columns.is_some() && !options.by_position {
        let problem = "only CSV files with a header, Parquet and Arrow files name their columns: \
                       leave the key out";
        return Err(ConfigError::at("data.columns", problem));
    }
    if let Some(column) = &options.identifier {
        let problem = "only CSV, Parquet and Arrow files have columns of text: leave the key out";
        return Err(ConfigError::new("data.identifier", column, problem));
    }
    if options.schema.is_some() {
        let problem = "only CSV files with a header, Parquet and Arrow files name their columns: \
                       leave the key out";
        return Err(ConfigError::at("data.schema", problem));
    }
    if Format::of(name, bytes) == Format::Npz {
        return archive(name, bytes, labels, options);
    }
    let features = numbers(name, bytes).map_err(|error| error.within(name))?;
    let Some((file, labels)) = labels else {
        if !features.is_bare(options) && Format::of(name, bytes) == Format::Idx {
            let problem =
                "an IDX file of features needs a file of labels: name it as data.labels_file";
            return Err(ConfigError::at("labels", problem).within(name));
        }
        return features.table(name, options).map_err(|error| blame(error, name));
    };
    let total = Some(labels.len() as u64);
    let opened = open(file, labels, total).map_err(|error| error.within(file))?;
    let inflated = if opened.compressed { Some(opened.whole(file)?) } else { None };
    let labels =
        numbers(file, inflated.as_deref().unwrap_or(labels)).map_err(|error| error.within(file))?;
    features.with_targets(name, &labels, file, options).map_err(|error| blame(error, name))
}

/// Features and targets from the arrays of one file.
fn archive(
    name: &str,
    bytes: &[u8],
    labels: Option<(&str, &[u8])>,
    options: &Options,
) -> Result<Dataset, ConfigError> {
    if let Some((file, _)) = labels {
        let problem = "an NPZ file holds its labels itself: use data.target";
        return Err(ConfigError::new("data.labels_file", file, problem));
    }
    let npz::Arrays { features, targets } =
        npz::read(bytes, options).map_err(|error| blame(error, name))?;
    let place = |array: &npz::Array| format!("{name}, array {}", array.name);
    let rows = npy::read(&features.bytes).map_err(|error| error.within(place(&features)))?;
    let Some(targets) = &targets else {
        return rows.table(name, options).map_err(|error| blame(error, &place(&features)));
    };
    // It has named the array.
    let options = Options { target: None, ..options.clone() };
    let labels = npy::read(&targets.bytes).map_err(|error| error.within(place(targets)))?;
    rows.with_targets(name, &labels, &place(targets), &options)
        .map_err(|error| blame(error, &place(&features)))
}

/// A file whose format is known from its name or its first bytes.
struct Opened<'a> {
    format: Format,
    compressed: bool,
    /// The uncompressed bytes.
    stream: Box<dyn Read + 'a>,
    /// Counts the bytes of the file.
    count: Arc<Count>,
}

/// The first bytes of a file, from which its format is seen.
const HEAD: u64 = 16;

fn open<'a>(
    name: &str,
    source: impl Read + 'a,
    total: Option<u64>,
) -> Result<Opened<'a>, ConfigError> {
    let counted = Counted::new(source, name, total);
    let count = counted.count();
    let (mut head, stream) = peek(counted, HEAD)?;
    let mut stream: Box<dyn Read + 'a> = Box::new(stream);
    inflate::check_name(name, &head)?;
    let compressed = head.starts_with(inflate::MAGIC);
    if compressed {
        let (inflated, rest) = peek(Inflate::new(stream, Arc::clone(&count)), HEAD)?;
        (head, stream) = (inflated, Box::new(rest));
    }
    if head.is_empty() {
        return Err(ConfigError::at("line 1", "the file is empty: at least one row is needed"));
    }
    Ok(Opened { format: Format::of(name, &head), compressed, stream, count })
}

impl Opened<'_> {
    /// Adds the rows of a table.
    fn read(
        self,
        name: &str,
        header: Option<bool>,
        rows: &mut impl Rows,
    ) -> Result<(), ConfigError> {
        if self.format == Format::Csv {
            return csv::read(self.stream, &self.count, records::PIECE, header, rows)
                .map_err(|error| blame(error, name));
        }
        if header == Some(false) {
            let format = if self.format == Format::Arrow { "an Arrow" } else { "a Parquet" };
            let problem = format!("{name} is {format} file, which names its columns: true");
            return Err(ConfigError::new("data.header", false, problem + " is accepted"));
        }
        if self.format == Format::Arrow {
            return self.read_arrow(name, rows);
        }
        self.read_parquet(name, rows)
    }

    #[cfg(feature = "arrow")]
    fn read_arrow(self, name: &str, rows: &mut impl Rows) -> Result<(), ConfigError> {
        let bytes = self.whole(name)?;
        super::arrow::read(bytes, rows).map_err(|error| blame(error, name))
    }

    #[cfg(not(feature = "arrow"))]
    fn read_arrow(self, name: &str, _: &mut impl Rows) -> Result<(), ConfigError> {
        Err(without("Arrow files (Feather)", "arrow").within(name))
    }

    #[cfg(feature = "parquet")]
    fn read_parquet(self, name: &str, rows: &mut impl Rows) -> Result<(), ConfigError> {
        let bytes = self.whole(name)?;
        super::parquet::read(bytes, rows).map_err(|error| blame(error, name))
    }

    #[cfg(not(feature = "parquet"))]
    fn read_parquet(self, name: &str, _: &mut impl Rows) -> Result<(), ConfigError> {
        Err(without("Parquet", "parquet").within(name))
    }

    /// All uncompressed bytes.
    fn whole(mut self, name: &str) -> Result<Vec<u8>, ConfigError> {
        if self.compressed {
            return inflate::whole(name, self.stream).map_err(|error| error.within(name));
        }
        let mut bytes = Vec::new();
        if let Some(total) = self.count.total {
            let remedy = "cut it into shards, or take a machine with more";
            memory::require(total, "size", &total.to_string(), "the file", remedy)
                .map_err(|error| error.within(name))?;
            // The size is a hint; reading is limited again.
            let _ = bytes.try_reserve_exact(usize::try_from(total).unwrap_or(0));
        }
        self.stream.read_to_end(&mut bytes).map_err(|error| error_of(error).within(name))?;
        Ok(bytes)
    }
}

/// An error about a key of the configuration does not belong to the data file; all others do.
fn blame(mut error: ConfigError, name: &str) -> ConfigError {
    if error.is_in("data") {
        error.problem += &format!(" (in {name})");
        error
    } else {
        error.within(name)
    }
}

fn numbers<'a>(name: &str, bytes: &'a [u8]) -> Result<Numbers<'a>, ConfigError> {
    match Format::of(name, bytes) {
        Format::Npy => npy::read(bytes),
        Format::Idx => idx::read(bytes),
        Format::Csv | Format::Parquet | Format::Arrow | Format::Npz => {
            Err(ConfigError::at("byte 0", "an NPY or IDX file is needed here"))
        }
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

fn read_labels(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let name = path.display().to_string();
    let (file, total) = open_file(path)?;
    let mut bytes = Vec::new();
    Counted::new(file, &name, total)
        .read_to_end(&mut bytes)
        .map_err(|error| error_of(error).within(name))?;
    Ok(bytes)
}

/// Opens a file; its length if it has one, as pipes have not.
fn open_file(path: &Path) -> Result<(File, Option<u64>), ConfigError> {
    let fail = |error: std::io::Error| {
        ConfigError::at("cannot be read", error.to_string())
            .with_fault(Fault::Unreadable)
            .within(path.display())
    };
    let file = File::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    if metadata.is_dir() {
        return Err(ConfigError::at("cannot be read", "a folder, but a file is needed")
            .within(path.display()));
    }
    if metadata.len() > MAX_FILE_BYTES {
        let problem = format!("at most {MAX_FILE_BYTES} bytes are accepted");
        return Err(ConfigError::new("size", metadata.len(), problem).within(path.display()));
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

/// The files of a folder, sorted by name: those of folders in it are not read, nor those whose
/// names begin with a point or an underscore, as other programs name their notes.
fn files_of(folder: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let fail = |error: std::io::Error| {
        ConfigError::at("cannot be read", error.to_string()).within(folder.display())
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if !name.starts_with(b".") && !name.starts_with(b"_") && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        let problem = "a folder without files: at least one is needed";
        return Err(ConfigError::at("cannot be read", problem).within(folder.display()));
    }
    files.sort();
    Ok(files)
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

/// A format that this program is built without.
#[cfg(not(all(feature = "arrow", feature = "parquet")))]
fn without(format: &str, feature: &str) -> ConfigError {
    let problem = format!(
        "this program is built without the feature that reads {format}: `cargo install --locked \
         --path crates/cli --features {feature}` builds it with it, or write the table as CSV"
    );
    ConfigError::at("format", problem)
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
            ("a.NPZ", b"", Format::Npz),
            ("a", npz::MAGIC, Format::Npz),
            ("t10k-images-idx3-ubyte.gz", b"", Format::Idx),
            ("a.bin", b"\0\0\x08\x01", Format::Idx),
            ("a.txt", b"1,2", Format::Csv),
            ("a.Parquet", b"", Format::Parquet),
            ("a", b"PAR1\x15", Format::Parquet),
            ("a.feather", b"", Format::Arrow),
            ("a.ARROWS", b"", Format::Arrow),
            ("a", b"ARROW1\0\0", Format::Arrow),
            ("a", b"\xFF\xFF\xFF\xFF\x20\x03", Format::Arrow),
        ] {
            assert_eq!(Format::of(name, bytes), format, "{name}");
        }
    }

    #[test]
    fn tables_that_this_program_cannot_read_are_refused() {
        let refuse = |name: &str, bytes: &[u8]| {
            parse(name, bytes, None, &Options::default()).unwrap_err().to_string()
        };
        let error = refuse("a.arrow", b"ARROW1\0\0");
        #[cfg(not(feature = "arrow"))]
        assert!(
            error.starts_with("a.arrow: format: this program is built without the feature")
                && error.contains("--features arrow"),
            "{error}"
        );
        #[cfg(feature = "arrow")]
        assert!(error.contains("cut short"), "{error}");
        let error = refuse("a", b"PAR1 and so on");
        #[cfg(not(feature = "parquet"))]
        assert!(
            error.starts_with("a: format: this program is built without the feature")
                && error.contains("--features parquet"),
            "{error}"
        );
        #[cfg(feature = "parquet")]
        assert!(error.contains("damaged"), "{error}");
    }
}
