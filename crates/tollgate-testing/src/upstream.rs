//! Servers for a proxy to talk to. Each has a runtime of its own, so that it answers while a test blocks.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use crate::wait::eventually;

/// A response of an upstream.
pub type Reply = http::Response<UnsyncBoxBody<Bytes, io::Error>>;

/// A response in one piece.
pub fn reply(status: u16, body: impl Into<Bytes>) -> Reply {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {});
    let mut reply = http::Response::new(body.boxed_unsync());
    *reply.status_mut() = status.try_into().unwrap();
    reply
}

/// A response whose body is sent frame by frame, by the test.
#[must_use]
pub fn streamed() -> (mpsc::UnboundedSender<Frame<Bytes>>, Reply) {
    struct Frames(mpsc::UnboundedReceiver<Frame<Bytes>>);
    impl http_body::Body for Frames {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            self.0.poll_recv(context).map(|frame| frame.map(Ok))
        }
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    (sender, http::Response::new(Frames(receiver).boxed_unsync()))
}

/// A request that reached an upstream.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// When its head was complete.
    pub at: Instant,
    /// Its method.
    pub method: Method,
    /// Its target.
    pub uri: Uri,
    /// Its headers.
    pub headers: HeaderMap,
}

#[derive(Debug, Default)]
struct Records {
    requests: Mutex<Vec<Recorded>>,
    connections: AtomicUsize,
    in_flight: AtomicUsize,
}

/// A server that answers by a function, over HTTP/1.1 or HTTP/2 as the client likes, and records requests.
#[derive(Debug)]
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    records: Arc<Records>,
    // Ends the server when dropped.
    runtime: Option<Runtime>,
}

impl Upstream {
    /// Answers `hello`. `/echo` returns the request's body, `/wait/MS` takes that many milliseconds, and `/big/N` has a body of N
    /// bytes.
    #[must_use]
    pub fn start() -> Self {
        Self::answering(standard_reply)
    }

    /// Answers with its name.
    #[must_use]
    pub fn named(name: &'static str) -> Self {
        Self::answering(move |_| async move { reply(200, name) })
    }

    /// Answers by this function.
    pub fn answering<F, Fut>(answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Reply> + Send + 'static,
    {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), answer)
    }

    /// Answers by this function at this address.
    pub fn at<F, Fut>(address: SocketAddr, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Reply> + Send + 'static,
    {
        let (runtime, listener) = listen(address);
        let address = listener.local_addr().unwrap();
        let records = Arc::new(Records::default());
        runtime.spawn(accept(listener, Arc::clone(&records), answer));
        Self {
            address,
            records,
            runtime: Some(runtime),
        }
    }

    /// `http://` with its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that reached it, in their order.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.records.requests.lock().clone()
    }

    /// How many requests reached it.
    #[must_use]
    pub fn hits(&self) -> usize {
        self.records.requests.lock().len()
    }

    /// How many connections it accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.records.connections.load(SeqCst)
    }

    /// How many requests it is answering.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.records.in_flight.load(SeqCst)
    }

    /// Waits until this many requests have reached it.
    pub async fn until_hits(&self, count: usize) {
        eventually("requests at the upstream", async || self.hits() >= count).await;
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn listen(address: SocketAddr) -> (Runtime, TcpListener) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = std::net::TcpListener::bind(address).unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = {
        let _guard = runtime.enter();
        TcpListener::from_std(listener).unwrap()
    };
    (runtime, listener)
}

async fn accept<F, Fut>(listener: TcpListener, records: Arc<Records>, answer: F)
where
    F: Fn(Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Reply> + Send + 'static,
{
    while let Ok((stream, _)) = listener.accept().await {
        records.connections.fetch_add(1, SeqCst);
        let (records, answer) = (Arc::clone(&records), answer.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (records, answer) = (Arc::clone(&records), answer.clone());
            records.requests.lock().push(Recorded {
                at: Instant::now(),
                method: request.method().clone(),
                uri: request.uri().clone(),
                headers: request.headers().clone(),
            });
            async move {
                let _in_flight = InFlight::begin(&records);
                Ok::<_, Infallible>(answer(request).await)
            }
        });
        tokio::spawn(async move {
            let mut first = [0; 3];
            let _ = stream.peek(&mut first).await;
            let io = TokioIo::new(stream);
            // Errors are the client's.
            if &first == b"PRI" {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(io, service).await;
            } else {
                let mut builder = hyper::server::conn::http1::Builder::new();
                // More than the gateway accepts and adds.
                builder.max_headers(1_000);
                let connection = builder.serve_connection(io, service);
                let _ = connection.with_upgrades().await;
            }
        });
    }
}

struct InFlight<'a>(&'a Records);

impl<'a> InFlight<'a> {
    fn begin(records: &'a Records) -> Self {
        records.in_flight.fetch_add(1, SeqCst);
        Self(records)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, SeqCst);
    }
}

async fn standard_reply(request: Request<Incoming>) -> Reply {
    let path = request.uri().path().to_owned();
    match path.split('/').collect::<Vec<_>>()[..] {
        ["", "echo"] => match request.into_body().collect().await {
            Ok(body) => reply(200, body.to_bytes()),
            Err(_) => reply(502, ""),
        },
        ["", "wait", ms] => {
            tokio::time::sleep(Duration::from_millis(ms.parse().unwrap())).await;
            reply(200, "")
        }
        ["", "big", bytes] => reply(200, vec![b'x'; bytes.parse().unwrap()]),
        _ => reply(200, "hello"),
    }
}

/// A server that handles each connection by a function of its stream and its number, in bytes.
#[derive(Debug)]
pub struct RawUpstream {
    /// Where it listens.
    pub address: SocketAddr,
    // Ends the server when dropped.
    runtime: Option<Runtime>,
}

impl RawUpstream {
    /// Handles connections by this function.
    pub fn start<F, Fut>(serve: F) -> Self
    where
        F: Fn(TcpStream, usize) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (runtime, listener) = listen((Ipv4Addr::LOCALHOST, 0).into());
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            let mut nth = 0;
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, nth));
                nth += 1;
            }
        });
        Self {
            address,
            runtime: Some(runtime),
        }
    }
}

impl Drop for RawUpstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Reads the head of a request as it came; empty if the connection ended.
pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte).await {
            Ok(1) => head.push(byte[0]),
            _ => return String::new(),
        }
    }
    String::from_utf8_lossy(&head).into_owned()
}
