//! The way to PostgreSQL: what is encrypted and verified, and that no password goes to whoever answers in its place.
//!
//! 0.0.0.0 leads to this machine on Linux, and is not among the addresses that count as this machine.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tollgate_server::database::Database;

use crate::database::block_on;
use crate::postgres_server::PostgresServer;
use crate::program::Program;
use crate::served::free_port;

const PASSWORD: &str = "s3cr3t-of-the-database";

/// What a client sends first if it wants TLS: a length of 8, and the code for it.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Asks for the password in clear.
const SEND_PASSWORD: [u8; 9] = [b'R', 0, 0, 0, 8, 0, 0, 0, 3];

fn certified(name: &str) -> CertifiedKey<KeyPair> {
    generate_simple_self_signed([name.to_owned()]).unwrap()
}

/// Answers in place of a PostgreSQL, asks for the password, and notes all that it reads, decrypted.
struct Impostor {
    port: u16,
    read: Arc<Mutex<Vec<u8>>>,
}

impl Impostor {
    /// With TLS by this certificate, or without any.
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
        let noted = Arc::clone(&read);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (tls, noted) = (tls.clone(), Arc::clone(&noted));
                std::thread::spawn(move || answer(stream, tls, &noted));
            }
        });
        Self { port, read }
    }

    fn url(&self, host: &str, settings: &str) -> String {
        format!("postgres://u:{PASSWORD}@{host}:{}/x{settings}", self.port)
    }

    fn has_the_password(&self) -> bool {
        let read = self.read.lock().unwrap();
        read.windows(PASSWORD.len())
            .any(|part| part == PASSWORD.as_bytes())
    }
}

fn answer(mut stream: TcpStream, tls: Option<Arc<ServerConfig>>, noted: &Mutex<Vec<u8>>) {
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut first = [0; 8];
    if stream.read_exact(&mut first).is_err() {
        return;
    }
    noted.lock().unwrap().extend(first);
    match tls {
        Some(tls) if first == SSL_REQUEST => {
            stream.write_all(b"S").unwrap();
            let connection = ServerConnection::new(tls).unwrap();
            listen_in(StreamOwned::new(connection, stream), noted);
        }
        _ => {
            if first == SSL_REQUEST {
                stream.write_all(b"N").unwrap();
            }
            listen_in(stream, noted);
        }
    }
}

fn listen_in(mut stream: impl Read + Write, noted: &Mutex<Vec<u8>>) {
    let mut some = [0; 4_096];
    while let Ok(count @ 1..) = stream.read(&mut some) {
        noted.lock().unwrap().extend(&some[..count]);
        if stream
            .write_all(&SEND_PASSWORD)
            .and_then(|()| stream.flush())
            .is_err()
        {
            return;
        }
    }
}

/// Why the database could not be opened.
fn refusal(url: &str) -> String {
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
    let error = refusal(&impostor.url("0.0.0.0", ""));
    assert!(
        error.contains("does not support TLS") && error.contains("sslmode=disable"),
        "{error}"
    );
    assert_eq!(*impostor.read.lock().unwrap(), SSL_REQUEST);
    refusal(&impostor.url("0.0.0.0", "?sslmode=require"));
    assert!(!impostor.has_the_password());
    // It would have noticed.
    refusal(&impostor.url("0.0.0.0", "?sslmode=disable"));
    assert!(impostor.has_the_password());
}

#[test]
fn a_password_is_not_sent_to_a_server_with_an_unknown_issuer() {
    let impostor = Impostor::start(Some(&certified("0.0.0.0")));
    let error = refusal(&impostor.url("0.0.0.0", ""));
    assert!(
        error.contains("sslrootcert=FILE") && error.contains("sslmode=require"),
        "{error}"
    );
    refusal(&impostor.url("0.0.0.0", "?sslmode=verify-ca"));
    assert!(!impostor.has_the_password());
    refusal(&impostor.url("0.0.0.0", "?sslmode=require"));
    assert!(impostor.has_the_password());
}

#[test]
fn a_password_is_not_sent_to_a_server_of_another_name() {
    let certified = certified("db.internal");
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certified.cert.pem()).unwrap();
    let impostor = Impostor::start(Some(&certified));
    let named =
        |mode: &str| impostor.url("0.0.0.0", &format!("?{mode}sslrootcert={}", ca.display()));
    let error = refusal(&named(""));
    assert!(
        error.contains("a name that the certificate is for"),
        "{error}"
    );
    assert!(!impostor.has_the_password());
    refusal(&named("sslmode=verify-ca&"));
    assert!(impostor.has_the_password());
}

#[test]
fn a_weak_pgsslmode_is_warned_of() {
    let program = Program::new();
    let config = "
service: { listen: \"127.0.0.1:0\" }
rules: [{ id: a, per: [], limit: 1/s }]
rules_from: file
audit: { enabled: false }
database: { url: \"postgres://u@192.0.2.1/x\" }
";
    std::fs::write(program.folder().join("tollgate.yaml"), config).unwrap();
    let checked = |mode: Option<&str>| {
        let mut command = program.bare(&["check-config", "--strict"]);
        match mode {
            Some(mode) => command.env("PGSSLMODE", mode),
            None => command.env_remove("PGSSLMODE"),
        };
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    assert_eq!(checked(None), (Some(0), String::new()));
    for (mode, says) in [
        ("disable", "the connection to the database is not encrypted"),
        ("require", "the certificate of the database is not verified"),
        ("verify_full", "PGSSLMODE=verify_full is unknown"),
    ] {
        let (code, said) = checked(Some(mode));
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(says) && said.contains("unset it"), "{said}");
    }
}

#[test]
fn postgresql_without_tls_is_used_locally_or_if_the_url_allows() {
    let port = free_port();
    let _server = PostgresServer::listening(port);
    opens(&format!("postgres://postgres@127.0.0.1:{port}/postgres"));
    opens(&format!("postgres://postgres@localhost:{port}/postgres"));
    let remote = format!("postgres://postgres@0.0.0.0:{port}/postgres");
    let error = refusal(&remote);
    assert!(error.contains("sslmode=disable"), "{error}");
    opens(&format!("{remote}?sslmode=disable"));
    opens(&format!("{remote}?sslmode=prefer"));
}

#[test]
fn a_self_signed_postgresql_is_used_if_its_certificate_is_named() {
    let certified = certified("0.0.0.0");
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certified.cert.pem()).unwrap();
    let port = free_port();
    let key = certified.signing_key.serialize_pem();
    let _server = PostgresServer::with_tls(port, &certified.cert.pem(), &key);
    let remote = format!("postgres://postgres@0.0.0.0:{port}/postgres");
    let error = refusal(&remote);
    assert!(error.contains("sslrootcert=FILE"), "{error}");
    opens(&format!("{remote}?sslrootcert={}", ca.display()));
    opens(&format!("{remote}?sslmode=require"));
    opens(&format!(
        "{remote}?sslmode=require&sslrootcert={}",
        ca.display()
    ));
}
