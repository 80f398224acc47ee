//! Several requests that pass together or not at all, in memory and over Redis alike.

use std::time::Duration;

use tollgate::store::{RedisClock, RedisConfig, RedisStore};
use tollgate::{Clock, Decision, Dimension, Limiter, OnFailure, Request, Rule, RuleSet, Source};

use crate::server::Server;
use crate::support::{clock, config, limit, one_instance, run};

/// The same with each kind of limiter, while time stands still: what has drained in between would be nobody's to give back.
fn with_each(test: impl Fn(&Limiter)) {
    let hand = clock();
    test(&Limiter::in_memory_with(config(&hand)));
    let server = Server::start();
    test(&over(&server, RedisClock::Simulated(Clock::from(&hand))));
}

fn over(server: &Server, clock: RedisClock) -> Limiter {
    let config = RedisConfig {
        deadline: Duration::from_secs(10),
        clock,
        ..RedisConfig::default()
    };
    let store = RedisStore::open(&server.url(), config).unwrap();
    Limiter::over(store, one_instance())
}

fn rules() -> RuleSet {
    let rule = |id: &str, text: &str| Rule::new(id, limit(text)).unwrap();
    RuleSet::new([
        rule("client", "1/h burst 3").per([Dimension::Client]),
        rule("everyone", "1/h burst 10"),
    ])
    .unwrap()
}

fn left(decision: &Decision) -> Vec<u64> {
    decision
        .tiers()
        .iter()
        .map(tollgate::Tier::remaining)
        .collect()
}

/// What a client and everybody have left.
fn left_of(limiter: &Limiter, rules: &RuleSet, client: &str) -> Vec<u64> {
    let look = Request::new().client(client).cost(0);
    left(&run(limiter.peek_on(&rules.meet(&look))))
}

#[test]
fn what_one_request_is_denied_none_is_charged_for() {
    with_each(|limiter| {
        let rules = rules();
        let (a, b) = (Request::new().client("a"), Request::new().client("b"));
        let dear = b.clone().cost(3);
        let joint = |one: &Request<'_>, other: &Request<'_>| {
            let met = [rules.meet(one), rules.meet(other)];
            run(limiter.decide_together(&met)).unwrap()
        };
        let first = joint(&a, &dear);
        assert!(first.whole.allowed());
        let second = joint(&a, &dear);
        assert!(!second.whole.allowed());
        let allowed: Vec<bool> = second.each.iter().map(Decision::allowed).collect();
        assert_eq!(allowed, [true, false], "each says what its own buckets say");
        let left = ["a", "b"].map(|client| left_of(limiter, &rules, client));
        assert_eq!(left, [[2, 7], [0, 7]]);
    });
}

#[test]
fn a_bucket_that_two_requests_meet_is_charged_once_with_what_costs_most() {
    with_each(|limiter| {
        let rules = rules();
        let (one, two) = (
            Request::new().client("a"),
            Request::new().client("a").cost(2),
        );
        let met = [rules.meet(&one), rules.meet(&two)];
        let joint = run(limiter.decide_together(&met)).unwrap();
        assert_eq!(left(&joint.whole), [1, 8], "each bucket once");
        assert_eq!(
            joint.each.iter().map(left).collect::<Vec<_>>(),
            [[1, 8], [1, 8]]
        );
        run(limiter.refund_together(&met, joint));
        assert_eq!(
            left_of(limiter, &rules, "a"),
            [3, 10],
            "all of it was given back, and no more"
        );
    });
}

#[test]
fn what_is_given_back_goes_to_the_bucket_it_came_from() {
    with_each(|limiter| {
        let rules = rules();
        let (a, b) = (
            Request::new().client("a"),
            Request::new().client("b").cost(2),
        );
        let met = [rules.meet(&a), rules.meet(&b)];
        let kept = run(limiter.decide_together(&met)).unwrap();
        assert_eq!(left(&kept.whole), [2, 8, 1]);
        let back = run(limiter.decide_together(&[rules.meet(&a)])).unwrap();
        run(limiter.refund_together(&[rules.meet(&a)], back));
        let left = ["a", "b"].map(|client| left_of(limiter, &rules, client));
        assert_eq!(left, [[2, 8], [1, 8]]);
    });
}

#[test]
fn a_remembered_denial_is_that_of_the_request_that_met_it() {
    let server = Server::start();
    let limiter = over(&server, RedisClock::Server);
    let rules = rules();
    let (a, b) = (
        Request::new().client("a"),
        Request::new().client("b").cost(3),
    );
    let met = [rules.meet(&a), rules.meet(&b)];
    let sources: Vec<Source> = (0..3)
        .map(|_| run(limiter.decide_together(&met)).unwrap())
        .map(|joint| joint.whole.source())
        .collect();
    assert_eq!(sources, [Source::Store, Source::Store, Source::Remembered]);
    let joint = run(limiter.decide_together(&met)).unwrap();
    let tiers: Vec<usize> = joint.each.iter().map(|each| each.tiers().len()).collect();
    assert_eq!(tiers, [0, 1]);
    assert!(joint.each[0].allowed() && !joint.each[1].allowed());
}

