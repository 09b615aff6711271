//! Train one model on many machines with no server and no shared data.
//!
//! A **node** keeps its own rows, computes gradients on them and exchanges compressed model
//! differences with its neighbours, weighted by a doubly stochastic matrix W on a
//! [topology](mixing::Topology). An [experiment](experiment::Experiment) names an update rule, a
//! compressor, a model, data and an optimizer; any rule goes with any compressor.
//!
//! ```text
//! mixing  compress  learn  data    topologies; vectors as bytes; models; rows
//!            gossip                the protocol of one node, without I/O: handle(input) -> effects
//!     links  drive  predict        link models; code that drivers share; predicted times
//!             run                  an experiment from its files to its results
//!          sim | net               two drivers of the same core: simulated time, libp2p
//! ```
//!
//! A whole run in the simulator:
//!
//! ```
//! use gradvine::prelude::*;
//!
//! let settings = ["run.rounds=60", "topology.file=ring:4", "rule.kind=dcd"].map(String::from);
//! let whole = Whole::new(Experiment::default_with(&settings)?)?;
//! let ended = sim::run(whole.specs(), &mut NoopObserver)?;
//! let summary = Summary::new(&whole.design, &ended[0].records)?;
//! assert!(summary.outcome.test_accuracy_of_mean > Some(0.7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The same over real libp2p hosts on loopback ends with the same bits:
//!
//! ```
//! # #[cfg(feature = "net")] {
//! use gradvine::{experiment::Transport, net, prelude::*};
//!
//! let settings = ["run.rounds=5", "topology.file=path:2"].map(String::from);
//! let whole = Whole::new(Experiment::default_with(&settings)?)?;
//! let simulated = sim::run(whole.specs(), &mut NoopObserver)?;
//! let whole = Whole::new(Experiment::default_with(&settings)?)?;
//! let really = net::together(whole.specs(), &whole.design, Transport::Tcp, &mut NoopObserver)?;
//! assert_eq!(really[0].model, simulated[0].model);
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The feature `net` (libp2p hosts) is on by default; without it the crate builds without libp2p.
//! The `gradvine` command, tables of Parquet and Arrow, evaluation, reports, studies and the
//! laboratory are packages of their own in `crates/`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "net"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "only libp2p hosts call some parts of the core"
    )
)]
#![cfg_attr(
    not(feature = "internals"),
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "only other packages of this repository call some parts"
    )
)]

/// Re-exports what only packages of this repository reach: with the feature `internals` it is
/// public, without it the crate's own.
macro_rules! internals {
    ($($tree:tt)*) => {
        #[cfg(feature = "internals")]
        pub use $($tree)*;
        #[cfg(not(feature = "internals"))]
        pub(crate) use $($tree)*;
    };
}

mod cluster;
pub mod compress;
pub mod config;
pub mod data;
pub mod drive;
pub mod experiment;
pub mod gossip;
pub mod learn;
pub mod links;
pub mod mixing;
#[cfg(feature = "net")]
pub mod net;
#[cfg(feature = "net")]
pub mod node;
pub mod predict;
pub mod prelude;
pub mod registry;
pub mod rng;
pub mod run;
pub mod sim;
pub mod state;
pub mod status;
pub mod units;

/// Modules that the packages of this repository reach.
#[path = "."]
mod reached {
    pub mod digest;
    pub mod faults;
    pub mod files;
    pub mod inputs;
    pub mod memory;
    pub mod printable;
    pub mod simulation;
    pub mod threads;
    pub mod vector;
}

/// What the fuzz target `cluster` does with its bytes.
///
/// # Panics
/// If the state machine of a node does what it must not.
#[cfg(feature = "fuzz")]
pub fn fuzz_cluster(bytes: &[u8]) {
    cluster::fuzz::run(bytes);
}

internals!(reached::{
    digest, faults, files, inputs, memory, printable, simulation, threads, vector
});
