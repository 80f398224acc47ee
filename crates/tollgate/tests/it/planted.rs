//! The suite can fail: the bugs that such scripts usually have are put into ours one by one, and each must be found by the check
//! that is there for it. One that is not found fails the build.

use std::time::Duration;

use tollgate::store::RedisTls;
use tollgate::store::contract::{Charge, StoreOperations as _};
use tollgate::{Algorithm, Bucket, Clock, Dimension, ManualClock, Name, Request};

use crate::contract::key_charge;
use crate::inspect::over_redis;
use crate::naive::{Habit, Naive};
use crate::panics::panics;
use crate::server::{Clustered, OwnRedis, store_at, store_with_bug_at};
use crate::support::{clock, limit, one_of_each, run};
use crate::{contract, same_answers};

/// Expects that a check fails on a store with this bug, and passes on the one without.
fn is_found(bug: (&str, &str), check: impl Fn(&OwnRedis, &ManualClock)) {
    let hand = clock();
    check(&OwnRedis::start(Clock::from(&hand)), &hand);
    let hand = clock();
    let store = OwnRedis::start_with_bug(Clock::from(&hand), bug);
    let found = panics(|| check(&store, &hand));
    assert!(found, "nobody noticed {bug:?}");
}

macro_rules! planted {
    ($($name:ident: $from:literal => $to:literal, found by $($check:ident)::+;)*) => {
        $(
            #[test]
            fn $name() {
                is_found(($from, $to), $($check)::+);
            }
        )*
    };
}

macro_rules! habits {
    ($($name:ident: $habit:ident, found by $($check:ident)::+;)*) => {
        $(
            #[test]
            fn $name() {
                let hand = clock();
                $($check)::+(&OwnRedis::start(Clock::from(&hand)), &hand);
                // Who does not look for it finds nothing.
                let (store, hand) = Naive::start(Habit::$habit);
                contract::takes_until_nothing_is_left(&store, &hand);
                let (store, hand) = Naive::start(Habit::$habit);
                assert!(panics(|| $($check)::+(&store, &hand)), "nobody noticed");
            }
        )*
    };
}

