//! Dialling: which neighbours, at which addresses, when again, and the message when it fails.

use std::{
    error::Error,
    io,
    time::{Duration, Instant},
};

use libp2p::{
    Multiaddr, PeerId, TransportError,
    swarm::{ConnectionId, DialError},
};

use super::dialled::{Dialled, is_private};
use crate::{
    config::ConfigError,
    net::{
        link::session::random,
        neighbour::Neighbour,
        relay::reservations::{is_relayed, relay_of},
    },
    units::NodeId,
};

/// The pause after all addresses of a neighbour were tried: the first time, the second, and so on;
/// a quarter more or less. The first ones are short: programs that are started together listen one
/// after the other.
const PAUSE: [Duration; 7] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// The pauses of half a second, and of one.
const HALF_A_SECOND: usize = 3;
const A_SECOND: usize = 4;

/// The pause between attempts at a direct connection, while there is a relayed one.
const DIRECT_AGAIN: Duration = Duration::from_secs(30);

/// How long hole punching may take before the addresses are tried that the neighbour names.
const FIRST_DIRECT: Duration = Duration::from_secs(2);

/// How long a node waits for a neighbour whose part it is to dial before it dials itself.
const INSTEAD: Duration = Duration::from_secs(15);

/// The most addresses of a neighbour that are tried beside those of the topology.
const MOST: usize = 8;

/// A connection that has lasted for so long was no failed attempt.
const LASTED: Duration = Duration::from_secs(3);

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The link did not come up.
    Nothing,
    /// The other node runs, but takes part in another membership or in the choice of one.
    OtherMembership,
    Linked,
}

/// How a node can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reachable {
    No,
    Relayed,
    /// At an address of its own, which is one of a private network: others may not reach it.
    Privately,
    /// At an address of its own.
    Directly,
}

impl Reachable {
    /// How a node with these addresses can be reached.
    pub(crate) fn at(addresses: &[Multiaddr]) -> Reachable {
        let of = |address: &Multiaddr| match address {
            relayed if is_relayed(relayed) => Reachable::Relayed,
            private if is_private(private) => Reachable::Privately,
            _ => Reachable::Directly,
        };
        addresses.iter().map(of).max().unwrap_or(Reachable::No)
    }
}

/// Whether this end dials: the other end must be the one that is easier to reach. If both are
/// alike, the lower PeerId dials.
pub(crate) fn dials(me: &PeerId, mine: Reachable, peer: &PeerId, theirs: Reachable) -> bool {
    mine < theirs || (mine == theirs && theirs != Reachable::No && me < peer)
}

/// Parses the PeerId that a topology gives a node.
///
/// # Errors
/// If there is none, or it is not a PeerId.
pub(crate) fn peer_of(
    topology: &crate::mixing::Topology,
    node: NodeId,
) -> Result<PeerId, ConfigError> {
    let info = topology.node(node);
    let place = format!("node {}: peer", info.name);
    match &info.peer {
        None => Err(ConfigError::at(
            place,
            "a deployment's topology gives every node its PeerId (`gradvine identity show KEY` \
             prints it)",
        )),
        Some(text) => text.parse().map_err(|error| {
            ConfigError::new(place, text, format!("this is not a PeerId: {error}"))
        }),
    }
}

/// Parses a multiaddress.
///
/// # Errors
/// If it is not one, or its transport is neither TCP nor QUIC.
pub(crate) fn address(place: &str, text: &str) -> Result<Multiaddr, ConfigError> {
    const EXAMPLES: &str =
        "expected one such as /ip4/203.0.113.7/tcp/4001, /dns4/london.example.org/udp/4001/quic-v1";
    let address: Multiaddr = text.parse().map_err(|error| {
        ConfigError::new(place, text, format!("this is not a multiaddress ({error}); {EXAMPLES}"))
    })?;
    if is_relayed(&address) && relay_of(&address).is_none() {
        const RELAYED: &str = "the relay's PeerId is missing; expected one such as \
                               /ip4/203.0.113.7/tcp/4100/p2p/PEERID/p2p-circuit, as `gradvine \
                               relay` prints it";
        return Err(ConfigError::new(place, text, RELAYED));
    }
    if address.iter().any(|part| matches!(part, libp2p::multiaddr::Protocol::Dnsaddr(_))) {
        const LIST: &str = "a /dnsaddr is a list of addresses in DNS, which is not looked up: \
                            write the addresses themselves";
        return Err(ConfigError::new(place, text, format!("{LIST}; {EXAMPLES}")));
    }
    if is_supported(&address) {
        Ok(address)
    } else {
        Err(ConfigError::new(place, text, format!("only TCP and QUIC are supported; {EXAMPLES}")))
    }
}

