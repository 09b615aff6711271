//! Experiments beside each other: the same work for several combinations, each tuned for itself, over several seeds.
//!
//! ```text
//! Case (a name, a base, settings)  x  seeds  ->  Trace (what one run did)  ->  Outcome (a row: mean and spread of figures)
//! ```
//!
//! | file | does |
//! |---|---|
//! | `case` | [`Case`]: an experiment that differs from a base in some settings; [`Pick`]: `min-max:bits=4` from the command line |
//! | `trace` | [`Trace`]: one run in the simulator, its curve, and how it ended |
//! | `bench` | [`Bench`]: tunes and runs many cases on threads; results do not depend on how many |
//! | `figure` | [`Figure`]: what is read off a trace; mean and spread over seeds |
//! | `optimum` | the least value of f, where it can be computed |
//! | `curves` | charts of outcomes |
//! | `file`, `expect` | study files: rows, pictures, and inequalities that a machine checks |
//! | `pages` | a study as a page of Markdown |
//!
//! A run that diverges and a combination that is refused are rows like others. Everything runs on the ideal virtual network of
//! [`crate::sim`].

mod bench;
mod case;
mod curves;
mod expect;
mod figure;
mod file;
mod optimum;
mod pages;
mod trace;

pub use bench::{Bench, Grid, Outcome, Tried, Tuned};
pub use case::{Base, Case, Pick, picks};
pub use curves::{Curve, chart};
pub use expect::{Check, Expectation, judge};
pub use figure::{Figure, Spread, Target, rounded};
pub use file::{Picture, Study};
pub use pages::{index, page};
pub use trace::{Point, Status, Trace};
