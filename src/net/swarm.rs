//! The swarm's task: it opens, accepts, refuses and loses connections, and dials the neighbours
//! assigned to this end.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener, UdpSocket},
    num::NonZeroU8,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, SwarmBuilder, TransportError, allow_block_list, connection_limits,
    core::ConnectedPoint,
    identify,
    identity::Keypair,
    multiaddr::Protocol,
    ping,
    swarm::{
        ConnectionId, DialError, ListenError, NetworkBehaviour, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
    tcp, yamux,
};
use tokio::{sync::mpsc, time::timeout};

use super::{
    dial::{Dial, FILES, dial_trouble, io_kind, is_out_of_files, lacks_files, root},
    gate::Gate,
    host::Neighbour,
    reach::Endpoint,
    security::{Ciphers, Encryption},
    sockets::{self, Ends},
    status::Status,
};
use crate::{config::ConfigError, run::Security, units::NodeId};

/// How long a listener may take to start.
const LISTEN: Duration = Duration::from_secs(10);

/// An idle connection is closed after this time: only one whose handshake failed has no streams.
const IDLE: Duration = Duration::from_secs(60);

/// The maximum number of streams per connection: three are ours, the rest belong to identify and
/// ping.
const STREAMS: usize = 32;

#[derive(NetworkBehaviour)]
pub(super) struct Behaviour {
    gate: Gate,
    allowed: allow_block_list::Behaviour<allow_block_list::AllowedPeers>,
    limits: connection_limits::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    pub streams: libp2p_stream::Behaviour,
}

/// A swarm of a node with this key that does not listen yet, and that only these peers may connect
/// to.
pub(super) fn swarm(
    key: &Keypair,
    neighbours: &[Neighbour],
    security: Security,
    ciphers: &Ciphers,
) -> Result<Swarm<Behaviour>, ConfigError> {
    let wrong = |what: &str, error: &dyn std::fmt::Display| {
        ConfigError::at("network", format!("{what} cannot be set up: {error}"))
    };
    let mut allowed = allow_block_list::Behaviour::<allow_block_list::AllowedPeers>::default();
    for neighbour in neighbours {
        allowed.allow_peer(neighbour.peer);
    }
    let count = neighbours.len() as u32;
    // A neighbour may connect anew before its old connections are closed.
    let limits = connection_limits::ConnectionLimits::default()
        .with_max_established(Some(4 * count + 2))
        .with_max_established_per_peer(Some(4));
    let identify = identify::Config::new("/gradvine/1".into(), key.public())
        .with_agent_version(concat!("gradvine/", env!("CARGO_PKG_VERSION")).into());
    let behaviour = Behaviour {
        gate: Gate::new(neighbours.len()),
        allowed,
        limits: connection_limits::Behaviour::new(limits),
        identify: identify::Behaviour::new(identify),
        ping: ping::Behaviour::new(ping::Config::new()),
        streams: libp2p_stream::Behaviour::new(),
    };
    let multiplex = || {
        let mut config = yamux::Config::default();
        config.set_max_num_streams(STREAMS);
        config
    };
    let base = || {
        let builder = SwarmBuilder::with_existing_identity(key.clone()).with_tokio();
        let tcp = tcp::Config::default().nodelay(true);
        let ciphers = ciphers.clone();
        let encryption = move |key: &Keypair| Encryption::new(key, security, ciphers);
        builder.with_tcp(tcp, encryption, multiplex).map(|builder| builder.with_quic())
    };
    // The two builders have different types.
    macro_rules! finish {
        ($builder:expr) => {
            $builder
                .with_behaviour(|_| behaviour)
                .map_err(|error| wrong("the swarm", &error))?
                .with_swarm_config(|config| {
                    let one_at_a_time = NonZeroU8::MIN;
                    config
                        .with_idle_connection_timeout(IDLE)
                        .with_dial_concurrency_factor(one_at_a_time)
                })
                .build()
        };
    }
    let swarm = match base().map_err(|error| wrong("encryption", &error))?.with_dns() {
        Ok(builder) => finish!(builder),
        Err(error) => {
            tracing::warn!("names cannot be looked up ({error}): only numeric addresses will work");
            finish!(base().map_err(|error| wrong("encryption", &error))?)
        }
    };
    Ok(swarm)
}