/// Whether an address has the form of one of TCP or QUIC, with the PeerId of its node or the relay
/// through which it leads, and nothing else.
fn is_supported(address: &Multiaddr) -> bool {
    use libp2p::multiaddr::Protocol::{
        Dns, Dns4, Dns6, Ip4, Ip6, P2p, P2pCircuit, QuicV1, Tcp, Udp,
    };
    let parts: Vec<_> = address.iter().collect();
    let rest = match parts.as_slice() {
        [Ip4(_) | Ip6(_) | Dns(_) | Dns4(_) | Dns6(_), Tcp(_), rest @ ..] => rest,
        [Ip4(_) | Ip6(_) | Dns(_) | Dns4(_) | Dns6(_), Udp(_), QuicV1, rest @ ..] => rest,
        _ => return false,
    };
    matches!(rest, [] | [P2p(_)] | [P2p(_), P2pCircuit] | [P2p(_), P2pCircuit, P2p(_)])
}

/// One neighbour's addresses, tried one at a time and in order.
pub(crate) struct Dial {
    pub addresses: Vec<Multiaddr>,
    /// Where the neighbour says that it listens: tried while it is reached through a relay.
    others: Vec<Multiaddr>,
    pub next: usize,
    turns: usize,
    pub due: Instant,
    /// The attempt that is under way.
    pub under_way: Option<ConnectionId>,
    /// Since when there is a connection.
    since: Option<Instant>,
    /// The least pause between two attempts.
    least: Duration,
}

impl Dial {
    /// The first attempt is due at once.
    pub(crate) fn new(addresses: Vec<Multiaddr>) -> Dial {
        let (others, least) = (Vec::new(), Duration::ZERO);
        let due = Instant::now();
        Dial { addresses, others, next: 0, turns: 0, due, under_way: None, since: None, least }
    }

    /// For a neighbour whose part it is to dial: this end does so if it has not come for a while,
    /// as when this node has moved and the neighbour has its old address.
    pub(crate) fn instead(addresses: Vec<Multiaddr>) -> Dial {
        let new = Dial::new(addresses);
        Dial { due: new.due + INSTEAD, least: INSTEAD, ..new }
    }

    /// The neighbour is at other addresses now: they are tried soon.
    pub(crate) fn moved(&mut self, addresses: &[Multiaddr]) {
        self.addresses = addresses.to_vec();
        (self.next, self.under_way, self.turns) = (0, None, 0);
        self.due = self.due.min(Instant::now() + self.least);
    }

    /// Whether it is the neighbour's part to dial.
    pub(crate) fn is_instead(&self) -> bool {
        !self.least.is_zero()
    }

    /// Moves to the next address; after the last one it pauses. If the other end has closed the
    /// connection (`closed`), it draws lots perhaps: then this end tries about once a second.
    pub(crate) fn failed(&mut self, closed: bool) {
        if closed {
            self.turns = self.turns.min(A_SECOND);
        }
        self.next += 1;
        if self.next < self.addresses.len() {
            self.under_way = None;
            self.due = Instant::now();
        } else {
            self.wait();
        }
    }

    pub(crate) fn succeeded(&mut self, relayed: bool) {
        (self.under_way, self.since) = (None, Some(Instant::now()));
        if relayed {
            self.wait_for_direct();
        }
    }

