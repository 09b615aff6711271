//! Writes files completely or not at all, and a dataset as such a file.

use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use super::{
    DataError,
    dataset::{Dataset, Target},
    file::disk::{FileSystem, replace_file},
};
use crate::{config::ConfigError, inputs};

/// Writes a CSV file from which [`load`](super::load) reads the same bits: shortest decimals, the
/// targets last, missing values as empty cells. The first line names the columns if their names are
/// known, otherwise there is no such line.
///
/// Labels are written as the names of their classes, which the reader needs
/// ([`Options::class_names`](super::Options)) unless they are 0, 1, .... For several numbers a row,
/// the reader needs [`Options::target`](super::Options), such as `-2,-1`.
///
/// # Errors
/// If the file cannot be written; an existing one is then unchanged.
pub fn write_csv(data: &Dataset, path: &Path) -> Result<(), DataError> {
    let mut writer = ::csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    let write = || -> ::csv::Result<Vec<u8>> {
        if let Some(columns) = &data.columns {
            writer.write_record(columns.features.iter().chain(&columns.targets))?;
        }
        let mut cell = String::new();
        let mut field = |writer: &mut ::csv::Writer<Vec<u8>>, value: f32| {
            cell.clear();
            write!(cell, "{value}").expect("a String takes any text");
            writer.write_field(&cell)
        };
        for (row, features) in data.features.rows().into_iter().enumerate() {
            for (column, value) in features.iter().enumerate() {
                if is_missing(data, row, column) {
                    writer.write_field("")?;
                } else {
                    field(&mut writer, *value)?;
                }
            }
            match &data.target {
                Target::Classes { labels, names } => {
                    writer.write_field(&names[labels[row] as usize])?;
                }
                Target::Values(values) => {
                    values.row(row).iter().try_for_each(|value| field(&mut writer, *value))?;
                }
            }
            writer.write_record(None::<&[u8]>)?;
        }
        writer.into_inner().map_err(|error| error.into_error().into())
    };
    let text = write().expect("a Vec takes any bytes");
    write_atomically(path, &[&text])
}

/// Whether this value is not known yet.
fn is_missing(data: &Dataset, row: usize, feature: usize) -> bool {
    let gaps = data.gaps.iter().find(|gaps| gaps.feature == feature);
    gaps.is_some_and(|gaps| gaps.rows.binary_search(&(row as u32)).is_ok())
}

/// Writes these parts, in order, beside `path`, then moves the file there: readers see the old file
/// or the whole new one, also after a power cut.
///
/// # Errors
/// If the file cannot be written; an existing one is then unchanged.
pub fn write_atomically(path: &Path, parts: &[&[u8]]) -> Result<(), DataError> {
    let unwritable = |error| DataError::Unwritable(error).within(path.display());
    inputs::check(path).map_err(unwritable)?;
    replace_file(&FileSystem, path, &mut |file| {
        parts.iter().try_for_each(|part| file.write_all(part))
    })
}

/// As [`write_atomically`], with contents that come one after the other. What is there and is no
/// file, such as a pipe, is written to as it is. Of a link the file to which it leads is replaced.
///
/// # Errors
/// As [`write_atomically`].
pub fn write_in_turn(
    path: &Path,
    contents: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<(), DataError> {
    let unwritable = |error| DataError::Unwritable(error).within(path.display());
    inputs::check(path).map_err(unwritable)?;
    match fs::metadata(path) {
        Ok(there) if !there.is_file() && !there.is_dir() => {
            let write =
                |mut out: io::BufWriter<File>| contents(&mut out).and_then(|()| out.flush());
            let out = fs::OpenOptions::new().write(true).open(path);
            out.map(io::BufWriter::new).and_then(write).map_err(unwritable)
        }
        Ok(_) => replace_file(&FileSystem, &path.canonicalize().map_err(unwritable)?, contents),
        Err(_) => replace_file(&FileSystem, path, contents),
    }
}

/// What a file holds that a command writes where its user says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text separated by commas.
    Table,
    /// A JSON object a line.
    JsonLines,
    /// A Parquet table.
    Parquet,
    /// An ONNX graph.
    Onnx,
    /// An HTML page.
    Page,
    /// An SVG drawing.
    Drawing,
}

