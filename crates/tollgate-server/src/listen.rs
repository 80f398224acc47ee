//! Accepting connections and speaking HTTP on them: how many, for how long, with or without TLS, and an end that drops nobody.
//!
//! Every door of the program listens in this way. It knows nothing of what is served.

mod connection;
mod preface;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

/// What a connection may do.
#[derive(Clone, Debug)]
pub struct ListenConfig {
    /// The most connections at a time. More wait to be accepted.
    pub most_connections: usize,
    /// How long a caller may take to say the head of a request, and to finish the handshake of TLS.
    pub head_timeout: Duration,
    /// The most bytes of a request's head.
    pub most_head_bytes: usize,
    /// The most fields in it.
    pub most_fields: usize,
    /// How long requests that are under way may take to end once there is an end to it all.
    pub drain: Duration,
    /// How to speak TLS, if it is to be spoken.
    pub tls: Option<Arc<rustls::ServerConfig>>,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            most_connections: 10_000,
            head_timeout: Duration::from_secs(10),
            most_head_bytes: 32 * 1_024,
            most_fields: 100,
            drain: Duration::from_secs(30),
            tls: None,
        }
    }
}

/// What is wanted of a service that is served: a response to every request, and no error. A [`PeerAddr`](tollgate_tower::layer::PeerAddr)
/// is among a request's extensions.
pub trait Served<B>:
    Service<
        Request<Incoming>,
        Response = Response<B>,
        Error = std::convert::Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
}

impl<B, S> Served<B> for S where
    S: Service<
            Request<Incoming>,
            Response = Response<B>,
            Error = std::convert::Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static
{
}

/// Serves whoever connects until `stop` is cancelled; then accepts nobody any more, and returns when all that was under way has ended, or
/// when its time is over.
pub async fn serve<S, B>(
    listener: TcpListener,
    config: ListenConfig,
    stop: CancellationToken,
    service: S,
) where
    S: Served<B>,
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let config = Arc::new(config);
    let connections = TaskTracker::new();
    let room = Arc::new(Semaphore::new(config.most_connections));
    while let Some((stream, peer)) = next(&listener, &stop).await {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            break;
        };
        let (config, stop, service) = (Arc::clone(&config), stop.clone(), service.clone());
        connections.spawn(async move {
            connection::serve(stream, peer, &config, stop, service).await;
            drop(place);
        });
    }
    // From here on the system refuses connections; or whoever else holds the socket accepts them.
    drop(listener);
    connections.close();
    if tokio::time::timeout(config.drain, connections.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            connections = connections.len(),
            "connections are cut: their requests took longer than there is time at the end"
        );
    }
}

/// The next connection; `None` at the end.
async fn next(listener: &TcpListener, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(accepted) => return Some(accepted),
            // The caller's own fault, or gone already.
            Err(error) if is_of_one_connection(&error) => {}
            // No file descriptors left, say: others may end meanwhile.
            Err(error) => {
                tracing::error!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}
