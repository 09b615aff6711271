//! Carries documents between the sites of a run: one request and one reply, over a connection of
//! its own.
//!
//! A site asks with a key that is made for the purpose ([`caller`]), so that its links, which prove
//! the node's key, are not touched. The other site answers at the addresses of its node: by a
//! [`Desk`] while its node does not run, and by the node's own host while it does. Only listed
//! callers are let in: the gate refuses others as it refuses strangers on links.
//!
//! | on a stream | bytes |
//! |---|---|
//! | request | its length (4 bytes, least significant first), then so many bytes |
//! | reply | the same |

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::{
    Multiaddr, PeerId, Stream, StreamProtocol, Swarm,
    identity::Keypair,
    swarm::{
        DialError, SwarmEvent,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use libp2p_stream::{IncomingStreams, OpenStreamError};
use tokio::{sync::watch, task::JoinSet, time::timeout};

use super::{
    relay::reservations::{Reservations, relay_of},
    runtime::{SHUTDOWN, runtime},
    transport::{
        dial::{address, root},
        dialled::Dialled,
        layers::{Connecting, Proxy, security::Ciphers},
        refusals::Refusals,
        sites::{Sites, admit},
        swarm::{Behaviour, listen, swarm},
    },
};
use crate::{config::ConfigError, drive::RunError};

/// The most bytes of a request or a reply.
pub const LONGEST_DOCUMENT: usize = 16 << 20;

/// The number of requests that are answered at the same time.
const MOST_REQUESTS: usize = 8;

/// How long one request may take from its first byte to the last one of its reply.
const STEP: Duration = Duration::from_secs(20);

/// What a site answers to a request of this caller.
pub type Answer = Arc<dyn Fn(PeerId, &[u8]) -> Vec<u8> + Send + Sync>;

/// Who may ask, and what is answered.
#[derive(Clone)]
pub struct Answers {
    callers: watch::Sender<BTreeSet<PeerId>>,
    addresses: watch::Sender<BTreeMap<PeerId, Vec<Multiaddr>>>,
    answer: Answer,
}

impl Answers {
    /// Nobody may ask yet.
    pub fn new(answer: Answer) -> Answers {
        let (callers, addresses) = Default::default();
        Answers { callers, addresses, answer }
    }

    /// Lets these callers in, and nobody else.
    pub fn let_in(&self, callers: BTreeSet<PeerId>) {
        self.callers.send_if_modified(|known| {
            let changes = *known != callers;
            *known = callers;
            changes
        });
    }

    /// The newest addresses of sites, which count for those of them that the node dials.
    pub fn announce(&self, addresses: BTreeMap<PeerId, Vec<Multiaddr>>) {
        self.addresses.send_if_modified(|known| {
            let changes = *known != addresses;
            *known = addresses;
            changes
        });
    }

    /// The callers that may ask, whenever they change.
    fn callers(&self) -> watch::Receiver<BTreeSet<PeerId>> {
        let mut callers = self.callers.subscribe();
        callers.mark_changed();
        callers
    }

    /// The newest addresses of sites, whenever they change.
    fn addresses(&self) -> watch::Receiver<BTreeMap<PeerId, Vec<Multiaddr>>> {
        let mut addresses = self.addresses.subscribe();
        addresses.mark_changed();
        addresses
    }

    /// What a host follows of these.
    pub(crate) fn sites(&self) -> Sites {
        let (callers, moved) = (Some(self.callers()), Some(self.addresses()));
        Sites { callers, moved, ..Sites::default() }
    }

    /// Answers requests until the host closes.
    pub(crate) async fn serve(self, mut incoming: IncomingStreams) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                stream = incoming.next() => {
                    let Some((peer, stream)) = stream else { return };
                    let may = self.callers.borrow().contains(&peer);
                    if may && tasks.len() < MOST_REQUESTS {
                        let answer = Arc::clone(&self.answer);
                        tasks.spawn(timeout(STEP, answer_one(peer, stream, answer)));
                    }
                }
                Some(_) = tasks.join_next() => {}
            }
        }
    }
}

/// The protocol of requests.
pub(crate) fn documents_protocol() -> StreamProtocol {
    StreamProtocol::new("/gradvine/documents/1")
}

async fn answer_one(peer: PeerId, mut stream: Stream, answer: Answer) -> std::io::Result<()> {
    let request = read(&mut stream).await?;
    let reply = tokio::task::spawn_blocking(move || answer(peer, &request));
    write(&mut stream, &reply.await.map_err(std::io::Error::other)?).await?;
    stream.close().await?;
    // The last bytes have arrived once the other end closes the stream too.
    let _ = stream.read(&mut [0]).await;
    Ok(())
}

