//! Several processes on one server: together they admit exactly what one would.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate::store::{RedisClock, RedisConfig, RedisStore};
use tollgate::{Clock, Limiter, ManualClock, SharedConfig, Source};
use tollgate_referee::{Bound, Log};

use crate::server::Server;
use crate::support::limit;

const PROCESSES: usize = 4;
const CALLERS: usize = 64;
/// Set for the processes that a test starts: the test itself, once more.
const SERVER: &str = "TOLLGATE_TEST_SERVER";
const SKEW_MS: &str = "TOLLGATE_TEST_SKEW_MS";

/// Runs this test in several processes and collects when each admitted something.
fn in_several_processes(test: &str, skews_ms: [i64; PROCESSES]) -> Log {
    let server = Server::start();
    let processes: Vec<_> = skews_ms
        .iter()
        .map(|skew_ms| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", test, "--nocapture"])
                .env(SERVER, server.url())
                .env(SKEW_MS, skew_ms.to_string())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut admissions = Vec::new();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        // The line may begin with the harness's own words.
        let at_us = text.lines().filter_map(|line| line.split_once("admitted "));
        admissions.extend(at_us.map(|(_, at_us)| (at_us.trim().parse().unwrap(), 1)));
    }
    Log::new(admissions)
}

/// One of them: many callers check one key, and say when they were let through.
fn be_one_of_several(server: &str, text: &str, checks: usize) {
    let skew_ms: i64 = std::env::var(SKEW_MS).unwrap().parse().unwrap();
    let config = RedisConfig {
        clock: clock(skew_ms),
        deadline: Duration::from_secs(60),
        ..RedisConfig::default()
    };
    let store = RedisStore::open(server, config).unwrap();
    let limiter = Arc::new(Limiter::over(store, SharedConfig::default()));
    let limit = limit(text);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let call = |limiter: Arc<Limiter>| async move {
            let mut admitted = Vec::new();
            for _ in 0..checks {
                let decision = limiter.check("key", &limit, 1).await;
                assert!(matches!(
                    decision.source(),
                    Source::Store | Source::Remembered
                ));
                if decision.allowed() {
                    admitted.push(
                        decision
                            .at()
                            .duration_since(UNIX_EPOCH)
                            .unwrap()
                            .as_micros(),
                    );
                }
            }
            admitted
        };
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| tokio::spawn(call(Arc::clone(&limiter))))
            .collect();
        for caller in callers {
            for at_us in caller.await.unwrap() {
                #[expect(
                    clippy::print_stdout,
                    reason = "this is how the other process hears it"
                )]
                {
                    println!("admitted {at_us}");
                }
            }
        }
    });
}

/// How far a clock of our own may be behind.
const TOLERANCE: Duration = Duration::from_millis(100);

/// The server's clock, or one of our own that is wrong by so much.
fn clock(skew_ms: i64) -> RedisClock {
    if skew_ms == 0 {
        return RedisClock::Server;
    }
    let now = move || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let skew = Duration::from_millis(skew_ms.unsigned_abs());
        if skew_ms > 0 { now + skew } else { now - skew }
    };
    let hand = ManualClock::at(now());
    let clock = Clock::from(&hand);
    std::thread::spawn(move || {
        loop {
            hand.set(now());
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    RedisClock::Caller {
        clock,
        tolerance: TOLERANCE,
    }
}

#[test]
fn four_processes_admit_exactly_the_limit() {
    if let Ok(server) = std::env::var(SERVER) {
        return be_one_of_several(&server, "1/d burst 3000", 30);
    }
    let log = in_several_processes(
        "processes::four_processes_admit_exactly_the_limit",
        [0; PROCESSES],
    );
    assert_eq!(log.admitted(), 3_000);
}

/// Clocks that are behind a little are taken: then as much more may pass as drains in the time they may be behind.
#[test]
fn clocks_a_little_apart_admit_what_their_tolerance_adds() {
    if let Ok(server) = std::env::var(SERVER) {
        return be_one_of_several(&server, "2000/s burst 100", 150);
    }
    let began = Instant::now();
    let log = in_several_processes(
        "processes::clocks_a_little_apart_admit_what_their_tolerance_adds",
        [-90, -10, 10, 90],
    );
    let most = 100 + 2 * u64::try_from((began.elapsed() + TOLERANCE).as_millis()).unwrap();
    assert!((100..=most).contains(&log.admitted()), "{}", log.admitted());
}

#[test]
fn clocks_ten_seconds_apart_admit_nothing_more() {
    if let Ok(server) = std::env::var(SERVER) {
        return be_one_of_several(&server, "2000/s burst 100", 150);
    }
    let log = in_several_processes(
        "processes::clocks_ten_seconds_apart_admit_nothing_more",
        [-10_000, -1_000, 1_000, 10_000],
    );
    assert!(log.admitted() >= 100);
    let excess = log.excess(Bound::Bucket {
        burst: 100,
        count: 2_000,
        period_us: 1_000_000,
    });
    assert_eq!(excess.tokens, 0, "{excess}");
}
