//! Rules, tiers, plans, shadows, and what a decision says.

use std::time::{Duration, UNIX_EPOCH};

use tollgate::{
    Dimension, Limiter, ManualClock, Mode, Request, Rule, RuleSetError, Source, Verdict,
};

use crate::support::{NOON_US, clock, limit, limiter, run, us};

fn rule(id: &str, text: &str) -> Rule {
    Rule::new(id, limit(text)).unwrap()
}

fn three_tiers(clock: &ManualClock) -> Limiter {
    limiter(clock)
        .with_rules([
            rule("client", "1/s burst 10").per([Dimension::Client]),
            rule("client-route", "1/s burst 5").per([Dimension::Client, Dimension::Route]),
            rule("everyone", "1/s burst 12"),
        ])
        .unwrap()
}

#[test]
fn on_allow_the_tier_with_the_least_left_is_reported() {
    let limiter = three_tiers(&clock());
    let decision = run(limiter.decide(&Request::new().client("a").route("/x")));
    assert!(decision.allowed());
    assert_eq!(decision.tier().unwrap().rule().as_str(), "client-route");
    assert_eq!((decision.limit(), decision.remaining()), (Some(5), Some(4)));
    assert_eq!(decision.reset_after(), Some(Duration::from_secs(1)));
    let left: Vec<_> = decision
        .tiers()
        .iter()
        .map(|tier| (tier.rule().as_str(), tier.remaining()))
        .collect();
    assert_eq!(left, [("client", 9), ("client-route", 4), ("everyone", 11)]);
    assert_eq!(decision.source(), Source::Store);
    assert_eq!(decision.at(), UNIX_EPOCH + us(NOON_US));
}

#[test]
fn on_deny_the_tier_with_the_longest_wait_is_reported_and_nothing_is_charged() {
    let clock = clock();
    let limiter = limiter(&clock)
        .with_rules([
            rule("fast", "10/s burst 1").per([Dimension::Client]),
            rule("slow", "1/s burst 1").per([Dimension::Client]),
            rule("wide", "1/s burst 100"),
        ])
        .unwrap();
    let request = Request::new().client("a");
    assert!(run(limiter.decide(&request)).allowed());
    let denied = run(limiter.decide(&request));
    assert_eq!(denied.tier().unwrap().rule().as_str(), "slow");
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(1)));
    assert_eq!(denied.tiers()[2].verdict(), Verdict::Allow);
    assert_eq!(
        denied.tiers()[2].remaining(),
        99,
        "the tier that passed was not charged"
    );
}

#[test]
fn a_cost_that_never_fits_one_tier_is_denied_for_ever_by_that_tier() {
    let limiter = three_tiers(&clock());
    let decision = run(limiter.decide(&Request::new().client("a").route("/x").cost(6)));
    assert_eq!(decision.verdict(), Verdict::NeverFits);
    assert_eq!(decision.retry_after(), None);
    assert_eq!(decision.tier().unwrap().rule().as_str(), "client-route");
}

#[test]
fn a_cost_of_zero_looks_at_all_tiers() {
    let limiter = three_tiers(&clock());
    for _ in 0..20 {
        let decision = run(limiter.decide(&Request::new().client("a").route("/x").cost(0)));
        assert!(decision.allowed());
        assert_eq!(decision.remaining(), Some(5));
    }
}

#[test]
fn without_a_rule_everything_passes_and_no_tier_is_named() {
    let decision = run(Limiter::in_memory().decide(&Request::new().client("a")));
    assert!(decision.allowed());
    assert!(decision.tier().is_none() && decision.tiers().is_empty());
    assert_eq!((decision.limit(), decision.retry_after()), (None, None));
}

/// R09: a free client at its limit does not touch a pro client's bucket.
#[test]
fn plans_have_their_own_figures_under_one_rule() {
    let limiter = limiter(&clock())
        .with_rules([
            rule("client", "1/s burst 2").per([Dimension::Client]),
            rule("client", "1/s burst 5")
                .per([Dimension::Client])
                .plan("pro"),
        ])
        .unwrap();
    let admitted = |client, plan: Option<&'static str>| {
        let request = Request::new().client(client);
        let request = plan.map_or(request.clone(), |plan| request.plan(plan));
        (0..10)
            .filter(|_| run(limiter.decide(&request)).allowed())
            .count()
    };
    assert_eq!(admitted("free-1", None), 2);
    assert_eq!(admitted("pro-1", Some("pro")), 5);
    assert_eq!(
        admitted("trial-1", Some("trial")),
        2,
        "a plan without a rule of its own"
    );
    // An upgrade keeps what was used: two of five.
    assert_eq!(admitted("free-1", Some("pro")), 3);
}

