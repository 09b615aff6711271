//! Nodes send their models to their neighbours and average them, uncompressed.

pub(super) mod clipped_gossip;
pub(super) mod d2;
pub(super) mod d_psgd;
pub(super) mod gradient_tracking;
pub(super) mod pairwise;
pub(super) mod qg_dsgdm;
pub(super) mod sgp;
