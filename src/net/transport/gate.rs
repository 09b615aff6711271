//! Who may begin a handshake: limits on connections that have not said who they are.
//!
//! A connection that has spoken costs a slot until its handshake is over, and a handshake costs a
//! millisecond of a processor; one over TCP that is silent stays in the [lobby](super::lobby).
//! Nothing but the handshake shows whether a neighbour is at the other end: strangers may come from
//! a neighbour's own address, as behind one NAT. So places are not given to those who come first:
//!
//! * If all slots are taken, a new connection takes the place of one that is drawn by lot among
//!   those of the source with the most (an IPv4 address, or the first half of an IPv6 address). It
//!   takes part in the draw. A flood displaces itself; a neighbour that needs a few round trips for
//!   its proof keeps its slot long enough.
//! * If more connections come in a second than may begin, those that may are drawn by lot, too.
//! * The addresses of neighbours in the topology, and those from which one has connected before,
//!   share slots that strangers from elsewhere cannot take.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
use tokio::sync::oneshot;

use crate::net::link::session::random;

/// Open handshakes of known sources, and of all others, besides two per neighbour. As many
/// connections may wait in the lobby.
const SLOTS: usize = 128;

/// The time over which new connections of a source are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// New connections that may begin within [`WINDOW`]: of one source, and of all sources of a class.
/// All of them cost less than half of a processor.
const OF_SOURCE: usize = 300;
const OF_CLASS: usize = 400;

/// Connections that are refused before other tasks have their turn.
pub(crate) const AT_ONCE: usize = 64;

/// Where a connection comes from; `None` if its address has no IP address.
pub(crate) type Source = Option<IpAddr>;

/// A place for a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is a free one.
    Free,
    /// It takes that of the connection with this index.
    Of(usize),
    None,
}

/// Refuses connections before their handshake. Clones share it.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Mutex<Slots>>);

impl Gate {
    /// The gate of a host with so many neighbours.
    pub(crate) fn new(neighbours: usize) -> Gate {
        Gate(Arc::new(Mutex::new(Slots::new(neighbours))))
    }

    /// The same gate, which knows the sources of some neighbours beforehand.
    #[must_use]
    pub(crate) fn expecting<'a>(self, addresses: impl Iterator<Item = &'a Multiaddr>) -> Gate {
        self.lock().expect(addresses.filter_map(source));
        self
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a connection from this address a slot; `None` if it is refused.
    pub(crate) fn admit(&self, from: &Multiaddr) -> Option<Slot> {
        let (id, displaced) = self.lock().admit(source(from), Instant::now(), &mut draw)?;
        Some(Slot { id, displaced, gate: self.clone() })
    }

    /// A place for a connection from `new` beside those from these sources.
    pub(crate) fn room(&self, taken: impl Iterator<Item = Source> + Clone, new: Source) -> Room {
        self.lock().room(taken, new, &mut draw)
    }
}

/// A random number below this one.
fn draw(count: usize) -> usize {
    (random() % count as u64) as usize
}

/// Open handshakes, and how many connections have come.
struct Slots {
    open: BTreeMap<u64, Open>,
    /// The number of the next handshake.
    next: u64,
    /// Sources of neighbours.
    known: BTreeSet<IpAddr>,
    /// The most sources that are remembered.
    most_known: usize,
    /// The most open handshakes of known sources, and of all others.
    most_open: usize,
    arrivals: Arrivals,
}

/// A handshake. It ends when this is dropped.
struct Open {
    source: Source,
    _displaces: oneshot::Sender<Infallible>,
}

impl Slots {
    fn new(neighbours: usize) -> Slots {
        Slots {
            open: BTreeMap::new(),
            next: 0,
            known: BTreeSet::new(),
            most_known: 4 * neighbours,
            most_open: 2 * neighbours + SLOTS,
            arrivals: Arrivals::default(),
        }
    }

    fn expect(&mut self, sources: impl Iterator<Item = IpAddr>) {
        self.known.extend(sources);
        self.most_known += self.known.len();
    }

    fn learn(&mut self, source: Source) {
        if self.known.len() < self.most_known {
            self.known.extend(source);
        }
    }

    fn is_known(&self, source: Source) -> bool {
        source.is_some_and(|ip| self.known.contains(&ip))
    }

    /// A place beside those that are taken. If there is none, lots are drawn among the sources of
    /// this class that have the most.
    fn room(
        &self,
        taken: impl Iterator<Item = Source> + Clone,
        new: Source,
        draw: &mut dyn FnMut(usize) -> usize,
    ) -> Room {
        let is_known = self.is_known(new);
        let taken = taken.enumerate().filter(|(_, source)| self.is_known(*source) == is_known);
        let mut counts: BTreeMap<Source, usize> = BTreeMap::from([(new, 1)]);
        taken.clone().for_each(|(_, source)| *counts.entry(source).or_default() += 1);
        if counts.values().sum::<usize>() <= self.most_open {
            return Room::Free;
        }
        let most = counts.values().copied().max();
        let is_heavy = |source: Source| counts.get(&source).copied() == most;
        let heavy = taken.filter(|(_, source)| is_heavy(*source)).map(|(at, _)| Room::Of(at));
        // There is a lot, as some source has the most.
        let lots: Vec<Room> = heavy.chain(is_heavy(new).then_some(Room::None)).collect();
        lots[draw(lots.len())]
    }