    /// Whether a direct address is known.
    pub(crate) fn is_direct(&self) -> bool {
        self.all_direct().next().is_some()
    }

    pub(crate) fn direct(&self) -> Vec<Multiaddr> {
        self.all_direct().cloned().collect()
    }

    fn all_direct(&self) -> impl Iterator<Item = &Multiaddr> {
        self.addresses.iter().chain(&self.others).filter(|address| !is_relayed(address))
    }

    /// Notes where the neighbour says that it listens, as far as such addresses are dialled.
    /// `direct`: whether a direct connection is wanted. An attempt at the addresses known so far
    /// does not hold up one at the new ones.
    pub(crate) fn learn(&mut self, listens: Vec<Multiaddr>, dialled: &Dialled, direct: bool) {
        let is_of_use = |address: &Multiaddr| !is_relayed(address) && dialled.allows(address);
        let others: Vec<Multiaddr> = listens.into_iter().filter(is_of_use).take(MOST).collect();
        if self.others != others {
            self.others = others;
            self.due = self.due.min(Instant::now() + FIRST_DIRECT);
            if direct {
                self.under_way = None;
            }
        }
    }

    /// There is a relayed connection: pauses before direct addresses are tried again.
    pub(crate) fn wait_for_direct(&mut self) {
        (self.under_way, self.next) = (None, 0);
        self.due = Instant::now() + DIRECT_AGAIN;
    }

    /// The connection has closed. After one that lasted the pauses are short again, after a link
    /// that broke at once nearly so; a node of another membership may soon choose members, and
    /// is tried about once a second.
    pub(crate) fn closed(&mut self, reached: Reached) {
        let lasted = self.since.take().is_some_and(|since| since.elapsed() > LASTED);
        match reached {
            _ if lasted => self.turns = 0,
            Reached::Linked => self.turns = self.turns.min(HALF_A_SECOND),
            Reached::OtherMembership => self.turns = self.turns.min(A_SECOND),
            Reached::Nothing => {}
        }
        self.wait();
    }

    /// Pauses, then starts from the first address again.
    pub(crate) fn wait(&mut self) {
        self.under_way = None;
        self.next = 0;
        // Nodes that lost their links together do not dial together.
        let jitter = 0.75 + 0.5 * (random() as f64 / u64::MAX as f64);
        let pause = PAUSE[self.turns.min(PAUSE.len() - 1)].max(self.least);
        self.due = Instant::now() + pause.mul_f64(jitter);
        self.turns += 1;
    }
}

/// Describes the stage that failed, the address, and the next thing to try.
pub(crate) fn dial_trouble(
    error: &DialError,
    address: &Multiaddr,
    neighbour: &Neighbour,
) -> String {
    match error {
        DialError::WrongPeerId { obtained, .. } => {
            format!(
                "{address} answers as {obtained}, not as {}: the topology has the wrong address \
                 or the wrong peer",
                neighbour.peer
            )
        }
        DialError::LocalPeerId { .. } => {
            format!("{address} is this node itself: correct the address in the topology")
        }
        DialError::Transport(errors) => {
            let text = errors.first().map_or(String::new(), |(_, error)| match error {
                TransportError::MultiaddrNotSupported(_) => {
                    "this kind of address cannot be dialled".to_string()
                }
                TransportError::Other(error) if is_foreign(error) => FOREIGN.to_string(),
                TransportError::Other(error) => root(error) + hint(error),
            });
            format!("dialling {address}: {text}")
        }
        other => format!("dialling {address}: {}", root(other)),
    }
}

/// The message for an address whose program speaks another protocol.
const FOREIGN: &str = "what listens there is not a gradvine node: it answers in another protocol; \
                       is the address in the topology right, does another program have this port?";

