//! What every store must do. Each check is written against the `Store` trait and a clock that is turned by hand, and
//! runs on every store there is.

#[cfg(feature = "tls")]
use std::sync::Arc;

use tollgate::store::contract::{Charge, Fit, Outcome, Refund, StoreOperations as Store, Taken};
#[cfg(feature = "redis")]
use tollgate::store::{RedisStore, RedisTls};
use tollgate::{Bucket, Dimension, Limit, ManualClock, Name, Request};

#[cfg(feature = "tls")]
use crate::certificates::Authority;
#[cfg(feature = "redis")]
use crate::server::{Clustered, Guarded, Server, Version, store_at};
#[cfg(feature = "tls")]
use crate::server::{Speech, TcpServer};
use crate::support::{NOON_US, limit, one_of_each, run, run_together, us};

/// Writes each check of the contract out as a test of each store.
macro_rules! contract {
    ($($check:ident),* $(,)?) => {
        mod memory {
            $(
                #[test]
                fn $check() {
                    let clock = crate::support::clock();
                    super::$check(&crate::support::memory(&clock), &clock);
                }
            )*
        }

        /// All of them on servers that take long to start, each under a name of its own.
        #[cfg(feature = "redis")]
        pub(crate) fn keeps_the_whole_contract(open: impl Fn(&str, tollgate::Clock) -> RedisStore) {
            $(
                let clock = crate::support::clock();
                let name = stringify!($check);
                eprintln!("{name}");
                $check(&open(name, (&clock).into()), &clock);
            )*
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(
                #[test]
                fn $check() {
                    let clock = crate::support::clock();
                    super::$check(&crate::support::redis(&clock), &clock);
                }
            )*
        }
    };
}

contract!(
    takes_until_nothing_is_left,
    many_at_once_take_exactly_what_is_there,
    a_denial_changes_nothing_in_any_algorithm,
    a_denial_by_the_last_of_five_tiers_changes_none,
    retry_after_is_true_to_the_microsecond,
    retry_after_over_several_tiers_is_the_longest,
    a_peek_takes_nothing,
    a_cost_of_zero_looks,
    a_cost_that_can_never_fit_says_so,
    a_reset_forgets,
    a_refund_gives_back_what_was_taken,
    a_refund_never_gives_back_what_others_used,
    a_changed_limit_keeps_what_was_used,
    a_lowered_limit_denies_no_longer_than_one_token_takes,
    a_shrunken_queue_lets_nobody_in_before_there_is_room,
    a_much_slower_limit_does_not_overflow,
    a_longer_window_is_not_cleaned_away_early,
    a_changed_algorithm_keeps_what_was_used,
    a_shadow_is_charged_alone_and_never_decides,
    a_bucket_named_twice_is_charged_for_both,
    different_buckets_do_not_touch_each_other,
    a_clock_that_goes_back_admits_nothing_more,
    knocking_while_denied_does_not_delay_the_next_token,
    leaky_releases_are_spaced_by_the_rate,
    leaky_releases_of_any_cost_are_spaced_by_the_rate,
);

#[cfg(feature = "redis")]
#[test]
fn cluster_keeps_the_whole_contract() {
    let clustered = Clustered::start();
    keeps_the_whole_contract(|name, clock| {
        store_at(&clustered.url(), RedisTls::default(), name, clock)
    });
}

#[cfg(feature = "redis")]
#[test]
fn sentinel_keeps_the_whole_contract() {
    let guarded = Guarded::start();
    keeps_the_whole_contract(|name, clock| {
        store_at(&guarded.url(), RedisTls::default(), name, clock)
    });
}

#[cfg(feature = "redis")]
#[test]
fn redis_6_2_keeps_the_whole_contract() {
    let server = Server::start_version(Version::SixTwo);
    keeps_the_whole_contract(|name, clock| {
        store_at(&server.url(), RedisTls::default(), name, clock)
    });
}

#[cfg(feature = "redis")]
#[test]
fn valkey_keeps_the_whole_contract() {
    let server = Server::start_version(Version::Valkey);
    keeps_the_whole_contract(|name, clock| {
        store_at(&server.url(), RedisTls::default(), name, clock)
    });
}

#[cfg(feature = "tls")]
#[test]
fn tls_keeps_the_whole_contract() {
    let authority = Arc::new(Authority::new("ours"));
    let server = TcpServer::start_speaking(&Speech::Tls(Arc::clone(&authority)), "", &[]);
    keeps_the_whole_contract(|name, clock| {
        store_at(&server.url(), authority.believed(), name, clock)
    });
}

