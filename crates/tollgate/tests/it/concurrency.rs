//! Many threads, and the referee.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use tollgate::store::contract::{Charge, StoreOperations as _};
use tollgate::{Bucket, Decision, Dimension, Limit, Limiter, LocalLimiter, Request, Rule};
use tollgate_referee::{Bound, Excess, Log};

use crate::support::{clock, limit, limiter, memory, run, us};

const THREADS: usize = 8;

/// Runs `work` on eight threads at once and gathers what they say.
fn on_threads<T: Send>(work: impl Fn(usize) -> Vec<T> + Sync) -> Vec<T> {
    let barrier = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (work, barrier) = (&work, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    work(thread)
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// When a decision was made, as the referee wants it.
pub(crate) fn at_us(decision: &Decision) -> u64 {
    let at = decision.at().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(at.as_micros()).unwrap()
}

const DAY_US: u64 = 86_400_000_000;

#[test]
fn eight_threads_on_one_key_admit_exactly_the_limit() {
    const LIMIT: u64 = 10_000;
    let bucket = Bound::Bucket {
        burst: LIMIT,
        count: 1,
        period_us: DAY_US,
    };
    let window = Bound::AlignedWindow {
        limit: LIMIT,
        window_us: DAY_US,
    };
    let any_window = Bound::AnyWindow {
        limit: LIMIT,
        window_us: DAY_US,
    };
    for (text, bound) in [
        ("1/day burst 10000", bucket),
        ("1/day queue 10000", bucket),
        ("10000 per 1d fixed_window", window),
        ("10000 per 1d sliding_log", any_window),
        ("10000 per 1d sliding_counter", window),
    ] {
        let clock = clock();
        let (limiter, limit) = (limiter(&clock), limit(text));
        let log = Log::new(on_threads(|_| {
            (0..5_000)
                .map(|_| run(limiter.check("key", &limit, 1)))
                .filter(Decision::allowed)
                .map(|decision| (at_us(&decision), 1))
                .collect()
        }));
        let excess = log.excess(bound);
        assert_eq!(excess.tokens, 0, "{limit}: {excess}");
        assert_eq!(log.admitted(), LIMIT, "{limit}");
    }
}

#[test]
fn eight_threads_on_three_tiers_admit_exactly_the_narrowest() {
    let clock = clock();
    let limiter = limiter(&clock)
        .with_rules([
            Rule::new("client", limit("1/day burst 700"))
                .unwrap()
                .per([Dimension::Client]),
            Rule::new("route", limit("1000 per 1d sliding_log"))
                .unwrap()
                .per([Dimension::Route]),
            Rule::new("everyone", limit("3000 per 1d fixed_window")).unwrap(),
        ])
        .unwrap();
    // Eight clients on four routes, each thread mixing them in its own order: locks are taken in every order.
    let allowed = on_threads(|thread| {
        (0..4_000)
            .filter_map(|i| {
                let (client, route) = ((i * 7 + thread) % 8, (i + thread * 3) % 4);
                let (client_name, route_name) =
                    (format!("client-{client}"), format!("/route/{route}"));
                let request = Request::new().client(&client_name).route(&route_name);
                let decision = run(limiter.decide(&request));
                decision
                    .allowed()
                    .then(|| (at_us(&decision), client, route))
            })
            .collect()
    });
    let judge = |bound: Bound, is_meant: &dyn Fn(usize, usize) -> bool| {
        let meant = allowed.iter().filter(|(_, c, r)| is_meant(*c, *r));
        let log = Log::new(meant.map(|(at_us, _, _)| (*at_us, 1)));
        let excess = log.excess(bound);
        assert_eq!(excess.tokens, 0, "{bound:?}: {excess}");
        log.admitted()
    };
    let everyone = Bound::AlignedWindow {
        limit: 3_000,
        window_us: DAY_US,
    };
    let admitted = judge(everyone, &|_, _| true);
    assert_eq!(admitted, 3_000, "everyone's limit is reached exactly");
    for n in 0..4 {
        let route = Bound::AnyWindow {
            limit: 1_000,
            window_us: DAY_US,
        };
        judge(route, &|_, route| route == n);
    }
    for n in 0..8 {
        let client = Bound::Bucket {
            burst: 700,
            count: 1,
            period_us: DAY_US,
        };
        let used = judge(client, &|client, _| client == n);
        // What was denied charged nothing: what each bucket has left is its limit less what it admitted.
        let name = format!("client-{n}");
        let peek = run(limiter
            .request(&Request::new().client(&name).route("/elsewhere"))
            .peek());
        assert_eq!(peek.tiers()[0].remaining(), 700 - used);
    }
}

/// Runs real threads against the real clock for a moment and gives the referee the log.
fn race(limiter: &Limiter, limit: &Limit, bound: Bound) -> (Excess, u64) {
    let until = Instant::now() + Duration::from_millis(300);
    let offered = AtomicU64::new(0);
    let log = on_threads(|_| {
        let mut admitted = Vec::new();
        while Instant::now() < until {
            offered.fetch_add(1, Ordering::Relaxed);
            let decision = run(limiter.check("key", limit, 1));
            if decision.allowed() {
                admitted.push((at_us(&decision), 1));
            }
        }
        admitted
    });
    let log = Log::new(log);
    assert!(
        log.admitted() < offered.into_inner(),
        "nothing was denied: the limit was not put to the test"
    );
    (log.excess(bound), log.admitted())
}

#[test]
fn the_referee_finds_no_excess_under_real_time() {
    for (limit, bound) in [
        (
            limit("5003/s burst 100"),
            Bound::Bucket {
                burst: 100,
                count: 5_003,
                period_us: 1_000_000,
            },
        ),
        (
            limit("100003 per 7s burst 50"),
            Bound::Bucket {
                burst: 50,
                count: 100_003,
                period_us: 7_000_000,
            },
        ),
        (
            limit("5000/s queue 100"),
            Bound::Bucket {
                burst: 100,
                count: 5_000,
                period_us: 1_000_000,
            },
        ),
        (
            limit("100 per 20ms sliding_log"),
            Bound::AnyWindow {
                limit: 100,
                window_us: 20_000,
            },
        ),
        (
            limit("100 per 20ms fixed_window"),
            Bound::AlignedWindow {
                limit: 100,
                window_us: 20_000,
            },
        ),
        // Across a boundary a fixed window may admit one limit more, and no more than that.
        (
            limit("100 per 20ms fixed_window"),
            Bound::AnyWindow {
                limit: 200,
                window_us: 20_000,
            },
        ),
        // docs/guarantees.md: a sliding counter stays below twice its limit in any window.
        (
            limit("100 per 20ms sliding_counter"),
            Bound::AlignedWindow {
                limit: 100,
                window_us: 20_000,
            },
        ),
        (
            limit("100 per 20ms sliding_counter"),
            Bound::AnyWindow {
                limit: 199,
                window_us: 20_000,
            },
        ),
    ] {
        let limiter = Limiter::in_memory();
        let (excess, admitted) = race(&limiter, &limit, bound);
        assert_eq!(excess.tokens, 0, "{limit}: {excess}");
        assert!(
            admitted > limit.capacity(),
            "{limit} let only {admitted} through"
        );
    }
}

/// Takes, looks, refunds, resets and floods at once, while the clock stands still: what is used in the end is what was admitted and
/// not given back, in every bucket; and nobody gets more by any of it.
#[test]
fn every_operation_at_once_keeps_the_books() {
    const ROOM: u64 = 30_000;
    let limits = [
        ("1/min burst 30000", "5/s burst 10"),
        ("1/min queue 30000", "5/s queue 10"),
        ("30000 per 1h fixed_window", "10 per 2s fixed_window"),
        ("30000 per 1h sliding_log", "10 per 2s sliding_log"),
        ("30000 per 1h sliding_counter", "10 per 2s sliding_counter"),
    ]
    .map(|(booked, other)| (limit(booked), limit(other)));
    let clock = clock();
    let limiter = LocalLimiter::with_store(memory(&clock));
    let booked_keys = ["tokens", "queue", "window", "log", "counter"];
    let left = |nth: usize| {
        limiter
            .check(booked_keys[nth], &limits[nth].0, 0)
            .remaining()
    };
    let kept = on_threads(|thread| {
        let mut kept = Vec::new();
        // One of them only looks, which changes nothing, however often.
        if thread == 0 {
            (0..40_000).for_each(|i| assert!(left(i % limits.len()).unwrap() <= ROOM));
            return kept;
        }
        for i in 0..40_000_usize {
            let nth = (i + thread) % limits.len();
            let (key, (booked, other)) = (booked_keys[nth], &limits[nth]);
            match i % 11 {
                // One key for all algorithms, which is forgotten every now and then: nothing to the others.
                0 => drop(limiter.key("other", other).reset()),
                1 => drop(limiter.check("other", other, 1)),
                2 => drop(limiter.check(format!("{thread}-{i}"), other, 1)),
                3..=5 => {
                    let decision = limiter.check(key, booked, 2);
                    // Also after a denial, which gives nothing back.
                    limiter.key(key, booked).refund(decision);
                }
                _ => {
                    let cost = 1 + i as u64 % 3;
                    let decision = limiter.check(key, booked, cost);
                    if decision.allowed() {
                        kept.push((nth, at_us(&decision), cost));
                    }
                }
            }
        }
        kept
    });
    for (nth, (limit, _)) in limits.iter().enumerate() {
        let here = kept.iter().filter(|(n, _, _)| *n == nth);
        let log = Log::new(here.map(|(_, at_us, cost)| (*at_us, *cost)));
        // At one moment, all five allow the same.
        let excess = log.excess(Bound::AnyWindow {
            limit: ROOM,
            window_us: 1,
        });
        assert_eq!(excess.tokens, 0, "{limit}: {excess}");
        assert_eq!(left(nth), Some(ROOM - log.admitted()), "{limit}");
        // More was wanted than there was; what was on its way back at the end may be left.
        assert!(log.admitted() > ROOM - 100, "{limit}: {}", log.admitted());
    }
    clock.advance(Duration::from_secs(30 * 86_400));
    assert_eq!(limiter.memory_stats().live_keys, 0);
}

/// A sweep between the making of a slot and its charge must not let a request pass uncharged.
#[test]
fn a_new_key_is_charged_however_fast_it_is_swept() {
    let clock = clock();
    let store = memory(&clock);
    let limit = limit("1/h");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                clock.advance(us(20_000));
                store.sweep();
            }
        });
        for i in 0..300_000_u32 {
            let key = i.to_be_bytes();
            let charge = Charge {
                bucket: Bucket::of_key(&key),
                limit: &limit,
                cost: 1,
                shadow: false,
            };
            let taken = run(store.take(&[charge])).unwrap();
            if !(taken.admitted && taken.outcomes[0].charged) {
                is_over.store(true, Ordering::Relaxed);
                panic!("{taken:?}");
            }
            run(store.reset(&[charge.bucket])).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}
