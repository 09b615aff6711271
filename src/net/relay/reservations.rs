//! The places of this node at relays, where neighbours reach it if they cannot reach it directly.
//!
//! An address of this node in the topology that ends in `/p2p-circuit` names a relay. The node
//! reserves a place there and keeps it: libp2p renews it while the connection lasts, and this
//! module reserves again after one that broke.

use std::time::{Duration, Instant};

use libp2p::{Multiaddr, PeerId, core::transport::ListenerId, multiaddr::Protocol};

/// The pause before a place is reserved again: after the first failure, the second, and so on.
const PAUSE: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// Whether an address leads through a relay.
pub(crate) fn is_relayed(address: &Multiaddr) -> bool {
    address.iter().any(|part| part == Protocol::P2pCircuit)
}

/// The relay of an address: the PeerId before `/p2p-circuit`.
pub(crate) fn relay_of(address: &Multiaddr) -> Option<PeerId> {
    let mut last = None;
    for part in address {
        match part {
            Protocol::P2p(peer) => last = Some(peer),
            Protocol::P2pCircuit => return last,
            _ => {}
        }
    }
    None
}

/// A place at one relay.
#[derive(Debug)]
pub(crate) struct Reservation {
    /// The relay's address, with `/p2p-circuit`.
    pub address: Multiaddr,
    /// The listener, while a place is reserved or asked for.
    listener: Option<ListenerId>,
    /// Whether it is reserved, or why not.
    state: Result<(), String>,
    failures: usize,
    due: Instant,
}

/// All places of a node.
#[derive(Debug, Default)]
pub(crate) struct Reservations(Vec<Reservation>);

impl Reservations {
    /// Places at the relays of these addresses, which are due at once.
    pub(crate) fn new(addresses: &[Multiaddr]) -> Reservations {
        let one = |address: &Multiaddr| Reservation {
            // A topology may name the node itself after the relay.
            address: address.iter().take_while(|part| *part != Protocol::P2pCircuit).collect(),
            listener: None,
            state: Err("the relay has not answered yet".into()),
            failures: 0,
            due: Instant::now(),
        };
        let circuit = |mut place: Reservation| {
            place.address.push(Protocol::P2pCircuit);
            place
        };
        let relayed = addresses.iter().filter(|address| is_relayed(address));
        Reservations(relayed.map(one).map(circuit).collect())
    }

    /// Whether there is a place that is not reserved.
    pub(crate) fn lacks_one(&self) -> bool {
        self.0.iter().any(|place| place.listener.is_none())
    }

    /// Each relay's address, and whether a place is reserved there or why not.
    pub(crate) fn states(&self) -> Vec<(Multiaddr, Result<(), String>)> {
        self.0.iter().map(|place| (place.address.clone(), place.state.clone())).collect()
    }

    /// Reserves places that are due; `listen` asks the swarm.
    pub(crate) fn reserve_due(
        &mut self,
        mut listen: impl FnMut(Multiaddr) -> Result<ListenerId, String>,
    ) {
        let now = Instant::now();
        for place in &mut self.0 {
            if place.listener.is_some() || place.due > now {
                continue;
            }
            match listen(place.address.clone()) {
                Ok(id) => place.listener = Some(id),
                Err(reason) => place.fail(&reason),
            }
        }
    }

    /// Whether a listener is one of a place.
    pub(crate) fn has(&self, id: ListenerId) -> bool {
        self.0.iter().any(|place| place.listener == Some(id))
    }

    /// A listener has an address: its place is reserved. Others are ignored.
    pub(crate) fn reserved(&mut self, id: ListenerId) {
        if let Some(place) = self.0.iter_mut().find(|place| place.listener == Some(id)) {
            if place.state.is_ok() {
                // The relay has several addresses.
                return;
            }
            (place.failures, place.state) = (0, Ok(()));
            tracing::info!("neighbours reach this node through the relay at {}", place.address);
        }
    }

    /// A listener has closed; others than those of places are ignored.
    pub(crate) fn closed(&mut self, id: ListenerId, reason: &str) {
        if let Some(place) = self.0.iter_mut().find(|place| place.listener == Some(id)) {
            place.fail(reason);
        }
    }
}

impl Reservation {
    fn fail(&mut self, reason: &str) {
        (self.listener, self.state) = (None, Err(reason.to_string()));
        self.due = Instant::now() + PAUSE[self.failures.min(PAUSE.len() - 1)];
        // One line for a relay that stays away, not one for each attempt.
        if self.failures == 0 {
            tracing::warn!(
                "no place at the relay {}: {reason}; this node keeps trying",
                self.address
            );
        }
        self.failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELAY: &str = "/ip4/203.0.113.9/tcp/4100/p2p/\
                         12D3KooWEyoppNCUx8Yx66oV9fJnriXwCcXwDDUA2kj6vnc6iDEp/p2p-circuit";

    #[test]
    fn relays_are_found_in_addresses() {
        let relayed: Multiaddr = RELAY.parse().unwrap();
        let direct: Multiaddr = "/ip4/203.0.113.9/tcp/4100".parse().unwrap();
        assert!(is_relayed(&relayed) && !is_relayed(&direct));
        assert_eq!(relay_of(&direct), None);
        assert!(RELAY.contains(&relay_of(&relayed).unwrap().to_string()));
    }

    #[test]
    fn a_place_that_is_lost_is_reserved_again() {
        let addresses: Vec<Multiaddr> =
            vec![RELAY.parse().unwrap(), "/ip4/203.0.113.9/tcp/4100".parse().unwrap()];
        let mut places = Reservations::new(&addresses);
        let (mut asked, mut id) = (Vec::new(), ListenerId::next());
        let mut reserve = |places: &mut Reservations, id: ListenerId| {
            places.reserve_due(|address| {
                asked.push(address.to_string());
                Ok(id)
            });
            asked.len()
        };
        assert_eq!(reserve(&mut places, id), 1);
        assert!(!places.lacks_one());
        places.closed(ListenerId::next(), "another");
        assert!(!places.lacks_one());
        places.closed(id, "the relay is gone");
        assert!(places.lacks_one());
        assert_eq!(reserve(&mut places, id), 1, "not at once");
        std::thread::sleep(PAUSE[0]);
        id = ListenerId::next();
        assert_eq!(reserve(&mut places, id), 2);
        assert_eq!(asked, [RELAY, RELAY]);
    }
}
