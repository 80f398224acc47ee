//! The layer in front of a service of hyper's, with no framework in between.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket};
use tollgate::Dimension;
use tollgate_tower::TollgateLayer;
use tollgate_tower::layer::PeerAddr;
use tower::{Layer as _, ServiceExt as _};

use crate::served::{fields, hand, limiter, rule, send_over};

/// Serves what the layer lets through, and counts it.
async fn served(layer: TollgateLayer) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let handled = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&handled);
    let hello = tower::service_fn(move |_: Request<Incoming>| {
        count.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello")))) }
    });
    let limited = layer.layer(hello);
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            // Who accepts knows the peer, and has to say it.
            let service = (limited.clone()).map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(PeerAddr(peer));
                request
            });
            let service = TowerToHyperService::new(service);
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, handled)
}

/// One request by a caller with this address.
async fn ask(from: &str, address: SocketAddr) -> Response<Bytes> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    send_over(socket.connect(address).await.unwrap(), "GET", "/", &[]).await
}

#[tokio::test]
async fn a_caller_of_a_bare_hyper_server_is_limited_and_no_other() {
    let rule = rule("client", "1/m burst 3").per([Dimension::Client]);
    let (address, handled) = served(TollgateLayer::new(limiter(&hand(), [rule]))).await;
    for left in ["2", "1", "0"] {
        let passed = ask("127.0.0.1", address).await;
        assert_eq!(
            (passed.status().as_u16(), &passed.body()[..]),
            (200, &b"hello"[..])
        );
        assert_eq!(fields(passed.headers(), "x-ratelimit-remaining"), [left]);
    }
    for _ in 0..2 {
        let denied = ask("127.0.0.1", address).await;
        assert_eq!(denied.status(), 429);
        assert_eq!(fields(denied.headers(), "retry-after"), ["60"]);
        assert_eq!(
            fields(denied.headers(), "content-type"),
            ["application/problem+json"]
        );
    }
    assert_eq!(handled.load(Ordering::SeqCst), 3);
    assert_eq!(ask("127.0.0.2", address).await.status(), 200);
    assert_eq!(handled.load(Ordering::SeqCst), 4);
}