/// Whether a dial failed because the bytes that came are not those of libp2p's handshake, or ended
/// while the protocol was negotiated.
fn is_foreign(error: &io::Error) -> bool {
    system_errors(error).any(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// The system errors behind an error, from the outside in. libp2p wraps those of a transport in
/// others.
fn system_errors<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a io::Error> {
    let inner = |&error: &&'a (dyn Error + 'static)| {
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map_or_else(|| error.source(), |inner| Some(inner))
    };
    std::iter::successors(Some(error), inner).filter_map(|error| error.downcast_ref())
}

/// The remedy when the system gives the process no more file descriptors.
pub(super) const FILES: &str =
    ": each link needs one; raise the limit (ulimit -n, LimitNOFILE= of systemd)";

/// Whether the error means that the process, or the system, has no file descriptors left.
pub(super) fn is_out_of_files(error: &(dyn Error + 'static)) -> bool {
    // EMFILE and ENFILE, on all Unix systems.
    system_errors(error).any(|error| matches!(error.raw_os_error(), Some(23 | 24)))
}

/// The kind of an error of the system: the innermost one that says something.
pub(super) fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let kinds = system_errors(error).map(io::Error::kind);
    kinds.filter(|kind| *kind != io::ErrorKind::Other).last()
}

/// Whether a dial failed with such an error of the transport.
fn has(error: &DialError, is_such: impl Fn(&io::Error) -> bool) -> bool {
    let DialError::Transport(errors) = error else { return false };
    errors.iter().any(|(_, error)| match error {
        TransportError::Other(error) => is_such(error),
        TransportError::MultiaddrNotSupported(_) => false,
    })
}

/// Whether a dial failed for lack of file descriptors.
pub(super) fn lacks_files(error: &DialError) -> bool {
    has(error, |error| is_out_of_files(error))
}

/// Whether the other end closed the connection before the handshake was over.
pub(super) fn is_closed(error: &DialError) -> bool {
    has(error, |error| io_kind(error).is_some_and(|kind| CLOSES.contains(&kind)))
}

/// The next thing to try after this error of a dial.
fn hint(error: &io::Error) -> &'static str {
    if is_out_of_files(error) {
        return FILES;
    }
    match io_kind(error) {
        Some(io::ErrorKind::ConnectionRefused) => {
            ": nothing listens there; has it been started, is the port right?"
        }
        Some(kind) if CLOSES.contains(&kind) => CLOSED,
        Some(io::ErrorKind::TimedOut) => NO_ANSWER,
        _ => "",
    }
}

/// The errors of a connection that the other end closes.
const CLOSES: [io::ErrorKind; 3] =
    [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];

const CLOSED: &str = ": what listens there closed the connection before the handshake was over; is \
                      it a gradvine node, is the port right?";
const NO_ANSWER: &str = ": no answer; is it running, is its port open in the firewall?";

