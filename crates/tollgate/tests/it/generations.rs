//! Rules that change under traffic: each decision is by one set as a whole, and what was used stays used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use tollgate::{Cost, Dimension, Limiter, LocalLimiter, Match, Request, Rule, RuleSet};
use tollgate_referee::{Bound, Log};

use crate::concurrency::at_us;
use crate::support::{clock, limit, memory, run};

/// Generation `n` has two rules whose figures both say `n`, and so a mixture would be seen.
fn generation(n: u64, room: u64) -> RuleSet {
    let rule = |id: &str| {
        let limit = limit(&format!("1/h burst {}", room + n));
        Rule::new(id, limit).unwrap().per([Dimension::Client])
    };
    let everywhere = Match::new().path("/{*rest}".parse().unwrap());
    RuleSet::new([rule("one"), rule("two").when(everywhere)])
        .unwrap()
        .with_generation(n)
}

#[test]
fn a_hundred_generations_under_eight_threads_mix_never_and_admit_no_more() {
    const ROOM: u64 = 100_000;
    const GENERATIONS: u64 = 100;
    let limiter = Arc::new(LocalLimiter::with_store(memory(&clock())));
    limiter.set_rules(generation(1, ROOM));
    let (admitted, decided) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    let start = Barrier::new(9);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let path = tollgate::PathRules::default()
                    .normalise("/v1/charges")
                    .unwrap();
                start.wait();
                let (mut last, mut passed) = (0, Vec::new());
                while !is_over.load(Ordering::Relaxed) {
                    let decision = limiter.decide(&Request::new().client("a").path(&path));
                    let by = decision.generation();
                    assert!(by >= last, "generation {by} after {last}");
                    last = by;
                    assert_eq!(decision.tiers().len(), 2);
                    for tier in decision.tiers() {
                        assert_eq!(tier.limit().capacity(), ROOM + by, "a mixed generation");
                    }
                    decided.fetch_add(1, Ordering::Relaxed);
                    if decision.allowed() {
                        passed.push((at_us(&decision), 1));
                    }
                }
                admitted.lock().unwrap().append(&mut passed);
            });
        }
        start.wait();
        for n in 2..=GENERATIONS {
            limiter.set_rules(generation(n, ROOM));
            // Each generation decides for a while.
            let until = decided.load(Ordering::Relaxed) + 2_000;
            while decided.load(Ordering::Relaxed) < until {
                thread::yield_now();
            }
        }
        while decided.load(Ordering::Relaxed) < 2 * (ROOM + GENERATIONS) {
            thread::yield_now();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // The clock stands still: exactly what the last generation holds, and usage was carried over a hundred times.
    let log = Log::new(admitted.into_inner().unwrap());
    let excess = log.excess(Bound::Bucket {
        burst: ROOM + GENERATIONS,
        count: 1,
        period_us: 3_600_000_000,
    });
    assert_eq!(excess.tokens, 0, "{excess}");
    assert_eq!(log.admitted(), ROOM + GENERATIONS);
    assert_eq!(limiter.rules().generation(), GENERATIONS);
}

#[test]
fn what_was_used_stays_used_and_a_decision_says_by_which_generation() {
    let limiter = Limiter::new(memory(&clock()));
    limiter.set_rules(generation(1, 9));
    let path = tollgate::PathRules::default().normalise("/").unwrap();
    let request = Request::new().client("a").path(&path);
    let first = run(limiter.decide(&request.clone().cost(6)));
    assert_eq!((first.generation(), first.remaining()), (1, Some(4)));
    limiter.set_rules(generation(11, 9));
    let second = run(limiter.decide(&request));
    assert_eq!((second.generation(), second.remaining()), (11, Some(13)));
    // Rules that are kept elsewhere, for one decision.
    let third = run(limiter
        .matched(&generation(3, 9).matching(&request))
        .decide());
    assert_eq!((third.generation(), third.remaining()), (3, Some(4)));
    let looked = run(limiter
        .matched(&generation(4, 9).matching(&request.cost(0)))
        .peek());
    assert_eq!((looked.generation(), looked.remaining()), (4, Some(5)));
    assert_eq!(limiter.rules().generation(), 11);
}

/// Rules by which a request of `a` costs so much, counted by these.
fn costing(cost: u64, per: Dimension) -> RuleSet {
    let rule = Rule::new("one", limit("1/h burst 20")).unwrap().per([per]);
    RuleSet::new([rule])
        .unwrap()
        .with_costs([Cost::new(Match::new(), cost)])
}

#[test]
fn a_refund_gives_back_what_was_taken_whatever_the_rules_say_by_then() {
    let request = Request::new().client("a").plan("free");
    let left =
        |limiter: &LocalLimiter| limiter.request(&request.clone().cost(0)).peek().remaining();
    // Dearer by now: no more comes back than was taken.
    let limiter = LocalLimiter::with_store(memory(&clock()));
    limiter.set_rules(costing(2, Dimension::Client));
    let decision = limiter.decide(&request);
    let _ = limiter.decide(&request.clone().cost(15));
    limiter.set_rules(costing(10, Dimension::Client));
    assert_eq!(left(&limiter), Some(3));
    limiter.request(&request).refund(decision);
    assert_eq!(left(&limiter), Some(5));

    // Counted by something else by now: nothing was taken there.
    let limiter = LocalLimiter::with_store(memory(&clock()));
    limiter.set_rules(costing(2, Dimension::Client).with_generation(1));
    let decision = limiter.decide(&request);
    limiter.set_rules(costing(2, Dimension::Plan).with_generation(2));
    let _ = limiter.decide(&request.clone().cost(15));
    limiter.request(&request).refund(decision);
    assert_eq!(left(&limiter), Some(5));
}

#[test]
fn what_was_decided_by_rules_kept_elsewhere_can_be_given_back() {
    let limiter = Limiter::new(memory(&clock()));
    let rules = costing(2, Dimension::Client).with_generation(7);
    let request = Request::new().client("a");
    let met = rules.matching(&request);
    let decision = run(limiter.matched(&met).decide());
    assert_eq!(decision.remaining(), Some(18));
    run(limiter.matched(&met).refund(decision));
    assert_eq!(run(limiter.matched(&met).peek()).remaining(), Some(20));
}
