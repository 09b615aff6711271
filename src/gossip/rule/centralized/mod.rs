//! All nodes have the same model: their updates are summed over all of them.

pub(super) mod c_sgd;
pub(super) mod compressed_c_sgd;
pub(super) mod delayed;
pub(super) mod dgc;
pub(super) mod double_squeeze;
pub(super) mod ef_sgd;
pub(super) mod g_top_k;
mod gathering;
pub(super) mod sign_sgd;
pub(super) mod sketched_sgd;
pub(super) mod stale_synchronous;
pub(super) mod top_k_all_gather;
pub(super) mod trimmed_mean;
