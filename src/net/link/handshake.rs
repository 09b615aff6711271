//! The handshake of a connection: streams, hellos, and what both ends say when their runs differ.

use std::time::{Duration, Instant};

use futures::{AsyncReadExt, FutureExt, StreamExt};
use libp2p::{PeerId, Stream, StreamProtocol, identity::PublicKey, swarm::ConnectionId};
use libp2p_stream::{IncomingStreams, OpenStreamError};
use tokio::{sync::mpsc, time::timeout};

use super::{
    hello::{Verdict, printable, sentence},
    outcome::{Refusal, Streams},
    programs::{self, Met, Program, Programs},
    task::{CLOSING, Link, closed},
    wire::{self, Hello, Message, Reason, Rival, Runs, WireError},
};
use crate::{
    cluster::{
        event::{Difference, Event},
        members::ban::Ban,
    },
    config::ConfigError,
    net::VERSION,
};

/// The purpose of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
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
pub(crate) fn protocol(purpose: Purpose, opener: &PeerId) -> StreamProtocol {
    let name = match purpose {
        Purpose::Control => "control",
        Purpose::Bulk => "bulk",
    };
    StreamProtocol::try_from_owned(format!("/gradvine/{VERSION}/{name}/{opener}"))
        .expect("it starts with a slash")
}

/// The version in the name of a stream's protocol.
pub(crate) fn version_of(protocol: &str) -> Option<u32> {
    protocol.strip_prefix("/gradvine/")?.split_once('/')?.0.parse().ok()
}

