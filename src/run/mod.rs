//! A run from its files to its results.
//!
//! [`Design`] is shared by all nodes: an experiment with every value resolved. [`Whole`] is a run
//! with all nodes in this process, [`Single`] one node of a network of machines, [`ShardLearner`]
//! one node's learner; [`specs`] makes a run from objectives of another program. A [`Session`] is a
//! whole run that writes its results into a [`RunDirectory`], with a [`Summary`].

pub mod arithmetic;
pub mod checkpoint;
mod design;
mod directory;
mod end;
mod node_file;
mod own;
mod own_run;
mod results;
mod session;
mod shards;
mod single;
mod watch;
mod whole;

pub use checkpoint::{Checkpoint, Checkpoints};
#[cfg(feature = "net")]
pub(crate) use design::resolved::count_parameters;
pub use design::{
    needs::Needs,
    outlook::{self, Outlook},
    resolved::{Design, topology},
};
pub(crate) use directory::leave::Departure;
pub use directory::{
    data_record::{DataRecord, Usage},
    folder::RunDirectory,
    leave::leave,
    metrics,
    read::{Point, Run, Span, Status},
    recorder::{MEAN_MODEL, Recorder, RunInfo, Warn, write_summary},
    space::{SavedFiles, Space},
};
pub use end::{EndError, Ending};
pub use node_file::{NodeFile, Security};
pub use own::{Evaluate, Gradients, Measures, OwnLearner, specs};
pub use own_run::{OwnRun, check_own, outlook_of_own};
pub use results::{
    figures::{Baseline, ClassFigures, Figures, OutputFigures, UNBALANCED},
    history::{Members, check_history},
    record,
    summary::{
        Change, LinkBytes, Outcome, OwnMeasure, Participation, PooledOutcome, Summary, SummaryError,
    },
};
pub use session::{Driven, Finished, Session, SessionEvent};
pub(crate) use shards::shard::class_counts;
pub use shards::{
    agreed::Agreed,
    constants::Constants,
    division::TestRows,
    row_constants::RowConstants,
    shard::{ShardLearner, Shared},
};
pub use single::Single;
pub use watch::{Progress, Snapshot, Watch, mean};
pub use whole::{Pooled, Whole};
