//! One link, seen from one end: handshake, then a reader, a writer and a control loop, each a task of its own.
//!
//! * The end that dialled opens the control stream; both say hello on it and compare what they are about to run.
//! * Each end opens one bulk stream for its frames. Reading never waits for writing.
//! * The reader hands over one frame and reads the next meanwhile; it hands that over once the first was given back. This is how a
//!   slow node holds its neighbour back: two frames here, what the stream's window holds, and [`SLOTS`] at the sender.
//! * Three heartbeats missed, or any wrong byte, break the link. A run that is over ends with a goodbye both ways.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender as Events,
    },
    time::{Duration, Instant},
};

use futures::{AsyncReadExt, AsyncWriteExt, FutureExt, StreamExt};
use libp2p::{PeerId, Stream, StreamProtocol};
use libp2p_stream::IncomingStreams;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{self, timeout},
};

use super::{
    VERSION,
    event::Event,
    hello::{Card, Verdict, printable},
    status::Status,
    streams::{Done, Pulse, Reader, listen, write_frames},
    wire::{self, Hello, Message, WireError},
};
use crate::{config::ConfigError, job::RunError, units::NodeId};

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

/// The protocol of the streams that `opener` opens. It names the opener, so that each link has an inbound queue of its own: streams for a
/// queue that is full are dropped, and neighbours do come at the same moment.
///
/// # Panics
/// Never: the name starts with a slash.
pub fn protocol(purpose: Purpose, opener: &PeerId) -> StreamProtocol {
    let name = match purpose {
        Purpose::Control => "control",
        Purpose::Bulk => "bulk",
    };
    StreamProtocol::try_from_owned(format!("/gradvine/{VERSION}/{name}/{opener}")).expect("it starts with a slash")
}

/// How often applied frames are acknowledged.
const ACK_EVERY: Duration = Duration::from_millis(250);

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
        /// This end dialled.
        dialled: bool,
    },
    /// It is gone.
    Closed(String),
}

/// What a node says when it leaves: `None` while it stays, then `Some(reason)`, where a run that is over has no reason.
pub type Farewell = Option<Option<String>>;

/// One end of a link; [`Link::run`] is its task.
pub struct Link {
    /// This node's number.
    pub me: NodeId,
    /// This node's PeerId.
    pub own: PeerId,
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
    /// Frames to send.
    pub frames: Option<mpsc::Receiver<Arc<Vec<u8>>>>,
    /// Buffers that come back.
    pub spare: Option<mpsc::Receiver<Vec<u8>>>,
    /// How many frames the core has applied.
    pub applied: Arc<AtomicU64>,
    /// Whether this node leaves.
    pub farewell: watch::Receiver<Farewell>,
    /// To the core.
    pub events: Events<Event>,
    /// What the waiting line says.
    pub status: Arc<Status>,
    /// Asks the swarm to close the connection.
    pub close: mpsc::UnboundedSender<PeerId>,
}

/// The streams of a link that is up.
struct Streams {
    control: Stream,
    outgoing: Stream,
    incoming: Stream,
    arithmetic: bool,
}

enum Refusal {
    /// The two ends run different things: nothing will mend it.
    Fatal(RunError),
    /// Worth another try.
    Trouble(String),
}

/// How a link that was up ended.
enum End {
    Over,
    Broken(String),
}