planted! {
    charges_before_all_tiers_passed:
        "local passes = admitted and fit <= QUEUED" => "local passes = fit <= QUEUED",
        found by contract::a_denial_by_the_last_of_five_tiers_changes_none;
    charges_token_buckets_before_all_passed:
        "if admitted and a >= 0 and cost > 0 then" => "if a >= 0 and cost > 0 then",
        found by contract::a_denial_by_the_last_of_five_tiers_changes_none;
    clock_not_clamped:
        "if whole < 0 then whole = 0 end" => "if whole < 0 then whole = -whole end",
        found by contract::a_clock_that_goes_back_admits_nothing_more;
    a_single_callers_mark_moves_on_a_rejection:
        "passes = fits or shadow == 1" =>
            "if value and not fits then call('SETRANGE', key, '12', pack('<dd', now, math.ceil((a - cost) / UTOK) * UTOK)) end \
             passes = fits or shadow == 1",
        found by contract::knocking_while_denied_does_not_delay_the_next_token;
    the_mark_of_token_buckets_moves_on_a_rejection:
        "a, is_usual = -1, false" =>
            "if value then value = pack('<I4ddddd', lives[slot], tier[4], now, math.ceil((a - cost) / UTOK) * UTOK, limit[5], y) \
             values[subject], changed[subject] = value, value end \
             a, is_usual = -1, false",
        found by contract::knocking_while_denied_does_not_delay_the_next_token;
    writes_on_a_rejection:
        "if r[1] and empty > forget_at(r[1], r[4]) then" => "if r[1] then r[1], r[7] = now, true elseif false then",
        found by contract::a_denial_changes_nothing_in_any_algorithm;
    timestamps_through_tostring:
        "  now = sent\nelse" => "  now = tonumber(tostring(sent))\nelse",
        found by contract::retry_after_is_true_to_the_microsecond;
    a_wait_for_what_never_fits:
        "return NEVER, 0, remaining, at, a, LEVEL" => "return LATER, at + 1000000, remaining, at, a, LEVEL",
        found by contract::a_cost_that_can_never_fit_says_so;
    waits_are_cut_to_whole_seconds:
        "local fit, time = fits[i], times[i]" =>
            "local fit, time = fits[i], times[i] if fit == LATER then time = time - (time - now) % UTOK end",
        found by contract::retry_after_is_true_to_the_microsecond;
    whoever_comes_first_may_take_more_than_there_is:
        "if cost == 0 then fits[i] = NOW end" => "if cost == 0 or not rs[i][1] then fits[i] = NOW end",
        found by contract::a_cost_that_can_never_fit_says_so;
    a_single_caller_who_comes_first_may_take_more_than_there_is:
        "cost == 0 or a <= room + part" => "cost == 0 or not value or a <= room + part",
        found by contract::a_cost_that_can_never_fit_says_so;
    whoever_comes_first_to_token_buckets_may_take_more_than_there_is:
        "elseif a > limit[3] + part then" => "elseif value and a > limit[3] + part then",
        found by contract::a_cost_that_can_never_fit_says_so;
    refunds_what_others_used:
        "a = max(a - max(cost * UTOK - gone, 0), 0)" => "a = max(a - cost * UTOK, 0)",
        found by contract::a_refund_never_gives_back_what_others_used;
    a_shadow_decides:
        "if shadow == 0 and fits[i] >= LATER then" => "if fits[i] >= LATER then",
        found by answers_like_memory_in_windows;
    a_shadow_decides_on_token_buckets:
        "if tier[3] == 0 then admitted = false end" => "admitted = false",
        found by contract::a_shadow_is_charged_alone_and_never_decides;
    a_bucket_named_twice_counts_once:
        "then cost = cost + costs[j] end" => "then end",
        found by contract::a_bucket_named_twice_is_charged_for_both;
    saves_up_more_than_the_burst:
        "a, part = 0, 0" => "a, part = a - gone, 0",
        found by answers_like_memory;
    rounds_in_the_callers_favour:
        "elseif a > limit[3] + part then" => "elseif a >= limit[3] + part + UTOK then",
        found by half_a_token_is_none;
    rounds_in_a_single_callers_favour:
        "cost == 0 or a <= room + part" => "cost == 0 or a < room + part + UTOK",
        found by half_a_token_is_none;
    a_single_caller_who_takes_nothing_is_denied:
        "cost == 0 or a <= room + part" => "a <= room + part",
        found by who_takes_nothing_passes;
    a_single_shadow_decides:
        "passes = fits or shadow == 1" => "passes = fits",
        found by answers_like_memory;
    charges_a_single_caller_for_what_does_not_fit:
        "elseif fits and cost > 0 then" => "elseif cost > 0 then",
        found by contract::a_denial_changes_nothing_in_any_algorithm;
    takes_the_others_for_like_the_first:
        "alike = alike - 1" => "",
        found by each_has_its_own_limit;
    a_single_caller_forgets_its_other_buckets:
        "elseif not value or #value == 44 then" => "elseif true then",
        found by buckets_of_one_subject_keep_apart;
    charges_a_single_caller_for_another_rule:
        "if slowly or there ~= id or b ~= mark" => "if slowly or b ~= mark",
        found by buckets_of_one_subject_keep_apart;
    forgets_to_charge_a_single_caller_who_has_other_buckets:
        "slowly, again = true, true" => "slowly = true",
        found by buckets_of_one_subject_keep_apart;
    forgets_what_is_seldom_for_a_single_caller:
        "call('SET', key, changed[i], 'PX', left)" => "",
        found by answers_like_memory;
    takes_over_nothing_from_another_limit:
        "local old = { at, a, b, e }" => "local old = { at, a, b, e } at, a = 0, 0",
        found by contract::a_changed_limit_keeps_what_was_used;
    forgets_what_several_met:
        "for subject in pairs(states) do pack_state(subject) end" => "",
        found by what_several_meet_is_charged_for_each;
    forgets_what_was_met_in_another_way:
        "then value, state = pack_state(subject), nil end" => "then state = nil end",
        found by what_several_meet_is_charged_for_each;
    forgets_the_window_before:
        "local weight, rest = muldiv(b, y - time % y, y)" => "local weight, rest = 0, 0",
        found by answers_like_memory_in_windows;
    expires_before_it_is_full:
        "left = (latest > now and latest - now or 0) / 500" => "left = 0",
        found by nothing_expires_before_it_is_full;
    an_expiry_of_the_burst_by_nothing:
        "RATED - x, y / x * 17 / 16 }" => "RATED - x, 17 / 16 / math.floor(x / y) }",
        found by nothing_expires_before_it_is_full;
    an_expiry_of_a_single_callers_burst_by_nothing:
        "mark, life = RATED - x, y / x * 17 / 16" => "mark, life = RATED - x, 17 / 16 / math.floor(x / y)",
        found by nothing_expires_before_it_is_full;
    keeps_an_expiry_that_is_too_short:
        "if latest > head * UTOK then head, lefts[subject]" => "if false then head, lefts[subject]",
        found by nothing_expires_before_it_is_full;
    keeps_an_expiry_that_is_too_short_for_a_single_caller:
        "if latest <= head * UTOK then" => "if head > 0 then",
        found by nothing_expires_before_it_is_full;
    a_single_caller_never_expires:
        "mark, y), 'PX', left)" => "mark, y))",
        found by everything_expires_when_it_is_full;
    never_expires:
        "call('SET', KEYS[subject], value, 'PX', left)" => "call('SET', KEYS[subject], value)",
        found by everything_expires_when_it_is_full;
    a_peek_charges:
        "local charging, blob = ARGV[1] == '1'" => "local charging, blob = true",
        found by contract::a_peek_takes_nothing;
    looking_keeps_alive:
        "local value, said = " => "call('PEXPIRE', KEYS[1], 99999999) local value, said = ",
        found by over_redis::changes_nothing;
    looking_makes_keys:
        "local value, said = " => "call('APPEND', KEYS[1], '') local value, said = ",
        found by over_redis::changes_nothing;
}

