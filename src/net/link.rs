//! One end of a link: handshake, then a reader, a writer and a control loop, each a task of its
//! own.
//!
//! * The end that dialled opens the control stream; both say hello on it and compare their runs.
//! * Each end opens one bulk stream for its frames. Reading never waits for writing.
//! * Backpressure: the reader delivers one frame and reads the next meanwhile; it delivers that one
//!   once the first buffer was returned. So a slow node holds two frames, the stream's window holds
//!   more, and the sender holds up to [`SLOTS`].
//! * Three missed heartbeats, or any invalid byte, break the link. Until the run begins it may come
//!   up again, after the neighbour restarted or its files were corrected. A run that is over ends
//!   with a goodbye both ways.

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
    hello::{RunCard, Verdict, printable, sentence},
    status::Status,
    streams::{Done, LastReceived, Reader, listen, write_frames},
    wire::{self, Hello, Message, Reason, StartMessage, WireError},
};
use crate::{config::ConfigError, gossip::Cause, units::NodeId};

/// The maximum number of frames handed to the writer and not yet sent.
pub use crate::gossip::flights::SLOTS;

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Hellos, heartbeats, acknowledgements, goodbyes.
    Control,
    /// Frames, in one direction.
    Bulk,
}

/// The protocol of the streams that `opener` opens. It names the opener, so that each link has an
/// inbound queue of its own: libp2p drops streams for a full queue, and neighbours often connect at
/// the same moment.
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

/// The interval between acknowledgements of applied frames.
const ACK_EVERY: Duration = Duration::from_millis(250);

/// The maximum number of start messages per connection, besides one in five seconds.
const MOST_START_MESSAGES: u32 = 10_000;

/// How often per heartbeat a computing node sends a beat.
const BEATS: u32 = 5;

/// The time limit of the last messages of a link.
const CLOSING: Duration = Duration::from_secs(1);

/// Time limits of a link.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// For streams and hellos, once connected.
    pub handshake: Duration,
    /// Between two heartbeats; a link breaks after three without a byte.
    pub heartbeat: Duration,
    /// For the neighbours' goodbyes, once this node has finished.
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

/// The state of leaving: `None` while the node stays, then `Some(reason)`; the reason is `None` if
/// the run is over.
pub type Leaving = Option<Option<Cause>>;

/// One end of a link; [`Link::run`] is its task.
pub struct Link {
    /// This node's number.
    pub me: NodeId,
    /// This node's PeerId.
    pub own: PeerId,
    /// The number of nodes in the topology.
    pub nodes: usize,
    /// The neighbour's number.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Its PeerId.
    pub peer: PeerId,
    /// The run that this node is about to start.
    pub card: Arc<RunCard>,
    /// The longest frame.
    pub frame_limit: usize,
    /// Time limits.
    pub deadlines: Deadlines,
    /// Opens streams.
    pub streams: libp2p_stream::Control,
    /// Connections made and lost.
    pub connections: mpsc::UnboundedReceiver<Connection>,
    /// Control streams that the neighbour opened.
    pub inbound_control: IncomingStreams,
    /// Bulk streams that the neighbour opened.
    pub inbound_bulk: IncomingStreams,
    /// Frames to send: the writer of the current connection holds them.
    pub frames: Arc<Mutex<mpsc::Receiver<Arc<Vec<u8>>>>>,
    /// Returned buffers: the reader of the current connection holds them.
    pub spare: Arc<Mutex<mpsc::Receiver<Vec<u8>>>>,
    /// The core's message to the neighbour before the run begins.
    pub start_messages: watch::Receiver<Option<StartMessage>>,
    /// The number of frames that the core has applied.
    pub applied: Arc<AtomicU64>,
    /// Whether this node leaves.
    pub leaving: watch::Receiver<Leaving>,
    /// The sender of events to the core.
    pub events: Events<Event>,
    /// The state of all links, for messages about waiting.
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
    /// The two ends would run different things.
    Differs(Difference),
    /// Another attempt may succeed.
    Trouble(String),
}

