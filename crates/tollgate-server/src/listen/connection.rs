//! One connection, from its first byte to its last.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use super::by_hyper::ByHyper;
use super::frame_budget::FrameBudget;
use super::gathered::Gathered;
use super::metrics::ListenMetrics;
use super::plain::{self, Left};
use super::preface::{Version, version};
use super::refused::RefusedHead;
use super::replayed::Replayed;
use super::request::Requests;
use super::stream::WatchedStream;
use super::watch::{Order, Watch};
use super::{ListenConfig, Served};

/// So many streams that were opened and reset at once may wait for us; who sends more is cut off (CVE-2023-44487).
const MOST_RESET_STREAMS: usize = 50;

/// So many streams may be broken off for what the caller does wrong on them.
const MOST_BAD_STREAMS: usize = 256;

/// So many bytes of a response wait in a stream of HTTP/2 at most while the client takes its time.
const STREAM_BUFFER: usize = 64 * 1_024;

/// How often a caller of HTTP/2 is asked whether it is still there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Speaks with whoever is at the other end. How long that may take is not its business: see [`Crowd`](super::crowd::Crowd).
pub(super) async fn serve<S, B>(
    stream: WatchedStream,
    peer: SocketAddr,
    watch: &Arc<Watch>,
    config: &ListenConfig,
    metrics: &ListenMetrics,
    service: S,
) where
    S: Served<B>,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let requests = Requests::new(service, peer, Arc::clone(watch));
    let Some(tls) = &config.tls else {
        let version = unless_asked_to_finish(watch, version(stream.socket())).await;
        if let Some(Ok(version)) = version {
            speak(stream, version, watch, config, metrics, requests).await;
        }
        return;
    };
    // On its own: what it needs would make all others larger that have no TLS.
    Box::pin(async {
        match TlsAcceptor::from(Arc::clone(tls)).accept(stream).await {
            Ok(stream) => {
                let version = match stream.get_ref().1.alpn_protocol() {
                    Some(b"h2") => Version::Two,
                    _ => Version::One,
                };
                speak(stream, version, watch, config, metrics, requests).await;
            }
            Err(error) => {
                metrics.handshake.inc();
                tracing::debug!(%peer, %error, "a handshake of TLS failed");
            }
        }
    })
    .await;
}

/// What hyper needs is asked for when it is needed: most connections go without it, and a small task is at hand sooner.
async fn speak<T, S, B>(
    mut stream: T,
    version: Version,
    watch: &Watch,
    config: &ListenConfig,
    metrics: &ListenMetrics,
    mut requests: Requests<S>,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Served<B>,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let peer = requests.peer();
    let ended = match version {
        Version::One => {
            let left = plain::serve(&mut stream, &mut requests, watch, config, metrics).await;
            let Some(Left { read, answer }) = left else {
                return;
            };
            // hyper's own time for a head would set a timer for every request, and run while a connection is idle.
            let connection = http1::Builder::new()
                .max_buf_size(config.most_head_bytes.max(8_192))
                .max_header_size(config.most_head_bytes)
                .serve_connection(
                    TokioIo::new(Replayed::new(read, stream)),
                    ByHyper::new(requests, answer),
                )
                .with_upgrades();
            let finish = http1::UpgradeableConnection::graceful_shutdown;
            until_asked_to_finish(Box::pin(connection), watch, finish).await
        }
        Version::Two => {
            watch.speaks_two();
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_header_list_size(u32::try_from(config.most_head_bytes).unwrap_or(u32::MAX))
                .max_concurrent_streams(config.most_streams)
                .max_pending_accept_reset_streams(MOST_RESET_STREAMS)
                .max_local_error_reset_streams(MOST_BAD_STREAMS)
                .max_send_buf_size(STREAM_BUFFER)
                .keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_TIMEOUT)
                .serve_connection(
                    TokioIo::new(Gathered::new(FrameBudget::new(
                        stream,
                        metrics.control_frames.clone(),
                    ))),
                    ByHyper::new(requests, None),
                );
            let finish = http2::Connection::graceful_shutdown;
            let ended = until_asked_to_finish(Box::pin(connection), watch, finish);
            after_ready_requests(watch, ended).await
        }
    };
    if let Err(error) = ended {
        if let Some(head) = RefusedHead::of(&error) {
            metrics.malformed.inc();
            config.on_refused_head.is(peer, head);
        }
        tracing::debug!(%error, "a connection ended early");
    }
}

/// What comes of it; `None` if the connection is to end, and nothing has come of it.
async fn unless_asked_to_finish<F: Future>(watch: &Watch, first: F) -> Option<F::Output> {
    let mut first = pin!(first);
    std::future::poll_fn(
        |context: &mut Context<'_>| match first.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if watch.order() == Order::GoOn => Poll::Pending,
            Poll::Pending => Poll::Ready(None),
        },
    )
    .await
}

/// Runs it to its end, and passes on the order to come to one.
async fn until_asked_to_finish<C: Future>(
    mut connection: Pin<Box<C>>,
    watch: &Watch,
    finish: impl Fn(Pin<&mut C>),
) -> C::Output {
    let mut is_asked = false;
    std::future::poll_fn(|context: &mut Context<'_>| {
        // First: a connection that has read nothing yet closes when it is asked to finish, whatever waits in its socket.
        let polled = connection.as_mut().poll(context);
        if polled.is_ready() || is_asked || watch.order() != Order::Finish {
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
async fn after_ready_requests<C: Future>(watch: &Watch, connection: C) -> C::Output {
    let mut connection = pin!(connection);
    let mut has_yielded = false;
    std::future::poll_fn(|context: &mut Context<'_>| {
        has_yielded = !has_yielded && watch.has_requests();
        if has_yielded {
            // A task that wakes itself goes to the end of the queue.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        connection.as_mut().poll(context)
    })
    .await
}