habits! {
    reads_in_one_call_and_writes_in_another: WritesInAnotherCall,
        found by contract::many_at_once_take_exactly_what_is_there;
    two_subjects_in_one_bucket: JoinsNames,
        found by contract::different_buckets_do_not_touch_each_other;
    a_wait_under_a_second_is_none: CutsWaits,
        found by contract::retry_after_is_true_to_the_microsecond;
}

/// Only a cluster minds: what is not declared may lie elsewhere.
#[test]
fn touches_keys_that_were_not_declared() {
    let bug = (
        "local key = KEYS[i]",
        "local key = string.gsub(KEYS[i], '[{}]', '')",
    );
    let hand = clock();
    let alone = OwnRedis::start_with_bug(Clock::from(&hand), bug);
    contract::takes_until_nothing_is_left(&alone, &hand);
    let clustered = Clustered::start();
    let hand = clock();
    let store = store_at(
        &clustered.url(),
        RedisTls::default(),
        "well",
        Clock::from(&hand),
    );
    contract::takes_until_nothing_is_left(&store, &hand);
    let hand = clock();
    let store = store_with_bug_at(&clustered.url(), Clock::from(&hand), bug);
    let found = panics(|| contract::takes_until_nothing_is_left(&store, &hand));
    assert!(found, "nobody noticed {bug:?}");
}

fn answers_like_memory(store: &OwnRedis, hand: &ManualClock) {
    same_answers::compare_with(store, hand.clone(), Algorithm::TokenBucket, 2_000);
}

fn answers_like_memory_in_windows(store: &OwnRedis, hand: &ManualClock) {
    same_answers::compare_with(store, hand.clone(), Algorithm::SlidingCounter, 2_000);
}

/// By itself and beside another tier, which are different scripts.
fn half_a_token_is_none(store: &OwnRedis, hand: &ManualClock) {
    let (few, many) = (limit("1/s burst 2"), limit("1000/s burst 1000"));
    for tiers in [1, 2] {
        let key = format!("half-{tiers}");
        let admits = |cost| {
            let charges = [
                key_charge(&key, &few, cost),
                key_charge("beside", &many, cost),
            ];
            run(store.take(&charges[..tiers])).unwrap().admitted
        };
        assert!(admits(2));
        hand.advance(Duration::from_millis(500));
        assert!(!admits(1));
    }
}

/// Also where a limit was lowered below what is used.
fn who_takes_nothing_passes(store: &OwnRedis, _hand: &ManualClock) {
    for (limit, cost) in [("10/7s burst 2", 2), ("10/7s burst 1", 0)] {
        let taken =
            run(store.take(&[key_charge("nothing", &limit.parse().unwrap(), cost)])).unwrap();
        assert!(taken.admitted, "{cost} of {limit}");
    }
}

