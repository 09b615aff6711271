//! Pictures and pages of runs.

pub mod chart;
mod page;

pub use page::{Figure, MARK, Page, page};
