//! Neighbours average models of which they send compressed parts.

pub(super) mod beer;
pub(super) mod choco;
pub(super) mod choco_edge;
pub(super) mod compressed_qg_dsgdm;
pub(super) mod dcd;
pub(super) mod deep_squeeze;
pub(super) mod ecd;
pub(super) mod moniqua;
pub(super) mod naive;
pub(super) mod power_gossip;
