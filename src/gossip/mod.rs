//! The protocol: rounds, flights, exchanges and update rules, without I/O.
//!
//! [`Node`] is a state machine with one entry point, [`Node::handle`]: an [`Input`] goes in,
//! [`Effect`]s come out. Two drivers perform the effects: the simulator and the libp2p runtime. In
//! synchronous rounds both end with the same parameters, bit for bit.

mod byzantine;
pub mod collective;
pub(crate) mod event;
mod fingerprint;
pub(crate) mod flights;
pub mod frame;
mod node;
pub mod party;
mod pieces;
pub mod plan;
pub(crate) mod program;
pub mod rule;
pub(crate) mod snapshot;
pub(crate) mod stopping;
mod traffic;
mod transfer;
pub mod tree;

pub use byzantine::Byzantine;
pub use event::{Cause, Effect, Failure, Input, OwnModel, RoundDone, UpdatePart};
pub(crate) use fingerprint::{SHARED_EVERY, is_shared_round};
pub use node::{NewRule, Node, NodeConfig};
pub use snapshot::{Rejoin, Snapshot};
pub use stopping::{Patience, Tally, rounds_to_end};
pub use traffic::{LinkTraffic, Traffic};
pub use tree::{Merge, Readers, Setup};
