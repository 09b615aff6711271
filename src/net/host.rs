//! A libp2p host: one swarm that listens, dials the neighbours that are ours to dial, and lets
//! nobody else in.
//!
//! * The end that has an address dials; if both have one, the lower PeerId does
//!   ([`dials`](super::dials)). Addresses are tried singly, in file order, with a growing pause
//!   after each full turn, until the link is up or the caller's deadline has passed.
//! * Only PeerIds of the topology may connect: others are refused once their key is known, and
//!   named in the log.
//! * Between host and core there are bounded queues only: [`SLOTS`] frames out a link, one frame
//!   in.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender as Events,
    },
    time::Duration,
};

use libp2p::{Multiaddr, PeerId, identity::Keypair};
use tokio::{
    runtime::Handle,
    sync::{Mutex, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use super::{
    congestion::{self, Ends},
    event::Event,
    hello::Card,
    link::{Deadlines, Farewell, Link, Purpose, SLOTS, protocol},
    status::Status,
    swarm::{Peer, SwarmTask, listen, swarm},
    wire::Word,
};
use crate::{config::ConfigError, gossip::Cause, units::NodeId};

/// A neighbour as the topology names it.
#[derive(Clone, Debug)]
pub struct Neighbour {
    /// Its number.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its key's hash.
    pub peer: PeerId,
}

/// What a host needs.
pub struct HostConfig {
    /// This node's key.
    pub key: Keypair,
    /// Where to listen; port 0 takes a free one.
    pub listen: Vec<Multiaddr>,
    /// This node's number.
    pub node: NodeId,
    /// How many nodes the topology has.
    pub nodes: usize,
    /// Who may connect.
    pub neighbours: Vec<Neighbour>,
    /// What this node is about to run.
    pub card: Card,
    /// The longest frame that may arrive, in bytes.
    pub frame_limit: usize,
    /// TCP's congestion control, if not the system's.
    pub congestion: Option<String>,
    /// How long things may take.
    pub deadlines: Deadlines,
    /// To the core.
    pub events: Events<Event>,
}

/// A running host, as its core's thread holds it. Dropping it closes everything.
pub struct Host {
    peer: PeerId,
    listen: Vec<Multiaddr>,
    links: BTreeMap<NodeId, Handles>,
    farewell: watch::Sender<Farewell>,
    status: Arc<Status>,
    connect: mpsc::UnboundedSender<BTreeMap<NodeId, Vec<Multiaddr>>>,
    tasks: Vec<JoinHandle<()>>,
    swarm: JoinHandle<()>,
    runtime: Handle,
    goodbye: Duration,
}

/// The core's ends of a link's queues.
struct Handles {
    frames: mpsc::Sender<Arc<Vec<u8>>>,
    spare: mpsc::Sender<Vec<u8>>,
    words: watch::Sender<Option<Word>>,
    applied: Arc<AtomicU64>,
}

impl Host {
    /// Starts listening; dialling begins with [`Host::connect`].
    ///
    /// # Errors
    /// If an address cannot be listened on (a port in use, say).
    pub async fn start(config: HostConfig) -> Result<Host, ConfigError> {
        let peer = config.key.public().to_peer_id();
        if let Some(name) = &config.congestion {
            congestion::check(name)?;
        }
        let mut swarm = swarm(&config)?;
        let listen = listen(&mut swarm, &config.listen).await?;
        if let Some(name) = &config.congestion {
            // What is accepted inherits it, from its first packet on.
            listen.iter().filter_map(Ends::listening).try_for_each(|ends| {
                congestion::choose(name, &ends).map_err(|error| {
                    ConfigError::new("run.congestion", format!("\"{name}\""), error)
                })
            })?;
        }
        let status =
            Arc::new(Status::new(config.neighbours.iter().map(|neighbour| neighbour.node)));
        let (farewell, leaving) = watch::channel(None);
        let (close, closing) = mpsc::unbounded_channel();
        let mut peers = BTreeMap::new();
        let mut links = BTreeMap::new();
        let mut tasks = Vec::new();
        let streams = swarm.behaviour().streams.new_control();
        let card = Arc::new(config.card);
        for neighbour in &config.neighbours {
            let (frames, to_send) = mpsc::channel(SLOTS);
            let (spare, returned) = mpsc::channel(SLOTS);
            let (words, to_say) = watch::channel(None);
            let (connection, connections) = mpsc::unbounded_channel();
            let applied = Arc::new(AtomicU64::new(0));
            peers.insert(
                neighbour.peer,
                Peer { neighbour: neighbour.clone(), connection, connected: None, dial: None },
            );
            links.insert(
                neighbour.node,
                Handles { frames, spare, words, applied: Arc::clone(&applied) },
            );
            let accept = |purpose| {
                let streams = streams.clone().accept(protocol(purpose, &neighbour.peer));
                streams.map_err(|error| {
                    ConfigError::at(
                        "network",
                        format!("node {} is named twice: {error}", neighbour.name),
                    )
                })
            };
            let link = Link {
                me: config.node,
                nodes: config.nodes,
                own: peer,
                node: neighbour.node,
                name: neighbour.name.clone(),
                peer: neighbour.peer,
                card: Arc::clone(&card),
                frame_limit: config.frame_limit,
                deadlines: config.deadlines,
                streams: streams.clone(),
                connections,
                inbound_control: accept(Purpose::Control)?,
                inbound_bulk: accept(Purpose::Bulk)?,
                frames: Arc::new(Mutex::new(to_send)),
                spare: Arc::new(Mutex::new(returned)),
                words: to_say,
                applied,
                farewell: leaving.clone(),
                events: config.events.clone(),
                status: Arc::clone(&status),
                close: close.clone(),
            };
            tasks.push(tokio::spawn(link.run()));
        }
        let (connect, addresses) = mpsc::unbounded_channel();
        let task = SwarmTask {
            swarm,
            me: peer,
            peers,
            status: Arc::clone(&status),
            closing,
            congestion: config.congestion,
        };
        Ok(Host {
            peer,
            listen,
            links,
            farewell,
            status,
            connect,
            tasks,
            swarm: tokio::spawn(task.run(addresses)),
            runtime: Handle::current(),
            goodbye: config.deadlines.goodbye,
        })
    }

    /// This node's PeerId.
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// Where it listens, ports filled in.
    pub fn listen_addresses(&self) -> &[Multiaddr] {
        &self.listen
    }

    /// Begins to dial these neighbours; the others will dial us.
    pub fn connect(&self, addresses: BTreeMap<NodeId, Vec<Multiaddr>>) {
        let ours = self.listen.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        for &node in self.links.keys().filter(|node| !addresses.contains_key(node)) {
            let what = format!(
                "it dials this node, which listens on {ours}, and has not been heard of: is it \
                 running, does its topology name this \
                 node's address and PeerId {}, is the port open?",
                self.peer
            );
            self.status.trouble(node, what);
        }
        let _ = self.connect.send(addresses);
    }

    /// Hands a frame to a link. The core opens no more than [`SLOTS`] at a time, so there is room.
    pub fn send(&mut self, to: NodeId, frame: Arc<Vec<u8>>) {
        if let Some(link) = self.links.get(&to) {
            // A link that broke meanwhile has said so: its frame is nobody's any more.
            if let Err(mpsc::error::TrySendError::Full(_)) = link.frames.try_send(frame) {
                unreachable!("the core hands over at most {SLOTS} frames of a link at a time");
            }
        }
    }

    /// Says how far linking is. The last word counts: it takes the place of one that was not sent
    /// yet.
    pub fn say(&self, to: NodeId, word: Word) {
        if let Some(link) = self.links.get(&to) {
            link.words.send_replace(Some(word));
        }
    }

    /// Gives a frame's buffer back: the link may hand over its next frame.
    pub fn recycle(&mut self, from: NodeId, buffer: Vec<u8>) {
        if let Some(link) = self.links.get(&from) {
            link.applied.fetch_add(1, Ordering::Relaxed);
            let _ = link.spare.try_send(buffer);
        }
    }

    /// What is known of the links.
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Says goodbye once all frames are written, waits for the neighbours' goodbyes, and closes.
    /// `reason` is for a run that is left early: then nothing more is written.
    pub fn finish(mut self, reason: Option<Cause>) {
        let within = if reason.is_some() { Duration::from_secs(1) } else { self.goodbye };
        self.links.clear();
        let _ = self.farewell.send(Some(reason));
        let tasks = std::mem::take(&mut self.tasks);
        let all = futures::future::join_all(tasks);
        if self.runtime.block_on(async { timeout(within, all).await }).is_err() {
            tracing::debug!("not every neighbour said goodbye within {within:?}");
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.swarm.abort();
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
