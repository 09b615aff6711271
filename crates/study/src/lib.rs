//! Comparisons of experiments: several combinations do the same work, each tuned for itself, over
//! several seeds.
//!
//! ```text
//! Case (a name, a base, settings)  x  seeds  ->  Trace (what one run did)  ->  Outcome (a row: mean and spread of figures)
//! ```
//!
//! | file | does |
//! |---|---|
//! | `case` | [`Case`]: an experiment that differs from a base in some settings |
//! | `trace` | [`Trace`]: one run in the simulator, its curve, and how it ended |
//! | `bench` | [`Bench`]: runs many cases on threads; their number does not change the results |
//! | `grid`, `tune` | [`Grid`]: values of a key; [`Tuned`]: the chosen ones, on their own seeds |
//! | `cache` | [`RunCache`]: runs in a folder, which need not be repeated |
//! | `figure` | [`Figure`]: a number from a trace; mean and spread over seeds |
//! | `optimum` | the least value of f, if it can be computed |
//! | `compare`, `table` | [`Comparison`]: all combinations of lists; [`Table`]: their figures as text, JSON, CSV and pictures |
//! | `curves` | charts of outcomes |
//! | `file`, `expect` | study files: rows, pictures, and inequalities that a machine checks |
//! | `campaign` | [`Campaign`]: studies run one after the other, with their pages and their list |
//! | `folder` | study files of a folder: loading, their data, their pages |
//! | `pages` | a study as a page of Markdown |
//!
//! A run that diverges and a combination that is refused are rows like others. Everything runs on
//! the virtual network of [`gradvine::sim`].
#![forbid(unsafe_code)]

mod campaign;
mod compare;
mod curves;
mod expect;
mod figure;
mod file;
pub mod folder;
mod pages;
mod runs;
mod table;

pub use campaign::{Campaign, Following, Loaded};
pub use compare::{Combinations, Comparison, Row, refusal};
pub use curves::{Curve, chart};
pub use expect::{Check, Expectation, Verdict, judge};
pub use figure::{Figure, Spread, Target, rounded};
pub use file::{Against, LEAST_SEEDS, LEAST_TUNING_SEEDS, Needs, Picture, Study, TUNING};
pub use gradvine_report::interval::{Interval, student};
pub use pages::{index, page};
pub use runs::{
    bench::{Bench, jobs},
    cache::RunCache,
    case::{Base, Case},
    grid::Grid,
    optimum::Optima,
    outcome::Outcome,
    trace::{Point, Status, Trace},
    tune::{Tried, Tuned},
};
pub use table::Table;