/// Each by itself: the second is not where it is mostly found, and the first comes to live longer than both did.
fn buckets_of_one_subject_keep_apart(store: &OwnRedis, _hand: &ManualClock) {
    let (request, limit) = (Request::new().client("one"), limit("1/s burst 1000"));
    let take = |rule, cost| {
        let charge = Charge {
            bucket: Bucket::new(Name::new(rule).unwrap(), &[Dimension::Client], &request),
            limit: &limit,
            cost,
            shadow: false,
        };
        run(store.take(&[charge])).unwrap().outcomes[0].remaining
    };
    assert_eq!((take("first", 1), take("second", 2)), (999, 998));
    assert_eq!(take("first", 500), 499);
    assert_eq!((take("second", 0), take("first", 0)), (998, 499));
}

/// Two at once mostly go in one call.
fn each_has_its_own_limit(store: &OwnRedis, _hand: &ManualClock) {
    let (wide, narrow) = (limit("1/h burst 1000"), limit("1/h burst 1"));
    for _ in 0..100 {
        let (wide, narrow) = (
            [key_charge("wide", &wide, 2)],
            [key_charge("narrow", &narrow, 2)],
        );
        let both = async { tokio::join!(store.take(&wide), store.take(&narrow)) };
        let (wide, narrow) = run(both);
        assert!(wide.unwrap().admitted && !narrow.unwrap().admitted);
    }
}

/// Also if one of them has another limit for it, as every second time. At once, they mostly go in one call.
fn what_several_meet_is_charged_for_each(store: &OwnRedis, _hand: &ManualClock) {
    let own = limit("1/h burst 1000");
    let alls = [limit("1/h burst 500"), limit("2/h burst 500")];
    let take = |key, all, cost| {
        let charges = [key_charge(key, &own, cost), key_charge("all", all, cost)];
        async move { store.take(&charges).await.unwrap() }
    };
    for n in 0..50 {
        let (all, others) = (&alls[0], &alls[n % 2]);
        run(async { tokio::join!(take("a", all, 1), take("b", all, 1), take("c", others, 1)) });
    }
    assert_eq!(run(take("a", &alls[0], 0)).outcomes[1].remaining, 350);
}

/// How long Redis keeps what was taken, and how long it must, in milliseconds.
fn expiries(store: &OwnRedis) -> Vec<(i64, i64)> {
    let mut limits = one_of_each().to_vec();
    limits.extend([limit("1/h burst 10"), limit("10 per 1d fixed_window")]);
    let beside = limit("1000/s");
    // By itself, and beside another tier, which is another script for token buckets.
    let ways = (limits.iter()).flat_map(|limit| [(limit, 1), (limit, 2)]);
    let kept = |(i, (limit, tiers)): (usize, (&_, usize))| {
        let key = format!("key-{i}");
        let take = |cost| {
            let charges = [
                key_charge(&key, limit, cost),
                key_charge("beside", &beside, cost),
            ];
            run(store.take(&charges[..tiers])).unwrap()
        };
        // Twice, as the second may keep what the first set, if that is enough.
        take(1);
        let taken = take(2);
        let must_us = taken.outcomes[0].full_at_us - taken.at_us;
        let kept_ms: i64 = store.server().ask(&format!("PTTL tollgate:{{key:{key}}}"));
        (kept_ms, i64::try_from(must_us).unwrap() / 1_000)
    };
    ways.enumerate().map(kept).collect()
}

fn nothing_expires_before_it_is_full(store: &OwnRedis, _hand: &ManualClock) {
    for (kept_ms, must_ms) in expiries(store) {
        // Some of it has gone by already.
        assert!(kept_ms + 900 >= must_ms, "{kept_ms} of {must_ms} ms");
    }
}

fn everything_expires_when_it_is_full(store: &OwnRedis, _hand: &ManualClock) {
    for (kept_ms, must_ms) in expiries(store) {
        // Twice as long as it must, with what rounding up by a sixteenth adds, and ten seconds.
        let most_ms = 2 * (must_ms + must_ms / 15) + 10_100;
        assert!(
            (0..=most_ms).contains(&kept_ms),
            "{kept_ms} for {must_ms} ms"
        );
    }
}
