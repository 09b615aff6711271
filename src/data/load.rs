//! Makes a [`Dataset`] from a name: finds the bytes, limits their size, detects the format.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    DataError,
    array::Numbers,
    classes, csv,
    dataset::{Columns, Dataset, Task},
    embedded,
    encode::{Encoder, Rows},
    encoding,
    folder::files_of,
    idx,
    inflate::{self, Inflate},
    input::{Count, Counted, error_of, peek},
    npy, npz, records,
    schema::Schema,
};
use crate::{config::ConfigError, inputs, memory};

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
pub fn load(source: &str, options: &Options) -> Result<Dataset, DataError> {
    if let Some(set) = embedded::EMBEDDED.find(source) {
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
    let files = files_of(source)?;
    let mut encoder = Encoder::new(options)?;
    for file in &files {
        let name = file.display().to_string();
        let opened = open_file(file, &name)?;
        if opened.format.is_table() {
            opened.read(options.header, &mut encoder)?;
            continue;
        }
        if Path::new(source).is_dir() {
            let problem = "is no table, but a folder's files are the parts of one";
            return Err(no_table(problem).within(&name));
        }
        let bytes = opened.whole()?;
        let labels = match labels_path(source, options) {
            Some(labels) => Some((labels.display().to_string(), read_labels(&labels)?)),
            None => None,
        };
        let labels = labels.as_ref().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        return arrays(source, &bytes, labels, options);
    }
    if let Some(labels) = &options.labels_file {
        return Err(no_labels_file("a table", &labels.display().to_string()));
    }
    encoder.finish(source).map_err(|error| blame(error, source))
}

/// The error of a file that is no table, but must be one.
fn no_table(problem: &str) -> DataError {
    DataError::format("format", format!("{problem}: {} are accepted", Format::TABLES))
}

/// Reads the rows of an embedded set, a CSV, Parquet or Arrow file, or those of a folder.
pub(super) fn tables(
    source: &str,
    header: Option<bool>,
    rows: &mut impl Rows,
) -> Result<(), DataError> {
    if let Some(set) = embedded::EMBEDDED.find(source) {
        let opened = Opened::new(source, set.bytes, Some(set.bytes.len() as u64))?;
        return opened.read(header, rows);
    }
    for file in &files_of(source)? {
        let name = file.display().to_string();
        let opened = open_file(file, &name)?;
        if !opened.format.is_table() {
            return Err(no_table("is no table").within(&name));
        }
        opened.read(header, rows)?;
    }
    Ok(())
}

/// Reads a dataset from a stream, such as standard input, as [`load`] reads it from a file. The
/// name is only for messages and for `Format::of`.
///
/// # Errors
/// As [`load`].
pub fn read(name: &str, source: impl Read, options: &Options) -> Result<Dataset, DataError> {
    let opened = Opened::new(name, source, None)?;
    if opened.format.is_table() {
        return table(opened, options);
    }
    arrays(name, &opened.whole()?, None, options)
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
) -> Result<Dataset, DataError> {
    let opened = Opened::new(name, bytes, Some(bytes.len() as u64))?;
    if opened.format.is_table() {
        return match labels {
            Some((file, _)) => Err(no_labels_file("a table", file)),
            None => table(opened, options),
        };
    }
    let inflated = if opened.compressed { Some(opened.whole()?) } else { None };
    arrays(name, inflated.as_deref().unwrap_or(bytes), labels, options)
}

/// A table of one file.
fn table(opened: Opened<'_>, options: &Options) -> Result<Dataset, DataError> {
    let (name, mut encoder) = (opened.name, Encoder::new(options)?);
    opened.read(options.header, &mut encoder)?;
    encoder.finish(name).map_err(|error| blame(error, name))
}

fn no_labels_file(what: &str, file: &str) -> DataError {
    let problem = format!("{what} holds its labels itself: use data.target");
    ConfigError::new("data.labels_file", file, problem).into()
}

/// Features, and targets in a column or in a file of their own, from the bytes of arrays.
fn arrays(
    name: &str,
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
    if Format::of(name, bytes) == Format::Npz {
        return archive(name, bytes, labels, options);
    }
    let features = numbers(name, bytes).map_err(|error| error.within(name))?;
    let Some((file, labels)) = labels else {
        if !features.is_bare(options) && Format::of(name, bytes) == Format::Idx {
            let problem =
                "an IDX file of features needs a file of labels: name it as data.labels_file";
            return Err(DataError::structure("labels", problem).within(name));
        }
        return features.table(name, options).map_err(|error| blame(error, name));
    };
    let opened = Opened::new(file, labels, Some(labels.len() as u64))?;
    let inflated = if opened.compressed { Some(opened.whole()?) } else { None };
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
) -> Result<Dataset, DataError> {
    if let Some((file, _)) = labels {
        return Err(no_labels_file("an NPZ file", file));
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
    name: &'a str,
    format: Format,
    compressed: bool,
    /// The uncompressed bytes.
    stream: Box<dyn Read + 'a>,
    /// Counts the bytes of the file.
    count: Arc<Count>,
}

/// The first bytes of a file, from which its format is seen.
const HEAD: u64 = 16;

impl<'a> Opened<'a> {
    fn new(
        name: &'a str,
        source: impl Read + 'a,
        total: Option<u64>,
    ) -> Result<Opened<'a>, DataError> {
        let within = |error: DataError| error.within(name);
        let counted = Counted::new(source, name, total);
        let count = counted.count();
        let (mut head, stream) = peek(counted, HEAD).map_err(within)?;
        let mut stream: Box<dyn Read + 'a> = Box::new(stream);
        encoding::check_ending(name).map_err(within)?;
        inflate::check_name(name, &head).map_err(within)?;
        let compressed = head.starts_with(inflate::MAGIC);
        if compressed {
            let inflate = Inflate::new(stream, Arc::clone(&count));
            let (inflated, rest) = peek(inflate, HEAD).map_err(within)?;
            (head, stream) = (inflated, Box::new(rest));
        }
        if head.is_empty() {
            return Err(within(DataError::empty()));
        }
        let format = Format::of(name, &head);
        if format == Format::Csv {
            encoding::check_beginning(&head).map_err(within)?;
        }
        Ok(Opened { name, format, compressed, stream, count })
    }

    /// Adds the rows of a table.
    fn read(self, header: Option<bool>, rows: &mut impl Rows) -> Result<(), DataError> {
        let name = self.name;
        if self.format != Format::Csv && header == Some(false) {
            let format = if self.format == Format::Arrow { "an Arrow" } else { "a Parquet" };
            let problem =
                format!("{name} is {format} file, which names its columns: true is accepted");
            return Err(ConfigError::new("data.header", false, problem).into());
        }
        let read = match self.format {
            Format::Csv => csv::read(name, self.stream, &self.count, records::PIECE, header, rows),
            Format::Arrow => self.read_arrow(rows),
            _ => self.read_parquet(rows),
        };
        read.map_err(|error| blame(error, name))
    }

    #[cfg(feature = "arrow")]
    fn read_arrow(self, rows: &mut impl Rows) -> Result<(), DataError> {
        super::arrow::read(self.whole()?, rows)
    }

    #[cfg(not(feature = "arrow"))]
    fn read_arrow(self, _: &mut impl Rows) -> Result<(), DataError> {
        Err(without("Arrow files (Feather)", "arrow"))
    }

    #[cfg(feature = "parquet")]
    fn read_parquet(self, rows: &mut impl Rows) -> Result<(), DataError> {
        super::parquet::read(self.whole()?, rows)
    }

    #[cfg(not(feature = "parquet"))]
    fn read_parquet(self, _: &mut impl Rows) -> Result<(), DataError> {
        Err(without("Parquet", "parquet"))
    }

    /// All uncompressed bytes.
    fn whole(mut self) -> Result<Vec<u8>, DataError> {
        let within = |error: DataError| error.within(self.name);
        if self.compressed {
            return inflate::whole(self.name, self.stream).map_err(within);
        }
        let mut bytes = Vec::new();
        if let Some(total) = self.count.total {
            let remedy = "cut it into shards, or take a machine with more";
            memory::require(total, "size", &total.to_string(), "the file", remedy)
                .map_err(|error| within(DataError::Memory(error)))?;
            // The size is a hint; reading is limited again.
            let _ = bytes.try_reserve_exact(usize::try_from(total).unwrap_or(0));
        }
        self.stream.read_to_end(&mut bytes).map_err(|error| within(error_of(error)))?;
        Ok(bytes)
    }
}

/// An error about a key of the configuration does not belong to the data file; all others do.
fn blame(error: DataError, name: &str) -> DataError {
    match error {
        DataError::Config(mut error) => {
            error.problem += &format!(" (in {name})");
            error.into()
        }
        error => error.within(name),
    }
}

fn numbers<'a>(name: &str, bytes: &'a [u8]) -> Result<Numbers<'a>, DataError> {
    match Format::of(name, bytes) {
        Format::Npy => npy::read(bytes),
        Format::Idx => idx::read(bytes),
        Format::Csv | Format::Parquet | Format::Arrow | Format::Npz => {
            Err(DataError::format("byte 0", "an NPY or IDX file is needed here"))
        }
    }
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