    /// Gives a connection a slot: its number, and what ends when it is displaced. `draw` returns a
    /// random number below the one that it is given.
    fn admit(
        &mut self,
        source: Source,
        now: Instant,
        draw: &mut dyn FnMut(usize) -> usize,
    ) -> Option<(u64, oneshot::Receiver<Infallible>)> {
        let is_known = self.is_known(source);
        if !self.arrivals.admit(source, is_known, now, draw) {
            return None;
        }
        match self.room(self.open.values().map(|open| open.source), source, draw) {
            Room::Free => {}
            Room::Of(index) => {
                let id = self.open.keys().nth(index).copied();
                id.and_then(|id| self.open.remove(&id));
            }
            Room::None => return None,
        }
        let (displaces, displaced) = oneshot::channel();
        let id = self.next;
        self.next += 1;
        self.open.insert(id, Open { source, _displaces: displaces });
        Some((id, displaced))
    }
}

/// The connections that have come in this window and in the one before.
#[derive(Default)]
struct Arrivals {
    started: Option<Instant>,
    /// By source, and of these those that its own share lets begin: by class.
    sources: [BTreeMap<Source, usize>; 2],
    classes: [[usize; 2]; 2],
}

impl Arrivals {
    /// Counts a connection, and draws whether it may begin.
    fn admit(
        &mut self,
        source: Source,
        is_known: bool,
        now: Instant,
        draw: &mut dyn FnMut(usize) -> usize,
    ) -> bool {
        let since = now - *self.started.get_or_insert(now);
        if since > WINDOW {
            let is_next = since <= 2 * WINDOW;
            let (sources, classes) =
                (std::mem::take(&mut self.sources[1]), std::mem::take(&mut self.classes[1]));
            if is_next {
                (self.sources[0], self.classes[0]) = (sources, classes);
            } else {
                (self.sources[0], self.classes[0]) = Default::default();
            }
            self.started = Some(now);
        }
        let mut wins = |before: usize, now: &mut usize, most: usize| {
            *now += 1;
            let count = before.max(*now);
            count <= most || draw(count) < most
        };
        let before = self.sources[0].get(&source).copied().unwrap_or(0);
        let now = self.sources[1].entry(source).or_default();
        let class = usize::from(is_known);
        wins(before, now, OF_SOURCE)
            && wins(self.classes[0][class], &mut self.classes[1][class], OF_CLASS)
    }
}

/// The source of a connection.
pub(crate) fn source(address: &Multiaddr) -> Source {
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

/// The place of a handshake, until it is over.
pub(crate) struct Slot {
    id: u64,
    /// Ends when another handshake has the place.
    pub displaced: oneshot::Receiver<Infallible>,
    gate: Gate,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.gate.lock().open.remove(&self.id);
    }
}

/// Learns from which sources neighbours come: only their connections are established.
impl NetworkBehaviour for Gate {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = Infallible;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
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
        if let FromSwarm::ConnectionEstablished(established) = event {
            self.lock().learn(source(established.endpoint.get_remote_address()));
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

    fn ip(text: &str) -> Source {
        Some(text.parse().unwrap())
    }

    /// A source of lots, from a seed.
    fn lots(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed;
        move |count| {
            // SplitMix64 (Steele, Lea, Flood 2014).
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % count as u64) as usize
        }
    }

    /// In how many of 50 tries a neighbour keeps a slot for 200 ms, while a stranger at the same
    /// address holds all slots and makes so many connections a second.
    fn successes(a_second: u64) -> usize {
        let one = |seed: u64| {
            let (mut slots, mut draw, start) = (Slots::new(2), lots(seed), Instant::now());
            let mut held = Vec::new();
            let mut at = |millis: u64, slots: &mut Slots| {
                slots.admit(ip("127.0.0.1"), start + Duration::from_millis(millis), &mut draw)
            };
            let between = 1000 / a_second;
            for count in 0..2 * a_second {
                held.extend(at(count * between, &mut slots));
            }
            let Some((id, _displaced)) = at(2000, &mut slots) else { return false };
            for count in 1..=a_second / 5 {
                held.extend(at(2000 + count * between, &mut slots));
            }
            slots.open.contains_key(&id)
        };
        (0..50).filter(|seed| one(*seed)).count()
    }

