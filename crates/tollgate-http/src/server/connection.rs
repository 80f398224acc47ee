//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::fast_path::{self, Left};
use super::frame_budget::FrameBudget;
use super::gathered::Gathered;
use super::in_flight::Requests;
use super::metrics::ServerMetrics;
use super::prefixed_stream::PrefixedStream;
use super::rejected_head::RejectedHead;
use super::state::{ConnectionState, Order};
use super::tracked_stream::TrackedStream;
use super::{Handler, ServerConfig};
use crate::body::IncomingBody;

/// Maximum number of streams that were opened and reset at once and are still in progress here; beyond that the connection
/// is closed (CVE-2023-44487).
const MAX_RESET_STREAMS: usize = 50;

/// Maximum number of streams that end because the client breaks the protocol.
const MAX_BAD_STREAMS: usize = 256;

/// Maximum number of bytes of a response that wait in an HTTP/2 stream for the client to read.
const STREAM_BUFFER: usize = 64 * 1_024;

/// How often an HTTP/2 client is asked whether it is still there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Every HTTP/2 connection begins like this, and no HTTP/1 request does.
const PREFACE: &[u8] = b"PRI";

/// A version of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Serves a connection. How long that may take is up to [`Connections`](super::connections::Connections).
pub(super) async fn serve<H: Handler>(
    stream: TrackedStream,
    peer: SocketAddr,
    state: &Arc<ConnectionState>,
    config: &ServerConfig,
    metrics: &ServerMetrics,
    handler: H,
) {
    let requests = Requests::new(handler, peer, Arc::clone(state));
    let Some(tls) = &config.tls else {
        let version = unless_asked_to_finish(state, version(stream.socket())).await;
        if let Some(Ok(version)) = version {
            serve_http(stream, version, state, config, metrics, requests).await;
        }
        return;
    };
    // Boxed, as what TLS needs would make the tasks of all other connections larger.
    Box::pin(async {
        match TlsAcceptor::from(Arc::clone(tls)).accept(stream).await {
            Ok(stream) => {
                let version = match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => Version::Two,
                    _ => Version::One,
                };
                serve_http(stream, version, state, config, metrics, requests).await;
            }
            Err(error) => {
                metrics.handshake.inc();
                tracing::debug!(%peer, %error, "TLS handshake failed");
            }
        }
    })
    .await;
}

/// The version that a client without TLS speaks, by its first bytes, which are not taken. Waits for as long as they take; the
/// caller bounds that.
async fn version(stream: &TcpStream) -> io::Result<Version> {
    let mut seen = [0; PREFACE.len()];
    loop {
        let read = stream.peek(&mut seen).await?;
        let seen = seen.get(..read).unwrap_or_default();
        if seen == PREFACE {
            return Ok(Version::Two);
        }
        if seen.is_empty() || !PREFACE.starts_with(seen) {
            return Ok(Version::One);
        }
        // A part of it, and the socket stays readable: look again in a moment.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// hyper's connections are boxed: most connections stay on the fast path, and a small task is faster to poll.
async fn serve_http<T, H>(
    mut stream: T,
    version: Version,
    state: &ConnectionState,
    config: &ServerConfig,
    metrics: &ServerMetrics,
    requests: Requests<H>,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let peer = requests.peer();
    let ended = match version {
        Version::One => {
            let left = match config.fast_path {
                true => fast_path::serve(&mut stream, &requests, state, config, metrics).await,
                false => Some(Left::default()),
            };
            let Some(Left { read, response }) = left else {
                return;
            };
            // The response to the first request, if the fast path got it already.
            let response = std::cell::Cell::new(response);
            let service = service_fn(move |request| {
                let (ready, requests) = (response.take(), requests.clone());
                async move {
                    let request = request.map(IncomingBody::Hyper);
                    Ok::<_, Infallible>(match ready {
                        Some(response) => response,
                        None => requests.handle(request, requests.begin()).await,
                    })
                }
            });
            // hyper's own timeout for heads would set a timer for every request, and run while a connection is idle.
            let connection = http1::Builder::new()
                .max_buf_size(config.max_head_bytes.max(8_192))
                .max_header_size(config.max_head_bytes)
                .serve_connection(TokioIo::new(PrefixedStream::new(read, stream)), service)
                .with_upgrades();
            let finish = http1::UpgradeableConnection::graceful_shutdown;
            until_asked_to_finish(Box::pin(connection), state, finish).await
        }
        Version::Two => {
            state.speaks_two();
            let stream = FrameBudget::new(stream, metrics.control_frames.clone());
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_header_list_size(u32::try_from(config.max_head_bytes).unwrap_or(u32::MAX))
                .max_concurrent_streams(config.max_streams)
                .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
                .max_local_error_reset_streams(MAX_BAD_STREAMS)
                .max_send_buf_size(STREAM_BUFFER)
                .keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_TIMEOUT)
                .serve_connection(
                    TokioIo::new(Gathered::new(stream)),
                    service_fn(move |request| {
                        // Before its task runs: until then the connection must not be taken for an idle one.
                        let (requests, in_flight) = (requests.clone(), requests.begin());
                        async move {
                            let request = request.map(IncomingBody::Hyper);
                            Ok::<_, Infallible>(requests.handle(request, in_flight).await)
                        }
                    }),
                );
            let finish = http2::Connection::graceful_shutdown;
            let ended = until_asked_to_finish(Box::pin(connection), state, finish);
            after_ready_requests(state, ended).await
        }
    };
    if let Err(error) = ended {
        if let Some(head) = RejectedHead::of(&error) {
            metrics.malformed.inc();
            config.on_rejected_head.call(peer, head);
        }
        tracing::debug!(%peer, %error, "connection ended early");
    }
}

/// The output of `first`; `None` if the connection is asked to finish before.
async fn unless_asked_to_finish<F: Future>(state: &ConnectionState, first: F) -> Option<F::Output> {
    let mut first = pin!(first);
    std::future::poll_fn(
        |context: &mut Context<'_>| match first.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if state.order() == Order::Continue => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        },
    )
    .await
}

/// Runs a connection to its end, and passes on the order to finish.
async fn until_asked_to_finish<C: Future>(
    mut connection: Pin<Box<C>>,
    state: &ConnectionState,
    finish: impl Fn(Pin<&mut C>),
) -> C::Output {
    let mut is_asked = false;
    std::future::poll_fn(|context: &mut Context<'_>| {
        // First: a connection that has read nothing yet closes when it is asked to finish, whatever waits in its socket.
        let polled = connection.as_mut().poll(context);
        if polled.is_ready() || is_asked || state.order() != Order::Finish {
            return polled;
        }
        is_asked = true;
        finish(connection.as_mut());
        connection.as_mut().poll(context)
    })
    .await
}

/// Polls an HTTP/2 connection after its requests that are ready to be answered, so that their responses leave in one write.
///
/// Each request is a task, and wakes the connection when it has a response. tokio runs a task that was woken next, before the other
/// requests: without this, every response is written by itself.
async fn after_ready_requests<C: Future>(state: &ConnectionState, connection: C) -> C::Output {
    let mut connection = pin!(connection);
    let mut has_yielded = false;
    std::future::poll_fn(|context: &mut Context<'_>| {
        has_yielded = !has_yielded && state.has_requests();
        if has_yielded {
            // A task that wakes itself goes to the end of the queue.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        connection.as_mut().poll(context)
    })
    .await
}
