//! Data for learning: tables of numbers, their sources, and their division among nodes.
//!
//! ```text
//! source -> load -> Dataset -> split_test -> shards -> select -> apply(Scale) -> objective
//! ```
//!
//! | file | does |
//! |---|---|
//! | `dataset` | [`Dataset`]: features and targets of some rows |
//! | `load` | [`load`]: an embedded set or a file, found by name or by its first bytes |
//! | `input`, `inflate` | the bytes of a file as a stream, compressed or not |
//! | `records`, `decimal` | records of separated text from a stream, and numbers from their text |
//! | `csv`, `npy`, `npz`, `idx` | one format each; all also gzip-compressed |
//! | `header`, `encoding` | whether a text file's first line has names; what is no UTF-8 |
//! | `parquet`, `arrow` | tables of Parquet and Arrow files, with the cargo features of these names |
//! | `typed` | the values of their columns as cells |
//! | `array`, `columns` | the common part of NPY and IDX; the rules for target columns and labels |
//! | `folder` | the files of a folder, which are the parts of one table |
//! | `choice` | which columns of a table are read |
//! | `cell`, `encode` | one cell of a table, and a dataset from cells, row by row |
//! | `classes` | labels by the names of their classes |
//! | `schema`, `codes` | [`Schema`]: the columns by name, and their features |
//! | `others` | remarks on values that a category does not list |
//! | `spelling` | what two spellings of a text have in common |
//! | `split` | [`split_test`], [`shards`]: test rows leave first, then the rest is divided |
//! | `describe` | [`describe`]: what is in each column, and a schema drafted from it |
//! | `draft` | an experiment drafted from such a description |
//! | `preprocessing` | what missing values become, by sums over all nodes |
//! | `scale` | [`Moments`] and [`Scale`]: zero mean and unit deviation; rows stay on their node |
//! | `twofold` | sums with twice the digits of `f64` |
//! | `synthetic` | `Synthetic`: random rows, each node's with an optimum of its own |
//! | `error` | [`DataError`]: what can be wrong |
//! | `write` | [`write_csv`]: a dataset as a file that [`load`] reads back to the bit |
//!
//! **Limits.** Values are finite `f32`; labels are whole numbers below [`MAX_CLASSES`], or names: a
//! node that has only its own rows needs all names to number them as its neighbours do. A file is
//! read whole, after its size was compared with [`MAX_FILE_BYTES`]; a compressed one may
//! grow to 64 MiB plus 200 times its size. No bytes make a reader panic or allocate more than that.
//!
//! ```
//! use gradvine::data::{self, Split};
//! let digits = data::load("digits", &data::Options::default())?;
//! let (train, test) = data::split_test(&digits, 0.2, 1)?;
//! let shards = data::shards(&digits, &train, 8, Split::ByLabel, 1)?;
//! assert_eq!((digits.rows(), digits.inputs(), test.len(), shards[0].len()), (1797, 64, 359, 180));
//! # Ok::<(), data::DataError>(())
//! ```

mod array;
#[cfg(feature = "arrow")]
mod arrow;
mod csv;
mod dataset;
mod describe;
mod draft;
mod embedded;
mod error;
mod file;
mod load;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(all(test, any(feature = "arrow", feature = "parquet")))]
mod patients;
mod preprocessing;
mod split;
mod synthetic;
mod table;
mod write;

#[cfg(any(feature = "arrow", feature = "parquet"))]
use self::table::typed;
use self::{
    array::{idx, npy, npz},
    csv::{encoding, records},
    file::{disk, folder, inflate, input},
    preprocessing::{scale, twofold},
    table::{cell, choice, classes, codes, columns, decimal, encode, others, schema, spelling},
};

pub use classes::are_named;
pub use columns::MAX_CLASSES;
pub(crate) use columns::excerpt;
pub use dataset::{Columns, Dataset, Identifiers, Target, Task};
pub(crate) use describe::complete;
pub use describe::{ColumnDescription, Description, describe};
#[cfg(test)]
pub(crate) use disk::WriteContents;
pub(crate) use disk::{Disk, FileSystem, ReadOnly, replace_file};
pub use embedded::{EMBEDDED, Embedded};
pub use error::DataError;
pub use input::{Reading, observe_reading};
pub(crate) use load::beside;
pub(crate) use load::path_beside;
pub use load::{Format, MAX_FILE_BYTES, Options, load, parse, read};
pub(crate) use others::similar_classes;
pub(crate) use preprocessing::GapSums;
pub use preprocessing::{Gaps, Preprocessing};
pub use scale::{Moments, Scale};
pub use schema::{Column, ColumnKind, MAX_VALUES, Missing, Schema};
pub(crate) use split::sized_shards;
pub use split::{Split, shards, split_test};
pub use synthetic::SYNTHETIC;
pub(crate) use synthetic::Synthetic;
pub use write::{check_output, write_atomically, write_csv};
