//! Topologies and schedules: their key figures, one in full, and lists of them.

mod figures;
mod listing;
mod rounds;
mod sheet;

pub use figures::Figures;
pub use listing::Listing;
pub use rounds::Rounds;
pub use sheet::{Checks, sheet};
