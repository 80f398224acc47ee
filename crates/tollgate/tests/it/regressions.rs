//! Bugs seen elsewhere, each kept as a case. Named after the cause.

use std::time::Duration;

use tollgate::{Bucket, Dimension, Limiter, Name, Request, Rule, Verdict};

use crate::support::{clock, limit, limiter, run, us};

/// R02: capacity 10 at 5/s.
#[test]
fn a_token_bucket_bursts_and_then_sustains() {
    let clock = clock();
    let (limiter, limit) = (limiter(&clock), limit("5/s burst 10"));
    let admitted = |n| {
        (0..n)
            .filter(|_| run(limiter.check("k", &limit, 1)).allowed())
            .count()
    };
    assert_eq!(admitted(11), 10);
    clock.advance(us(1_000_000));
    assert_eq!(admitted(20), 5);
}

/// throttlecrab: burst 10 at 10/s, drained and idle for 1.8 s, admits 17 at once.
#[test]
fn an_arrival_time_clamped_too_far_back_gives_no_second_burst() {
    let clock = clock();
    let (limiter, limit) = (limiter(&clock), limit("10/s burst 10"));
    let admitted = || {
        (0..40)
            .filter(|_| run(limiter.check("k", &limit, 1)).allowed())
            .count()
    };
    assert_eq!(admitted(), 10);
    clock.advance(us(1_800_000));
    assert_eq!(admitted(), 10);
}

/// envoyproxy/ratelimit joins key parts with `_` unescaped.
#[test]
fn key_parts_do_not_run_into_each_other() {
    let limiter = Limiter::in_memory()
        .with_rules([Rule::new("r", limit("1/day burst 1"))
            .unwrap()
            .per([Dimension::Client, Dimension::Route])])
        .unwrap();
    for (client, route) in [
        ("b_c_d", ""),
        ("b_c", "d"),
        ("b", "c_d"),
        ("", "b_c_d"),
        ("b_", "c_d"),
        ("b", "_c_d"),
    ] {
        let request = Request::new().client(client).route(route);
        assert!(
            run(limiter.decide(&request)).allowed(),
            "{client:?} {route:?} shares a bucket"
        );
        assert!(!run(limiter.decide(&request)).allowed());
    }
}

/// limitador's cached mode lets a first call through that costs more than the limit; the usual script gives it a
/// finite Retry-After.
#[test]
fn a_first_call_that_costs_more_than_the_limit_is_denied_for_ever() {
    let clock = clock();
    for limit in crate::support::one_of_each() {
        let decision = run(limiter(&clock).check("k", &limit, 11));
        assert_eq!(decision.verdict(), Verdict::NeverFits, "{limit}");
        assert_eq!(decision.retry_after(), None, "{limit}");
    }
}

/// tower_governor's Retry-After is 0 for waits under a second.
#[test]
fn a_wait_under_a_second_is_not_zero() {
    let clock = clock();
    let (limiter, limit) = (limiter(&clock), limit("5/s burst 1"));
    let _ = run(limiter.check("k", &limit, 1));
    let wait = run(limiter.check("k", &limit, 1)).retry_after();
    assert_eq!(wait, Some(Duration::from_millis(200)));
}

/// The usual script: an expiry shorter than the refill is a free refill; and one of capacity/0 is an error.
#[test]
fn cleaning_up_never_gives_a_free_refill() {
    for text in [
        "1/day burst 5",
        "0.001/s burst 5",
        "5 per 400d fixed_window",
        "5 per 400d sliding_log",
    ] {
        let clock = clock();
        let (limiter, limit) = (limiter(&clock), limit(text));
        for _ in 0..5 {
            assert!(run(limiter.check("k", &limit, 1)).allowed());
        }
        let wait = run(limiter.check("k", &limit, 1)).retry_after().unwrap();
        clock.advance(wait.checked_sub(us(1)).unwrap());
        // A crowd passes by, so that the store cleans up.
        for i in 0..10_000 {
            let _ = run(limiter.check(format!("other-{i}"), &limit, 1));
        }
        assert!(!run(limiter.check("k", &limit, 1)).allowed(), "{limit}");
    }
}

