//! Forgetting what somebody used: all of it, and nothing of others.

#[cfg(feature = "redis")]
use tollgate::BucketKind;
use tollgate::{Dimension, Limiter, Match, Name, PathRules, Request, Rule, RuleSet, Usage};

use crate::inspect::{HOME, Home, InMemory, inspect, rule};
use crate::support::{clock, one_of_each, run};

const ROUTE: Dimension = Dimension::Route;
const CLIENT: Dimension = Dimension::Client;

/// What is left of each rule to a request, or its whole limit.
fn left(limiter: &Limiter, request: &Request<'_>) -> Vec<(&'static str, u64)> {
    let decision = run(limiter.request(request).peek());
    let left = |tier: &tollgate::Tier| (tier.rule().as_str(), tier.remaining());
    decision.tiers().iter().map(left).collect()
}

/// What a reset said that it forgot.
fn reset(limiter: &Limiter, request: &Request<'_>) -> Vec<(&'static str, Option<u64>)> {
    let said = |usage: &Usage| (usage.rule().map_or("", |rule| rule.as_str()), usage.used());
    (run(limiter.request(request).reset()).unwrap().iter())
        .map(said)
        .collect()
}

fn tiers() -> Vec<Rule> {
    vec![
        rule("client", "1/h burst 10", &[CLIENT]),
        rule("client-route", "10 per 1h sliding_log", &[CLIENT, ROUTE]),
        rule("route-client", "1/h burst 10", &[ROUTE, CLIENT]),
        rule("ip", "10 per 1h fixed_window", &[Dimension::Ip]),
        rule("route", "1/h burst 100", &[ROUTE]),
        rule("everyone", "1/h burst 1000", &[]),
    ]
}

fn one_is_freed_and_nobody_else(home: &dyn Home) {
    let limiter = home.limiter(tiers());
    let one = Request::new().client("one").route("/x").ip(HOME);
    let other = Request::new().client("other").route("/x");
    let _ = run(limiter.decide(&one.clone().cost(7)));
    let _ = run(limiter.decide(&other.clone().cost(4)));
    let of_other = left(&limiter, &other);
    // Not the address, which it does not name, nor what all share.
    assert_eq!(
        reset(&limiter, &Request::new().client("one").route("/x")),
        [
            ("client", Some(7)),
            ("client-route", Some(7)),
            ("route-client", Some(7))
        ]
    );
    assert_eq!(
        left(&limiter, &one),
        [
            ("client", 10),
            ("client-route", 10),
            ("route-client", 10),
            ("ip", 3),
            ("route", 89),
            ("everyone", 989)
        ]
    );
    assert_eq!(left(&limiter, &other), of_other);
    assert_eq!(reset(&limiter, &Request::new().ip(HOME)), [("ip", Some(7))]);
    assert_eq!(left(&limiter, &one)[3], ("ip", 10));
    // Nothing is left to forget.
    assert_eq!(reset(&limiter, &one), []);
    assert_eq!(left(&limiter, &other), of_other);
}

fn who_names_nobody_means_what_all_share(home: &dyn Home) {
    let mut rules = tiers();
    let search = Match::new().path("/search".parse().unwrap());
    rules.push(rule("search", "1/h burst 1000", &[]).when(search));
    let limiter = home.limiter(rules);
    let path = PathRules::default().normalise("/search").unwrap();
    let one = Request::new().client("one").ip(HOME).route("/x");
    let _ = run(limiter.decide(&one.clone().cost(7)));
    let elsewhere = Request::new().client("one").ip(HOME).path(&path);
    let _ = run(limiter.decide(&elsewhere.cost(2)));
    // Who has no address, of whom nobody speaks.
    let nameless = Request::new().client("two");
    let _ = run(limiter.decide(&nameless.clone().cost(3)));
    let of_client = left(&limiter, &one)[..4].to_vec();
    let mut forgotten = reset(&limiter, &Request::new().route("/x"));
    forgotten.sort_unstable();
    assert_eq!(forgotten, [("everyone", Some(12)), ("route", Some(7))]);
    // Of everybody's only what such a request meets, but all of it if nothing is said.
    let _ = run(limiter.decide(&one.clone().cost(1)));
    let mut forgotten = reset(&limiter, &Request::new());
    forgotten.sort_unstable();
    assert_eq!(forgotten, [("everyone", Some(1)), ("search", Some(2))]);
    assert_eq!(left(&limiter, &nameless)[3], ("ip", 7));
    let of_client_now = left(&limiter, &one)[..4].to_vec();
    assert!(
        of_client_now
            .iter()
            .zip(of_client)
            .all(|(now, before)| now.1 + 1 == before.1)
    );
}

