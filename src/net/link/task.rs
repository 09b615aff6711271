//! One end of a link: over each connection a handshake, then a reader, a writer and a control loop,
//! each a task of its own.
//!
//! * A link is a [session](super::session) that outlives its connections. When one breaks, the end
//!   that knows an address dials again, both say which frames they have, and the link continues. It
//!   is given up after `absence.deadline_s`.
//! * The end that dialled opens the control stream; both say hello on it and compare their runs.
//! * Each end opens one bulk stream for its frames. Reading never waits for writing.
//! * Backpressure: the reader delivers one frame and reads the next meanwhile; it delivers that one
//!   once the first buffer was returned. A long frame is delivered in pieces, a few of them at a
//!   time. So a slow node holds two frames of a link, or a few pieces, the stream's window holds
//!   more, and the sender holds up to [`SLOTS`].
//! * Three missed heartbeats, or any invalid byte, break the connection. Until the run begins the
//!   neighbour may also restart, or its files may be corrected. A run that is over ends with a
//!   goodbye both ways, once the neighbour has acknowledged all frames.

use std::{
    sync::{Arc, mpsc::Sender as Events},
    time::{Duration, Instant},
};

use libp2p::{PeerId, identity::Keypair, swarm::ConnectionId};
use libp2p_stream::IncomingStreams;
use tokio::{
    sync::{Mutex, mpsc, watch},
    task::JoinSet,
    time::{self, timeout},
};

use super::{
    hello::{RunCard, sentence},
    limits::Deadlines,
    outcome::{Refusal, Streams},
    programs::Programs,
    session::{Inbox, Outbox, SharedOutbox},
    wire::{self, Message, Reason},
};
use crate::{
    cluster::{
        begin::meeting::{Meeting, meet},
        event::Event,
        members::assembly::News,
        members::ban::Ban,
        statements::Retained,
    },
    gossip::Cause,
    mixing::Topology,
    net::{driver::status::Status, transport::peers::Connection},
    units::NodeId,
};

/// The maximum number of frames handed to the writer and not yet sent.
pub(crate) use crate::gossip::flights::SLOTS;

/// How often a link that is down looks whether the run has started.
const LOOK: Duration = Duration::from_secs(1);

/// A connection that lasts longer ends an absence, even if no frame was due.
const SHORT_CONNECTION: Duration = Duration::from_secs(15);

/// How long a connection is left to a neighbour that examines the link.
const LONGEST_PROBE: Duration = Duration::from_secs(120);

/// The time limit of the last messages of a link.
pub(super) const CLOSING: Duration = Duration::from_secs(1);

/// The state of leaving: `None` while the node stays, then `Some(reason)`; the reason is `None` if
/// the run is over.
pub(crate) type Leaving = Option<Option<Cause>>;

/// One end of a link; [`Link::run`] is its task.
pub(crate) struct Link {
    pub me: NodeId,
    /// This node's key, and its PeerId, by which neighbours know it.
    pub key: Keypair,
    pub own: PeerId,
    /// The number of nodes in the topology.
    pub nodes: usize,
    /// The neighbour's number in the topology.
    pub node: NodeId,
    pub name: String,
    pub peer: PeerId,
    /// Whether the membership does not use this link: then it never comes up.
    pub unused: bool,
    /// Whether its connections are refused.
    pub ban: Option<Ban>,
    /// While members are chosen: the topology of the run.
    pub assembly: Option<Arc<Topology>>,
    /// The run that this node is about to start.
    pub card: Arc<RunCard>,
    pub frame_limit: usize,
    pub deadlines: Deadlines,
    pub streams: libp2p_stream::Control,
    pub connections: mpsc::UnboundedReceiver<Connection>,
    /// Control streams that the neighbour opened.
    pub inbound_control: IncomingStreams,
    /// Bulk streams that the neighbour opened.
    pub inbound_bulk: IncomingStreams,
    /// Frames to send: the writer of the current connection holds them.
    pub frames: Arc<Mutex<mpsc::Receiver<Arc<Vec<u8>>>>>,
    /// Frames that arrive: the reader of the current connection holds it.
    pub inbox: Arc<Mutex<Inbox>>,
    /// Frames that the neighbour may not have.
    pub outbox: Arc<SharedOutbox>,
    /// The random number of this node's running program.
    pub incarnation: u64,
    /// Whether this node goes back to a checkpoint when the neighbour's program was started again.
    pub restarts: bool,
    /// That of the neighbour's with which this session is; 0 before the first.
    pub known: u64,
    /// The neighbour's programs, and from where its newest connection came.
    pub programs: Programs,
    pub address: String,
    /// Since when the link is lost, and why; `None` while it is up and before the run begins.
    pub lost: Option<(Instant, String)>,
    /// Since when it was lost before the last connection, and what each end had received then.
    pub before: Option<(Instant, Moved)>,
    /// When this node said that it leaves.
    pub left: Option<Instant>,
    /// The core's message to the neighbour before the run begins.
    pub news: watch::Receiver<Option<News>>,
    /// What nodes say to all others.
    pub statements: watch::Receiver<Retained>,
    /// Whether this node leaves.
    pub leaving: watch::Receiver<Leaving>,
    /// The sender of events to the core.
    pub events: Events<Event>,
    /// The state of all links, for messages about waiting.
    pub status: Arc<Status>,
    /// Asks the swarm to close the connection.
    pub close: mpsc::UnboundedSender<(PeerId, ConnectionId)>,
}