#[test]
fn without_the_store_each_rule_does_as_it_was_told() {
    let rule = |id: &str| Rule::new(id, limit("1/h burst 10")).unwrap();
    let rules = RuleSet::new([
        rule("client").per([Dimension::Client]),
        rule("closed")
            .per([Dimension::Ip])
            .on_failure(OnFailure::Closed),
    ])
    .unwrap();
    let store = RedisStore::open("unix:///nowhere", RedisConfig::default()).unwrap();
    let limiter = Limiter::over(store, one_instance());
    let only = |id: &'static str| move |rule: &Rule| rule.id().as_str() == id;
    let (a, ip) = (
        Request::new().client("a"),
        Request::new().ip([127, 0, 0, 1].into()),
    );
    let client = [rules.meet(&a).only(only("client"))];
    let joint = run(limiter.decide_together(&client)).unwrap();
    assert_eq!(
        (joint.whole.allowed(), joint.whole.source()),
        (true, Source::Local)
    );
    let both = [
        rules.meet(&a).only(only("client")),
        rules.meet(&ip).only(only("closed")),
    ];
    let joint = run(limiter.decide_together(&both)).unwrap();
    assert_eq!(
        (joint.whole.allowed(), joint.whole.source()),
        (false, Source::Closed)
    );
    assert!(joint.each[0].allowed() && !joint.each[1].allowed());
}

#[test]
fn a_limit_in_place_of_the_rules_leaves_everybodys_alone() {
    with_each(|limiter| {
        let rules = rules();
        let a = Request::new().client("a");
        let met = rules.meet(&a).with_limit(limit("1/h burst 100"));
        let decision = run(limiter.decide_on(&met));
        assert_eq!(left(&decision), [99, 9]);
        run(limiter.refund_on(&met, decision));
        let look = a.clone().cost(0);
        let met = rules.meet(&look).with_limit(limit("1/h burst 100"));
        assert_eq!(left(&run(limiter.peek_on(&met))), [100, 10]);
    });
}

#[test]
fn what_was_given_back_is_in_no_figure_of_the_decision() {
    with_each(|limiter| {
        let rule = |id: &str, text: &str| Rule::new(id, limit(text)).unwrap();
        let rules = RuleSet::new([
            rule("client", "1/h burst 3").per([Dimension::Client]),
            rule("queue", "1/h queue 5 leaky_bucket").per([Dimension::Route]),
        ])
        .unwrap();
        let (a, slow) = (Request::new().client("a"), Request::new().route("slow"));
        let client = |rule: &Rule| rule.id().as_str() == "client";
        let queue = |rule: &Rule| rule.id().as_str() == "queue";
        let met = [rules.meet(&a).only(client), rules.meet(&slow).only(queue)];
        let decide = || run(limiter.decide_together(&met)).unwrap();
        assert_eq!(left(&decide().whole), [2, 4]);
        let queued = decide();
        assert!(!queued.whole.delay().is_zero());
        assert_eq!(left(&queued.whole), [1, 3]);
        run(limiter.refund_together(&met, queued.clone()));
        let now = run(limiter.peek_together(&met)).unwrap();
        let back = queued.clone().given_back(&now);
        assert_eq!(left(&back.whole), [2, 4]);
        assert_eq!(back.each.iter().map(left).collect::<Vec<_>>(), [[2], [4]]);
        assert_eq!(back.whole.delay(), queued.whole.delay());
        let bound = |joint: &tollgate::Joint| joint.whole.tier().unwrap().rule().as_str();
        assert_eq!((bound(&queued), bound(&back)), ("client", "queue"));
        run(limiter.refund_together(&met, back));
        let now = run(limiter.peek_together(&met)).unwrap();
        assert_eq!(left(&now.whole), [2, 4], "nothing is given back twice");
    });
}

#[test]
fn more_buckets_than_a_store_takes_from_are_refused() {
    let rules = rules();
    let names: Vec<String> = (0..255).map(|nth| format!("client-{nth}")).collect();
    let requests: Vec<Request<'_>> = names
        .iter()
        .map(|name| Request::new().client(name))
        .collect();
    let met: Vec<_> = requests.iter().map(|request| rules.meet(request)).collect();
    let limiter = Limiter::in_memory();
    assert_eq!(run(limiter.decide_together(&met)), None);
    assert!(
        run(limiter.decide_together(&met[..254]))
            .unwrap()
            .whole
            .tiers()
            .len()
            == 255
    );
    assert_eq!(
        left_of(&limiter, &rules, "client-0"),
        [2, 9],
        "everybody's once"
    );
}
