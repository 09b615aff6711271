//! A relay: a host with a public address that carries links between nodes without one.
//!
//! It speaks libp2p's circuit relay v2. A node connects to the relay and *reserves* a place there;
//! its neighbours then reach it at the relay's address, followed by `/p2p-circuit`. The two nodes
//! encrypt their link end to end: the relay sees lengths and times only. It serves the nodes that
//! its file names, within the limits of the file.

mod bounds;
mod file;
mod limited;
pub(crate) mod reservations;
mod runs;

use std::{
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, Transport, allow_block_list, connection_limits,
    core::muxing::StreamMuxerBox,
    identify, ping, relay,
    swarm::{self, NetworkBehaviour, SwarmEvent},
};
use litemap::LiteMap;

pub use file::RelayFile;

use super::{
    identity, runtime,
    transport::{
        dial::{address, peer_of},
        dialled::Dialled,
        gate::Gate,
        guard::guarded,
        layers::{
            self,
            security::{Ciphers, Encryption},
        },
        refusals::Refusals,
        sites::admit,
        swarm::{IDLE, listen},
    },
};
use crate::{config::ConfigError, mixing::Topology, run::Security, units::NodeId};
use bounds::Bounds;
use limited::{Limited, Limits};
use runs::sites;

/// How long a place stays reserved without being renewed; nodes renew theirs in time.
const RESERVATION: Duration = Duration::from_secs(3600);

/// How long a relayed link may live. The protocol has no "for ever".
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// The maximum number of streams per connection: one for each link that the relay carries to the
/// node, and a few more.
const STREAMS: usize = 512;

/// The bytes of a megabit.
const MEGABIT: f64 = 1e6 / 8.0;

/// The sites that may join each run while the relay runs.
const JOINING: usize = 128;

/// How often a relay reads the files of its runs.
const READ: Duration = Duration::from_secs(1);

/// How often a relay looks whether to stop.
const POLL: Duration = Duration::from_millis(100);

#[derive(NetworkBehaviour)]
struct Behaviour {
    gate: Gate,
    allowed: allow_block_list::Behaviour<allow_block_list::AllowedPeers>,
    limits: connection_limits::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    relay: relay::Behaviour,
}

/// What happens at a relay. Nodes have the names that the topologies give them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelayEvent {
    /// A node can be reached through this relay.
    Reserved {
        /// The node that reserved a place.
        node: String,
    },
    /// A node can no longer be reached through this relay.
    Released {
        /// The node that has lost its place.
        node: String,
    },
    /// A link through this relay began.
    Opened {
        /// The node that asked for it.
        from: String,
        /// The node that it reaches.
        to: String,
    },
    /// A link through this relay ended.
    Closed {
        /// The node that asked for it.
        from: String,
        /// The node that it reached.
        to: String,
        /// The error, if it did not end by itself.
        reason: Option<String>,
    },
    /// A relayed link was refused.
    Refused {
        /// The node that asked for it.
        from: String,
        /// The node that it asked for.
        to: String,
        /// Why the relay has refused it.
        reason: String,
    },
    /// A node causes many events: some of them were left out.
    Omitted {
        /// The node that causes them.
        node: String,
        /// How many were left out.
        count: u64,
    },
}

impl RelayEvent {
    /// The node that has caused it.
    fn node(&self) -> &str {
        match self {
            RelayEvent::Reserved { node }
            | RelayEvent::Released { node }
            | RelayEvent::Omitted { node, .. } => node,
            RelayEvent::Opened { from, .. }
            | RelayEvent::Closed { from, .. }
            | RelayEvent::Refused { from, .. } => from,
        }
    }
}

impl fmt::Display for RelayEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelayEvent::Reserved { node } => write!(f, "{node} can be reached through this relay"),
            RelayEvent::Released { node } => {
                write!(f, "{node} can no longer be reached through this relay")
            }
            RelayEvent::Opened { from, to } => write!(f, "{from} - {to}: a link begins"),
            RelayEvent::Closed { from, to, reason: None } => {
                write!(f, "{from} - {to}: the link ended")
            }
            RelayEvent::Closed { from, to, reason: Some(reason) } => {
                write!(f, "{from} - {to}: the link ended: {reason}")
            }
            RelayEvent::Refused { from, to, reason } => {
                write!(f, "{from} - {to}: the link was refused: {reason}")
            }
            RelayEvent::Omitted { node, count } => {
                write!(f, "{node}: {count} more lines about it were left out")
            }
        }
    }
}

