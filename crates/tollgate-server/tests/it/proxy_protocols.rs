//! Through the proxy in other tongues: HTTP/2 in front and behind, gRPC, WebSocket, TLS.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tollgate_server::config::{Protocol, Upstream};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::proxy_setting::{Front, LONG, Server, by_hand, read_head, reply, status, until};

type Sender = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(front: &Front) -> Sender {
    let stream = TcpStream::connect(front.address).await.unwrap();
    let handshake =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (sender, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    sender
}

/// Answers with version, host and cookies, and the body.
async fn tells() -> Server {
    Server::answering(|request| async move {
        let (parts, body) = request.into_parts();
        let host = match parts.uri.authority() {
            Some(authority) => authority.to_string(),
            None => parts.headers["host"].to_str().unwrap().to_owned(),
        };
        let cookies = parts.headers.get_all("cookie").iter().count();
        let body = body.collect().await.unwrap().to_bytes();
        let told = format!(
            "{:?} {host} {} {cookies} {body:?}",
            parts.version,
            parts.uri.path()
        );
        reply(200, told)
    })
    .await
}

#[tokio::test]
async fn http2_in_front_is_http1_behind_or_http2_if_it_is_configured() {
    let server = tells().await;
    for (protocol, told) in [
        (Protocol::Http1, "HTTP/1.1 api.test /a 1 b\"hello\""),
        (Protocol::Http2, "HTTP/2.0 api.test /a 1 b\"hello\""),
    ] {
        let mut upstream = Upstream::new("/", [format!("http://{}", server.address)]);
        upstream.protocol = protocol;
        let front = Front::of(&[upstream]).await;
        let mut sender = http2(&front).await;
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
            assert_eq!(body, told);
        }
        assert_eq!(server.connections() - before, 1);
        // And HTTP/1.1 in front.
        let response = front.get("/a").await;
        assert!(response.contains("api.test /a 0 b\"\""), "{response}");
    }
}

