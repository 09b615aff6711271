//! The key figures of topologies and schedules.

mod figures;
mod rounds;

pub use figures::Figures;
pub use rounds::Rounds;
