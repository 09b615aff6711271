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
mod deployment;
mod documents;
mod driver;
mod host;
pub mod identity;
mod link;
mod neighbour;
mod ports;
mod probe;
mod relay;
mod runtime;
mod together;
mod transport;
mod upnp;

pub(crate) use alone::{Site, alone};
pub use ports::free_ports;
pub use relay::{Relay, RelayEvent, RelayFile};
pub(crate) use runtime::runtime_for;
pub use together::{together, together_in};

internals!(crate::cluster::{
    begin::reports::Report, event::{Difference, Event},
    statements::{Batch, Links, Said, Shared, Statement},
});

internals!({
    alone::Place,
    answers::Counterpart,
    deployment::{check_checkpoints, check_deployment},
    documents::{Answer, Answers, Desk, LONGEST_DOCUMENT, NoReply, ask, caller, of_seed},
    host::{Host, HostConfig},
    driver::status::Status,
    link::{
        hello::RunCard,
        limits::Deadlines,
        wire::{Hello, Message, Reason, Rival, Section, decode, encode},
    },
    neighbour::Neighbour,
    runtime::runtime,
    probe::{AtRelay, Examination, Examined, Measured, ProbeLimits, Reach, examine},
    transport::{
        layers::{Connecting, Proxy, security::has_aes},
        reach::socket_address,
    },
});

/// The version of the wire format of a link.
pub const VERSION: u32 = 21;

#[cfg(test)]
pub(crate) use self::link::liar::lies;
pub use libp2p::{Multiaddr, PeerId, identity::Keypair};
