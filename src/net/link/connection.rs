//! A link while it is up: its reader, its writer, and the loop that sends and receives control
//! messages.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{AsyncReadExt, AsyncWriteExt, StreamExt, io::WriteHalf};
use libp2p::{Stream, swarm::ConnectionId};
use litemap::LiteMap;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{self, Interval, timeout},
};

use super::{
    goodbyes::Goodbyes,
    handshake::answer_rival,
    hello::sentence,
    outcome::Streams,
    session::Received,
    streams::{Done, LastReceived, Reader, Writer, listen},
    task::{CLOSING, End, Link},
    wire::{self, Message, Reason, Rival},
};
use crate::{
    cluster::statements::news,
    gossip::Cause,
    net::transport::peers::{CONNECTED_AGAIN, Connection},
    units::NodeId,
};

/// The interval between acknowledgements of small frames.
const ACK_EVERY: Duration = Duration::from_millis(250);

/// A connection that is in use, without its tasks.
pub(super) struct Open {
    id: ConnectionId,
    /// The number of the neighbour's program, and that of its rival of which it was told.
    pub program: u64,
    told: Option<u64>,
    /// What this program signs for a rival of its own.
    pub answer: Option<Message>,
    control: WriteHalf<Stream>,
    received: mpsc::Receiver<Message>,
    last_received: LastReceived,
    arrived: Arc<Received>,
    /// How many of them the neighbour knows to have arrived.
    acknowledged: u64,
    pub goodbyes: Goodbyes,
    tick: Interval,
    /// When a message was written last.
    spoke: Instant,
    sent_records: LiteMap<NodeId, u64>,
    /// The greatest number of a statement that was written.
    sent: u64,
}

/// What is to be written.
#[derive(Default)]
struct Turn {
    messages: Vec<Message>,
    /// Whether frames that have arrived are acknowledged now.
    acknowledges: bool,
}

impl Link {
    /// Carries frames and messages over a connection until it ends.
    pub(super) async fn exchange(
        &mut self,
        streams: Streams,
        id: ConnectionId,
        tasks: &mut JoinSet<Done>,
    ) -> End {
        let mut open = self.start_tasks(streams, id, tasks).await;
        loop {
            let written = match self.next(&mut open, tasks).await {
                Ok(turn) => self.write(&mut open, turn).await,
                Err(end) => return end,
            };
            if let Err(end) = written {
                return end;
            }
            let goodbyes = &open.goodbyes;
            if goodbyes.sent && (goodbyes.received || matches!(goodbyes.reason, Some(Some(_)))) {
                close(&mut open.control, tasks).await;
                return End::Over;
            }
        }
    }

    /// Starts the tasks of a connection's streams.
    async fn start_tasks(
        &mut self,
        streams: Streams,
        id: ConnectionId,
        tasks: &mut JoinSet<Done>,
    ) -> Open {
        let (control_in, control) = streams.control.split();
        let (messages, received) = mpsc::channel(4);
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
        self.statements.mark_changed();
        let mut tick = time::interval(ACK_EVERY.min(self.deadlines.heartbeat));
        tick.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        Open {
            id,
            program: streams.program,
            told: None,
            answer: None,
            control,
            received,
            last_received,
            acknowledged: arrived.frames(),
            arrived,
            goodbyes: Goodbyes::new(self.leaving.borrow().clone()),
            tick,
            spoke: Instant::now(),
            sent_records: LiteMap::new(),
            sent: 0,
        }
    }

    /// Waits until something happens, and returns what is to be said then.
    async fn next(&mut self, open: &mut Open, tasks: &mut JoinSet<Done>) -> Result<Turn, End> {
        let mut turn = Turn::default();
        tokio::select! {
            // Received messages come before the end of the stream that carried them.
            biased;
            Some(message) = open.received.recv() => {
                self.receive(message, open).map_or(Ok(()), Err)?;
                turn.messages.extend(open.answer.take());
            }
            Some(done) = tasks.join_next() => {
                // The neighbour leaves once it knows that all its frames have arrived.
                turn.acknowledges = matches!(done, Ok(Done::Reader(Ok(()))));
                open.goodbyes.after(done).map_or(Ok(()), Err)?;
            }
            () = open.arrived.many.notified() => turn.acknowledges = true,
            Some(connection) = self.connections.recv() => self.check_connection(open, connection)?,
            // The streams of this connection are open: it is of another one.
            Some((opener, stream)) = self.inbound_control.next() => {
                if opener == self.peer && self.programs.are_rivals() {
                    tokio::spawn(answer_rival(stream, self.name.clone(), self.programs));
                }
            }
            Ok(()) = self.statements.changed() => {
                turn.messages.extend(self.news(open));
            }
            Ok(()) = self.news.changed() => {
                let news = self.news.borrow_and_update().clone();
                turn.messages.extend(news.map(Message::Chooses));
            }
            _ = self.leaving.changed(), if open.goodbyes.reason.is_none() => {
                open.goodbyes.reason.clone_from(&self.leaving.borrow());
            }
            _ = open.tick.tick() => {
                let silence = self.judge_silence(&open.goodbyes, &open.last_received);
                silence.map_or(Ok(()), Err)?;
                turn = Turn { messages: self.signs_of_life(open), acknowledges: true };
            }
        }
        Ok(turn)
    }

