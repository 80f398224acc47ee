//! What only a store over Redis can do wrong.

use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::Builder;
use tollgate::store::{Charge, RedisClock, RedisConfig, RedisStore, Refund, Store as _};
use tollgate::{Bucket, Clock, Dimension, ManualClock, Name, Request};

use crate::server::Server;
use crate::support::{limit, run};

fn open(server: &Server, clock: RedisClock) -> RedisStore {
    let config = RedisConfig {
        clock,
        deadline: Duration::from_secs(20),
        ..RedisConfig::default()
    };
    RedisStore::open(&server.url(), config).unwrap()
}

/// One clock is an hour ahead: what it gives back must not make others' records look past.
#[test]
fn a_refund_by_a_clock_that_is_ahead_forgets_nothing() {
    let server = Server::start();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let ahead = ManualClock::at(now + Duration::from_secs(3_600));
    let honest = open(&server, RedisClock::Server);
    let clock = RedisClock::Caller {
        clock: Clock::from(&ahead),
        tolerance: Duration::from_millis(10),
    };
    let wrong = open(&server, clock);
    let (short, long) = (limit("1/m burst 5"), limit("10/d burst 10"));
    let request = Request::new().client("a");
    let charge = |rule, limit, cost| Charge {
        bucket: Bucket::new(Name::new(rule).unwrap(), &[Dimension::Client], &request),
        limit,
        cost,
        shadow: false,
    };
    let burst = [charge("short", &short, 5)];
    assert!(run(honest.take(&burst)).unwrap().admitted);
    let taken = run(wrong.take(&[charge("long", &long, 10)])).unwrap();
    let refund = Refund {
        bucket: charge("long", &long, 1).bucket,
        limit: &long,
        cost: 1,
        charged_at_us: taken.at_us,
    };
    run(wrong.refund(&[refund])).unwrap();
    assert!(!run(honest.take(&burst)).unwrap().admitted);
}

/// A program may have several runtimes, and end some: the others go on.
#[test]
fn a_runtime_that_ends_takes_no_flight_with_it() {
    let server = Server::start();
    let store = open(&server, RedisClock::Server);
    let limit = limit("1/d burst 10");
    let charge = [Charge {
        bucket: Bucket::of_key(b"key"),
        limit: &limit,
        cost: 1,
        shadow: false,
    }];
    for _ in 0..5 {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut asks = std::pin::pin!(store.take(&charge));
            // Only begun.
            std::future::poll_fn(|context| {
                let _ = asks.as_mut().poll(context);
                Poll::Ready(())
            })
            .await;
        });
    }
    assert!(run(store.take(&charge)).unwrap().admitted);
}

/// Two wait for a connection and would go together; the first stops waiting before there is one, and the server never hears of it.
#[test]
fn who_stopped_waiting_for_a_connection_is_not_sent() {
    let server = Server::start();
    let config = RedisConfig {
        deadline: Duration::from_millis(400),
        connect_timeout: Duration::from_secs(20),
        ..RedisConfig::default()
    };
    // A login has to be answered before anything can be sent.
    server.tell("CONFIG SET requirepass secret");
    let store = RedisStore::open(&format!("{}?pass=secret", server.url()), config).unwrap();
    let limit = limit("1/d burst 10");
    let charge = |key: &'static [u8]| Charge {
        bucket: Bucket::of_key(key),
        limit: &limit,
        cost: 1,
        shadow: false,
    };
    let take = async |key, after| {
        tokio::time::sleep(Duration::from_millis(after)).await;
        store.take(&[charge(key)]).await
    };
    server.signal("-STOP");
    run(async {
        // As many as go each by itself, and then two who go together when the first of those is given up.
        let before = async { tokio::join!(take(b"a", 0), take(b"b", 20), take(b"c", 40)) };
        let first = async {
            assert!(take(b"first", 150).await.is_err());
            server.signal("-CONT");
        };
        let (_, (), _) = tokio::join!(before, first, take(b"second", 300));
    });
    let patience = Instant::now() + Duration::from_secs(20);
    let seen = loop {
        match run(store.peek(&[charge(b"first")])) {
            Ok(taken) => break taken,
            Err(error) => assert!(Instant::now() < patience, "{error}"),
        }
    };
    assert_eq!(seen.outcomes[0].remaining, 10);
}
