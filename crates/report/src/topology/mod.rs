//! Topologies and schedules: their key figures, one in full, and lists of them.

mod drawing;
mod figures;
mod listing;
mod rounds;
mod sheet;

pub use drawing::{draw, narrow_svg, svg};
pub use figures::Figures;
pub use listing::Listing;
pub use rounds::Rounds;
pub use sheet::{Checks, sheet};
