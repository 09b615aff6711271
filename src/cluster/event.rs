//! The events that links and the learner report.

use std::time::Duration;

use litemap::LiteMap;

use super::{members::assembly::News, message::Origin, statements::Batch};
use crate::{
    config::ConfigError,
    drive::RunError,
    gossip::{Cause, Input},
    units::NodeId,
};

/// How the two ends of a link differ.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Difference {
    /// In their files: the place, the key and both values.
    Files(ConfigError),
    /// In their programs, for example their versions.
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

/// Reports a node that differs from all its neighbours: its own files may be the wrong ones, so the
/// user must compare.
pub(crate) fn refusal(differences: &LiteMap<NodeId, Difference>) -> RunError {
    let files = differences.values().find_map(|difference| match difference {
        Difference::Files(error) => Some(RunError::Setup(error.clone())),
        Difference::Programs(_) => None,
    });
    let texts = || differences.values().map(Difference::to_string).collect::<Vec<_>>().join("; ");
    files.unwrap_or_else(|| RunError::Network(texts()))
}

/// An event from the network or from the learner.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A link is up: the hellos agree and the streams are open.
    Up(NodeId),
    /// A whole frame, as it was sent; the core checks its checksum.
    Frame {
        /// The neighbour that sent it.
        from: NodeId,
        /// Header and payload; return the buffer by [`crate::net::Host::recycle`].
        bytes: Vec<u8>,
    },
    /// A piece of a long frame.
    Piece {
        /// The neighbour that sent it.
        from: NodeId,
        /// The length of the frame.
        length: usize,
        /// The next bytes of it; return the buffer by [`crate::net::Host::recycle`].
        bytes: Vec<u8>,
    },
    /// The oldest frame queued on this link was written: its slot is free.
    Taken(NodeId),
    /// A connection broke; the link may return.
    Lost {
        /// The neighbour at its other end.
        peer: NodeId,
        /// Where it broke and why, for people.
        reason: String,
    },
    /// A link that was lost during the run is up again.
    Back {
        /// The neighbour at its other end.
        peer: NodeId,
        /// How long it was lost.
        absent: Duration,
        /// The frames that are sent again.
        resent: u64,
    },
    /// The neighbour's program was started again: its frames are forgotten.
    Restarted {
        /// The neighbour whose program it is.
        peer: NodeId,
        /// Which node was the first to go back, as it says; `None` if it says nothing.
        because: Option<Origin>,
    },
    /// A link has ended before the run did.
    Down {
        /// The neighbour at its other end.
        peer: NodeId,
        /// Where it ended and why, for people.
        reason: String,
    },
    /// A neighbour left the run early and gave its reason; its link is down.
    Left {
        /// The neighbour that has left.
        peer: NodeId,
        /// The first failure of the run.
        cause: Cause,
    },
    /// A neighbour says what it knows, while members are chosen.
    Chooses {
        /// The neighbour.
        from: NodeId,
        /// What it knows.
        news: News,
    },
    /// The two ends would run different things.
    Differs {
        /// The neighbour at the other end.
        peer: NodeId,
        /// The first difference that was found.
        difference: Difference,
    },
    /// A neighbour is there, but takes part in another membership, or in the choice of one; or its
    /// link is one that this membership does not use.
    OtherMembership {
        /// The neighbour at the other end.
        peer: NodeId,
        /// Which node was the first to go back or to choose, as it says; `None` if it says nothing.
        because: Option<Origin>,
    },
    /// A neighbour refuses this program: another one with the same key was started before it, and
    /// has signed that it runs.
    Rival {
        /// The neighbour that refuses this program.
        peer: NodeId,
        /// Where the other one is.
        text: String,
    },
    /// A neighbour passes on what nodes say.
    Told {
        /// The neighbour that passes it on.
        from: NodeId,
        /// What was news for it.
        batch: Batch,
    },
    /// A neighbour has finished and sends nothing more.
    Goodbye(NodeId),
    /// This node's checkpoint after so many rounds is durable.
    Durable(u64),
    /// A gradient computed on another thread, or a part of it, is ready.
    Computed(Input),
}
