//! Nodes take several local steps between two exchanges.

pub(super) mod compressed_gasloc;
pub(super) mod diloco;
pub(super) mod gasloc;
pub(super) mod local_sgd;
pub(super) mod noloco;
pub(super) mod sparse_loco;
pub(super) mod streaming_diloco;
