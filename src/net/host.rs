//! A libp2p host: one swarm that listens, dials the neighbours assigned to this end, and accepts no
//! other peers.
//!
//! * The end that has an address dials; if both have one, the lower PeerId does
//!   ([`dials`](super::dials)). Addresses are tried one at a time, in file order, with a growing
//!   pause after each full pass, until the link is up or the caller's deadline has passed.
//! * Only PeerIds of the topology may connect: others are refused once their key is known, and
//!   named in the log.
//! * All queues between host and core are bounded: [`SLOTS`] frames out per link, one frame in.

use std::{
    sync::{Arc, mpsc::Sender as Events},
    time::{Duration, Instant},
};

use libp2p::{Multiaddr, PeerId, Swarm, identity::Keypair, swarm::ConnectionId};
use libp2p_stream::Control;
use litemap::LiteMap;
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use super::{
    answers::{Counterpart, Served, probe_protocol, serve},
    documents::{Answers, documents_protocol},
    driver::status::Status,
    link::{
        handshake::{Purpose, protocol},
        hello::RunCard,
        limits::Deadlines,
        programs::Programs,
        session::{Inbox, RETURNED, random},
        task::{Leaving, Link, SLOTS},
    },
    neighbour::Neighbour,
    relay::reservations::{Reservations, is_relayed},
    transport::{
        dialled::Dialled,
        layers::{Connecting, security::Ciphers},
        peers::{Connection, Peer},
        refusals::Refusals,
        sockets::{self, Ends},
        swarm::{Behaviour, SwarmTask, listen, swarm},
    },
};
use crate::{
    cluster::{
        event::Event,
        members::assembly::News,
        statements::{All, Retained},
    },
    config::ConfigError,
    gossip::Cause,
    mixing::Topology,
    status::Board,
    units::NodeId,
};

/// How often a node that has finished looks whether to wait no longer.
const POLL: Duration = Duration::from_millis(100);

/// How long a node that has finished waits for a lost link, if there is no deadline.
pub(super) const MOST_ABSENT: Duration = Duration::from_secs(600);

/// How long a node waits for goodbyes once all nodes have their results.
pub(super) const PARTING: Duration = Duration::from_secs(5);

/// The settings of a host.
pub struct HostConfig {
    /// The key that proves this node's PeerId.
    pub key: Keypair,
    /// The addresses to listen on; port 0 takes a free one.
    pub listen: Vec<Multiaddr>,
    /// The addresses that the topology gives this node: at those of relays it reserves a place.
    pub addresses: Vec<Multiaddr>,
    /// Whether connections through relays may carry frames.
    pub relayed: bool,
    /// This node's number among `nodes`.
    pub node: NodeId,
    /// The number of nodes in the topology.
    pub nodes: usize,
    /// The peers that may connect.
    pub neighbours: Vec<Neighbour>,
    /// The run that this node is about to start.
    pub card: RunCard,
    /// The longest frame that may arrive, in bytes.
    pub frame_limit: usize,
    /// TCP's congestion control, unless it is the system's default.
    pub congestion: Option<String>,
    /// How it connects.
    pub connecting: Connecting,
    /// Where a router forwards ports to this node, if it asks one.
    pub outside: Option<watch::Receiver<Vec<Multiaddr>>>,
    /// How long its tasks wait for neighbours.
    pub deadlines: Deadlines,
    /// Whether this node goes back to a checkpoint when a neighbour's program was started again.
    pub restarts: bool,
    /// While members are chosen: the topology of the run.
    pub assembly: Option<Arc<Topology>>,
    /// What nodes say about themselves.
    pub board: Arc<Board>,
    /// What it answers to sites that ask for documents, if the run has any.
    pub documents: Option<Answers>,
    /// The sender of events to the core.
    pub events: Events<Event>,
}

