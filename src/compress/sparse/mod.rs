//! Sparse vectors: some of the numbers with their indices, and compressors that send them.

pub(super) mod chunked_top_k;
pub(super) mod entries;
mod gaps;
pub(super) mod indices;
mod kept;
pub(super) mod random_k;
mod select;
pub(super) mod top_k;
