//! What the tests of the layer share: real servers, a plain client, and limiters whose clock stands still.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tollgate::store::{MemoryConfig, MemoryStore};
use tollgate::{Clock, Limiter, ManualClock, Rule};
use tollgate_tower::TollgateLayer;

/// When the clocks of the tests stand: 2023-11-14 22:13:20 UTC.
pub(crate) const NOW: u64 = 1_700_000_000;

pub(crate) fn hand() -> ManualClock {
    ManualClock::at(Duration::from_secs(NOW))
}

/// A limiter by this clock.
pub(crate) fn limiter(hand: &ManualClock, rules: impl IntoIterator<Item = Rule>) -> Limiter {
    let config = MemoryConfig::default().clock(Clock::from(hand));
    Limiter::new(MemoryStore::with_config(config))
        .with_rules(rules)
        .unwrap()
}

pub(crate) fn rule(id: &str, limit: &str) -> Rule {
    Rule::new(id, limit.parse().unwrap()).unwrap()
}

/// A layer that knows callers by the address that axum says.
pub(crate) fn layer(limiter: Limiter) -> TollgateLayer {
    TollgateLayer::new(limiter)
        .peer_from(|extensions| Some(extensions.get::<ConnectInfo<SocketAddr>>()?.0))
}

/// Ended when the test is.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn serve(app: Router) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let task = tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
    Server { address, task }
}

/// Fields in the order in which they were said.
pub(crate) fn fields(headers: &HeaderMap, name: &str) -> Vec<String> {
    let lines = headers.get_all(name).iter();
    lines
        .map(|line| line.to_str().unwrap().to_owned())
        .collect()
}

impl Server {
    pub(crate) async fn get(&self, path: &str) -> Response<Bytes> {
        self.send("GET", path, &[]).await
    }

    /// One request on a connection of its own.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        lines: &[(&str, &str)],
    ) -> Response<Bytes> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        send_over(stream, method, path, lines).await
    }
}

/// The only request on this connection.
pub(crate) async fn send_over(
    stream: TcpStream,
    method: &str,
    path: &str,
    lines: &[(&str, &str)],
) -> Response<Bytes> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("host", "localhost");
    for (name, value) in lines {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::default()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, body.collect().await.unwrap().to_bytes())
}