/// Checks that no other program listens on an address. libp2p would share the port with another
/// node of this user, and each would get some of the connections.
fn check_free(address: &Multiaddr) -> std::io::Result<()> {
    let Some(Endpoint { host: Some(ip), port: port @ 1.., quic }) = Endpoint::of(address) else {
        return Ok(());
    };
    let socket = SocketAddr::new(ip, port);
    match quic {
        // A trial socket on all addresses of IPv6 would take those of IPv4 too.
        _ if ip.is_ipv6() && ip.is_unspecified() => Ok(()),
        true => UdpSocket::bind(socket).map(drop),
        false => TcpListener::bind(socket).map(drop),
    }
}

/// Listens on all addresses and returns them with their ports.
pub(super) async fn listen(
    swarm: &mut Swarm<Behaviour>,
    addresses: &[Multiaddr],
) -> Result<Vec<Multiaddr>, ConfigError> {
    let wrong = |address: &Multiaddr, text: &str| {
        let problem = format!("cannot be listened on: {text}");
        ConfigError::new("listen", format!("\"{address}\""), problem)
    };
    let refused = |address: &Multiaddr, error: &std::io::Error| {
        let hint = match io_kind(error) {
            Some(std::io::ErrorKind::AddrInUse) => {
                ": another program has this port; stop it, or choose another (0 takes a free one)"
            }
            _ => "",
        };
        wrong(address, &format!("{}{hint}", root(error)))
    };
    let mut found = Vec::new();
    // All of them before the first: an own listener holds its port.
    for address in addresses {
        check_free(address).map_err(|error| refused(address, &error))?;
    }
    for address in addresses {
        let id = swarm.listen_on(address.clone()).map_err(|error| match error {
            TransportError::MultiaddrNotSupported(_) => {
                wrong(address, "this is not an address of TCP or QUIC to listen on")
            }
            TransportError::Other(error) => refused(address, &error),
        })?;
        let up = async {
            loop {
                match swarm.select_next_some().await {
                    SwarmEvent::NewListenAddr { listener_id, address } if listener_id == id => {
                        return Ok(address);
                    }
                    SwarmEvent::ListenerClosed { listener_id, reason: Err(error), .. }
                        if listener_id == id =>
                    {
                        return Err(refused(address, &error));
                    }
                    SwarmEvent::ListenerError { listener_id, error } if listener_id == id => {
                        return Err(refused(address, &error));
                    }
                    _ => {}
                }
            }
        };
        match timeout(LISTEN, up).await {
            Ok(address) => found.push(address?),
            Err(_) => return Err(wrong(address, "no interface has this address")),
        }
    }
    Ok(found)
}

/// The events that the swarm sends to a link.
#[derive(Debug)]
pub enum Connection {
    /// A connection is open.
    Established {
        /// Its id.
        id: ConnectionId,
        /// Whether this end dialled it.
        dialled: bool,
    },
    /// A connection has closed.
    Closed {
        /// Its id.
        id: ConnectionId,
        /// The cause.
        cause: String,
    },
}

/// One neighbour, in the swarm's task.
pub(super) struct Peer {
    pub neighbour: Neighbour,
    pub connection: mpsc::UnboundedSender<Connection>,
    pub connected: Option<ConnectionId>,
    pub dial: Option<Dial>,
}

/// The task that owns the swarm.
pub(super) struct SwarmTask {
    pub swarm: Swarm<Behaviour>,
    pub me: PeerId,
    pub peers: BTreeMap<PeerId, Peer>,
    pub status: Arc<Status>,
    pub closing: mpsc::UnboundedReceiver<(PeerId, ConnectionId)>,
    /// TCP's congestion control, unless it is the system's default.
    pub congestion: Option<String>,
    /// The encryption of TCP connections.
    pub ciphers: Ciphers,
    /// Connections that were refused.
    pub refusals: Refusals,
}

