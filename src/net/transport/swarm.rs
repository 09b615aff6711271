//! The swarm's task: it opens, accepts, refuses and loses connections, and dials the neighbours
//! assigned to this end.

use std::{
    error::Error,
    net::{SocketAddr, TcpListener, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, TransportError, allow_block_list, connection_limits,
    core::{ConnectedPoint, Endpoint as Role},
    dcutr, identify,
    identity::Keypair,
    multiaddr::Protocol,
    ping, relay,
    swarm::{
        self, ConnectionId, DialError, NetworkBehaviour, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use litemap::LiteMap;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    dial::{
        Dial, FILES, Reached, dial_trouble, io_kind, is_closed, is_out_of_files, lacks_files, root,
    },
    dialled::Dialled,
    gate::Gate,
    guard::guarded,
    layers::{
        self, Connecting,
        security::{Ciphers, Encryption},
    },
    peers::{CONNECTED_AGAIN, Connection, Held, Peer},
    reach::Endpoint,
    refusals::Refusals,
    sites::{Sites, admit, follow},
    sockets::{self, Ends},
};
use crate::{
    config::ConfigError,
    net::{
        driver::status::{Status, note_no_files},
        link::{handshake::version_of, hello::printable},
        neighbour::Neighbour,
        relay::reservations::{Reservations, relay_of},
    },
    units::NodeId,
};

/// How long a listener may take to start.
const LISTEN: Duration = Duration::from_secs(10);

/// An idle connection is closed after this time: only one whose handshake failed has no streams.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// Connections to relays, and strangers' that are about to be refused.
const RELAYS: u32 = 16;

/// How long another program with a neighbour's key has to be told so.
const TOLD: Duration = Duration::from_secs(3);

/// How long a new connection waits for the one that it replaces to be closed.
const REPLACED: Duration = Duration::from_secs(2);

#[derive(NetworkBehaviour)]
pub(crate) struct Behaviour {
    gate: Gate,
    pub allowed: allow_block_list::Behaviour<allow_block_list::AllowedPeers>,
    limits: connection_limits::Behaviour,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    relay: relay::client::Behaviour,
    punch: dcutr::Behaviour,
    pub streams: libp2p_stream::Behaviour,
}

/// A swarm of a node with this key that does not listen yet, and that only these peers may connect
/// to. It dials no private address but those in `dialled`.
pub(crate) fn swarm(
    key: &Keypair,
    neighbours: &[Neighbour],
    connecting: &Connecting,
    ciphers: &Ciphers,
    dialled: &Dialled,
) -> Result<Swarm<Behaviour>, ConfigError> {
    let mut allowed = allow_block_list::Behaviour::<allow_block_list::AllowedPeers>::default();
    for neighbour in neighbours {
        allowed.allow_peer(neighbour.peer);
    }
    let count = neighbours.len() as u32;
    // A neighbour may connect again before its old connections are closed.
    let limits = connection_limits::ConnectionLimits::default()
        .with_max_established(Some(4 * count + RELAYS))
        .with_max_established_per_peer(Some(4));
    let identify = identify::Config::new("/gradvine/1".into(), key.public())
        .with_agent_version(concat!("gradvine/", env!("CARGO_PKG_VERSION")).into());
    let me = key.public().to_peer_id();
    let sources: Vec<Multiaddr> =
        neighbours.iter().flat_map(|neighbour| neighbour.addresses.clone()).collect();
    let encryption =
        Encryption::new(key, connecting.security, ciphers.clone()).map_err(|error| {
            ConfigError::at("network", format!("encryption cannot be set up: {error}"))
        })?;
    let gate = Gate::new(neighbours.len()).expecting(sources.iter());
    let (transport, relay) = layers::with_relays(key, encryption, &gate, connecting.proxy.clone());
    dialled.list(sources.iter());
    let transport = guarded(transport, gate.clone(), dialled.clone());
    let behaviour = Behaviour {
        gate,
        allowed,
        limits: connection_limits::Behaviour::new(limits),
        identify: identify::Behaviour::new(identify),
        ping: ping::Behaviour::new(ping::Config::new()),
        relay,
        punch: dcutr::Behaviour::new(me),
        streams: libp2p_stream::Behaviour::new(),
    };
    let config = swarm::Config::with_tokio_executor().with_idle_connection_timeout(IDLE);
    Ok(Swarm::new(transport, behaviour, me, config))
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

/// Listens on all addresses and returns them with their ports. An address that stands for all of
/// this machine, such as `/ip4/0.0.0.0/tcp/0`, keeps doing so.
pub(crate) async fn listen<B: NetworkBehaviour>(
    swarm: &mut Swarm<B>,
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
            Ok(up) => found.push(with_port(address, &up?)),
            Err(_) => return Err(wrong(address, "no interface has this address")),
        }
    }
    Ok(found)
}

/// An address that was asked for, with the port of the one that is listened on.
fn with_port(asked: &Multiaddr, found: &Multiaddr) -> Multiaddr {
    let port = Endpoint::of(found).map_or(0, |endpoint| endpoint.port);
    let set = |part| match part {
        Protocol::Tcp(0) => Protocol::Tcp(port),
        Protocol::Udp(0) => Protocol::Udp(port),
        other => other,
    };
    asked.iter().map(set).collect()
}

/// The most addresses at which others see this node that are passed on.
const SEEN_AT: usize = 4;

/// The task that owns the swarm.
pub(crate) struct SwarmTask {
    pub swarm: Swarm<Behaviour>,
    pub me: PeerId,
    pub peers: LiteMap<PeerId, Peer>,
    pub status: Arc<Status>,
    pub closing: mpsc::UnboundedReceiver<(PeerId, ConnectionId)>,
    /// TCP's congestion control, unless it is the system's default.
    pub congestion: Option<String>,
    /// The encryption of TCP connections.
    pub ciphers: Ciphers,
    /// The addresses of the topology.
    pub dialled: Dialled,
    pub refusals: Refusals,
    pub reservations: Reservations,
    /// Whether relayed connections may carry frames.
    pub relayed: bool,
    /// Where a router forwards ports to this node, if it asks one, and what is passed on of it.
    pub outside: Option<watch::Receiver<Vec<Multiaddr>>>,
    pub forwarded: Vec<Multiaddr>,
    /// What is known of the sites of the run.
    pub sites: Sites,
}

/// The new value of a channel that may not be there, once it has one.
async fn change<T: Clone>(channel: &mut Option<watch::Receiver<T>>) -> Option<T> {
    let channel = channel.as_mut()?;
    channel.changed().await.ok()?;
    Some(channel.borrow_and_update().clone())
}

impl SwarmTask {
    /// Runs until the host is dropped. Dialling begins when addresses arrive.
    pub(crate) async fn run(
        mut self,
        mut addresses: mpsc::UnboundedReceiver<LiteMap<NodeId, Vec<Multiaddr>>>,
    ) {
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.reserve_due();
        loop {
            let waits = self.reservations.lacks_one()
                || self
                    .peers
                    .values()
                    .any(|peer| peer.is_dialled() || peer.held.is_some() || peer.extra.is_some());
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
                Some(forwarded) = change(&mut self.outside) => self.forward(forwarded),
                Some(callers) = change(&mut self.sites.callers) => {
                    let allowed = &mut self.swarm.behaviour_mut().allowed;
                    let is_ours = |peer: &PeerId| !self.peers.contains_key(peer);
                    admit(allowed, &mut self.sites.known, callers, is_ours);
                }
                Some(moved) = change(&mut self.sites.moved) => {
                    let allowed = &mut self.swarm.behaviour_mut().allowed;
                    follow(&moved, &mut self.peers, allowed, &self.dialled);
                }
                _ = tick.tick(), if waits => {
                    self.dial_due();
                    self.reserve_due();
                    for (_, peer) in &mut self.peers {
                        peer.release(None);
                        let told = peer.extra.take_if(|(_, until)| Instant::now() >= *until);
                        told.into_iter().for_each(|(id, _)| _ = self.swarm.close_connection(id));
                    }
                }
            }
        }
    }

    fn begin(&mut self, addresses: &LiteMap<NodeId, Vec<Multiaddr>>) {
        let allowed = &mut self.swarm.behaviour_mut().allowed;
        for relay in addresses.values().flatten().filter_map(relay_of) {
            allowed.allow_peer(relay);
        }
        self.dialled.list(addresses.values().flatten());
        for (_, peer) in &mut self.peers {
            if let Some(addresses) =
                addresses.get(&peer.neighbour.node).filter(|addresses| !addresses.is_empty())
            {
                peer.dial = Some(Dial::new(addresses.clone()));
            } else if !peer.neighbour.addresses.is_empty() {
                peer.dial = Some(Dial::instead(peer.neighbour.addresses.clone()));
            }
        }
    }

    /// Reserves places at relays that are due.
    fn reserve_due(&mut self) {
        let swarm = &mut self.swarm;
        self.reservations.reserve_due(|address| {
            if let Some(relay) = relay_of(&address) {
                swarm.behaviour_mut().allowed.allow_peer(relay);
            }
            swarm.listen_on(address).map_err(|error| root(&error))
        });
    }

    fn dial_due(&mut self) {
        let now = Instant::now();
        for (id, peer) in &mut self.peers {
            let (is_dialled, direct) = (peer.is_dialled(), peer.wants_direct());
            let Some(dial) = peer.dial.as_mut().filter(|_| is_dialled) else { continue };
            if dial.under_way.is_some() || dial.due > now {
                continue;
            }
            let addresses = match direct {
                true => dial.direct(),
                false => vec![dial.addresses[dial.next].clone()],
            };
            tracing::debug!("dialling node {} at {addresses:?}", peer.neighbour.name);
            let condition = if direct { PeerCondition::Always } else { PeerCondition::NotDialing };
            let options = DialOpts::peer_id(*id)
                .condition(condition)
                .addresses(addresses)
                // The pair of the two listening ports may be in use by a connection that is over.
                .allocate_new_port()
                .build();
            let connection = options.connection_id();
            dial.under_way = self.swarm.dial(options).is_ok().then_some(connection);
            if dial.under_way.is_none() {
                dial.wait();
            }
        }
    }

    /// Tells all neighbours that are connected this node's addresses. A relay may say where it sees
    /// this node after the neighbour has connected through it.
    fn announce(&mut self) {
        // Those that are not connected are left out.
        self.swarm.behaviour_mut().identify.push(self.peers.keys().copied());
    }

    /// A router forwards ports to this node at these addresses, and at no others.
    fn forward(&mut self, addresses: Vec<Multiaddr>) {
        for old in self.forwarded.iter().filter(|old| !addresses.contains(old)) {
            self.swarm.remove_external_address(old);
        }
        for address in &addresses {
            self.swarm.add_external_address(address.clone());
        }
        self.forwarded = addresses;
        self.announce();
    }

    /// A connection to a neighbour is open.
    fn established(&mut self, peer_id: &PeerId, id: ConnectionId, endpoint: &ConnectedPoint) {
        let Some(peer) = self.peers.get_mut(peer_id) else { return };
        let relayed = endpoint.is_relayed();
        if let Some(dial) = &mut peer.dial {
            dial.succeeded(relayed);
        }
        if self.is_set_aside(peer_id, id, endpoint) {
            return;
        }
        let Some(peer) = self.peers.get_mut(peer_id) else { return };
        log_connection(peer, endpoint, self.ciphers.of(peer_id).as_deref());
        if !relayed {
            set_options(endpoint, self.congestion.as_deref(), &peer.neighbour.name);
        }
        // One connection per neighbour. Only one end dials, and only if it has none or a relayed
        // one: its newest connection counts.
        let older = peer.connected.replace(id);
        if let Some(older) = older {
            tracing::debug!("node {} connected a second time", peer.neighbour.name);
            let cause = match peer.relayed && !relayed {
                true => "a direct connection replaces the one through a relay",
                false => CONNECTED_AGAIN,
            };
            let cause = cause.into();
            let _ = peer.connection.send(Connection::Closed { id: older, cause });
        }
        let (dialled, address) = (has_dialled(endpoint), endpoint.get_remote_address().to_string());
        (peer.relayed, peer.opened) = (relayed, (dialled, Instant::now()));
        self.status.connected(peer.neighbour.node);
        self.status.set_relayed(peer.neighbour.node, relayed);
        match older.or(peer.idle.take()) {
            Some(old) => {
                let until = Instant::now() + REPLACED;
                peer.held = Some(Held { old, id, dialled, address, until });
                self.swarm.close_connection(old);
            }
            None => {
                let _ = peer.connection.send(Connection::Established { id, dialled, address });
            }
        }
    }

    /// Whether the link does not use a new connection: a relayed one that may carry no frames, the
    /// second of two that crossed, or one of another program with the neighbour's key.
    fn is_set_aside(
        &mut self,
        peer_id: &PeerId,
        id: ConnectionId,
        endpoint: &ConnectedPoint,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(peer_id) else { return true };
        let (relayed, dialled) = (endpoint.is_relayed(), has_dialled(endpoint));
        let name = &peer.neighbour.name;
        if relayed && !self.relayed {
            tracing::debug!("node {name}: connected through a relay, which may carry no frames");
            self.status.trouble(peer.neighbour.node, ONLY_RELAYED.into());
            if let Some(older) = peer.idle.replace(id) {
                self.swarm.close_connection(older);
            }
            return true;
        }
        if !relayed && peer.is_crossed(dialled) && dialled != (self.me < *peer_id) {
            tracing::debug!("node {name}: a second direct connection is closed");
            self.swarm.close_connection(id);
            return true;
        }
        // The link that is up stays; it tells the other program.
        if peer.connected.is_some() && !dialled && peer.programs.are_rivals() {
            let until = Instant::now() + TOLD;
            if let Some((older, _)) = peer.extra.replace((id, until)) {
                self.swarm.close_connection(older);
            }
            return true;
        }
        false
    }

    /// A connection of a neighbour is closed.
    fn closed<E: Error>(&mut self, peer_id: &PeerId, id: ConnectionId, cause: Option<E>) {
        let Some(peer) = self.peers.get_mut(peer_id) else { return };
        peer.release(Some(id));
        if peer.idle == Some(id) {
            peer.idle = None;
            if let Some(dial) = &mut peer.dial {
                dial.closed(Reached::Nothing);
            }
        }
        if peer.connected != Some(id) {
            return;
        }
        peer.disconnected(&self.status);
        let cause = cause.map_or("closed by one of its ends".to_string(), |error| root(&error));
        let guess = format!(
            "connected, then closed ({cause}): does its topology name this node's PeerId {}?",
            self.me
        );
        self.status.closed(peer.neighbour.node, guess);
        let _ = peer.connection.send(Connection::Closed { id, cause });
    }

    /// An attempt to reach a neighbour has failed.
    fn dial_failed(&mut self, peer_id: &PeerId, id: ConnectionId, error: &DialError) {
        let Some(peer) = self.peers.get_mut(peer_id) else { return };
        let direct = peer.wants_direct();
        let Some(dial) = peer.dial.as_mut().filter(|dial| dial.under_way == Some(id)) else {
            return tracing::debug!("node {}: {}", peer.neighbour.name, root(error));
        };
        let Some(address) = dial.addresses.get(dial.next).filter(|_| !direct) else {
            return dial.wait_for_direct();
        };
        if !matches!(error, DialError::DialPeerConditionFalse(_) | DialError::Aborted) {
            let trouble = dial_trouble(error, address, &peer.neighbour);
            tracing::debug!("node {}: {trouble}", peer.neighbour.name);
            if lacks_files(error) {
                note_no_files();
            }
            // Why the neighbour does not dial says more.
            if !dial.is_instead() {
                self.status.trouble(peer.neighbour.node, trouble);
            }
        }
        dial.failed(is_closed(error));
    }

    /// Takes an address at which a relay or a neighbour sees this node. Neighbours hear of it, and
    /// dial it while they are reached through a relay: hole punching over TCP fails if the end that
    /// the other can reach has to act as the client.
    fn seen_at(&mut self, address: Multiaddr) {
        let mut known: Vec<Multiaddr> = self.swarm.external_addresses().cloned().collect();
        if known.contains(&address) {
            return;
        }
        known.retain(|address| !self.forwarded.contains(address));
        if known.len() >= SEEN_AT {
            self.swarm.remove_external_address(&known[0]);
        }
        self.swarm.add_external_address(address);
        self.announce();
    }

    /// A neighbour has said which program it runs, and where it listens.
    fn identified(&mut self, peer_id: &PeerId, info: identify::Info) {
        let Some(peer) = self.peers.get_mut(peer_id) else { return };
        let versions = info.protocols.iter().filter_map(|name| version_of(name.as_ref()));
        let node = peer.neighbour.node;
        self.status.runs(node, versions.max(), &printable(&info.agent_version));
        let direct = peer.wants_direct();
        let dial = peer.dial.get_or_insert_with(|| Dial::new(Vec::new()));
        dial.learn(info.listen_addrs, &self.dialled, direct);
    }

    fn upon(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                self.established(&peer_id, connection_id, &endpoint);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                self.closed(&peer_id, connection_id, cause);
            }
            SwarmEvent::OutgoingConnectionError {
                peer_id: Some(peer_id),
                connection_id,
                error,
            } => {
                self.dial_failed(&peer_id, connection_id, &error);
            }
            SwarmEvent::NewListenAddr { listener_id, .. } => {
                self.reservations.reserved(listener_id);
            }
            SwarmEvent::NewExternalAddrCandidate { address } => self.seen_at(address),
            SwarmEvent::ListenerClosed { listener_id, reason, .. }
                if self.peers.values().any(|peer| !peer.connection.is_closed()) =>
            {
                let reason = reason.err().map_or("it ended".into(), |error| root(&error));
                self.reservations.closed(listener_id, &reason);
            }
            SwarmEvent::IncomingConnectionError { peer_id, send_back_addr, error, .. } => {
                self.refusals.report(peer_id, &send_back_addr, &error);
            }
            SwarmEvent::ListenerError { listener_id, error }
                if !self.reservations.has(listener_id) =>
            {
                let no_files = is_out_of_files(&error);
                no_files.then(note_no_files);
                let hint = if no_files { FILES } else { "" };
                self.status
                    .host_trouble(format!("this host cannot accept connections: {error}{hint}"));
            }
            SwarmEvent::Behaviour(event) => self.upon_behaviour(event),
            _ => {}
        }
    }

    /// Handles what a protocol of libp2p says about a neighbour.
    fn upon_behaviour(&mut self, event: BehaviourEvent) {
        let name = |peer| self.peers.get(&peer).map(|peer: &Peer| &peer.neighbour.name);
        match event {
            BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. }) => {
                self.identified(&peer_id, info);
            }
            BehaviourEvent::Punch(dcutr::Event { remote_peer_id, result: Err(error) }) => {
                if let Some(name) = name(remote_peer_id) {
                    let error = root(&error);
                    tracing::info!(
                        "node {name}: hole punching led to no direct connection: {error}"
                    );
                }
            }
            BehaviourEvent::Ping(ping::Event { peer, result: Ok(rtt), .. }) => {
                if let Some(peer) = self.peers.get(&peer) {
                    self.status.measured(peer.neighbour.node, rtt);
                }
            }
            _ => {}
        }
    }
}

