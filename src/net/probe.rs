//! Examines the links of a node before a run: which addresses answer, how long a round trip takes,
//! and how much each direction carries.
//!
//! The neighbour runs a node that waits for the run to begin, or examines its own links at the same
//! time; [`super::answers`] has the requests.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::{
    Multiaddr, PeerId, Stream, Swarm,
    core::ConnectedPoint,
    identify,
    swarm::{
        ConnectionId, DialError, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use libp2p_stream::IncomingStreams;
use litemap::LiteMap;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{self, timeout},
};

use super::{
    Place, VERSION,
    answers::{CHUNK, Counterpart, STEP, Served, TRIPS, clock, probe_protocol, send_for, serve},
    link::{
        handshake::{Purpose, protocol},
        session::random,
        wire::{self, Message},
    },
    neighbour::Neighbour,
    relay::reservations::{Reservations, relay_of},
    runtime::{SHUTDOWN, runtime},
    transport::{
        dial::{dial_trouble, root},
        dialled::Dialled,
        layers::security::Ciphers,
        swarm::{Behaviour, BehaviourEvent, is_quic, listen, swarm},
    },
    upnp::Forwarding,
};
use crate::{config::ConfigError, drive::RunError, units::NodeId};

/// The number of further attempts to measure a link, and the least pause between two.
const ATTEMPTS: usize = 3;
const PAUSE: Duration = Duration::from_millis(300);

/// How long a direct connection may take where there is one through a relay.
const PUNCH: Duration = Duration::from_secs(5);

/// One address of a neighbour.
#[derive(Clone, Debug)]
pub struct Reach {
    /// As the topology has it.
    pub address: Multiaddr,
    /// The seconds until the connection was secured, or why there is none.
    pub connected: Result<f64, String>,
}

/// What a link can do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Measured {
    /// The command that runs there.
    pub counterpart: Counterpart,
    /// The address of the connection.
    pub address: Multiaddr,
    /// Whether it leads through a relay.
    pub relayed: bool,
    /// The protocol that encrypts it, with its cipher if that is known.
    pub cipher: String,
    /// The median round trip, in seconds.
    pub round_trip_s: f64,
    /// The neighbour's clock minus this one's, in seconds, to within half a round trip.
    pub clock_s: f64,
    /// Bytes a second to the neighbour.
    pub sent: f64,
    /// Bytes a second from it.
    pub received: f64,
}

/// A neighbour, and whether each of its addresses and the link work.
#[derive(Clone, Debug)]
pub struct Examined {
    /// Its number in the topology.
    pub node: NodeId,
    /// Its name in the topology.
    pub name: String,
    /// Its addresses in the topology.
    pub addresses: Vec<Reach>,
    /// Where it sees this node, if it said so.
    pub sees: Option<Multiaddr>,
    /// The link, or why it could not be measured.
    pub link: Result<Measured, String>,
}

/// A relay at which the topology gives this node an address.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AtRelay {
    /// As the topology has it, relay included.
    pub address: Multiaddr,
    /// Whether a place is reserved there, or why not.
    pub reserved: Result<(), String>,
    /// Where the relay sees this node.
    pub sees: Option<Multiaddr>,
}

/// All links of a node.
#[derive(Debug)]
#[non_exhaustive]
pub struct Examination {
    /// The addresses of this node: each as it listens, or why it cannot.
    pub listening: Vec<Result<Multiaddr, ConfigError>>,
    /// The relays at which the topology gives it an address.
    pub relays: Vec<AtRelay>,
    /// If it asks its router for ports: each address, and where it is reached from outside, or why
    /// it is not.
    pub forwarded: Vec<(Multiaddr, Result<Multiaddr, String>)>,
    /// All neighbours, those that were not reached too.
    pub neighbours: Vec<Examined>,
}

/// The limits of an examination.
#[derive(Clone, Copy, Debug)]
pub struct ProbeLimits {
    /// How long to wait for neighbours that do not answer.
    pub wait: Duration,
    /// How long to send each way.
    pub send: Duration,
}

