//! A proxy on a real socket, servers behind it that do as they are told, and a caller that sends bytes.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tollgate_server::config::Upstream;
use tollgate_server::listen::{self, ListenConfig};
use tollgate_server::proxy::{Proxy, ProxyMetrics, ProxySettings};

/// Long enough for a machine with much else to do.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

pub(crate) fn reply(status: u16, body: impl Into<Bytes>) -> Reply {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {});
    let mut reply = Response::new(body.boxed_unsync());
    *reply.status_mut() = status.try_into().unwrap();
    reply
}

/// A response whose body is sent as the test says.
pub(crate) fn streamed() -> (mpsc::UnboundedSender<Frame<Bytes>>, Reply) {
    struct Parts(mpsc::UnboundedReceiver<Frame<Bytes>>);
    impl http_body::Body for Parts {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            self.0.poll_recv(context).map(|part| part.map(Ok))
        }
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, Response::new(Parts(receiver).boxed_unsync()))
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, waited)
        .await
        .unwrap_or_else(|_| panic!("not so in time: {what}"));
}

/// A proxy that listens; it ends with the test.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    pub(crate) proxy: Proxy,
    registry: Registry,
    stop: CancellationToken,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Front {
    pub(crate) async fn of(upstreams: &[Upstream]) -> Self {
        Self::with(upstreams, ProxySettings::default()).await
    }

    pub(crate) async fn with(upstreams: &[Upstream], settings: ProxySettings) -> Self {
        let mut registry = Registry::default();
        let metrics = ProxyMetrics::new(&mut registry);
        let proxy = Proxy::new(upstreams, settings, &metrics).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let config = ListenConfig {
            drain: Duration::from_millis(100),
            ..ListenConfig::default()
        };
        tokio::spawn(listen::serve(listener, config, stop.clone(), proxy.clone()));
        Self {
            address,
            proxy,
            registry,
            stop,
        }
    }

    /// In front of one server, with the defaults.
    pub(crate) async fn before(server: SocketAddr) -> Self {
        Self::of(&[Upstream::new("/", [format!("http://{server}")])]).await
    }

    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// The value of a line in the metrics.
    pub(crate) fn metric(&self, line: &str) -> Option<f64> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let mut lines = text.lines();
        let value = lines.find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    pub(crate) async fn caller(&self) -> Caller {
        Caller {
            stream: TcpStream::connect(self.address).await.unwrap(),
            read: Vec::new(),
        }
    }

    /// A request on a connection of its own, and the whole of what comes back.
    pub(crate) async fn ask(&self, request: &str) -> String {
        let mut caller = self.caller().await;
        caller.send(request).await;
        caller.rest().await
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        self.ask(&get(path)).await
    }

    /// Several at a time.
    pub(crate) async fn get_all(&self, paths: &[&str]) -> Vec<String> {
        let mut asked = tokio::task::JoinSet::new();
        for path in paths {
            let (mut caller, request) = (self.caller().await, get(path));
            asked.spawn(async move {
                caller.send(request).await;
                caller.rest().await
            });
        }
        asked.join_all().await
    }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: api.test\r\nconnection: close\r\n\r\n")
}

/// The status of a response.
pub(crate) fn status(response: &str) -> u16 {
    let status = response.split(' ').nth(1);
    let status = status.unwrap_or_else(|| panic!("not a response: {response:?}"));
    status.parse().unwrap()
}

/// Somebody who speaks HTTP/1.1 by hand.
pub(crate) struct Caller {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Caller {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// What came up to and with this.
    pub(crate) async fn read_until(&mut self, end: &str) -> String {
        let reading = async {
            loop {
                let found = self
                    .read
                    .windows(end.len())
                    .position(|part| part == end.as_bytes());
                if let Some(at) = found {
                    let rest = self.read.split_off(at + end.len());
                    let read = std::mem::replace(&mut self.read, rest);
                    return String::from_utf8(read).unwrap();
                }
                let mut part = [0; 16_384];
                let count = self.stream.read(&mut part).await.unwrap();
                let so_far = String::from_utf8_lossy(&self.read).into_owned();
                assert!(count > 0, "ended before {end:?}: {so_far}");
                self.read.extend_from_slice(&part[..count]);
            }
        };
        tokio::time::timeout(LONG, reading).await.expect("in time")
    }

    /// Everything up to the end of the connection.
    pub(crate) async fn rest(mut self) -> String {
        let mut rest = std::mem::take(&mut self.read);
        let reading = self.stream.read_to_end(&mut rest);
        // A connection that is cut has said what it said.
        let _ = tokio::time::timeout(LONG, reading).await.expect("in time");
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// A server made of a function, which speaks HTTP/1.1 or HTTP/2 as it is spoken to.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    pub(crate) requests: Arc<AtomicUsize>,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Server {
    pub(crate) async fn answering<F, Fut>(answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Reply> + Send + 'static,
    {
        Self::at("127.0.0.1:0".parse().unwrap(), answer).await
    }

    pub(crate) async fn at<F, Fut>(address: SocketAddr, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Reply> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self {
            address,
            connections: Arc::default(),
            requests: Arc::default(),
            stop: CancellationToken::new(),
        };
        let (connections, requests) = (server.connections.clone(), server.requests.clone());
        let stop = server.stop.clone();
        tokio::spawn(server.stop.clone().run_until_cancelled_owned(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (answer, requests) = (answer.clone(), requests.clone());
                let service = service_fn(move |request| {
                    requests.fetch_add(1, Ordering::SeqCst);
                    let reply = answer(request);
                    async move { Ok::<_, Infallible>(reply.await) }
                });
                tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
                    let mut first = [0; 3];
                    let _ = stream.peek(&mut first).await;
                    let io = TokioIo::new(stream);
                    if &first == b"PRI" {
                        let builder =
                            hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = builder.serve_connection(io, service).await;
                    } else {
                        let builder = hyper::server::conn::http1::Builder::new();
                        let connection = builder.serve_connection(io, service);
                        let _ = connection.with_upgrades().await;
                    }
                }));
            }
        }));
        server
    }

    /// Answers with its name.
    pub(crate) async fn named(name: &'static str) -> Self {
        Self::answering(move |_| async move { reply(200, name) }).await
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A server that does with each connection what the function says, in bytes.
pub(crate) async fn by_hand<F, Fut>(serve: F) -> SocketAddr
where
    F: Fn(TcpStream, usize) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut nth = 0;
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, nth));
            nth += 1;
        }
    });
    address
}

/// Reads the head of a request; empty if the connection ended.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => head.push(byte[0]),
            _ => return String::new(),
        }
    }
    String::from_utf8(head).unwrap()
}

/// An address at which nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}