/// Tells the log how a neighbour is connected.
fn log_connection(peer: &Peer, endpoint: &ConnectedPoint, cipher: Option<&str>) {
    let (name, address) = (&peer.neighbour.name, endpoint.get_remote_address());
    let cipher = cipher.filter(|_| !is_quic(endpoint)).unwrap_or("QUIC with TLS 1.3");
    if endpoint.is_relayed() {
        tracing::info!(
            "node {name}: connected through the relay at {address}, {cipher}; a direct connection \
             is tried"
        );
    } else if peer.relayed || peer.idle.is_some() {
        tracing::info!(
            "node {name}: connected directly at {address}, {cipher}; it replaces the connection \
             through a relay"
        );
    } else {
        tracing::debug!("node {name}: connected, {cipher}");
    }
}

/// Sets the options of a direct connection's socket.
fn set_options(endpoint: &ConnectedPoint, congestion: Option<&str>, neighbour: &str) {
    if let Some(ends) = Ends::of(endpoint).filter(|ends| !ends.is_loopback()) {
        sockets::limit_silence(&ends);
        sockets::limit_unsent(&ends);
    }
    if let Some(congestion) = congestion {
        control(congestion, endpoint, neighbour);
    }
}

/// Whether this end is the one that dialled. In a simultaneous open of TCP both ends dial, and one
/// of them acts as the listener; in QUIC one end is the client whatever its role.
fn has_dialled(endpoint: &ConnectedPoint) -> bool {
    match endpoint {
        ConnectedPoint::Dialer { role_override, .. } => {
            *role_override == Role::Dialer || is_quic(endpoint)
        }
        ConnectedPoint::Listener { .. } => false,
    }
}

/// The state of a link that has a relayed connection only, where it needs a direct one.
const ONLY_RELAYED: &str = "connected through a relay only, which carries no frames unless \
                            the experiment says run.relayed = true; a direct connection is tried";

/// Whether a connection is one of QUIC; a relayed one is not.
pub(crate) fn is_quic(endpoint: &ConnectedPoint) -> bool {
    !endpoint.is_relayed()
        && endpoint.get_remote_address().iter().any(|part| part == Protocol::QuicV1)
}

/// Sets a new connection's congestion control.
fn control(name: &str, endpoint: &ConnectedPoint, neighbour: &str) {
    match Ends::of(endpoint).map(|ends| sockets::choose(name, &ends)) {
        Some(Ok(())) => tracing::debug!("node {neighbour}: TCP with {name}"),
        Some(Err(error)) => {
            tracing::warn!("node {neighbour}: TCP keeps the system's congestion control: {error}");
        }
        None => tracing::warn!(
            "node {neighbour}: QUIC has its own congestion control, run.congestion is for TCP"
        ),
    }
}
