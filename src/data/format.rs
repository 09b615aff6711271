//! What a format of files is: how its files are known, and how they are read.

use super::{
    DataError, array::Numbers, dataset::Dataset, file::inflate::Length, options::Options,
    table::rows::Rows,
};
use crate::registry::Named;

/// A format of files with data.
pub struct Format {
    /// The value of `data.format`.
    pub(crate) name: &'static str,
    /// One of its files, in messages.
    pub(crate) file: &'static str,
    /// The ends of the names of its files, before `.gz`.
    pub(crate) endings: &'static [&'static str],
    /// The first bytes of its files.
    pub(crate) magics: &'static [&'static [u8]],
    pub(crate) content: Content,
}

/// What is in a file, and how it is read.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// A table of text, row by row from a stream.
    Text,
    /// A table whose columns have names and types, from all its bytes.
    Table(ReadTable),
    /// A table that this program cannot read: what is not read, and the feature of the command that
    /// reads it.
    Absent(&'static str, &'static str),
    Array(ArrayFormat),
    /// Arrays of features and labels.
    Archive(ReadArchive),
}

/// Reads rows from all bytes of a file.
pub type ReadTable = fn(Vec<u8>, &mut dyn Rows) -> Result<(), DataError>;

/// Reads a dataset from the bytes of a file, which has this name in messages.
pub(crate) type ReadArchive = fn(&str, &[u8], &Options) -> Result<Dataset, DataError>;

/// How an array of numbers is read.
#[derive(Clone, Copy)]
pub(crate) struct ArrayFormat {
    /// Reads the header; the numbers are read in place.
    pub(crate) read: fn(&[u8]) -> Result<Numbers<'_>, DataError>,
    /// The length of a file, by its header.
    pub(crate) length: Length,
    /// Whether labels are always in a file of their own.
    pub(crate) labels_apart: bool,
}

impl Format {
    /// A format of tables whose columns have names and types. `name` is its name in kebab-case,
    /// `file` one of its files in messages, such as "a Parquet file". A file is of this format if
    /// its name, without `.gz`, has one of these `endings` (in lower case), or else if it begins
    /// with one of the `magics`.
    pub const fn table(
        name: &'static str,
        file: &'static str,
        endings: &'static [&'static str],
        magics: &'static [&'static [u8]],
        read: ReadTable,
    ) -> Format {
        Format { name, file, endings, magics, content: Content::Table(read) }
    }

    /// Whether it is a table with columns of several kinds, and not an array of numbers.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.content, Content::Text | Content::Table(_) | Content::Absent(..))
    }
}

impl Named for Format {
    fn name(&self) -> &str {
        self.name
    }
}
