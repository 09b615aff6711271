//! A link while it is up: its reader, its writer, and the loop that sends and receives control
//! messages.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use libp2p::swarm::ConnectionId;
use litemap::LiteMap;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{self, timeout},
};

use super::{
    goodbyes::Goodbyes,
    handshake::answer_rival,
    hello::sentence,
    outcome::Streams,
    session::Received,
    streams::{Done, LastReceived, Reader, Writer, listen},
    task::{CLOSING, End, Link},
    wire::{self, Message, Reason, StartMessage},
};
use crate::{
    gossip::Cause,
    net::{
        life::rounds::status::{Beat, Saves},
        transport::peers::{ANEW, Connection},
    },
};

/// The interval between acknowledgements of small frames.
const ACK_EVERY: Duration = Duration::from_millis(250);

/// How often per heartbeat a computing node sends a beat.
const BEATS: u32 = 5;

impl Link {
    /// Carries frames and messages over a connection until it ends.
    #[expect(clippy::too_many_lines)]
    pub(super) async fn exchange(
        &mut self,
        streams: Streams,
        id: ConnectionId,
        tasks: &mut JoinSet<Done>,
    ) -> End {
        let program = streams.program;
        let (control_in, mut control) = streams.control.split();
        let (messages, mut received) = mpsc::channel(4);
        let last_received = LastReceived::new();
        let frames = Arc::clone(&self.frames).lock_owned().await;
        let inbox = Arc::clone(&self.inbox).lock_owned().await;
        let arrived: Arc<Received> = Arc::clone(inbox.received());
        let writer = Writer {
            stream: streams.outgoing,
            node: self.node,
            frames,
            outbox: Arc::clone(&self.outbox),
            first: {
                let outbox = self.outbox.lock();
                (outbox.first(), outbox.partial())
            },
            events: self.events.clone(),
            status: Arc::clone(&self.status),
        };
        tasks.spawn(async move { Done::Writer(writer.run().await) });
        let reader = Reader {
            stream: streams.incoming,
            node: self.node,
            limit: self.frame_limit,
            events: self.events.clone(),
            inbox,
            last_received: last_received.clone(),
            status: Arc::clone(&self.status),
        };
        tasks.spawn(async move { Done::Reader(reader.run().await) });
        tasks.spawn(listen(control_in, messages, last_received.clone()));
        let mut tick = time::interval(ACK_EVERY.min(self.deadlines.heartbeat));
        tick.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let mut goodbyes = Goodbyes::new(self.leaving.borrow().clone());
        let (mut acknowledged, mut spoke) = (arrived.frames(), Instant::now());
        let (mut sent_beats, mut sent_paces) = (LiteMap::new(), LiteMap::new());
        // The neighbour may have missed it while the link was down.
        let begun = self.status.begun();
        let mut first: Vec<Message> =
            begun.map(|begun| Message::Start(StartMessage::Begin(begun))).into_iter().collect();
        first.extend(self.rival(program).map(Message::Rival));
        let mut sent_saves = Saves::default();
        let mut queue: Vec<Message> = Vec::new();
        loop {
            let mut acknowledges = false;
            let message = if let Some(first) = first.pop() {
                Some(first)
            } else {
                tokio::select! {
                    // Received messages come before the end of the stream that carried them.
                    biased;
                    Some(message) = received.recv() => {
                        if let Some(end) = self.receive(message, &mut goodbyes, &mut sent_beats) {
                            return end;
                        }
                        None
                    }
                    Some(done) = tasks.join_next() => {
                        let read = matches!(done, Ok(Done::Reader(Ok(()))));
                        if let Some(end) = goodbyes.after(done) {
                            return end;
                        }
                        // The neighbour leaves once it knows that all its frames have arrived.
                        acknowledges = read;
                        None
                    }
                    () = arrived.many.notified() => {
                        acknowledges = true;
                        None
                    }
                    Some(connection) = self.connections.recv() => match connection {
                        Connection::Closed { id: which, .. } if which != id => None,
                        Connection::Closed { .. } if goodbyes.received => return End::Over,
                        Connection::Closed { cause, .. } => {
                            if cause == ANEW {
                                self.programs.set_replaced(program, Instant::now());
                            }
                            return End::Broken { reason: format!("the connection closed: \
                                {cause}"), closed: true };
                        }
                        Connection::Established { .. } => None,
                    },
                    // The streams of this connection are open: it is of another one.
                    Some((opener, stream)) = self.inbound_control.next() => {
                        if opener == self.peer && self.programs.are_rivals() {
                            let (name, programs) = (self.name.clone(), self.programs);
                            tokio::spawn(answer_rival(stream, name, programs));
                        }
                        None
                    }
                    Ok(()) = self.start_messages.changed() => {
                        let message = self.start_messages.borrow_and_update().clone();
                        message.map(Message::Start)
                    }
                    _ = self.leaving.changed(), if goodbyes.reason.is_none() => {
                        goodbyes.reason.clone_from(&self.leaving.borrow());
                        None
                    }
                    _ = tick.tick() => {
                        if let Some(end) = self.judge_silence(&goodbyes, &last_received) {
                            return end;
                        }
                        acknowledges = true;
                        queue = self.status.saves().news(&mut sent_saves);
                        let paces = self.status.paces().news(&mut sent_paces);
                        queue.extend((!paces.is_empty()).then_some(Message::Pace(paces)));
                        self.status.beat(self.me, self.deadlines.heartbeat / BEATS);
                        let news = self.status.new_beats(&mut sent_beats);
                        if news.is_empty() {
                            let quiet = spoke.elapsed() >= self.deadlines.heartbeat;
                            quiet.then_some(Message::Heartbeat)
                        } else {
                            let number = |beat: Beat| (beat.node.0, beat.count, beat.absent);
                            Some(Message::Working(news.into_iter().map(number).collect()))
                        }
                    }
                }
            };
            let reason = |cause: Cause| Reason {
                node: cause.node.0,
                text: sentence(&cause.text),
                leaves: cause.leaves,
            };
            let goodbye = goodbyes.due(self.outbox.lock().is_empty());
            let goodbye = goodbye.map(|cause| Message::Goodbye(cause.map(reason)));
            let ack = (acknowledges && arrived.frames() != acknowledged).then(|| {
                acknowledged = arrived.take();
                Message::Ack(acknowledged)
            });
            let more = std::mem::take(&mut queue);
            for message in ack.into_iter().chain(message).chain(more).chain(goodbye) {
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

    /// What the neighbour must know of another program that has its key, and is refused.
    fn rival(&self, program: u64) -> Option<String> {
        let rival = self.programs.rival_of(program)?;
        let (name, address) = (&self.name, rival.address);
        let text = format!(
            "two programs run with the key of node {name}: another one connects from {address}; it \
             was started later, and is refused"
        );
        tracing::warn!("{text}");
        Some(text)
    }

    /// Ends a connection on which what must come has not come for too long.
    fn judge_silence(&self, goodbyes: &Goodbyes, last_received: &LastReceived) -> Option<End> {
        let (limit, silence) = (3 * self.deadlines.heartbeat, last_received.silence());
        if silence > limit {
            let seconds = silence.as_secs_f64();
            return Some(End::broken(format!("nothing was received for {seconds:.1} s")));
        }
        if goodbyes.has_waited(self.deadlines.goodbye) && self.outbox.lock().is_empty() {
            return Some(End::Over);
        }
        let silent = goodbyes.is_silent(limit);
        silent.then(|| End::Invalid("it closed its stream of frames without a goodbye".into()))
    }
}
