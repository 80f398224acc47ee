//! Several processes on one server: together they admit exactly what one would.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate::store::{RedisClock, RedisConfig, RedisStore};
use tollgate::{Clock, Limiter, ManualClock, Source};
use tollgate_referee::{Bound, Log};

use crate::server::Server;
use crate::support::{limit, one_instance};

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

/// One of them: many callers check one key, each as long as it is to go on, and say when they were let through.
fn be_one_of_several(
    server: &str,
    text: &str,
    goes_on: impl Fn(usize) -> bool + Copy + Send + Sync + 'static,
) {
    let skew_ms: i64 = std::env::var(SKEW_MS).unwrap().parse().unwrap();
    let config = RedisConfig::default()
        .clock(clock(skew_ms))
        .deadline(Duration::from_secs(60));
    let store = RedisStore::open(server, config).unwrap();
    let limiter = Arc::new(Limiter::builder(store).shared(one_instance()).build());
    let limit = limit(text);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let call = |limiter: Arc<Limiter>| async move {
            let mut admitted = Vec::new();
            let mut checks = 0;
            while goes_on(checks) {
                checks += 1;
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
                } else {
                    // What was denied is remembered: to ask again at once would ask nobody.
                    tokio::time::sleep(Duration::from_millis(1)).await;
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

/// Long enough that what is allowed over time counts for more than the burst, and that all processes are there at once.
fn for_a_while() -> impl Fn(usize) -> bool + Copy {
    let until = Instant::now() + Duration::from_secs(1);
    move |_| Instant::now() < until
}

/// How far a clock of our own may be behind, as nobody says otherwise.
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
    RedisClock::caller(clock)
}

#[test]
fn four_processes_admit_exactly_the_limit() {
    if let Ok(server) = std::env::var(SERVER) {
        return be_one_of_several(&server, "1/d burst 3000", |checks| checks < 30);
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
        return be_one_of_several(&server, "2000/s burst 100", for_a_while());
    }
    let log = in_several_processes(
        "processes::clocks_a_little_apart_admit_what_their_tolerance_adds",
        [-90, -10, 10, 90],
    );
    assert!(log.admitted() >= 100);
    // Each says the time it was charged by. The bucket's own is that of the clock furthest ahead: never before it, and never later by more
    // than the tolerance.
    let drains = 2 * u64::try_from(TOLERANCE.as_millis()).unwrap();
    let excess = log.excess(Bound::Bucket {
        burst: 100 + drains,
        count: 2_000,
        period_us: 1_000_000,
    });
    assert_eq!(excess.tokens, 0, "{excess}");
}

#[test]
fn clocks_ten_seconds_apart_admit_nothing_more() {
    if let Ok(server) = std::env::var(SERVER) {
        return be_one_of_several(&server, "2000/s burst 100", for_a_while());
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