/// Examines all links of a node, one neighbour after the other. It takes the node's place: the node
/// must not run meanwhile.
///
/// # Errors
/// If the network's threads cannot be started, or the host cannot be set up.
pub fn examine(place: &Place, limits: ProbeLimits) -> Result<Examination, RunError> {
    let runtime = runtime()?;
    let result = runtime.block_on(Prober::start(place, limits)).map_err(RunError::Setup);
    // The lookup of a name can still be under way.
    runtime.shutdown_timeout(SHUTDOWN);
    result
}

enum Command {
    Dial(PeerId, Multiaddr, oneshot::Sender<Result<ConnectionId, DialError>>),
    Close(ConnectionId),
}

#[derive(Clone, Debug)]
struct Open {
    id: ConnectionId,
    address: Multiaddr,
    quic: bool,
    relayed: bool,
}

#[derive(Default)]
struct Known {
    open: LiteMap<PeerId, Vec<Open>>,
    sees: LiteMap<PeerId, Multiaddr>,
    reserved: Vec<(Multiaddr, Result<(), String>)>,
}

type Shared = Arc<Mutex<Known>>;

struct Prober {
    limits: ProbeLimits,
    own: PeerId,
    commands: mpsc::UnboundedSender<Command>,
    streams: libp2p_stream::Control,
    known: Shared,
    ciphers: Ciphers,
}

