//! The state of a link that outlives its connections: which frames each end has.
//!
//! Frames are numbered from 1 in each direction. The sender keeps a frame until the receiver has
//! acknowledged it. When a connection breaks, both ends say in the next hello which frames they
//! have, and how many bytes of the next one, and the sender continues after them: no frame is lost,
//! none is delivered twice, and a frame that takes longer than its connection arrives. Both ends
//! also say which *incarnation* they are, a random number of the running program: a program that
//! was started again has lost its frames, and is recognised.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{Notify, mpsc};

use super::wire::WireError;
use crate::{cluster::event::Event, gossip::frame::HEADER, units::NodeId};

/// Bytes of frames that are written, but not acknowledged, above which a written frame keeps its
/// slot: then the core waits for the receiver, and memory stays bounded.
const KEPT: usize = 4 << 20;

/// Memory for a frame is filled in steps of this many bytes, as they arrive.
const STEP: usize = 1 << 20;

/// A longer frame is delivered in pieces of [`PIECE`] bytes, the first of them with the header.
pub(super) const WHOLE: usize = 4 << 20;

/// The bytes of a piece, a multiple of every number's size.
pub(super) const PIECE: usize = 1 << 20;

/// The pieces of a link that the core may have at a time.
const PIECES: usize = 4;

/// How many buffers the core may return at a time.
pub(crate) const RETURNED: usize = PIECES + 1;

/// Bytes after which a receiver acknowledges at once instead of with the next tick.
const AT_ONCE: u64 = 1 << 20;

/// A random number that is not 0.
pub(crate) fn random() -> u64 {
    // The standard library's only source of random numbers: two new hash keys.
    RandomState::new().hash_one(0u8).max(1)
}

/// The frames of one direction that the receiver may not have yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    kept: VecDeque<Arc<Vec<u8>>>,
    bytes: usize,
    /// Frames that the receiver has: the first kept frame has the next number.
    acknowledged: u64,
    /// The last frame that was written.
    written: u64,
    /// Frames whose slots are free.
    freed: u64,
    /// The bytes of the first kept frame that the receiver had when the last connection began.
    partial: usize,
}

impl Outbox {
    /// Keeps the next frame and returns its number.
    pub(crate) fn push(&mut self, frame: Arc<Vec<u8>>) -> u64 {
        self.bytes += frame.len();
        self.kept.push_back(frame);
        self.last()
    }

    /// The number of the last frame.
    fn last(&self) -> u64 {
        self.acknowledged + self.kept.len() as u64
    }

    /// A frame that is kept.
    pub(crate) fn frame(&self, number: u64) -> Option<Arc<Vec<u8>>> {
        let index = usize::try_from(number.checked_sub(self.acknowledged + 1)?).ok()?;
        self.kept.get(index).cloned()
    }

    /// The number of the first frame that the receiver may lack.
    pub(crate) fn first(&self) -> u64 {
        self.acknowledged + 1
    }

    /// The bytes of the first kept frame that the receiver had when this connection began.
    pub(crate) fn partial(&self) -> usize {
        self.partial
    }

    /// Continues where the receiver of a new connection is: it has `received` frames and `partial`
    /// bytes of the next one.
    ///
    /// # Errors
    /// As [`Outbox::acknowledge`], or if the next frame has fewer bytes.
    pub(crate) fn resume(&mut self, received: u64, partial: u64) -> Result<(), String> {
        self.acknowledge(received)?;
        let length = self.kept.front().map_or(0, |frame| frame.len());
        if partial > length as u64 {
            return Err(format!(
                "it claims to have {partial} bytes of this node's next frame, which has {length}"
            ));
        }
        self.partial = partial as usize;
        Ok(())
    }

    /// Records that a frame was written.
    pub(crate) fn wrote(&mut self, number: u64) {
        self.written = self.written.max(number);
    }

