//! An HTTP/1.1 connection to a server. It is not a task of its own: the request that waits for its response polls it.
//!
//! So a request passes from the client's connection to the server's and back without a change of tasks, and a client that
//! disconnects drops the connection with it. Usual exchanges take the [fast path](super::fast_path). For others
//! [hyper](super::hyper_connection) takes over, and keeps the connection for some exchanges after that, because taking over
//! costs something, too.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::error::ForwardError;
use super::fast_path::{FastConnection, Parsed};
use super::hyper_connection::HyperConnection;
use super::stream::Stream;
use crate::body::{BodyError, BodyProgress, BodyStage, LimitedBody};
use crate::timeout::RollingTimeout;

/// A connection, busy with one request or idle.
pub(super) struct UpstreamConnection {
    driver: Driver,
    /// For how many more exchanges hyper keeps the connection.
    hyper_turns: u8,
    /// For how many it keeps it when it takes over again: twice as many each time, until the fast path is taken again.
    next_hyper_turns: u8,
    /// Whether it may take the fast path.
    fast_path: bool,
    pub(super) timeout: RollingTimeout,
    pub(super) idle_since: Instant,
}

enum Driver {
    FastPath(FastConnection),
    Hyper(Box<HyperConnection>),
    Ended,
}

const MIN_HYPER_TURNS: u8 = 1;
const MAX_HYPER_TURNS: u8 = 64;

pub(super) enum ReceivedBody {
    Whole(Bytes),
    Streaming(Incoming),
}

/// Why a request got no response from a server, and whether it can be sent again.
pub(super) struct SendError {
    pub(super) error: ForwardError,
    /// For the log.
    pub(super) detail: String,
    /// The request, if it is still there.
    pub(super) request: Option<Box<Request<LimitedBody>>>,
    /// Whether anything of it was sent.
    pub(super) was_sent: bool,
    /// Whether anything of a response may have been received.
    pub(super) may_have_response: bool,
}

impl SendError {
    /// A request that was sent and is gone.
    pub(super) fn gone(error: ForwardError) -> Self {
        Self {
            error,
            detail: String::new(),
            request: None,
            was_sent: true,
            may_have_response: true,
        }
    }

    /// A request of which nothing was sent.
    pub(super) fn unsent(
        error: ForwardError,
        detail: String,
        request: Box<Request<LimitedBody>>,
    ) -> Self {
        Self {
            error,
            detail,
            request: Some(request),
            was_sent: false,
            may_have_response: false,
        }
    }

    /// hyper's error. `copy` is the request, if it can be repeated.
    pub(super) fn of_hyper(
        mut error: TrySendError<Request<LimitedBody>>,
        copy: Option<Request<LimitedBody>>,
        progress: Option<&BodyProgress>,
        may_have_response: bool,
    ) -> Self {
        let unsent = error.take_message();
        let was_sent = unsent.is_none();
        let error = error.into_error();
        Self {
            error: match progress.and_then(BodyProgress::error) {
                Some(BodyError::TooLong) => ForwardError::ClientBodyTooLarge,
                Some(BodyError::TooSlow) => ForwardError::ClientBodySlow,
                Some(BodyError::Broken) => ForwardError::ClientBody,
                None if error.is_parse_too_large() => ForwardError::LongHead,
                None if error.is_parse() => ForwardError::Garbled,
                None => ForwardError::Closed,
            },
            detail: error.to_string(),
            request: unsent.or(copy).map(Box::new),
            was_sent,
            may_have_response,
        }
    }
}

impl UpstreamConnection {
    pub(super) fn new(stream: Stream, fast_path: bool) -> Self {
        Self {
            driver: Driver::FastPath(FastConnection::new(stream)),
            hyper_turns: 0,
            next_hyper_turns: MIN_HYPER_TURNS,
            fast_path,
            timeout: RollingTimeout::default(),
            idle_since: Instant::now(),
        }
    }

    /// Sends a request and waits for the head of its response, for `within` after the last part of the request.
    pub(super) async fn send(
        &mut self,
        request: Box<Request<LimitedBody>>,
        within: Option<Duration>,
        now: Instant,
    ) -> Result<Response<ReceivedBody>, SendError> {
        self.timeout.start(now, within);
        let mut read = None;
        if let Driver::FastPath(fast) = &mut self.driver
            && self.fast_path
            && fast.accepts(&request)
        {
            let timeout = &mut self.timeout;
            let exchanged = poll_fn(|context| match fast.poll_exchange(context) {
                Poll::Ready(exchanged) => Poll::Ready(Some(exchanged)),
                Poll::Pending => timeout.poll(context).map(|()| None),
            });
            match exchanged.await {
                Some(Ok(Parsed::Response(response))) => {
                    self.next_hyper_turns = MIN_HYPER_TURNS;
                    return Ok(response.map(ReceivedBody::Whole));
                }
                Some(Ok(Parsed::Declined(bytes))) => read = Some(bytes),
                Some(Err(error)) => {
                    return Err(SendError {
                        was_sent: true,
                        ..SendError::unsent(ForwardError::Closed, error.to_string(), request)
                    });
                }
                None => return Err(SendError::gone(ForwardError::ResponseTimeout)),
            }
        }
        // Boxed, because it is large and less usual.
        Box::pin(self.send_by_hyper(*request, within, read)).await
    }

