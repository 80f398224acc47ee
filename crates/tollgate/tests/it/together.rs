//! Several requests that pass together or not at all, in memory and over Redis alike.

use std::time::Duration;

use tollgate::store::{RedisClock, RedisConfig, RedisStore};
use tollgate::{Clock, Decision, Dimension, Limiter, OnFailure, Request, Rule, RuleSet, Source};

use crate::server::Server;
use crate::support::{clock, limit, memory, one_instance, run};

/// The same with each kind of limiter, while time stands still: what has drained in between would be nobody's to give back.
fn with_each(test: impl Fn(&Limiter)) {
    let hand = clock();
    test(&Limiter::new(memory(&hand)));
    let server = Server::start();
    test(&over(&server, RedisClock::Simulated(Clock::from(&hand))));
}

fn over(server: &Server, clock: RedisClock) -> Limiter {
    let config = RedisConfig::default()
        .deadline(Duration::from_secs(10))
        .clock(clock);
    let store = RedisStore::open(&server.url(), config).unwrap();
    Limiter::builder(store).shared(one_instance()).build()
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
    left(&run(limiter.matched(&rules.matching(&look)).peek()))
}

#[test]
fn what_one_request_is_denied_none_is_charged_for() {
    with_each(|limiter| {
        let rules = rules();
        let (a, b) = (Request::new().client("a"), Request::new().client("b"));
        let dear = b.clone().cost(3);
        let joint = |one: &Request<'_>, other: &Request<'_>| {
            let met = [rules.matching(one), rules.matching(other)];
            run(limiter.all_of(&met).unwrap().decide())
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
        let met = [rules.matching(&one), rules.matching(&two)];
        let joint = run(limiter.all_of(&met).unwrap().decide());
        assert_eq!(left(&joint.whole), [1, 8], "each bucket once");
        assert_eq!(
            joint.each.iter().map(left).collect::<Vec<_>>(),
            [[1, 8], [1, 8]]
        );
        run(limiter.all_of(&met).unwrap().refund(joint));
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
        let met = [rules.matching(&a), rules.matching(&b)];
        let kept = run(limiter.all_of(&met).unwrap().decide());
        assert_eq!(left(&kept.whole), [2, 8, 1]);
        let back = run(limiter.all_of(&[rules.matching(&a)]).unwrap().decide());
        run(limiter.all_of(&[rules.matching(&a)]).unwrap().refund(back));
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
    let met = [rules.matching(&a), rules.matching(&b)];
    let sources: Vec<Source> = (0..3)
        .map(|_| run(limiter.all_of(&met).unwrap().decide()))
        .map(|joint| joint.whole.source())
        .collect();
    assert_eq!(sources, [Source::Store, Source::Store, Source::Remembered]);
    let joint = run(limiter.all_of(&met).unwrap().decide());
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
    let limiter = Limiter::builder(store).shared(one_instance()).build();
    let only = |id: &'static str| move |rule: &Rule| rule.id().as_str() == id;
    let (a, ip) = (
        Request::new().client("a"),
        Request::new().ip([127, 0, 0, 1].into()),
    );
    let client = [rules.matching(&a).only(only("client"))];
    let joint = run(limiter.all_of(&client).unwrap().decide());
    assert_eq!(
        (joint.whole.allowed(), joint.whole.source()),
        (true, Source::Local)
    );
    let both = [
        rules.matching(&a).only(only("client")),
        rules.matching(&ip).only(only("closed")),
    ];
    let joint = run(limiter.all_of(&both).unwrap().decide());
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
        let met = rules.matching(&a).with_limit(limit("1/h burst 100"));
        let decision = run(limiter.matched(&met).decide());
        assert_eq!(left(&decision), [99, 9]);
        run(limiter.matched(&met).refund(decision));
        let look = a.clone().cost(0);
        let met = rules.matching(&look).with_limit(limit("1/h burst 100"));
        assert_eq!(left(&run(limiter.matched(&met).peek())), [100, 10]);
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
        let met = [
            rules.matching(&a).only(client),
            rules.matching(&slow).only(queue),
        ];
        let decide = || run(limiter.all_of(&met).unwrap().decide());
        assert_eq!(left(&decide().whole), [2, 4]);
        let queued = decide();
        assert!(!queued.whole.delay().is_zero());
        assert_eq!(left(&queued.whole), [1, 3]);
        run(limiter.all_of(&met).unwrap().refund(queued.clone()));
        let now = run(limiter.all_of(&met).unwrap().peek());
        let back = queued.clone().after_refund(&now);
        assert_eq!(left(&back.whole), [2, 4]);
        assert_eq!(back.each.iter().map(left).collect::<Vec<_>>(), [[2], [4]]);
        assert_eq!(back.whole.delay(), queued.whole.delay());
        let bound = |joint: &tollgate::JointDecision| joint.whole.tier().unwrap().rule().as_str();
        assert_eq!((bound(&queued), bound(&back)), ("client", "queue"));
        run(limiter.all_of(&met).unwrap().refund(back));
        let now = run(limiter.all_of(&met).unwrap().peek());
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
    let met: Vec<_> = requests
        .iter()
        .map(|request| rules.matching(request))
        .collect();
    let limiter = Limiter::in_memory();
    let refused = limiter.all_of(&met).unwrap_err().to_string();
    assert!(refused.contains("256 buckets"), "{refused}");
    assert!(
        run(limiter.all_of(&met[..254]).unwrap().decide())
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