/// A running host, owned by the thread of the core. Dropping it closes everything.
pub struct Host {
    peer: PeerId,
    listen: Vec<Multiaddr>,
    /// The addresses at relays by which it is reached.
    relays: Vec<Multiaddr>,
    links: LiteMap<NodeId, Handles>,
    leave: watch::Sender<Leaving>,
    statements: watch::Sender<Retained>,
    status: Arc<Status>,
    ciphers: Ciphers,
    connect: mpsc::UnboundedSender<LiteMap<NodeId, Vec<Multiaddr>>>,
    tasks: Vec<JoinHandle<()>>,
    /// Answers neighbours that examine their links.
    answers: JoinHandle<()>,
    /// Answers sites that ask for documents.
    documents: Option<JoinHandle<()>>,
    swarm: JoinHandle<()>,
    runtime: Handle,
    deadlines: Deadlines,
    /// Whether all nodes have written their results.
    is_over: bool,
}

/// The core's ends of a link's queues.
struct Handles {
    frames: mpsc::Sender<Arc<Vec<u8>>>,
    spare: mpsc::Sender<Vec<u8>>,
    news: watch::Sender<Option<News>>,
}

/// What all links of a host have in common.
struct Common<'a> {
    config: &'a HostConfig,
    own: PeerId,
    card: Arc<RunCard>,
    incarnation: u64,
    streams: Control,
    leaving: watch::Receiver<Leaving>,
    statements: watch::Receiver<Retained>,
    status: Arc<Status>,
    close: mpsc::UnboundedSender<(PeerId, ConnectionId)>,
}

impl Common<'_> {
    /// The link to a neighbour, the core's ends of its queues, and the swarm's.
    fn link(
        &self,
        neighbour: &Neighbour,
    ) -> Result<(Link, Handles, mpsc::UnboundedSender<Connection>), ConfigError> {
        let (frames, to_send) = mpsc::channel(SLOTS);
        let (spare, returned) = mpsc::channel(RETURNED);
        let (news, news_receiver) = watch::channel(None);
        let (connection, connections) = mpsc::unbounded_channel();
        let accept = |purpose| {
            let streams = self.streams.clone().accept(protocol(purpose, &neighbour.peer));
            streams.map_err(|error| {
                let problem = format!("node {} is named twice: {error}", neighbour.name);
                ConfigError::at("network", problem)
            })
        };
        let link = Link {
            me: self.config.node,
            nodes: self.config.nodes,
            key: self.config.key.clone(),
            own: self.own,
            node: neighbour.node,
            name: neighbour.name.clone(),
            peer: neighbour.peer,
            unused: neighbour.unused,
            ban: neighbour.ban.clone(),
            assembly: self.config.assembly.clone(),
            card: Arc::clone(&self.card),
            frame_limit: self.config.frame_limit,
            deadlines: self.config.deadlines,
            streams: self.streams.clone(),
            connections,
            inbound_control: accept(Purpose::Control)?,
            inbound_bulk: accept(Purpose::Bulk)?,
            frames: Arc::new(Mutex::new(to_send)),
            inbox: Arc::new(Mutex::new(Inbox::new(returned))),
            outbox: Arc::default(),
            incarnation: self.incarnation,
            restarts: self.config.restarts,
            known: 0,
            programs: Programs::of(self.own, neighbour.peer),
            address: String::new(),
            lost: None,
            before: None,
            left: None,
            news: news_receiver,
            leaving: self.leaving.clone(),
            statements: self.statements.clone(),
            events: self.config.events.clone(),
            status: Arc::clone(&self.status),
            close: self.close.clone(),
        };
        let handles = Handles { frames, spare, news };
        Ok((link, handles, connection))
    }
}

/// A swarm that listens, with its addresses.
async fn listening(
    config: &HostConfig,
    ciphers: &Ciphers,
    dialled: &Dialled,
) -> Result<(Swarm<Behaviour>, Vec<Multiaddr>), ConfigError> {
    if let Some(name) = &config.congestion {
        sockets::check(name)?;
    }
    let mut swarm = swarm(&config.key, &config.neighbours, &config.connecting, ciphers, dialled)?;
    let addresses = listen(&mut swarm, &config.listen).await?;
    if let Some(name) = &config.congestion {
        // Accepted connections inherit it, from their first packet on.
        addresses.iter().filter_map(Ends::listening).try_for_each(|ends| {
            sockets::choose(name, &ends)
                .map_err(|error| ConfigError::new("run.congestion", format!("\"{name}\""), error))
        })?;
    }
    Ok((swarm, addresses))
}