#[test]
fn a_shadow_rule_says_what_it_would_do_and_changes_nothing() {
    let limiter = limiter(&clock())
        .with_rules([
            rule("real", "1/s burst 10").per([Dimension::Client]),
            rule("planned", "1/s burst 3")
                .per([Dimension::Client])
                .mode(Mode::Shadow),
        ])
        .unwrap();
    let request = Request::new().client("a");
    for i in 0..10 {
        let decision = run(limiter.decide(&request));
        assert!(decision.allowed());
        assert_eq!(
            decision.tier().unwrap().rule().as_str(),
            "real",
            "a shadow is never the reason"
        );
        let planned = &decision.tiers()[1];
        assert!(planned.is_shadow());
        assert_eq!(planned.verdict().allowed(), i < 3);
    }
    let denied = run(limiter.decide(&request));
    assert_eq!(denied.tier().unwrap().rule().as_str(), "real");
}

#[test]
fn a_single_shadow_rule_allows_and_names_no_tier() {
    let limiter = limiter(&clock())
        .with_rules([rule("planned", "1/s burst 1").mode(Mode::Shadow)])
        .unwrap();
    for would_pass in [true, false, false] {
        let decision = run(limiter.decide(&Request::new()));
        assert!(decision.allowed() && decision.tier().is_none());
        assert_eq!(decision.tiers()[0].verdict().allowed(), would_pass);
    }
}

#[test]
fn a_rule_that_is_off_is_not_there() {
    let limiter = limiter(&clock())
        .with_rules([rule("off", "1/s").mode(Mode::Off)])
        .unwrap();
    assert!(run(limiter.decide(&Request::new())).tiers().is_empty());
}

#[test]
fn a_leaky_tier_says_when_to_go() {
    let limiter = limiter(&clock())
        .with_rules([
            rule("queue", "10/s queue 4"),
            rule("client", "1/s burst 100").per([Dimension::Client]),
        ])
        .unwrap();
    let delays: Vec<_> = (0..4)
        .map(|_| {
            run(limiter.decide(&Request::new().client("a")))
                .delay()
                .as_millis()
        })
        .collect();
    assert_eq!(delays, [0, 100, 200, 300]);
    let denied = run(limiter.decide(&Request::new().client("a")));
    assert_eq!(denied.retry_after(), Some(Duration::from_millis(100)));
}

#[test]
fn a_caller_who_has_gone_frees_its_place() {
    let limiter = three_tiers(&clock());
    let request = Request::new().client("a").route("/x").cost(2);
    let decision = run(limiter.decide(&request));
    run(limiter.request(&request).refund(decision));
    let left: Vec<_> = run(limiter.request(&request).peek())
        .tiers()
        .iter()
        .map(tollgate::Tier::remaining)
        .collect();
    assert_eq!(left, [10, 5, 12]);
    // A denial took nothing, so nothing comes back.
    let too_much = Request::new().client("a").route("/x").cost(6);
    let denied = run(limiter.decide(&too_much));
    let _ = run(limiter.decide(&request));
    run(limiter.request(&too_much).refund(denied));
    assert_eq!(
        run(limiter.request(&request).peek()).tiers()[1].remaining(),
        3
    );
}

#[test]
fn a_reset_frees_all_tiers_of_a_caller() {
    let limiter = three_tiers(&clock());
    let request = Request::new().client("a").route("/x").cost(5);
    let _ = run(limiter.decide(&request));
    run(limiter.request(&request).reset()).unwrap();
    let left: Vec<u64> = (run(limiter.request(&request).peek()).tiers().iter())
        .map(tollgate::Tier::remaining)
        .collect();
    assert_eq!(left, [10, 5, 7], "everybody's stays");
}

#[test]
fn rules_that_do_not_fit_together_are_refused() {
    let twice = Limiter::in_memory().with_rules([rule("a", "1/s"), rule("a", "2/s")]);
    assert!(matches!(twice, Err(RuleSetError::Duplicate { .. })));
    let plan_twice =
        Limiter::in_memory().with_rules([rule("a", "1/s").plan("p"), rule("a", "2/s").plan("p")]);
    assert!(
        plan_twice
            .unwrap_err()
            .to_string()
            .contains("the plan \"p\"")
    );
    let differs = Limiter::in_memory().with_rules([
        rule("a", "1/s"),
        rule("a", "2/s").plan("p").per([Dimension::Ip]),
    ]);
    assert!(differs.unwrap_err().to_string().contains("the same `per`"));
    assert!(Rule::new("no spaces", limit("1/s")).is_err());
}