pub(crate) fn key_charge<'a>(key: &'a str, limit: &'a Limit, cost: u64) -> Charge<'a> {
    Charge {
        bucket: Bucket::of_key(key.as_bytes()),
        limit,
        cost,
        shadow: false,
    }
}

pub(crate) fn take<S: Store>(store: &S, charges: &[Charge<'_>]) -> Taken {
    run(store.take(charges)).unwrap_or_else(|e| panic!("{e:?}"))
}

pub(crate) fn take_one<S: Store>(store: &S, key: &str, limit: &Limit, cost: u64) -> Taken {
    take(store, &[key_charge(key, limit, cost)])
}

pub(crate) fn peek<S: Store>(store: &S, charges: &[Charge<'_>]) -> Taken {
    run(store.peek(charges)).unwrap_or_else(|e| panic!("{e:?}"))
}

pub(crate) fn refund<S: Store>(store: &S, charges: &[Charge<'_>], taken: &Taken) {
    let refund = |(charge, outcome): (&Charge<'_>, &Outcome)| {
        run(store.refund(&[Refund {
            bucket: charge.bucket,
            limit: charge.limit,
            cost: charge.cost,
            charged_at_us: outcome.at_us,
        }]))
        .unwrap_or_else(|e| panic!("{e:?}"));
    };
    charges.iter().zip(&taken.outcomes).for_each(refund);
}

pub(crate) fn remaining<S: Store>(store: &S, key: &str, limit: &Limit) -> u64 {
    peek(store, &[key_charge(key, limit, 1)]).outcomes[0].remaining
}

fn ready_at_us(taken: &Taken, tier: usize) -> u64 {
    match taken.outcomes[tier].fit {
        Fit::Later { ready_at_us } => ready_at_us,
        other => panic!("expected a denial, got {other:?}"),
    }
}

pub(crate) fn takes_until_nothing_is_left<S: Store>(store: &S, _clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let key = format!("key-{i}");
        for left in (0..10).rev() {
            let taken = take_one(store, &key, limit, 1);
            assert!(taken.admitted, "{limit}");
            assert_eq!(taken.outcomes[0].remaining, left, "{limit}");
        }
        assert!(!take_one(store, &key, limit, 1).admitted, "{limit}");
    }
}

pub(crate) fn many_at_once_take_exactly_what_is_there<S: Store>(store: &S, _clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let key = format!("key-{i}");
        let charge = [key_charge(&key, limit, 1)];
        let taken = run_together((0..30).map(|_| store.take(&charge)));
        let admitted = taken
            .iter()
            .filter(|taken| taken.as_ref().unwrap().admitted);
        assert_eq!(admitted.count(), 10, "{limit}");
    }
}

/// Everything a peek can tell, at several times to come: equal answers mean equal state.
pub(crate) fn picture<S: Store>(
    store: &S,
    clock: &ManualClock,
    charges: &[Charge<'_>],
) -> Vec<Taken> {
    let now_us = take(store, &[]).at_us;
    let picture = [
        0, 1, 199_999, 200_000, 999_999, 1_000_000, 1_999_999, 2_000_000, 3_999_999,
    ]
    .map(|later_us| {
        clock.set(us(now_us + later_us));
        peek(store, charges)
    });
    clock.set(us(now_us));
    picture.to_vec()
}

pub(crate) fn a_denial_changes_nothing_in_any_algorithm<S: Store>(store: &S, clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let key = format!("key-{i}");
        take_one(store, &key, limit, 7);
        clock.advance(us(300_001));
        let charges = [key_charge(&key, limit, 1)];
        let before = picture(store, clock, &charges);
        for _ in 0..3 {
            assert!(!take_one(store, &key, limit, 10).admitted, "{limit}");
        }
        assert_eq!(before, picture(store, clock, &charges), "{limit}");
    }
}

pub(crate) fn a_denial_by_the_last_of_five_tiers_changes_none<S: Store>(
    store: &S,
    clock: &ManualClock,
) {
    let rules: Vec<Name> = (0..5)
        .map(|i| Name::new(&format!("tier-{i}")).unwrap())
        .collect();
    let narrow = limit("1/s burst 3");
    // Of all algorithms, and all of the usual one.
    let cases = [one_of_each(), [limit("5/s burst 10"); 5]];
    for (limits, last) in cases
        .iter()
        .flat_map(|limits| (0..5).map(move |i| (limits, i)))
    {
        let client = format!("{}-{last}", limits[4].algorithm());
        let request = Request::new().client(&client);
        let tiers = |cost| -> Vec<Charge<'_>> {
            (0..5)
                .map(|i| Charge {
                    bucket: Bucket::new(rules[i], &[Dimension::Client], &request),
                    limit: if i == last { &narrow } else { &limits[i] },
                    cost,
                    shadow: false,
                })
                .collect()
        };
        assert!(take(store, &tiers(2)).admitted);
        let before = picture(store, clock, &tiers(1));
        let denied = take(store, &tiers(2));
        assert!(!denied.admitted);
        assert!(!denied.outcomes[last].fit.admits());
        assert_eq!(before, picture(store, clock, &tiers(1)));
    }
}

