//! Floods of keys: memory stays within its bound, newcomers are served, and no bucket that is more than half used is forgotten.

use tollgate::store::{MemoryConfig, MemoryStore};
use tollgate::{Clock, Limiter, ManualClock};

use crate::support::{NOON_US, clock, limit, run, us};

fn small(clock: &ManualClock, max_keys: usize) -> Limiter {
    Limiter::new(MemoryStore::with_config(
        MemoryConfig::default()
            .max_keys(max_keys)
            .max_log_entries(10_000)
            .clock(Clock::from(clock)),
    ))
}

#[test]
fn a_flood_of_new_keys_stays_within_the_bound() {
    let clock = clock();
    // One request uses half of the first limit, and all of the second.
    for (text, evicts) in [("1/min burst 2", true), ("1/min burst 1", false)] {
        let limiter = small(&clock, 1_000);
        let limit = limit(text);
        for i in 0..100_000_u32 {
            let _ = run(limiter.check(i.to_be_bytes(), &limit, 1));
        }
        let stats = limiter.memory_stats().unwrap();
        // A few shared buckets may come on top.
        assert!(stats.keys <= 1_000 + 17, "{stats:?}");
        // 60 bytes a key, and some chunks of 64 slots.
        let bound = 60 * 1_000 + 10 * 64 * 24;
        assert!(stats.slots * 24 <= bound, "{stats:?}");
        assert_eq!(stats.evicted > 0, evicts, "{stats:?}");
        assert_eq!(stats.shared > 50_000, !evicts, "{stats:?}");
    }
}

/// With each algorithm: a flood of keys that are used once, and newcomers in between who want no more than they may.
#[test]
fn newcomers_are_served_in_a_flood_of_new_keys() {
    for text in [
        "5/h",
        "5/h queue 5",
        "5 per 1h fixed_window",
        "5 per 1h sliding_log",
        "5 per 1h sliding_counter",
    ] {
        let clock = clock();
        let limiter = small(&clock, 1_000);
        let limit = limit(text);
        let (mut served, mut beyond) = (0, 0);
        for i in 0..100_000_u32 {
            let _ = run(limiter.check(i.to_be_bytes(), &limit, 1));
            if i.is_multiple_of(500) {
                let newcomer = format!("newcomer-{i}");
                let all = (0..5).all(|_| run(limiter.check(&newcomer, &limit, 1)).allowed());
                served += u32::from(all);
                beyond += u32::from(run(limiter.check(&newcomer, &limit, 1)).allowed());
            }
        }
        assert_eq!((served, beyond), (200, 0), "{text}");
        assert_eq!(limiter.memory_stats().unwrap().shared, 0, "{text}");
    }
}

#[test]
fn a_flood_evicts_its_own_keys_first() {
    let clock = clock();
    let limiter = small(&clock, 1_000);
    let limit = limit("5/h");
    let clients: Vec<String> = (0..100).map(|i| format!("client-{i}")).collect();
    for client in &clients {
        let _ = run(limiter.check(client, &limit, 2));
    }
    for i in 0..20_000_u32 {
        let _ = run(limiter.check(i.to_be_bytes(), &limit, 1));
    }
    let kept = (clients.iter())
        .filter(|client| run(limiter.check(client, &limit, 0)).remaining() == Some(3))
        .count();
    // A chunk that holds few keys of the flood evicts a client now and then.
    assert!(kept >= 70, "{kept}");
}

#[test]
fn every_key_up_to_the_bound_has_its_own_bucket() {
    let clock = clock();
    let limiter = small(&clock, 1_000);
    let limit = limit("1/min burst 1");
    for i in 0..1_000_u32 {
        let decision = run(limiter.check(i.to_be_bytes(), &limit, 1));
        assert!(decision.allowed() && !decision.tiers()[0].is_shared());
    }
    let next = run(limiter.check(b"one more", &limit, 1));
    assert!(next.tiers()[0].is_shared());
    assert_eq!(limiter.memory_stats().unwrap().shared, 1);
}

/// More than half of its limit is used, by each algorithm.
#[test]
fn a_flood_does_not_reset_a_heavily_used_bucket() {
    for text in [
        "1/h burst 3",
        "1/h queue 3",
        "3 per 1d fixed_window",
        "3 per 1d sliding_log",
        "3 per 1d sliding_counter",
    ] {
        let clock = clock();
        let limiter = small(&clock, 500);
        let limit = limit(text);
        for _ in 0..2 {
            assert!(run(limiter.check("victim", &limit, 1)).allowed());
        }
        for i in 0..50_000_u32 {
            let _ = run(limiter.check(i.to_be_bytes(), &limit, 1));
            if i.is_multiple_of(1_000) {
                let left = run(limiter.check("victim", &limit, 0));
                assert_eq!(left.remaining(), Some(1), "{text}");
                assert!(!left.tiers()[0].is_shared());
            }
        }
        assert!(limiter.memory_stats().unwrap().evicted > 10_000, "{text}");
    }
}