fn read_labels(path: &Path) -> Result<Vec<u8>, DataError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let read = file_of(path).and_then(|(file, total)| {
        Counted::new(file, &name, total).read_to_end(&mut bytes).map_err(error_of)
    });
    read.map_err(|error| error.within(&name))?;
    Ok(bytes)
}

fn open_file<'a>(path: &Path, name: &'a str) -> Result<Opened<'a>, DataError> {
    let (file, total) = file_of(path).map_err(|error| error.within(name))?;
    Opened::new(name, file, total)
}

/// Opens a file; its length if it has one, as pipes have not.
fn file_of(path: &Path) -> Result<(File, Option<u64>), DataError> {
    let file = inputs::open(path).map_err(DataError::Unreadable)?;
    let metadata = file.metadata().map_err(DataError::Unreadable)?;
    if metadata.is_dir() {
        return Err(unreadable("a folder, but a file is needed"));
    }
    if metadata.len() > MAX_FILE_BYTES {
        return Err(DataError::too_large("size", metadata.len(), MAX_FILE_BYTES));
    }
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

pub(super) fn unreadable(problem: &str) -> DataError {
    DataError::Unreadable(io::Error::new(io::ErrorKind::InvalidInput, problem))
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
fn without(format: &str, feature: &str) -> DataError {
    let problem = format!(
        "this program is built without the feature that reads {format}: `cargo install --locked \
         --path crates/cli --features {feature}` builds it with it, or write the table as CSV"
    );
    DataError::format("format", problem)
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
