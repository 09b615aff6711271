//! What a user says about the data that are read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{
    dataset::{Columns, Task},
    embedded::Datasets,
    table::schema::Schema,
};

/// How files are read, beside their format.
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
    /// Tables: a column that is read as text into
    /// [`Dataset::identifiers`](crate::data::Dataset::identifiers), by name or position as
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
    /// For prediction: the targets of a table are not read if `target` or `columns` names them. The
    /// last column of another table is checked: it has targets, or cells that have none. A file of
    /// `inputs` columns without a named target, or an array of features without one of labels,
    /// holds only features. All targets are then 0.
    pub bare: bool,
    /// NPY and IDX: the file of labels. Default: `images-idx3-ubyte` becomes `labels-idx1-ubyte`;
    /// `NAME.npy` has `NAME-labels.npy` beside it, or its labels in the target column; `NAME.idx`
    /// has `NAME-labels.idx`.
    pub labels_file: Option<PathBuf>,
    /// The sets that a source may name besides files. Default: those of the process.
    #[serde(skip)]
    pub datasets: Datasets,
}
