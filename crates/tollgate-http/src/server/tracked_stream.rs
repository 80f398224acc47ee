//! The socket of a connection. Reads and pending writes are noted, and it is closed so that the client gets the last response.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::connection_limiter::ConnectionPermit;
use super::state::ConnectionState;

/// How many reads of unwanted data are made before other tasks run.
const MAX_READS: usize = 16;

pub(super) struct TrackedStream {
    socket: TcpStream,
    state: Arc<ConnectionState>,
    is_shut_down: bool,
    _permit: ConnectionPermit,
}

impl TrackedStream {
    pub(super) fn new(
        socket: TcpStream,
        state: Arc<ConnectionState>,
        permit: ConnectionPermit,
    ) -> Self {
        Self {
            socket,
            state,
            is_shut_down: false,
            _permit: permit,
        }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads until the client has closed its side. If a socket were closed with unread data, the system would send a reset,
    /// which can overtake the response: a client that sends a long body would never see why it was rejected.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut unwanted = [0; 4_096];
        for _ in 0..MAX_READS {
            let mut buffer = ReadBuf::new(&mut unwanted);
            match ready!(Pin::new(&mut self.socket).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.state.note_read(),
                // The client has closed its side, or has disconnected.
                _ => return Poll::Ready(Ok(())),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        if read.is_ready() {
            self.state.note_read();
        }
        read
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.state.note_write(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, parts);
        self.state.note_write(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket has no buffer of its own.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut_down {
            ready!(Pin::new(&mut self.socket).poll_shutdown(context))?;
            self.is_shut_down = true;
            self.state.note_closing();
        }
        self.poll_linger(context)
    }
}
