//! Who may begin a handshake: limits on connections that have not said who they are.
//!
//! An accepted connection costs a slot until its handshake is over, and a handshake costs a
//! millisecond of a processor. Without limits per source, one machine that opens connections and
//! sends nothing could keep all neighbours out. So each source (an IPv4 address, or the first half
//! of an IPv6 address) has a limited number of open handshakes and of new connections a second; and
//! the addresses of neighbours in the topology, and those from which one has connected before, do
//! not share the slots of the others.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    convert::Infallible,
    net::{IpAddr, Ipv6Addr},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    multiaddr::Protocol,
    swarm::{
        ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent,
        THandlerOutEvent, ToSwarm, dummy,
    },
};

/// Handshakes of unknown sources that may be open together, besides two per neighbour.
const STRANGERS: usize = 64;

/// The time over which new connections of a source are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// The behaviour that refuses connections before their handshake.
pub(super) struct Gate {
    /// Open handshakes.
    pending: HashMap<ConnectionId, Option<IpAddr>>,
    /// Sources of neighbours.
    known: BTreeSet<IpAddr>,
    /// New connections of each source since the window began.
    recent: BTreeMap<Option<IpAddr>, usize>,
    begun: Instant,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Open handshakes of one source. Several neighbours may be on one machine.
    per_source: usize,
    /// Open handshakes of all sources that are not known.
    strangers: usize,
    /// New connections of one source within [`WINDOW`].
    per_window: usize,
    /// Sources that are remembered.
    known: usize,
}

impl Gate {
    /// The gate of a host with so many neighbours.
    pub fn new(neighbours: usize) -> Gate {
        Gate {
            pending: HashMap::new(),
            known: BTreeSet::new(),
            recent: BTreeMap::new(),
            begun: Instant::now(),
            limits: Limits {
                per_source: neighbours + 4,
                strangers: 2 * neighbours + STRANGERS,
                per_window: 2 * neighbours + 16,
                known: 4 * neighbours,
            },
        }
    }

    /// The same gate, which knows the sources of some neighbours beforehand.
    #[must_use]
    pub fn expecting<'a>(mut self, addresses: impl Iterator<Item = &'a Multiaddr>) -> Gate {
        self.known.extend(addresses.filter_map(source));
        self.limits.known += self.known.len();
        self
    }

    /// Lets a connection begin its handshake, or says why not.
    fn admit(
        &mut self,
        id: ConnectionId,
        source: Option<IpAddr>,
        now: Instant,
    ) -> Result<(), Full> {
        if now - self.begun > WINDOW {
            self.recent.clear();
            self.begun = now;
        }
        let recent = self.recent.entry(source).or_default();
        *recent += 1;
        if *recent > self.limits.per_window {
            return Err(Full("too many connections a second from this address"));
        }
        let same = self.pending.values().filter(|other| **other == source).count();
        if same >= self.limits.per_source {
            return Err(Full("too many open handshakes from this address"));
        }
        let is_known = |source: &Option<IpAddr>| source.is_some_and(|ip| self.known.contains(&ip));
        let strangers = self.pending.values().filter(|other| !is_known(other)).count();
        if !is_known(&source) && strangers >= self.limits.strangers {
            return Err(Full("too many open handshakes"));
        }
        self.pending.insert(id, source);
        Ok(())
    }
}

/// Why a connection was refused before its handshake.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("{0}")]
struct Full(&'static str);

/// The source of a connection; `None` if the address has no IP address.
fn source(address: &Multiaddr) -> Option<IpAddr> {
    address.iter().find_map(|part| match part {
        Protocol::Ip4(ip) => Some(IpAddr::V4(ip)),
        Protocol::Ip6(ip) => Some(match ip.to_ipv4_mapped() {
            Some(ip) => IpAddr::V4(ip),
            // One machine may have all addresses of a network.
            None => IpAddr::V6(Ipv6Addr::from(u128::from(ip) >> 64 << 64)),
        }),
        _ => None,
    })
}

impl NetworkBehaviour for Gate {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_pending_inbound_connection(
        &mut self,
        id: ConnectionId,
        _: &Multiaddr,
        from: &Multiaddr,
    ) -> Result<(), ConnectionDenied> {
        self.admit(id, source(from), Instant::now()).map_err(ConnectionDenied::new)
    }

    fn handle_established_inbound_connection(
        &mut self,
        id: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        self.pending.remove(&id);
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, event: FromSwarm<'_>) {
        match event {
            // Only neighbours' connections are established.
            FromSwarm::ConnectionEstablished(established) => {
                self.pending.remove(&established.connection_id);
                let from = source(established.endpoint.get_remote_address());
                if self.known.len() < self.limits.known {
                    self.known.extend(from);
                }
            }
            FromSwarm::ListenFailure(failure) => {
                self.pending.remove(&failure.connection_id);
            }
            _ => {}
        }
    }

    fn on_connection_handler_event(
        &mut self,
        _: PeerId,
        _: ConnectionId,
        event: THandlerOutEvent<Self>,
    ) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// How many of `count` connections of a source may begin, one every 100 ms.
    fn admitted(gate: &mut Gate, from: Option<IpAddr>, first: usize, count: usize) -> usize {
        let start = Instant::now();
        let admit = |i: &usize| {
            let now = start + Duration::from_millis(100 * *i as u64);
            gate.admit(ConnectionId::new_unchecked(first + i), from, now).is_ok()
        };
        (0..count).filter(admit).count()
    }

    #[test]
    fn a_source_that_opens_connections_and_says_nothing_keeps_nobody_out() {
        let mut gate = Gate::new(2);
        assert_eq!(admitted(&mut gate, ip("10.0.0.9"), 0, 100), 6);
        assert_eq!(admitted(&mut gate, ip("10.0.0.1"), 100, 1), 1);
        // Many sources fill the slots of strangers, and not those of a neighbour's address.
        for other in 0..200 {
            let from = ip(&format!("10.1.0.{other}"));
            admitted(&mut gate, from, 1000 + 10 * other, 5);
        }
        assert_eq!(gate.pending.len(), 2 * 2 + STRANGERS);
        assert_eq!(admitted(&mut gate, ip("10.0.0.2"), 5000, 1), 0);
        let mut gate = gate.expecting([&"/ip4/10.0.0.2/tcp/1".parse().unwrap()].into_iter());
        assert_eq!(admitted(&mut gate, ip("10.0.0.2"), 6000, 1), 1);
    }

    #[test]
    fn connections_a_second_are_limited_by_source() {
        let mut gate = Gate::new(1);
        let now = Instant::now();
        let mut admit = |i: usize, now: Instant| {
            let admitted = gate.admit(ConnectionId::new_unchecked(i), ip("10.0.0.9"), now).is_ok();
            gate.pending.clear();
            admitted
        };
        assert_eq!((0..1000).filter(|i| admit(*i, now)).count(), 18);
        assert!(admit(2000, now + 2 * WINDOW));
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let of = |text: &str| source(&text.parse().unwrap());
        assert_eq!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8::ffff:2/tcp/2"));
        assert_ne!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8:1::1/tcp/1"));
        assert_eq!(of("/ip6/::ffff:10.0.0.1/tcp/1"), ip("10.0.0.1"));
    }
}