fn what_somebody_did_elsewhere_is_forgotten(home: &dyn Home) {
    let charges = Match::new().path("/charges".parse().unwrap());
    let limiter = home.limiter(vec![
        rule("client", "1/h burst 10", &[CLIENT]),
        rule("charges", "1/h burst 10", &[CLIENT]).when(charges),
    ]);
    let path = PathRules::default().normalise("/charges").unwrap();
    let request = Request::new().client("one").path(&path);
    let _ = run(limiter.decide(&request.clone().cost(5)));
    let client = Request::new().client("one");
    assert_eq!(
        reset(&limiter, &client),
        [("client", Some(5)), ("charges", Some(5))]
    );
    assert_eq!(left(&limiter, &request), [("client", 10), ("charges", 10)]);
}

fn every_algorithm_is_full_again(home: &dyn Home) {
    let name = |i: usize| format!("rule-{i}");
    let rules = (one_of_each().into_iter().enumerate())
        .map(|(i, limit)| Rule::new(&name(i), limit).unwrap().per([CLIENT]));
    let limiter = home.limiter(rules.collect());
    let all = Request::new().client("one").cost(10);
    for _ in 0..3 {
        assert!(run(limiter.decide(&all)).allowed());
        assert!(!run(limiter.decide(&all)).allowed());
        assert_eq!(run(limiter.request(&all).reset()).unwrap().len(), 5);
    }
}

fn what_lies_elsewhere_is_forgotten_for_who_names_it(home: &dyn Home) {
    let device = Name::new("device").unwrap();
    let per = [CLIENT, Dimension::Attribute(device)];
    let limiter = home.limiter(vec![rule("device", "10 per 1h sliding_log", &per)]);
    let client = Request::new().client("one");
    let phone = client.clone().attribute(device, "phone");
    let _ = run(limiter.decide(&phone.clone().cost(4)));
    assert_eq!(reset(&limiter, &client), []);
    assert_eq!(left(&limiter, &phone), [("device", 6)]);
    assert_eq!(reset(&limiter, &phone), [("device", Some(4))]);
    assert_eq!(left(&limiter, &phone), [("device", 10)]);
}

fn a_usage_says_whose_it_is(home: &dyn Home) {
    let limiter = home.limiter(tiers());
    let request = Request::new().client("one").route("/x").ip(HOME);
    let subjects: Vec<_> = (inspect(&limiter, &request).iter())
        .map(Usage::subject)
        .collect();
    let ip = Dimension::Ip;
    let whose = [
        Some(CLIENT),
        Some(CLIENT),
        Some(ROUTE),
        Some(ip),
        Some(ROUTE),
        None,
    ];
    assert_eq!(subjects, whose);
}

fn rules_may_be_kept_elsewhere(home: &dyn Home) {
    let limiter = home.limiter(Vec::new());
    let rules = RuleSet::new(tiers()).unwrap();
    let request = Request::new().client("one").route("/x").cost(3);
    let _ = run(limiter.matched(&rules.matching(&request)).decide());
    let client = Request::new().client("one").route("/x");
    let used = run(limiter.matched(&rules.matching(&client)).inspect()).unwrap();
    assert_eq!((used.len(), used[0].used()), (5, Some(3)));
    assert_eq!(
        run(limiter.matched(&rules.matching(&client)).reset())
            .unwrap()
            .len(),
        3
    );
    let used = run(limiter.matched(&rules.matching(&client)).inspect()).unwrap();
    assert_eq!((used[0].used(), used[4].used()), (Some(0), Some(3)));
}

