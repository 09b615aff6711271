//! A stream that gathers small writes.
//!
//! Yamux writes a header of 12 bytes and a body of at most 16 KiB, and asks for a flush after each
//! frame, also when the next one is ready. Each write would become a record of its own, with its
//! own tag and system call. So a flush is put off once: it returns `Pending` and wakes the task,
//! and if nothing was written until the task asks again, the bytes go out. Meanwhile the task
//! writes what else it has.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{AsyncRead, AsyncWrite};

/// The bytes that are written to the inner stream at a time: four full records of TLS.
pub(super) const BUFFER: usize = 4 * 16 * 1024;

/// A stream whose small writes are gathered; reads pass through.
pub(crate) struct Coalesced<S> {
    inner: S,
    /// Bytes that were written to this stream; the first `sent` have gone to `inner`.
    buffer: Vec<u8>,
    sent: usize,
    /// Whether a flush was put off and nothing was written since.
    put_off: bool,
}

impl<S: AsyncWrite + Unpin> Coalesced<S> {
    pub(crate) fn new(inner: S) -> Coalesced<S> {
        Coalesced { inner, buffer: Vec::new(), sent: 0, put_off: false }
    }

    /// Writes all gathered bytes to the inner stream.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.buffer.len() {
            let rest = &self.buffer[self.sent..];
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.sent += written;
        }
        self.buffer.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.buffer.len() == BUFFER {
            ready!(self.poll_drain(cx))?;
        }
        let some = bytes.len().min(BUFFER - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..some]);
        self.put_off = false;
        Poll::Ready(Ok(some))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.buffer.is_empty() && !self.put_off {
            self.put_off = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_read(cx, bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use futures::io::Cursor;

    use super::*;

    /// Records the sizes of writes; accepts at most 50,000 bytes at a time.
    #[derive(Default)]
    struct Recorder(Vec<usize>, Vec<u8>);

    impl AsyncWrite for Recorder {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let some = bytes.len().min(50_000);
            self.0.push(some);
            self.1.extend_from_slice(&bytes[..some]);
            Poll::Ready(Ok(some))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn write(stream: &mut Coalesced<Recorder>, bytes: &[u8]) {
        let mut left = bytes;
        while !left.is_empty() {
            let mut cx = Context::from_waker(Waker::noop());
            match Pin::new(&mut *stream).poll_write(&mut cx, left) {
                Poll::Ready(written) => left = &left[written.unwrap()..],
                Poll::Pending => panic!("the recorder is always ready"),
            }
        }
    }

    fn flush(stream: &mut Coalesced<Recorder>) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        Pin::new(stream).poll_flush(&mut cx).map(Result::unwrap).is_ready()
    }

    #[test]
    fn a_flush_waits_for_one_more_poll() {
        let mut stream = Coalesced::new(Recorder::default());
        assert!(flush(&mut stream), "nothing to flush");
        write(&mut stream, b"head");
        assert!(!flush(&mut stream));
        write(&mut stream, b"body");
        assert!(!flush(&mut stream), "something was written since");
        assert!(stream.inner.0.is_empty());
        assert!(flush(&mut stream));
        assert_eq!((&stream.inner.0[..], &stream.inner.1[..]), (&[8][..], &b"headbody"[..]));
        assert!(flush(&mut stream));
    }

    #[test]
    fn all_bytes_go_out_in_order_in_large_writes() {
        let mut stream = Coalesced::new(Recorder::default());
        let bytes: Vec<u8> = (0..2_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut rest = &bytes[..];
        for size in
            [12, 16_384, 1, 70_000, 12, 16_384, 12, 16_384, 12, 16_384, 12, 9].iter().cycle()
        {
            let (now, later) = rest.split_at(rest.len().min(*size));
            write(&mut stream, now);
            flush(&mut stream);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        assert!(flush(&mut stream) || flush(&mut stream));
        assert_eq!(stream.inner.1, bytes);
        let mean = bytes.len() / stream.inner.0.len();
        assert!(mean > 20_000, "{mean} bytes a write");
    }

    #[test]
    fn reads_pass_through() {
        let mut stream = Coalesced {
            inner: Cursor::new(vec![1, 2, 3]),
            buffer: Vec::new(),
            sent: 0,
            put_off: false,
        };
        let (mut bytes, mut cx) = ([0; 8], Context::from_waker(Waker::noop()));
        let read = Pin::new(&mut stream).poll_read(&mut cx, &mut bytes);
        assert!(matches!(read, Poll::Ready(Ok(3))));
        assert_eq!(bytes[..3], [1, 2, 3]);
    }
}