#[tokio::test]
async fn grpc_passes_with_its_trailers_and_its_streams() {
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter
        .set_service_status("shop", tonic_health::ServingStatus::Serving)
        .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut upstream = Upstream::new("/", [format!("http://{address}")]);
    upstream.protocol = Protocol::Http2;
    let front = Front::of(&[upstream]).await;
    let channel =
        tonic::transport::Channel::from_shared(format!("http://{}", front.address)).unwrap();
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
async fn a_grpc_caller_hears_of_failures_in_its_own_words() {
    let mut upstream = Upstream::new(
        "/",
        [format!("http://{}", crate::proxy_setting::nobody().await)],
    );
    upstream.protocol = Protocol::Http2;
    let front = Front::of(&[upstream]).await;
    let channel =
        tonic::transport::Channel::from_shared(format!("http://{}", front.address)).unwrap();
    let mut client = HealthClient::new(channel.connect().await.unwrap());
    let error = client
        .check(HealthCheckRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert!(error.message().contains("could not be reached"), "{error}");
}

#[tokio::test]
async fn a_server_of_http2_that_starts_anew_is_connected_to_anew() {
    let first = Server::named("first").await;
    let address = first.address;
    let mut upstream = Upstream::new("/", [format!("http://{address}")]);
    upstream.protocol = Protocol::Http2;
    let front = Front::of(&[upstream]).await;
    assert!(front.get("/").await.ends_with("first"));
    drop(first);
    until("nobody is there", async || {
        status(&front.get("/").await) == 502
    })
    .await;
    let _second = Server::at(address, |_| async { reply(200, "second") }).await;
    until("it is there again", async || {
        front.get("/").await.ends_with("second")
    })
    .await;
}

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\nsec-websocket-key: eA==\r\nsec-websocket-version: 13\r\n\r\n";

/// Agrees to an upgrade, says a word at once, and echoes.
async fn echoes() -> std::net::SocketAddr {
    by_hand(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        assert!(head.contains("connection: upgrade\r\n") && head.contains("upgrade: websocket\r\n"), "{head}");
        assert!(head.contains("sec-websocket-key: eA==\r\n"), "{head}");
        let agreed = b"HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: x\r\n\r\nhello";
        stream.write_all(agreed).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await
}

#[tokio::test]
async fn a_websocket_passes_both_ways_until_both_have_ended() {
    let front = Front::before(echoes().await).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(UPGRADE.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    assert_eq!(status(&head), 101);
    assert!(
        head.contains("connection: upgrade\r\n") && head.contains("sec-websocket-accept: x\r\n"),
        "{head}"
    );
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
    let tunnels = "tollgate_upstream_tunnels";
    assert_eq!(front.metric(tunnels), Some(1.0));
    to.shutdown().await.unwrap();
    assert_eq!(from.read(&mut word).await.unwrap(), 0);
    until("it is over", async || front.metric(tunnels) == Some(0.0)).await;
    let open = "tollgate_upstream_connections{upstream=\"/\"}";
    until("nothing is open", async || front.metric(open) == Some(0.0)).await;
}

#[tokio::test]
async fn a_websocket_ends_when_the_program_does() {
    let front = Front::before(echoes().await).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.write_all(UPGRADE.as_bytes()).await.unwrap();
    assert_eq!(status(&read_head(&mut stream).await), 101);
    let end = front.proxy.end(Duration::from_millis(200));
    tokio::time::timeout(LONG, end).await.expect("in time");
    let mut rest = Vec::new();
    let read = tokio::time::timeout(LONG, stream.read_to_end(&mut rest)).await;
    let _ = read.expect("in time");
    assert_eq!(front.metric("tollgate_upstream_tunnels"), Some(0.0));
}

#[tokio::test]
async fn a_server_that_declines_a_websocket_answers_as_ever() {
    let server = Server::named("no").await;
    let front = Front::before(server.address).await;
    let mut caller = front.caller().await;
    for _ in 0..2 {
        caller.send(UPGRADE).await;
        let response = caller.read_until("no").await;
        assert_eq!(status(&response), 200);
    }
    assert_eq!(server.connections(), 1);
}

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

/// Answers over TLS with the version that was spoken. Where it listens.
async fn over_tls(certified: &Certified) -> u16 {
    let acceptor = TlsAcceptor::from(Arc::clone(&certified.config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = hyper::service::service_fn(
                    |request: Request<hyper::body::Incoming>| async move {
                        Ok::<_, std::convert::Infallible>(reply(
                            200,
                            format!("{:?}", request.version()),
                        ))
                    },
                );
                let is_two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let io = TokioIo::new(stream);
                if is_two {
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(io, service).await;
                } else {
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.serve_connection(io, service).await;
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn tls_behind_is_spoken_with_whom_the_certificates_vouch_for_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    let both: &[&[u8]] = &[b"h2", b"http/1.1"];
    let right = certified("localhost", both);
    std::fs::write(&ca, &right.pem).unwrap();
    let port = over_tls(&right).await;
    let mut upstream = Upstream::new("/", [format!("https://localhost:{port}")]);
    upstream.ca = Some(ca.clone());
    let front = Front::of(std::slice::from_ref(&upstream)).await;
    for _ in 0..2 {
        assert!(front.get("/").await.ends_with("HTTP/1.1"));
    }
    // By ALPN.
    upstream.protocol = Protocol::Http2;
    let front = Front::of(std::slice::from_ref(&upstream)).await;
    assert!(front.get("/").await.ends_with("HTTP/2.0"));
    let only_one = certified("localhost", &[b"http/1.1"]);
    std::fs::write(&ca, &only_one.pem).unwrap();
    upstream.to = vec![format!("https://localhost:{}", over_tls(&only_one).await)];
    let front = Front::of(std::slice::from_ref(&upstream)).await;
    for _ in 0..2 {
        assert!(front.get("/").await.ends_with("HTTP/1.1"));
    }
    // Nobody vouches for this one; and this one has another name.
    let unknown = over_tls(&certified("localhost", both)).await;
    let named = certified("other.test", both);
    let other = over_tls(&named).await;
    std::fs::write(&ca, format!("{}{}", right.pem, named.pem)).unwrap();
    for port in [unknown, other] {
        upstream.to = vec![format!("https://localhost:{port}")];
        let front = Front::of(std::slice::from_ref(&upstream)).await;
        let response = front.get("/").await;
        assert_eq!(status(&response), 502);
        assert!(response.contains("no trusted connection"), "{response}");
    }
}

#[tokio::test]
async fn certificates_that_cannot_be_read_are_said_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, "nothing").unwrap();
    let mut upstream = Upstream::new("/", ["https://localhost"]);
    upstream.ca = Some(file);
    let mut registry = prometheus_client::registry::Registry::default();
    let metrics = tollgate_server::proxy::ProxyMetrics::new(&mut registry);
    let settings = tollgate_server::proxy::ProxySettings::default();
    let error = tollgate_server::proxy::Proxy::new(&[upstream], settings, &metrics).unwrap_err();
    assert!(
        error.to_string().contains("holds no certificate"),
        "{error}"
    );
}
