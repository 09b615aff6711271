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
    event::Event,
    status::Status,
    wire::{self, Message, WireError},
};
use crate::{gossip::frame::ENVELOPE, units::NodeId};

/// Memory for a frame grows in steps of this many bytes, as they arrive.
const STEP: usize = 1 << 20;

/// How a task ended.
pub(super) enum Done {
    Reader(Result<(), WireError>),
    Writer(Result<(), std::io::Error>),
    Control(Result<(), WireError>),
}

/// When the last byte of the neighbour arrived.
#[derive(Clone)]
pub(super) struct LastReceived {
    start: Instant,
    last_ms: Arc<AtomicU64>,
}

impl LastReceived {
    pub fn new() -> LastReceived {
        LastReceived { start: Instant::now(), last_ms: Arc::default() }
    }

    fn update(&self) {
        self.last_ms.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    pub fn silence(&self) -> Duration {
        self.start
            .elapsed()
            .saturating_sub(Duration::from_millis(self.last_ms.load(Ordering::Relaxed)))
    }
}

/// Reads frames and delivers them one at a time.
pub(super) struct Reader {
    pub stream: Stream,
    pub node: NodeId,
    pub limit: usize,
    pub events: Events<Event>,
    pub spare: OwnedMutexGuard<mpsc::Receiver<Vec<u8>>>,
    pub last_received: LastReceived,
    pub status: Arc<Status>,
}

impl Reader {
    /// Reads until the stream ends between two frames.
    pub async fn run(mut self) -> Result<(), WireError> {
        let mut buffer = Vec::new();
        for sequence in 1.. {
            let mut envelope = [0; ENVELOPE];
            let first = self.stream.read(&mut envelope).await?;
            if first == 0 {
                return Ok(());
            }
            self.stream.read_exact(&mut envelope[first..]).await?;
            let length = wire::open_envelope(&envelope, sequence, self.limit)?;
            self.fill(&mut buffer, length).await?;
            let next = match sequence {
                1 => Vec::new(),
                // The core returned the last frame's buffer: now it may have this one.
                _ => match self.spare.recv().await {
                    Some(buffer) => buffer,
                    None => return Ok(()),
                },
            };
            let bytes = std::mem::replace(&mut buffer, next);
            if self.events.send(Event::Frame { from: self.node, bytes }).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn fill(&mut self, buffer: &mut Vec<u8>, length: usize) -> Result<(), WireError> {
        buffer.truncate(length);
        if buffer.capacity() < length {
            // Reserves memory for the whole frame, and fills it as bytes arrive.
            buffer.clear();
            buffer
                .try_reserve_exact(length)
                .map_err(|error| std::io::Error::other(error.to_string()))?;
        }
        let mut filled = 0;
        while filled < length {
            if filled == buffer.len() {
                buffer.resize(length.min(filled + STEP), 0);
            }
            let read = self.stream.read(&mut buffer[filled..]).await?;
            if read == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into());
            }
            filled += read;
            self.last_received.update();
            self.status.moved(read);
        }
        Ok(())
    }
}

/// Writes until the core sends no more frames.
pub(super) async fn write_frames(
    mut stream: Stream,
    mut frames: OwnedMutexGuard<mpsc::Receiver<Arc<Vec<u8>>>>,
    events: Events<Event>,
    node: NodeId,
    status: Arc<Status>,
) -> Done {
    /// How much of a frame is written together with its envelope.
    const HEAD: usize = 16 << 10;
    let mut head = Vec::with_capacity(HEAD);
    let mut sequence = 0;
    while let Some(frame) = frames.recv().await {
        sequence += 1;
        let together = frame.len().min(HEAD - ENVELOPE);
        head.clear();
        head.extend_from_slice(&wire::envelope(frame.len(), sequence));
        head.extend_from_slice(&frame[..together]);
        let written = async {
            stream.write_all(&head).await?;
            for part in frame[together..].chunks(STEP) {
                stream.write_all(part).await?;
                status.moved(part.len());
            }
            stream.flush().await
        };
        if let Err(error) = written.await {
            return Done::Writer(Err(error));
        }
        drop(frame);
        let _ = events.send(Event::Taken(node));
    }
    Done::Writer(stream.close().await)
}

/// Reads control messages until the stream ends between two of them.
pub(super) async fn listen(
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