const CHECKS: [fn(&dyn Home); 7] = [
    one_is_freed_and_nobody_else,
    who_names_nobody_means_what_all_share,
    what_somebody_did_elsewhere_is_forgotten,
    every_algorithm_is_full_again,
    what_lies_elsewhere_is_forgotten_for_who_names_it,
    a_usage_says_whose_it_is,
    rules_may_be_kept_elsewhere,
];

#[test]
fn in_memory() {
    for check in CHECKS {
        check(&InMemory(clock()));
    }
}

/// Nobody knows in memory which routes there were.
#[test]
fn in_memory_other_routes_stay() {
    let limiter = InMemory(clock()).limiter(tiers());
    let request = Request::new().client("one").route("/x");
    let _ = run(limiter.decide(&request.clone().cost(3)));
    assert_eq!(
        reset(&limiter, &Request::new().client("one")),
        [("client", Some(3))]
    );
    assert_eq!(left(&limiter, &request)[1], ("client-route", 7));
}

#[cfg(feature = "redis")]
mod over_redis {
    use std::time::{Duration, Instant};

    use tollgate::Source;
    use tollgate::store::{RedisConfig, RedisStore};

    use super::*;
    use crate::inspect::over_redis::{
        InRedis, everything, in_a_cluster_of_its_own, over, per_route,
    };
    use crate::server::Server;

    #[test]
    fn in_redis() {
        for check in CHECKS {
            check(&InRedis::start());
        }
    }

    #[test]
    fn in_a_cluster() {
        let shared_checks: [fn(&dyn Home); 2] = [
            a_client_is_freed_on_all_its_routes,
            what_rules_counted_that_are_gone_goes_too,
        ];
        in_a_cluster_of_its_own(CHECKS.into_iter().chain(shared_checks));
    }

    fn a_client_is_freed_on_all_its_routes(home: &dyn Home) {
        let limiter = home.limiter(per_route());
        // More than one look takes.
        let routes: Vec<String> = (1..=150).map(|i| format!("/route/{i}")).collect();
        for client in ["one", "other"] {
            for route in &routes {
                let _ = run(limiter.decide(&Request::new().client(client).route(route).cost(2)));
            }
        }
        let (one, other) = (Request::new().client("one"), Request::new().client("other"));
        let of_other = inspect(&limiter, &other);
        let forgotten = run(limiter.request(&one).reset()).unwrap();
        assert_eq!(forgotten.len(), 301);
        let is_other = |usage: &&Usage| matches!(usage.bucket(), BucketKind::Other(_));
        assert_eq!(forgotten.iter().filter(is_other).count(), 300);
        assert!(forgotten.iter().all(|usage| usage.used() >= Some(2)));
        let full = inspect(&limiter, &one);
        assert_eq!((full.len(), full[0].used()), (1, Some(0)));
        assert_eq!(inspect(&limiter, &other), of_other);
        let request = one.route("/route/7").cost(1_000);
        assert!(run(limiter.decide(&request)).allowed());
    }

    #[test]
    fn a_client_is_freed_on_all_its_routes_in_redis() {
        a_client_is_freed_on_all_its_routes(&InRedis::start());
    }

    fn what_rules_counted_that_are_gone_goes_too(home: &dyn Home) {
        let request = Request::new().client("one").route("/x").cost(5);
        let _ = run(home.limiter(per_route()).decide(&request));
        let without = home.limiter(Vec::new());
        let forgotten = run(without.request(&Request::new().client("one")).reset()).unwrap();
        assert_eq!(forgotten.len(), 3);
        assert!(forgotten.iter().all(|usage| usage.rule().is_none()));
        assert!(
            forgotten
                .iter()
                .all(|usage| usage.subject() == Some(CLIENT))
        );
        let full = [("client", 50_000), ("route", 1_000), ("route-log", 1_000)];
        assert_eq!(left(&home.limiter(per_route()), &request), full);
    }

