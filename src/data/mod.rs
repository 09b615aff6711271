//! Data for learning: tables of numbers, their sources, and their division among nodes.
//!
//! ```text
//! source -> load -> Dataset -> split_test -> shards -> select -> apply(Scale) -> objective
//! ```
//!
//! | file | does |
//! |---|---|
//! | `dataset` | [`Dataset`]: features and targets of some rows |
//! | `options` | [`Options`]: what a user says about the data that are read |
//! | `load` | [`load`]: an embedded set, a file, or the files of a folder, which are one table |
//! | `open`, `arrays` | a file that is read by its format; features and labels from arrays |
//! | `format`, `list` | what a format is; the list of all |
//! | `file/` | bytes as a stream, compressed or not; folders; files that survive a crash |
//! | `csv/`, `array/` | separated text; NPY, NPZ and IDX. `crates/tables` has Parquet and Arrow |
//! | `table/` | which columns are read, what cells mean, [`Schema`], and a dataset from rows |
//! | `split` | [`split_test`], [`shards`]: test rows leave first, then the rest is divided |
//! | `survey` | [`survey`]: what is in each column, in counts |
//! | `preprocessing/` | what missing values become; [`Moments`], [`Scale`]: zero mean, unit deviation |
//! | `synthetic` | `Synthetic`: random rows, each node's with an optimum of its own |
//! | `error`, `excerpt` | [`DataError`]: what can be wrong |
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
mod arrays;
mod csv;
mod dataset;
mod embedded;
mod error;
mod excerpt;
mod file;
mod format;
mod list;
mod load;
mod open;
mod options;
mod overlap;
mod preprocessing;
mod split;
mod survey;
mod synthetic;
mod table;
mod write;

pub use dataset::{Columns, Dataset, Gaps, Identifiers, Target, Task};
pub use embedded::{Datasets, EMBEDDED, Embedded};
pub use error::DataError;
pub(crate) use file::disk::{Disk, FileSystem, ReadOnly, WriteContents, replace_file};
pub use format::{Format, ReadTable};
pub use list::FORMATS;
pub(crate) use load::{beside, path_beside};
pub use load::{load, parse, read};
pub use options::Options;
pub(crate) use overlap::on_both_sides;
pub(crate) use preprocessing::GapSums;
pub use preprocessing::{
    Preprocessing,
    scale::{Moments, Scale},
};
pub(crate) use split::sized_shards;
pub use split::{Split, shards, split_test};
pub(crate) use survey::complete;
pub(crate) use synthetic::Synthetic;
pub use table::cell::Cell;
pub use table::rows::{Heading, Rows};
pub use table::schema::{Column, ColumnKind, Missing, Schema};

internals!({
    excerpt::excerpt,
    file::{inflate::plausible_size, input::{MAX_FILE_BYTES, Reading, observe_reading}},
    survey::{ColumnSurvey, Survey, survey},
    synthetic::SYNTHETIC,
    table::{
        classes::{MAX_CLASSES, are_named},
        schema::MAX_VALUES,
        spelling::{similar_classes, similar_spellings},
    },
    write::{Kind, check_output, check_unread, write_atomically, write_csv, write_in_turn},
});