/// The innermost cause, which is the most specific one.
pub(crate) fn root(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    let text = error.to_string();
    // Some libraries add a link to their documentation.
    text.split(": http").next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use libp2p::identity::Keypair;

    use super::*;

    #[test]
    fn exactly_one_end_dials_if_any_has_an_address() {
        let (a, b) = (
            Keypair::generate_ed25519().public().to_peer_id(),
            Keypair::generate_ed25519().public().to_peer_id(),
        );
        use Reachable::{Directly, No, Privately, Relayed};
        for of_a in [No, Relayed, Privately, Directly] {
            for of_b in [No, Relayed, Privately, Directly] {
                let (by_a, by_b) = (dials(&a, of_a, &b, of_b), dials(&b, of_b, &a, of_a));
                assert_eq!(by_a ^ by_b, (of_a, of_b) != (No, No), "{of_a:?} {of_b:?}");
            }
        }
        assert!(dials(&a, Relayed, &b, Directly) && dials(&b, Relayed, &a, Directly));
        // One behind a NAT knows a private address of its own only.
        let at = |texts: &[&str]| {
            let parsed: Vec<Multiaddr> = texts.iter().map(|text| text.parse().unwrap()).collect();
            Reachable::at(&parsed)
        };
        let inside = at(&["/ip4/192.168.1.7/tcp/4001", "/ip6/fd00::7/tcp/4001"]);
        for outside in ["/ip4/9.9.9.9/tcp/4001", "/dns/berlin.example.org/tcp/4001"] {
            let outside = at(&[outside]);
            assert!(dials(&a, inside, &b, outside) && dials(&b, inside, &a, outside));
        }
        assert_eq!(at(&["/ip4/10.0.0.7/tcp/4001", "/ip4/9.9.9.9/tcp/4001"]), Directly);
        assert_eq!((at(&[]), inside), (No, Privately));
    }

    #[test]
    fn a_new_address_of_a_neighbour_is_dialled_before_the_last_attempt_ends() {
        let parse = |text: &str| text.parse::<Multiaddr>().unwrap();
        let (inside, outside) = (parse("/ip4/10.0.0.2/tcp/4001"), parse("/ip4/9.9.9.9/tcp/4001"));
        let private = parse("/ip4/10.0.0.3/tcp/4001");
        let dialled = Dialled::default();
        dialled.list([&inside].into_iter());
        let mut dial = Dial::new(Vec::new());
        dial.learn(vec![inside.clone(), private.clone()], &dialled, true);
        dial.under_way = Some(ConnectionId::new_unchecked(1));
        dial.learn(vec![inside.clone(), private.clone()], &dialled, true);
        assert!(dial.under_way.is_some(), "nothing is new");
        dial.learn(vec![inside.clone(), outside.clone()], &dialled, true);
        assert!(dial.under_way.is_none() && dial.due <= Instant::now());
        assert_eq!(dial.direct(), [inside.clone(), outside], "another private address is not");
        // An attempt at another kind of connection continues.
        dial.under_way = Some(ConnectionId::new_unchecked(2));
        dial.learn(vec![inside], &dialled, false);
        assert!(dial.under_way.is_some());
    }

    #[test]
    fn the_end_that_is_dialled_dials_after_a_while() {
        let address = vec!["/ip4/9.9.9.9/tcp/4001".parse::<Multiaddr>().unwrap()];
        let mut dial = Dial::instead(address.clone());
        let is_late = |dial: &Dial| dial.due > Instant::now() + INSTEAD / 2;
        assert!(dial.is_instead() && is_late(&dial));
        dial.succeeded(false);
        dial.closed(Reached::Linked);
        assert!(is_late(&dial), "the other end has its turn first after a break, too");
        dial.failed(true);
        assert!(is_late(&dial));
        assert!(!Dial::new(address).is_instead());
    }

    #[test]
    fn an_address_that_closes_its_connections_is_tried_about_once_a_second() {
        let address = vec!["/ip4/9.9.9.9/tcp/4001".parse::<Multiaddr>().unwrap()];
        for (closed, least, most) in [(true, 600, 1300), (false, 3000, 6300)] {
            let (mut dial, started) = (Dial::new(address.clone()), Instant::now());
            (0..10).for_each(|_| dial.failed(closed));
            assert!(dial.due - started > Duration::from_millis(least), "{closed}");
            assert!(dial.due - Instant::now() < Duration::from_millis(most), "{closed}");
        }
    }

    #[test]
    fn addresses_are_read_and_wrong_ones_explained() {
        assert!(address("listen", "/ip4/127.0.0.1/tcp/0").is_ok());
        assert!(address("listen", "/dns4/a.example.org/udp/4001/quic-v1").is_ok());
        let error = address("listen", "/dnsaddr/a.example.org/tcp/4001").unwrap_err().to_string();
        assert!(error.contains("a list of addresses"), "{error}");
        let error = address("listen", "127.0.0.1:4001").unwrap_err().to_string();
        assert!(
            error.contains("listen = 127.0.0.1:4001: this is not a multiaddress")
                && error.contains("/tcp/4001"),
            "{error}"
        );
        assert!(
            address("listen", "/ip4/127.0.0.1/udp/1")
                .unwrap_err()
                .to_string()
                .contains("only TCP and QUIC")
        );
    }
}
