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
#[cfg(test)]
mod faults;
mod host;
pub mod identity;
mod life;
mod link;
mod neighbour;
mod ports;
mod probe;
mod relay;
mod together;
mod transport;
mod upnp;

pub use alone::Place;
pub(crate) use alone::alone;
pub use answers::Counterpart;
pub use deployment::{check_checkpoints, check_deployment};
pub use host::{Host, HostConfig};
pub use life::{
    event::{Difference, Event},
    limits::Deadlines,
    rounds::status::Status,
};
pub use link::{
    hello::RunCard,
    wire::{Hello, Message, Reason, Section, StartMessage, decode, encode},
};
pub use neighbour::Neighbour;
pub use ports::free_ports;
pub use probe::{AtRelay, Examination, Examined, Measured, ProbeLimits, Reach, examine};
pub use relay::{Relay, RelayEvent, RelayFile};
pub use together::{together, together_in};
pub use transport::{reach::socket_address, security::has_aes};

/// The version of the wire format of a link.
pub const VERSION: u32 = 12;

pub use libp2p::{Multiaddr, PeerId, identity::Keypair};

use crate::{drive::RunError, memory, threads};

/// Address space for the network and for each of its nodes, in bytes, beside that of threads.
const SPACE: u64 = 32 << 20;
const SPACE_OF_NODE: u64 = 4 << 20;

/// A node's own threads: its core, its learner, the writer of checkpoints.
const THREADS_OF_NODE: usize = 3;

/// A runtime for hosts: one thread per processor.
///
/// # Errors
/// If the system cannot start threads.
pub fn runtime() -> Result<tokio::runtime::Runtime, RunError> {
    runtime_for(1)
}

/// The same for so many nodes of this process, whose own threads are possible, too.
pub(crate) fn runtime_for(nodes: usize) -> Result<tokio::runtime::Runtime, RunError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Two more belong to the command, and to what resolves names.
    let count = processors + 3 + THREADS_OF_NODE * nodes;
    let need = SPACE + nodes as u64 * SPACE_OF_NODE + threads::address_space(count, processors);
    let what = format!("a network with {nodes} of its nodes here, in {count} threads,");
    let heaps = ", or set MALLOC_ARENA_MAX=2 in the environment";
    memory::require_address_space(need, &what, heaps).map_err(RunError::Setup)?;
    let wrong = |error: std::io::Error| {
        RunError::Host(format!("the network's threads cannot be started: {error}"))
    };
    // Otherwise the runtime, and the timers of libp2p, panic if the system refuses one.
    threads::check(count).map_err(wrong)?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors)
        .enable_all()
        .thread_name("gradvine-net")
        .build()
        .map_err(wrong)
}