#[test]
fn requests_without_a_value_share_a_bucket() {
    let limiter = limiter(&clock())
        .with_rules([rule("client", "1/s burst 1").per([Dimension::Client])])
        .unwrap();
    assert!(run(limiter.decide(&Request::new())).allowed());
    assert!(!run(limiter.decide(&Request::new().route("/other"))).allowed());
    assert!(run(limiter.decide(&Request::new().client("somebody"))).allowed());
}

#[test]
fn what_took_nothing_gives_nothing_back() {
    let clock = clock();
    let limiter = limiter(&clock)
        .with_rules([rule("client", "1/day burst 10").per([Dimension::Client])])
        .unwrap();
    let request = Request::new().client("a");
    let mut admitted = 0;
    for _ in 0..100 {
        let peeked = run(limiter.request(&request).peek());
        let looked = run(limiter.decide(&request.clone().cost(0)));
        run(limiter.request(&request).refund(peeked));
        run(limiter.request(&request).refund(looked));
        admitted += u32::from(run(limiter.decide(&request)).allowed());
    }
    assert_eq!(admitted, 10);
}

/// Each tier is given back what it took at its own time, also under the system's clock.
#[test]
fn a_refund_reaches_every_tier_at_its_own_time() {
    let limiter = Limiter::in_memory()
        .with_rules([
            rule("client", "10 per 1h sliding_log").per([Dimension::Client]),
            rule("everyone", "10 per 1h sliding_log"),
        ])
        .unwrap();
    let request = Request::new().client("a");
    for i in 0..2_000 {
        let decision = run(limiter.decide(&request));
        assert!(decision.allowed(), "round {i}: an earlier refund was lost");
        run(limiter.request(&request).refund(decision));
    }
}

#[test]
fn plans_do_not_meet_in_a_bucket_that_is_not_a_clients() {
    let clock = clock();
    let limiter = limiter(&clock)
        .with_rules([
            rule("route", "10/s burst 10").per([Dimension::Route]),
            rule("route", "10/s burst 1000")
                .per([Dimension::Route])
                .plan("pro"),
            rule("all", "10/s burst 5000").plan("pro"),
        ])
        .unwrap();
    let mut admitted = 0;
    for _ in 0..100 {
        clock.advance(us(10_000));
        let _ = run(limiter.decide(&Request::new().route("/x")));
        let pro = Request::new().route("/x").plan("pro");
        admitted += (0..50)
            .filter(|_| run(limiter.decide(&pro)).allowed())
            .count();
    }
    assert_eq!(
        admitted,
        1_000 + 9,
        "burst and one second, whatever free clients do"
    );
}

/// A new key that is not used after all frees its slot, which moves others: none of them may be missed.
#[test]
fn a_new_key_that_is_not_charged_does_not_disturb_the_others() {
    let clock = clock();
    let limiter = limiter(&clock)
        .with_rules([
            rule("planned", "1/day burst 5")
                .per([Dimension::Client])
                .mode(Mode::Shadow),
            rule("client", "1/day burst 10").per([Dimension::Client]),
            rule("all", "1/s burst 4000000"),
        ])
        .unwrap();
    for i in 0..20_000 {
        let client = format!("client-{i}");
        let request = Request::new().client(&client).cost(10);
        assert!(run(limiter.decide(&request)).allowed());
        assert!(
            !run(limiter.decide(&request)).allowed(),
            "{client} was admitted twice"
        );
    }
}

#[test]
fn a_denial_of_any_kind_is_an_error() {
    let clock = clock();
    let limiter = limiter(&clock)
        .with_rules([rule("client", "1/m burst 2").per([Dimension::Client])])
        .unwrap();
    let decide = |cost: u64| {
        let request = Request::new().client("a").cost(cost);
        run(limiter.decide(&request)).into_result()
    };
    assert_eq!(decide(1).unwrap().remaining(), Some(1));
    let never = decide(3).unwrap_err();
    assert_eq!((never.retry_after(), never.never_fits()), (None, true));
    assert_eq!(
        never.to_string(),
        "denied by client; it costs more than the limit holds"
    );
    assert_eq!(decide(1).unwrap().remaining(), Some(0));
    let later = decide(1).unwrap_err();
    assert_eq!(later.retry_after(), Some(Duration::from_secs(60)));
    assert!(!later.never_fits());
    assert_eq!(later.to_string(), "denied by client; it passes in 60s");
    assert!(!later.decision().allowed());
    let by_key = run(limiter.check("key", &limit("1/m burst 1"), 2)).into_result();
    assert_eq!(
        by_key.unwrap_err().to_string(),
        "denied; it costs more than the limit holds"
    );
}
