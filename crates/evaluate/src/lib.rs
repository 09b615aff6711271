//! Predictions of a saved model for some rows, and how good they are: what `gradvine predict` and
//! `gradvine evaluate` compute. No run needs it.
#![forbid(unsafe_code)]

mod evaluation;
mod predictions;
mod scoring;

pub use evaluation::ScoredModel;
pub use predictions::{PredictionFormat, Predictions};
pub use scoring::{Scored, Scoring, Wanted, model_file, read_rows};