/// The frames and bytes of the next frame that each end has received from the other.
type Moved = [(u64, u64); 2];

/// Why a session cannot continue.
enum Lost {
    /// The neighbour's program was started again after the run had started.
    Program,
    /// The two ends do not agree on the frames that were sent.
    Frames(String),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Lost::Program => "it was started again, and its part of the run is lost",
            Lost::Frames(text) => text,
        })
    }
}

/// The result of a link that was up.
pub(crate) enum End {
    Over,
    /// It broke; `closed` says whether its connection is closed too.
    Broken {
        reason: String,
        closed: bool,
    },
    /// The neighbour sent what no neighbour may send.
    Invalid(String),
    /// The neighbour left the run early.
    Left(Cause),
}

impl End {
    pub(crate) fn broken(reason: impl Into<String>) -> End {
        End::Broken { reason: reason.into(), closed: false }
    }
}

impl Link {
    /// Shakes hands on every new connection and runs the link while it is up, until the run is
    /// over.
    pub(crate) async fn run(mut self) {
        while let Some((id, dialled)) = self.next_connection().await {
            if let Some(ban) = self.ban().cloned() {
                let closed = self.refuse(id, dialled, ban).await;
                self.clear(id, closed).await;
                continue;
            }
            let closed = match self.try_greet(id, dialled).await {
                None => true,
                Some(Ok(streams)) => match self.resume(streams.incarnation, streams.received).await
                {
                    Ok(()) => match self.serve(streams, id).await {
                        Some(closed) => closed,
                        None => return,
                    },
                    Err(lost) => {
                        let because = streams.because.clone();
                        // What one end has lost does not return.
                        let _ = self.events.send(match lost {
                            Lost::Program if self.restarts => {
                                Event::Restarted { peer: self.node, because }
                            }
                            lost => {
                                let reason = lost.to_string();
                                Event::Down { peer: self.node, reason }
                            }
                        });
                        return self.part(streams, id).await;
                    }
                },
                Some(Err(Refusal::Differs(difference))) => {
                    // The other end must read our text before the connection closes.
                    time::sleep(CLOSING).await;
                    self.status.trouble(self.node, difference.to_string());
                    let _ = self.events.send(Event::Differs { peer: self.node, difference });
                    false
                }
                Some(Err(Refusal::Probe)) => {
                    let text = "`gradvine doctor` runs there, which examines the link";
                    self.status.trouble(self.node, text.into());
                    // In the middle of a run the node's own connection is missed.
                    !self.status.has_started() && self.leave_to_probe(id).await
                }
                Some(Err(Refusal::OtherMembership(because))) => {
                    // The other end must read our hello before the connection closes.
                    time::sleep(CLOSING / 4).await;
                    self.status.in_other_membership(self.node);
                    let _ = self.events.send(Event::OtherMembership { peer: self.node, because });
                    false
                }
                Some(Err(Refusal::Banned(text))) => {
                    self.status.trouble(self.node, format!("it {text}"));
                    if self.lost.is_some() || self.assembly.is_some() {
                        let cause = Cause { node: self.node, text, leaves: true };
                        let _ = self.events.send(Event::Left { peer: self.node, cause });
                    }
                    false
                }
                Some(Err(Refusal::Rival(rival))) => {
                    self.hear_of(&rival);
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

    /// Leaves a connection to a neighbour that examines the link, and returns whether it is closed.
    async fn leave_to_probe(&mut self, id: ConnectionId) -> bool {
        tokio::select! {
            () = closed(&mut self.connections, id) => true,
            _ = self.leaving.changed() => false,
            () = time::sleep(LONGEST_PROBE) => false,
        }
    }

    /// Waits for a connection; `None` if the link has ended.
    async fn next_connection(&mut self) -> Option<(ConnectionId, bool)> {
        loop {
            if self.known != 0 && self.lost.is_none() && self.status.has_started() {
                let reason = "it broke when the run began".to_string();
                self.lost = Some((Instant::now(), reason));
            }
            if self.leaving.borrow().is_some() {
                self.left.get_or_insert_with(Instant::now);
                if !self.owes() {
                    return None;
                }
            }
            let until = self.given_up_at();
            let expired = async {
                match until {
                    Some(until) => time::sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                connection = self.connections.recv() => match connection? {
                    Connection::Established { id, dialled, address } => {
                        self.address = address;
                        return Some((id, dialled));
                    }
                    Connection::Closed { .. } => {}
                },
                changed = self.leaving.changed() => changed.ok()?,
                // The run may have started meanwhile.
                () = time::sleep(LOOK) => {}
                () = expired => {
                    self.give_up();
                    return None;
                }
            }
        }
    }

    /// Whether this node, which leaves, must tell the neighbour so or still has frames for it.
    fn owes(&self) -> bool {
        self.lost.is_some() && matches!(*self.leaving.borrow(), Some(None))
    }

    /// When a lost link is given up, if ever. A node that has finished, and whose frames have
    /// arrived, waits only for the goodbyes.
    fn given_up_at(&self) -> Option<Instant> {
        let (since, _) = self.lost.as_ref()?;
        let sent = self.outbox.lock().is_empty()
            && self.frames.try_lock().is_ok_and(|frames| frames.is_empty());
        match self.left {
            Some(left) if sent => Some(left + self.deadlines.goodbye),
            _ => Some(*since + self.deadlines.absence?),
        }
    }

    /// Reports that a lost link has not returned.
    fn give_up(&mut self) {
        let Some((since, reason)) = self.lost.take() else { return };
        let mut missing = self.status.missing().into_iter();
        let trouble = missing.find(|(node, _)| *node == self.node).map(|(_, text)| text);
        let trouble = trouble.filter(|text| *text != linked(&reason));
        let reason = format!(
            "it broke ({reason}) and did not return within {:.0} s (absence.deadline_s): {}",
            since.elapsed().as_secs_f64(),
            trouble.unwrap_or_else(|| "there was no new connection".into())
        );
        let _ = self.events.send(Event::Down { peer: self.node, reason });
    }

    /// Begins a session, or continues it where the other end has some frames and some bytes of the
    /// next one.
    ///
    /// # Errors
    /// If the neighbour's program was started again after the run had started.
    async fn resume(
        &mut self,
        incarnation: u64,
        (received, partial): (u64, u64),
    ) -> Result<(), Lost> {
        match meet(self.known, incarnation, self.status.has_started()) {
            Meeting::Continues => {
                return self.outbox.lock().resume(received, partial).map_err(Lost::Frames);
            }
            Meeting::Lost => return Err(Lost::Program),
            Meeting::BeginsAnew => {
                *self.outbox.lock() = Outbox::default();
                self.inbox.lock().await.reset();
                let _ = self.events.send(Event::Restarted { peer: self.node, because: None });
            }
            Meeting::Begins => {}
        }
        self.known = incarnation;
        Ok(())
    }

    /// Ends a link that cannot continue, once the neighbour has the reason.
    async fn part(&mut self, mut streams: Streams, id: ConnectionId) {
        // The core decides that the run ends, and why.
        let _ = timeout(CLOSING, self.leaving.changed()).await;
        let cause = self.leaving.borrow().clone().flatten();
        if let Some(cause) = cause {
            let reason =
                Reason { node: cause.node.0, text: sentence(&cause.text), leaves: cause.leaves };
            let goodbye = Message::Goodbye(Some(reason));
            let _ = timeout(CLOSING, wire::write(&mut streams.control, &goodbye)).await;
            time::sleep(CLOSING / 4).await;
        }
        let _ = self.close.send((self.peer, id));
    }

    /// Ends this connection, unless it is closed, and forgets its leftovers.
    async fn clear(&mut self, id: ConnectionId, gone: bool) {
        if !gone {
            let _ = self.close.send((self.peer, id));
            closed(&mut self.connections, id).await;
        }
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
        self.report_up(since).await;
        let mut tasks = JoinSet::new();
        let program = streams.program;
        self.programs.set_linked(program, true, Instant::now());
        let end = self.exchange(streams, id, &mut tasks).await;
        self.programs.set_linked(program, false, Instant::now());
        // After the event of its end nothing of this connection may follow.
        tasks.shutdown().await;
        let gone = self.report_end(end, since).await;
        let ends = gone.is_none() || self.leaving.borrow().is_some() && !self.owes();
        if ends {
            let _ = self.close.send((self.peer, id));
            return None;
        }
        gone
    }

    /// Tells the core that the link is up since then, for the first time or again.
    async fn report_up(&mut self, since: Instant) {
        // A message from the time when the link was down is out of date.
        self.news.borrow_and_update();
        self.status.up(self.node);
        self.before = match &self.lost {
            Some((lost, _)) => {
                let moved = self.moved().await;
                // The bytes that the neighbour received over the connection before.
                let progress = self.before.is_some_and(|(_, before)| before != moved);
                Some((if progress { since } else { *lost }, moved))
            }
            None => None,
        };
        let _ = self.events.send(match self.lost.take() {
            Some((lost, _)) => {
                let resent = self.outbox.lock().unacknowledged();
                Event::Back { peer: self.node, absent: lost.elapsed(), resent }
            }
            None => Event::Up(self.node),
        });
    }

    /// Tells the core how a connection has ended that came up at `since`. `None` if the link is
    /// finished, else whether the connection is closed.
    async fn report_end(&mut self, end: End, since: Instant) -> Option<bool> {
        let early = self.leaving.borrow().is_none() && !self.status.has_started();
        match end {
            End::Over if early => {
                let reason = "it said goodbye before the run began".to_string();
                self.status.down(self.node, format!("it was linked, and {reason}"));
                let _ = self.events.send(Event::Lost { peer: self.node, reason });
                Some(false)
            }
            End::Over => None,
            End::Broken { reason, closed } => {
                let reason = format!(
                    "{reason} ({:.1} s after the link came up)",
                    since.elapsed().as_secs_f64()
                );
                self.status.down(self.node, linked(&reason));
                if self.status.has_started() {
                    let lost = self.lost_since(since).await;
                    self.lost = Some((lost, reason.clone()));
                }
                let _ = self.events.send(Event::Lost { peer: self.node, reason });
                Some(closed)
            }
            End::Invalid(reason) => {
                self.status.down(self.node, format!("it was linked, then {reason}"));
                let (peer, ends) = (self.node, self.status.has_started());
                let _ = self.events.send(match ends {
                    true => Event::Down { peer, reason },
                    false => Event::Lost { peer, reason },
                });
                (!ends).then_some(false)
            }
            End::Left(cause) => {
                self.status.down(self.node, "it was linked, and left before the run began".into());
                let _ = self.events.send(Event::Left { peer: self.node, cause });
                (!self.status.has_started()).then_some(false)
            }
        }
    }

    /// What each end has received from the other, as far as this end knows.
    async fn moved(&self) -> Moved {
        let received = self.inbox.lock().await.progress();
        let outbox = self.outbox.lock();
        [received, (outbox.first(), outbox.partial() as u64)]
    }

    /// Since when the link is lost, if its connection has broken that came up at `up`. A short
    /// connection that carried nothing of a frame does not interrupt an absence.
    async fn lost_since(&self, up: Instant) -> Instant {
        let now = Instant::now();
        match self.before {
            Some((lost, moved)) if now - up < SHORT_CONNECTION && moved == self.moved().await => {
                lost
            }
            _ => now,
        }
    }
}

/// The state of a link whose connection broke, until an attempt to connect fails.
fn linked(reason: &str) -> String {
    format!("it was linked, then the link broke: {reason}")
}

/// Waits until this connection is closed.
pub(crate) async fn closed(
    connections: &mut mpsc::UnboundedReceiver<Connection>,
    id: ConnectionId,
) {
    while let Some(connection) = connections.recv().await {
        if matches!(connection, Connection::Closed { id: which, .. } if which == id) {
            return;
        }
    }
}
