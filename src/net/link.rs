//! One link, seen from one end: handshake, then a reader, a writer and a control loop, each a task
//! of its own.
//!
//! * The end that dialled opens the control stream; both say hello on it and compare what they are
//!   about to run.
//! * Each end opens one bulk stream for its frames. Reading never waits for writing.
//! * The reader hands over one frame and reads the next meanwhile; it hands that over once the
//!   first was given back. This is how a slow node holds its neighbour back: two frames here, what
//!   the stream's window holds, and [`SLOTS`] at the sender.
//! * Three heartbeats missed, or any wrong byte, break the link. Until the run begins it may come
//!   up again: the neighbour was restarted, or its files were mended. A run that is over ends with
//!   a goodbye both ways.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender as Events,
    },
    time::{Duration, Instant},
};

use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt};
use libp2p::{PeerId, Stream, StreamProtocol, swarm::ConnectionId};
use libp2p_stream::{IncomingStreams, OpenStreamError};
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
    time::{self, timeout},
};

use super::{
    VERSION,
    event::{Difference, Event},
    hello::{Card, Verdict, printable, sentence},
    status::Status,
    streams::{Done, Pulse, Reader, listen, write_frames},
    wire::{self, Hello, Message, Reason, WireError, Word},
};
use crate::{config::ConfigError, gossip::Cause, units::NodeId};

/// Frames handed to the writer and not yet gone, at the most.
pub use crate::gossip::air::SLOTS;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Hellos, heartbeats, acknowledgements, goodbyes.
    Control,
    /// Frames, one way.
    Bulk,
}

/// The protocol of the streams that `opener` opens. It names the opener, so that each link has an
/// inbound queue of its own: streams for a queue that is full are dropped, and neighbours do come
/// at the same moment.
///
/// # Panics
/// Never: the name starts with a slash.
pub fn protocol(purpose: Purpose, opener: &PeerId) -> StreamProtocol {
    let name = match purpose {
        Purpose::Control => "control",
        Purpose::Bulk => "bulk",
    };
    StreamProtocol::try_from_owned(format!("/gradvine/{VERSION}/{name}/{opener}"))
        .expect("it starts with a slash")
}

/// How often applied frames are acknowledged.
const ACK_EVERY: Duration = Duration::from_millis(250);

/// Words about linking that one connection may bring: changes, and one in five seconds.
const MOST_WORDS: u32 = 10_000;

/// How often in a heartbeat a node that computes says so.
const BEATS: u32 = 5;

/// How long the last words of a link may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Streams and hellos, once connected.
    pub handshake: Duration,
    /// Between two heartbeats; a link is broken after three without a byte.
    pub heartbeat: Duration,
    /// For the neighbours' goodbyes, once this node is done.
    pub goodbye: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            handshake: Duration::from_secs(10),
            heartbeat: Duration::from_secs(5),
            goodbye: Duration::from_secs(30),
        }
    }
}

/// What the swarm tells a link.
#[derive(Debug)]
pub enum Connection {
    /// A connection is there; whether this end dialled it.
    Established {
        /// Which.
        id: ConnectionId,
        /// This end dialled.
        dialled: bool,
    },
    /// It is gone.
    Closed {
        /// Which.
        id: ConnectionId,
        /// Why.
        cause: String,
    },
}

/// What a node says when it leaves: `None` while it stays, then `Some(reason)`, where a run that is
/// over has no reason.
pub type Farewell = Option<Option<Cause>>;

/// One end of a link; [`Link::run`] is its task.
pub struct Link {
    /// This node's number.
    pub me: NodeId,
    /// This node's PeerId.
    pub own: PeerId,
    /// How many nodes the topology has.
    pub nodes: usize,
    /// The neighbour's number.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its PeerId.
    pub peer: PeerId,
    /// What this node is about to run.
    pub card: Arc<Card>,
    /// The longest frame.
    pub frame_limit: usize,
    /// How long things may take.
    pub deadlines: Deadlines,
    /// Opens streams.
    pub streams: libp2p_stream::Control,
    /// Connections made and lost.
    pub connections: mpsc::UnboundedReceiver<Connection>,
    /// Control streams that the neighbour opened.
    pub inbound_control: IncomingStreams,
    /// Bulk streams that the neighbour opened.
    pub inbound_bulk: IncomingStreams,
    /// Frames to send: the writer of the present connection holds them.
    pub frames: Arc<Mutex<mpsc::Receiver<Arc<Vec<u8>>>>>,
    /// Buffers that come back: the reader of the present connection holds them.
    pub spare: Arc<Mutex<mpsc::Receiver<Vec<u8>>>>,
    /// What the core says to the neighbour before the run begins.
    pub words: watch::Receiver<Option<Word>>,
    /// How many frames the core has applied.
    pub applied: Arc<AtomicU64>,
    /// Whether this node leaves.
    pub farewell: watch::Receiver<Farewell>,
    /// To the core.
    pub events: Events<Event>,
    /// What the waiting line says.
    pub status: Arc<Status>,
    /// Asks the swarm to close the connection.
    pub close: mpsc::UnboundedSender<(PeerId, ConnectionId)>,
}

