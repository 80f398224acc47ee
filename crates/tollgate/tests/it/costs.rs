//! What rules charge: the cost of the request, or one of their own.

use tollgate::{
    Cost, Decision, Dimension, Limiter, LocalLimiter, Match, Request, Rule, RuleSet,
    RuleSetWarning, Tier, Usage,
};

use crate::support::{clock, limit, memory, run};
#[cfg(feature = "redis")]
use crate::{server::Server, support::one_instance};

fn rule(id: &str, text: &str) -> Rule {
    Rule::new(id, limit(text)).unwrap()
}

fn rules() -> [Rule; 3] {
    [
        rule("requests", "100 per 1d sliding_log").per([Dimension::Client]),
        rule("units", "1000 per 1d sliding_log")
            .per([Dimension::Client])
            .cost(25),
        rule("watched", "10 per 1d sliding_log")
            .mode(tollgate::Mode::Shadow)
            .cost(3),
    ]
}

fn left(decision: &Decision) -> Vec<u64> {
    decision.tiers().iter().map(Tier::remaining).collect()
}

/// Each of them over memory and over Redis.
fn limiters(check: impl Fn(&Limiter)) {
    check(&Limiter::new(memory(&clock())).with_rules(rules()).unwrap());
    #[cfg(feature = "redis")]
    {
        let server = Server::start();
        let store = tollgate::store::RedisStore::open(
            &server.url(),
            tollgate::store::RedisConfig::default().deadline(std::time::Duration::from_secs(10)),
        );
        let limiter = Limiter::builder(store.unwrap()).shared(one_instance());
        check(&limiter.build().with_rules(rules()).unwrap());
    }
}

#[test]
fn a_rule_charges_its_own_cost() {
    limiters(|limiter| {
        let request = Request::new().client("a");
        assert_eq!(left(&run(limiter.decide(&request))), [99, 975, 7]);
        // Whatever the request costs otherwise.
        let dear = request.clone().cost(10);
        assert_eq!(left(&run(limiter.decide(&dear))), [89, 950, 4]);
        let dear = limiter.request(&request).cost(20);
        assert_eq!(left(&run(dear.decide())), [69, 925, 1]);
        // A request that costs nothing only looks.
        let free = request.clone().cost(0);
        assert_eq!(left(&run(limiter.decide(&free))), [69, 925, 1]);
        let peeked = run(limiter.request(&request).peek());
        assert_eq!(left(&peeked), [69, 925, 1]);
    });
}

#[test]
fn a_refund_gives_back_what_each_rule_charged() {
    limiters(|limiter| {
        let request = Request::new().client("a");
        let kept = run(limiter.decide(&request));
        assert!(kept.allowed());
        let check = limiter.request(&request).cost(7);
        let decision = run(check.decide());
        assert_eq!(left(&decision), [92, 950, 4]);
        run(check.refund(decision));
        assert_eq!(left(&run(check.peek())), [99, 975, 7]);
        // The cost is the decision's, whoever gives back.
        let decision = run(limiter.request(&request).cost(7).decide());
        run(limiter.request(&request).refund(decision));
        assert_eq!(left(&run(check.peek())), [99, 975, 7]);
    });
}

#[test]
fn joint_decisions_charge_own_costs_once() {
    limiters(|limiter| {
        let rules = limiter.rules();
        let (one, other) = (
            Request::new().client("a").cost(5),
            Request::new().client("b").cost(2),
        );
        let matched = [rules.matching(&one), rules.matching(&other)];
        let check = limiter.all_of(&matched).unwrap();
        let joint = run(check.decide());
        assert_eq!(left(&joint.each[0]), [95, 975, 7]);
        assert_eq!(left(&joint.each[1]), [98, 975, 7]);
        run(check.refund(joint));
        assert_eq!(left(&run(check.peek()).each[0]), [100, 1_000, 10]);
    });
}

#[test]
fn usage_and_explanations_show_own_costs() {
    limiters(|limiter| {
        let request = Request::new().client("a");
        let decision = run(limiter.decide(&request));
        assert!(decision.allowed());
        let usages = run(limiter.request(&request).inspect()).unwrap();
        let used: Vec<_> = usages.iter().map(Usage::used).collect();
        assert_eq!(used, [Some(1), Some(25), Some(3)]);
    });
    let post = Match::new().methods(["POST"]).unwrap();
    let set = RuleSet::new(rules())
        .unwrap()
        .with_costs([Cost::new(post, 4)]);
    let request = Request::new().method("POST");
    let explanation = set.explain(&request);
    assert_eq!(explanation.cost, 4);
    let matched = set.matching(&request);
    let charged: Vec<u64> = (matched.rules().iter())
        .map(|rule| rule.cost_of(matched.cost()))
        .collect();
    assert_eq!(charged, [4, 25, 3]);
    assert_eq!(matched.rules()[1].own_cost(), Some(25));
}

#[test]
fn plans_may_cost_differently() {
    let limiter = LocalLimiter::new()
        .with_rules([
            rule("units", "100/d").per([Dimension::Client]).cost(10),
            rule("units", "100/d")
                .per([Dimension::Client])
                .plan("pro")
                .cost(1),
            rule("units", "100/d")
                .per([Dimension::Client])
                .plan("unlimited")
                .cost(0),
        ])
        .unwrap();
    let left = |client, plan| {
        let request = Request::new().client(client).plan(plan);
        limiter.decide(&request).remaining().unwrap()
    };
    assert_eq!(left("a", "free"), 90);
    assert_eq!(left("b", "pro"), 99);
    assert_eq!((left("c", "unlimited"), left("c", "unlimited")), (100, 100));
}

#[test]
fn warnings_name_what_is_probably_a_mistake() {
    let client = |text: &str| rule("client", text).per([Dimension::Client]);
    let rules = RuleSet::new([
        client("1/s").plan("pro"),
        client("2/s").plan("basic").cost(3),
        rule("never", "1/s").except(Match::new()),
        rule("other", "1/s")
            .when(Match::new().plans(["free"]))
            .plan("pro"),
        // All right: the plans are all that the conditions allow.
        rule("gold", "1/s")
            .when(Match::new().plans(["gold"]))
            .plan("gold"),
        rule("fine", "10/s").cost(10),
    ])
    .unwrap();
    let warnings = rules.warnings();
    let ids: Vec<&str> = warnings
        .iter()
        .map(|warning| warning.id().as_str())
        .collect();
    assert_eq!(ids, ["client", "client", "never", "other", "other"]);
    assert!(matches!(
        &warnings[0],
        RuleSetWarning::NoFallback { plans, .. } if *plans == ["basic", "pro"]
    ));
    assert!(matches!(
        &warnings[1],
        RuleSetWarning::CostAboveLimit { plan: Some(plan), cost: 3, capacity: 2, .. } if plan == "basic"
    ));
    assert!(matches!(
        warnings[2],
        RuleSetWarning::ExceptsEverything { .. }
    ));
    assert!(matches!(warnings[4], RuleSetWarning::PlanExcluded { .. }));
    for warning in &warnings {
        let text = warning.to_string();
        assert!(
            text.contains(warning.id().as_str()) && text.contains("; "),
            "{text}"
        );
    }
}
