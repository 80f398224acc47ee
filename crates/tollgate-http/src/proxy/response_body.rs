//! The body of a response, on its way from the server to the client.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::connection::{ReceivedBody, UpstreamConnection};
use super::forward::Exchange;
use super::pool::ConnectionPool;
use super::slots::RequestSlot;
use super::upstream::Upstream;
use crate::body::FramePoll;
use crate::headers::filter_response_trailers;
use crate::timeout::RollingTimeout;

/// The body of a response that came through a [`Proxy`](super::Proxy), or was made by it.
#[derive(Debug)]
pub struct ProxyBody(Repr);

#[derive(Debug)]
enum Repr {
    /// All of it, until it is sent.
    Whole(Option<Bytes>),
    Streaming(Box<Streaming>),
}

struct Streaming {
    incoming: Incoming,
    /// A part that was read already.
    first: Option<Result<Frame<Bytes>, hyper::Error>>,
    /// The connection, if this body has to poll it, and where it is kept afterwards.
    connection: Option<(Box<UpstreamConnection>, Arc<ConnectionPool>)>,
    /// For bodies without such a connection.
    timeout: RollingTimeout,
    idle_timeout: Option<Duration>,
    is_waiting: bool,
    cut: Counter,
    slot: Option<RequestSlot>,
}

impl ProxyBody {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self(Repr::Whole(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// The body of a response that has just begun. A small one is there already, and its connection free for the next request.
    pub(super) fn new(
        received: ReceivedBody,
        exchange: Exchange<'_>,
        upstream: &Upstream,
        now: Instant,
    ) -> Self {
        let (mut connection, pool) = (exchange.connection, exchange.pool);
        let mut first = None;
        let mut incoming = match received {
            ReceivedBody::Streaming(incoming) => incoming,
            ReceivedBody::Whole(bytes) => {
                if let Some(connection) = connection {
                    pool.put(connection, now);
                }
                return Self::whole(bytes);
            }
        };
        if connection.is_some() {
            let mut context = Context::from_waker(Waker::noop());
            if !incoming.is_end_stream()
                && incoming.size_hint().exact().is_some()
                && let Poll::Ready(frame) = Pin::new(&mut incoming).poll_frame(&mut context)
            {
                first = frame;
            }
            if incoming.is_end_stream() && !matches!(first, Some(Err(_))) {
                if let Some(connection) = connection.take() {
                    pool.put(connection, now);
                }
                let data = first.and_then(Result::ok).map(Frame::into_data);
                return Self(Repr::Whole(data.and_then(Result::ok)));
            }
        }
        Self(Repr::Streaming(Box::new(Streaming {
            incoming,
            first,
            connection: connection.map(|connection| (connection, Arc::clone(pool))),
            timeout: RollingTimeout::default(),
            idle_timeout: upstream.config.idle_timeout,
            is_waiting: false,
            cut: upstream.metrics.cut.clone(),
            slot: Some(exchange.slot),
        })))
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> FramePoll<io::Error> {
        match &mut self.get_mut().0 {
            Repr::Whole(bytes) => Poll::Ready(bytes.take().map(Frame::data).map(Ok)),
            Repr::Streaming(streaming) => streaming.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Repr::Whole(bytes) => bytes.is_none(),
            Repr::Streaming(streaming) => {
                streaming.first.is_none() && streaming.incoming.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let size = |bytes: &Bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match &self.0 {
            Repr::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, size)),
            Repr::Streaming(streaming) => {
                let first = match &streaming.first {
                    Some(Ok(frame)) => frame.data_ref().map_or(0, size),
                    _ => 0,
                };
                let rest = streaming.incoming.size_hint();
                let exact = rest.exact().map(|rest| rest.saturating_add(first));
                exact.map_or(rest, SizeHint::with_exact)
            }
        }
    }
}

impl Streaming {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> FramePoll<io::Error> {
        let next = match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => self.poll_incoming(context),
        };
        match next {
            Poll::Ready(Some(Ok(mut frame))) => {
                self.is_waiting = false;
                if let Some(trailers) = frame.trailers_mut() {
                    filter_response_trailers(trailers);
                }
                if self.incoming.is_end_stream() || frame.is_trailers() {
                    self.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                self.complete();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(self.fail(io::Error::other(error)))))
            }
            Poll::Pending => self.poll_timeout(context).map(|()| {
                let late = "the server sent nothing for too long";
                Some(Err(self.fail(io::Error::new(io::ErrorKind::TimedOut, late))))
            }),
        }
    }

    /// Polls the connection only if the next part is not there, and first [without waking any task](super::hyper_connection).
    fn poll_incoming(&mut self, context: &mut Context<'_>) -> FramePoll<hyper::Error> {
        let Some((connection, _)) = &mut self.connection else {
            return Pin::new(&mut self.incoming).poll_frame(context);
        };
        let mut quiet = Context::from_waker(Waker::noop());
        let frame = Pin::new(&mut self.incoming).poll_frame(&mut quiet);
        if frame.is_ready() {
            return frame;
        }
        connection.drive(&mut quiet);
        let frame = Pin::new(&mut self.incoming).poll_frame(&mut quiet);
        if frame.is_ready() {
            return frame;
        }
        if connection.drive(context) {
            // What is left, or the error, can be read now.
            self.connection = None;
        }
        Pin::new(&mut self.incoming).poll_frame(&mut quiet)
    }

    /// Only the server's time counts: while the client does not read, the body is not polled.
    fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timeout = match &mut self.connection {
            Some((connection, _)) => &mut connection.timeout,
            None => &mut self.timeout,
        };
        if !std::mem::replace(&mut self.is_waiting, true) {
            timeout.start(Instant::now(), self.idle_timeout);
        }
        timeout.poll(context)
    }

    fn complete(&mut self) {
        if let Some((connection, pool)) = self.connection.take() {
            pool.put(connection, Instant::now());
        }
        self.slot = None;
    }

    fn fail(&mut self, error: io::Error) -> io::Error {
        self.cut.inc();
        // Closes the connection.
        self.connection = None;
        self.slot = None;
        error
    }
}

impl fmt::Debug for Streaming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming")
            .field("incoming", &self.incoming)
            .finish_non_exhaustive()
    }
}
