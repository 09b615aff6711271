//! The links of a node, as the thread of its core uses them.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use tokio::runtime::Runtime;

use super::status::Status;
use crate::{
    cluster::{event::Event, members::assembly::News, statements::Retained},
    gossip::Cause,
    net::{host::Host, runtime::SHUTDOWN},
    units::NodeId,
};

/// The links of a libp2p host. Dropping them closes everything.
pub(crate) struct Links {
    pub host: Host,
    /// Events of its tasks and of the worker.
    pub events: Receiver<Event>,
    /// The runtime on which only this host runs, if it has one.
    pub runtime: OwnRuntime,
}

/// A runtime that ends when it is dropped.
#[derive(Default)]
pub(crate) struct OwnRuntime(pub Option<Runtime>);

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_timeout(SHUTDOWN);
        }
    }
}

impl Links {
    /// Queues a frame. The core sends no more than `SLOTS` of a link at a time, so there is room.
    pub(super) fn send(&mut self, to: NodeId, frame: Arc<Vec<u8>>) {
        self.host.send(to, frame);
    }

    /// Returns a frame's buffer: the link may deliver its next frame.
    pub(super) fn recycle(&mut self, from: NodeId, buffer: Vec<u8>) {
        self.host.recycle(from, buffer);
    }

    /// Sends what this node knows about the members. It replaces what was not sent yet.
    pub(super) fn send_news(&self, to: NodeId, news: News) {
        self.host.send_news(to, news);
    }

    /// Tells all neighbours what is new of this.
    pub(super) fn tell(&self, statements: Retained) {
        self.host.tell(statements);
    }

    /// The state of the links.
    pub(super) fn status(&self) -> &Arc<Status> {
        self.host.status()
    }

    /// Waits for the next event, of a link or of the worker itself.
    ///
    /// # Errors
    /// If none came in this time, or the tasks of the links have ended.
    pub(super) fn next(&self, within: Duration) -> Result<Event, RecvTimeoutError> {
        self.events.recv_timeout(within)
    }

    /// All nodes have written their results: a lost link is not awaited.
    pub(super) fn set_over(&mut self) {
        self.host.set_over();
    }

    /// Says goodbye once the neighbours have all frames, and closes; with a `reason` the run ends
    /// early. `stop` is called again and again and returns whether to wait no longer.
    pub(super) fn finish(self, reason: Option<Cause>, stop: &mut dyn FnMut() -> bool) {
        let Links { host, runtime, .. } = self;
        host.finish(reason, stop);
        drop(runtime);
    }
}
