//! The end of a link: goodbyes both ways.

use std::time::{Duration, Instant};

use super::limits::Budget;
use super::{
    streams::Done,
    task::{End, Leaving},
    wire::WireError,
};
use crate::gossip::Cause;

/// How far the two ends are in saying goodbye.
#[derive(Default)]
pub(crate) struct Goodbyes {
    pub reason: Leaving,
    /// Whether all frames of this end are written.
    written: bool,
    /// When the neighbour closed its stream of frames.
    read: Option<Instant>,
    /// When this end said goodbye.
    waiting: Option<Instant>,
    pub sent: bool,
    pub received: bool,
    /// Whether the user knows of another program with this node's key.
    pub told: bool,
    /// Whether the neighbour has passed on a record that no node has said.
    pub forges: bool,
    /// How many start messages have been received.
    pub news: u32,
    /// What the neighbour may still send without content.
    pub budget: Budget,
}

impl Goodbyes {
    /// At the begin of a connection, of a node that leaves already or not.
    pub(crate) fn new(reason: Leaving) -> Goodbyes {
        Goodbyes { reason, ..Goodbyes::default() }
    }

    /// The goodbye, once it is due: when the neighbour has the last frame, or at once if this node
    /// leaves early.
    pub(crate) fn due(&mut self, acknowledged: bool) -> Option<Option<Cause>> {
        let reason = self.reason.clone()?;
        let now = !self.sent && (self.written && acknowledged || reason.is_some());
        self.sent |= now;
        if now {
            self.waiting = Some(Instant::now());
        }
        now.then_some(reason)
    }

    /// Whether this end said goodbye so long ago.
    pub(crate) fn has_waited(&self, limit: Duration) -> bool {
        self.waiting.is_some_and(|since| since.elapsed() > limit)
    }

    /// Whether the neighbour closed its stream of frames so long ago, and has not said goodbye.
    pub(crate) fn is_silent(&self, limit: Duration) -> bool {
        !self.received && self.read.is_some_and(|since| since.elapsed() > limit)
    }

    /// Handles the end of one of the link's tasks.
    pub(crate) fn after(&mut self, done: Result<Done, tokio::task::JoinError>) -> Option<End> {
        let broken = |text: String| Some(if self.received { End::Over } else { End::broken(text) });
        match done {
            Ok(Done::Reader(Ok(()))) => {
                self.read = Some(Instant::now());
                None
            }
            Ok(Done::Writer(Ok(()))) => {
                self.written = true;
                None
            }
            Ok(Done::Control(Ok(()))) => {
                broken("it closed its control stream without a goodbye".into())
            }
            Ok(Done::Reader(Err(error @ WireError::Io(_)))) => {
                broken(format!("reading its frames: {error}"))
            }
            Ok(Done::Control(Err(error @ WireError::Io(_)))) => {
                broken(format!("reading its messages: {error}"))
            }
            Ok(Done::Reader(Err(error))) => {
                Some(End::Invalid(format!("reading its frames: {error}")))
            }
            Ok(Done::Control(Err(error))) => {
                Some(End::Invalid(format!("reading its messages: {error}")))
            }
            Ok(Done::Writer(Err(error))) => broken(format!("sending frames: {error}")),
            Err(error) => broken(format!("a task of the link ended: {error}")),
        }
    }
}
