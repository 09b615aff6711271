//! What each node says about itself while a run lasts, so that every node knows the last state of
//! all.
//!
//! * Once a second a node makes a [`Record`]: its round, loss, for whom it waits, its links. It
//!   signs it and passes it to its neighbours, and these to theirs ([`Board`]).
//! * A record is numbered by the clock, so that a program that was started again continues. Only
//!   the newest of a node counts. One of a node that is lost stays, with its age.
//! * A record is data for people and for messages: no bit of the training depends on it. Only a
//!   neighbour that signs something else than it has sent is found by it.

mod board;
mod record;

pub use crate::cluster::waiting::pace::slowest;
pub use board::{Board, Heard, Passed, utc};
pub use record::{Kept, LinkRecord, Record, Shared, State};
