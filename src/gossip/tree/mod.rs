//! Exchanges over a spanning tree: before the rounds ([`SETUP`], `INITIAL`) and after them.
//!
//! * `plan`: who sends what to whom, and when.
//! * `records`: the records of all nodes, gathered at the root.
//! * `setup`: the record before round 0 that all nodes agree on.
//! * `averaging` and `mean`: the mean of models.
//! * `signatures`: who has given a record.

mod averaging;
mod mean;
mod plan;
mod records;
mod setup;
mod signatures;
mod signed;

pub(crate) use super::plan::{INITIAL, MEAN, TALLY};
pub use super::plan::{LAST_CALL, SETUP, STOP, SUMMARY};
pub(crate) use averaging::{Averaging, Givers};
pub use mean::Mean;
pub(crate) use plan::{EndOfCalls, Leaving, TreePlan, check, records_limit, setup_limit};
pub use plan::{RECORD_LIMIT, Readers, SETUP_LIMIT};
pub use records::Records;
pub(crate) use setup::Agreement;
pub use setup::{Check, Merge, Setup};
pub(crate) use signatures::Signatures;
pub use signatures::{SIGNATURE, Signer};
