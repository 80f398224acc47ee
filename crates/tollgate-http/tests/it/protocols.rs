//! Other protocols through the proxy: HTTP/2 on both sides, gRPC, WebSocket, TLS.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tollgate_http::proxy::{Protocol, Proxy, ProxyMetrics, ProxySettings, UpstreamConfig};
use tollgate_testing::upstream::{RawUpstream, read_head, reply};
use tollgate_testing::wait::eventually;
use tollgate_testing::{Response, TIMEOUT, Upstream, http2};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::proxy::{RunningProxy, upstream};

const TUNNELS: &str = "tollgate_upstream_tunnels";

/// Responds with version, host, path, number of cookies, and body.
fn describing() -> Upstream {
    Upstream::answering(|request| async move {
        let (parts, body) = request.into_parts();
        let host = match parts.uri.authority() {
            Some(authority) => authority.to_string(),
            None => parts.headers["host"].to_str().unwrap().to_owned(),
        };
        let cookies = parts.headers.get_all("cookie").iter().count();
        let body = body.collect().await.unwrap().to_bytes();
        let description = format!(
            "{:?} {host} {} {cookies} {body:?}",
            parts.version,
            parts.uri.path()
        );
        reply(200, description)
    })
}

#[tokio::test]
async fn http2_clients_reach_http1_and_http2_upstreams() {
    let server = describing();
    for (protocol, version) in [(Protocol::Http1, "HTTP/1.1"), (Protocol::Http2, "HTTP/2.0")] {
        let mut upstream = upstream(server.address);
        upstream.protocol = protocol;
        let proxy = RunningProxy::of(&[upstream]).await;
        let mut sender = http2::connect::<Full<Bytes>>(proxy.address).await;
        let before = server.connections();
        for _ in 0..20 {
            let request = Request::post("http://api.test/a?b=c")
                .header("cookie", "a=b")
                .header("cookie", "c=d")
                .body(Full::from("hello"))
                .unwrap();
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(
                (response.status(), response.version()),
                (200.try_into().unwrap(), Version::HTTP_2)
            );
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("{version} api.test /a 1 b\"hello\""));
        }
        assert_eq!(server.connections() - before, 1);
        // And an HTTP/1.1 client.
        let text = proxy.get("/a").await.text();
        assert_eq!(text, format!("{version} a /a 0 b\"\""));
    }
}

#[tokio::test]
async fn grpc_passes_with_its_trailers_and_streams() {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("shop", tonic_health::ServingStatus::Serving)
        .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut upstream = upstream(listener.local_addr().unwrap());
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    upstream.protocol = Protocol::Http2;
    let proxy = RunningProxy::of(&[upstream]).await;
    let channel =
        tonic::transport::Channel::from_shared(format!("http://{}", proxy.address)).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    let of = |service: &str| HealthCheckRequest {
        service: service.to_owned(),
    };
    let answer = client.check(of("shop")).await.unwrap().into_inner();
    assert_eq!(answer.status, 1);
    let unknown = client.check(of("nobody")).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    let mut stream = client.watch(of("shop")).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().status, 1);
    reporter
        .set_service_status("shop", tonic_health::ServingStatus::NotServing)
        .await;
    assert_eq!(stream.message().await.unwrap().unwrap().status, 2);
}