/// Somebody uses half of a limit, has its key evicted by a flood of keys that are used as much, and begins anew.
#[test]
fn a_key_that_is_evicted_again_and_again_stays_within_the_stated_bound() {
    const MAX_KEYS: u32 = 1_000;
    let clock = clock();
    let limiter = small(&clock, MAX_KEYS as usize);
    let limit = limit("10/h burst 10");
    let mut log = Vec::new();
    let mut now_us = NOON_US;
    for i in 0..100_000_u32 {
        // Later than the victim's, so they would expire later.
        let _ = run(limiter.check(i.to_be_bytes(), &limit, 5));
        if run(limiter.check("victim", &limit, 0)).remaining() > Some(5) {
            let fits = (0..5).take_while(|_| run(limiter.check("victim", &limit, 1)).allowed());
            log.push((now_us, fits.count() as u64));
        }
        now_us += 100;
        clock.set(us(now_us));
    }
    // While a hundred times as many new keys came as there may be.
    let evictions = 3 + 32 * 100_000 / u64::from(MAX_KEYS);
    let bound = |evictions: u64| tollgate_referee::Bound::Bucket {
        burst: 10 + evictions * 5,
        count: 10,
        period_us: 3_600_000_000,
    };
    let log = tollgate_referee::Log::new(log);
    let excess = log.excess(bound(0));
    assert!(excess.tokens > 100, "it was not put to the test: {excess}");
    let excess = log.excess(bound(evictions));
    assert_eq!(excess.tokens, 0, "{excess}");
}

#[test]
fn keys_that_share_are_limited_together() {
    let clock = clock();
    let limiter = small(&clock, 64);
    let limit = limit("1/min burst 2");
    for i in 0..64_u32 {
        // More than half of the limit, so none of them is evicted.
        let _ = run(limiter.check(i.to_be_bytes(), &limit, 2));
    }
    let admitted = (0..1_000_u32)
        .filter(|i| run(limiter.check(format!("new-{i}"), &limit, 1)).allowed())
        .count();
    assert_eq!(admitted, 2, "one shared bucket of two");
}

#[test]
fn what_says_nothing_any_more_makes_room_by_itself() {
    let clock = clock();
    let limiter = small(&clock, 1_000);
    let limit = limit("10/s burst 10");
    for round in 0..50_u32 {
        for i in 0..1_000_u32 {
            let key = [round.to_be_bytes(), i.to_be_bytes()].concat();
            let _ = run(limiter.check(key, &limit, 10));
        }
        clock.advance(us(1_100_000));
    }
    let stats = limiter.memory_stats().unwrap();
    assert_eq!(stats.live_keys, 0, "{stats:?}");
    // Rounds begin with the last round's keys still there; the sweep keeps pace with the new ones.
    assert!(stats.shared < 5_000, "{stats:?}");
}

#[test]
fn a_quiet_store_is_cleaned_and_its_memory_used_again() {
    let clock = clock();
    let limiter = small(&clock, 100_000);
    let limit = limit("10/s burst 10");
    let flood = |name: &str| {
        for i in 0..90_000_u32 {
            let decision = run(limiter.check(format!("{name}-{i}"), &limit, 1));
            assert!(!decision.tiers()[0].is_shared());
        }
    };
    flood("first");
    let slots = limiter.memory_stats().unwrap().slots;
    assert!(slots >= 90_000);
    clock.advance(us(60_000_000));
    // A few clients go on; the takes alone clean up.
    for i in 0..4_000_000_u32 {
        clock.advance(us(1));
        let _ = run(limiter.check((i % 512).to_be_bytes(), &limit, 1));
    }
    assert!(
        limiter.memory_stats().unwrap().keys < 1_000,
        "{:?}",
        limiter.memory_stats().unwrap()
    );
    clock.advance(us(60_000_000));
    flood("second");
    let again = limiter.memory_stats().unwrap().slots;
    assert!(again < slots + slots / 6, "{slots} slots became {again}");
}

