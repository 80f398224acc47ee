//! Connections to PostgreSQL: what is encrypted and verified, and that no password is sent to another server in its place.
//!
//! 0.0.0.0 leads to this machine on Linux, and is not among the addresses that count as this machine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tollgate_server::database::Database;
use tollgate_testing::ports::free_port;
use tollgate_testing::program::stderr;
use tollgate_testing::servers::PostgresServer;

use crate::kit;
use crate::kit::database::block_on;

const PASSWORD: &str = "s3cr3t-of-the-database";

/// The first bytes of a client that wants TLS: a length of 8, and a code.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Requests the password in clear text.
const SEND_PASSWORD: [u8; 9] = [b'R', 0, 0, 0, 8, 0, 0, 0, 3];

fn certificate(name: &str) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed([name.to_owned()]).unwrap()
}

/// A server that poses as PostgreSQL, requests the password, and records everything it reads, decrypted.
struct Impostor {
    port: u16,
    read: Arc<Mutex<Vec<u8>>>,
}

impl Impostor {
    /// With TLS by this certificate, or without TLS.
    fn start(certified: Option<&CertifiedKey<KeyPair>>) -> Self {
        let tls = certified.map(|certified| {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certified.cert.der().clone()], PrivateKeyDer::from(key));
            Arc::new(config.unwrap())
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let read = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&read);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (tls, recorded) = (tls.clone(), Arc::clone(&recorded));
                std::thread::spawn(move || answer(stream, tls, &recorded));
            }
        });
        Self { port, read }
    }

    fn url(&self, host: &str, settings: &str) -> String {
        format!("postgres://u:{PASSWORD}@{host}:{}/x{settings}", self.port)
    }

    fn has_the_password(&self) -> bool {
        let read = self.read.lock();
        read.windows(PASSWORD.len())
            .any(|part| part == PASSWORD.as_bytes())
    }
}

fn answer(mut stream: TcpStream, tls: Option<Arc<ServerConfig>>, recorded: &Mutex<Vec<u8>>) {
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut first = [0; 8];
    if stream.read_exact(&mut first).is_err() {
        return;
    }
    recorded.lock().extend(first);
    match tls {
        Some(tls) if first == SSL_REQUEST => {
            stream.write_all(b"S").unwrap();
            let connection = ServerConnection::new(tls).unwrap();
            record(StreamOwned::new(connection, stream), recorded);
        }
        _ => {
            if first == SSL_REQUEST {
                stream.write_all(b"N").unwrap();
            }
            record(stream, recorded);
        }
    }
}

fn record(mut stream: impl Read + Write, recorded: &Mutex<Vec<u8>>) {
    let mut some = [0; 4_096];
    while let Ok(count @ 1..) = stream.read(&mut some) {
        recorded.lock().extend(&some[..count]);
        if stream
            .write_all(&SEND_PASSWORD)
            .and_then(|()| stream.flush())
            .is_err()
        {
            return;
        }
    }
}

/// The error of a database that cannot be opened.
fn open_error(url: &str) -> String {
    let error = block_on(Database::open(url)).expect_err(url).to_string();
    assert!(!error.contains(PASSWORD), "{error}");
    error
}

fn opens(url: &str) {
    let opened = block_on(Database::open(url));
    opened.unwrap_or_else(|error| panic!("{url}: {error}"));
}

#[test]
fn a_password_is_not_sent_to_a_server_without_tls() {
    let impostor = Impostor::start(None);
    let error = open_error(&impostor.url("0.0.0.0", ""));
    assert!(
        error.contains("does not support TLS") && error.contains("sslmode=disable"),
        "{error}"
    );
    assert_eq!(*impostor.read.lock(), SSL_REQUEST);
    open_error(&impostor.url("0.0.0.0", "?sslmode=require"));
    assert!(!impostor.has_the_password());
    // It records a password that is sent.
    open_error(&impostor.url("0.0.0.0", "?sslmode=disable"));
    assert!(impostor.has_the_password());
}