/// Answers neighbours that examine their links, until the run begins.
fn answer_probes(streams: &Control, status: &Arc<Status>) -> Result<JoinHandle<()>, ConfigError> {
    let probes = streams.clone().accept(probe_protocol()).map_err(|error| {
        ConfigError::at("network", format!("links cannot be examined: {error}"))
    })?;
    let status = Arc::clone(status);
    let waits = move || !status.has_started();
    Ok(tokio::spawn(serve(probes, Counterpart::Node, Served::default(), waits)))
}

/// Answers sites that ask for documents, as long as the host runs.
fn answer_sites(
    streams: &Control,
    answers: Option<&Answers>,
) -> Result<Option<JoinHandle<()>>, ConfigError> {
    let Some(answers) = answers else { return Ok(None) };
    let incoming = streams.clone().accept(documents_protocol());
    let incoming = incoming.map_err(|error| ConfigError::at("network", error.to_string()))?;
    Ok(Some(tokio::spawn(answers.clone().serve(incoming))))
}

/// The value may have changed before this host was there.
fn changed<T>(mut outside: watch::Receiver<T>) -> watch::Receiver<T> {
    outside.mark_changed();
    outside
}

impl Host {
    /// Starts to listen; [`Host::connect`] starts to dial.
    ///
    /// # Errors
    /// If it cannot listen on an address (a port in use, say).
    pub async fn start(config: HostConfig) -> Result<Host, ConfigError> {
        let (peer, ciphers) = (config.key.public().to_peer_id(), Ciphers::default());
        let dialled = Dialled::default();
        dialled.list(config.addresses.iter());
        let (swarm, listen) = listening(&config, &ciphers, &dialled).await?;
        let used = config.neighbours.iter().filter(|neighbour| !neighbour.unused);
        let used = used.map(|neighbour| neighbour.node);
        let status = Arc::new(Status::new(used, Arc::clone(&config.board)));
        let (leave, leaving) = watch::channel(None);
        let (tell, statements) = watch::channel(Retained::default());
        let (close, closing) = mpsc::unbounded_channel();
        let common = Common {
            own: peer,
            card: Arc::new(config.card.clone()),
            incarnation: random(),
            streams: swarm.behaviour().streams.new_control(),
            leaving,
            statements,
            status: Arc::clone(&status),
            close,
            config: &config,
        };
        let (mut peers, mut links, mut tasks) = (LiteMap::new(), LiteMap::new(), Vec::new());
        for neighbour in &config.neighbours {
            let (link, handles, connection) = common.link(neighbour)?;
            peers.insert(neighbour.peer, Peer::new(peer, neighbour.clone(), connection));
            links.insert(neighbour.node, handles);
            tasks.push(tokio::spawn(link.run()));
        }
        let answers = answer_probes(&common.streams, &status)?;
        let documents = answer_sites(&common.streams, config.documents.as_ref())?;
        let (connect, addresses) = mpsc::unbounded_channel();
        let task = SwarmTask {
            swarm,
            me: peer,
            peers,
            status: Arc::clone(&status),
            closing,
            congestion: config.congestion,
            ciphers: ciphers.clone(),
            dialled,
            refusals: Refusals::new("it is not a neighbour of this node in the topology"),
            reservations: Reservations::new(&config.addresses),
            relayed: config.relayed,
            outside: config.outside.map(changed),
            forwarded: Vec::new(),
            sites: config.documents.as_ref().map(Answers::sites).unwrap_or_default(),
        };
        Ok(Host {
            peer,
            listen,
            relays: config.addresses.into_iter().filter(is_relayed).collect(),
            links,
            leave,
            statements: tell,
            status,
            ciphers,
            connect,
            tasks,
            answers,
            documents,
            swarm: tokio::spawn(task.run(addresses)),
            runtime: Handle::current(),
            deadlines: config.deadlines,
            is_over: false,
        })
    }

    pub(crate) fn peer(&self) -> PeerId {
        self.peer
    }

