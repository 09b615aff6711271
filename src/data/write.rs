//! Writes files completely or not at all, and a dataset as such a file.

use std::{fmt::Write as _, path::Path};

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

/// Refuses to write over a file that this command reads ([`inputs::check`]).
///
/// # Errors
/// If it is read; `place` is that of the error.
pub fn check_output(place: &str, out: &Path) -> Result<(), ConfigError> {
    inputs::check(out).map_err(|error| ConfigError::new(place, out.display(), error.to_string()))
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
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no leftovers");
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        std::fs::create_dir(&path).unwrap();
        assert!(
            write_atomically(&path, &[b"x"]).unwrap_err().to_string().contains("cannot be written")
        );
        assert!(write_atomically(&folder.path().join("no/such"), &[b"x"]).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
