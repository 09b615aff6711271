//! The rows of the nodes: how they are read and divided, each node's learner, and the constants
//! that follow from the rows of all.

pub(crate) mod agreed;
pub(crate) mod constants;
pub(crate) mod division;
pub(crate) mod far;
pub(crate) mod merged;
pub(crate) mod opening;
pub(crate) mod row_constants;
pub(crate) mod rows;
pub(crate) mod shard;
