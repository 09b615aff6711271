//! What a reader hands over: what a file says about its rows, then the rows.

use super::{cell::Cell, parts::Copy};
use crate::data::DataError;

/// What a file says about its rows before they follow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heading {
    /// The number of columns of every row.
    pub columns: usize,
    /// The names of the columns, if the file has them.
    pub names: Option<Vec<String>>,
    /// The names of the classes, in the order of their numbers.
    pub classes: Option<Vec<String>>,
    /// The word for a row in messages, such as "line".
    pub unit: &'static str,
}

/// Takes the rows of tables.
pub trait Rows {
    /// Whether the first line of a file has the names of the columns that are needed.
    fn are_names(&self, first: &[String]) -> bool;

    /// Begins a file, whose rows follow.
    ///
    /// # Errors
    /// If its columns are not those that are needed.
    fn begin(&mut self, heading: Heading) -> Result<(), DataError>;

    /// Whether [`Rows::add`] looks at a column of the file that is read.
    fn uses(&self, column: usize) -> bool;

    /// Whether the rows do without a column that is used, because its type, in these words, is not
    /// read: its cells are then empty.
    fn skip(&mut self, _column: usize, _words: &str) -> bool {
        false
    }

    /// Takes what the user should know about the file that is read.
    fn note(&mut self, remark: String);

    /// The number of rows so far.
    fn rows(&self) -> usize;

    /// Checks that about this many rows more fit into memory.
    ///
    /// # Errors
    /// If they clearly do not.
    fn check_memory(&self, more: f64) -> Result<(), DataError>;

    /// Takes a row, whose number in the file is for messages. `cell` returns the cell of a column.
    ///
    /// # Errors
    /// If a cell is not what its column needs; no more rows can then be taken.
    fn add<'c>(&mut self, number: u64, cell: &dyn Fn(usize) -> Cell<'c>) -> Result<(), DataError>;
}

/// Takes the rows of text, of which there are millions.
pub(crate) trait TextRows: Rows {
    /// As [`Rows::add`], compiled for the function that returns cells.
    ///
    /// # Errors
    /// As [`Rows::add`].
    fn add_text<'c>(
        &mut self,
        number: u64,
        cell: impl Fn(usize) -> Cell<'c>,
    ) -> Result<(), DataError>;

    /// The first of the files that has the rows of an earlier one, in whatever spelling.
    fn copy(&self) -> Option<Copy>;
}