pub(crate) fn retry_after_is_true_to_the_microsecond<S: Store>(store: &S, clock: &ManualClock) {
    let odd = [
        limit("3/s burst 7"),
        limit("7/day burst 3"),
        limit("999983/day burst 9"),
        limit("10000000/s burst 5"),
        limit("1000 per 7001ms sliding_counter"),
        limit("0.001/s burst 2"),
    ];
    for (i, limit) in one_of_each().iter().chain(&odd).enumerate() {
        for cost in [1, 2, limit.capacity()] {
            let key = format!("{i}-{cost}");
            take_one(store, &key, limit, limit.capacity() - 1);
            clock.advance(us(1_234));
            take_one(store, &key, limit, 1);
            let denied = take_one(store, &key, limit, cost);
            if denied.admitted {
                continue; // so fast a limit that the room is back already
            }
            let ready_at_us = ready_at_us(&denied, 0);
            clock.set(us(ready_at_us - 1));
            assert!(
                !take_one(store, &key, limit, cost).admitted,
                "{limit}: {cost} too early"
            );
            clock.set(us(ready_at_us));
            assert!(
                take_one(store, &key, limit, cost).admitted,
                "{limit}: {cost} on time"
            );
        }
    }
}

pub(crate) fn retry_after_over_several_tiers_is_the_longest<S: Store>(
    store: &S,
    clock: &ManualClock,
) {
    let limits = one_of_each();
    let keys: Vec<String> = (0..5).map(|i| format!("key-{i}")).collect();
    let tiers: Vec<Charge<'_>> = (0..5)
        .map(|i| key_charge(&keys[i], &limits[i], 1))
        .collect();
    for _ in 0..10 {
        assert!(take(store, &tiers).admitted);
    }
    let denied = take(store, &tiers);
    let longest = (0..5).map(|tier| ready_at_us(&denied, tier)).max().unwrap();
    clock.set(us(longest - 1));
    assert!(!take(store, &tiers).admitted);
    clock.set(us(longest));
    assert!(take(store, &tiers).admitted);
}

pub(crate) fn a_peek_takes_nothing<S: Store>(store: &S, _clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let key = format!("key-{i}");
        take_one(store, &key, limit, 4);
        for _ in 0..20 {
            assert_eq!(remaining(store, &key, limit), 6, "{limit}");
        }
    }
}

pub(crate) fn a_cost_of_zero_looks<S: Store>(store: &S, _clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let key = format!("key-{i}");
        take_one(store, &key, limit, 10);
        let looked = take_one(store, &key, limit, 0);
        assert!(looked.admitted);
        assert_eq!(
            (looked.outcomes[0].fit, looked.outcomes[0].remaining),
            (Fit::Now, 0)
        );
    }
}

/// Also to the first who asks, by itself and beside another tier.
pub(crate) fn a_cost_that_can_never_fit_says_so<S: Store>(store: &S, _clock: &ManualClock) {
    let wide = limit("1000/s burst 1000");
    for (i, limit) in one_of_each().iter().enumerate() {
        for tiers in [1, 2] {
            let key = format!("{i}-{tiers}");
            for cost in [11, 4_000_000_001, u64::MAX] {
                let charges = [key_charge(&key, limit, cost), key_charge("wide", &wide, 1)];
                let taken = take(store, &charges[..tiers]);
                assert!(!taken.admitted);
                assert_eq!(taken.outcomes[0].fit, Fit::Never, "{limit}");
                assert_eq!(taken.outcomes[0].remaining, 10, "{limit}");
            }
        }
    }
}

