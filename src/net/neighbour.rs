//! A neighbour, as a host knows it.

use libp2p::{Multiaddr, PeerId};

use crate::{cluster::members::ban::Ban, units::NodeId};

/// A neighbour as the topology names it.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Its number in the topology.
    pub node: NodeId,
    /// Its name in the topology.
    pub name: String,
    /// Its PeerId in the topology: only its key proves it.
    pub peer: PeerId,
    /// Whether the run does not use this link now: the neighbour is not a member, or the link is
    /// left out. Its connections are only noticed.
    pub unused: bool,
    /// Its addresses in the topology: connections from there have a place of their own.
    pub addresses: Vec<Multiaddr>,
    /// Whether its connections are refused.
    pub ban: Option<Ban>,
}
