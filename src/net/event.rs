//! What a host tells the thread that drives a node's core.

use crate::{gossip::Input, job::RunError, units::NodeId};

/// Something happened.
#[derive(Debug)]
pub enum Event {
    /// A link is up: hellos agree, streams are open.
    Up(NodeId),
    /// A whole frame, as it was sent; checksums are the core's business.
    Frame {
        /// From this neighbour.
        from: NodeId,
        /// Header and payload; to be given back by [`super::Host::recycle`].
        bytes: Vec<u8>,
    },
    /// The oldest frame handed to this link is written: its slot is free.
    Taken(NodeId),
    /// A link that was up broke.
    Down {
        /// To this neighbour.
        peer: NodeId,
        /// Stage and cause.
        reason: String,
    },
    /// A neighbour is done and sends nothing more.
    Goodbye(NodeId),
    /// The run cannot begin.
    Fatal(RunError),
    /// A gradient that is computed beside the core, or a part of it, is ready.
    Computed(Input),
}