/// The usual script: `last = now` on a rejection, with `floor`, loses the part of a token that has come back: 10 an
/// hour instead of 3,600.
#[test]
fn knocking_while_denied_does_not_delay_the_next_token() {
    let clock = clock();
    let (limiter, limit) = (limiter(&clock), limit("1/s burst 1"));
    let mut admitted = 0;
    for _ in 0..36_000 {
        admitted += u32::from(run(limiter.check("k", &limit, 1)).allowed());
        clock.advance(us(100_000));
    }
    assert_eq!(admitted, 3_600);
}

/// The usual script: timestamps through `tostring` keep 14 digits, which is 100 µs in 2026.
#[test]
fn times_keep_their_microseconds() {
    let clock = clock();
    let (limiter, limit) = (limiter(&clock), limit("10000000/s burst 1"));
    let admitted = (0..1_000)
        .filter(|_| {
            clock.advance(us(1));
            run(limiter.check("k", &limit, 1)).allowed()
        })
        .count();
    assert_eq!(admitted, 1_000);
}

/// redis-cell: raising a rate causes denials.
#[test]
fn raising_a_rate_denies_nobody() {
    let clock = clock();
    let limiter = limiter(&clock);
    let (slow, fast) = (limit("1/min burst 10"), limit("600/min burst 20"));
    for _ in 0..10 {
        let _ = run(limiter.check("k", &slow, 1));
    }
    let admitted = (0..20)
        .filter(|_| run(limiter.check("k", &fast, 1)).allowed())
        .count();
    assert_eq!(admitted, 10);
}

/// R04, with the clock times of the report: 200/min admits 400 across 10:59:58 and 11:00:00.
#[test]
fn a_fixed_window_shows_its_known_flaw_and_no_other() {
    let clock = clock();
    let (limiter, limit) = (limiter(&clock), limit("200/min fixed_window"));
    let eleven_us = 1_700_000_000_000_000 / 3_600_000_000 * 3_600_000_000 + 3_600_000_000;
    let admitted = |at_us| {
        clock.set(us(at_us));
        (0..300)
            .filter(|_| run(limiter.check("k", &limit, 1)).allowed())
            .count()
    };
    assert_eq!(admitted(eleven_us - 2_000_000), 200);
    assert_eq!(admitted(eleven_us - 1), 0);
    assert_eq!(admitted(eleven_us), 200);
    assert_eq!(admitted(eleven_us + 59_999_999), 0);
}

/// R06: current + previous × the share of the previous window still covered.
#[test]
fn a_sliding_counter_weighs_the_previous_window() {
    let clock = clock();
    let (limiter, limit) = (limiter(&clock), limit("100 per 1m sliding_counter"));
    let start_us = 1_700_000_040_000_000 / 60_000_000 * 60_000_000;
    clock.set(us(start_us + 30_000_000));
    assert!(run(limiter.check("k", &limit, 80)).allowed());
    // A quarter into the next window three quarters of the 80 still count: 60, so 40 are left.
    clock.set(us(start_us + 75_000_000));
    assert_eq!(run(limiter.check("k", &limit, 0)).remaining(), Some(40));
    assert!(!run(limiter.check("k", &limit, 41)).allowed());
    assert!(run(limiter.check("k", &limit, 40)).allowed());
}

/// An IPv4 address written as IPv6 must not get a second bucket.
#[test]
fn a_mapped_address_is_the_address() {
    let name = Name::new("ip").unwrap();
    let v4 = Request::new().ip("203.0.113.9".parse().unwrap());
    let mapped = Request::new().ip("::ffff:203.0.113.9".parse().unwrap());
    let value = |request| {
        let bucket = Bucket::new(name, &[Dimension::Ip], request);
        let part = bucket.parts().next().unwrap();
        part.value.map(<[u8]>::to_vec)
    };
    assert_eq!(value(&v4), value(&mapped));
    assert_eq!(value(&v4), Some(vec![203, 0, 113, 9]));
}
