//! What a run leaves behind: its directory, metrics, summary and models; and charts and pages of
//! it.

pub mod chart;
mod directory;
pub mod metrics;
mod page;
mod read;
mod space;
mod summary;

pub use directory::RunDirectory;
pub use page::{Figure, MARK, Page, page};
pub use read::{Point, Run, Span, Status};
pub use space::{Saves, Space};
pub use summary::{LinkBytes, Outcome, Participation, PooledOutcome, Summary};
