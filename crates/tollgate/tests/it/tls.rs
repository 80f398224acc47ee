//! Servers spoken to over TLS; and those that are not whom they should be, which are refused with the reason.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollgate::Bucket;
use tollgate::store::contract::{Charge, StoreOperations as _};
use tollgate::store::{RedisConfig, RedisError, RedisStore, RedisTls};

use crate::certificates::Authority;
use crate::server::{Clustered, Guarded, Speech, TcpServer};
use crate::support::{limit, run};

fn authority() -> (Arc<Authority>, Speech) {
    let authority = Arc::new(Authority::new("ours"));
    (Arc::clone(&authority), Speech::Tls(authority))
}

fn open(url: &str, tls: RedisTls) -> Result<RedisStore, RedisError> {
    let config = RedisConfig::default()
        .deadline(Duration::from_secs(20))
        .connect_timeout(Duration::from_secs(10))
        .tls(tls);
    RedisStore::open(url, config)
}

/// Takes one of one; says whether it was admitted.
fn take(store: &RedisStore) -> Result<bool, RedisError> {
    let charge = Charge {
        bucket: Bucket::of_key(b"key"),
        limit: &limit("1/h burst 1"),
        cost: 1,
        shadow: false,
    };
    run(store.take(&[charge])).map(|taken| taken.admitted)
}

fn admits_one(url: &str, tls: RedisTls) {
    let store = open(url, tls).unwrap();
    let admitted: Vec<bool> = (0..3).map(|_| take(&store).unwrap()).collect();
    assert_eq!(admitted, [true, false, false]);
}

/// Why nothing can be taken there.
fn refusal(url: &str, tls: RedisTls) -> String {
    take(&open(url, tls).unwrap()).unwrap_err().to_string()
}

#[test]
fn a_certificate_and_a_login_are_shown() {
    let (authority, speech) = authority();
    let server = TcpServer::start_speaking(&speech, "", &[]);
    let tell = |words: &str| drop(server.ask::<redis::Value>(words));
    tell("ACL SETUSER clerk on >secret ~tollgate:* +@all");
    tell("CONFIG SET requirepass another tls-auth-clients yes");
    let known = authority
        .believed()
        .identity(authority.vouch_for("a caller"));
    let as_clerk = format!("rediss://clerk:secret@{}", server.place());
    admits_one(&as_clerk, known.clone());
    let stranger = format!("rediss://clerk:guess@{}", server.place());
    let said = refusal(&stranger, known);
    assert!(said.contains("WRONGPASS"), "{said}");
    let said = refusal(&as_clerk, authority.believed());
    assert!(said.contains("CertificateRequired"), "{said}");
    let stranger = authority
        .believed()
        .identity(Authority::new("another").vouch_for("a caller"));
    let said = refusal(&as_clerk, stranger);
    assert!(said.contains("UnknownCA"), "{said}");
}

#[test]
fn a_server_nobody_vouches_for_is_refused() {
    let (_, speech) = authority();
    let server = TcpServer::start_speaking(&speech, "", &[]);
    let said = refusal(&server.url(), Authority::new("another").believed());
    assert!(said.contains("vouches"), "{said}");
    // Nor does the system.
    let said = refusal(&server.url(), RedisTls::default());
    assert!(said.contains("vouches"), "{said}");
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let (authority, speech) = authority();
    let server = TcpServer::start_speaking(&speech, "", &[]);
    server.show(&authority, &authority.vouch_for("elsewhere.example"));
    let said = refusal(&server.url(), authority.believed());
    assert!(said.contains("not valid for name"), "{said}");
}

#[test]
fn an_expired_certificate_is_refused() {
    let (authority, speech) = authority();
    let server = TcpServer::start_speaking(&speech, "", &[]);
    server.show(&authority, &authority.vouched_for("127.0.0.1"));
    let said = refusal(&server.url(), authority.believed());
    assert!(said.contains("expired"), "{said}");
}