pub(crate) fn a_reset_forgets<S: Store>(store: &S, _clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let (key, other) = (format!("key-{i}"), format!("other-{i}"));
        take_one(store, &key, limit, 10);
        take_one(store, &other, limit, 10);
        assert!(run(store.reset(&[Bucket::of_key(key.as_bytes())])).is_ok());
        assert_eq!(remaining(store, &key, limit), 10, "{limit}");
        assert_eq!(remaining(store, &other, limit), 0, "{limit}");
    }
}

pub(crate) fn a_refund_gives_back_what_was_taken<S: Store>(store: &S, clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let key = format!("key-{i}");
        take_one(store, &key, limit, 3);
        clock.advance(us(10));
        let charges = [key_charge(&key, limit, 5)];
        let before = picture(store, clock, &charges);
        let taken = take(store, &charges);
        refund(store, &charges, &taken);
        assert_eq!(before, picture(store, clock, &charges), "{limit}");
    }
}

pub(crate) fn a_refund_never_gives_back_what_others_used<S: Store>(store: &S, clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let key = format!("key-{i}");
        let charges = [key_charge(&key, limit, 10)];
        let taken = take(store, &charges);
        // Long enough that all of it is back anyway, and somebody else has used some.
        clock.advance(us(4_000_000));
        take_one(store, &key, limit, 6);
        refund(store, &charges, &taken);
        assert_eq!(remaining(store, &key, limit), 4, "{limit}");
    }
}

pub(crate) fn a_changed_limit_keeps_what_was_used<S: Store>(store: &S, _clock: &ManualClock) {
    for (i, (before, after)) in [
        ("5/s burst 10", "50/s burst 100"),
        ("50/s burst 100", "7/day burst 10"),
        ("5/s queue 10", "1/s queue 50"),
        ("10 per 1m fixed_window", "25 per 1h fixed_window"),
        ("10 per 1h fixed_window", "25 per 1m fixed_window"),
        ("10 per 2s sliding_log", "25 per 20s sliding_log"),
        ("10 per 1m sliding_counter", "25 per 2m sliding_counter"),
    ]
    .iter()
    .enumerate()
    {
        let (key, before, after) = (format!("key-{i}"), limit(before), limit(after));
        take_one(store, &key, &before, 8);
        assert_eq!(
            remaining(store, &key, &after),
            after.capacity() - 8,
            "{before} to {after}"
        );
        assert_eq!(remaining(store, &key, &before), before.capacity() - 8);
        let taken = take_one(store, &key, &after, 1);
        assert_eq!(taken.outcomes[0].remaining, after.capacity() - 9);
    }
}

pub(crate) fn a_lowered_limit_denies_no_longer_than_one_token_takes<S: Store>(
    store: &S,
    clock: &ManualClock,
) {
    let (high, low) = (limit("1000/min burst 1000"), limit("10/min burst 10"));
    take_one(store, "key", &high, 1_000);
    let denied = take_one(store, "key", &low, 1);
    assert!(!denied.admitted);
    assert_eq!(ready_at_us(&denied, 0), NOON_US + 6_000_000);
    clock.advance(us(6_000_000));
    assert!(take_one(store, "key", &low, 1).admitted);
}

pub(crate) fn a_shrunken_queue_lets_nobody_in_before_there_is_room<S: Store>(
    store: &S,
    clock: &ManualClock,
) {
    let (long, short) = (limit("1/s queue 100"), limit("1/s queue 5"));
    for _ in 0..100 {
        assert!(take_one(store, "key", &long, 1).admitted);
    }
    let denied = take_one(store, "key", &short, 1);
    assert_eq!(ready_at_us(&denied, 0), NOON_US + 96_000_000);
    clock.set(us(NOON_US + 96_000_000));
    // It goes after the last of the hundred, not beside one of them.
    let taken = take_one(store, "key", &short, 1);
    let go_at_us = NOON_US + 100_000_000;
    assert_eq!(taken.outcomes[0].fit, Fit::Queued { go_at_us });
}

pub(crate) fn a_much_slower_limit_does_not_overflow<S: Store>(store: &S, _clock: &ManualClock) {
    for (key, fast, slow) in [
        (
            "bucket",
            limit("10000000/s burst 4000000000"),
            limit("1/day burst 1"),
        ),
        (
            "queue",
            limit("10000000/s queue 4000000000"),
            limit("1/day queue 1"),
        ),
    ] {
        take_one(store, key, &fast, 4_000_000_000);
        let denied = take_one(store, key, &slow, 1);
        assert!(!denied.admitted);
        let outcome = denied.outcomes[0];
        assert!(
            outcome.full_at_us >= NOON_US + 86_400_000_000,
            "{outcome:?}"
        );
        assert!(
            ready_at_us(&denied, 0) >= NOON_US + 86_400_000_000,
            "{outcome:?}"
        );
    }
}

