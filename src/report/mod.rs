//! What a run leaves behind: its directory, metrics, summary and models; and charts of it.

pub mod chart;
mod directory;
pub mod metrics;
mod summary;

pub use directory::RunDirectory;
pub use summary::{LinkBytes, Outcome, Participation, PooledOutcome, Summary};