impl Prober {
    async fn start(place: &Place, limits: ProbeLimits) -> Result<Examination, ConfigError> {
        let ciphers = Ciphers::default();
        let dialled = Dialled::default();
        dialled.list(place.own_addresses.iter());
        let mut swarm =
            swarm(&place.key, &place.neighbours, &place.connecting, &ciphers, &dialled)?;
        let mut listening = Vec::new();
        for address in &place.listen {
            let found = listen(&mut swarm, std::slice::from_ref(address)).await;
            listening.push(found.map(|mut found| found.remove(0)));
        }
        // If the node runs already, its connections and its ports must not be taken from it.
        let may_run = listening.iter().any(Result::is_err);
        let mut forwarding = Forwarding::default();
        if place.upnp && !may_run {
            let open: Vec<Multiaddr> = listening.iter().flatten().cloned().collect();
            forwarding.start(&open);
        }
        for relay in place.addresses().filter_map(relay_of) {
            swarm.behaviour_mut().allowed.allow_peer(relay);
        }
        let mut streams = swarm.behaviour().streams.new_control();
        let busy = |error| ConfigError::at("network", format!("{error}"));
        let served = Served::default();
        let incoming = streams.accept(probe_protocol()).map_err(busy)?;
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(incoming, Counterpart::Probe, served.clone(), || true));
        for neighbour in &place.neighbours {
            // A node that dials opens its control stream and waits for a hello.
            let controls = protocol(Purpose::Control, &neighbour.peer);
            tasks.spawn(say_probe(streams.accept(controls).map_err(busy)?));
        }
        let (commands, queue) = mpsc::unbounded_channel();
        let known = Shared::default();
        let own = place.key.public().to_peer_id();
        let reservations = Reservations::new(&place.own_addresses);
        let dials = LiteMap::new();
        let swarm = ProbeSwarm { swarm, reservations, dials, known: Arc::clone(&known) };
        tasks.spawn(swarm.run(queue));
        let prober = Prober { limits, own, commands, streams, known, ciphers };
        let mut neighbours = Vec::new();
        for neighbour in &place.neighbours {
            neighbours.push(if may_run {
                let (node, name) = (neighbour.node, neighbour.name.clone());
                let link =
                    Err("not examined: this node cannot listen; does it run already?".into());
                Examined { node, name, addresses: Vec::new(), sees: None, link }
            } else {
                prober.examine(place, neighbour).await
            });
        }
        prober.linger(place, &neighbours, &served).await;
        let forwarded = answered(&forwarding, place.upnp && !may_run).await;
        tasks.shutdown().await;
        let known = prober.lock();
        let relays = known.reserved.iter().map(|(address, reserved)| AtRelay {
            address: address.clone(),
            reserved: reserved.clone(),
            sees: relay_of(address).and_then(|relay| known.sees.get(&relay).cloned()),
        });
        let relays = relays.collect();
        drop(known);
        Ok(Examination { listening, relays, forwarded, neighbours })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, peer: &PeerId) -> Option<Open> {
        self.lock().open.get(peer)?.last().cloned()
    }

    async fn examine(&self, place: &Place, neighbour: &Neighbour) -> Examined {
        let addresses = place.addresses_of(neighbour.node);
        let mut reached = Vec::new();
        let until = Instant::now() + self.limits.wait;
        loop {
            reached.clear();
            for address in addresses {
                reached.push(self.reach(neighbour, address).await);
            }
            if self.open(&neighbour.peer).is_some() || Instant::now() >= until {
                break;
            }
            // It may start later, or dial this node.
            time::sleep(Duration::from_millis(500)).await;
        }
        self.await_direct(&neighbour.peer).await;
        let mut link = self.try_measure(neighbour).await;
        // Two ends that dial at the same time may each close the other's connection.
        for _ in 0..ATTEMPTS {
            if link.is_ok() || !reached.iter().any(|reach| reach.connected.is_ok()) {
                break;
            }
            time::sleep(PAUSE.mul_f64(1.0 + random() as f64 / u64::MAX as f64)).await;
            if self.open(&neighbour.peer).is_none() {
                for reach in reached.iter().filter(|reach| reach.connected.is_ok()) {
                    self.reach(neighbour, &reach.address).await;
                }
            }
            link = self.try_measure(neighbour).await;
        }
        let sees = self.lock().sees.get(&neighbour.peer).cloned();
        let (node, name) = (neighbour.node, neighbour.name.clone());
        Examined { node, name, addresses: reached, sees, link }
    }

    /// Gives two nodes that are connected through a relay time to connect directly.
    async fn await_direct(&self, peer: &PeerId) {
        let until = Instant::now() + PUNCH;
        while self.open(peer).is_some_and(|open| open.relayed) && Instant::now() < until {
            time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn try_measure(&self, neighbour: &Neighbour) -> Result<Measured, String> {
        let Some(open) = self.open(&neighbour.peer) else {
            return Err("there is no connection".into());
        };
        let within = 2 * STEP + 3 * self.limits.send;
        match timeout(within, self.measure(neighbour, open)).await {
            Ok(measured) => measured,
            Err(_) => Err("its answers took too long".into()),
        }
    }

    /// Dials one address. A second connection to the same neighbour is closed again.
    async fn reach(&self, neighbour: &Neighbour, address: &Multiaddr) -> Reach {
        let (reply, answer) = oneshot::channel();
        let begin = Instant::now();
        let had_one = self.open(&neighbour.peer).is_some();
        let _ = self.commands.send(Command::Dial(neighbour.peer, address.clone(), reply));
        let connected = match timeout(STEP, answer).await {
            Ok(Ok(Ok(id))) => {
                if had_one {
                    let _ = self.commands.send(Command::Close(id));
                }
                Ok(begin.elapsed().as_secs_f64())
            }
            Ok(Ok(Err(error))) => Err(dial_trouble(&error, address, neighbour)),
            Ok(Err(_)) => Err("the host closes".into()),
            Err(_) => Err(format!(
                "dialling {address}: no answer; is it running, is its port open in the firewall?"
            )),
        };
        Reach { address: address.clone(), connected }
    }

    async fn measure(&self, neighbour: &Neighbour, open: Open) -> Result<Measured, String> {
        let mut streams = self.streams.clone();
        let peer = neighbour.peer;
        // A node waits for the control stream of the end that dialled.
        if let Ok(mut control) =
            streams.open_stream(peer, protocol(Purpose::Control, &self.own)).await
        {
            let _ = wire::write(&mut control, &Message::Probe).await;
            // The stream stays open until the neighbour closes it.
            tokio::spawn(async move {
                let _ = timeout(STEP, wire::read(&mut control)).await;
            });
        }
        let broke = |error: std::io::Error| format!("the connection broke: {error}");
        let mut stream = self.stream(peer).await?;
        stream.write_all(b"t").await.map_err(broke)?;
        let (mut trips, mut clocks) = (Vec::new(), Vec::new());
        let mut counterpart = Counterpart::Node;
        for _ in 0..TRIPS {
            let (before, begin) = (clock(), Instant::now());
            stream.write_all(&[0]).await.map_err(broke)?;
            stream.flush().await.map_err(broke)?;
            let mut bytes = [0; 9];
            stream.read_exact(&mut bytes).await.map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => "it answers no questions about its link: has \
                                                      its run begun?"
                    .to_string(),
                _ => broke(error),
            })?;
            let trip = begin.elapsed().as_secs_f64();
            let theirs = u64::from_le_bytes(bytes[1..].try_into().expect("8 bytes"));
            clocks.push((trip, theirs as f64 / 1e9 - (before as f64 / 1e9 + trip / 2.0)));
            trips.push(trip);
            if bytes[0] == 1 {
                counterpart = Counterpart::Probe;
            }
        }
        drop(stream);
        trips.sort_by(f64::total_cmp);
        // The shortest round trip says most about the clock.
        clocks.sort_by(|a, b| a.0.total_cmp(&b.0));
        let sent = self.upload(peer).await.map_err(|error| format!("sending: {error}"))?;
        let received = self.download(peer).await.map_err(|error| format!("receiving: {error}"))?;
        let cipher = if open.quic { None } else { self.ciphers.of(&peer) };
        Ok(Measured {
            counterpart,
            address: open.address,
            relayed: open.relayed,
            cipher: cipher.unwrap_or_else(|| "QUIC with TLS 1.3".into()),
            round_trip_s: trips[trips.len() / 2],
            clock_s: clocks[0].1,
            sent,
            received,
        })
    }

    async fn stream(&self, peer: PeerId) -> Result<Stream, String> {
        let opened = timeout(STEP, self.streams.clone().open_stream(peer, probe_protocol())).await;
        match opened {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(libp2p_stream::OpenStreamError::UnsupportedProtocol(_))) => Err(format!(
                "it speaks another protocol version than {VERSION}: install the same release of \
                 gradvine on both"
            )),
            Ok(Err(error)) => Err(format!("no stream could be opened: {error}")),
            Err(_) => Err("no stream could be opened in time".into()),
        }
    }

    /// Bytes a second to the neighbour.
    async fn upload(&self, peer: PeerId) -> Result<f64, String> {
        let broke = |error: std::io::Error| format!("the connection broke: {error}");
        let mut stream = self.stream(peer).await?;
        stream.write_all(b"u").await.map_err(broke)?;
        send_for(&mut stream, self.limits.send).await.map_err(broke)?;
        stream.close().await.map_err(broke)?;
        let mut bytes = [0; 16];
        stream.read_exact(&mut bytes).await.map_err(broke)?;
        let [count, nanos] =
            [&bytes[..8], &bytes[8..]].map(|part| u64::from_le_bytes(part.try_into().expect("8")));
        Ok(rate(count, nanos as f64 / 1e9))
    }

    /// Bytes a second from the neighbour.
    async fn download(&self, peer: PeerId) -> Result<f64, String> {
        let broke = |error: std::io::Error| format!("the connection broke: {error}");
        let mut stream = self.stream(peer).await?;
        let millis = (self.limits.send.as_millis() as u32).to_le_bytes();
        stream.write_all(&[&b"d"[..], &millis].concat()).await.map_err(broke)?;
        stream.flush().await.map_err(broke)?;
        let (mut count, mut first, mut last) = (0u64, None, Instant::now());
        let mut chunk = vec![0; CHUNK];
        loop {
            let read = stream.read(&mut chunk).await.map_err(broke)?;
            if read == 0 {
                break;
            }
            last = Instant::now();
            match first {
                None => first = Some(last),
                Some(_) => count += read as u64,
            }
        }
        Ok(rate(count, first.map_or(0.0, |first| (last - first).as_secs_f64())))
    }

    /// Waits until neighbours that examine their links too have had their answers.
    async fn linger(&self, place: &Place, neighbours: &[Examined], served: &Served) {
        let waits = |one: &&Examined| {
            one.link.as_ref().is_ok_and(|link| link.counterpart == Counterpart::Probe)
        };
        let waiting: Vec<PeerId> = (neighbours.iter().filter(waits))
            .filter_map(|one| {
                let found = place.neighbours.iter().find(|known| known.node == one.node)?;
                Some(found.peer)
            })
            .collect();
        let until = Instant::now() + self.limits.wait + 4 * self.limits.send;
        while Instant::now() < until
            && waiting.iter().any(|peer| !served.has(peer) && self.open(peer).is_some())
        {
            time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// What the router has answered, or will soon if it is `asked`.
async fn answered(
    forwarding: &Forwarding,
    asked: bool,
) -> Vec<(Multiaddr, Result<Multiaddr, String>)> {
    let until = Instant::now() + STEP;
    while asked && forwarding.outcomes().is_empty() && Instant::now() < until {
        time::sleep(Duration::from_millis(100)).await;
    }
    forwarding.outcomes()
}

fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 }
}