/// Reports refused connections, at most one in [`QUIET`]: anybody can cause them.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    last: Option<Instant>,
    unreported: u64,
}

/// The time between two messages about refused connections.
const QUIET: Duration = Duration::from_secs(5);

impl Refusals {
    /// Reports a peer that may not connect, or whose handshake failed.
    fn report(&mut self, peer: Option<PeerId>, from: &Multiaddr, error: &ListenError) {
        let (Some(peer), ListenError::Denied { .. }) = (peer, error) else {
            return tracing::trace!("a connection from {from} failed: {}", root(error));
        };
        if self.last.is_some_and(|last| last.elapsed() < QUIET) {
            self.unreported += 1;
            return;
        }
        let more = match std::mem::take(&mut self.unreported) {
            0 => String::new(),
            more => format!("; {more} more were refused since the last message"),
        };
        self.last = Some(Instant::now());
        tracing::warn!(
            "refused {peer} from {from}: it is not a neighbour of this node in the topology{more}"
        );
    }
}

impl Peer {
    /// Whether a connection to it is needed.
    fn is_wanted(&self) -> bool {
        self.connected.is_none() && !self.connection.is_closed()
    }

    /// Its connection is gone.
    fn disconnected(&mut self, status: &Status) {
        self.connected = None;
        if let Some(dial) = &mut self.dial {
            dial.closed(status.was_linked(self.neighbour.node));
        }
    }
}

