//! How results look: pictures, pages and tables of runs, figures of topologies.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod chart;
mod page;
mod summary;
mod text;
pub mod topology;

pub use page::{Figure, MARK, Page, page};
pub use summary::table;
pub use text::aligned;