    #[test]
    fn what_rules_counted_that_are_gone_goes_too_in_redis() {
        what_rules_counted_that_are_gone_goes_too(&InRedis::start());
    }

    #[test]
    fn no_key_is_left_of_one_and_every_key_of_others() {
        let home = InRedis::start();
        let limiter = home.limiter(per_route());
        let _ = run(limiter.decide(&Request::new().client("other").route("/x")));
        let before = everything(home.redis.server());
        assert_eq!(before.len(), 2, "the subject and its log");
        let _ = run(limiter.decide(&Request::new().client("one").route("/x")));
        assert_eq!(everything(home.redis.server()).len(), 4);
        run(limiter.request(&Request::new().client("one")).reset()).unwrap();
        assert_eq!(everything(home.redis.server()), before);
    }

    #[test]
    fn what_was_remembered_of_all_routes_is_forgotten() {
        let home = InRedis::start();
        let limiter = home.limiter(vec![rule("route", "1/h burst 5", &[CLIENT, ROUTE])]);
        let on = |route| Request::new().client("one").route(route);
        let named = on("/x");
        for request in [on("/x"), on("/y")] {
            let _ = run(limiter.decide(&request.clone().cost(5)));
            for source in [Source::Store, Source::Remembered] {
                assert_eq!(run(limiter.decide(&request)).source(), source);
            }
        }
        run(limiter.request(&named).reset()).unwrap();
        for request in [on("/x"), on("/y")] {
            let decision = run(limiter.decide(&request));
            assert_eq!(
                (decision.allowed(), decision.source()),
                (true, Source::Store)
            );
        }
    }

    #[test]
    fn what_is_remembered_of_others_stays_where_only_named_buckets_go() {
        let home = InRedis::start();
        let limiter = home.limiter(vec![rule("client", "1/h burst 5", &[CLIENT])]);
        let (one, other) = (Request::new().client("one"), Request::new().client("other"));
        for request in [&one, &other] {
            let _ = run(limiter.decide(&request.clone().cost(5)));
            assert!(!run(limiter.decide(request)).allowed());
        }
        run(limiter.request(&one).reset()).unwrap();
        assert!(run(limiter.decide(&one)).allowed());
        assert_eq!(run(limiter.decide(&other)).source(), Source::Remembered);
    }

    #[test]
    fn a_reset_elsewhere_counts_soon() {
        let home = InRedis::start();
        let rules = || vec![rule("client", "1/h burst 5", &[CLIENT])];
        let (here, elsewhere) = (home.limiter(rules()), home.limiter(rules()));
        let request = Request::new().client("one");
        let _ = run(here.decide(&request.clone().cost(5)));
        for source in [Source::Store, Source::Remembered] {
            assert_eq!(run(here.decide(&request)).source(), source);
        }
        run(elsewhere.request(&request).reset()).unwrap();
        // It gives no sign; and it would be an hour if a denial were believed for as long as it said.
        let until = Instant::now() + Duration::from_secs(60);
        while !run(here.decide(&request)).allowed() {
            assert!(Instant::now() < until, "the denial is still believed");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn a_store_that_is_gone_is_an_error_and_what_is_counted_without_it_goes() {
        let mut server = Server::start();
        let patient = RedisConfig::default().deadline(Duration::from_secs(10));
        let store = RedisStore::open(&server.url(), patient).unwrap();
        let rules = vec![rule("client", "1/h burst 10", &[CLIENT])];
        let limiter = over(store, rules);
        server.kill();
        let request = Request::new().client("one").cost(8);
        assert!(run(limiter.decide(&request)).allowed());
        assert!(!run(limiter.decide(&request)).allowed());
        let error = run(limiter.request(&request).reset()).unwrap_err();
        assert!(error.to_string().contains("redis"), "{error}");
        assert!(run(limiter.decide(&request)).allowed());
    }
}