    /// Ends this connection if it is the one that has closed.
    fn check_connection(&self, open: &Open, connection: Connection) -> Result<(), End> {
        match connection {
            Connection::Closed { id, cause, .. } if id == open.id => {
                if open.goodbyes.received {
                    return Err(End::Over);
                }
                if cause == CONNECTED_AGAIN {
                    self.programs.set_replaced(open.program, Instant::now());
                }
                let reason = format!("the connection closed: {cause}");
                Err(End::Broken { reason, closed: true })
            }
            Connection::Closed { .. } | Connection::Established { .. } => Ok(()),
        }
    }

    /// What the neighbour has not been told of what nodes say to all others.
    fn news(&mut self, open: &mut Open) -> Vec<Message> {
        let all = self.statements.borrow_and_update().clone();
        std::iter::from_fn(|| news(&all, &mut open.sent)).map(Message::Statements).collect()
    }

    /// What is new of what nodes say about themselves; if it is nothing, from time to time a
    /// heartbeat.
    fn signs_of_life(&self, open: &mut Open) -> Vec<Message> {
        let mut all: Vec<Message> = self.rival(open).into_iter().collect();
        all.extend(self.records(open));
        if all.is_empty() && open.spoke.elapsed() >= self.deadlines.heartbeat {
            all.push(Message::Heartbeat);
        }
        all
    }

    /// What nodes have said about themselves since it was passed on.
    fn records(&self, open: &mut Open) -> Option<Message> {
        let now = Instant::now();
        self.status.say_at_work(now);
        let news = self.status.board().news(now, &mut open.sent_records);
        (!news.is_empty()).then_some(Message::Status(news))
    }

    /// Writes messages, behind the acknowledgement and before the goodbye if they are due.
    async fn write(&mut self, open: &mut Open, turn: Turn) -> Result<(), End> {
        let reason = |cause: Cause| Reason {
            node: cause.node.0,
            text: sentence(&cause.text),
            leaves: cause.leaves,
        };
        let goodbye = open.goodbyes.due(self.outbox.lock().is_empty());
        let goodbye = goodbye.map(|cause| Message::Goodbye(cause.map(reason)));
        let ack = (turn.acknowledges && open.arrived.frames() != open.acknowledged).then(|| {
            open.acknowledged = open.arrived.take();
            Message::Ack(open.acknowledged)
        });
        let last: Vec<Message> = match &goodbye {
            Some(_) => self.news(open).into_iter().chain(self.records(open)).collect(),
            None => Vec::new(),
        };
        let messages = ack.into_iter().chain(turn.messages).chain(last).chain(goodbye);
        #[cfg(test)]
        let messages = messages.flat_map(|message| super::liar::changed(&self.own, message));
        for message in messages {
            open.spoke = Instant::now();
            let limit = 3 * self.deadlines.heartbeat;
            let sent = timeout(limit, wire::write(&mut open.control, &message)).await;
            if !matches!(sent, Ok(Ok(()))) && !open.goodbyes.received {
                return Err(End::broken("its control stream accepts no more messages"));
            }
        }
        Ok(())
    }

    /// What the neighbour must know of another program that has its key, and is refused: it signs
    /// that it runs, once for each.
    fn rival(&self, open: &mut Open) -> Option<Message> {
        let (rival, proof) = self.programs.rival_of(open.program)?;
        if open.told.replace(rival.id) == Some(rival.id) || !proof.is_empty() {
            return None;
        }
        let (name, address) = (&self.name, rival.address);
        let text = format!(
            "two programs run with the key of node {name}: another one connects from {address}; it \
             was started later, and is refused"
        );
        tracing::warn!("{text}");
        Some(Message::Rival(Rival { text, program: rival.id, proof }))
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

/// Closes the control stream, which confirms that the goodbye has arrived, and waits until the
/// other end closes it too.
async fn close(control: &mut WriteHalf<Stream>, tasks: &mut JoinSet<Done>) {
    let closed = async {
        let _ = control.close().await;
        while let Some(done) = tasks.join_next().await {
            if matches!(done, Ok(Done::Control(_))) {
                break;
            }
        }
    };
    let _ = timeout(CLOSING, closed).await;
}
