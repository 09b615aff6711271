//! Features and targets of some rows, in memory.

use ndarray::{Array2, Axis};
use serde::{Deserialize, Serialize};

use super::DataError;
use crate::vector;

/// Rows of features with the targets to predict from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Its origin: an embedded set's name or a path.
    pub name: String,
    /// rows x inputs, finite, in standard (row-major) layout.
    pub features: Array2<f32>,
    /// The targets, one entry (or row) per row of `features`.
    pub target: Target,
    /// The names of the columns, if they are known.
    pub columns: Option<Columns>,
    /// The features whose missing values become what all nodes agree on, in ascending order; a
    /// feature may have none here. Empty once they are filled.
    pub gaps: Vec<Gaps>,
    /// What identifies the rows, if it was read.
    pub identifiers: Option<Identifiers>,
    /// What its reader has assumed or noticed and a user should know, each with the name of the
    /// file.
    pub remarks: Vec<String>,
}

/// A column that is neither a feature nor a target: it says which row is which.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identifiers {
    /// The name of the column, if it has one.
    pub name: Option<String>,
    /// The text of each row, without the blanks around it.
    pub texts: Vec<String>,
}

/// Missing values of one feature, in whose place there is 0 until it is known what they become.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// The index of the feature, a column of the matrix.
    pub feature: usize,
    /// The rows without a value, ascending.
    pub rows: Vec<u32>,
}

impl Gaps {
    /// Those of these rows, in this order.
    fn select(&self, rows: &[usize]) -> Gaps {
        let absent = |&row: &usize| self.rows.binary_search(&(row as u32)).is_ok();
        let positions = rows.iter().zip(0..).filter(|(row, _)| absent(row)).map(|(_, at)| at);
        Gaps { feature: self.feature, rows: positions.collect() }
    }
}

/// The names of a table's columns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// Those of the features, in the order of the model's inputs.
    pub features: Vec<String>,
    /// Those of the targets, in the order of the model's outputs; for classes there is one. Empty
    /// if rows have no targets.
    pub targets: Vec<String>,
}

/// The targets of a dataset.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Each row has one of several classes.
    Classes {
        /// The class of each row, below `names.len()`.
        labels: Vec<u32>,
        /// The name of each class: its number, if no other is known.
        names: Vec<String>,
    },
    /// Numbers, rows x outputs, finite, in standard layout.
    Values(Array2<f32>),
}

/// The kind of targets: classes or numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Task {
    /// A model predicts a class.
    #[default]
    Classification,
    /// A model predicts one or more numbers.
    Regression,
}

impl Task {
    /// The name that files and the configuration have.
    pub fn name(self) -> &'static str {
        match self {
            Task::Classification => "classification",
            Task::Regression => "regression",
        }
    }
}

impl Dataset {
    /// Makes a dataset from a program's own rows.
    ///
    /// # Errors
    /// If there is no row or no column, the lengths differ, a value is not finite, or a label has
    /// no name.
    pub fn new(
        name: impl Into<String>,
        features: Array2<f32>,
        target: Target,
    ) -> Result<Dataset, DataError> {
        let name = name.into();
        let (features, target) = checked(features, target).map_err(|error| error.within(&name))?;
        Ok(Dataset {
            name,
            features,
            target,
            columns: None,
            gaps: Vec::new(),
            identifiers: None,
            remarks: Vec::new(),
        })
    }

    /// Selects these rows, in this order.
    ///
    /// # Panics
    /// If a row does not exist.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Dataset {
        let target = match &self.target {
            Target::Classes { labels, names } => Target::Classes {
                labels: rows.iter().map(|&row| labels[row]).collect(),
                names: names.clone(),
            },
            Target::Values(values) => Target::Values(values.select(Axis(0), rows)),
        };
        Dataset {
            name: self.name.clone(),
            features: self.features.select(Axis(0), rows),
            target,
            columns: self.columns.clone(),
            identifiers: self.identifiers.as_ref().map(|all| Identifiers {
                name: all.name.clone(),
                texts: rows.iter().map(|&row| all.texts[row].clone()).collect(),
            }),
            gaps: self.gaps.iter().map(|gaps| gaps.select(rows)).collect(),
            remarks: self.remarks.clone(),
        }
    }

    /// The number of rows, of features as of targets.
    pub fn rows(&self) -> usize {
        self.features.nrows()
    }

    /// The number of features per row.
    pub fn inputs(&self) -> usize {
        self.features.ncols()
    }

    /// The number of classes, or of values to predict per row.
    pub fn outputs(&self) -> usize {
        match &self.target {
            Target::Classes { names, .. } => names.len(),
            Target::Values(values) => values.ncols(),
        }
    }

    /// Whether the targets are classes or numbers.
    pub fn task(&self) -> Task {
        match &self.target {
            Target::Classes { .. } => Task::Classification,
            Target::Values(_) => Task::Regression,
        }
    }

    /// The class of each row, if the targets are classes.
    pub fn labels(&self) -> Option<&[u32]> {
        match &self.target {
            Target::Classes { labels, .. } => Some(labels),
            Target::Values(_) => None,
        }
    }

    /// The names of the classes; empty if the targets are numbers.
    pub fn class_names(&self) -> &[String] {
        match &self.target {
            Target::Classes { names, .. } => names,
            Target::Values(_) => &[],
        }
    }
}

