//! What each node says about itself while a run lasts, so that every node knows the last state of
//! all.
//!
//! * Once a second a node makes a [`Record`]: its round, loss, for whom it waits, its links. It
//!   signs it and passes it to its neighbours, and these to theirs ([`Board`]).
//! * A record is numbered by the clock, so that a program that was started again continues. Only
//!   the newest of a node counts. One of a node that is lost stays, with its age.
//! * No bit of the training depends on a record. It is for people and for messages, and it says
//!   that a node is at work, so that others wait for it.

mod board;
mod record;

pub use crate::cluster::waiting::pace::slowest;
pub(crate) use board::clock;
pub use board::{Board, Heard, Passed, utc};
pub use record::{AtWork, Busy, Kept, LinkRecord, Record, State};
