//! The life of a run at one node, on the thread of its core.
//!
//! ```text
//! attempts: links -> agreement: who takes part -> worker: agreement: where to begin
//!    ^                                               -> rounds -> agreement: all have results
//!    `---- a neighbour was started again, or the members have changed ----'
//! ```
//! Nothing here names libp2p: `links` says what is needed of links, `event` what they report. So
//! tests run it on simulated links, with the virtual time of `clock`.

pub(crate) mod agreement;
pub(crate) mod attempts;
pub(crate) mod ban;
pub(crate) mod clock;
pub(crate) mod event;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod observer;
pub(crate) mod rounds;
pub(crate) mod worker;
