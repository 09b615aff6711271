//! What is done with the features of all rows before a model sees them.

mod constants;
pub(super) mod scale;
mod twofold;

pub(crate) use constants::GapSums;
pub use constants::Preprocessing;