#[test]
fn plain_words_to_one_who_expects_tls_are_named() {
    let (_, speech) = authority();
    let server = TcpServer::start_speaking(&speech, "", &[]);
    let said = refusal(&format!("redis://{}", server.place()), RedisTls::default());
    assert!(said.contains("rediss://"), "{said}");
}

#[test]
fn tls_to_one_who_does_not_speak_it_is_named_in_time() {
    let server = TcpServer::start_speaking(&Speech::Plain, "", &[]);
    let config = RedisConfig::default()
        .deadline(Duration::from_secs(60))
        .connect_timeout(Duration::from_millis(300));
    let store = RedisStore::open(&format!("rediss://{}", server.place()), config).unwrap();
    let began = Instant::now();
    let said = take(&store).unwrap_err().to_string();
    assert!(said.contains("does not speak TLS"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn sentinels_and_whom_they_name_speak_tls() {
    let (authority, speech) = authority();
    let mut guarded = Guarded::start_speaking(&speech);
    admits_one(&guarded.url(), authority.believed());
    let said = refusal(&guarded.url(), Authority::new("another").believed());
    assert!(said.contains("vouches"), "{said}");
    guarded.kill_the_primary();
}

#[test]
fn all_nodes_of_a_cluster_speak_tls() {
    let (authority, speech) = authority();
    let clustered = Clustered::start_speaking(&speech, 0);
    let store = open(&clustered.url(), authority.believed()).unwrap();
    let hourly = limit("1/h burst 1");
    // Enough keys that every node has some.
    for key in 0..32 {
        let key = format!("key-{key}");
        let charge = Charge {
            bucket: Bucket::of_key(key.as_bytes()),
            limit: &hourly,
            cost: 1,
            shadow: false,
        };
        assert!(run(store.take(&[charge])).unwrap().admitted);
        assert!(!run(store.take(&[charge])).unwrap().admitted);
    }
    let said = refusal(&clustered.url(), Authority::new("another").believed());
    assert!(said.contains("vouches"), "{said}");
}

#[test]
fn what_cannot_be_right_is_refused_at_once() {
    let authority = Authority::new("ours");
    let wrong = |url: &str, tls: RedisTls| open(url, tls).unwrap_err().to_string();
    let no_certificate = RedisTls::default().ca("no certificate".to_owned());
    let said = wrong("rediss://localhost", no_certificate);
    assert!(said.contains("tls.ca"), "{said}");
    let mut mixed = authority.vouch_for("a caller");
    mixed.key = authority.vouch_for("another").key;
    let with = |identity| authority.believed().identity(identity);
    let said = wrong("rediss+cluster://localhost", with(mixed.clone()));
    assert!(said.contains("tls.identity.key"), "{said}");
    mixed.key = mixed.key.replace("PRIVATE", "SECRET");
    let secret = mixed.key.lines().nth(1).unwrap().to_owned();
    let said = wrong("rediss+sentinel://localhost/gate", with(mixed));
    assert!(
        said.contains("tls.identity.key") && !said.contains(&secret),
        "{said}"
    );
    for url in [
        "rediss://localhost/#insecure",
        "rediss+cluster://localhost#insecure",
    ] {
        let said = wrong(url, RedisTls::default());
        assert!(said.contains("always verified"), "{said}");
    }
}

#[test]
fn a_key_is_never_shown() {
    let authority = Authority::new("ours");
    let identity = authority.vouch_for("a caller");
    let secret = identity.key.lines().nth(1).unwrap().to_owned();
    let config = RedisConfig::default().tls(authority.believed().identity(identity));
    let store = RedisStore::open("rediss://clerk:secret@localhost", config.clone()).unwrap();
    let shown = format!("{config:#?} {store:#?}");
    assert!(!shown.contains(&secret) && !shown.contains("PRIVATE KEY"));
    assert!(!shown.contains("clerk:secret"));
}
