//! One request, from the choice of a server to the head of its response.
//!
//! ## What is sent again
//! A request is sent again only if it is certain that no server has seen it, or if it does not matter how often one does:
//!
//! - if no connection could be made, or nothing of the request was written, it goes to another server, whatever it is: at most to
//!   `retries` others;
//! - if a connection that was used before ends before a byte of the response has come, the server has probably closed it just as we
//!   used it. A request without a body whose method may be repeated (GET, HEAD, OPTIONS, TRACE, PUT, DELETE) then goes to the same server
//!   over a new connection, once.
//!
//! Nothing else is: not after a time-out, not after a status, and no request with a body of which anything was sent.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Method, Request, Response};
use hyper::client::conn::http2;
use tokio::time::Instant;

use super::Route;
use super::config::HostField;
use super::connect::Connected;
use super::connection::{Connection, Lost, Received, Silence, poll_patience};
use super::failure::Failure;
use super::outgoing::Outgoing;
use super::pool::Pool;
use super::request_body::RequestBody;
use super::request_head;
use super::server::Server;
use super::slots::{Claim, Slot};
use super::upstream::Upstream;
use crate::patience::Patience;

/// The head of a response, and what it came by.
pub(super) struct Answer<'a> {
    pub(super) response: Response<Received>,
    /// The connection, if it is ours alone.
    pub(super) connection: Option<Box<Connection>>,
    pub(super) pool: &'a Arc<Pool>,
    pub(super) slot: Slot,
}

/// Asks one server after the other, as far as that is allowed.
pub(super) async fn forward(
    route: &Route,
    mut request: Box<Outgoing>,
    claim: Claim,
    mut now: Instant,
) -> Result<Answer<'_>, Failure> {
    let upstream = &*route.upstream;
    let (mut tried, mut retries) = (0, upstream.config.retries);
    let sees_itself = upstream.config.host == HostField::Upstream || !request.has_client_host();
    loop {
        let nth = upstream.choose(tried).ok_or(Failure::NoneHealthy)?;
        let pool = route.pools.get(nth).ok_or(Failure::NoneHealthy)?;
        let server = &pool.server;
        tried |= 1 << nth;
        let slot = match server.slots.take_now(claim) {
            Some(slot) => slot,
            None => {
                let taking = Box::pin(server.slots.take(claim, upstream.config.connect_timeout));
                let slot = taking.await.ok_or(Failure::Busy)?;
                now = Instant::now();
                slot
            }
        };
        if sees_itself {
            request.set_host(&server.authority);
        }
        let mut lost = match ask(upstream, pool, request, now).await {
            Ok((response, connection)) => {
                return Ok(Answer {
                    response,
                    connection,
                    pool,
                    slot,
                });
            }
            Err(lost) => lost,
        };
        if lost.failure.is_the_servers() {
            upstream.failed(server, &lost.failure.to_string(), &lost.error);
        }
        match lost.request.take().filter(|_| !lost.was_sent) {
            Some(unsent) if retries > 0 && tried.count_ones() < count(upstream) => request = unsent,
            _ => return Err(lost.failure),
        }
        retries -= 1;
        upstream.metrics.retries.inc();
        // A server has its whole time, whatever those before it took.
        now = Instant::now();
    }
}

fn count(upstream: &Upstream) -> u32 {
    u32::try_from(upstream.servers.len()).unwrap_or(u32::MAX)
}

type Asked = Result<(Response<Received>, Option<Box<Connection>>), Lost>;