/// Answers the control streams of a node that dials: it learns that its link is examined.
async fn say_probe(mut incoming: IncomingStreams) {
    let mut kept = JoinSet::new();
    while let Some((_, mut stream)) = incoming.next().await {
        kept.spawn(async move {
            let _ = wire::read(&mut stream).await;
            let _ = wire::write(&mut stream, &Message::Probe).await;
            let _ = wire::read(&mut stream).await;
        });
    }
}

/// The swarm of an examination.
struct ProbeSwarm {
    swarm: Swarm<Behaviour>,
    reservations: Reservations,
    /// Who waits for which attempt to connect.
    dials: LiteMap<ConnectionId, oneshot::Sender<Result<ConnectionId, DialError>>>,
    known: Shared,
}

impl ProbeSwarm {
    /// Runs until nobody can send commands.
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut tick = time::interval(PAUSE);
        loop {
            tokio::select! {
                _ = tick.tick() => self.reserve_due(),
                command = commands.recv() => match command {
                    None => return,
                    Some(command) => self.perform(command),
                },
                event = self.swarm.select_next_some() => self.upon(event),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve_due(&mut self) {
        self.reservations
            .reserve_due(|address| self.swarm.listen_on(address).map_err(|error| root(&error)));
        let reserved = self.reservations.states();
        self.lock().reserved = reserved;
    }

    fn perform(&mut self, command: Command) {
        match command {
            Command::Close(id) => drop(self.swarm.close_connection(id)),
            Command::Dial(peer, address, reply) => {
                let options = DialOpts::peer_id(peer)
                    .condition(PeerCondition::Always)
                    .addresses(vec![address])
                    .allocate_new_port()
                    .build();
                let id = options.connection_id();
                match self.swarm.dial(options) {
                    Ok(()) => drop(self.dials.insert(id, reply)),
                    Err(error) => drop(reply.send(Err(error))),
                }
            }
        }
    }

    fn established(&mut self, peer: PeerId, id: ConnectionId, endpoint: &ConnectedPoint) {
        let (quic, relayed) = (is_quic(endpoint), endpoint.is_relayed());
        let address = endpoint.get_remote_address().clone();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let all = known.open.entry(peer).or_default();
        // A direct connection replaces those through relays.
        for old in all.iter().filter(|old| old.relayed && !relayed) {
            self.swarm.close_connection(old.id);
        }
        all.push(Open { id, address, quic, relayed });
        if let Some(reply) = self.dials.remove(&id) {
            let _ = reply.send(Ok(id));
        }
    }

    fn upon(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                self.established(peer_id, connection_id, &endpoint);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, .. } => {
                if let Some(open) = self.lock().open.get_mut(&peer_id) {
                    open.retain(|open| open.id != connection_id);
                }
            }
            SwarmEvent::OutgoingConnectionError { connection_id, error, .. } => {
                if let Some(reply) = self.dials.remove(&connection_id) {
                    let _ = reply.send(Err(error));
                }
            }
            SwarmEvent::Behaviour(BehaviourEvent::Identify(identify::Event::Received {
                peer_id,
                info,
                ..
            })) => {
                self.lock().sees.insert(peer_id, info.observed_addr);
            }
            SwarmEvent::NewListenAddr { listener_id, .. } => {
                self.reservations.reserved(listener_id);
            }
            SwarmEvent::ListenerClosed { listener_id, reason, .. } => {
                let reason = reason.err().map_or("it ended".into(), |error| root(&error));
                self.reservations.closed(listener_id, &reason);
            }
            _ => {}
        }
    }
}
