//! How connections are made and admitted, and which end dials.
//!
//! ```text
//! a connection that comes   sockets -> lobby -> gate -> layers -> swarm -> the peer's link
//! one that goes             dial: which neighbour, when -> dialled: which addresses -> layers
//! ```
//! `layers` puts those of libp2p together: TCP, a proxy, encryption, streams. A link gets
//! connections, one at a time, and knows nothing of how they were made.

pub(crate) mod dial;
pub(crate) mod dialled;
pub(crate) mod gate;
pub(crate) mod guard;
pub(crate) mod layers;
mod lobby;
pub(crate) mod peers;
pub(crate) mod reach;
pub(crate) mod refusals;
pub(crate) mod sites;
pub(crate) mod sockets;
pub(crate) mod swarm;

/// What listening or dialling returns.
type Tried<T> = Result<T, libp2p::TransportError<std::io::Error>>;
