//! How connections are made and admitted, and which end dials.
//!
//! ```text
//! a connection that comes   sockets -> lobby -> gate -> security -> swarm -> the peer's link
//! one that goes             dial: which neighbour, when -> dialled: which addresses -> swarm
//! ```
//! `connections` puts the layers of libp2p together. A link gets connections, one at a time, and
//! knows nothing of how they were made.

mod coalesce;
pub(crate) mod connections;
pub(crate) mod dial;
pub(crate) mod dialled;
pub(crate) mod gate;
pub(crate) mod guard;
mod lobby;
mod names;
pub(crate) mod peers;
pub(crate) mod proxy;
pub(crate) mod reach;
pub(crate) mod refusals;
pub(crate) mod security;
pub(crate) mod sites;
pub(crate) mod sockets;
pub(crate) mod swarm;

/// What listening or dialling returns.
type Tried<T> = Result<T, libp2p::TransportError<std::io::Error>>;
