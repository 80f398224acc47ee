//! TLS at the gateway, with both versions of HTTP, and certificates that change.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::TokioExecutor;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_testing::gateway::PLENTY;
use tollgate_testing::wait::eventually;
use tollgate_testing::{Connection, Gateway, Program, Upstream, http2};

use crate::kit;

/// Writes a new self-signed certificate and its key, and returns the certificate.
fn write_certificate(program: &Program) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    // The key first, so that for a moment the two do not belong together.
    program.write("key.pem", &signing_key.serialize_pem());
    program.write("cert.pem", &cert.pem());
    cert.der().clone()
}

fn tls_gateway() -> (Gateway, CertificateDer<'static>) {
    let program = kit::program();
    let certificate = write_certificate(&program);
    let fields = "tls: { cert: cert.pem, key: key.pem }, head_timeout: 1s";
    let gateway = Gateway::in_folder(program, Upstream::start(), fields, PLENTY);
    (gateway, certificate)
}

/// Connects as a client that trusts this certificate and offers these protocols.
async fn connect(
    gateway: &Gateway,
    certificate: &CertificateDer<'static>,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|protocol| protocol.as_bytes().to_vec())
        .collect();
    let stream = TcpStream::connect(gateway.address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn both_versions_of_http_work_over_tls() {
    let (gateway, certificate) = tls_gateway();
    for protocols in [&[][..], &["http/1.1"]] {
        let stream = connect(&gateway, &certificate, protocols).await.unwrap();
        let mut client = Connection::over(stream);
        for _ in 0..2 {
            client.send(GET).await;
            assert_eq!(client.response().await.unwrap().status, 200);
        }
    }
    let stream = connect(&gateway, &certificate, &["h2", "http/1.1"])
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let settings = Builder::new(TokioExecutor::new());
    let (mut client, _): (SendRequest<Full<Bytes>>, _) =
        http2::handshake(stream, &settings).await.unwrap();
    let request = Request::post("https://localhost/echo").body(Full::from("hello"));
    let response = client.send_request(request.unwrap()).await.unwrap();
    assert_eq!(response.headers()["x-request-id"].len(), 32);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "hello");
    // A client without TLS gets no HTTP response, and is disconnected.
    let mut plain = Connection::open(gateway.address).await;
    plain.send(GET).await;
    assert!(!plain.bytes_to_end().await.starts_with(b"HTTP"));
    // So is a client that begins TLS and sends no more.
    let mut silent = Connection::open(gateway.address).await;
    silent.send(b"\x16\x03\x01\x02\x00").await;
    assert!(silent.bytes_to_end().await.is_empty());
    assert_eq!(gateway.upstream.hits(), 5);
    drop(client);
    gateway.stop();
}

#[tokio::test]
async fn a_new_certificate_is_used_and_connections_stay_open() {
    let (gateway, first) = tls_gateway();
    let stream = connect(&gateway, &first, &["http/1.1"]).await.unwrap();
    let mut old = Connection::over(stream);
    old.send(GET).await;
    assert_eq!(old.response().await.unwrap().status, 200);
    // A file that cannot be used changes nothing.
    gateway.program.write("cert.pem", "no certificate");
    gateway.wait_for_log("failed to reload the certificate");
    assert!(connect(&gateway, &first, &[]).await.is_ok());
    let second = write_certificate(&gateway.program);
    eventually("the new certificate", async || {
        connect(&gateway, &second, &[]).await.is_ok()
    })
    .await;
    assert!(connect(&gateway, &first, &[]).await.is_err());
    old.send(GET).await;
    assert_eq!(old.response().await.unwrap().status, 200);
    drop(old);
    gateway.stop();
}

#[test]
fn unusable_certificates_and_keys_are_reported() {
    let broken = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n";
    for (cert, key, expected) in [
        (
            "missing.pem",
            "key.pem",
            "missing.pem\" cannot be read: No such file",
        ),
        (
            "cert.pem",
            "missing.pem",
            "missing.pem\" cannot be read: No such file",
        ),
        (
            "empty.pem",
            "key.pem",
            "empty.pem\" holds no certificate in PEM form",
        ),
        (
            "key.pem",
            "key.pem",
            "key.pem\" holds no certificate in PEM form",
        ),
        ("cert.pem", "empty.pem", "empty.pem\" holds no private key"),
        ("cert.pem", "cert.pem", "cert.pem\" holds no private key"),
        (
            "cert.pem",
            "broken.pem",
            "broken.pem\" holds a private key of a kind that is not known",
        ),
        ("cert.pem", "other.pem", "is not that of the certificate in"),
    ] {
        let program = kit::program();
        write_certificate(&program);
        program.write("other.pem", &program.read("key.pem"));
        write_certificate(&program);
        program.write("broken.pem", broken);
        program.write("empty.pem", "");
        let mut running = program.serve_without_waiting(&format!(
            "gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://unused\" }}], tls: {{ cert: {cert}, key: {key} }} }}\n{PLENTY}\n"
        ));
        running.wait_for_log(expected);
        assert_eq!(running.wait_for_exit().code(), Some(2), "{cert} {key}");
        assert!(!running.log().contains("c2VjcmV0"), "{}", running.log());
    }
}
