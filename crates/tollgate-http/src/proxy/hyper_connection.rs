//! An HTTP/1.1 connection to a server that hyper drives: for bodies, upgrades, and everything else that the fast path declines.
//!
//! hyper wakes the tasks at the other ends of its channels; here they are one and the same, awake already. So what can be had at once
//! is polled with a waker that does nothing, and only a poll that has to wait registers the task.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::unconstrained;

use super::connection::{SendError, poll_response_timeout};
use super::error::ForwardError;
use super::forward::repeatable;
use super::stream::Stream;
use crate::body::LimitedBody;
use crate::timeout::RollingTimeout;

/// Maximum number of headers of a response; hyper's default is 100.
const MAX_HEADERS: usize = 256;

/// Maximum number of bytes of a response that are read ahead while the client is slow. The head has to fit as well.
const RESPONSE_BUFFER: usize = 64 * 1_024;

pub(super) struct HyperConnection {
    sender: SendRequest<LimitedBody>,
    connection: http1::Connection<TokioIo<Stream>, LimitedBody>,
    has_ended: bool,
    /// Set when anything is read.
    has_read: Arc<AtomicBool>,
}

impl HyperConnection {
    pub(super) async fn new(stream: Stream) -> hyper::Result<Self> {
        let has_read = Arc::clone(&stream.has_read);
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(RESPONSE_BUFFER)
            .max_headers(MAX_HEADERS)
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Self {
            sender,
            connection,
            has_ended: false,
            has_read,
        })
    }

    /// Sends a request and waits for the head of its response, with a timeout that has started. If the request was sent already, what
    /// was read after it is [replayed](Stream::replay).
    pub(super) async fn send(
        &mut self,
        request: Request<LimitedBody>,
        within: Option<Duration>,
        timeout: &mut RollingTimeout,
        was_sent: bool,
    ) -> Result<Response<Incoming>, SendError> {
        let progress = request.body().progress();
        let mut copy = repeatable(&request);
        self.has_read.store(false, Relaxed);
        // Out of tokio's budget, no task would be woken for a response that is there.
        let mut response = pin!(unconstrained(self.sender.try_send_request(request)));
        let mut polls_again = was_sent;
        poll_fn(|context| {
            let wakers: &[&Waker] = match std::mem::replace(&mut polls_again, true) {
                true => &[Waker::noop(), context.waker()],
                false => &[context.waker()],
            };
            for waker in wakers {
                self.drive(&mut Context::from_waker(waker));
                let mut quiet = Context::from_waker(Waker::noop());
                if let Poll::Ready(response) = response.as_mut().poll(&mut quiet) {
                    return Poll::Ready(response.map_err(|error| {
                        let has_read = self.has_read.load(Relaxed);
                        SendError::of_hyper(error, copy.take(), progress.as_ref(), has_read)
                    }));
                }
            }
            if self.has_ended {
                return Poll::Ready(Err(SendError::gone(ForwardError::Closed)));
            }
            poll_response_timeout(timeout, context, within, progress.as_ref()).map(Err)
        })
        .await
        .map_err(|error| SendError {
            was_sent: error.was_sent || was_sent,
            ..error
        })
    }

    /// Polls the connection. Returns whether it has ended.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) -> bool {
        // An error is reported by the response or its body.
        self.has_ended =
            self.has_ended || self.connection.poll_without_shutdown(context).is_ready();
        self.has_ended
    }

    pub(super) fn is_usable(&mut self) -> bool {
        !self.drive(&mut Context::from_waker(Waker::noop())) && self.sender.is_ready()
    }

    /// The bare connection, if no exchange is in progress on it.
    pub(super) fn into_idle_stream(mut self) -> Option<Stream> {
        if !self.is_usable() {
            return None;
        }
        let parts = self.connection.into_parts();
        parts.read_buf.is_empty().then(|| parts.io.into_inner())
    }

    pub(super) fn detach(self) {
        if self.has_ended {
            return;
        }
        tokio::spawn(async move {
            if let Err(error) = self.connection.await {
                tracing::debug!(%error, "connection to a server ended early");
            }
        });
    }

    pub(super) async fn into_stream(mut self) -> (Stream, Bytes) {
        poll_fn(|context| match self.drive(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        let parts = self.connection.into_parts();
        (parts.io.into_inner(), parts.read_buf)
    }
}
