//! What a host tells the thread that drives a node's core.

use super::wire::Word;
use crate::{
    config::ConfigError,
    gossip::{Cause, Input},
    units::NodeId,
};

/// In what two ends of a link differ.
#[derive(Clone, Debug)]
pub enum Difference {
    /// In their files: the place, the key and both values.
    Files(ConfigError),
    /// In their programs.
    Programs(String),
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Files(error) => error.fmt(f),
            Difference::Programs(text) => f.write_str(text),
        }
    }
}

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
    /// A link that was up broke. Before the run has begun it may come up again.
    Down {
        /// To this neighbour.
        peer: NodeId,
        /// Stage and cause.
        reason: String,
    },
    /// A neighbour left the run early and said why; its link is down.
    Left {
        /// The neighbour.
        peer: NodeId,
        /// What ended the run first.
        cause: Cause,
    },
    /// A neighbour has said how far its part of the network is with linking.
    Word {
        /// The neighbour.
        from: NodeId,
        /// What it said.
        word: Word,
    },
    /// The two ends are about to run different things.
    Differs {
        /// The neighbour.
        peer: NodeId,
        /// In what.
        difference: Difference,
    },
    /// A neighbour is done and sends nothing more.
    Goodbye(NodeId),
    /// A gradient that is computed beside the core, or a part of it, is ready.
    Computed(Input),
}
