//! What can be wrong with data.

use std::io;

use super::excerpt::excerpt;
use crate::config::{ConfigError, Fault, typed_error};

/// What is wrong with data, a file of data, or a key that describes it. `place` is a part of the
/// file, such as `line 7` or `labels`; `value` is the wrong value as it is printed; `problem` says
/// what is wrong and what is accepted.
///
/// It prints as a [`ConfigError`] and converts to one, whose [`cause`](ConfigError::cause) it is.
///
/// ```
/// use gradvine::data::{self, DataError};
///
/// let error = data::parse("a.csv", b"x,y\n1,0\nn,1\n", None, &Default::default()).unwrap_err();
/// assert_eq!(error.file(), Some("a.csv"));
/// let DataError::Cell { row, column, value, .. } = error.kind() else { panic!("{error}") };
/// assert_eq!((*row, *column, &value[..]), (Some(3), Some(0), "\"n\""));
/// ```
#[derive(Debug)]
#[allow(missing_docs, reason = "the enum's text and that of a variant explain its fields")]
#[non_exhaustive]
pub enum DataError {
    /// A key of a configuration, which may be wrong only with these data.
    Config(ConfigError),
    /// Something in a file, which is named by its path or by what stands for it.
    InFile { file: Box<str>, error: Box<DataError> },
    /// A file or a folder cannot be read.
    Unreadable(io::Error),
    /// A file cannot be written; one that was there is unchanged.
    Unwritable(io::Error),
    /// A cell, by its row, the position and the name of its column, as far as they are known; a
    /// column of a type that is not read has no row. `unit` is what a row is called: a `line` is
    /// counted from 1, a `row` of an array from 0.
    Cell {
        unit: &'static str,
        row: Option<u64>,
        column: Option<usize>,
        name: Option<String>,
        value: String,
        problem: String,
    },
    /// There are not as many rows, columns, labels or other parts as are needed.
    Count { place: String, found: usize, needed: usize, problem: String },
    /// The shape of an array.
    Shape { shape: Vec<usize>, problem: String },
    /// The structure of a file: its header, columns, labels, classes or arrays.
    Structure { place: String, value: Option<String>, problem: String },
    /// A file is damaged, cut short, or in a format that is not the expected one or is not read.
    Format { place: String, value: Option<String>, problem: String },
    /// There is more than is accepted; `found` is what is known to be there.
    Limit { place: String, found: Option<u64>, most: u64, problem: String },
    /// The memory that is available is too small.
    Memory(ConfigError),
}

typed_error!(DataError);

impl DataError {
    pub(super) fn structure(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Structure { place: place.into(), value: None, problem: problem.into() }
    }

    /// A file that is damaged, or has what is not read, at this place.
    pub fn format(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Format { place: place.into(), value: None, problem: problem.into() }
    }

    pub(super) fn empty() -> Self {
        Self::structure("line 1", "the file is empty: at least one row is needed")
    }

    /// There is no row from this place on.
    pub(super) fn no_row(place: impl Into<String>) -> Self {
        Self::structure(place, "there is no row: at least one is needed")
    }

    /// A value of a row, whose columns have no names.
    pub(super) fn cell(
        unit: &'static str,
        row: usize,
        column: Option<usize>,
        value: impl ToString,
        problem: impl Into<String>,
    ) -> Self {
        let (row, value) = (Some(row as u64), value.to_string());
        Self::Cell { unit, row, column, name: None, value, problem: problem.into() }
    }

    /// More bytes than are read.
    pub(super) fn too_large(place: &str, found: u64, most: u64) -> Self {
        let problem = format!("at most {most} bytes are accepted");
        Self::Limit { place: place.into(), found: Some(found), most, problem }
    }

    /// This error in a file with this name, unless it is about a key of the configuration.
    pub(super) fn of(self, name: &str) -> Self {
        match self {
            Self::Config(mut error) => {
                error.problem += &format!(" (in {name})");
                error.into()
            }
            error => error.within(name),
        }
    }

    pub(crate) fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Unreadable(error) | Self::Unwritable(error) => Some(error),
            Self::InFile { error, .. } => error.io_error(),
            _ => None,
        }
    }

    /// The error in the form of keys, which it prints as.
    pub(crate) fn details(&self) -> ConfigError {
        match self {
            Self::Config(error) | Self::Memory(error) => error.clone(),
            Self::InFile { file, error } => error.details().within(file),
            Self::Unreadable(error) => {
                ConfigError::at("cannot be read", error.to_string()).with_fault(Fault::Unreadable)
            }
            Self::Unwritable(error) => ConfigError::at("cannot be written", error.to_string()),
            Self::Cell { unit, row, column, name, value, problem } => {
                let row = row.map(|row| format!("{unit} {row}"));
                let column = column.map(|column| format!("column {column}"));
                let mut place = row.into_iter().chain(column).collect::<Vec<_>>().join(", ");
                if let Some(name) = name {
                    place += &format!(" ({})", excerpt(name));
                }
                ConfigError::new(place, value, problem)
            }
            Self::Count { place, problem, .. } => ConfigError::at(place, problem),
            Self::Shape { shape, problem } => {
                ConfigError::new("shape", format!("{shape:?}"), problem)
            }
            Self::Structure { place, value, problem } | Self::Format { place, value, problem } => {
                ConfigError::of(place, value.as_ref(), problem)
            }
            Self::Limit { place, found, problem, .. } => ConfigError::of(place, *found, problem),
        }
    }
}
