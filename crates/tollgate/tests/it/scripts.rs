//! How servers learn our scripts, those that read flags at their head and those that do not; and what the flags are for.

use std::time::Duration;

use tollgate::store::contract::{Charge, Refund, StoreOperations as _, Taken};
use tollgate::store::{RedisConfig, RedisError, RedisStore};
use tollgate::{Bucket, Limit};

use crate::server::{Server, Version};
use crate::support::{limit, run};

fn store(server: &Server) -> RedisStore {
    let config = RedisConfig::default().deadline(Duration::from_secs(20));
    RedisStore::open(&server.url(), config).unwrap()
}

fn charge(limit: &Limit) -> [Charge<'_>; 1] {
    [Charge {
        bucket: Bucket::of_key(b"key"),
        limit,
        cost: 1,
        shadow: false,
    }]
}

fn take(store: &RedisStore) -> Result<Taken, RedisError> {
    run(store.take(&charge(&limit("1/h burst 100"))))
}

/// How often a command was called, and how often in vain.
fn calls(server: &Server, command: &str) -> (u64, u64) {
    let stats: String = server.ask("INFO commandstats");
    let number = |name: &str| {
        let (_, line) = stats.split_once(&format!("cmdstat_{command}:"))?;
        let (_, rest) = line.lines().next()?.split_once(name)?;
        rest.split(',').next()?.parse().ok()
    };
    (
        number("calls=").unwrap_or(0),
        number("failed_calls=").unwrap_or(0),
    )
}

#[test]
fn a_deadline_may_be_as_long_as_can_be_said() {
    let server = Server::start();
    let config = RedisConfig::default()
        .deadline(Duration::MAX)
        .connect_timeout(Duration::MAX);
    let store = RedisStore::open(&server.url(), config).unwrap();
    assert!(take(&store).unwrap().admitted);
}

#[test]
fn a_server_learns_a_script_in_the_call_that_needs_it() {
    let server = Server::start();
    let store = store(&server);
    for flushes in 1..=3 {
        for _ in 0..3 {
            assert!(take(&store).unwrap().admitted);
        }
        assert_eq!(calls(&server, "eval"), (flushes, 0));
        assert_eq!(calls(&server, "evalsha"), (flushes * 3, flushes));
        server.tell("SCRIPT FLUSH");
    }
}

#[test]
fn a_server_that_reads_no_flags_is_found_out_once() {
    let server = Server::start_version(Version::SixTwo);
    let store = store(&server);
    for flushes in 1..=3 {
        for _ in 0..3 {
            assert!(take(&store).unwrap().admitted);
        }
        // One more than a server needs that reads them, and no more than one.
        assert_eq!(calls(&server, "eval"), (flushes + 1, 1));
        assert_eq!(calls(&server, "evalsha"), (flushes * 3, flushes));
        server.tell("SCRIPT FLUSH");
    }
}

#[test]
fn a_server_of_another_version_in_its_place_is_served_as_what_it_is() {
    let mut server = Server::start_version(Version::SixTwo);
    let store = store(&server);
    assert!(take(&store).unwrap().admitted);
    for (version, in_vain) in [
        (Version::Current, 0),
        (Version::SixTwo, 1),
        (Version::Current, 0),
    ] {
        server.restart_as(version, &[]);
        // The first one finds that the connection is gone.
        while take(&store).is_err() {}
        assert_eq!(calls(&server, "eval"), (1 + in_vain, in_vain));
    }
    server.tell("CONFIG SET maxmemory 1");
    let said = take(&store).unwrap_err().to_string();
    // It did not start, or the server would say where in the script it was.
    assert!(said.contains("OOM") && !said.contains("script"), "{said}");
}

#[test]
fn a_full_server_still_looks_and_gives_back() {
    let server = Server::start();
    let store = store(&server);
    for text in ["1/h burst 10", "10 per 1h sliding_log"] {
        let (limit, bucket) = (limit(text), Bucket::of_key(b"key"));
        let charge = charge(&limit);
        let taken = run(store.take(&charge)).unwrap();
        server.tell("CONFIG SET maxmemory 1");
        let said = run(store.take(&charge)).unwrap_err().to_string();
        assert!(said.contains("OOM"), "{said}");
        let left = || run(store.peek(&charge)).unwrap().outcomes[0].remaining;
        assert_eq!(left(), 9);
        let refund = Refund {
            bucket,
            limit: &limit,
            cost: 1,
            charged_at_us: taken.outcomes[0].at_us,
        };
        run(store.refund(&[refund])).unwrap();
        run(store.reset(&[bucket])).unwrap();
        assert_eq!(left(), 10);
        server.tell("CONFIG SET maxmemory 0");
    }
}
