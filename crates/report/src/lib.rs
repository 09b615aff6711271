//! Pictures and pages of runs.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod chart;
mod page;

pub use page::{Figure, MARK, Page, page};