impl Link {
    /// Greets the neighbour whenever a connection comes, until the link is up; then runs it to its end.
    pub async fn run(mut self) {
        loop {
            let dialled = tokio::select! {
                connection = self.connections.recv() => match connection {
                    Some(Connection::Established { dialled }) => dialled,
                    Some(Connection::Closed(_)) => continue,
                    None => return,
                },
                _ = self.farewell.changed() => return,
            };
            let within = self.deadlines.handshake;
            let greeted = match timeout(within, self.greet(dialled)).await {
                Ok(greeted) => greeted,
                Err(_) => Err(Refusal::Trouble(format!("connected, but the handshake was not over within {within:?}"))),
            };
            match greeted {
                Ok(streams) => return self.serve(streams).await,
                Err(Refusal::Fatal(error)) => {
                    // The other end is to read our text too before the connection goes.
                    time::sleep(LAST_WORDS).await;
                    let _ = self.events.send(Event::Fatal(error));
                    return;
                }
                Err(Refusal::Trouble(text)) => {
                    tracing::debug!("node {}: {text}", self.name);
                    self.status.trouble(self.node, text);
                    let _ = self.close.send(self.peer);
                    while !matches!(self.connections.recv().await, Some(Connection::Closed(_)) | None) {}
                    for inbound in [&mut self.inbound_control, &mut self.inbound_bulk] {
                        while let Some(Some(_)) = inbound.next().now_or_never() {}
                    }
                }
            }
        }
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
        wire::write(&mut control, &Message::Hello(self.card.hello(self.me))).await.map_err(|error| trouble(&error))?;
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
                    format!("node {} cannot take part in this run: {}", self.name, printable(&what)),
                );
                return Err(Refusal::Fatal(RunError::Setup(error)));
            }
            Verdict::Differ(section) => section,
        };
        let ours = Message::Text(section, self.card.text(section));
        // Both write and read at once: neither waits for the other's window.
        let (mut reading, mut writing) = control.split();
        let (written, theirs) = futures::join!(wire::write(&mut writing, &ours), wire::read(&mut reading));
        let theirs = written.map_err(WireError::from).and(theirs);
        let text = match theirs {
            Ok(Message::Text(theirs, text)) if theirs == section => text,
            Ok(other) => format!("(it sent {} instead of its text)", kind(&other)),
            Err(error) => format!("(its text did not come: {error})"),
        };
        Err(Refusal::Fatal(RunError::Setup(self.card.difference(section, &self.name, &text))))
    }

    async fn open(&mut self, purpose: Purpose) -> Result<Stream, Refusal> {
        let opened = self.streams.open_stream(self.peer, protocol(purpose, &self.own)).await;
        opened.map_err(|error| Refusal::Trouble(format!("connected, but a stream could not be opened: {error}")))
    }

    /// Runs a link that is up and tells the core how it ended.
    async fn serve(mut self, streams: Streams) {
        if !streams.arithmetic {
            tracing::warn!(
                "node {} rounds matrix products differently: this run's digest depends on which machine does what",
                self.name
            );
        }
        let since = Instant::now();
        self.status.up(self.node);
        let _ = self.events.send(Event::Up(self.node));
        if let End::Broken(reason) = self.talk(streams).await {
            let reason = format!("{reason} ({:.1} s after the link came up)", since.elapsed().as_secs_f64());
            let _ = self.events.send(Event::Down { peer: self.node, reason });
        }
        let _ = self.close.send(self.peer);
    }

    async fn talk(&mut self, streams: Streams) -> End {
        let (control_in, mut control) = streams.control.split();
        let (messages, mut received) = mpsc::channel(4);
        let pulse = Pulse::new();
        let mut tasks = JoinSet::new();
        let frames = self.frames.take().expect("a link comes up once");
        let spare = self.spare.take().expect("a link comes up once");
        tasks.spawn(write_frames(streams.outgoing, frames, self.events.clone(), self.node, Arc::clone(&self.status)));
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
        let (mut acknowledged, mut spoke) = (0, Instant::now());
        loop {
            let message = tokio::select! {
                // A message that is here comes before the end of the stream that brought it.
                biased;
                Some(message) = received.recv() => match self.hear(message, &mut parting) {
                    Some(end) => return end,
                    None => None,
                },
                Some(done) = tasks.join_next() => match parting.after(done) {
                    Some(end) => return end,
                    None => None,
                },
                Some(connection) = self.connections.recv() => match connection {
                    Connection::Closed(_) if parting.heard => return End::Over,
                    Connection::Closed(cause) => return End::Broken(format!("the connection closed: {cause}")),
                    Connection::Established { .. } => None,
                },
                _ = self.farewell.changed(), if parting.reason.is_none() => {
                    parting.reason.clone_from(&self.farewell.borrow());
                    None
                }
                _ = tick.tick() => {
                    let silence = pulse.silence();
                    if silence > 3 * self.deadlines.heartbeat {
                        return End::Broken(format!("nothing was heard for {:.1} s", silence.as_secs_f64()));
                    }
                    let applied = self.applied.load(Ordering::Relaxed);
                    if applied != acknowledged {
                        acknowledged = applied;
                        Some(Message::Ack { applied, durable: 0 })
                    } else {
                        (spoke.elapsed() >= self.deadlines.heartbeat).then_some(Message::Heartbeat)
                    }
                }
            };
            let message = parting.word().map(Message::Goodbye).or(message);
            if let Some(message) = message {
                spoke = Instant::now();
                let sent = timeout(3 * self.deadlines.heartbeat, wire::write(&mut control, &message)).await;
                if !matches!(sent, Ok(Ok(()))) && !parting.heard {
                    return End::Broken("its control stream takes nothing any more".into());
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
    fn hear(&self, message: Message, parting: &mut Parting) -> Option<End> {
        match message {
            Message::Heartbeat => {}
            Message::Ack { applied, durable } => {
                tracing::trace!("node {}: applied {applied}, durable {durable}", self.name)
            }
            Message::Goodbye(None) => {
                parting.heard = true;
                let _ = self.events.send(Event::Goodbye(self.node));
            }
            Message::Goodbye(Some(reason)) => {
                return Some(End::Broken(format!("it left the run: {}", printable(&reason))));
            }
            other => return Some(End::Broken(format!("it sent {} in the middle of a run", kind(&other)))),
        }
        None
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
}

impl Parting {
    /// The goodbye, once it is due: after the last frame, or at once if the run is left.
    fn word(&mut self) -> Option<Option<String>> {
        let reason = self.reason.clone()?;
        let due = !self.said && (self.written || reason.is_some());
        self.said |= due;
        due.then_some(reason)
    }

    /// Upon the end of one of the link's tasks.
    fn after(&mut self, done: Result<Done, tokio::task::JoinError>) -> Option<End> {
        let broken = |text: String| Some(if self.heard { End::Over } else { End::Broken(text) });
        match done {
            Ok(Done::Reader(Ok(()))) => None,
            Ok(Done::Writer(Ok(()))) => {
                self.written = true;
                None
            }
            Ok(Done::Control(Ok(()))) => broken("it closed its control stream without a goodbye".into()),
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
    }
}
