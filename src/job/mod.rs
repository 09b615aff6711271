//! An experiment made ready to run: topology, shards, rules, learners, and what they report.
//!
//! [`Design`] is what all nodes share, [`Whole`] a run whose nodes are all in this process,
//! [`ShardLearner`] one node's learning side. [`seats`] makes a run of objectives that a program
//! brings itself.

pub mod arithmetic;
mod constants;
mod design;
mod learner;
mod needs;
mod network;
pub mod outlook;
mod own;
pub mod record;
mod shard;
mod single;
mod watch;
mod whole;

pub use constants::Constants;
pub use design::{Design, topology};
pub use learner::{Blind, Conclusion, Elapsed, Ended, Learner, Lent, Observer, RunError, compute};
pub use needs::Needs;
pub use network::conditions;
pub use outlook::Outlook;
pub use own::seats;
pub use shard::{ShardLearner, Shared, class_counts};
pub use single::{NodeFile, Single};
pub use watch::{Progress, Snapshot, Watch, mean};
pub use whole::{Pooled, Whole, options};