    /// Has hyper send a request, or receive the response to it of which something was read already.
    async fn send_by_hyper(
        &mut self,
        request: Request<LimitedBody>,
        within: Option<Duration>,
        read: Option<Bytes>,
    ) -> Result<Response<ReceivedBody>, SendError> {
        let was_sent = read.is_some();
        if let Driver::FastPath(_) = &self.driver
            && let Driver::FastPath(fast) = std::mem::replace(&mut self.driver, Driver::Ended)
        {
            let mut stream = fast.into_stream();
            if let Some(read) = read {
                stream.replay(read);
            }
            if let Ok(hyper) = HyperConnection::new(stream).await {
                self.driver = Driver::Hyper(Box::new(hyper));
            }
            self.hyper_turns = self.next_hyper_turns;
            self.next_hyper_turns = self.hyper_turns.saturating_mul(2).min(MAX_HYPER_TURNS);
        }
        let Driver::Hyper(hyper) = &mut self.driver else {
            return Err(SendError::gone(ForwardError::Closed));
        };
        let response = hyper.send(request, within, &mut self.timeout, was_sent);
        Ok(response.await?.map(ReceivedBody::Streaming))
    }

    /// Polls the connection. Returns whether it has ended.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.driver {
            Driver::FastPath(_) => false,
            Driver::Hyper(hyper) => hyper.drive(context),
            Driver::Ended => true,
        }
    }

    /// Whether it can take a request, as far as can be known: its server may just be closing it.
    pub(super) fn is_usable(&mut self) -> bool {
        match &mut self.driver {
            Driver::FastPath(fast) => fast.is_quiet(),
            Driver::Hyper(hyper) => hyper.is_usable(),
            Driver::Ended => false,
        }
    }

    /// Prepares the connection for its next request. Returns whether it can be kept; it is checked again before it is used.
    pub(super) fn become_idle(&mut self, now: Instant) -> bool {
        self.idle_since = now;
        if let Driver::FastPath(_) = &self.driver {
            return true;
        }
        if !self.is_usable() {
            return false;
        }
        if self.hyper_turns > 0 || !self.fast_path {
            self.hyper_turns = self.hyper_turns.saturating_sub(1);
            return true;
        }
        let Driver::Hyper(hyper) = std::mem::replace(&mut self.driver, Driver::Ended) else {
            return false;
        };
        let stream = hyper.into_idle_stream().map(FastConnection::new);
        self.driver = stream.map_or(Driver::Ended, Driver::FastPath);
        matches!(self.driver, Driver::FastPath(_))
    }

    /// Lets the connection go on by itself, to its end.
    pub(super) fn detach(self) {
        if let Driver::Hyper(hyper) = self.driver {
            hyper.detach();
        }
    }

    /// The bare connection, after its server has agreed to an upgrade, and what was read after that.
    pub(super) async fn into_stream(self) -> Option<(Stream, Bytes)> {
        match self.driver {
            Driver::FastPath(fast) => Some((fast.into_stream(), Bytes::new())),
            Driver::Hyper(hyper) => Some(hyper.into_stream().await),
            Driver::Ended => None,
        }
    }
}

/// Whether the time for a response is over, which counts from the last part of the request's body on. Returns who took too long.
pub(super) fn poll_response_timeout(
    timeout: &mut RollingTimeout,
    context: &mut Context<'_>,
    within: Option<Duration>,
    progress: Option<&BodyProgress>,
) -> Poll<SendError> {
    while timeout.poll(context).is_ready() {
        let (Some(progress), Some(within)) = (progress, within) else {
            return Poll::Ready(SendError::gone(ForwardError::ResponseTimeout));
        };
        let moved_at = progress.moved_at();
        if moved_at + within <= Instant::now() {
            return Poll::Ready(SendError::gone(match progress.stage() {
                BodyStage::AwaitsClient => ForwardError::ClientBodySlow,
                _ => ForwardError::ResponseTimeout,
            }));
        }
        timeout.start(moved_at, Some(within));
    }
    Poll::Pending
}
