//! A connection of HTTP/1.1 to a server on which hyper speaks: for bodies, upgrades, and whatever else is not plain.
//!
//! hyper wakes those who wait at the other ends of its channels; here they are one and the same, awake already. So what can be had at
//! once is asked for with a waker that does nothing, and only who has to wait leaves its own.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::unconstrained;

use super::connection::{Lost, Silence, poll_patience};
use super::forward::repeatable;
use super::outgoing::Outgoing;
use super::request_body::RequestBody;
use super::stream::{Heard, Stream};
use crate::patience::Patience;

/// The most fields of a response; hyper's own bound is 100.
const MAX_FIELDS: usize = 256;

type Http1 = http1::Connection<TokioIo<Stream>, RequestBody>;

/// So many bytes of a response are read ahead at most while the client takes its time. The head has to fit as well.
const RESPONSE_BUFFER: usize = 64 * 1_024;

pub(super) struct HyperConnection {
    sender: SendRequest<RequestBody>,
    connection: Http1,
    has_ended: bool,
    heard: Heard,
}

impl HyperConnection {
    pub(super) async fn over(stream: Stream) -> hyper::Result<Self> {
        let heard = stream.heard();
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(RESPONSE_BUFFER)
            .max_headers(MAX_FIELDS)
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Self {
            sender,
            connection,
            has_ended: false,
            heard,
        })
    }

    /// Sends a request and waits for the head of its response, with a patience that has begun. If it was sent already, what came after it is
    /// [there](Stream::replay) to be asked for.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
        within: Option<Duration>,
        patience: &mut Patience,
        was_sent: bool,
    ) -> Result<Response<Incoming>, Lost> {
        let progress = request.body().progress();
        let copy = repeatable(&request);
        self.heard.nothing_yet();
        // Out of tokio's budget, a response that is there would be waited for with nobody to wake us.
        let mut response = pin!(unconstrained(self.sender.try_send_request(request)));
        let mut was_woken = was_sent;
        let response = poll_fn(|context| {
            let wakers: &[&Waker] = match was_woken {
                true => &[Waker::noop(), context.waker()],
                false => &[context.waker()],
            };
            was_woken = true;
            for waker in wakers {
                self.drive(&mut Context::from_waker(waker));
                let ready = response
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(response) = ready {
                    return Poll::Ready(response.map_err(|error| Silence::Error(Box::new(error))));
                }
            }
            if self.has_ended {
                return Poll::Ready(Err(Silence::Ended));
            }
            let over = poll_patience(patience, context, within, progress.as_deref());
            over.map(|()| Err(Silence::Late))
        });
        let response = response.await;
        response.map_err(|silence| {
            let mut lost = silence.lost(progress.as_deref(), self.heard.anything());
            lost.request = (lost.request).or(copy.map(Outgoing::new).map(Box::new));
            lost.was_sent |= was_sent;
            lost
        })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Moves the connection on as far as it goes.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) {
        if !self.has_ended {
            // How it ended, whoever waits for a response or its body hears from there.
            self.has_ended = self.connection.poll_without_shutdown(context).is_ready();
        }
    }

    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.has_ended && self.sender.is_ready()
    }

    /// The bare connection, if nothing is under way on it.
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
                tracing::debug!(%error, "a connection to a server ended early");
            }
        });
    }

    pub(super) async fn into_stream(mut self) -> (Stream, Bytes) {
        poll_fn(|context| {
            self.drive(context);
            match self.has_ended {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        let parts = self.connection.into_parts();
        (parts.io.into_inner(), parts.read_buf)
    }
}