pub(crate) fn a_longer_window_is_not_cleaned_away_early<S: Store>(store: &S, clock: &ManualClock) {
    let (short, long) = (
        limit("10 per 1s sliding_log"),
        limit("10 per 1h sliding_log"),
    );
    take_one(store, "log", &short, 10);
    assert!(!take_one(store, "log", &long, 1).admitted);
    clock.advance(us(1_800_000_000));
    // A crowd passes by, so that a store cleans up what it takes for past.
    for i in 0..20_000 {
        take_one(store, &format!("other-{i}"), &short, 1);
    }
    assert!(!take_one(store, "log", &long, 1).admitted);
}

pub(crate) fn a_changed_algorithm_keeps_what_was_used<S: Store>(store: &S, _clock: &ManualClock) {
    let limits = one_of_each();
    for (i, before) in limits.iter().enumerate() {
        for (j, after) in limits.iter().enumerate() {
            let key = format!("{i}-{j}");
            take_one(store, &key, before, 7);
            assert_eq!(remaining(store, &key, after), 3, "{before} to {after}");
            let denied = take_one(store, &key, after, 4);
            assert!(!denied.admitted, "{before} to {after}");
            assert_eq!(
                remaining(store, &key, before),
                3,
                "a denial changed {before}"
            );
            assert!(
                take_one(store, &key, after, 3).admitted,
                "{before} to {after}"
            );
            assert_eq!(
                remaining(store, &key, before),
                0,
                "{before} to {after} and back"
            );
        }
    }
}

pub(crate) fn a_shadow_is_charged_alone_and_never_decides<S: Store>(
    store: &S,
    _clock: &ManualClock,
) {
    let (wide, narrow) = (limit("1/s burst 10"), limit("1/s burst 2"));
    let shadow = Charge {
        shadow: true,
        ..key_charge("shadow", &narrow, 1)
    };
    let tiers = [shadow, key_charge("real", &wide, 1)];
    for i in 0..10 {
        let taken = take(store, &tiers);
        assert!(taken.admitted);
        assert_eq!(taken.outcomes[0].fit.admits(), i < 2);
    }
    // Denied by the real one: the shadow is not charged either.
    assert!(run(store.reset(&[shadow.bucket])).is_ok());
    assert!(!take(store, &tiers).admitted);
    assert_eq!(remaining(store, "shadow", &narrow), 2);
    // Alone, a shadow admits whatever comes.
    let alone: Vec<bool> = (0..4).map(|_| take(store, &[shadow]).admitted).collect();
    assert_eq!(alone, [true; 4]);
}

pub(crate) fn a_bucket_named_twice_is_charged_for_both<S: Store>(store: &S, _clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let key = format!("key-{i}");
        let twice = [key_charge(&key, limit, 4), key_charge(&key, limit, 3)];
        assert!(take(store, &twice).admitted);
        assert_eq!(remaining(store, &key, limit), 3, "{limit}");
        let both = [key_charge(&key, limit, 2), key_charge(&key, limit, 2)];
        let denied = take(store, &both);
        assert!(!denied.admitted, "{limit}: each fits alone, both do not");
        assert_eq!(remaining(store, &key, limit), 3, "{limit}");
    }
}

pub(crate) fn different_buckets_do_not_touch_each_other<S: Store>(store: &S, _clock: &ManualClock) {
    let limit = limit("1/s burst 1");
    let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
    let ip = |last| std::net::IpAddr::from([10, 0, 0, last]);
    let requests = [
        Request::new(),
        Request::new().client(""),
        Request::new().client("x"),
        Request::new().client("x").route(""),
        Request::new().client("x").route("y"),
        Request::new().client("xy"),
        Request::new().client("x\0y"),
        Request::new().route("x"),
        Request::new().method("x"),
        Request::new().plan("x"),
        Request::new().attribute(a, "x"),
        Request::new().attribute(b, "x"),
        Request::new().ip(ip(1)),
        Request::new().ip(ip(2)),
        Request::new().client("\n\0\0\u{1}"),
        // One and the same, if parts were joined with what may be in them.
        Request::new().client("x_route_y"),
        Request::new().client("x").route("y_route"),
    ];
    let per = [
        Dimension::Client,
        Dimension::Route,
        Dimension::Method,
        Dimension::Plan,
        Dimension::Ip,
        Dimension::Attribute(a),
        Dimension::Attribute(b),
    ];
    for rule in [a, b] {
        for request in &requests {
            let charge = Charge {
                bucket: Bucket::new(rule, &per, request),
                limit: &limit,
                cost: 1,
                shadow: false,
            };
            assert!(
                take(store, &[charge]).admitted,
                "{rule} {request:?} was used already"
            );
            assert!(!take(store, &[charge]).admitted);
        }
        // And one for everybody, whoever asks.
        let everybody = |request| Charge {
            bucket: Bucket::new(rule, &[], request),
            limit: &limit,
            cost: 1,
            shadow: false,
        };
        assert!(take(store, &[everybody(&requests[0])]).admitted);
        assert!(!take(store, &[everybody(&requests[4])]).admitted);
    }
}

