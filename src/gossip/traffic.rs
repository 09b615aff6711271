//! How much a node has sent.

use crate::units::NodeId;

/// Bytes that a node has sent so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes of payloads, without headers.
    pub payload: u64,
    /// Envelopes, headers and payloads, before encryption.
    pub wire: u64,
    /// What dense gossip would have sent: 4 d bytes per neighbour and round.
    pub dense: u64,
    /// Envelopes, headers and payloads of the setup, of an initial model that one node gives, of
    /// the notice of an early end, of tallies of validation rows, of last calls and of the exact
    /// mean at the end. `wire` does not count them; neither field counts the records sent last.
    pub tree: u64,
}

/// Bytes that a node has sent to one neighbour, by the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTraffic {
    /// The neighbour that receives the bytes.
    pub to: NodeId,
    /// Bytes of payloads, without headers.
    pub payload: u64,
    /// Envelopes, headers and payloads, before encryption.
    pub wire: u64,
}