/// The streams of a link that is up.
struct Streams {
    control: Stream,
    outgoing: Stream,
    incoming: Stream,
    arithmetic: bool,
}

enum Refusal {
    /// The two ends are about to run different things.
    Differs(Difference),
    /// Worth another try.
    Trouble(String),
}

/// How a link that was up ended.
enum End {
    Over,
    /// It broke; whether its connection is gone.
    Broken {
        reason: String,
        closed: bool,
    },
    /// The neighbour left the run early.
    Left(Cause),
}

impl End {
    fn broken(reason: impl Into<String>) -> End {
        End::Broken { reason: reason.into(), closed: false }
    }
}

impl Link {
    /// Greets the neighbour whenever a connection comes and runs the link while it is up, until the
    /// run is over.
    pub async fn run(mut self) {
        loop {
            let (id, dialled) = tokio::select! {
                connection = self.connections.recv() => match connection {
                    Some(Connection::Established { id, dialled }) => (id, dialled),
                    Some(Connection::Closed { .. }) => continue,
                    None => return,
                },
                _ = self.farewell.changed() => return,
            };
            let closed = match self.try_greet(id, dialled).await {
                None => true,
                Some(Ok(streams)) => match self.serve(streams, id).await {
                    Some(closed) => closed,
                    None => return,
                },
                Some(Err(Refusal::Differs(difference))) => {
                    // The other end is to read our text too before the connection goes.
                    time::sleep(LAST_WORDS).await;
                    self.status.trouble(self.node, difference.to_string());
                    let _ = self.events.send(Event::Differs { peer: self.node, difference });
                    false
                }
                Some(Err(Refusal::Trouble(text))) => {
                    tracing::debug!("node {}: {text}", self.name);
                    self.status.trouble(self.node, text);
                    false
                }
            };
            self.clear(id, closed).await;
        }
    }

    /// Greets within the deadline; `None` if the connection closes meanwhile.
    async fn try_greet(
        &mut self,
        id: ConnectionId,
        dialled: bool,
    ) -> Option<Result<Streams, Refusal>> {
        let within = self.deadlines.handshake;
        let mut connections = std::mem::replace(&mut self.connections, mpsc::unbounded_channel().1);
        let greeted = tokio::select! {
            greeted = timeout(within, self.greet(dialled)) => Some(greeted),
            () = closed(&mut connections, id) => None,
        };
        self.connections = connections;
        let late = || {
            Refusal::Trouble(format!("connected, but the handshake was not over within {within:?}"))
        };
        greeted.map(|greeted| greeted.unwrap_or_else(|_| Err(late())))
    }

    /// Ends this connection, if it is not gone, and forgets what it has left.
    async fn clear(&mut self, id: ConnectionId, gone: bool) {
        if !gone {
            let _ = self.close.send((self.peer, id));
            closed(&mut self.connections, id).await;
        }
        for inbound in [&mut self.inbound_control, &mut self.inbound_bulk] {
            while let Some(Some(_)) = inbound.next().now_or_never() {}
        }
        let mut spare = self.spare.lock().await;
        while spare.try_recv().is_ok() {}
    }