pub(crate) fn a_clock_that_goes_back_admits_nothing_more<S: Store>(store: &S, clock: &ManualClock) {
    for (i, limit) in one_of_each().iter().enumerate() {
        let key = format!("key-{i}");
        clock.set(us(NOON_US));
        let mut admitted = 0;
        // To and fro over 10 ms a thousand times: time stands still, so one burst and no more than a token.
        for i in 0..1_000 {
            clock.set(us(NOON_US + 10_000 * (i % 2)));
            admitted += u64::from(take_one(store, &key, limit, 1).admitted);
        }
        assert_eq!(admitted, 10, "{limit}");
    }
}

/// By itself and beside another tier.
pub(crate) fn knocking_while_denied_does_not_delay_the_next_token<S: Store>(
    store: &S,
    clock: &ManualClock,
) {
    let (slow, wide) = (limit("1/s burst 1"), limit("1000/s burst 1000"));
    for tiers in [1, 2] {
        let key = format!("key-{tiers}");
        let charges = [key_charge(&key, &slow, 1), key_charge("wide", &wide, 1)];
        let mut admitted = 0;
        for _ in 0..300 {
            admitted += u32::from(take(store, &charges[..tiers]).admitted);
            clock.advance(us(100_000));
        }
        assert_eq!(admitted, 30);
    }
}

pub(crate) fn leaky_releases_are_spaced_by_the_rate<S: Store>(store: &S, clock: &ManualClock) {
    let limit = limit("3000/s queue 5000");
    let mut releases = Vec::new();
    for burst in 0..3 {
        clock.set(us(NOON_US + burst * 1_000_000));
        for _ in 0..6_000 {
            let taken = take_one(store, "drivers", &limit, 1);
            match taken.outcomes[0].fit {
                Fit::Now => releases.push((taken.at_us, 1)),
                Fit::Queued { go_at_us } => releases.push((go_at_us, 1)),
                _ => {}
            }
        }
    }
    assert_eq!(releases.len(), 5_000 + 3_000 + 3_000);
    let log = tollgate_referee::Log::new(releases);
    assert_eq!(log.most_in_any_window(1_000_000).admitted, 3_000);
    assert_eq!(log.most_in_any_window(1_000).admitted, 3);
}

/// What costs more than one goes out at once: the largest cost comes on top, less the one that rounding up stands for.
pub(crate) fn leaky_releases_of_any_cost_are_spaced_by_the_rate<S: Store>(
    store: &S,
    clock: &ManualClock,
) {
    const LARGEST: u64 = 7;
    let limit = limit("7 per 3ms queue 90");
    let mut releases = Vec::new();
    for nth in 0..600_u64 {
        // The queue fills up, then stays as it is, and at last is empty.
        clock.advance(us(match nth % 60 {
            ..30 => 0,
            30..59 => 1_801,
            _ => 40_000,
        }));
        let cost = 1 + nth * 5 % LARGEST;
        let taken = take_one(store, "parcels", &limit, cost);
        match taken.outcomes[0].fit {
            Fit::Now => releases.push((taken.at_us, cost)),
            Fit::Queued { go_at_us } => releases.push((go_at_us, cost)),
            _ => {}
        }
    }
    assert!((100..600).contains(&releases.len()), "{}", releases.len());
    let log = tollgate_referee::Log::new(releases);
    for window_us in [1, 428, 429, 1_000, 3_000, 3_001, 77_777, 400_000] {
        let most = log.most_in_any_window(window_us);
        let by_rate = (7 * window_us).div_ceil(3_000);
        assert!(most.admitted < by_rate + LARGEST, "{window_us}: {most}");
    }
    assert_eq!(log.most_in_any_window(1).admitted, LARGEST);
}