    /// How the newest TCP connection with this peer is encrypted, such as `TLS 1.3,
    /// TLS13_AES_256_GCM_SHA384`.
    pub fn cipher(&self, peer: &PeerId) -> Option<String> {
        self.ciphers.of(peer)
    }

    /// The addresses on which it listens, with their real ports.
    pub fn listen_addresses(&self) -> &[Multiaddr] {
        &self.listen
    }

    /// Starts to dial these neighbours; the others will dial this node.
    pub fn connect(&self, addresses: impl IntoIterator<Item = (NodeId, Vec<Multiaddr>)>) {
        let addresses = LiteMap::from_iter(addresses);
        let all = self.listen.iter().chain(&self.relays);
        let ours = all.map(ToString::to_string).collect::<Vec<_>>().join(", ");
        for &node in self.links.keys().filter(|node| !addresses.contains_key(node)) {
            let what = format!(
                "it dials this node, which listens on {ours}, but has not connected: is it \
                 running, does its topology name this \
                 node's address and PeerId {}, is the port open?",
                self.peer
            );
            self.status.trouble(node, what);
        }
        let _ = self.connect.send(addresses);
    }

    /// Queues a frame on a link. The core sends no more than `SLOTS` at a time, so there is room.
    pub fn send(&mut self, to: NodeId, frame: Arc<Vec<u8>>) {
        if let Some(link) = self.links.get(&to) {
            // If the link broke meanwhile, its event is on the way, and the frame is dropped.
            if let Err(mpsc::error::TrySendError::Full(_)) = link.frames.try_send(frame) {
                unreachable!("the core hands over at most {SLOTS} frames of a link at a time");
            }
        }
    }

    /// Sends what this node knows about the members. It replaces what was not sent yet.
    pub(crate) fn send_news(&self, to: NodeId, news: News) {
        if let Some(link) = self.links.get(&to) {
            link.news.send_replace(Some(news));
        }
    }

    /// Tells all neighbours what nodes say.
    #[cfg(feature = "internals")]
    pub fn say(&self, statements: Vec<crate::cluster::statements::Statement>) {
        let numbered = (1..).zip(statements.into_iter().map(Arc::new)).collect();
        self.tell(Arc::new(All { statements: numbered, histories: Vec::new() }));
    }

    /// Tells all neighbours those of these statements that are news on their connections.
    pub(crate) fn tell(&self, statements: Retained) {
        self.statements.send_replace(statements);
    }

    /// Returns a frame's buffer: the link may deliver its next frame.
    pub fn recycle(&mut self, from: NodeId, buffer: Vec<u8>) {
        if let Some(link) = self.links.get(&from) {
            let _ = link.spare.try_send(buffer);
        }
    }

    /// All nodes have written their results: a lost link is not awaited.
    pub(crate) fn set_over(&mut self) {
        self.is_over = true;
    }

    /// The state of the links.
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Says goodbye once the neighbours have all frames, waits for their goodbyes, and closes. With
    /// a `reason` the run ends early: then it writes no more frames. `stop` is called again and
    /// again and returns whether to wait no longer.
    pub fn finish(mut self, reason: Option<Cause>, stop: &mut dyn FnMut() -> bool) {
        let Deadlines { goodbye, absence, .. } = self.deadlines;
        let within = match reason {
            Some(_) => Duration::from_secs(1),
            // No node needs another one any more.
            None if self.is_over => PARTING,
            // A lost link whose frames have not arrived ends by its own deadline.
            None => goodbye + absence.unwrap_or(MOST_ABSENT),
        };
        self.links.clear();
        let _ = self.leave.send(Some(reason));
        let tasks = std::mem::take(&mut self.tasks);
        let mut all = futures::future::join_all(tasks);
        let started = Instant::now();
        let ended = self.runtime.block_on(async {
            loop {
                if timeout(POLL, &mut all).await.is_ok() {
                    return true;
                }
                if started.elapsed() >= within || stop() {
                    return false;
                }
            }
        });
        if !ended {
            tracing::debug!("not every neighbour said goodbye within {:?}", started.elapsed());
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.swarm.abort();
        self.answers.abort();
        self.documents.iter().for_each(JoinHandle::abort);
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