    /// Streams and hellos.
    async fn greet(&mut self, dialled: bool) -> Result<Streams, Refusal> {
        let mut control = if dialled {
            self.open(Purpose::Control).await?
        } else {
            inbound(&mut self.inbound_control, self.peer).await?
        };
        let trouble = |error: &dyn std::fmt::Display| {
            Refusal::Trouble(format!("connected, but the handshake broke off: {error}"))
        };
        wire::write(&mut control, &Message::Hello(self.card.hello(self.me)))
            .await
            .map_err(|error| trouble(&error))?;
        let theirs = match wire::read(&mut control).await.map_err(|error| trouble(&error))? {
            Message::Hello(hello) => hello,
            other => {
                return Err(Refusal::Trouble(format!(
                    "connected, but its first message is no hello: {}",
                    kind(&other)
                )));
            }
        };
        let arithmetic = self.judge(&theirs, &mut control).await?;
        let outgoing = self.open(Purpose::Bulk).await?;
        let incoming = inbound(&mut self.inbound_bulk, self.peer).await?;
        Ok(Streams { control, outgoing, incoming, arithmetic })
    }

    /// Compares the hellos; where a section differs, both send its text.
    async fn judge(&mut self, theirs: &Hello, control: &mut Stream) -> Result<bool, Refusal> {
        let section = match self.card.compare(self.node, theirs) {
            Verdict::Same { arithmetic } => return Ok(arithmetic),
            Verdict::Refused(what) => {
                let error = ConfigError::at(
                    "handshake",
                    format!(
                        "node {} cannot take part in this run: {}",
                        self.name,
                        printable(&what)
                    ),
                );
                return Err(Refusal::Differs(Difference::Files(error)));
            }
            Verdict::Other(what) => {
                let text = format!(
                    "node {} cannot take part in this run: {}",
                    self.name,
                    printable(&what)
                );
                return Err(Refusal::Differs(Difference::Programs(text)));
            }
            Verdict::Differ(section) => section,
        };
        let ours = Message::Text(section, self.card.text(section));
        // Both write and read at once: neither waits for the other's window.
        let (mut reading, mut writing) = control.split();
        let (written, theirs) =
            futures::join!(wire::write(&mut writing, &ours), wire::read(&mut reading));
        let theirs = written.map_err(WireError::from).and(theirs);
        let text = match theirs {
            Ok(Message::Text(theirs, text)) if theirs == section => text,
            Ok(other) => format!("(it sent {} instead of its text)", kind(&other)),
            Err(error) => format!("(its text did not come: {error})"),
        };
        Err(Refusal::Differs(Difference::Files(self.card.difference(section, &self.name, &text))))
    }

    async fn open(&mut self, purpose: Purpose) -> Result<Stream, Refusal> {
        let opened = self.streams.open_stream(self.peer, protocol(purpose, &self.own)).await;
        opened.map_err(|error| match error {
            OpenStreamError::UnsupportedProtocol(_) => {
                Refusal::Differs(Difference::Programs(format!(
                    "node {} speaks another protocol version than {VERSION}, or does not know this \
                 node's PeerId {}: install the same \
                 release of gradvine on both and give both the same topology",
                    self.name, self.own
                )))
            }
            error => Refusal::Trouble(format!(
                "connected, but a stream could not be opened: \
                {error}"
            )),
        })
    }

    /// Runs a link that is up and tells the core how it ended. `None` if that was its last time,
    /// else whether its connection is gone.
    async fn serve(&mut self, streams: Streams, id: ConnectionId) -> Option<bool> {
        if !streams.arithmetic {
            tracing::warn!(
                "node {} rounds matrix products differently: this run's digest depends on which \
                 machine does what",
                self.name
            );
        }
        let since = Instant::now();
        // What was said while the link was down is out of date.
        self.words.borrow_and_update();
        self.status.up(self.node);
        let _ = self.events.send(Event::Up(self.node));
        let mut tasks = JoinSet::new();
        let end = self.talk(streams, id, &mut tasks).await;
        // Nothing of this connection comes after the news of its end.
        tasks.shutdown().await;
        let mut gone = false;
        let early = self.farewell.borrow().is_none() && !self.status.has_begun();
        match end {
            End::Over if early => {
                let reason = "it said goodbye before the run began".to_string();
                self.status.down(self.node, format!("it was linked, and {reason}"));
                let _ = self.events.send(Event::Down { peer: self.node, reason });
            }
            End::Over => {}
            End::Broken { reason, closed } => {
                let reason = format!(
                    "{reason} ({:.1} s after the link came up)",
                    since.elapsed().as_secs_f64()
                );
                self.status
                    .down(self.node, format!("it was linked, then the link broke: {reason}"));
                let _ = self.events.send(Event::Down { peer: self.node, reason });
                gone = closed;
            }
            End::Left(cause) => {
                self.status.down(self.node, "it was linked, and left before the run began".into());
                let _ = self.events.send(Event::Left { peer: self.node, cause });
            }
        }
        if self.status.has_begun() || self.farewell.borrow().is_some() {
            let _ = self.close.send((self.peer, id));
            return None;
        }
        Some(gone)
    }

