//! Writes files completely or not at all, and a dataset as such a file.

use std::{fmt::Write as _, path::Path};

use super::{
    dataset::{Dataset, Target},
    disk::{FileSystem, replace_file},
};
use crate::config::ConfigError;

/// Writes a CSV file from which [`load`](super::load) reads the same bits: shortest decimals, a
/// header `f0,f1,...,label` (or `...,y0,y1,...` for numbers, which `task = "regression"` finds).
///
/// Class names are not kept: labels are written as numbers.
///
/// # Errors
/// If the file cannot be written; an existing one is then unchanged.
pub fn write_csv(data: &Dataset, path: &Path) -> Result<(), ConfigError> {
    let mut text = String::new();
    let names = (0..data.inputs()).map(|i| format!("f{i}"));
    let targets: Vec<String> = match &data.target {
        Target::Classes { .. } => vec!["label".into()],
        Target::Values(values) => (0..values.ncols()).map(|i| format!("y{i}")).collect(),
    };
    text.push_str(&names.chain(targets).collect::<Vec<_>>().join(","));
    text.push('\n');
    for (row, features) in data.features.rows().into_iter().enumerate() {
        for value in features {
            write!(text, "{value},").expect("a String takes any text");
        }
        match &data.target {
            Target::Classes { labels, .. } => {
                writeln!(text, "{}", labels[row]).expect("a String takes any text")
            }
            Target::Values(values) => {
                let values: Vec<String> = values.row(row).iter().map(f32::to_string).collect();
                text.push_str(&values.join(","));
                text.push('\n');
            }
        }
    }
    write_atomically(path, &[text.as_bytes()])
}

/// Writes these parts, in order, beside `path`, then moves the file there: readers see the old file
/// or the whole new one, also after a power cut.
///
/// # Errors
/// If the file cannot be written; an existing one is then unchanged.
pub fn write_atomically(path: &Path, parts: &[&[u8]]) -> Result<(), ConfigError> {
    replace_file(&FileSystem, path, &mut |file| {
        parts.iter().try_for_each(|part| file.write_all(part))
    })
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::super::{Options, Task, load};
    use super::*;

    #[test]
    fn a_written_dataset_is_read_back_to_the_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let odd =
            [0.1f32, -0.0, f32::MAX, f32::MIN_POSITIVE, 1e-45, 16_777_217.0, 1.0 / 3.0, -2.5e-8];
        let features = ndarray::Array2::from_shape_vec((4, 2), odd.to_vec()).unwrap();
        let bits = |data: &Dataset| data.features.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let names = (0..4).map(|c| c.to_string()).collect();
        let classes = Target::Classes { labels: vec![3, 0, 1, 1], names };
        let values =
            Target::Values(array![[0.5, 1e-30], [-0.0, 2.0], [3.0, 4.0], [1.0 / 3.0, 0.7]]);
        for (target, task) in [(classes, Task::Classification), (values, Task::Regression)] {
            let data = Dataset::new("x", features.clone(), target).unwrap();
            write_csv(&data, &path).unwrap();
            let back =
                load(path.to_str().unwrap(), &Options { task, ..Options::default() }).unwrap();
            assert_eq!((bits(&back), &back.target), (bits(&data), &data.target));
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