fn standard(array: Array2<f32>) -> Array2<f32> {
    if array.is_standard_layout() { array } else { array.as_standard_layout().into_owned() }
}

/// Features and targets that fit together, in standard layout.
fn checked(features: Array2<f32>, target: Target) -> Result<(Array2<f32>, Target), DataError> {
    let (rows, inputs) = features.dim();
    if rows == 0 || inputs == 0 {
        let problem = format!("{rows} rows of {inputs} inputs: at least one of each is needed");
        return Err(DataError::structure("features", problem));
    }
    let features = finite("features, row", features)?;
    let count = |place: &str, found, problem| {
        Err(DataError::Count { place: place.into(), found, needed: rows, problem })
    };
    let target = match target {
        Target::Classes { labels, names } => {
            if labels.len() != rows {
                let problem = format!("{} labels for {rows} rows", labels.len());
                return count("labels", labels.len(), problem);
            }
            let classes = names.len();
            if let Some(row) = labels.iter().position(|&label| label as usize >= classes) {
                let label = labels[row];
                let problem =
                    format!("label {label} in row {row}, but there are {classes} classes");
                return Err(DataError::structure("labels", problem));
            }
            Target::Classes { labels, names }
        }
        Target::Values(values) => {
            let (found, width) = values.dim();
            if found != rows || width == 0 {
                let problem = format!("{found} x {width} values for {rows} rows");
                return count("values", found, problem);
            }
            Target::Values(finite("values, row", values)?)
        }
    };
    Ok((features, target))
}

/// Finite numbers in standard layout.
fn finite(unit: &'static str, values: Array2<f32>) -> Result<Array2<f32>, DataError> {
    let values = standard(values);
    let flat = values.as_slice().expect("the layout is standard");
    if let Some(index) = vector::first_non_finite(flat) {
        check_one(unit, (index / values.ncols(), index % values.ncols()), flat[index])?;
    }
    Ok(values)
}

/// Checks a number of a row and a column.
pub(super) fn check_one(
    unit: &'static str,
    (row, column): (usize, usize),
    value: f32,
) -> Result<(), DataError> {
    if value.is_finite() {
        return Ok(());
    }
    Err(DataError::cell(unit, row, Some(column), value, "a finite number is needed"))
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    fn classes(labels: &[u32], count: usize) -> Target {
        Target::Classes {
            labels: labels.to_vec(),
            names: (0..count).map(|c| c.to_string()).collect(),
        }
    }

    #[test]
    fn a_dataset_is_checked_when_it_is_made() {
        let features = array![[1.0f32, 2.0], [3.0, 4.0]];
        assert!(Dataset::new("a", features.clone(), classes(&[0, 1], 2)).is_ok());
        let refused = |target| Dataset::new("a", features.clone(), target).unwrap_err();
        for target in [classes(&[0], 2), Target::Values(array![[1.0]])] {
            let error = refused(target);
            assert!(
                matches!(error.kind(), DataError::Count { found: 1, needed: 2, .. }),
                "{error}"
            );
        }
        assert_eq!(
            refused(classes(&[0, 2], 2)).to_string(),
            "a: labels: label 2 in row 1, but there are 2 classes"
        );
        let nan = refused(Target::Values(array![[1.0], [f32::NAN]])).to_string();
        assert_eq!(nan, "a: values, row 1, column 0 = NaN: a finite number is needed");
        assert!(Dataset::new("a", Array2::zeros((0, 3)), classes(&[], 1)).is_err());
    }

    #[test]
    fn a_transposed_array_becomes_row_major() {
        let data = Dataset::new(
            "a",
            array![[1.0f32, 2.0], [3.0, 4.0]].reversed_axes(),
            classes(&[0, 1], 2),
        )
        .unwrap();
        assert_eq!(data.features.as_slice().unwrap(), [1.0, 3.0, 2.0, 4.0]);
    }

    #[test]
    fn rows_are_selected_in_the_order_asked() {
        let data =
            Dataset::new("a", array![[1.0f32], [2.0], [3.0]], classes(&[0, 1, 2], 3)).unwrap();
        let picked = data.select(&[2, 0, 2]);
        assert_eq!(picked.features, array![[3.0], [1.0], [3.0]]);
        assert_eq!((picked.labels().unwrap(), picked.outputs()), (&[2, 0, 2][..], 3));
    }
}
