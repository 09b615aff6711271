//! A run from its files to its results.
//!
//! [`Design`] is shared by all nodes: an experiment with every value resolved. [`Whole`] is a run
//! with all nodes in this process, [`Single`] one node of a network of machines, [`ShardLearner`]
//! one node's learner; [`specs`] makes a run from objectives of another program. A [`Session`] is a
//! whole run that writes its results into a [`RunDirectory`], with a [`Summary`].

pub(crate) mod arithmetic;
pub(crate) mod checkpoint;
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

#[cfg(feature = "net")]
pub(crate) use design::resolved::count_parameters;
pub use design::{outlook::Outlook, resolved::Design};
pub(crate) use directory::leave::Departure;
pub use directory::{
    folder::RunDirectory,
    metrics::Metric,
    read::{Point, Run, Span, Status},
    recorder::{Recorder, RunInfo, Warn},
};
pub use end::{EndError, Ending};
pub use node_file::{NodeFile, Security, StatusFile};
pub use own::{Measures, specs};
pub use results::{
    figures::{Baseline, Calibration, ClassFigures, Figures, OutputFigures},
    record::Score,
    summary::{
        Change, LinkBytes, Outcome, OwnMeasure, Participation, PooledOutcome, Summary,
        SummaryError, TotalBytes,
    },
};
pub(crate) use shards::shard::class_counts;
pub use shards::{agreed::Agreed, division::TestRows, row_constants::RowConstants, shard::Shared};
pub use whole::{Pooled, Whole};

internals!({
    arithmetic::name as arithmetic_name,
    checkpoint::{Checkpoint, Checkpoints},
    design::{needs::Needs, outlook, resolved::topology, variants::Variants},
    directory::{
        data_record::{DataRecord, Usage},
        folder::STATUS_FILE,
        leave::leave,
        metrics,
        recorder::{MEAN_MODEL, write_summary},
        space::{SavedFiles, Space},
    },
    own::{Evaluate, Gradients, OwnLearner},
    own_run::{OwnRun, check_own, outlook_of_own},
    results::{
        figures::UNBALANCED,
        history::{Members, check_history, difference, experiment_of, history_of},
        record,
    },
    session::{Driven, Finished, Session, SessionEvent},
    shards::{constants::Constants, shard::ShardLearner},
    single::Single,
    watch::{Progress, Snapshot, Watch},
});