async fn read(stream: &mut Stream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST_DOCUMENT {
        let problem = format!("{length} bytes, and at most {LONGEST_DOCUMENT} are accepted");
        return Err(std::io::Error::other(problem));
    }
    // As they come: the length alone reserves nothing.
    let mut bytes = Vec::new();
    stream.take(length as u64).read_to_end(&mut bytes).await?;
    match bytes.len() == length {
        true => Ok(bytes),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

async fn write(stream: &mut Stream, bytes: &[u8]) -> std::io::Result<()> {
    if bytes.len() > LONGEST_DOCUMENT {
        return Err(std::io::Error::other("it is too long"));
    }
    stream.write_all(&(bytes.len() as u32).to_le_bytes()).await?;
    stream.write_all(bytes).await?;
    stream.flush().await
}

/// The key with which the owner of a node's key asks other sites.
///
/// # Errors
/// If the key is not of Ed25519.
pub fn caller(key: &Keypair) -> Result<Keypair, ConfigError> {
    let wrong = || ConfigError::at("key", "expected an Ed25519 key");
    let seed = key.derive_secret(b"gradvine documents").ok_or_else(wrong)?;
    of_seed(seed)
}

/// The key that follows from these 32 bytes.
///
/// # Errors
/// Never, with the keys that are built in.
pub fn of_seed(mut seed: [u8; 32]) -> Result<Keypair, ConfigError> {
    Keypair::ed25519_from_bytes(&mut seed)
        .map_err(|error| ConfigError::at("key", error.to_string()))
}

/// A swarm with this key that lets these peers in, and dials these addresses.
fn swarm_for(
    key: &Keypair,
    proxy: Option<&Proxy>,
    dialled: &[Multiaddr],
) -> Result<Swarm<Behaviour>, ConfigError> {
    let listed = Dialled::default();
    listed.list(dialled.iter());
    let connecting = Connecting { proxy: proxy.cloned(), ..Connecting::default() };
    let mut swarm = swarm(key, &[], &connecting, &Ciphers::default(), &listed)?;
    for relay in dialled.iter().filter_map(relay_of) {
        swarm.behaviour_mut().allowed.allow_peer(relay);
    }
    Ok(swarm)
}

/// Answers at the addresses of a node while that does not run. It closes when it is dropped.
pub struct Desk {
    /// The addresses on which it listens, with their real ports.
    pub listen: Vec<Multiaddr>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Desk {
    /// Listens on these addresses, and reserves places at the relays among `addresses`, through
    /// the proxy if there is one.
    ///
    /// # Errors
    /// If an address is wrong or in use, or the threads cannot be started.
    pub fn open(
        (key, proxy): (&Keypair, Option<&Proxy>),
        on: &[String],
        addresses: &[String],
        answers: &Answers,
    ) -> Result<Desk, RunError> {
        let parse = |place: &str, texts: &[String]| {
            let one = |text: &String| address(place, text);
            texts.iter().map(one).collect::<Result<Vec<_>, _>>().map_err(RunError::Setup)
        };
        let (on, own) = (parse("node.listen", on)?, parse("addresses", addresses)?);
        let runtime = runtime()?;
        let open = async {
            let mut swarm = swarm_for(key, proxy, &own)?;
            let found = listen(&mut swarm, &on).await?;
            let incoming = swarm.behaviour().streams.new_control().accept(documents_protocol());
            let incoming =
                incoming.map_err(|error| ConfigError::at("network", error.to_string()))?;
            tokio::spawn(answers.clone().serve(incoming));
            let reservations = Reservations::new(&own);
            tokio::spawn(attend(swarm, answers.callers(), reservations));
            Ok(found)
        };
        let listen = runtime.block_on(open).map_err(RunError::Setup)?;
        Ok(Desk { listen, runtime: Some(runtime) })
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        // The ports are free when this returns: a node takes them next.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(SHUTDOWN);
        }
    }
}

/// Drives the swarm of a desk.
async fn attend(
    mut swarm: Swarm<Behaviour>,
    mut callers: watch::Receiver<BTreeSet<PeerId>>,
    mut reservations: Reservations,
) {
    let mut refusals = Refusals::new("it is no member of the run, and has no ticket for it");
    let mut known = BTreeSet::new();
    let mut tick = tokio::time::interval(Duration::from_millis(300));
    loop {
        tokio::select! {
            _ = tick.tick(), if reservations.lacks_one() => {
                reservations.reserve_due(|at| swarm.listen_on(at).map_err(|error| root(&error)));
            }
            Ok(()) = callers.changed() => {
                let callers = callers.borrow_and_update().clone();
                admit(&mut swarm.behaviour_mut().allowed, &mut known, callers, |_| true);
            }
            event = swarm.select_next_some() => match event {
                SwarmEvent::IncomingConnectionError { peer_id, send_back_addr, error, .. } => {
                    refusals.report(peer_id, &send_back_addr, &error);
                }
                SwarmEvent::NewListenAddr { listener_id, .. } => reservations.reserved(listener_id),
                SwarmEvent::ListenerClosed { listener_id, reason, .. } => {
                    let reason = reason.err().map_or("it ended".into(), |error| root(&error));
                    reservations.closed(listener_id, &reason);
                }
                _ => {}
            }
        }
    }
}

/// Why a question has no reply, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// No address leads to the site.
    Unreached(String),
    /// The site is there, and does not let this caller in.
    Unknown,
    /// The connection broke, or what answers is no such site.
    Broken(String),
}

impl fmt::Display for NoReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoReply::Unreached(why) | NoReply::Broken(why) => f.write_str(why),
            NoReply::Unknown => f.write_str("it does not let this caller in"),
        }
    }
}