/// The result of a link that was up.
enum End {
    Over,
    /// It broke; `closed` says whether its connection is closed too.
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
    /// Shakes hands on every new connection and runs the link while it is up, until the run is
    /// over.
    pub async fn run(mut self) {
        loop {
            let (id, dialled) = tokio::select! {
                connection = self.connections.recv() => match connection {
                    Some(Connection::Established { id, dialled }) => (id, dialled),
                    Some(Connection::Closed { .. }) => continue,
                    None => return,
                },
                _ = self.leaving.changed() => return,
            };
            let closed = match self.try_greet(id, dialled).await {
                None => true,
                Some(Ok(streams)) => match self.serve(streams, id).await {
                    Some(closed) => closed,
                    None => return,
                },
                Some(Err(Refusal::Differs(difference))) => {
                    // The other end must read our text before the connection closes.
                    time::sleep(CLOSING).await;
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

    /// Shakes hands within the deadline; `None` if the connection closes meanwhile.
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

    /// Ends this connection, unless it is closed, and forgets its leftovers.
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

    /// Opens the streams and exchanges hellos.
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
                    "connected, but its first message is not a hello: {}",
                    kind(&other)
                )));
            }
        };
        let arithmetic = self.judge(&theirs, &mut control).await?;
        let outgoing = self.open(Purpose::Bulk).await?;
        let incoming = inbound(&mut self.inbound_bulk, self.peer).await?;
        Ok(Streams { control, outgoing, incoming, arithmetic })
    }

    /// Compares the hellos; if a section differs, both send its text.
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
            Err(error) => format!("(its text did not arrive: {error})"),
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

    /// Runs a link that is up and reports to the core how it ended. `None` if the link is finished,
    /// else whether its connection is closed.
    async fn serve(&mut self, streams: Streams, id: ConnectionId) -> Option<bool> {
        if !streams.arithmetic {
            tracing::warn!(
                "node {} rounds matrix products differently: this run's digest depends on which \
                 machine does what",
                self.name
            );
        }
        let since = Instant::now();
        // A message from the time when the link was down is out of date.
        self.start_messages.borrow_and_update();
        self.status.up(self.node);
        let _ = self.events.send(Event::Up(self.node));
        let mut tasks = JoinSet::new();
        let end = self.exchange(streams, id, &mut tasks).await;
        // After the event of its end nothing of this connection may follow.
        tasks.shutdown().await;
        let mut gone = false;
        let early = self.leaving.borrow().is_none() && !self.status.has_begun();
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
        if self.status.has_begun() || self.leaving.borrow().is_some() {
            let _ = self.close.send((self.peer, id));
            return None;
        }
        Some(gone)
    }

    async fn exchange(
        &mut self,
        streams: Streams,
        id: ConnectionId,
        tasks: &mut JoinSet<Done>,
    ) -> End {
        let (control_in, mut control) = streams.control.split();
        let (messages, mut received) = mpsc::channel(4);
        let last_received = LastReceived::new();
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
            last_received: last_received.clone(),
            status: Arc::clone(&self.status),
        };
        tasks.spawn(async move { Done::Reader(reader.run().await) });
        tasks.spawn(listen(control_in, messages, last_received.clone()));
        let mut tick = time::interval(ACK_EVERY.min(self.deadlines.heartbeat));
        tick.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let mut goodbyes = Goodbyes::default();
        let (mut acknowledged, mut spoke) = (self.applied.load(Ordering::Relaxed), Instant::now());
        let mut sent_beats = BTreeMap::new();
        loop {
            let message = tokio::select! {
                // Received messages come before the end of the stream that carried them.
                biased;
                Some(message) = received.recv() => {
                    if let Some(end) = self.receive(message, &mut goodbyes, &mut sent_beats) {
                        return end;
                    }
                    None
                }
                Some(done) = tasks.join_next() => match goodbyes.after(done) {
                    Some(end) => return end,
                    None => None,
                },
                Some(connection) = self.connections.recv() => match connection {
                    Connection::Closed { id: which, .. } if which != id => None,
                    Connection::Closed { .. } if goodbyes.received => return End::Over,
                    Connection::Closed { cause, .. } => {
                        return End::Broken { reason: format!("the connection closed: \
                            {cause}"), closed: true };
                    }
                    Connection::Established { .. } => None,
                },
                Ok(()) = self.start_messages.changed() => {
                    let message = self.start_messages.borrow_and_update().clone();
                    message.map(Message::Start)
                }
                _ = self.leaving.changed(), if goodbyes.reason.is_none() => {
                    goodbyes.reason.clone_from(&self.leaving.borrow());
                    None
                }
                _ = tick.tick() => {
                    let silence = last_received.silence();
                    if silence > 3 * self.deadlines.heartbeat {
                        return End::broken(format!("nothing was received for {:.1} \
                            s", silence.as_secs_f64()));
                    }
                    self.status.beat(self.me, self.deadlines.heartbeat / BEATS);
                    let news = self.status.new_beats(&mut sent_beats);
                    let applied = self.applied.load(Ordering::Relaxed);
                    if !news.is_empty() {
                        let beats = news.into_iter().map(|(node, count)| (node.0, count));
                        Some(Message::Working(beats.collect()))
                    } else if applied != acknowledged {
                        acknowledged = applied;
                        Some(Message::Ack { applied, durable: 0 })
                    } else {
                        (spoke.elapsed() >= self.deadlines.heartbeat).then_some(Message::Heartbeat)
                    }
                }
            };
            let reason = |cause: Cause| Reason { node: cause.node.0, text: sentence(&cause.text) };
            let message =
                goodbyes.due().map(|cause| Message::Goodbye(cause.map(reason))).or(message);
            if let Some(message) = message {
                spoke = Instant::now();
                let sent =
                    timeout(3 * self.deadlines.heartbeat, wire::write(&mut control, &message))
                        .await;
                if !matches!(sent, Ok(Ok(()))) && !goodbyes.received {
                    return End::broken("its control stream accepts no more messages");
                }
            }
            if goodbyes.sent && (goodbyes.received || matches!(goodbyes.reason, Some(Some(_)))) {
                // Our close confirms that we received the goodbye; the other end's close confirms
                // ours.
                let _ = timeout(CLOSING, async {
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

    /// Handles a control message.
    fn receive(
        &self,
        message: Message,
        goodbyes: &mut Goodbyes,
        sent_beats: &mut BTreeMap<NodeId, u64>,
    ) -> Option<End> {
        match message {
            Message::Heartbeat => {}
            Message::Ack { applied, durable } => {
                tracing::trace!("node {}: applied {applied}, durable {durable}", self.name)
            }
            Message::Goodbye(None) => {
                if !std::mem::replace(&mut goodbyes.received, true) {
                    let _ = self.events.send(Event::Goodbye(self.node));
                }
            }
            Message::Goodbye(Some(Reason { node, text })) => {
                if node as usize >= self.nodes {
                    return Some(End::broken(format!(
                        "it left the run because of a node {node} that does not exist"
                    )));
                }
                return Some(End::Left(Cause { node: NodeId(node), text: sentence(&text) }));
            }
            // Late ones mean nothing.
            Message::Start(_) if self.status.has_begun() => {}
            Message::Start(message) => {
                goodbyes.start_messages += 1;
                if goodbyes.start_messages > MOST_START_MESSAGES {
                    return Some(End::broken(format!(
                        "it sent more than {MOST_START_MESSAGES} messages about linking"
                    )));
                }
                let message = match message {
                    StartMessage::Waiting(text) => StartMessage::Waiting(sentence(&text)),
                    message => message,
                };
                let _ = self.events.send(Event::Start { from: self.node, message });
            }
            Message::Working(beats) => {
                let exists = |&(node, _): &(u32, u64)| (node as usize) < self.nodes;
                let beats: Vec<(NodeId, u64)> = beats
                    .into_iter()
                    .filter(exists)
                    .map(|(node, count)| (NodeId(node), count))
                    .collect();
                sent_beats.extend(beats.iter().copied());
                self.status.add_beats(self.me, &beats);
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

/// Waits until this connection is closed.
async fn closed(connections: &mut mpsc::UnboundedReceiver<Connection>, id: ConnectionId) {
    while let Some(connection) = connections.recv().await {
        if matches!(connection, Connection::Closed { id: which, .. } if which == id) {
            return;
        }
    }
}

/// The next stream that this neighbour opened; streams of peers that borrow its name are skipped.
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
struct Goodbyes {
    reason: Leaving,
    /// All frames are written.
    written: bool,
    sent: bool,
    received: bool,
    /// Start messages received.
    start_messages: u32,
}

impl Goodbyes {
    /// The goodbye, once it is due: after the last frame, or at once if this node leaves early.
    fn due(&mut self) -> Option<Option<Cause>> {
        let reason = self.reason.clone()?;
        let now = !self.sent && (self.written || reason.is_some());
        self.sent |= now;
        now.then_some(reason)
    }

    /// Handles the end of one of the link's tasks.
    fn after(&mut self, done: Result<Done, tokio::task::JoinError>) -> Option<End> {
        let broken = |text: String| Some(if self.received { End::Over } else { End::broken(text) });
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
        Message::Start(_) => "a message about linking",
        Message::Working(_) => "a beat",
    }
}