    #[test]
    fn a_flood_from_a_neighbours_own_address_does_not_keep_it_out() {
        // No slot is ever free, as no stranger ends. First come, first served, it would be 0.
        let (few, many) = (successes(20), successes(1000));
        assert!(few > 40, "{few} of 50 at 20 connections a second");
        assert!(many > 2, "{many} of 50 at 1000 connections a second");
    }

    #[test]
    fn a_source_that_opens_connections_and_says_nothing_displaces_itself() {
        let (mut slots, mut draw, start) = (Slots::new(2), lots(1), Instant::now());
        let mut held = Vec::new();
        let mut from = |slots: &mut Slots, source, millis| {
            let now = start + Duration::from_millis(millis);
            let slot = slots.admit(source, now, &mut draw);
            let id = slot.as_ref().map(|(id, _)| *id);
            held.extend(slot);
            id
        };
        let one = from(&mut slots, ip("10.0.0.1"), 0).unwrap();
        for count in 0..2_000 {
            from(&mut slots, ip("10.0.0.9"), 100 * count);
        }
        assert!(slots.open.contains_key(&one), "another source keeps its slot");
        assert_eq!(slots.open.len(), 2 * 2 + SLOTS);
        // Many sources fill the slots of strangers, and not those of a neighbour's address.
        slots.expect([IpAddr::from([10, 0, 0, 2])].into_iter());
        let known = from(&mut slots, ip("10.0.0.2"), 400_000).unwrap();
        for other in 0..=255 {
            from(&mut slots, ip(&format!("10.1.0.{other}")), 400_000 + 100 * other);
        }
        assert!(slots.open.contains_key(&known) && slots.open.len() == 2 * 2 + SLOTS + 1);
    }

    #[test]
    fn connections_a_second_are_limited_and_drawn_by_lot() {
        let (mut arrivals, mut draw, start) = (Arrivals::default(), lots(3), Instant::now());
        let mut admitted = |second: u64, from: [u8; 4], count: usize| {
            let now = start + Duration::from_millis(1001 * second);
            let source = Some(IpAddr::from(from));
            (0..count).filter(|_| arrivals.admit(source, false, now, &mut draw)).count()
        };
        // 300, then the i-th with a probability of 300 / i: 300 (1 + ln 3.3) are 660. Of these 400
        // begin, then the i-th with a probability of 400 / i: 400 (1 + ln 1.65) are 600.
        let first = admitted(0, [10, 0, 0, 9], 1000);
        assert!((450..750).contains(&first), "{first}");
        let second = admitted(1, [10, 0, 0, 9], 1000);
        // 1000 0.3 0.6.
        assert!((120..250).contains(&second), "{second} of 1000");
        assert_eq!(admitted(9, [10, 0, 0, 9], 100), 100);
    }

    /// In how many of 20 tries a neighbour begins its handshake, while a stranger at its address
    /// makes 10,000 connections a second that say nothing. Its first bytes come when 20 more of
    /// these have come.
    fn begins(has_lobby: bool) -> usize {
        let source = ip("127.0.0.1");
        let one = |seed: u64| {
            let (mut slots, mut draw, start) = (Slots::new(2), lots(seed), Instant::now());
            let (neighbour, mut lobby) = (u64::MAX, Vec::new());
            for count in 0..3_000 {
                let new = if count == 2_979 { neighbour } else { count };
                let now = start + Duration::from_micros(100 * count);
                if !has_lobby {
                    let is_admitted = slots.admit(source, now, &mut draw).is_some();
                    lobby.extend(is_admitted.then_some(new));
                    continue;
                }
                match slots.room(lobby.iter().map(|_| source), source, &mut draw) {
                    Room::Free => lobby.push(new),
                    Room::Of(index) => lobby[index] = new,
                    Room::None => {}
                }
                assert!(lobby.len() <= 2 * 2 + SLOTS);
            }
            let now = start + Duration::from_millis(300);
            let is_there = lobby.contains(&neighbour);
            is_there && (!has_lobby || slots.admit(source, now, &mut draw).is_some())
        };
        (0..20).filter(|seed| one(*seed)).count()
    }

    #[test]
    fn connections_that_say_nothing_take_no_part_in_the_draw_of_those_that_begin() {
        let (with, without) = (begins(true), begins(false));
        assert!(with > 12, "{with} of 20");
        assert!(without < 6, "{without} of 20: the lobby would be of no use");
    }

    #[test]
    fn an_ipv6_network_is_one_source() {
        let of = |text: &str| source(&text.parse().unwrap());
        assert_eq!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8::ffff:2/tcp/2"));
        assert_ne!(of("/ip6/2001:db8::1/tcp/1"), of("/ip6/2001:db8:1::1/tcp/1"));
        assert_eq!(of("/ip6/::ffff:10.0.0.1/tcp/1"), ip("10.0.0.1"));
    }
}
