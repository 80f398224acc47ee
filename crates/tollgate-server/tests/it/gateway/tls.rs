//! TLS in front of the gateway, in both versions of HTTP, and certificates that change.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_server::listen::tls::{Certificate, TlsFiles};

use crate::gateway::{Front, PATIENCE, PLENTY, hear_one, heard, start_in};

/// Writes a certificate of its own and its key; gives what to believe.
fn certify(folder: &Path) -> CertificateDer<'static> {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    // The key first, so that for a moment the two do not belong together.
    std::fs::write(folder.join("key.pem"), signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("cert.pem"), cert.pem()).unwrap();
    cert.der().clone()
}

async fn start_tls() -> (Front, CertificateDer<'static>) {
    let folder = tempfile::tempdir().unwrap();
    let certificate = certify(folder.path());
    let path = |name| folder.path().join(name).display().to_string();
    let tls = format!(
        "tls: {{ cert: \"{}\", key: \"{}\" }}, head_timeout: 1s",
        path("cert.pem"),
        path("key.pem")
    );
    (start_in(folder, &tls, PLENTY).await, certificate)
}

async fn connect(
    front: &Front,
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
    let stream = TcpStream::connect(front.address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
}

const ASK: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn both_versions_of_http_are_spoken_over_tls() {
    let (front, certificate) = start_tls().await;
    for protocols in [&[][..], &["http/1.1"]] {
        let mut stream = connect(&front, &certificate, protocols).await.unwrap();
        for _ in 0..2 {
            stream.write_all(ASK).await.unwrap();
            assert_eq!(hear_one(&mut stream).await.unwrap().status, 200);
        }
    }
    let stream = connect(&front, &certificate, &["h2", "http/1.1"])
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut two, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::post("https://localhost/echo")
        .body(Full::<Bytes>::from("hello"))
        .unwrap();
    let response = two.send_request(request).await.unwrap();
    assert_eq!(response.headers()["x-request-id"].len(), 32);
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "hello"
    );
    // Who speaks no TLS gets no answer, and does not stay.
    let mut plain = TcpStream::connect(front.address).await.unwrap();
    plain.write_all(ASK).await.unwrap();
    let mut bytes = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut plain, &mut bytes).await;
    assert!(!bytes.starts_with(b"HTTP"));
    // Nor does who begins TLS and says no more.
    let mut silent = TcpStream::connect(front.address).await.unwrap();
    silent.write_all(b"\x16\x03\x01\x02\x00").await.unwrap();
    assert!(heard(&mut silent).await.is_empty());
    assert_eq!(front.behind.count(), 5);
    drop(two);
    front.end().await;
}

#[tokio::test]
async fn a_certificate_that_changes_is_used_and_connections_stay() {
    let (front, first) = start_tls().await;
    let mut old = connect(&front, &first, &["http/1.1"]).await.unwrap();
    old.write_all(ASK).await.unwrap();
    assert_eq!(hear_one(&mut old).await.unwrap().status, 200);
    // What cannot be used changes nothing.
    std::fs::write(front.folder.path().join("cert.pem"), "no certificate").unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(connect(&front, &first, &[]).await.is_ok());
    let second = certify(front.folder.path());
    let patience = Instant::now() + PATIENCE;
    while connect(&front, &second, &[]).await.is_err() {
        assert!(Instant::now() < patience, "the new certificate is used");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(connect(&front, &first, &[]).await.is_err());
    old.write_all(ASK).await.unwrap();
    assert_eq!(hear_one(&mut old).await.unwrap().status, 200);
    drop(old);
    front.end().await;
}

#[test]
fn what_cannot_be_used_as_a_certificate_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    certify(folder.path());
    certify(other.path());
    let (cert, key) = (
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    );
    let broken = folder.path().join("broken.pem");
    std::fs::write(
        &broken,
        "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n",
    )
    .unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let missing = folder.path().join("missing.pem");
    for (cert, key, expected) in [
        (&missing, &key, "missing.pem\" cannot be read: No such file"),
        (
            &cert,
            &missing,
            "missing.pem\" cannot be read: No such file",
        ),
        (&empty, &key, "empty.pem\" holds no certificate in PEM form"),
        (&key, &key, "key.pem\" holds no certificate in PEM form"),
        (&cert, &empty, "empty.pem\" holds no private key"),
        (&cert, &cert, "cert.pem\" holds no private key"),
        (
            &cert,
            &broken,
            "broken.pem\" holds a private key of a kind that is not known",
        ),
        (
            &cert,
            &other.path().join("key.pem"),
            "is not that of the certificate in",
        ),
    ] {
        let files = TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
        };
        let said = Certificate::read(files).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("c2VjcmV0"));
    }
}
