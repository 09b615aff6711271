//! Drives the core over libp2p.
//!
//! ```text
//!   thread of the core                 tokio                                   neighbour
//!   worker --- frames, at most 2 --->  link: writer ---- bulk stream ------->
//!          <-- frame, at most 1 -----  link: reader <--- bulk stream --------
//!                                      link: control <-> control stream <--->  hello, heartbeats, acknowledgements, goodbye
//!                                      host: swarm (TCP + TLS or Noise + Yamux, or QUIC), dials, refuses strangers
//! ```
//! The core runs on a thread of its own and never waits for a socket; readers, writers and the
//! swarm are tasks. [`together`] runs all nodes in this process, each a host of its own on
//! loopback; `alone` runs one node of a network of machines, which may ask its router for ports
//! (`upnp`); a [`Relay`] carries links between nodes without a public address.

mod alone;
mod answers;
mod assemble;
mod assembly;
mod attempts;
mod ban;
mod clock;
mod coalesce;
mod companion;
mod confirm;
mod connection;
mod dial;
mod driver;
mod event;
#[cfg(test)]
mod faults;
mod gate;
mod gathering;
mod goodbyes;
mod handshake;
mod hello;
mod host;
pub mod identity;
mod limits;
mod link;
mod links;
mod messages;
mod node_state;
mod peers;
mod ports;
mod probe;
mod reach;
mod refusals;
mod relay;
mod reservations;
mod restore;
mod saver;
mod security;
mod session;
mod sockets;
mod start;
mod status;
mod streams;
mod swarm;
mod together;
mod transport;
mod upnp;
mod wire;
mod worker;

pub use alone::Place;
pub(crate) use alone::alone;
pub use answers::Counterpart;
pub use event::{Difference, Event};
pub use hello::RunCard;
pub use host::{Host, HostConfig, Neighbour};
pub use limits::Deadlines;
pub use ports::free_ports;
pub use probe::{AtRelay, Examination, Examined, Measured, ProbeLimits, Reach, examine};
pub use reach::socket_address;
pub use relay::{Relay, RelayEvent, RelayFile};
pub use security::has_aes;
pub use status::Status;
pub use together::{together, together_in};
pub use wire::{Hello, Message, Reason, Section, StartMessage, decode, encode};

/// The version of the wire format of a link.
pub const VERSION: u32 = 11;

pub use libp2p::{Multiaddr, PeerId, identity::Keypair};

use crate::drive::RunError;

/// A runtime for hosts: one thread per processor.
///
/// # Errors
/// If the system cannot start threads.
pub fn runtime() -> Result<tokio::runtime::Runtime, RunError> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("gradvine-net")
        .build()
        .map_err(|error| {
            RunError::Network(format!("the network's threads could not be started: {error}"))
        })
}