/// Endings of files of other kinds than those that are written.
const FOREIGN: [&str; 24] = [
    "arrow",
    "dot",
    "feather",
    "gpg",
    "graphml",
    "gv",
    "gz",
    "idx",
    "json",
    "key",
    "lock",
    "log",
    "md",
    "npy",
    "npz",
    "pdf",
    "pem",
    "png",
    "py",
    "rs",
    "safetensors",
    "toml",
    "xlsx",
    "zip",
];

impl Kind {
    const ALL: [Kind; 6] =
        [Kind::Table, Kind::JsonLines, Kind::Parquet, Kind::Onnx, Kind::Page, Kind::Drawing];

    /// The endings of its files: the usual one, and others.
    fn endings(self) -> &'static [&'static str] {
        match self {
            Kind::Table => &["csv", "tsv", "txt"],
            Kind::JsonLines => &["jsonl", "ndjson"],
            Kind::Parquet => &["parquet"],
            Kind::Onnx => &["onnx"],
            Kind::Page => &["html", "htm"],
            Kind::Drawing => &["svg"],
        }
    }

    /// Whether a file that begins so may be one of its files.
    fn begins(self, bytes: &[u8]) -> bool {
        let first = bytes.trim_ascii_start().first().copied();
        match self {
            Kind::Table => {
                let is_text = |byte: &u8| *byte >= b' ' || byte.is_ascii_whitespace();
                bytes.iter().all(is_text) && !matches!(first, Some(b'{' | b'[' | b'<'))
            }
            Kind::JsonLines => first == Some(b'{'),
            Kind::Parquet => bytes.starts_with(b"PAR1"),
            // The version of its format is its first field.
            Kind::Onnx => bytes.first() == Some(&8),
            Kind::Page | Kind::Drawing => first == Some(b'<'),
        }
    }
}

/// Refuses to write over a file that this command reads ([`inputs::check`]).
///
/// # Errors
/// If it is read; `place` is that of the error.
pub fn check_unread(place: &str, out: &Path) -> Result<(), ConfigError> {
    inputs::check(out).map_err(|error| ConfigError::new(place, out.display(), error.to_string()))
}

