//! What a run leaves behind: its directory, metrics, summary and models.

mod directory;
pub mod metrics;
mod summary;

pub use directory::RunDirectory;
pub use summary::{Outcome, Participation, PooledOutcome, Summary};
