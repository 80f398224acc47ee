//! One request, from the choice of a server to the head of its response.
//!
//! ## What is sent again
//! A request is sent again only if it is certain that no server has seen it, or if it does not matter how often one does:
//!
//! - if no connection could be made, or nothing of the request was written, it goes to another server, whatever it is: at most to
//!   `retries` others;
//! - if a connection that was used before ends before a byte of the response has come, the server has probably closed it at the same
//!   moment. A request without a body whose method may be repeated (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) then goes to the same
//!   server over a new connection, once.
//!
//! Nothing else is: not after a timeout, not after a status, and no request with a body of which anything was sent.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::header::HOST;
use http::{Method, Request, Response};
use hyper::client::conn::http2;
use tokio::time::Instant;

use super::UpstreamRoute;
use super::connection::{ReceivedBody, SendError, UpstreamConnection, poll_response_timeout};
use super::error::ForwardError;
use super::pool::Connected;
use super::pool::ConnectionPool;
use super::request_head;
use super::slots::{RequestSlot, SlotClaim};
use super::upstream::HostHeader;
use super::upstream::{Server, Upstream};
use crate::body::LimitedBody;
use crate::timeout::RollingTimeout;

/// How a response was received.
pub(super) struct Exchange<'a> {
    /// The connection, unless it is shared.
    pub(super) connection: Option<Box<UpstreamConnection>>,
    pub(super) pool: &'a Arc<ConnectionPool>,
    pub(super) slot: RequestSlot,
    /// When the request was sent.
    pub(super) sent_at: Instant,
}

type Received = (Response<ReceivedBody>, Option<Box<UpstreamConnection>>);

/// Sends a request to one server after the other, as far as that is allowed. `has_host` is whether it has the client's `Host`.
pub(super) async fn forward(
    route: &UpstreamRoute,
    mut request: Box<Request<LimitedBody>>,
    has_host: bool,
    claim: SlotClaim,
    mut now: Instant,
) -> Result<(Response<ReceivedBody>, Exchange<'_>), ForwardError> {
    let upstream = &*route.upstream;
    let (mut tried, mut retries) = (0_u64, upstream.config.retries);
    let sets_host = upstream.config.host == HostHeader::Upstream || !has_host;
    loop {
        let nth = upstream.choose(tried).ok_or(ForwardError::NoneHealthy)?;
        let pool = route.pools.get(nth).ok_or(ForwardError::NoneHealthy)?;
        let server = &pool.server;
        tried |= 1 << nth;
        let slot = match server.slots.try_take(claim) {
            Some(slot) => slot,
            None => {
                let taking = Box::pin(server.slots.take(claim, upstream.config.connect_timeout));
                let slot = taking.await.ok_or(ForwardError::Busy)?;
                now = Instant::now();
                slot
            }
        };
        if sets_host {
            (request.headers_mut()).insert(HOST, server.authority.clone());
        }
        let mut failed = match send(upstream, pool, request, now).await {
            Ok((response, connection)) => {
                let exchange = Exchange {
                    connection,
                    pool,
                    slot,
                    sent_at: now,
                };
                return Ok((response, exchange));
            }
            Err(failed) => failed,
        };
        let error = failed.error;
        if error.is_of_server() {
            upstream.note_failure(server, now, error.label(), &failed.detail);
        }
        let has_others = (tried.count_ones() as usize) < upstream.servers.len();
        match failed.request.take() {
            Some(unsent) if !failed.was_sent && retries > 0 && has_others => request = unsent,
            _ => return Err(error),
        }
        retries -= 1;
        upstream.metrics.retries.inc();
        // Each server has its whole time, whatever those before it took.
        now = Instant::now();
    }
}