#[test]
fn a_password_is_not_sent_to_a_server_with_an_unknown_issuer() {
    let impostor = Impostor::start(Some(&certificate("0.0.0.0")));
    let error = open_error(&impostor.url("0.0.0.0", ""));
    assert!(
        error.contains("sslrootcert=FILE") && error.contains("sslmode=require"),
        "{error}"
    );
    open_error(&impostor.url("0.0.0.0", "?sslmode=verify-ca"));
    assert!(!impostor.has_the_password());
    open_error(&impostor.url("0.0.0.0", "?sslmode=require"));
    assert!(impostor.has_the_password());
}

#[test]
fn a_password_is_not_sent_to_a_server_of_another_name() {
    let certified = certificate("db.internal");
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certified.cert.pem()).unwrap();
    let impostor = Impostor::start(Some(&certified));
    let named =
        |mode: &str| impostor.url("0.0.0.0", &format!("?{mode}sslrootcert={}", ca.display()));
    let error = open_error(&named(""));
    assert!(
        error.contains("a name that the certificate is for"),
        "{error}"
    );
    assert!(!impostor.has_the_password());
    open_error(&named("sslmode=verify-ca&"));
    assert!(impostor.has_the_password());
}

#[test]
fn a_weak_pgsslmode_is_warned_of() {
    let program = kit::program();
    let config = "
service: { listen: \"127.0.0.1:0\" }
rules: [{ id: a, per: [], limit: 1/s }]
rules_from: file
audit: { enabled: false }
database: { url: \"postgres://u@192.0.2.1/x\" }
";
    program.write("tollgate.yaml", config);
    let checked = |mode: Option<&str>| {
        let mut command = program.command(&["check-config", "--strict"]);
        match mode {
            Some(mode) => command.env("PGSSLMODE", mode),
            None => command.env_remove("PGSSLMODE"),
        };
        let output = command.output().unwrap();
        (output.status.code(), stderr(&output))
    };
    assert_eq!(checked(None), (Some(0), String::new()));
    for (mode, expected) in [
        ("disable", "the connection to the database is not encrypted"),
        ("require", "the certificate of the database is not verified"),
        ("verify_full", "PGSSLMODE=verify_full is unknown"),
    ] {
        let (code, error) = checked(Some(mode));
        assert_eq!(code, Some(2), "{error}");
        assert!(
            error.contains(expected) && error.contains("unset it"),
            "{error}"
        );
    }
}

#[test]
fn postgresql_without_tls_is_used_locally_or_if_the_url_allows() {
    let port = free_port();
    let _server = PostgresServer::listening(port);
    opens(&format!("postgres://postgres@127.0.0.1:{port}/postgres"));
    opens(&format!("postgres://postgres@localhost:{port}/postgres"));
    let remote = format!("postgres://postgres@0.0.0.0:{port}/postgres");
    let error = open_error(&remote);
    assert!(error.contains("sslmode=disable"), "{error}");
    opens(&format!("{remote}?sslmode=disable"));
    opens(&format!("{remote}?sslmode=prefer"));
}

#[test]
fn a_self_signed_postgresql_is_used_if_its_certificate_is_named() {
    let certified = certificate("0.0.0.0");
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certified.cert.pem()).unwrap();
    let port = free_port();
    let key = certified.signing_key.serialize_pem();
    let _server = PostgresServer::with_tls(port, &certified.cert.pem(), &key);
    let remote = format!("postgres://postgres@0.0.0.0:{port}/postgres");
    let error = open_error(&remote);
    assert!(error.contains("sslrootcert=FILE"), "{error}");
    opens(&format!("{remote}?sslrootcert={}", ca.display()));
    opens(&format!("{remote}?sslmode=require"));
    opens(&format!(
        "{remote}?sslmode=require&sslrootcert={}",
        ca.display()
    ));
}
