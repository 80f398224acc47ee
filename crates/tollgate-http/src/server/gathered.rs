//! Gathers the writes of an HTTP/2 connection, so that a flush is one system call.
//!
//! h2 writes a DATA frame of 256 bytes or more by itself if the stream takes vectored writes, and then the frames after it: two
//! writes for each small response, and most of what a response costs. If the stream does not, h2 copies frames of less than 1 KiB
//! into its own buffer, and writes the head of a larger frame apart from the rest. This stream keeps the head until the rest comes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longer writes are passed on at once.
const MAX_HELD: usize = 2 * 1_024;

/// A stream that holds short writes until the next flush or long write.
#[derive(Debug)]
pub(super) struct Gathered<T> {
    stream: T,
    held: BytesMut,
}

impl<T: AsyncWrite + Unpin> Gathered<T> {
    pub(super) fn new(stream: T) -> Self {
        Self {
            stream,
            held: BytesMut::new(),
        }
    }

    fn poll_write_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(context, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gathered<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// `is_write_vectored` stays false: see above.
impl<T: AsyncWrite + Unpin> AsyncWrite for Gathered<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.held.len() + bytes.len() <= MAX_HELD {
            this.held.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        while !this.held.is_empty() {
            let parts = [IoSlice::new(&this.held), IoSlice::new(bytes)];
            let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, &parts))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_held = written.min(this.held.len());
            this.held.advance(of_held);
            if written > of_held {
                return Poll::Ready(Ok(written - of_held));
            }
        }
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_held(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_write_held(context))?;
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

    /// Writes parts of these lengths and flushes: how many writes that took, and whether all bytes arrived in order.
    async fn writes(lengths: &[usize], takes: usize) -> usize {
        let mut gathered = Gathered::new(Socket {
            takes,
            ..Socket::default()
        });
        let mut expected = Vec::new();
        for (fill, length) in (b'a'..).zip(lengths) {
            let part = vec![fill; *length];
            gathered.write_all(&part).await.unwrap();
            expected.extend(part);
        }
        gathered.flush().await.unwrap();
        assert!(gathered.stream.received == expected, "{lengths:?} {takes}");
        gathered.stream.writes
    }

    #[tokio::test]
    async fn a_flush_is_one_write() {
        assert_eq!(writes(&[10, 331, 20], usize::MAX).await, 1);
        assert_eq!(writes(&[1_024, 15_000], usize::MAX).await, 1);
        assert_eq!(writes(&[16_384], usize::MAX).await, 1);
        assert_eq!(writes(&[], usize::MAX).await, 0);
    }

    #[tokio::test]
    async fn a_socket_that_takes_little_gets_every_byte_in_order() {
        for takes in [1, 7, 1_023, 1_024, 1_025, 2_048, 5_000] {
            for lengths in [&[1_024, 15_000][..], &[2_048, 1], &[1, 2_048, 1, 4_096, 9]] {
                writes(lengths, takes).await;
            }
        }
    }
}
