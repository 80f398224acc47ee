//! What stands behind the gateways: takes every payment at once, and notes when it came and whose it was.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::merchants::{Endpoint, MERCHANTS};

/// A request that some gateway let through.
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Whose it was.
    pub merchant: &'static str,
    /// What it asked for.
    pub endpoint: Endpoint,
    /// When it came, since the start. Later than it was admitted, by the way from the gateway.
    pub at_us: u64,
}

/// The processor; it serves for as long as its runtime lives.
#[derive(Debug)]
pub struct Processor {
    address: SocketAddr,
    admissions: Arc<Mutex<Vec<Admission>>>,
}

impl Processor {
    /// Starts it.
    ///
    /// # Panics
    /// If it cannot listen.
    pub async fn start(start: Instant) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let admissions = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&admissions);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(TokioIo::new(stream), start, Arc::clone(&notes)));
            }
        });
        Self {
            address,
            admissions,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Everything that came so far.
    #[must_use]
    pub fn admissions(&self) -> Vec<Admission> {
        self.admissions.lock().clone()
    }
}

async fn serve(
    connection: TokioIo<tokio::net::TcpStream>,
    start: Instant,
    notes: Arc<Mutex<Vec<Admission>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let admission = read(&request, start);
        notes.lock().push(admission);
        async {
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(
                b"{\"taken\":true}",
            ))))
        }
    });
    // The gateways close connections when they end.
    let _ = http1::Builder::new()
        .serve_connection(connection, service)
        .await;
}

fn read(request: &Request<Incoming>, start: Instant) -> Admission {
    let at_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let key = request
        .headers()
        .get("x-api-key")
        .map(hyper::header::HeaderValue::as_bytes);
    let merchant = MERCHANTS
        .iter()
        .find(|merchant| Some(merchant.key().as_bytes()) == key);
    Admission {
        merchant: merchant.expect("only merchants call").id,
        endpoint: Endpoint::read(request.method(), request.uri().path())
            .expect("only what there is is asked for"),
        at_us,
    }
}
