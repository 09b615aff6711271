//! A run from its files to its results.
//!
//! [`Design`] is shared by all nodes: an experiment with every value resolved. [`Whole`] is a run
//! with all nodes in this process, [`Single`] one node of a network of machines, [`ShardLearner`]
//! one node's learner; [`specs`] makes a run from objectives of another program. A [`Session`] is a
//! whole run that writes its results into a [`RunDirectory`], with a [`Summary`].

mod agreed;
pub mod arithmetic;
mod begin;
mod card;
pub mod checkpoint;
mod constants;
mod data_record;
mod design;
mod directory;
mod division;
mod end;
mod far;
mod figures;
mod history;
mod leave;
mod lies;
mod lock;
mod markdown;
mod merged;
pub mod metrics;
mod needs;
mod node_file;
mod opening;
pub mod outlook;
mod own;
mod own_run;
mod participation;
mod read;
pub mod record;
mod recorder;
mod row_constants;
mod rows;
mod session;
mod shard;
mod single;
mod space;
mod stop_early;
mod summary;
mod warm_start;
mod watch;
mod whole;

pub use agreed::Agreed;
pub use checkpoint::{Checkpoint, Checkpoints};
pub use constants::Constants;
pub use data_record::{DataRecord, Usage};
#[cfg(feature = "net")]
pub(crate) use design::count_parameters;
pub use design::{Design, topology};
pub use directory::RunDirectory;
pub use division::TestRows;
pub use end::{EndError, Ending};
pub use figures::{Baseline, ClassFigures, Figures, OutputFigures, UNBALANCED};
pub use history::{Members, check_history};
pub(crate) use leave::Departure;
pub use leave::leave;
pub use needs::Needs;
pub use node_file::{NodeFile, Security};
pub use outlook::Outlook;
pub use own::{Evaluate, Gradients, Measures, OwnLearner, specs};
pub use own_run::{OwnRun, check_own, outlook_of_own};
pub use read::{Point, Run, Span, Status};
pub use recorder::{MEAN_MODEL, Recorder, RunInfo, Warn, write_summary};
pub use row_constants::RowConstants;
pub use session::{Driven, Finished, Session, SessionEvent};
pub(crate) use shard::class_counts;
pub use shard::{ShardLearner, Shared};
pub use single::Single;
pub use space::{SavedFiles, Space};
pub use summary::{
    Change, LinkBytes, Outcome, OwnMeasure, Participation, PooledOutcome, Summary, SummaryError,
};
pub use watch::{Progress, Snapshot, Watch, mean};
pub use whole::{Pooled, Whole};
