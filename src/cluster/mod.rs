//! The life of a run at one node: a state machine around [`gossip::Node`](crate::gossip::Node).
//!
//! ```text
//!                .-------- a neighbour was started again -------.
//!                v                                              |
//!   Opening -> Rendezvous -> Restoring -> Rounds -> Commit -> Closing -> Over
//!      ^           |                        |          |
//!      |           '----- members change ---+----------'
//!      |                                    v
//!      '------------------------- Opening -> Choosing
//! ```
//! It has no sockets, files, clock, threads or random numbers: a driver passes [`Input`]s in and
//! performs the [`Effect`]s in order. The same inputs give the same effects.
//!
//! * [`begin`]: all members are linked, and agree on where they begin.
//! * [`rounds`]: the rounds of the core, and how long this node waits ([`waiting`]).
//! * [`statements`]: what a node says to all others, with its signature.
//! * [`checkpoints`]: after which rounds all members write them, and which ones are removed.
//! * [`members`]: who continues without nodes that are absent, and whom this node refuses.
//! * [`kept`]: what every driver does with the checkpoints of its node.
//! * [`seal`]: what came down the spanning tree is what all have given.
//! * [`commit`]: no node leaves before all have written their results.
//!
//! A node has two numbers: that in the topology of the run, and that among the members
//! ([`part`]). Events of links, and the core, use the second; what the user sees, the first.

pub(crate) mod begin;
pub(crate) mod checkpoints;
pub(crate) mod commit;
pub(crate) mod effect;
pub(crate) mod event;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
pub(crate) mod kept;
pub(crate) mod machine;
pub(crate) mod members;
pub(crate) mod message;
pub(crate) mod part;
pub(crate) mod rounds;
pub(crate) mod seal;
pub(crate) mod statements;
#[cfg(test)]
mod tests;
pub(crate) mod waiting;

pub(crate) use effect::{Effect, Facts, Input, Opened, Opening, Outcome, Restored};
pub(crate) use machine::{Cluster, Keeps, Standing, Terms};