    /// Drops the frames that the receiver has.
    ///
    /// # Errors
    /// If it lacks a frame that it has had, or has one that was not sent.
    pub(crate) fn acknowledge(&mut self, received: u64) -> Result<(), String> {
        if received < self.acknowledged {
            return Err(format!(
                "it has {received} frames of this node and has had {}: its part of the run is \
                 lost",
                self.acknowledged
            ));
        }
        if received > self.last() {
            return Err(format!(
                "it claims to have {received} frames of this node, which has sent {}",
                self.last()
            ));
        }
        for _ in self.acknowledged..received {
            self.bytes -= self.kept.pop_front().map_or(0, |frame| frame.len());
            self.partial = 0;
        }
        self.acknowledged = received;
        Ok(())
    }

    /// The number of slots that are free since the last call.
    pub(crate) fn newly_free(&mut self) -> u64 {
        let written = if self.bytes <= KEPT { self.written } else { 0 };
        let free = written.max(self.acknowledged).max(self.freed);
        free - std::mem::replace(&mut self.freed, free)
    }

    /// Whether the receiver has every frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Frames that were written and may have been lost with a connection.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.written.saturating_sub(self.acknowledged)
    }
}

/// An outbox that the writer and the control loop share.
#[derive(Debug, Default)]
pub(crate) struct SharedOutbox(Mutex<Outbox>);

impl SharedOutbox {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The frames that have arrived, as the control loop sees them.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Frames that have arrived whole.
    frames: AtomicU64,
    /// Their bytes since the last acknowledgement.
    bytes: AtomicU64,
    /// Wakes the control loop when it should acknowledge at once.
    pub many: Notify,
}

impl Received {
    fn count(&self, bytes: usize) {
        self.frames.fetch_add(1, Ordering::Relaxed);
        let unacknowledged = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if unacknowledged >= AT_ONCE {
            self.many.notify_one();
        }
    }

    /// The number of frames, which the caller acknowledges now.
    pub(crate) fn take(&self) -> u64 {
        self.bytes.store(0, Ordering::Relaxed);
        self.frames()
    }

    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }
}

/// What a link delivers to the core.
#[derive(Debug)]
pub(crate) enum Delivery {
    Frame(Vec<u8>),
    /// The next piece of a frame of `length` bytes.
    Piece {
        length: usize,
        bytes: Vec<u8>,
    },
}

impl Delivery {
    /// The event for the core.
    pub(crate) fn into_event(self, from: NodeId) -> Event {
        match self {
            Delivery::Frame(bytes) => Event::Frame { from, bytes },
            Delivery::Piece { length, bytes } => Event::Piece { from, length, bytes },
        }
    }
}

/// The receiving half: the reader of the current connection holds it.
pub(crate) struct Inbox {
    /// Buffers that the core returns: each lets the next frame or one more piece be delivered.
    spare: mpsc::Receiver<Vec<u8>>,
    /// Buffers that the core has and has not returned.
    held: usize,
    /// Buffers that it has returned.
    free: Vec<Vec<u8>>,
    /// What waits for the core, and whether a frame begins with it.
    waiting: Option<(Delivery, bool)>,
    /// Memory for the next frame or piece; its first `filled` bytes have arrived.
    buffer: Vec<u8>,
    filled: usize,
    /// The bytes of the next frame that have arrived in earlier pieces.
    before: usize,
    /// The length of the next frame, once it has started.
    length: Option<usize>,
    received: Arc<Received>,
    sizes: Sizes,
}

/// When frames are delivered in pieces.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// The longest frame that is delivered whole.
    whole: usize,
    /// The bytes of a piece.
    piece: usize,
}

impl Inbox {
    pub(crate) fn new(spare: mpsc::Receiver<Vec<u8>>) -> Inbox {
        let received = Arc::default();
        Inbox {
            spare,
            held: 0,
            free: Vec::new(),
            waiting: None,
            buffer: Vec::new(),
            filled: 0,
            before: 0,
            length: None,
            received,
            sizes: Sizes { whole: WHOLE, piece: PIECE },
        }
    }

    /// The same with other sizes of whole frames and of pieces.
    #[cfg(test)]
    pub(crate) fn cutting(self, whole: usize, piece: usize) -> Inbox {
        Inbox { sizes: Sizes { whole, piece }, ..self }
    }

    /// The counts of this inbox.
    pub(crate) fn received(&self) -> &Arc<Received> {
        &self.received
    }

    /// The number of the next frame.
    pub(crate) fn due(&self) -> u64 {
        self.received.frames() + 1
    }