#[test]
fn a_flood_of_log_entries_is_merged_and_admits_nothing_more() {
    let clock = clock();
    let limiter = Limiter::new(MemoryStore::with_config(
        MemoryConfig::default()
            .max_keys(10)
            .max_log_entries(100)
            .clock(Clock::from(&clock)),
    ));
    let limit = limit("1000 per 1s sliding_log");
    let mut log = Vec::new();
    for at in 0..5_000 {
        clock.advance(us(700));
        if run(limiter.check("key", &limit, 1)).allowed() {
            log.push((at * 700, 1));
        }
    }
    assert!(
        limiter.memory_stats().unwrap().log_entries <= 101,
        "{:?}",
        limiter.memory_stats().unwrap()
    );
    let most = tollgate_referee::Log::new(log).most_in_any_window(1_000_000);
    assert!(most.admitted <= 1_000, "{most}");
    assert!(most.admitted >= 900, "{most}");
}

#[test]
fn one_log_may_use_all_the_room_there_is() {
    let clock = clock();
    let limiter = Limiter::new(MemoryStore::with_config(
        MemoryConfig::default()
            .max_keys(1_000_000)
            .max_log_entries(20_000)
            .clock(Clock::from(&clock)),
    ));
    let limit = limit("20000 per 1m sliding_log");
    for _ in 0..20_000 {
        clock.advance(us(1));
        assert!(run(limiter.check("key", &limit, 1)).allowed());
    }
    assert_eq!(limiter.memory_stats().unwrap().log_entries, 20_000);
    run(limiter.key("key", &limit).reset()).unwrap();
    assert_eq!(limiter.memory_stats().unwrap().log_entries, 0);
}

#[test]
fn what_was_taken_from_a_shared_bucket_is_not_given_back_to_a_key() {
    let clock = clock();
    let limiter = small(&clock, 2);
    let limit = limit("1/day burst 10");
    let _ = run(limiter.check("first", &limit, 1));
    let _ = run(limiter.check("another", &limit, 1));
    let decision = run(limiter.check("second", &limit, 10));
    assert!(decision.allowed() && decision.tiers()[0].is_shared());
    run(limiter.key("first", &limit).reset()).unwrap();
    run(limiter.key("another", &limit).reset()).unwrap();
    // Now there is room for a bucket of its own.
    assert!(run(limiter.check("second", &limit, 10)).allowed());
    run(limiter.key("second", &limit).refund(decision));
    assert!(!run(limiter.check("second", &limit, 1)).allowed());
}

/// What a key used in a shared bucket stays there: with a bucket of its own it may use as much again, and no more, however often it goes
/// to and fro.
#[test]
fn a_key_that_gets_its_own_bucket_uses_at_most_as_much_again() {
    let clock = clock();
    let limiter = small(&clock, 2);
    let limit = limit("10/s burst 10");
    let mut log = Vec::new();
    let mut shared = 0;
    let mut now_us = NOON_US;
    for round in 0..200_u64 {
        // Others fill the store, and are forgotten after a tenth of a second; the key, if it rests for long enough.
        let _ = run(limiter.check(format!("first-{round}"), &limit, 1));
        let _ = run(limiter.check(format!("second-{round}"), &limit, 1));
        for pause_us in [110_000, 200_000 + round * 7_919 % 1_300_000] {
            for _ in 0..30 {
                let decision = run(limiter.check("key", &limit, 1));
                if decision.allowed() {
                    log.push((now_us, 1));
                    shared += u32::from(decision.tiers()[0].is_shared());
                }
            }
            now_us += pause_us;
            clock.set(us(now_us));
        }
    }
    let bound = |times: u64| tollgate_referee::Bound::Bucket {
        burst: times * 10,
        count: times * 10,
        period_us: 1_000_000,
    };
    let log = tollgate_referee::Log::new(log);
    assert!(shared > 0 && u64::from(shared) < log.admitted(), "{shared}");
    assert!(
        log.excess(bound(1)).tokens > 0,
        "it was not put to the test"
    );
    assert_eq!(log.excess(bound(2)).tokens, 0, "{}", log.excess(bound(2)));
}

#[test]
fn everybodys_bucket_is_its_own_also_when_the_store_is_full() {
    use tollgate::{Dimension, Request, Rule};
    let clock = clock();
    let limiter = small(&clock, 10)
        .with_rules([
            Rule::new("client", limit("1/min burst 100"))
                .unwrap()
                .per([Dimension::Client]),
            Rule::new("everyone", limit("1/min burst 50")).unwrap(),
        ])
        .unwrap();
    let mut admitted = 0;
    for i in 0..200 {
        let client = format!("client-{i}");
        let decision = run(limiter.decide(&Request::new().client(&client)));
        admitted += u32::from(decision.allowed());
        assert!(!decision.tiers()[1].is_shared());
    }
    assert_eq!(admitted, 50);
}
