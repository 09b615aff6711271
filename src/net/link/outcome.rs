//! What a handshake leads to: the streams of a link, or a refusal.

use libp2p::Stream;

use super::wire::Rival;
use crate::cluster::{event::Difference, message::Origin};

/// The streams of a link that is up.
pub(crate) struct Streams {
    pub control: Stream,
    pub outgoing: Stream,
    pub incoming: Stream,
    pub arithmetic: bool,
    /// The neighbour's program: in this attempt, and over all of them.
    pub incarnation: u64,
    /// Which node was the first to go back to a checkpoint, as it says.
    pub because: Option<Origin>,
    pub program: u64,
    /// The neighbour's frames of ours, and its bytes of the next one.
    pub received: (u64, u64),
}

/// Why a handshake leads to no link.
pub(crate) enum Refusal {
    /// The two ends would run different things.
    Differs(Difference),
    /// Another attempt may succeed.
    Trouble(String),
    /// The neighbour refuses this node for a while, for this reason.
    Banned(String),
    /// The two ends take part in different memberships; which node was the first to go back, or to
    /// choose, as the neighbour says.
    OtherMembership(Option<Origin>),
    /// The other end examines the link and runs no node: the connection is left to it.
    Probe,
    /// Another program runs with this node's key, and stays in its place, as the neighbour says.
    Rival(Rival),
}