/// Asks a server, over a connection that is there or else a new one.
async fn ask(
    upstream: &Upstream,
    pool: &Arc<Pool>,
    mut request: Box<Outgoing>,
    mut now: Instant,
) -> Asked {
    let within = upstream.config.response_timeout;
    if pool.server.wants_http2()
        && let Some(sender) = pool.shared()
    {
        // Large, and not the usual.
        match Box::pin(send_http2(
            sender,
            &pool.server,
            request.into_request(),
            within,
        ))
        .await
        {
            Ok(response) => return Ok((response, None)),
            Err(lost) => request = again(lost, upstream)?,
        }
        now = Instant::now();
    }
    while let Some(mut connection) = pool.take(now) {
        request.for_http1();
        match connection.send(request, within, now).await {
            Ok(response) => return Ok((response, Some(connection))),
            Err(lost) => {
                let was_sent = lost.was_sent;
                request = again(lost, upstream)?;
                if was_sent {
                    break;
                }
            }
        }
    }
    // Seldom, and large.
    Box::pin(ask_anew(pool, request, within)).await
}

async fn ask_anew(pool: &Arc<Pool>, mut request: Box<Outgoing>, within: Option<Duration>) -> Asked {
    match pool.connect().await {
        Ok(Connected::One(mut connection)) => {
            // One that speaks or ends before it is asked has heard nothing; another server may be asked.
            if !connection.is_usable() {
                return Err(Lost {
                    failure: Failure::Closed,
                    error: "the server spoke before it was asked, or had gone".to_owned(),
                    request: Some(request),
                    was_sent: false,
                    heard: false,
                });
            }
            request.for_http1();
            let response = connection.send(request, within, Instant::now()).await?;
            Ok((response, Some(connection)))
        }
        Ok(Connected::Two(sender)) => {
            let response = send_http2(sender, &pool.server, request.into_request(), within).await?;
            Ok((response, None))
        }
        Err(error) => Err(Lost {
            failure: error.failure(),
            error: error.to_string(),
            request: Some(request),
            was_sent: false,
            heard: false,
        }),
    }
}

/// What is sent again after a connection that was used before has ended.
fn again(mut lost: Lost, upstream: &Upstream) -> Result<Box<Outgoing>, Lost> {
    let was_unheard = lost.failure == Failure::Closed && !lost.heard;
    let may_go =
        |request: &Outgoing| !lost.was_sent || was_unheard && is_repeatable(request.request());
    match lost.request.take_if(|request| may_go(request)) {
        Some(request) => {
            upstream.metrics.retries.inc();
            Ok(request)
        }
        None => Err(lost),
    }
}

fn is_repeatable(request: &Request<RequestBody>) -> bool {
    let is_idempotent = matches!(
        *request.method(),
        Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::PUT | Method::DELETE
    );
    is_idempotent && request.body().is_nothing()
}

/// The request once more, if it may be repeated.
pub(super) fn repeatable(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    if !is_repeatable(request) {
        return None;
    }
    let mut copy = Request::new(RequestBody::Nothing);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(copy)
}

/// Sends a request over a connection that others use as well.
pub(super) async fn send_http2(
    mut sender: http2::SendRequest<RequestBody>,
    server: &Server,
    request: Request<RequestBody>,
    within: Option<Duration>,
) -> Result<Response<Received>, Lost> {
    let progress = request.body().progress();
    let copy = repeatable(&request);
    let request =
        request_head::for_http2(request, server).ok_or_else(|| Lost::by(Failure::BadHost))?;
    let mut response = pin!(sender.try_send_request(request));
    let mut patience = Patience::default();
    patience.begin(Instant::now(), within);
    let response = poll_fn(|context| {
        if let Poll::Ready(response) = response.as_mut().poll(context) {
            return Poll::Ready(response.map_err(|error| Silence::Error(Box::new(error))));
        }
        let over = poll_patience(&mut patience, context, within, progress.as_deref());
        over.map(|()| Err(Silence::Late))
    });
    let response = response.await.map_err(|silence| {
        let mut lost = silence.lost(progress.as_deref(), false);
        match &mut lost.request {
            Some(unsent) => unsent.leaves_http2(),
            None => lost.request = copy.map(Outgoing::new).map(Box::new),
        }
        lost
    });
    response.map(|response| response.map(Received::Coming))
}
