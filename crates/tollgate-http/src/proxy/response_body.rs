//! The body of a response, on its way from the server to the caller.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::connection::{Connection, Received};
use super::pool::Pool;
use super::slots::Slot;
use crate::headers::filter_response_trailers;
use crate::patience::Patience;

/// The body of a response that came through a [`Proxy`](super::Proxy), or was made by it.
#[derive(Debug)]
pub struct ProxyBody(Origin);

#[derive(Debug)]
enum Origin {
    /// All of it, until it is sent.
    Whole(Option<Bytes>),
    Streaming(Box<Streaming>),
}

struct Streaming {
    incoming: Incoming,
    /// What was read of it already.
    first: Option<Result<Frame<Bytes>, hyper::Error>>,
    /// The connection it comes from, if we are the ones to move it on.
    connection: Option<(Box<Connection>, Arc<Pool>)>,
    /// For bodies without such a connection.
    patience: Patience,
    idle_timeout: Option<Duration>,
    is_waiting: bool,
    cut: Counter,
    slot: Option<Slot>,
}

/// Why a body ended before it was complete.
#[derive(Debug)]
pub enum ProxyBodyError {
    /// The connection to the server failed.
    Server(hyper::Error),
    /// The server sent nothing for too long.
    Stalled,
}

impl fmt::Display for ProxyBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(_) => f.write_str("the server did not send the whole response"),
            Self::Stalled => f.write_str("the server sent nothing for too long"),
        }
    }
}

impl std::error::Error for ProxyBodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Server(error) => Some(error),
            Self::Stalled => None,
        }
    }
}

/// What a body needs besides its bytes.
pub(super) struct Source<'a> {
    /// The connection, if it is not shared or left to itself.
    pub(super) connection: Option<Box<Connection>>,
    /// Where it belongs.
    pub(super) pool: &'a Arc<Pool>,
    pub(super) slot: Slot,
    pub(super) idle_timeout: Option<Duration>,
    pub(super) cut: &'a Counter,
}

impl ProxyBody {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self(Origin::Whole((!bytes.is_empty()).then_some(bytes)))
    }

    /// The body of a response that has just begun. A small one is there already, and its connection free for the next request.
    pub(super) fn of(received: Received, source: Source<'_>, now: Instant) -> Self {
        let mut first = None;
        let Source {
            mut connection,
            pool,
            ..
        } = source;
        let mut incoming = match received {
            Received::Coming(incoming) => incoming,
            Received::Whole(bytes) => {
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
                return Self(Origin::Whole(data.and_then(Result::ok)));
            }
        }
        Self(Origin::Streaming(Box::new(Streaming {
            incoming,
            first,
            connection: connection.map(|connection| (connection, Arc::clone(pool))),
            patience: Patience::default(),
            idle_timeout: source.idle_timeout,
            is_waiting: false,
            cut: source.cut.clone(),
            slot: Some(source.slot),
        })))
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = ProxyBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyBodyError>>> {
        match &mut self.get_mut().0 {
            Origin::Whole(bytes) => Poll::Ready(bytes.take().map(Frame::data).map(Ok)),
            Origin::Streaming(streaming) => streaming.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Origin::Whole(bytes) => bytes.is_none(),
            Origin::Streaming(streaming) => {
                streaming.first.is_none() && streaming.incoming.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let size = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        match &self.0 {
            Origin::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| size(bytes.len())))
            }
            Origin::Streaming(streaming) => {
                let rest = streaming.incoming.size_hint();
                let first = match &streaming.first {
                    Some(Ok(frame)) => frame.data_ref().map_or(0, |bytes| size(bytes.len())),
                    _ => 0,
                };
                match rest.exact() {
                    Some(rest) => SizeHint::with_exact(rest.saturating_add(first)),
                    None => rest,
                }
            }
        }
    }
}

impl Streaming {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ProxyBodyError>>> {
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
                Poll::Ready(Some(Err(self.fail(ProxyBodyError::Server(error)))))
            }
            Poll::Pending => {
                let over = self.poll_patience(context);
                over.map(|()| Some(Err(self.fail(ProxyBodyError::Stalled))))
            }
        }
    }

    /// The next part, if it is there; else the connection is moved on, and first without waking anybody: see [`Connection`].
    fn poll_incoming(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
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
        connection.drive(context);
        if connection.has_ended() {
            // Whatever it did not say when it ended, it says now.
            self.connection = None;
        }
        Pin::new(&mut self.incoming).poll_frame(&mut quiet)
    }

    /// Only the server's time counts: while the caller does not read, nobody asks.
    fn poll_patience(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let patience = match &mut self.connection {
            Some((connection, _)) => &mut connection.patience,
            None => &mut self.patience,
        };
        if !std::mem::replace(&mut self.is_waiting, true) {
            patience.begin(Instant::now(), self.idle_timeout);
        }
        patience.poll(context)
    }

    fn complete(&mut self) {
        if let Some((connection, pool)) = self.connection.take() {
            pool.put(connection, Instant::now());
        }
        self.slot = None;
    }

    fn fail(&mut self, error: ProxyBodyError) -> ProxyBodyError {
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
