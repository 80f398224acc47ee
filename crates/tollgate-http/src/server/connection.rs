//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::fast_path::ForHyper;
use super::http2_stream::{Http2Stream, ReadTurn};
use super::state::{ConnectionState, Order};
use super::tracked::{TrackedHandler, TrackedStream};
use super::{Handler, RejectedHead, ServerConfig, fast_path};

/// Maximum number of streams that were opened and reset at once and are still in progress here; beyond that the connection
/// is closed (CVE-2023-44487).
const MAX_RESET_STREAMS: usize = 50;

/// Maximum number of streams that end because the client breaks the protocol.
const MAX_BAD_STREAMS: usize = 256;

/// Maximum number of bytes of a response that wait in an HTTP/2 stream for the client to read.
const STREAM_BUFFER: usize = 64 * 1_024;

/// How often an HTTP/2 client has to answer a ping, and how long it may take.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Every HTTP/2 connection begins like this, and no HTTP/1 request does.
const PREFACE: &[u8] = b"PRI";

/// Serves a connection. How long that may take is up to [`Connections`](super::connections::Connections).
pub(super) async fn serve<H: Handler>(
    stream: TrackedStream,
    peer: SocketAddr,
    state: &Arc<ConnectionState>,
    config: &ServerConfig,
    handler: H,
) {
    let handler = TrackedHandler::new(handler, peer, Arc::clone(state));
    let Some(tls) = &config.tls else {
        let is_http2 = unless_finishing(state, begins_http2(stream.socket())).await;
        if let Some(Ok(is_http2)) = is_http2 {
            serve_http(stream, is_http2, state, config, handler).await;
        }
        return;
    };
    // Boxed, because TLS would make the tasks of all other connections larger.
    Box::pin(async {
        match TlsAcceptor::from(Arc::clone(tls)).accept(stream).await {
            Ok(stream) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                serve_http(stream, is_http2, state, config, handler).await;
            }
            Err(error) => {
                config.metrics.closed("handshake");
                tracing::debug!(%peer, %error, "TLS handshake failed");
            }
        }
    })
    .await;
}

/// Whether a client without TLS speaks HTTP/2, by its first bytes, which stay in the socket. The caller bounds the wait for them.
async fn begins_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut buffer = [0; PREFACE.len()];
    loop {
        let count = stream.peek(&mut buffer).await?;
        let first = buffer.get(..count).unwrap_or_default();
        if first == PREFACE || first.is_empty() || !PREFACE.starts_with(first) {
            return Ok(first == PREFACE);
        }
        // A part of it, and the socket stays readable: look again in a moment.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// hyper's connections are boxed: most connections stay on the fast path, and a small task is faster to poll.
async fn serve_http<T, H>(
    mut stream: T,
    is_http2: bool,
    state: &ConnectionState,
    config: &ServerConfig,
    handler: TrackedHandler<H>,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let peer = handler.peer;
    let ended = if is_http2 {
        state.set_http2();
        let service = service_fn(move |request| {
            // Before its task runs: until then the connection must not be taken for an idle one.
            let (handler, in_flight) = (handler.clone(), handler.begin_request());
            async move {
                let request = request.map(Some);
                Ok::<_, Infallible>(handler.handle(request, in_flight).await)
            }
        });
        let turn = ReadTurn::default();
        let stream = Http2Stream::new(stream, turn.clone(), config.metrics.clone());
        let connection = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(config.max_head_bytes).unwrap_or(u32::MAX))
            .max_concurrent_streams(config.max_streams)
            .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
            .max_local_error_reset_streams(MAX_BAD_STREAMS)
            .max_send_buf_size(STREAM_BUFFER)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        let finish = http2::Connection::graceful_shutdown;
        let ended = until_finished(Box::pin(connection), state, finish);
        after_ready_requests(state, &turn, ended).await
    } else {
        let for_hyper = match config.fast_path {
            true => fast_path::serve(&mut stream, &handler, state, config).await,
            false => Some(ForHyper::default()),
        };
        let Some((read, response)) = for_hyper else {
            return;
        };
        let response = std::cell::Cell::new(response);
        let service = service_fn(move |request| {
            let (response, handler) = (response.take(), handler.clone());
            async move {
                let request = request.map(Some);
                Ok::<_, Infallible>(match response {
                    Some(response) => response,
                    None => handler.handle(request, handler.begin_request()).await,
                })
            }
        });
        // hyper reads first what the fast path has read already.
        let (reader, writer) = tokio::io::split(stream);
        let stream = tokio::io::join(Cursor::new(read).chain(reader), writer);
        // hyper's own timeout for heads would set a timer for every request, and run while a connection is idle.
        let connection = http1::Builder::new()
            .max_buf_size(config.max_head_bytes.max(8_192))
            .max_header_size(config.max_head_bytes)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let finish = http1::UpgradeableConnection::graceful_shutdown;
        until_finished(Box::pin(connection), state, finish).await
    };
    if let Err(error) = ended {
        if let Some(head) = RejectedHead::of(&error) {
            config.metrics.closed("malformed");
            (config.on_rejected_head)(peer, head);
        }
        tracing::debug!(%peer, %error, "connection ended early");
    }
}

/// The output of `first`; `None` if the connection is ordered to finish before.
async fn unless_finishing<F: Future>(state: &ConnectionState, first: F) -> Option<F::Output> {
    let mut first = pin!(first);
    poll_fn(|context| match first.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if state.order() == Order::Continue => Poll::Pending,
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Runs a connection to its end, and passes on the order to finish.
async fn until_finished<C: Future>(
    mut connection: Pin<Box<C>>,
    state: &ConnectionState,
    finish: impl Fn(Pin<&mut C>),
) -> C::Output {
    let mut is_finishing = false;
    poll_fn(|context| {
        // First: a connection that has read nothing yet closes on the order to finish, whatever waits in its socket.
        let polled = connection.as_mut().poll(context);
        if polled.is_ready() || is_finishing || state.order() != Order::Finish {
            return polled;
        }
        is_finishing = true;
        finish(connection.as_mut());
        connection.as_mut().poll(context)
    })
    .await
}

/// Polls an HTTP/2 connection after its requests that are ready to be answered, so that their responses leave in one write.
///
/// Each request is a task, and wakes the connection when it has a response. tokio runs a task that was woken next, before the
/// other requests: without this, every response is written by itself.
async fn after_ready_requests<C: Future>(
    state: &ConnectionState,
    turn: &ReadTurn,
    connection: C,
) -> C::Output {
    let mut connection = pin!(connection);
    let mut has_yielded = false;
    poll_fn(|context| {
        has_yielded = !has_yielded && state.has_requests();
        if has_yielded {
            // A task that wakes itself goes to the end of the queue.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        turn.begin();
        connection.as_mut().poll(context)
    })
    .await
}