    async fn talk(&mut self, streams: Streams, id: ConnectionId, tasks: &mut JoinSet<Done>) -> End {
        let (control_in, mut control) = streams.control.split();
        let (messages, mut received) = mpsc::channel(4);
        let pulse = Pulse::new();
        let frames = Arc::clone(&self.frames).lock_owned().await;
        let spare = Arc::clone(&self.spare).lock_owned().await;
        tasks.spawn(write_frames(
            streams.outgoing,
            frames,
            self.events.clone(),
            self.node,
            Arc::clone(&self.status),
        ));
        let reader = Reader {
            stream: streams.incoming,
            node: self.node,
            limit: self.frame_limit,
            events: self.events.clone(),
            spare,
            pulse: pulse.clone(),
            status: Arc::clone(&self.status),
        };
        tasks.spawn(async move { Done::Reader(reader.run().await) });
        tasks.spawn(listen(control_in, messages, pulse.clone()));
        let mut tick = time::interval(ACK_EVERY.min(self.deadlines.heartbeat));
        tick.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let mut parting = Parting::default();
        let (mut acknowledged, mut spoke) = (self.applied.load(Ordering::Relaxed), Instant::now());
        let mut told = BTreeMap::new();
        loop {
            let message = tokio::select! {
                // A message that is here comes before the end of the stream that brought it.
                biased;
                Some(message) = received.recv() => match self.hear(message, &mut parting, &mut told) {
                    Some(end) => return end,
                    None => None,
                },
                Some(done) = tasks.join_next() => match parting.after(done) {
                    Some(end) => return end,
                    None => None,
                },
                Some(connection) = self.connections.recv() => match connection {
                    Connection::Closed { id: which, .. } if which != id => None,
                    Connection::Closed { .. } if parting.heard => return End::Over,
                    Connection::Closed { cause, .. } => {
                        return End::Broken { reason: format!("the connection closed: \
                            {cause}"), closed: true };
                    }
                    Connection::Established { .. } => None,
                },
                Ok(()) = self.words.changed() => self.words.borrow_and_update().clone().map(Message::Word),
                _ = self.farewell.changed(), if parting.reason.is_none() => {
                    parting.reason.clone_from(&self.farewell.borrow());
                    None
                }
                _ = tick.tick() => {
                    let silence = pulse.silence();
                    if silence > 3 * self.deadlines.heartbeat {
                        return End::broken(format!("nothing was heard for {:.1} \
                            s", silence.as_secs_f64()));
                    }
                    self.status.beat(self.me, self.deadlines.heartbeat / BEATS);
                    let news = self.status.news(&mut told);
                    let applied = self.applied.load(Ordering::Relaxed);
                    if !news.is_empty() {
                        Some(Message::Working(news.into_iter().map(|(node, count)| (node.0, count)).collect()))
                    } else if applied != acknowledged {
                        acknowledged = applied;
                        Some(Message::Ack { applied, durable: 0 })
                    } else {
                        (spoke.elapsed() >= self.deadlines.heartbeat).then_some(Message::Heartbeat)
                    }
                }
            };
            let reason = |cause: Cause| Reason { node: cause.node.0, text: cause.text };
            let message =
                parting.word().map(|cause| Message::Goodbye(cause.map(reason))).or(message);
            if let Some(message) = message {
                spoke = Instant::now();
                let sent =
                    timeout(3 * self.deadlines.heartbeat, wire::write(&mut control, &message))
                        .await;
                if !matches!(sent, Ok(Ok(()))) && !parting.heard {
                    return End::broken("its control stream takes nothing any more");
                }
            }
            if parting.said && (parting.heard || matches!(parting.reason, Some(Some(_)))) {
                // Closing says that we heard; the other end's close says that it did.
                let _ = timeout(LAST_WORDS, async {
                    let _ = control.close().await;
                    while let Some(done) = tasks.join_next().await {
                        if matches!(done, Ok(Done::Control(_))) {
                            break;
                        }
                    }
                })
                .await;
                return End::Over;
            }
        }
    }

