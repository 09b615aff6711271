//! The design that all nodes of a run share, and what is checked before a run begins.

pub(crate) mod byzantine;
pub(crate) mod needs;
pub mod outlook;
pub(crate) mod resolved;
pub(crate) mod stop_early;
pub(crate) mod variants;
pub(crate) mod warm_start;