/// Asks the site with this PeerId at its addresses, as the caller with this key, through the proxy
/// if there is one.
///
/// # Errors
/// Why there is no reply.
pub fn ask(
    (caller, proxy): (&Keypair, Option<&Proxy>),
    (peer, addresses): (PeerId, &[Multiaddr]),
    request: &[u8],
    within: Duration,
) -> Result<Vec<u8>, NoReply> {
    if addresses.is_empty() {
        return Err(NoReply::Unreached("it has no address".into()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| NoReply::Broken(error.to_string()))?;
    let begin = Instant::now();
    let reply = runtime.block_on(async {
        timeout(within, exchange((caller, proxy), (peer, addresses), request)).await
    });
    runtime.shutdown_timeout(SHUTDOWN);
    reply.unwrap_or_else(|_| {
        Err(NoReply::Unreached(format!("no answer in {:.0} s", begin.elapsed().as_secs_f64())))
    })
}

async fn exchange(
    (caller, proxy): (&Keypair, Option<&Proxy>),
    (peer, addresses): (PeerId, &[Multiaddr]),
    request: &[u8],
) -> Result<Vec<u8>, NoReply> {
    let text = |error: ConfigError| NoReply::Broken(error.to_string());
    let mut swarm = swarm_for(caller, proxy, addresses).map_err(text)?;
    swarm.behaviour_mut().allowed.allow_peer(peer);
    let mut streams = swarm.behaviour().streams.new_control();
    let options = DialOpts::peer_id(peer)
        .condition(PeerCondition::Always)
        .addresses(addresses.to_vec())
        .build();
    swarm.dial(options).map_err(|error| NoReply::Unreached(failure(&error)))?;
    let mut reply = std::pin::pin!(async {
        let stream = streams.open_stream(peer, documents_protocol()).await;
        let mut stream = stream.map_err(|error| match error {
            OpenStreamError::UnsupportedProtocol(_) => {
                NoReply::Broken("it runs, but not by `gradvine start`: it answers nothing".into())
            }
            // The connection was closed meanwhile.
            OpenStreamError::Io(_) => NoReply::Unknown,
            error => NoReply::Broken(root(&error)),
        })?;
        let broke =
            |error: std::io::Error| NoReply::Broken(format!("the connection broke: {error}"));
        write(&mut stream, request).await.map_err(broke)?;
        let reply = read(&mut stream).await.map_err(broke);
        let _ = stream.close().await;
        reply
    });
    let mut connected = false;
    loop {
        tokio::select! {
            reply = &mut reply, if connected => return reply,
            event = swarm.select_next_some() => match event {
                SwarmEvent::ConnectionEstablished { peer_id, .. } if peer_id == peer => {
                    connected = true;
                }
                SwarmEvent::ConnectionClosed { peer_id, .. } if peer_id == peer => {
                    return Err(NoReply::Unknown);
                }
                SwarmEvent::OutgoingConnectionError { peer_id: Some(to), error, .. }
                    if to == peer && !connected =>
                {
                    return Err(NoReply::Unreached(failure(&error)));
                }
                _ => {}
            }
        }
    }
}

/// Why no address answers: each with its reason.
fn failure(error: &DialError) -> String {
    match error {
        DialError::Transport(all) => {
            let one = all.iter().map(|(address, error)| format!("{address}: {}", root(error)));
            one.collect::<Vec<_>>().join("; ")
        }
        DialError::WrongPeerId { obtained, .. } => {
            format!("another site answers there: {obtained}")
        }
        error => root(error),
    }
}