/// Addresses with a word in place of an IP that stands for all interfaces.
fn named(addresses: &str) -> String {
    let addresses = addresses.replace("/ip4/0.0.0.0/", "/ip4/PUBLIC-ADDRESS/");
    addresses.replace("/ip6/::/", "/ip6/PUBLIC-ADDRESS/")
}

/// A running relay, which links nodes that cannot reach each other.
pub struct Relay {
    swarm: Swarm<Behaviour>,
    names: LiteMap<PeerId, String>,
    addresses: Vec<Multiaddr>,
    refusals: Refusals,
    runs: Runs,
    runtime: tokio::runtime::Runtime,
}

impl Relay {
    /// Reads the files that a relay's file names, and listens.
    ///
    /// # Errors
    /// If a file is wrong, or an address cannot be listened on.
    pub fn start(file: &RelayFile) -> Result<Relay, ConfigError> {
        let runtime = runtime().map_err(|error| ConfigError::at("network", error.to_string()))?;
        let key = identity::load(&file.key)?;
        let mut names = names(file)?;
        let of_runs = all_sites(&file.runs)?;
        let (sites, named) = (of_runs.keys().copied().collect(), names.keys().copied().collect());
        let runs = Runs { files: file.runs.clone(), sites, named, read: Instant::now() };
        names.extend(of_runs);
        let addresses = (file.listen.iter())
            .map(|text| address("relay.listen", text))
            .collect::<Result<Vec<_>, _>>()?;
        let wrong = |error: &dyn fmt::Display| {
            ConfigError::at("network", format!("encryption cannot be set up: {error}"))
        };
        let guard = runtime.enter();
        let encryption = Encryption::new(&key, Security::Auto, Ciphers::default())
            .map_err(|error| wrong(&error))?;
        let limits = Limits::new(file.link_mbps * MEGABIT, file.total_mbps * MEGABIT);
        let limit = move |connection| StreamMuxerBox::new(Limited::new(connection, limits.clone()));
        let gate = Gate::new(names.len());
        let transport = layers::direct(&key, encryption, STREAMS, &gate, None);
        let transport = Transport::map(transport, move |(peer, all), _| (peer, limit(all))).boxed();
        let own = key.public().to_peer_id();
        // A relay dials nobody.
        let transport = guarded(transport, gate.clone(), Dialled::default());
        // More sites may join.
        let count = names.len() + JOINING * file.runs.len();
        let behaviour = behaviour(own, key.public(), &names, (count, file.links), gate);
        let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(IDLE);
        let mut swarm = Swarm::new(transport, behaviour, own, config);
        let addresses = runtime.block_on(listen(&mut swarm, &addresses))?;
        drop(guard);
        // Reservations name the addresses of the relay; those of the topology count.
        addresses.iter().for_each(|address| swarm.add_external_address(address.clone()));
        Ok(Relay {
            swarm,
            names,
            addresses,
            refusals: Refusals::new("no topology and no run of this relay names it"),
            runs,
            runtime,
        })
    }

    /// The PeerId that follows from the relay's key.
    pub fn peer(&self) -> PeerId {
        *self.swarm.local_peer_id()
    }

    /// The addresses at which nodes can reserve a place, as a topology writes them: each ends in
    /// `/p2p/PEER/p2p-circuit`.
    pub fn addresses(&self) -> Vec<Multiaddr> {
        let suffix: Multiaddr =
            format!("/p2p/{}/p2p-circuit", self.peer()).parse().expect("a multiaddress");
        let with = |address: &Multiaddr| address.iter().chain(suffix.iter()).collect();
        self.addresses.iter().map(with).collect()
    }

    /// The number of nodes that it serves.
    pub fn nodes(&self) -> usize {
        self.names.len()
    }