    /// Upon a control message.
    fn hear(
        &self,
        message: Message,
        parting: &mut Parting,
        told: &mut BTreeMap<NodeId, u64>,
    ) -> Option<End> {
        match message {
            Message::Heartbeat => {}
            Message::Ack { applied, durable } => {
                tracing::trace!("node {}: applied {applied}, durable {durable}", self.name)
            }
            Message::Goodbye(None) => {
                if !std::mem::replace(&mut parting.heard, true) {
                    let _ = self.events.send(Event::Goodbye(self.node));
                }
            }
            Message::Goodbye(Some(Reason { node, text })) => {
                if node as usize >= self.nodes {
                    return Some(End::broken(format!(
                        "it left the run for a node {node} that is not there"
                    )));
                }
                return Some(End::Left(Cause { node: NodeId(node), text: sentence(&text) }));
            }
            // Late ones say nothing.
            Message::Word(_) if self.status.has_begun() => {}
            Message::Word(word) => {
                parting.words += 1;
                if parting.words > MOST_WORDS {
                    return Some(End::broken(format!(
                        "it said more than {MOST_WORDS} times how far linking is"
                    )));
                }
                let word = match word {
                    Word::Waiting(text) => Word::Waiting(sentence(&text)),
                    word => word,
                };
                let _ = self.events.send(Event::Word { from: self.node, word });
            }
            Message::Working(beats) => {
                let there = |&(node, _): &(u32, u64)| (node as usize) < self.nodes;
                let beats: Vec<(NodeId, u64)> = beats
                    .into_iter()
                    .filter(there)
                    .map(|(node, count)| (NodeId(node), count))
                    .collect();
                told.extend(beats.iter().copied());
                self.status.heard(self.me, &beats);
            }
            other @ (Message::Hello(_) | Message::Text(..)) => {
                return Some(End::broken(format!(
                    "it sent {} in the middle of a run",
                    kind(&other)
                )));
            }
        }
        None
    }
}

/// Until this connection is closed.
async fn closed(connections: &mut mpsc::UnboundedReceiver<Connection>, id: ConnectionId) {
    while let Some(connection) = connections.recv().await {
        if matches!(connection, Connection::Closed { id: which, .. } if which == id) {
            return;
        }
    }
}

/// The next stream that this neighbour opened; another peer that borrows its name is passed over.
async fn inbound(streams: &mut IncomingStreams, peer: PeerId) -> Result<Stream, Refusal> {
    while let Some((opener, stream)) = streams.next().await {
        if opener == peer {
            return Ok(stream);
        }
    }
    Err(Refusal::Trouble("connected, but this host closes".into()))
}

/// How far the two ends are in saying goodbye.
#[derive(Default)]
struct Parting {
    reason: Farewell,
    /// All frames are written.
    written: bool,
    said: bool,
    heard: bool,
    /// Words about linking that came.
    words: u32,
}

impl Parting {
    /// The goodbye, once it is due: after the last frame, or at once if the run is left.
    fn word(&mut self) -> Option<Option<Cause>> {
        let reason = self.reason.clone()?;
        let due = !self.said && (self.written || reason.is_some());
        self.said |= due;
        due.then_some(reason)
    }

    /// Upon the end of one of the link's tasks.
    fn after(&mut self, done: Result<Done, tokio::task::JoinError>) -> Option<End> {
        let broken = |text: String| Some(if self.heard { End::Over } else { End::broken(text) });
        match done {
            Ok(Done::Reader(Ok(()))) => None,
            Ok(Done::Writer(Ok(()))) => {
                self.written = true;
                None
            }
            Ok(Done::Control(Ok(()))) => {
                broken("it closed its control stream without a goodbye".into())
            }
            Ok(Done::Reader(Err(error))) => broken(format!("reading its frames: {error}")),
            Ok(Done::Control(Err(error))) => broken(format!("reading its messages: {error}")),
            Ok(Done::Writer(Err(error))) => broken(format!("sending frames: {error}")),
            Err(error) => broken(format!("a task of the link ended: {error}")),
        }
    }
}

fn kind(message: &Message) -> &'static str {
    match message {
        Message::Hello(_) => "a hello",
        Message::Text(..) => "a text",
        Message::Ack { .. } => "an acknowledgement",
        Message::Heartbeat => "a heartbeat",
        Message::Goodbye(_) => "a goodbye",
        Message::Word(_) => "a word about linking",
        Message::Working(_) => "a beat",
    }
}
