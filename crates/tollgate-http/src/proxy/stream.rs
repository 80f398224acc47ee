//! The bytes of a connection to a server, plain or over TLS.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

pub(super) type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

pub(super) struct Stream {
    transport: Transport,
    /// Set when anything is read.
    pub(super) has_read: Arc<AtomicBool>,
    replay: Option<Replay>,
    open: Gauge,
}

/// What was sent and read before hyper took over, which is to find all of it as if it had done so itself.
struct Replay {
    stage: ReplayStage,
    read: Bytes,
}

/// How much of the request hyper has written again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplayStage {
    Nothing,
    Part,
    All,
}

impl Stream {
    pub(super) fn new(transport: Transport, open: Gauge) -> Self {
        open.inc();
        Self {
            transport,
            has_read: Arc::default(),
            replay: None,
            open,
        }
    }

    /// What is written from now up to the next flush was sent already, and these bytes were read after it. They wake no task.
    pub(super) fn replay(&mut self, read: Bytes) {
        self.replay = Some(Replay {
            stage: ReplayStage::Nothing,
            read,
        });
    }

    /// Whether there is nothing to read, not even the end. What there is goes into the buffer, and is lost.
    pub(super) fn is_quiet(&mut self, buffer: &mut [u8]) -> bool {
        if let (Either::Left(socket), None) = (&self.transport, &self.replay) {
            // No task has to be woken, so none is registered.
            let read = socket.try_read(buffer);
            return read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        }
        let mut read = ReadBuf::new(buffer);
        let is_quiet = poll_fn(|context| {
            let polled = Pin::new(&mut *self).poll_read(context, &mut read);
            Poll::Ready(polled.is_pending())
        });
        // Out of tokio's budget everything would seem quiet.
        let is_quiet = pin!(unconstrained(is_quiet));
        is_quiet.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(true)
    }

    fn was_sent(&mut self) -> bool {
        match &mut self.replay {
            Some(replay) if replay.stage != ReplayStage::All => {
                replay.stage = ReplayStage::Part;
                true
            }
            _ => false,
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match &mut self.replay {
            Some(replay) if replay.stage != ReplayStage::All => return Poll::Pending,
            Some(replay) => {
                let part = replay.read.len().min(buffer.remaining());
                buffer.put_slice(&replay.read.split_to(part));
                if replay.read.is_empty() {
                    self.replay = None;
                }
                Poll::Ready(Ok(()))
            }
            None => Pin::new(&mut self.transport).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            self.has_read.store(true, Relaxed);
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.was_sent() {
            true => Poll::Ready(Ok(bytes.len())),
            false => Pin::new(&mut self.transport).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.was_sent() {
            true => Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum())),
            false => Pin::new(&mut self.transport).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.transport.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(replay) = &mut self.replay
            && replay.stage == ReplayStage::Part
        {
            replay.stage = ReplayStage::All;
        }
        Pin::new(&mut self.transport).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.transport).poll_shutdown(context)
    }
}
