//! The three tasks of a link's streams: frames in, frames out, messages in.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::Sender as Events,
    },
    time::{Duration, Instant},
};

use futures::{AsyncReadExt, AsyncWriteExt};
use libp2p::Stream;
use tokio::sync::{OwnedMutexGuard, mpsc};

use super::{
    session::{Inbox, SharedOutbox},
    wire::{self, Message, WireError},
};
use crate::{
    cluster::event::Event, gossip::frame::ENVELOPE, net::driver::status::Status, units::NodeId,
};

/// The most bytes of one write.
const STEP: usize = 1 << 20;

/// How much of a frame is written together with its envelope.
const HEAD: usize = 16 << 10;

pub(crate) enum Done {
    Reader(Result<(), WireError>),
    Writer(Result<(), std::io::Error>),
    Control(Result<(), WireError>),
}

/// When the last byte of the neighbour arrived.
#[derive(Clone)]
pub(crate) struct LastReceived {
    start: Instant,
    last_ms: Arc<AtomicU64>,
}

impl LastReceived {
    pub(crate) fn new() -> LastReceived {
        LastReceived { start: Instant::now(), last_ms: Arc::default() }
    }

    fn update(&self) {
        self.last_ms.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    pub(crate) fn silence(&self) -> Duration {
        self.start
            .elapsed()
            .saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}

/// Reads frames into the inbox and delivers them one at a time, long ones in pieces.
pub(crate) struct Reader {
    pub stream: Stream,
    pub node: NodeId,
    pub limit: usize,
    pub events: Events<Event>,
    pub inbox: OwnedMutexGuard<Inbox>,
    pub last_received: LastReceived,
    pub status: Arc<Status>,
}

impl Reader {
    /// Reads until the stream ends between two frames. If it is cancelled, the inbox keeps every
    /// byte of a frame that has arrived.
    pub(crate) async fn run(mut self) -> Result<(), WireError> {
        let mut inside = false;
        loop {
            // A frame or piece of the connection before may wait.
            if self.inbox.is_waiting() {
                let Some(delivery) = self.inbox.deliver().await else { return Ok(()) };
                if self.events.send(delivery.into_event(self.node)).is_err() {
                    return Ok(());
                }
            }
            if inside {
                self.inbox.reserve()?;
            } else {
                let mut envelope = [0; ENVELOPE];
                let first = self.stream.read(&mut envelope).await?;
                if first == 0 {
                    return Ok(());
                }
                self.stream.read_exact(&mut envelope[first..]).await?;
                let length = wire::open_envelope(&envelope, self.inbox.due(), self.limit)?;
                self.inbox.begin(length)?;
            }
            self.fill().await?;
            inside = !self.inbox.complete();
        }
    }

    /// Reads the rest of a frame or piece. If it is cancelled, the inbox keeps the bytes that have
    /// arrived.
    async fn fill(&mut self) -> Result<(), WireError> {
        loop {
            let space = self.inbox.space();
            if space.is_empty() {
                return Ok(());
            }
            let read = self.stream.read(space).await?;
            if read == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            self.inbox.fill(read);
            self.last_received.update();
            self.status.received(self.node, read);
        }
    }
}

/// The writer of a connection.
pub(crate) struct Writer {
    pub stream: Stream,
    pub node: NodeId,
    pub frames: OwnedMutexGuard<mpsc::Receiver<Arc<Vec<u8>>>>,
    pub outbox: Arc<SharedOutbox>,
    /// The number of the first frame that the neighbour lacks, and its bytes that it has.
    pub first: (u64, usize),
    pub events: Events<Event>,
    pub status: Arc<Status>,
}

impl Writer {
    /// Writes what the neighbour lacks, then new frames until the core sends no more. If it is
    /// cancelled, the outbox keeps every frame that was taken from the core.
    pub(crate) async fn run(mut self) -> Result<(), std::io::Error> {
        let mut head = Vec::with_capacity(HEAD);
        let (mut number, mut from) = self.first;
        loop {
            let kept = self.outbox.lock().frame(number);
            let frame = match kept {
                Some(frame) => frame,
                None => {
                    let Some(frame) = self.frames.recv().await else { break };
                    number = self.outbox.lock().push(Arc::clone(&frame));
                    frame
                }
            };
            self.write(number, &frame, std::mem::take(&mut from), &mut head).await?;
            let free = {
                let mut outbox = self.outbox.lock();
                outbox.wrote(number);
                outbox.newly_free()
            };
            drop(frame);
            for _ in 0..free {
                let _ = self.events.send(Event::Taken(self.node));
            }
            number += 1;
        }
        self.stream.close().await
    }

    /// Writes a frame from byte `from` on.
    async fn write(
        &mut self,
        number: u64,
        frame: &[u8],
        from: usize,
        head: &mut Vec<u8>,
    ) -> Result<(), std::io::Error> {
        head.clear();
        head.extend_from_slice(&wire::envelope(frame.len(), number));
        let rest = &frame[from..];
        let (together, rest) = rest.split_at(rest.len().min(HEAD - ENVELOPE));
        head.extend_from_slice(together);
        self.stream.write_all(head).await?;
        self.status.sent(self.node, head.len());
        for part in rest.chunks(STEP) {
            self.stream.write_all(part).await?;
            self.status.sent(self.node, part.len());
        }
        self.stream.flush().await
    }
}

/// Reads control messages until the stream ends between two of them.
pub(crate) async fn listen(
    mut stream: impl futures::AsyncRead + Unpin,
    messages: mpsc::Sender<Message>,
    last_received: LastReceived,
) -> Done {
    loop {
        match wire::read(&mut stream).await {
            Ok(message) => {
                last_received.update();
                if messages.send(message).await.is_err() {
                    return Done::Control(Ok(()));
                }
            }
            Err(WireError::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Done::Control(Ok(()));
            }
            Err(error) => return Done::Control(Err(error)),
        }
    }
}
