//! The socket of a connection, watched: what is read, what waits to be written, and an end that the other side hears.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::places::Place;
use super::watch::Watch;

/// So much of what nobody wants to read is read at a time, before others have their turn.
const MOST_READS: usize = 16;

/// A socket with the place that it takes up.
#[derive(Debug)]
pub(super) struct WatchedStream {
    socket: TcpStream,
    watch: Arc<Watch>,
    has_said_all: bool,
    _place: Place,
}

impl WatchedStream {
    pub(super) fn new(socket: TcpStream, watch: Arc<Watch>, place: Place) -> Self {
        Self {
            socket,
            watch,
            has_said_all: false,
            _place: place,
        }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    fn noted<T>(&self, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match written.is_pending() {
            true => self.watch.write_waits(),
            false => self.watch.has_written(),
        }
        written
    }

    /// Reads on until the other side has nothing more to say. If a socket were closed while there is something to read, or comes something, the system
    /// would send a reset, and that can overtake the answer: who sends a long body would never see why it was refused.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut unwanted = [0; 4_096];
        for _ in 0..MOST_READS {
            let mut buffer = ReadBuf::new(&mut unwanted);
            match ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer)) {
                Ok(()) if buffer.filled().is_empty() => return Poll::Ready(Ok(())),
                Ok(()) => self.watch.has_read(),
                // It is gone, which is all that is wanted.
                Err(_) => return Poll::Ready(Ok(())),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl AsyncRead for WatchedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        if read.is_ready() {
            self.watch.has_read();
        }
        read
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.noted(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, parts);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_said_all {
            ready!(Pin::new(&mut self.socket).poll_shutdown(context))?;
            self.has_said_all = true;
            self.watch.closes();
        }
        self.poll_linger(context)
    }
}