    /// The frames that have arrived, and the bytes of the next one.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.received.frames(), (self.before + self.filled) as u64)
    }

    /// The bytes of the frame or piece that arrives.
    fn size(&self) -> usize {
        let length = self.length.unwrap_or(0);
        if length <= self.sizes.whole {
            return length;
        }
        let header = if self.before == 0 { HEADER } else { 0 };
        (length - self.before).min(self.sizes.piece + header)
    }

    /// Begins the next frame, or continues it on a new connection.
    ///
    /// # Errors
    /// If its length has changed, or there is no memory for it.
    pub(crate) fn begin(&mut self, length: usize) -> Result<(), WireError> {
        if let Some(before) = self.length.replace(length).filter(|&before| before != length) {
            return Err(WireError::Continued { found: length, before });
        }
        self.reserve()
    }

    /// Reserves memory for the frame or piece that arrives; it is filled as bytes arrive.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn reserve(&mut self) -> Result<(), WireError> {
        let size = self.size();
        if self.buffer.capacity() == 0 {
            self.buffer = self.free.pop().unwrap_or_default();
        }
        self.buffer.truncate(size);
        if self.buffer.capacity() < size {
            self.buffer.clear();
            self.buffer
                .try_reserve_exact(size)
                .map_err(|error| std::io::Error::other(error.to_string()))?;
        }
        Ok(())
    }

    /// The place of the next bytes of the frame or piece; empty once it is there.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.filled == self.buffer.len() {
            let size = self.size();
            self.buffer.resize(size.min(self.filled + STEP), 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// Counts bytes that have arrived in [`Inbox::space`].
    pub(crate) fn fill(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// The frame or piece is there: it waits for the core. Returns whether the frame is whole.
    pub(crate) fn complete(&mut self) -> bool {
        let length = self.length.unwrap_or(0);
        let bytes = std::mem::take(&mut self.buffer);
        let begins = self.before == 0;
        (self.before, self.filled) = (self.before + bytes.len(), 0);
        let is_whole = self.before == length;
        let delivery = if length > self.sizes.whole {
            Delivery::Piece { length, bytes }
        } else {
            Delivery::Frame(bytes)
        };
        self.waiting = Some((delivery, begins));
        if is_whole {
            (self.before, self.length) = (0, None);
            self.received.count(length);
        }
        is_whole
    }

    /// What waits, once the core has returned the buffers of the frame before, or all but a few of
    /// the pieces before; `None` if the core is gone, or nothing waits. If it is cancelled, it
    /// continues to wait.
    pub(crate) async fn deliver(&mut self) -> Option<Delivery> {
        let (_, begins) = self.waiting.as_ref()?;
        let most = if *begins { 0 } else { PIECES - 1 };
        while let Ok(buffer) = self.spare.try_recv() {
            self.take_back(buffer);
        }
        while self.held > most {
            let buffer = self.spare.recv().await?;
            self.take_back(buffer);
        }
        self.held += 1;
        self.waiting.take().map(|(delivery, _)| delivery)
    }

    /// Keeps a buffer that the core has returned, for the next frames or pieces.
    fn take_back(&mut self, buffer: Vec<u8>) {
        self.held = self.held.saturating_sub(1);
        if buffer.capacity() > 0 && self.free.len() < PIECES {
            self.free.push(buffer);
        }
    }

    /// Whether a frame or a piece waits.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Forgets all frames: the neighbour has started again.
    pub(crate) fn reset(&mut self) {
        while self.spare.try_recv().is_ok() {}
        (self.held, self.waiting) = (0, None);
        (self.filled, self.before, self.length) = (0, 0, None);
        self.received = Arc::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame of 8 to 48 bytes that begins with its number.
    fn frame(number: u64) -> Arc<Vec<u8>> {
        let rest = (0..10 * (number % 5)).map(|i| i as u8);
        Arc::new(number.to_le_bytes().into_iter().chain(rest).collect())
    }

    #[test]
    fn a_frame_continues_where_its_connection_broke() {
        let mut outbox = Outbox::default();
        outbox.push(frame(1));
        assert!(outbox.resume(0, 19).unwrap_err().contains("19 bytes of this node's next frame"));
        outbox.resume(0, 18).unwrap();
        assert_eq!(outbox.partial(), 18);
        outbox.acknowledge(1).unwrap();
        assert_eq!(outbox.partial(), 0);
        assert!(outbox.resume(1, 1).unwrap_err().contains("which has 0"));

        let mut inbox = Inbox::new(mpsc::channel(2).1);
        inbox.begin(9).unwrap();
        inbox.space()[..4].fill(7);
        inbox.fill(4);
        assert_eq!(inbox.progress(), (0, 4));
        assert!(inbox.begin(8).unwrap_err().to_string().contains("9 bytes when it began"));

        // Pieces that were delivered count too.
        let mut inbox = Inbox::new(mpsc::channel(2).1).cutting(40, 10);
        inbox.begin(50).unwrap();
        assert_eq!(inbox.space().len(), 10 + HEADER);
        inbox.fill(10 + HEADER);
        assert!(!inbox.complete());
        inbox.reserve().unwrap();
        assert_eq!(inbox.space().len(), 10);
        inbox.fill(3);
        assert_eq!(inbox.progress(), (0, 13 + HEADER as u64));
    }

    #[test]
    fn frames_are_kept_until_they_are_acknowledged() {
        let mut outbox = Outbox::default();
        assert_eq!((outbox.push(frame(1)), outbox.push(frame(2))), (1, 2));
        outbox.wrote(1);
        assert_eq!((outbox.newly_free(), outbox.newly_free()), (1, 0));
        assert_eq!(outbox.unacknowledged(), 1);
        outbox.acknowledge(1).unwrap();
        assert_eq!(
            (outbox.frame(1), outbox.frame(2), outbox.frame(3)),
            (None, Some(frame(2)), None)
        );
        assert!(outbox.acknowledge(0).unwrap_err().contains("has had 1"));
        assert!(outbox.acknowledge(3).unwrap_err().contains("has sent 2"));
        outbox.acknowledge(2).unwrap();
        assert!(outbox.is_empty());
        assert_eq!(outbox.newly_free(), 1);
    }

    #[test]
    fn large_frames_keep_their_slots_until_they_are_acknowledged() {
        let mut outbox = Outbox::default();
        outbox.push(Arc::new(vec![0; KEPT + 1]));
        outbox.wrote(1);
        assert_eq!(outbox.newly_free(), 0);
        outbox.acknowledge(1).unwrap();
        assert_eq!(outbox.newly_free(), 1);
    }

    /// What may happen to a link.
    #[derive(Clone, Copy, Debug)]
    enum Event {
        Send,
        /// At most this many bytes of a frame reach the receiver's end of the connection.
        Arrive(usize),
        /// The core returns a buffer.
        Return,
        Acknowledge,
        /// The connection breaks; frames and acknowledgements in flight are lost.
        Break,
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let event = prop_oneof![
            4 => Just(Event::Send),
            6 => (1..16usize).prop_map(Event::Arrive),
            3 => Just(Event::Return),
            2 => Just(Event::Acknowledge),
            1 => Just(Event::Break),
        ];
        proptest::collection::vec(event, 0..120)
    }

    /// Both ends of a link, over any sequence of connections.
    struct Ends {
        outbox: Outbox,
        inbox: Inbox,
        /// The longest frame that is delivered whole.
        whole: usize,
        /// Buffers that the core returns.
        spare: mpsc::Sender<Vec<u8>>,
        /// The connection: the next frame to write and its first byte, and what is in flight.
        next: u64,
        from: usize,
        flight: VecDeque<(u64, usize, Vec<u8>)>,
        /// How many frames were sent, and the numbers of those that were delivered.
        sent: u64,
        delivered: Vec<u64>,
        /// The pieces of a frame that were delivered.
        gathered: Vec<u8>,
        /// Buffers that the core has.
        held: usize,
    }

    type Checked = Result<(), TestCaseError>;

    impl Ends {
        fn new(whole: usize, piece: usize) -> Ends {
            let (spare, returned) = mpsc::channel(RETURNED);
            Ends {
                outbox: Outbox::default(),
                inbox: Inbox::new(returned).cutting(whole, piece),
                whole,
                spare,
                next: 1,
                from: 0,
                flight: VecDeque::new(),
                sent: 0,
                delivered: Vec::new(),
                gathered: Vec::new(),
                held: 0,
            }
        }

        fn upon(&mut self, event: Event) -> Checked {
            match event {
                Event::Send => {
                    self.sent += 1;
                    prop_assert_eq!(self.outbox.push(frame(self.sent)), self.sent);
                }
                Event::Arrive(most) => self.arrive(most)?,
                Event::Return if self.held > 0 => {
                    self.held -= 1;
                    self.spare.try_send(Vec::new()).unwrap();
                }
                Event::Return => {}
                Event::Acknowledge => {
                    let received = self.inbox.received().take();
                    prop_assert!(self.outbox.acknowledge(received).is_ok());
                }
                Event::Break => {
                    self.flight.clear();
                    // The next hello says what has arrived.
                    let (received, partial) = self.inbox.progress();
                    prop_assert!(self.outbox.resume(received, partial).is_ok());
                    (self.next, self.from) = (self.outbox.first(), self.outbox.partial());
                }
            }
            Ok(())
        }

        /// At most so many bytes of the frame that comes next arrive.
        fn arrive(&mut self, most: usize) -> Checked {
            // The reader reads no further while something waits.
            if self.inbox.is_waiting() {
                return Ok(());
            }
            let Some((number, length, mut bytes)) = self.flight.pop_front() else { return Ok(()) };
            prop_assert_eq!(self.inbox.due(), number);
            self.inbox.begin(length).unwrap();
            let space = self.inbox.space();
            let some = space.len().min(most);
            let rest: Vec<u8> = bytes.split_off(some);
            space[..some].copy_from_slice(&bytes);
            self.inbox.fill(some);
            let is_whole = self.inbox.space().is_empty() && self.inbox.complete();
            prop_assert_eq!(is_whole, rest.is_empty());
            if !is_whole {
                self.flight.push_front((number, length, rest));
            }
            Ok(())
        }

        /// Writes the next frames, if the reader reads.
        fn write(&mut self) {
            while self.flight.is_empty()
                && !self.inbox.is_waiting()
                && let Some(frame) = self.outbox.frame(self.next)
            {
                let rest = frame[std::mem::take(&mut self.from)..].to_vec();
                self.flight.push_back((self.next, frame.len(), rest));
                self.outbox.wrote(self.next);
                self.next += 1;
            }
        }

        /// The core takes what has arrived.
        fn deliver(&mut self) -> Checked {
            let ready = futures::FutureExt::now_or_never(self.inbox.deliver());
            let Some(Some(delivery)) = ready else { return Ok(()) };
            self.held += 1;
            let most = if self.gathered.is_empty() { 1 } else { PIECES };
            prop_assert!(self.held <= most, "the core has {} of {}", self.held, most);
            let length = match delivery {
                Delivery::Frame(bytes) => {
                    prop_assert!(self.gathered.is_empty() && bytes.len() <= self.whole);
                    self.gathered = bytes;
                    self.gathered.len()
                }
                Delivery::Piece { length, bytes } => {
                    self.gathered.extend_from_slice(&bytes);
                    length
                }
            };
            if self.gathered.len() == length {
                let number = u64::from_le_bytes(self.gathered[..8].try_into().unwrap());
                prop_assert_eq!(&self.gathered, &*frame(number), "the bytes that were sent");
                self.delivered.push(number);
                self.gathered.clear();
            }
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]

        /// Against a list of what was sent.
        #[test]
        #[ignore = "slow"]
        fn every_frame_is_delivered_once_and_in_order(
            events in events(),
            whole in 0usize..60,
            piece in 1usize..12,
        ) {
            let mut ends = Ends::new(whole, piece);
            let heal = [Event::Break]
                .into_iter()
                .chain([Event::Arrive(48), Event::Return].into_iter().cycle().take(8_000));
            for event in events.into_iter().chain(heal) {
                ends.upon(event)?;
                ends.write();
                ends.deliver()?;
            }
            prop_assert_eq!(ends.delivered, (1..=ends.sent).collect::<Vec<_>>());
        }
    }
}