    /// How many nodes it serves, and at which addresses, as text for the user. A program cannot
    /// know by which address the nodes reach a machine that listens on all of its interfaces.
    pub fn describe(&self) -> String {
        let addresses: String =
            self.addresses().iter().map(|address| format!("  \"{address}\"\n")).collect();
        let nodes = match self.nodes() {
            1 => "one node".to_string(),
            nodes => format!("{nodes} nodes"),
        };
        let shown = named(&addresses);
        let hint = match shown == addresses {
            true => "",
            false => {
                "Write the address at which the nodes reach this machine for PUBLIC-ADDRESS, or \
                 /dns4/NAME for /ip4/PUBLIC-ADDRESS.\n"
            }
        };
        format!(
            "relay for {nodes}; addresses of nodes without a public one, for the topology:\n\
             {shown}{hint}"
        )
    }

    /// Carries links until `stop` returns true; it is called again and again. `observe` receives
    /// what happens; of a node that causes many events only some.
    pub fn run(self, mut observe: impl FnMut(RelayEvent), mut stop: impl FnMut() -> bool) {
        let Relay { mut swarm, mut names, mut refusals, mut runs, runtime, .. } = self;
        let mut bounds = Bounds::default();
        let mut observe = |event| bounds.pass(event, Instant::now(), &mut observe);
        runtime.block_on(async {
            let mut tick = tokio::time::interval(POLL);
            loop {
                let event = tokio::select! {
                    event = swarm.select_next_some() => event,
                    _ = tick.tick() => match stop() {
                        true => return,
                        false => {
                            runs.read_again(&mut swarm, &mut names);
                            continue;
                        }
                    },
                };
                let name =
                    |peer: PeerId| names.get(&peer).cloned().unwrap_or_else(|| peer.to_string());
                match event {
                    SwarmEvent::Behaviour(BehaviourEvent::Relay(event)) => {
                        observe_relay(event, &name, &mut observe);
                    }
                    SwarmEvent::IncomingConnectionError {
                        peer_id, send_back_addr, error, ..
                    } => refusals.report(peer_id, &send_back_addr, &error),
                    _ => {}
                }
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

/// Serves the sites of runs as they are now.
struct Runs {
    files: Vec<PathBuf>,
    /// Those of them that are served, and the nodes that are served in any case.
    sites: BTreeSet<PeerId>,
    named: BTreeSet<PeerId>,
    read: Instant,
}

impl Runs {
    /// Reads the files again if it is time: those that have joined or were invited are let in, and
    /// those that were removed are let out.
    fn read_again(&mut self, swarm: &mut Swarm<Behaviour>, names: &mut LiteMap<PeerId, String>) {
        if self.read.elapsed() < READ {
            return;
        }
        self.read = Instant::now();
        match all_sites(&self.files) {
            Ok(found) => {
                let now: BTreeSet<PeerId> = found.keys().copied().collect();
                let allowed = &mut swarm.behaviour_mut().allowed;
                admit(allowed, &mut self.sites, now, |site| !self.named.contains(site));
                names.extend(found);
            }
            // It is tried again.
            Err(error) => tracing::debug!("the relay serves the sites that it knew: {error}"),
        }
    }
}

/// The sites of all these runs.
fn all_sites(files: &[PathBuf]) -> Result<LiteMap<PeerId, String>, ConfigError> {
    let mut all = LiteMap::new();
    for file in files {
        all.extend(sites(file)?);
    }
    Ok(all)
}

/// The nodes to serve, with their names.
fn names(file: &RelayFile) -> Result<LiteMap<PeerId, String>, ConfigError> {
    let mut names = LiteMap::new();
    for text in &file.peers {
        let peer = text.parse().map_err(|error| {
            ConfigError::new("relay.peers", text, format!("this is not a PeerId: {error}"))
        })?;
        names.insert(peer, text.clone());
    }
    for path in &file.topologies {
        let topology = Topology::load(path)?;
        for node in (0..topology.nodes()).map(NodeId::from) {
            let peer = peer_of(&topology, node).map_err(|error| error.within(path.display()))?;
            names.insert(peer, topology.node(node).name.clone());
        }
    }
    Ok(names)
}

fn behaviour(
    own: PeerId,
    public: libp2p::identity::PublicKey,
    names: &LiteMap<PeerId, String>,
    (count, links): (usize, usize),
    gate: Gate,
) -> Behaviour {
    let mut allowed = allow_block_list::Behaviour::<allow_block_list::AllowedPeers>::default();
    for peer in names.keys() {
        allowed.allow_peer(*peer);
    }
    let connections = connection_limits::ConnectionLimits::default()
        .with_max_established(Some(4 * count as u32 + 2))
        .with_max_established_per_peer(Some(4));
    let often = std::num::NonZeroU32::new(120).expect("120 is not 0");
    let second = Duration::from_secs(1);
    // The defaults are for relays that serve strangers; here only named nodes get so far.
    let config = relay::Config {
        max_reservations: 4 * count,
        max_reservations_per_peer: 4,
        reservation_duration: RESERVATION,
        reservation_rate_limiters: Vec::new(),
        max_circuits: links,
        max_circuits_per_peer: links,
        max_circuit_duration: LONGEST,
        max_circuit_bytes: 0,
        circuit_src_rate_limiters: Vec::new(),
    };
    let config =
        config.reservation_rate_per_peer(often, second).circuit_src_per_peer(often, second);
    let mut relay = relay::Behaviour::new(own, config);
    relay.set_status(Some(relay::Status::Enable));
    Behaviour {
        gate,
        allowed,
        limits: connection_limits::Behaviour::new(connections),
        identify: identify::Behaviour::new(identify::Config::new("/gradvine/1".into(), public)),
        ping: ping::Behaviour::new(ping::Config::new()),
        relay,
    }
}

fn observe_relay(
    event: relay::Event,
    name: &dyn Fn(PeerId) -> String,
    observe: &mut dyn FnMut(RelayEvent),
) {
    use relay::Event;
    match event {
        Event::ReservationReqAccepted { src_peer_id, renewed: false } => {
            observe(RelayEvent::Reserved { node: name(src_peer_id) });
        }
        Event::ReservationClosed { src_peer_id } | Event::ReservationTimedOut { src_peer_id } => {
            observe(RelayEvent::Released { node: name(src_peer_id) });
        }
        Event::CircuitReqAccepted { src_peer_id, dst_peer_id } => {
            observe(RelayEvent::Opened { from: name(src_peer_id), to: name(dst_peer_id) });
        }
        Event::CircuitReqDenied { src_peer_id, dst_peer_id, status } => {
            let (from, to) = (name(src_peer_id), name(dst_peer_id));
            observe(RelayEvent::Refused { from, to, reason: reason(status) });
        }
        Event::CircuitClosed { src_peer_id, dst_peer_id, error } => {
            let (from, to) = (name(src_peer_id), name(dst_peer_id));
            let reason = error.map(|error| error.to_string());
            observe(RelayEvent::Closed { from, to, reason });
        }
        other => tracing::debug!("relay: {other:?}"),
    }
}

/// Why a relayed link was refused, in words.
fn reason(status: relay::StatusCode) -> String {
    match status {
        relay::StatusCode::NoReservation => {
            "that node has reserved no place at this relay: is it running, does its topology \
             give it an address of this relay?"
                .into()
        }
        relay::StatusCode::ResourceLimitExceeded => {
            "there are as many links as `links` of the relay's file allows".into()
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn an_address_of_all_interfaces_is_not_shown_as_one_to_dial() {
        for (listens, shown) in [
            ("/ip4/0.0.0.0/tcp/4100/p2p/P", "/ip4/PUBLIC-ADDRESS/tcp/4100/p2p/P"),
            ("/ip6/::/udp/4100/quic-v1", "/ip6/PUBLIC-ADDRESS/udp/4100/quic-v1"),
            ("/ip4/203.0.113.7/tcp/4100", "/ip4/203.0.113.7/tcp/4100"),
            ("/ip6/::1/tcp/4100", "/ip6/::1/tcp/4100"),
        ] {
            assert_eq!(named(listens), shown);
        }
    }
}
