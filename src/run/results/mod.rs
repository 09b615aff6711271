//! The results of a run: the records of its nodes, and the summary that follows from them.

pub(crate) mod figures;
pub(crate) mod history;
pub(crate) mod participation;
pub mod record;
pub(crate) mod summary;
