//! Many threads, and the referee.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use tollgate::store::{Charge, Store as _};
use tollgate::{Bucket, Dimension, Limit, Limiter, Request, Rule};
use tollgate_referee::{Bound, Excess, Log};

use crate::support::{clock, limit, limiter, memory, one_of_each, run, us};

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

#[test]
fn eight_threads_on_one_key_admit_exactly_the_limit() {
    for text in [
        "1/day burst 10000",
        "1/day queue 10000",
        "10000 per 1d fixed_window",
        "10000 per 1d sliding_log",
        "10000 per 1d sliding_counter",
    ] {
        let clock = clock();
        let (limiter, limit) = (limiter(&clock), limit(text));
        let allowed = on_threads(|_| {
            (0..5_000)
                .map(|_| run(limiter.check("key", &limit, 1)).allowed())
                .collect()
        });
        assert_eq!(
            allowed.iter().filter(|allowed| **allowed).count(),
            10_000,
            "{limit}"
        );
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
                run(limiter.decide(&request))
                    .allowed()
                    .then_some((client, route))
            })
            .collect()
    });
    assert_eq!(allowed.len(), 3_000, "everyone's limit is reached exactly");
    for n in 0..8 {
        assert!(allowed.iter().filter(|(client, _)| *client == n).count() <= 700);
        assert!(allowed.iter().filter(|(_, route)| *route == n).count() <= 1_000);
    }
    // What was denied charged nothing: what each bucket has left is its limit less what it admitted.
    for client in 0..8 {
        let name = format!("client-{client}");
        let used = allowed.iter().filter(|(c, _)| *c == client).count() as u64;
        let peek = run(limiter.peek(&Request::new().client(&name).route("/elsewhere")));
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
                let at = decision.at().duration_since(UNIX_EPOCH).unwrap();
                admitted.push((u64::try_from(at.as_micros()).unwrap(), 1));
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

/// Takes, peeks, refunds, resets and floods at once: nothing hangs, nothing panics, the books balance.
#[test]
fn every_operation_at_once_keeps_the_books() {
    let clock = clock();
    let limits = one_of_each();
    let limiter = limiter(&clock);
    on_threads(|thread| {
        for i in 0..3_000_usize {
            let (key, limit) = (format!("key-{}", i % 7), &limits[(i + thread) % 5]);
            match i % 11 {
                0 => run(limiter.reset_key(&key)).unwrap(),
                1..=3 => {
                    let decision = run(limiter.check(&key, limit, 2));
                    run(limiter.refund_key(&key, limit, 2, decision));
                }
                4 => drop(run(limiter.check(format!("{thread}-{i}"), limit, 1))),
                _ => drop(run(limiter.check(&key, limit, 1))),
            }
        }
        Vec::<()>::new()
    });
    for limit in &limits {
        for key in 0..7 {
            let decision = run(limiter.check(format!("key-{key}"), limit, 0));
            assert!(decision.remaining().unwrap() <= 10);
        }
    }
    clock.advance(Duration::from_secs(10));
    assert_eq!(limiter.stats().unwrap().live_keys, 0);
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