impl Link {
    /// Shakes hands within the deadline; `None` if the connection closes meanwhile.
    pub(super) async fn try_greet(
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

    /// Whether the neighbour is refused now.
    pub(crate) fn ban(&self) -> Option<&Ban> {
        self.ban.as_ref().filter(|ban| Instant::now() < ban.until)
    }

    /// Tells a neighbour that is refused why, and returns whether the connection is closed.
    pub(crate) async fn refuse(&mut self, id: ConnectionId, dialled: bool, ban: Ban) -> bool {
        let seconds = ban.until.saturating_duration_since(Instant::now()).as_secs();
        self.status.trouble(self.node, format!("refused for {seconds} s more: {}", ban.reason));
        let within = self.deadlines.handshake;
        let mut connections = std::mem::replace(&mut self.connections, mpsc::unbounded_channel().1);
        let text = format!("refuses this node for {seconds} s more: {}", sentence(&ban.reason));
        let goodbye = Message::Goodbye(Some(Reason { node: self.me.0, text, leaves: true }));
        let tell = async {
            let mut control = match dialled {
                true => self.open(Purpose::Control).await?,
                false => inbound(&mut self.inbound_control, self.peer).await?,
            };
            let written = wire::write(&mut control, &goodbye).await;
            // The other end reads it, and closes.
            let _ = wire::read(&mut control).await;
            let _ = wire::read(&mut control).await;
            written.map_err(|error| Refusal::Trouble(error.to_string()))
        };
        let gone = tokio::select! {
            _ = timeout(within, tell) => false,
            () = closed(&mut connections, id) => true,
        };
        self.connections = connections;
        gone
    }

    /// Opens the streams and exchanges hellos.
    async fn greet(&mut self, dialled: bool) -> Result<Streams, Refusal> {
        let trouble = |error: &dyn std::fmt::Display| {
            Refusal::Trouble(format!("connected, but the handshake broke off: {error}"))
        };
        let mut control = if dialled {
            self.open(Purpose::Control).await?
        } else {
            inbound(&mut self.inbound_control, self.peer).await?
        };
        // The neighbour opens its stream of frames when it has our hello: these are older.
        while let Some(Some(_)) = self.inbound_bulk.next().now_or_never() {}
        // The end that dialled speaks first, so that it can be told before this one says hello.
        let early = match dialled {
            true => None,
            false => {
                let early = wire::read(&mut control).await;
                if let Ok(Message::Hello(theirs)) = &early {
                    self.check_rival(theirs, &mut control).await?;
                }
                Some(early)
            }
        };
        let (received, partial) = self.inbox.lock().await.progress();
        let hello = Hello {
            received,
            partial,
            incarnation: self.incarnation,
            known: self.known,
            ..self.card.hello(self.me)
        };
        wire::write(&mut control, &Message::Hello(hello)).await.map_err(|error| trouble(&error))?;
        let theirs = match early {
            Some(early) => early,
            None => wire::read(&mut control).await,
        };
        let theirs = hello_in(theirs.map_err(|error| trouble(&error))?)?;
        if dialled {
            self.check_rival(&theirs, &mut control).await?;
        }
        let arithmetic = self.judge(&theirs, &mut control).await?;
        let outgoing = self.open(Purpose::Bulk).await?;
        let incoming = inbound(&mut self.inbound_bulk, self.peer).await?;
        // A session with an earlier program of this node is of no use here.
        let continues = theirs.known == self.incarnation;
        let received = if continues { (theirs.received, theirs.partial) } else { (0, 0) };
        let Hello { incarnation, program, because, .. } = theirs;
        Ok(Streams {
            control,
            outgoing,
            incoming,
            arithmetic,
            incarnation,
            because,
            program,
            received,
        })
    }

    /// Refuses a program whose key another one has, which stays.
    async fn check_rival(&self, theirs: &Hello, control: &mut Stream) -> Result<(), Refusal> {
        let program = Program::new(theirs.program, theirs.age, self.address.clone());
        match self.programs.meet(program, Instant::now()) {
            Met::Welcome => Ok(()),
            Met::Later => {
                let text = "another program with this key was linked until this one connected: \
                            that one may return first";
                Err(Refusal::Trouble(text.into()))
            }
            Met::Refused(first, proof) => {
                Err(Refusal::Trouble(refuse_rival(&self.name, &first, proof, control).await))
            }
        }
    }

    /// The neighbour says that another program has this node's key. That counts if that one has
    /// signed, with the key, that it runs.
    pub(super) fn hear_of(&self, rival: &Rival) {
        let (text, own) = (sentence(&rival.text), programs::own().0);
        self.status.trouble(self.node, text.clone());
        let statement = self.card.runs(rival.program, own);
        if rival.program != own && self.key.public().verify(&statement, &rival.proof) {
            let _ = self.events.send(Event::Rival { peer: self.node, text });
        }
    }

    /// What this program signs for a rival of which a neighbour tells.
    pub(super) fn runs(&self, rival: &Rival) -> Option<Message> {
        let (own, other) = (programs::own().0, rival.program);
        let signature = self.key.sign(&self.card.runs(own, other)).ok().filter(|_| own != other)?;
        Some(Message::Runs(Runs { other, signature }))
    }

    /// Takes what a neighbour's program has signed for its rival; whether it has signed it.
    pub(super) fn take_proof(&self, program: u64, Runs { other, signature }: Runs) -> bool {
        let statement = self.card.runs(program, other);
        let public = PublicKey::try_decode_protobuf(self.peer.as_ref().digest());
        let signed = public.is_ok_and(|key| key.verify(&statement, &signature));
        if signed {
            self.programs.set_proof(program, other, signature);
        }
        signed
    }

    /// Compares the hellos; if a section differs, both send its text.
    async fn judge(&mut self, theirs: &Hello, control: &mut Stream) -> Result<bool, Refusal> {
        let section = match self.card.compare(self.node, theirs) {
            Verdict::Same { arithmetic } if !self.unused => return Ok(arithmetic),
            Verdict::Same { .. } | Verdict::OtherMembership => {
                return Err(Refusal::OtherMembership(theirs.because.clone()));
            }
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
        match self.streams.open_stream(self.peer, protocol(purpose, &self.own)).await {
            Ok(stream) => Ok(stream),
            Err(OpenStreamError::UnsupportedProtocol(_)) => {
                Err(Refusal::Differs(Difference::Programs(self.other_program().await)))
            }
            Err(error) => {
                let text = format!("connected, but a stream could not be opened: {error}");
                Err(Refusal::Trouble(text))
            }
        }
    }

    /// Why the neighbour does not know the protocol of a stream.
    async fn other_program(&self) -> String {
        let (name, own) = (&self.name, self.own);
        for _ in 0..20 {
            match self.status.program(self.node) {
                Some((Some(theirs), agent)) if theirs != VERSION => {
                    return format!(
                        "node {name} speaks protocol version {theirs} ({agent}), this node \
                         {VERSION}: install the same release of gradvine on both"
                    );
                }
                Some((Some(_), _)) => {
                    return format!(
                        "node {name} does not know this node's PeerId {own}: give both the same \
                         topology"
                    );
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
        format!(
            "node {name} speaks another protocol version than {VERSION}, or does not know this \
             node's PeerId {own}: install the same release of gradvine on both and give both the \
             same topology"
        )
    }
}

/// The hello that this first message is.
fn hello_in(first: Message) -> Result<Hello, Refusal> {
    match first {
        Message::Hello(hello) => Ok(hello),
        Message::Probe => Err(Refusal::Probe),
        Message::Rival(rival) => Err(Refusal::Rival(rival)),
        Message::Goodbye(Some(reason)) => Err(Refusal::Banned(sentence(&reason.text))),
        other => Err(Refusal::Trouble(format!(
            "connected, but its first message is not a hello: {}",
            kind(&other)
        ))),
    }
}

/// Tells a program that another one with its key stays, and returns what is told.
async fn refuse_rival(name: &str, first: &Program, proof: Vec<u8>, control: &mut Stream) -> String {
    let text = format!(
        "two programs run with the key of node {name}: the one at {} was started first and stays",
        first.address
    );
    let rival = Rival { text: text.clone(), program: first.id, proof };
    let _ = wire::write(control, &Message::Rival(rival)).await;
    // The other end reads it, and closes.
    let _ = timeout(CLOSING, wire::read(control)).await;
    text
}

/// Answers a second program with a neighbour's key, while the link with the first one is up.
pub(super) async fn answer_rival(mut control: Stream, name: String, programs: Programs) {
    let greeted = timeout(CLOSING, wire::read(&mut control)).await;
    if let Ok(Ok(Message::Hello(Hello { program, age, .. }))) = greeted {
        let program = Program::new(program, age, String::new());
        if let Met::Refused(first, proof) = programs.meet(program, Instant::now()) {
            refuse_rival(&name, &first, proof, &mut control).await;
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

/// What a message is, for errors.
pub(crate) fn kind(message: &Message) -> &'static str {
    match message {
        Message::Hello(_) => "a hello",
        Message::Text(..) => "a text",
        Message::Ack { .. } => "an acknowledgement",
        Message::Heartbeat => "a heartbeat",
        Message::Goodbye(_) => "a goodbye",
        Message::Chooses(_) => "a message about the members",
        Message::Probe => "a probe",
        Message::Rival(_) | Message::Runs(_) => "a message about another program",
        Message::Status(_) => "records of nodes",
        Message::Statements(_) => "statements of nodes",
    }
}
