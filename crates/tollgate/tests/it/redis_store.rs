//! What only a store over Redis can do wrong.

use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redis::Commands as _;
use tokio::runtime::Builder;
use tollgate::store::contract::{Charge, Refund, StoreOperations as _, Taken};
use tollgate::store::{RedisClock, RedisConfig, RedisError, RedisStore};
use tollgate::{Bucket, Clock, Dimension, Limit, ManualClock, Name, Request};

use crate::contract::key_charge;
use crate::server::Server;
use crate::support::{limit, run, run_together};

const PATIENCE: Duration = Duration::from_secs(20);

fn open(server: &Server, clock: RedisClock) -> RedisStore {
    let config = RedisConfig::default()
        .clock(clock)
        .deadline(Duration::from_secs(20));
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

/// A clock that stands still falls behind: it is taken for as long as its tolerance says, and then the server's is.
#[test]
fn a_callers_clock_is_trusted_for_a_tenth_of_a_second_unless_told_otherwise() {
    let server = Server::start();
    let now_us = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        u64::try_from(now.as_micros()).unwrap()
    };
    let told = Duration::from_millis(30);
    for (tolerance_us, of) in [(100_000, None), (30_000, Some(told))] {
        let hand = ManualClock::default();
        let mut clock = RedisClock::caller(Clock::from(&hand));
        if let (RedisClock::Caller { tolerance, .. }, Some(told)) = (&mut clock, of) {
            *tolerance = told;
        }
        let store = open(&server, clock);
        let limit = limit("1/s burst 10");
        let (charge, patience) = ([key_charge("key", &limit, 1)], Instant::now() + PATIENCE);
        // On a busy machine an answer may come later than it is looked for: then once more.
        let (mut trusted_late, mut distrusted) = (false, false);
        while !(trusted_late && distrusted) {
            assert!(Instant::now() < patience, "{trusted_late} {distrusted}");
            let stood_us = now_us();
            hand.set(Duration::from_micros(stood_us));
            (trusted_late, distrusted) = (false, false);
            while !distrusted {
                let asked_us = now_us();
                let at_us = run(store.peek(&charge)).unwrap().at_us;
                if at_us == stood_us {
                    let behind_us = asked_us - stood_us;
                    assert!(behind_us <= tolerance_us, "trusted {behind_us} us behind");
                    trusted_late |= behind_us > tolerance_us / 2;
                } else {
                    let behind_us = at_us - stood_us;
                    assert!(
                        behind_us > tolerance_us,
                        "not trusted {behind_us} us behind"
                    );
                    distrusted = true;
                }
            }
        }
    }
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
    let config = RedisConfig::default()
        .deadline(Duration::from_millis(400))
        .connect_timeout(Duration::from_secs(20));
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

/// What may lie under a key of ours that somebody else wrote to: a list if it is `None`, else these bytes.
fn foreign_values(ours: &[u8]) -> Vec<(&'static str, Option<Vec<u8>>)> {
    // The same record with other numbers for when it was true and what is used.
    let with = |at: f64, used: f64| {
        let numbers = [at.to_le_bytes(), used.to_le_bytes()].concat();
        Some([&ours[..12], &numbers, &ours[28..]].concat())
    };
    vec![
        ("a list", None),
        ("nothing", Some(Vec::new())),
        ("three bytes", Some(b"abc".to_vec())),
        ("noise", Some(vec![0xff; 44])),
        ("text", Some(vec![b'a'; 44])),
        ("a time beyond all times", with(1e161, 1.0)),
        ("half of a record", Some(ours[..24].to_vec())),
        ("a time that is none", with(f64::NAN, 1.0)),
        ("an amount that is none", with(1.0, f64::NAN)),
        ("numbers without end", with(f64::INFINITY, f64::INFINITY)),
        ("negative numbers", with(-1.5, -1.5)),
    ]
}

fn put(connection: &mut redis::Connection, key: &str, value: Option<Vec<u8>>) {
    connection.del::<_, ()>(key).unwrap();
    match value {
        None => connection.lpush::<_, _, ()>(key, "abc"),
        Some(value) => connection.set(key, value),
    }
    .unwrap();
}

/// All but the second.
fn others_are_well(keys: &[String; 4], answers: Vec<Result<Taken, RedisError>>) {
    for (key, answer) in keys.iter().zip(answers) {
        let is_well = answer.as_ref().is_ok_and(|taken| taken.admitted);
        assert!(is_well || *key == keys[1], "{key}: {answer:?}");
    }
}

/// Everybody else is decided as ever, also in the same call. Whose key it is may be decided or hear an error, and a reset helps.
#[test]
fn what_somebody_else_wrote_stands_in_nobody_elses_way() {
    let server = Server::start();
    let store = open(&server, RedisClock::Server);
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    // One token bucket, several of them, and others: each is another script.
    for texts in [
        &["1/h burst 10"][..],
        &["1/h burst 10", "1/h burst 10"],
        &["10 per 1h fixed_window"],
        &["10 per 1h sliding_log"],
    ] {
        let limits: Vec<Limit> = texts.iter().map(|text| limit(text)).collect();
        let sample = [key_charge(texts[0], &limits[0], 1)];
        run(store.take(&sample)).unwrap();
        let sample = store.key(&sample[0].bucket);
        let ours: Vec<u8> = connection.get(sample).unwrap();
        for (what, value) in foreign_values(&ours) {
            let name = |who: &str| format!("{who}: {what}, {texts:?}");
            let keys = ["a", "foreign", "b", "c"].map(name);
            let beside = name("beside");
            let requests = keys.each_ref().map(|key| -> Vec<Charge<'_>> {
                let tiers = [key, &beside].into_iter().zip(&limits);
                tiers
                    .map(|(key, limit)| key_charge(key, limit, 1))
                    .collect()
            });
            let foreign = requests[1][0].bucket;
            let key = store.key(&foreign);
            put(&mut connection, &key, value);
            let looks = run_together(requests.iter().map(|charges| store.peek(charges)));
            let takes = run_together(requests.iter().map(|charges| store.take(charges)));
            others_are_well(&keys, looks);
            others_are_well(&keys, takes);
            run(store.reset(&[foreign])).unwrap_or_else(|e| panic!("{}: {e}", keys[1]));
            let taken = run(store.take(&requests[1])).unwrap();
            assert_eq!(taken.outcomes[0].remaining, 9, "{}", keys[1]);
        }
    }
}

/// The same for the entries of a log, which lie under a key of their own.
#[test]
fn what_somebody_else_wrote_into_a_log_stands_in_nobody_elses_way() {
    let server = Server::start();
    let store = open(&server, RedisClock::Server);
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    let limit = limit("10 per 1h sliding_log");
    for (what, value) in foreign_values(&[0; 48]) {
        let keys = ["a", "foreign", "b", "c"].map(|who| format!("{who}: {what}"));
        let requests = keys.each_ref().map(|key| [key_charge(key, &limit, 1)]);
        run(store.take(&requests[1])).unwrap();
        let log: Vec<String> = connection.keys("*foreign*:log:*").unwrap();
        put(&mut connection, &log[0], value);
        let takes = run_together(requests.iter().map(|charges| store.take(charges)));
        others_are_well(&keys, takes);
        run(store.reset(&[requests[1][0].bucket])).unwrap_or_else(|e| panic!("{what}: {e}"));
        let taken = run(store.take(&requests[1])).unwrap();
        assert_eq!(taken.outcomes[0].remaining, 9, "{what}");
        run(store.reset(&[requests[1][0].bucket])).unwrap();
    }
}
