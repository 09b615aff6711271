//! Streams that read no faster than a limit allows: one limit for each stream, one for all.
//!
//! A relayed link is two streams of the relay, one to each node, and what is read from one is
//! written to the other. A stream that is not read fills its window, so the sender waits.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use futures::{AsyncRead, AsyncWrite};
use libp2p::core::muxing::{StreamMuxer, StreamMuxerBox, StreamMuxerEvent, StreamMuxerExt};
use tokio::time::{Sleep, sleep_until};

/// How far reading may be ahead of the rate.
const BURST: Duration = Duration::from_millis(50);

/// A rate, and the time until which it is used up.
#[derive(Debug)]
struct Rate {
    bytes_per_s: f64,
    used_until: Instant,
}

impl Rate {
    fn new(bytes_per_s: f64) -> Rate {
        Rate { bytes_per_s, used_until: Instant::now() }
    }

    /// When the next bytes may be read, if not now.
    fn next(&self, now: Instant) -> Option<Instant> {
        (self.used_until > now + BURST).then(|| self.used_until - BURST)
    }

    fn take(&mut self, bytes: usize, now: Instant) {
        let time = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        self.used_until = self.used_until.max(now) + time;
    }
}

/// The limits of a relay's streams, in bytes a second.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    stream: f64,
    all: Arc<Mutex<Rate>>,
}

impl Limits {
    pub(super) fn new(stream: f64, all: f64) -> Limits {
        Limits { stream, all: Arc::new(Mutex::new(Rate::new(all))) }
    }
}

/// A connection whose streams are limited.
pub(super) struct Limited {
    inner: StreamMuxerBox,
    limits: Limits,
}

impl Limited {
    pub(super) fn new<M>(inner: M, limits: Limits) -> Limited
    where
        M: StreamMuxer + Send + 'static,
        M::Substream: Send + 'static,
        M::Error: Send + Sync + 'static,
    {
        Limited { inner: StreamMuxerBox::new(inner), limits }
    }

    fn limit<S>(&self, inner: S) -> LimitedStream<S> {
        let own = Rate::new(self.limits.stream);
        LimitedStream { inner, own, all: Arc::clone(&self.limits.all), pause: None }
    }
}

type Substream = <StreamMuxerBox as StreamMuxer>::Substream;
type Opened = Poll<io::Result<LimitedStream<Substream>>>;

impl StreamMuxer for Limited {
    type Substream = LimitedStream<Substream>;
    type Error = io::Error;

    fn poll_inbound(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Opened {
        let stream = ready!(self.inner.poll_inbound_unpin(cx))?;
        Poll::Ready(Ok(self.limit(stream)))
    }

    fn poll_outbound(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Opened {
        let stream = ready!(self.inner.poll_outbound_unpin(cx))?;
        Poll::Ready(Ok(self.limit(stream)))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_close_unpin(cx)
    }

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
        self.inner.poll_unpin(cx)
    }
}

/// A stream that reads no faster than its limits allow.
pub(super) struct LimitedStream<S> {
    inner: S,
    own: Rate,
    all: Arc<Mutex<Rate>>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(cx));
                this.pause = None;
            }
            let now = Instant::now();
            let mut all = this.all.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(next) = this.own.next(now).max(all.next(now)) {
                this.pause = Some(Box::pin(sleep_until(next.into())));
                continue;
            }
            let read = ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
            this.own.take(read, now);
            all.take(read, now);
            return Poll::Ready(Ok(read));
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_any_sizes_of_reads() {
        let begin = Instant::now();
        for size in [1000, 8192, 100_000] {
            let mut rate = Rate { bytes_per_s: 1e6, used_until: begin };
            let (mut now, mut bytes) = (begin, 0);
            while now < begin + Duration::from_secs(10) {
                match rate.next(now) {
                    Some(next) => now = next,
                    None => {
                        rate.take(size, now);
                        bytes += size;
                    }
                }
            }
            let most = 10_000_000.0 + 1e6 * BURST.as_secs_f64() + size as f64;
            assert!((10_000_000.0..=most).contains(&(bytes as f64)), "{size}: {bytes}");
        }
    }
}