/// As [`check_unread`], and refuses to write over a file of another kind, by its name or by what it
/// begins with.
///
/// # Errors
/// If it is read, or of another kind; `place` is that of the error.
pub fn check_output(place: &str, out: &Path, kind: Kind) -> Result<(), ConfigError> {
    let refuse = |problem: String| Err(ConfigError::new(place, out.display(), problem));
    check_unread(place, out)?;
    let ending = out.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let ending = ending.to_ascii_lowercase();
    let expected = kind.endings()[0];
    let others = Kind::ALL.iter().flat_map(|other| other.endings()).chain(&FOREIGN);
    if !kind.endings().contains(&&ending[..]) && others.into_iter().any(|other| *other == ending) {
        return refuse(format!(
            "this is the name of a file of another kind: one that ends in .{expected} is expected"
        ));
    }
    let mut begin = Vec::new();
    let is_file = fs::metadata(out).is_ok_and(|there| there.is_file());
    let read =
        is_file.then(|| File::open(out).and_then(|file| file.take(64).read_to_end(&mut begin)));
    if read.is_some_and(|read| read.is_ok()) && !begin.is_empty() && !kind.begins(&begin) {
        return refuse(format!(
            "is there, and of another kind than a .{expected} file: remove it, or name another file"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::super::{Columns, Options, Task, load};
    use super::*;

    #[test]
    fn a_written_dataset_is_read_back_to_the_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let odd =
            [0.1f32, -0.0, f32::MAX, f32::MIN_POSITIVE, 1e-45, 16_777_216.0, 1.0 / 3.0, -2.5e-8];
        let features = ndarray::Array2::from_shape_vec((4, 2), odd.to_vec()).unwrap();
        let bits = |data: &Dataset| data.features.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let classes: Vec<String> = ["a,b", "4", "\u{e9}", "c \"d\""].map(String::from).to_vec();
        let names = classes.clone();
        let labelled = Target::Classes { labels: vec![3, 0, 1, 1], names };
        let values =
            Target::Values(array![[0.5, 1e-30], [-0.0, 2.0], [3.0, 4.0], [1.0 / 3.0, 0.7]]);
        let named = |targets: &[&str]| Columns {
            features: vec!["a, \"b\"".into(), "2".into()],
            targets: targets.iter().map(ToString::to_string).collect(),
        };
        for (target, task, position, columns) in [
            (labelled, Task::Classification, "-1", named(&["kind"])),
            (values, Task::Regression, "-2,-1", named(&["p", "q"])),
        ] {
            for columns in [None, Some(columns)] {
                let mut data = Dataset::new("x", features.clone(), target.clone()).unwrap();
                data.columns = columns;
                write_csv(&data, &path).unwrap();
                let options = Options {
                    task,
                    target: Some(position.into()),
                    header: Some(data.columns.is_some()),
                    class_names: (task == Task::Classification).then(|| classes.clone()),
                    ..Options::default()
                };
                let back = load(path.to_str().unwrap(), &options).unwrap();
                assert_eq!((bits(&back), &back.target), (bits(&data), &data.target));
                assert_eq!(back.columns, data.columns);
            }
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no leftovers");
    }

    #[test]
    fn files_of_another_kind_are_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str, kind: Kind| {
            let checked = check_output("--out", &folder.path().join(name), kind);
            checked.map_err(|error| error.problem)
        };
        for (name, text) in
            [("data", "a,b\n1,2\n"), ("old", "{\"rounds\": 1}\n"), ("page", "<svg/>"), ("none", "")]
        {
            fs::write(folder.path().join(name), text).unwrap();
        }
        fs::write(folder.path().join("graph"), [8, 9, 18]).unwrap();
        for (name, kind, is_accepted) in [
            ("new.csv", Kind::Table, true),
            ("new.CSV", Kind::Table, true),
            ("new.csv", Kind::Onnx, false),
            ("summary.json", Kind::Table, false),
            ("model.safetensors", Kind::Onnx, false),
            ("new.out", Kind::Table, true),
            ("none", Kind::Onnx, true),
            ("data", Kind::Table, true),
            ("data", Kind::Onnx, false),
            ("data", Kind::JsonLines, false),
            ("old", Kind::Table, false),
            ("old", Kind::JsonLines, true),
            ("page", Kind::Drawing, true),
            ("page", Kind::Table, false),
            ("graph", Kind::Onnx, true),
            ("graph", Kind::Table, false),
        ] {
            assert_eq!(check(name, kind).is_ok(), is_accepted, "{name} {kind:?}");
        }
        let wrong = check("train.csv", Kind::Onnx).unwrap_err();
        assert!(wrong.ends_with("one that ends in .onnx is expected"), "{wrong}");
    }

    #[test]
    fn what_is_written_in_turn_is_there_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        fs::write(&path, "old").unwrap();
        let fails = write_in_turn(&path, &mut |out| {
            out.write_all(b"new")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        let error = fails.unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        write_in_turn(&path, &mut |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        #[cfg(unix)]
        {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            write_in_turn(&link, &mut |out| out.write_all(b"newer")).unwrap();
            assert!(link.is_symlink() && fs::read_to_string(&path).unwrap() == "newer");
            write_in_turn(Path::new("/dev/null"), &mut |out| out.write_all(b"x")).unwrap();
        }
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        assert!(
            write_atomically(&path, &[b"x"]).unwrap_err().to_string().contains("cannot be written")
        );
        assert!(write_atomically(&folder.path().join("no/such"), &[b"x"]).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