/// Sends a request to a server, over a connection that is there or else a new one.
async fn send(
    upstream: &Upstream,
    pool: &Arc<ConnectionPool>,
    mut request: Box<Request<LimitedBody>>,
    mut now: Instant,
) -> Result<Received, SendError> {
    let within = upstream.config.response_timeout;
    if pool.server.wants_http2()
        && let Some(sender) = pool.shared()
    {
        // Boxed, because it is large and less usual.
        match Box::pin(send_http2(sender, &pool.server, *request, within)).await {
            Ok(response) => return Ok((response, None)),
            Err(failed) => request = to_send_again(failed, upstream)?,
        }
        now = Instant::now();
    }
    while let Some(mut connection) = pool.take(now) {
        request_head::for_http1(&mut request);
        match connection.send(request, within, now).await {
            Ok(response) => return Ok((response, Some(connection))),
            Err(failed) => {
                let was_sent = failed.was_sent;
                request = to_send_again(failed, upstream)?;
                if was_sent {
                    break;
                }
            }
        }
    }
    // Boxed, because it is large and seldom.
    Box::pin(send_anew(pool, request, within)).await
}

async fn send_anew(
    pool: &Arc<ConnectionPool>,
    mut request: Box<Request<LimitedBody>>,
    within: Option<Duration>,
) -> Result<Received, SendError> {
    match pool.connect().await {
        Ok(Connected::Http1(mut connection)) => {
            if !connection.is_usable() {
                let detail = "the server sent something before the request, or disconnected";
                let error = ForwardError::Closed;
                return Err(SendError::unsent(error, detail.to_owned(), request));
            }
            request_head::for_http1(&mut request);
            let response = connection.send(request, within, Instant::now()).await?;
            Ok((response, Some(connection)))
        }
        Ok(Connected::Http2(sender)) => {
            let response = send_http2(sender, &pool.server, *request, within).await?;
            Ok((response, None))
        }
        Err(error) => {
            let detail = error.to_string();
            Err(SendError::unsent(error.forward_error(), detail, request))
        }
    }
}

/// The request, if it may be sent again after a connection that was used before has ended.
fn to_send_again(
    mut failed: SendError,
    upstream: &Upstream,
) -> Result<Box<Request<LimitedBody>>, SendError> {
    let is_stale = failed.error == ForwardError::Closed && !failed.may_have_response;
    let may_repeat = |request: &Request<_>| !failed.was_sent || is_stale && is_repeatable(request);
    match failed.request.take_if(|request| may_repeat(request)) {
        Some(request) => {
            upstream.metrics.retries.inc();
            Ok(request)
        }
        None => Err(failed),
    }
}

fn is_repeatable(request: &Request<LimitedBody>) -> bool {
    let is_idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    );
    is_idempotent && request.body().is_empty()
}

/// A copy of the request, if it may be repeated.
pub(super) fn repeatable(request: &Request<LimitedBody>) -> Option<Request<LimitedBody>> {
    is_repeatable(request).then(|| {
        let mut copy = Request::new(LimitedBody::default());
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.headers_mut() = request.headers().clone();
        copy
    })
}

/// Sends a request over a connection that other requests share.
pub(super) async fn send_http2(
    mut sender: http2::SendRequest<LimitedBody>,
    server: &Server,
    request: Request<LimitedBody>,
    within: Option<Duration>,
) -> Result<Response<ReceivedBody>, SendError> {
    let progress = request.body().progress();
    let copy = repeatable(&request);
    let request = request_head::for_http2(request, server);
    let request = request.ok_or_else(|| SendError::gone(ForwardError::BadHost))?;
    let mut response = pin!(sender.try_send_request(request));
    let mut timeout = RollingTimeout::default();
    timeout.start(Instant::now(), within);
    let response = poll_fn(|context| match response.as_mut().poll(context) {
        Poll::Ready(response) => Poll::Ready(Ok(response)),
        Poll::Pending => {
            poll_response_timeout(&mut timeout, context, within, progress.as_ref()).map(Err)
        }
    });
    match response.await? {
        Ok(response) => Ok(response.map(ReceivedBody::Streaming)),
        Err(error) => {
            let mut failed = SendError::of_hyper(error, copy, progress.as_ref(), false);
            if let Some(request) = &mut failed.request {
                request_head::from_http2(request);
            }
            Err(failed)
        }
    }
}
