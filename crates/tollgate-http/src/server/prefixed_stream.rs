//! A stream of which something was read already: readers find that first.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use pin_project_lite::pin_project;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pin_project! {
    /// A stream, and what was read from it before.
    pub(super) struct PrefixedStream<T> {
        read: Bytes,
        #[pin]
        stream: T,
    }
}

impl<T> PrefixedStream<T> {
    pub(super) fn new(read: Bytes, stream: T) -> Self {
        Self { read, stream }
    }
}

impl<T: AsyncRead> AsyncRead for PrefixedStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        if this.read.is_empty() {
            return this.stream.poll_read(context, buffer);
        }
        let part = this.read.len().min(buffer.remaining());
        buffer.put_slice(this.read.get(..part).unwrap_or_default());
        this.read.advance(part);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite> AsyncWrite for PrefixedStream<T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(context)
    }
}
