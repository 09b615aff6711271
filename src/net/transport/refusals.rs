//! The log's lines about connections that were refused.

use std::time::{Duration, Instant};

use libp2p::{Multiaddr, PeerId, swarm::ListenError};

use super::dial::root;

/// Reports refused connections, at most one in [`QUIET`]: anybody can cause them.
#[derive(Debug)]
pub(crate) struct Refusals {
    reason: &'static str,
    last: Option<Instant>,
    unreported: u64,
}

/// The time between two messages about refused connections.
const QUIET: Duration = Duration::from_secs(5);

impl Refusals {
    pub(crate) fn new(reason: &'static str) -> Refusals {
        Refusals { reason, last: None, unreported: 0 }
    }

    /// Reports a peer that may not connect, or whose handshake failed.
    pub(crate) fn report(&mut self, peer: Option<PeerId>, from: &Multiaddr, error: &ListenError) {
        let (Some(peer), ListenError::Denied { .. }) = (peer, error) else {
            return tracing::trace!("a connection from {from} failed: {}", root(error));
        };
        if self.last.is_some_and(|last| last.elapsed() < QUIET) {
            self.unreported += 1;
            return;
        }
        let more = match std::mem::take(&mut self.unreported) {
            0 => String::new(),
            more => format!("; {more} more were refused since the last message"),
        };
        self.last = Some(Instant::now());
        tracing::warn!("refused {peer} from {from}: {}{more}", self.reason);
    }
}
