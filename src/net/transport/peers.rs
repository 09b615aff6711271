//! The neighbours of a host, as the swarm's task sees them: one connection each, and which of two
//! counts.

use std::time::{Duration, Instant};

use libp2p::{PeerId, swarm::ConnectionId};
use tokio::sync::mpsc;

use super::dial::Dial;
use crate::net::{driver::status::Status, link::programs::Programs, neighbour::Neighbour};

/// Why a link is closed whose neighbour has connected again.
pub(crate) const CONNECTED_AGAIN: &str = "the neighbour has connected again";

/// How far apart two direct connections may open that cross each other.
const CROSSED: Duration = Duration::from_secs(10);

/// The events that the swarm sends to a link.
#[derive(Debug)]
pub(crate) enum Connection {
    Established {
        id: ConnectionId,
        /// Whether this end dialled it.
        dialled: bool,
        /// The address of the other end.
        address: String,
    },
    Closed {
        id: ConnectionId,
        cause: String,
    },
}

/// One neighbour, in the swarm's task.
pub(crate) struct Peer {
    pub neighbour: Neighbour,
    pub connection: mpsc::UnboundedSender<Connection>,
    pub connected: Option<ConnectionId>,
    /// Whether its connection leads through a relay.
    pub relayed: bool,
    /// Whether this end dialled its connection, and when it opened.
    pub opened: (bool, Instant),
    /// A connection through a relay that may carry no frames.
    pub idle: Option<ConnectionId>,
    /// A new connection, which the link gets when the old one is closed: libp2p opens streams on
    /// any connection of a peer.
    pub held: Option<Held>,
    /// A connection of another program with its key, which is told so until then.
    pub extra: Option<(ConnectionId, Instant)>,
    /// The programs that have its key.
    pub programs: Programs,
    pub dial: Option<Dial>,
}

/// A new connection that waits for an old one to be closed.
pub(crate) struct Held {
    pub old: ConnectionId,
    pub id: ConnectionId,
    pub dialled: bool,
    pub address: String,
    pub until: Instant,
}

impl Peer {
    /// A neighbour without a connection, of this node.
    pub(crate) fn new(
        own: PeerId,
        neighbour: Neighbour,
        connection: mpsc::UnboundedSender<Connection>,
    ) -> Peer {
        let programs = Programs::of(own, neighbour.peer);
        Peer {
            neighbour,
            connection,
            connected: None,
            relayed: false,
            opened: (false, Instant::now()),
            idle: None,
            held: None,
            extra: None,
            programs,
            dial: None,
        }
    }

    /// Whether a connection to it is needed.
    pub(crate) fn is_wanted(&self) -> bool {
        self.connected.is_none() && !self.connection.is_closed()
    }

    /// Whether a new direct connection crosses another that the other end dialled, as both ends
    /// may in hole punching. They keep the one that the lower PeerId dialled.
    pub(crate) fn is_crossed(&self, dialled: bool) -> bool {
        let (other, since) = self.opened;
        self.connected.is_some() && !self.relayed && other != dialled && since.elapsed() < CROSSED
    }

    /// Whether it has a relayed connection, and an address at which a direct one may be had.
    pub(crate) fn wants_direct(&self) -> bool {
        let relayed = self.idle.is_some() || (self.connected.is_some() && self.relayed);
        relayed && !self.connection.is_closed() && self.dial.as_ref().is_some_and(Dial::is_direct)
    }

    /// Whether this end dials it now or later.
    pub(crate) fn is_dialled(&self) -> bool {
        let dials = self.dial.as_ref().is_some_and(|dial| !dial.addresses.is_empty());
        dials && self.is_wanted() && self.idle.is_none() || self.wants_direct()
    }

    /// Gives the link its new connection if the old one is closed or should have been.
    pub(crate) fn release(&mut self, closed: Option<ConnectionId>) {
        let now = Instant::now();
        let is_due = |held: &mut Held| closed == Some(held.old) || now >= held.until;
        if let Some(Held { id, dialled, address, .. }) = self.held.take_if(is_due) {
            let _ = self.connection.send(Connection::Established { id, dialled, address });
        }
    }

    pub(crate) fn disconnected(&mut self, status: &Status) {
        (self.connected, self.held) = (None, None);
        if let Some(dial) = &mut self.dial {
            dial.closed(status.how_far(self.neighbour.node));
        }
    }
}