#[tokio::test]
async fn http2_upstream_that_restarts_is_connected_again() {
    let first = Upstream::named("first");
    let address = first.address;
    let mut upstream = upstream(address);
    upstream.protocol = Protocol::Http2;
    let proxy = RunningProxy::of(&[upstream]).await;
    assert_eq!(proxy.get("/").await.text(), "first");
    drop(first);
    eventually("the end of the server", async || {
        proxy.get("/").await.status == 502
    })
    .await;
    let _second = Upstream::at(address, |_| async { reply(200, "second") });
    eventually("the new server", async || {
        proxy.get("/").await.text() == "second"
    })
    .await;
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\nsec-websocket-key: eA==\r\nsec-websocket-version: 13\r\n\r\n";

/// Agrees to an upgrade, sends a word at once, and echoes.
fn echo() -> RawUpstream {
    RawUpstream::start(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        for line in [
            "connection: upgrade\r\n",
            "upgrade: websocket\r\n",
            "sec-websocket-key: eA==\r\n",
        ] {
            assert!(head.contains(line), "{line}: {head}");
        }
        let agreed = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\nhello";
        stream.write_all(agreed).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
}

/// Asks for an upgrade.
async fn upgraded(proxy: &RunningProxy) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(UPGRADE.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    let (response, _) = Response::parse(head.as_bytes(), false).unwrap();
    assert_eq!(response.status, 101);
    assert_eq!(response.headers("connection"), ["upgrade"]);
    assert_eq!(response.headers("sec-websocket-accept"), ["x"]);
    stream
}

#[tokio::test]
async fn websocket_passes_both_ways_until_both_sides_end() {
    let server = echo();
    let proxy = RunningProxy::before(server.address).await;
    let mut stream = upgraded(&proxy).await;
    let mut word = [0; 5];
    stream.read_exact(&mut word).await.unwrap();
    assert_eq!(&word, b"hello");
    let big = vec![7; 1 << 20];
    let (mut from, mut to) = stream.split();
    let mut echoed = vec![0; big.len()];
    let (sent, read) = tokio::join!(to.write_all(&big), from.read_exact(&mut echoed));
    sent.unwrap();
    read.unwrap();
    assert_eq!(echoed, big);
    assert_eq!(proxy.metric(TUNNELS), Some(1.0));
    to.shutdown().await.unwrap();
    assert_eq!(from.read(&mut word).await.unwrap(), 0);
    proxy.until_metric(TUNNELS, 0.0).await;
    let open = "tollgate_upstream_connections{upstream=\"/\"}";
    proxy.until_metric(open, 0.0).await;
}

#[tokio::test]
async fn websocket_ends_with_the_proxy() {
    let server = echo();
    let proxy = RunningProxy::before(server.address).await;
    let mut stream = upgraded(&proxy).await;
    let end = proxy.proxy.end(Duration::from_millis(200));
    tokio::time::timeout(TIMEOUT, end).await.expect("in time");
    let mut rest = Vec::new();
    let read = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
    let _ = read.expect("in time");
    assert_eq!(proxy.metric(TUNNELS), Some(0.0));
}

#[tokio::test]
async fn server_may_decline_a_websocket() {
    let server = Upstream::named("no");
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    for _ in 0..2 {
        client.send(UPGRADE).await;
        let response = client.response().await.unwrap();
        assert_eq!((response.status, response.text().as_str()), (200, "no"));
    }
    assert_eq!(server.connections(), 1);
}

/// A certificate, and how to serve with it.
struct Certified {
    config: Arc<rustls::ServerConfig>,
    pem: String,
}

fn certified(name: &str, alpn: &[&[u8]]) -> Certified {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Certified {
        config: Arc::new(config),
        pem: made.cert.pem(),
    }
}

/// Responds over TLS with the version of HTTP that was spoken.
fn over_tls(certified: &Certified) -> RawUpstream {
    let acceptor = TlsAcceptor::from(Arc::clone(&certified.config));
    RawUpstream::start(move |stream, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let answer = |request: Request<Incoming>| async move {
                Ok::<_, std::convert::Infallible>(reply(200, format!("{:?}", request.version())))
            };
            let service = hyper::service::service_fn(answer);
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let io = TokioIo::new(stream);
            if is_http2 {
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(io, service).await;
            } else {
                let builder = hyper::server::conn::http1::Builder::new();
                let _ = builder.serve_connection(io, service).await;
            }
        }
    })
}

fn url(server: &RawUpstream) -> String {
    format!("https://localhost:{}", server.address.port())
}

#[tokio::test]
async fn tls_upstreams_need_a_trusted_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let both: &[&[u8]] = &[b"h2", b"http/1.1"];
    let right = certified("localhost", both);
    std::fs::write(&ca, &right.pem).unwrap();
    let server = over_tls(&right);
    let mut upstream = UpstreamConfig::new("/", [url(&server)]);
    upstream.ca = Some(ca.clone());
    let proxy = RunningProxy::of(std::slice::from_ref(&upstream)).await;
    for _ in 0..2 {
        assert_eq!(proxy.get("/").await.text(), "HTTP/1.1");
    }
    // By ALPN.
    upstream.protocol = Protocol::Http2;
    let proxy = RunningProxy::of(std::slice::from_ref(&upstream)).await;
    assert_eq!(proxy.get("/").await.text(), "HTTP/2.0");
    let without_http2 = certified("localhost", &[b"http/1.1"]);
    std::fs::write(&ca, &without_http2.pem).unwrap();
    let server = over_tls(&without_http2);
    upstream.to = vec![url(&server)];
    let proxy = RunningProxy::of(std::slice::from_ref(&upstream)).await;
    for _ in 0..2 {
        assert_eq!(proxy.get("/").await.text(), "HTTP/1.1");
    }
    // Of an unknown authority; and of another name.
    let unknown = over_tls(&certified("localhost", both));
    let named = certified("other.test", both);
    let other = over_tls(&named);
    std::fs::write(&ca, format!("{}{}", right.pem, named.pem)).unwrap();
    for server in [&unknown, &other] {
        upstream.to = vec![url(server)];
        let proxy = RunningProxy::of(std::slice::from_ref(&upstream)).await;
        let response = proxy.get("/").await;
        assert_eq!(response.status, 502);
        let text = response.text();
        assert!(text.contains("no trusted connection"), "{text}");
    }
}

#[tokio::test]
async fn unreadable_authorities_are_reported_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, "nothing").unwrap();
    let mut upstream = UpstreamConfig::new("/", ["https://localhost"]);
    upstream.ca = Some(file);
    let metrics = ProxyMetrics::new(&mut prometheus_client::registry::Registry::default());
    let error = Proxy::new(&[upstream], ProxySettings::default(), &metrics).unwrap_err();
    assert!(
        error.to_string().contains("holds no certificate"),
        "{error}"
    );
}
