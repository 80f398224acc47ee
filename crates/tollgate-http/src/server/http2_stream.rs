//! The stream of an HTTP/2 connection: a flush is one system call, frames that carry nothing have to be paid for, and a connection
//! with many requests takes turns with the others of its thread.
//!
//! If a stream takes vectored writes, h2 writes a DATA frame of 256 bytes or more by itself, and then the frames after it: two
//! writes for each small response, and most of its cost. If not, h2 copies frames of less than 1 KiB into its own buffer, and
//! writes the head of a larger frame apart from the rest. This stream holds the head until the rest comes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ServerMetrics;
use super::frame_budget::FrameBudget;

/// Longer writes are passed on at once.
const MAX_HELD: usize = 2 * 1_024;

/// How much is read before it is the turn of other connections: about a hundred small requests. Without this, the thousand concurrent
/// calls of a busy client would all be handled before the single call of another, which may wait for 20 ms only.
const MAX_READ_AT_ONCE: usize = 8 * 1_024;

/// What a connection has read since it was last its turn. h2 reads on as long as it has new requests, so it cannot end a turn.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadTurn(Arc<AtomicUsize>);

impl ReadTurn {
    pub(super) fn begin(&self) {
        self.0.store(0, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.0.load(Relaxed) >= MAX_READ_AT_ONCE
    }

    fn read(&self, bytes: usize) {
        self.0.store(self.0.load(Relaxed) + bytes, Relaxed);
    }
}

/// A stream that holds short writes until the next flush or long write.
pub(super) struct Http2Stream<T> {
    stream: T,
    held: BytesMut,
    turn: ReadTurn,
    budget: FrameBudget,
    metrics: ServerMetrics,
}

impl<T: AsyncWrite + Unpin> Http2Stream<T> {
    pub(super) fn new(stream: T, turn: ReadTurn, metrics: ServerMetrics) -> Self {
        Self {
            stream,
            held: BytesMut::new(),
            turn,
            budget: FrameBudget::new(Instant::now()),
            metrics,
        }
    }

    /// Writes what is held, and these bytes with it. Returns how many of the latter were written.
    fn poll_write_held(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        while !self.held.is_empty() {
            let parts = [IoSlice::new(&self.held), IoSlice::new(bytes)];
            let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, &parts))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_held = written.min(self.held.len());
            self.held.advance(of_held);
            if written > of_held {
                return Poll::Ready(Ok(written - of_held));
            }
        }
        Poll::Ready(Ok(0))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Http2Stream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn.is_over() {
            // A task that wakes itself goes to the end of the queue.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        self.turn.read(read.len());
        if self.budget.read(read) {
            return Poll::Ready(Ok(()));
        }
        self.metrics.closed("control_frames");
        Poll::Ready(Err(io::Error::other("too many HTTP/2 control frames")))
    }
}

/// `is_write_vectored` stays false: see above.
impl<T: AsyncWrite + Unpin> AsyncWrite for Http2Stream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = if self.held.len() + bytes.len() <= MAX_HELD {
            self.held.extend_from_slice(bytes);
            bytes.len()
        } else {
            match ready!(self.poll_write_held(context, bytes))? {
                0 => ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?,
                written => written,
            }
        };
        self.budget.sent(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_held(context, &[]))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_held(context, &[]))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    /// Accepts at most `takes` bytes of each write, and counts the writes.
    #[derive(Default)]
    struct Socket {
        takes: usize,
        received: Vec<u8>,
        writes: usize,
    }

    impl AsyncWrite for Socket {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let count = bytes.len().min(self.takes);
            self.writes += 1;
            self.received.extend(bytes.iter().take(count));
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
            self.poll_write(context, &all)
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Writes parts of these lengths and flushes. Returns how many writes that took.
    async fn writes(lengths: &[usize], takes: usize) -> usize {
        let socket = Socket {
            takes,
            ..Socket::default()
        };
        let mut gathering = Http2Stream::new(socket, ReadTurn::default(), ServerMetrics::default());
        let mut expected = Vec::new();
        for (fill, length) in (b'a'..).zip(lengths) {
            let part = vec![fill; *length];
            gathering.write_all(&part).await.unwrap();
            expected.extend(part);
        }
        gathering.flush().await.unwrap();
        assert!(gathering.stream.received == expected, "{lengths:?} {takes}");
        gathering.stream.writes
    }

    #[tokio::test]
    async fn flush_is_one_write() {
        assert_eq!(writes(&[10, 331, 20], usize::MAX).await, 1);
        assert_eq!(writes(&[1_024, 15_000], usize::MAX).await, 1);
        assert_eq!(writes(&[16_384], usize::MAX).await, 1);
        assert_eq!(writes(&[], usize::MAX).await, 0);
    }

    #[tokio::test]
    async fn slow_socket_gets_every_byte_in_order() {
        for takes in [1, 7, 1_023, 1_024, 1_025, 2_048, 5_000] {
            for lengths in [&[1_024, 15_000][..], &[2_048, 1], &[1, 2_048, 1, 4_096, 9]] {
                writes(lengths, takes).await;
            }
        }
    }
}
