//! The bytes of a connection to a server, plain or over TLS, and whether the server has said anything.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::{Buf as _, Bytes};
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio_rustls::client::TlsStream;

/// A connection to a server. It is counted for as long as it lives.
pub(super) struct Stream {
    kind: Kind,
    heard: Heard,
    replayed: Option<Replayed>,
    open: Gauge,
}

/// What was sent and read before somebody else took over, who is to find all of it as if it had done so.
struct Replayed {
    request: Request,
    /// What was read.
    read: Bytes,
}

/// How much was said again of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    Nothing,
    Some,
    All,
}

enum Kind {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Whether anything came from the server since it was last asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Heard(Arc<AtomicBool>);

impl Heard {
    pub(super) fn nothing_yet(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(super) fn anything(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Stream {
    pub(super) fn plain(stream: TcpStream, open: Gauge) -> Self {
        Self::new(Kind::Plain(stream), open)
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>, open: Gauge) -> Self {
        Self::new(Kind::Tls(Box::new(stream)), open)
    }

    fn new(kind: Kind, open: Gauge) -> Self {
        open.inc();
        Self {
            kind,
            heard: Heard::default(),
            replayed: None,
            open,
        }
    }

    pub(super) fn heard(&self) -> Heard {
        self.heard.clone()
    }

    /// From now on: what is written up to the next flush was sent already, and this is what comes after it. Nobody is woken for that, so it has to be asked
    /// for.
    pub(super) fn replay(&mut self, read: Bytes) {
        self.replayed = Some(Replayed {
            request: Request::Nothing,
            read,
        });
    }

    /// Whether there is nothing to read, not even the end. What there is goes into the room, and is lost.
    pub(super) fn is_quiet(&mut self, room: &mut [u8]) -> bool {
        if let (Kind::Plain(stream), None) = (&self.kind, &self.replayed) {
            // Nobody has to be woken, so nobody is noted down for it.
            let said = stream.try_read(room);
            return said.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        }
        let mut read = ReadBuf::new(room);
        let look = poll_fn(|context| {
            let said = Pin::new(&mut *self).poll_read(context, &mut read);
            Poll::Ready(said.is_pending())
        });
        // Out of tokio's budget nobody would look, and all would be quiet.
        let look = pin!(unconstrained(look));
        look.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(true)
    }

    /// Whether what is written now was sent before.
    fn was_sent(&mut self) -> bool {
        match &mut self.replayed {
            Some(replayed) if replayed.request != Request::All => {
                replayed.request = Request::Some;
                true
            }
            _ => false,
        }
    }
}

impl Replayed {
    fn poll_read(&mut self, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.request != Request::All {
            return Poll::Pending;
        }
        let part = self.read.len().min(buffer.remaining());
        buffer.put_slice(self.read.get(..part).unwrap_or_default());
        self.read.advance(part);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Some(replayed) = &mut this.replayed {
            let read = replayed.poll_read(buffer);
            if read.is_ready() {
                this.heard.0.store(true, Ordering::Relaxed);
                this.replayed.take_if(|replayed| replayed.read.is_empty());
            }
            return read;
        }
        let before = buffer.filled().len();
        let read = match &mut this.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Kind::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            this.heard.0.store(true, Ordering::Relaxed);
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
        if self.was_sent() {
            return Poll::Ready(Ok(bytes.len()));
        }
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Kind::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.was_sent() {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Kind::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.kind {
            Kind::Plain(stream) => stream.is_write_vectored(),
            Kind::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(replayed) = &mut self.replayed
            && replayed.request == Request::Some
        {
            replayed.request = Request::All;
        }
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_flush(context),
            Kind::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Kind::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