impl SwarmTask {
    /// Runs until the host is dropped. Dialling begins when addresses arrive.
    pub async fn run(
        mut self,
        mut addresses: mpsc::UnboundedReceiver<BTreeMap<NodeId, Vec<Multiaddr>>>,
    ) {
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let dialling = self.peers.values().any(|peer| peer.dial.is_some() && peer.is_wanted());
            tokio::select! {
                event = self.swarm.select_next_some() => self.upon(event),
                Some((peer, id)) = self.closing.recv() => {
                    self.swarm.close_connection(id);
                    // The link does not wait for the last bytes of a dead connection.
                    if let Some(peer) = self.peers.get_mut(&peer) {
                        if peer.connected == Some(id) {
                            peer.disconnected(&self.status);
                        }
                        let _ = peer.connection.send(Connection::Closed { id, cause: "it was \
                            gone".into() });
                    }
                }
                Some(addresses) = addresses.recv() => {
                    self.begin(&addresses);
                    self.dial_due();
                }
                _ = tick.tick(), if dialling => self.dial_due(),
            }
        }
    }

    fn begin(&mut self, addresses: &BTreeMap<NodeId, Vec<Multiaddr>>) {
        for peer in self.peers.values_mut() {
            if let Some(addresses) =
                addresses.get(&peer.neighbour.node).filter(|addresses| !addresses.is_empty())
            {
                peer.dial = Some(Dial::new(addresses.clone()));
            }
        }
    }

    fn dial_due(&mut self) {
        let now = Instant::now();
        for (id, peer) in &mut self.peers {
            let wanted = peer.is_wanted();
            let Some(dial) = peer.dial.as_mut().filter(|_| wanted) else { continue };
            if dial.under_way || dial.due > now {
                continue;
            }
            let address = dial.addresses[dial.next].clone();
            tracing::debug!("dialling node {} at {address}", peer.neighbour.name);
            let options = DialOpts::peer_id(*id)
                .condition(PeerCondition::NotDialing)
                .addresses(vec![address])
                // The pair of the two listening ports may be in use by a connection that is over.
                .allocate_new_port()
                .build();
            dial.under_way = self.swarm.dial(options).is_ok();
            if !dial.under_way {
                dial.wait();
            }
        }
    }

    fn upon(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                let Some(peer) = self.peers.get_mut(&peer_id) else { return };
                // One connection per neighbour. Only one end dials, and only if it has none: its
                // newest connection counts.
                let older = peer.connected.replace(connection_id);
                if let Some(id) = older {
                    tracing::debug!("node {} connected a second time", peer.neighbour.name);
                    let cause = "the neighbour has connected anew".into();
                    let _ = peer.connection.send(Connection::Closed { id, cause });
                }
                if let Some(ends) = Ends::of(&endpoint).filter(|ends| !ends.is_loopback()) {
                    sockets::limit_silence(&ends);
                }
                if let Some(dial) = &mut peer.dial {
                    dial.succeeded();
                }
                if let Some(name) = &self.congestion {
                    control(name, &endpoint, &peer.neighbour.name);
                }
                let cipher = match is_quic(&endpoint) {
                    true => None,
                    false => self.ciphers.of(&peer_id),
                };
                tracing::debug!(
                    "node {}: connected, {}",
                    peer.neighbour.name,
                    cipher.as_deref().unwrap_or("QUIC with TLS 1.3")
                );
                self.status.connected(peer.neighbour.node);
                let _ = peer.connection.send(Connection::Established {
                    id: connection_id,
                    dialled: endpoint.is_dialer(),
                });
                if let Some(id) = older {
                    self.swarm.close_connection(id);
                }
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                let Some(peer) = self
                    .peers
                    .get_mut(&peer_id)
                    .filter(|peer| peer.connected == Some(connection_id))
                else {
                    return;
                };
                peer.disconnected(&self.status);
                let cause =
                    cause.map_or("closed by one of its ends".to_string(), |error| root(&error));
                let guess = format!(
                    "connected, then closed ({cause}): does its topology name this node's PeerId \
                     {}?",
                    self.me
                );
                self.status.closed(peer.neighbour.node, guess);
                let _ = peer.connection.send(Connection::Closed { id: connection_id, cause });
            }
            SwarmEvent::OutgoingConnectionError { peer_id: Some(peer_id), error, .. } => {
                let Some(peer) = self.peers.get_mut(&peer_id) else { return };
                if let Some(dial) = &mut peer.dial {
                    if !matches!(error, DialError::DialPeerConditionFalse(_) | DialError::Aborted) {
                        let trouble =
                            dial_trouble(&error, &dial.addresses[dial.next], &peer.neighbour);
                        tracing::debug!("node {}: {trouble}", peer.neighbour.name);
                        if lacks_files(&error) {
                            let text = "this process may open no more files";
                            self.status.host_trouble(text.into());
                        }
                        self.status.trouble(peer.neighbour.node, trouble);
                    }
                    dial.failed();
                }
            }
            SwarmEvent::IncomingConnectionError { peer_id, send_back_addr, error, .. } => {
                self.refusals.report(peer_id, &send_back_addr, &error);
            }
            SwarmEvent::ListenerError { error, .. } => {
                let hint = if is_out_of_files(&error) { FILES } else { "" };
                self.status
                    .host_trouble(format!("this host cannot accept connections: {error}{hint}"));
            }
            SwarmEvent::Behaviour(BehaviourEvent::Ping(ping::Event {
                peer,
                result: Ok(rtt),
                ..
            })) => {
                if let Some(peer) = self.peers.get(&peer) {
                    tracing::debug!(
                        "node {}: round trip {:.1} ms",
                        peer.neighbour.name,
                        1e3 * rtt.as_secs_f64()
                    );
                }
            }
            _ => {}
        }
    }
}

/// Whether a connection is one of QUIC.
pub(super) fn is_quic(endpoint: &ConnectedPoint) -> bool {
    endpoint.get_remote_address().iter().any(|part| part == Protocol::QuicV1)
}

/// Sets a new connection's congestion control.
fn control(name: &str, endpoint: &ConnectedPoint, neighbour: &str) {
    match Ends::of(endpoint).map(|ends| sockets::choose(name, &ends)) {
        Some(Ok(())) => tracing::debug!("node {neighbour}: TCP with {name}"),
        Some(Err(error)) => {
            tracing::warn!("node {neighbour}: TCP keeps the system's congestion control: {error}")
        }
        None => tracing::warn!(
            "node {neighbour}: QUIC has its own congestion control, run.congestion is for TCP"
        ),
    }
}
