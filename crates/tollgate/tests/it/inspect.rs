//! Looking at what a subject used: exactly what was decided, and nothing changes by it.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tollgate::{
    BucketKind, Decision, Dimension, Limiter, LocalLimiter, ManualClock, Mode, Name, Request, Rule,
    Usage,
};

use crate::support::{clock, limit, memory, one_of_each, run, us};

pub(crate) const HOME: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

pub(crate) fn rule(id: &str, text: &str, per: &[Dimension]) -> Rule {
    let rule = Rule::new(id, limit(text)).unwrap();
    rule.per(per.iter().copied())
}

pub(crate) fn inspect(limiter: &Limiter, request: &Request<'_>) -> Vec<Usage> {
    run(limiter.request(request).inspect()).unwrap()
}

/// The figures of a usage and of a tier, to be compared.
fn figures(usage: &Usage) -> (String, String, u64, Duration, bool) {
    (
        usage.rule().unwrap().to_string(),
        usage.limit().unwrap().to_string(),
        usage.remaining().unwrap(),
        usage.reset_after(),
        usage.is_shadow(),
    )
}

fn said(decision: &Decision) -> Vec<(String, String, u64, Duration, bool)> {
    let figures = |tier: &tollgate::Tier| {
        (
            tier.rule().to_string(),
            tier.limit().to_string(),
            tier.remaining(),
            tier.reset_after(),
            tier.is_shadow(),
        )
    };
    decision.tiers().iter().map(figures).collect()
}

/// Makes limiters that share a store; each takes its rules.
pub(crate) trait Home {
    fn limiter(&self, rules: Vec<Rule>) -> Limiter;
    fn clock(&self) -> &ManualClock;
}

pub(crate) struct InMemory(pub(crate) ManualClock);

impl Home for InMemory {
    fn limiter(&self, rules: Vec<Rule>) -> Limiter {
        let limiter = LocalLimiter::with_store(memory(&self.0)).with_rules(rules);
        limiter.unwrap().into()
    }

    fn clock(&self) -> &ManualClock {
        &self.0
    }
}

fn says_what_decide_said(home: &dyn Home) {
    let name = |i: usize| format!("rule-{i}");
    let mut rules: Vec<Rule> = (one_of_each().into_iter().enumerate())
        .map(|(i, limit)| Rule::new(&name(i), limit).unwrap())
        .map(|rule| rule.per([Dimension::Client]))
        .collect();
    rules.push(rule("watch", "1/min burst 20", &[Dimension::Ip]).mode(Mode::Shadow));
    rules.push(rule("everyone", "7/min burst 100", &[]));
    rules.push(rule(
        "route",
        "3 per 1m sliding_log",
        &[Dimension::Client, Dimension::Route],
    ));
    let limiter = home.limiter(rules);
    let request = (Request::new().client("merchant_123").ip(HOME)).route("/v1/charges");
    for cost in [2, 1] {
        home.clock().advance(us(123_457));
        let decision = run(limiter.decide(&request.clone().cost(cost)));
        assert!(decision.allowed());
        let usages = inspect(&limiter, &request.clone().cost(1_000_000));
        let seen: Vec<_> = usages.iter().map(figures).collect();
        assert_eq!(seen, said(&decision));
        assert!((usages.iter()).all(|usage| usage.bucket() == BucketKind::Matched));
        assert_eq!(usages[3].used(), Some(if cost == 2 { 2 } else { 3 }));
    }
    // Time goes on here as it does for a decision that takes nothing.
    home.clock().advance(us(700_001));
    let seen: Vec<_> = inspect(&limiter, &request).iter().map(figures).collect();
    assert_eq!(seen, said(&run(limiter.decide(&request.cost(0)))));
}

fn nothing_used_is_said_as_such(home: &dyn Home) {
    let limiter = home.limiter(vec![
        rule("client", "10/s burst 50", &[Dimension::Client]),
        rule("everyone", "100/s", &[]),
        rule(
            "route",
            "10/s",
            &[Dimension::Client, Dimension::Route], // The request does not say which.
        ),
        rule("ip", "10/s", &[Dimension::Ip]), // Nor this.
    ]);
    let usages = inspect(&limiter, &Request::new().client("nobody"));
    let names: Vec<&str> = (usages.iter())
        .map(|usage| usage.rule().unwrap().as_str())
        .collect();
    assert_eq!(names, ["client", "everyone"]);
    for usage in &usages {
        assert_eq!(usage.used(), Some(0));
        assert_eq!(usage.reset_after(), Duration::ZERO);
        assert_eq!(usage.remaining(), Some(usage.limit().unwrap().capacity()));
    }
}

fn everybody_sees_only_their_own(home: &dyn Home) {
    let limiter = home.limiter(vec![rule("client", "1/h burst 50", &[Dimension::Client])]);
    let long = "x".repeat(500);
    let clients = [
        "a",
        "",
        "a}",
        "}{",
        "a:b",
        "a\r\nGET b\r\n",
        "\0",
        "ü€😀",
        "%7d",
        "*",
        &long,
        "b",
    ];
    for (cost, client) in (1..).zip(clients) {
        let request = Request::new().client(client).cost(cost);
        assert!(run(limiter.decide(&request)).allowed());
    }
    for (cost, client) in (1..).zip(clients) {
        let usages = inspect(&limiter, &Request::new().client(client));
        assert_eq!(usages.len(), 1, "{client:?}");
        assert_eq!(usages[0].used(), Some(cost), "{client:?}");
    }
    assert_eq!(
        inspect(&limiter, &Request::new().client("c"))[0].used(),
        Some(0)
    );
}

fn plans_are_told_apart(home: &dyn Home) {
    let limiter = home.limiter(vec![
        rule("client", "1/h burst 10", &[Dimension::Client]),
        rule("client", "1/h burst 100", &[Dimension::Client]).plan("pro"),
        rule("ip", "1/h burst 20", &[Dimension::Ip]),
        rule("ip", "1/h burst 200", &[Dimension::Ip]).plan("pro"),
    ]);
    let free = Request::new().client("a").ip(HOME);
    let pro = free.clone().plan("pro");
    let _ = run(limiter.decide(&free.clone().cost(3)));
    let _ = run(limiter.decide(&pro.clone().cost(4)));
    let used = |usages: &[Usage], rule: &str, capacity: u64| {
        let mut found = usages.iter().filter(|usage| {
            usage.rule() == Some(Name::new(rule).unwrap())
                && usage.limit().unwrap().capacity() == capacity
        });
        let used = found.next().and_then(Usage::used);
        assert!(found.next().is_none());
        used
    };
    let of_free = inspect(&limiter, &free);
    assert_eq!(used(&of_free, "client", 10), Some(7));
    assert_eq!(used(&of_free, "ip", 20), Some(3));
    let of_pro = inspect(&limiter, &pro);
    assert_eq!(used(&of_pro, "client", 100), Some(7));
    assert_eq!(used(&of_pro, "ip", 200), Some(4));
}

fn what_lies_elsewhere_is_shown_to_who_names_it(home: &dyn Home) {
    let device = Name::new("device").unwrap();
    let per = [Dimension::Client, Dimension::Attribute(device)];
    let limiter = home.limiter(vec![
        rule("device", "1/h burst 10", &per),
        rule("device-log", "10 per 1h sliding_log", &per),
    ]);
    let request = Request::new().client("a");
    let phone = request.clone().attribute(device, "phone");
    let _ = run(limiter.decide(&phone.clone().cost(4)));
    let used: Vec<_> = (inspect(&limiter, &phone).iter())
        .map(Usage::used)
        .collect();
    assert_eq!(used, [Some(4), Some(4)]);
    assert_eq!(inspect(&limiter, &request), []);
    let other = request.attribute(device, "tablet");
    assert!((inspect(&limiter, &other).iter()).all(|usage| usage.used() == Some(0)));
}

const CHECKS: [fn(&dyn Home); 5] = [
    says_what_decide_said,
    nothing_used_is_said_as_such,
    everybody_sees_only_their_own,
    plans_are_told_apart,
    what_lies_elsewhere_is_shown_to_who_names_it,
];

#[test]
fn in_memory() {
    for check in CHECKS {
        check(&InMemory(clock()));
    }
}

#[test]
fn in_memory_nothing_comes_to_be() {
    let limiter = LocalLimiter::with_store(memory(&clock()));
    let rules = [
        rule("client", "10/s", &[Dimension::Client]),
        rule("everyone", "10/s", &[]),
    ];
    let limiter = limiter.with_rules(rules).unwrap();
    assert_eq!(
        limiter.request(&Request::new().client("a")).inspect().len(),
        2
    );
    assert_eq!(limiter.memory_stats().keys, 0);
}

#[cfg(feature = "redis")]
pub(crate) mod over_redis {
    use tollgate::store::{RedisConfig, RedisStore, RedisTls};
    use tollgate::{Clock, Source};

    use super::*;
    use crate::server::{Clustered, OwnRedis, Server, store_at};
    use crate::support::one_instance;

    pub(crate) struct InRedis {
        pub(crate) redis: OwnRedis,
        clock: ManualClock,
    }

    impl InRedis {
        pub(crate) fn start() -> Self {
            let clock = clock();
            Self {
                redis: OwnRedis::start(Clock::from(&clock)),
                clock,
            }
        }
    }

    impl Home for InRedis {
        fn limiter(&self, rules: Vec<Rule>) -> Limiter {
            over(self.redis.store(), rules)
        }

        fn clock(&self) -> &ManualClock {
            &self.clock
        }
    }

    pub(crate) fn over(store: RedisStore, rules: Vec<Rule>) -> Limiter {
        let limiter = Limiter::builder(store).shared(one_instance()).build();
        limiter.with_rules(rules).unwrap()
    }

    #[test]
    fn in_redis() {
        for check in CHECKS {
            check(&InRedis::start());
        }
    }

    struct InCluster<'a> {
        clustered: &'a Clustered,
        prefix: String,
        clock: ManualClock,
    }

    /// Runs these on a cluster, each with keys of its own.
    pub(crate) fn in_a_cluster_of_its_own(checks: impl IntoIterator<Item = fn(&dyn Home)>) {
        let clustered = Clustered::start();
        for (i, check) in checks.into_iter().enumerate() {
            check(&InCluster {
                clustered: &clustered,
                prefix: format!("check-{i}"),
                clock: clock(),
            });
        }
    }

    impl Home for InCluster<'_> {
        fn limiter(&self, rules: Vec<Rule>) -> Limiter {
            let url = self.clustered.url();
            let tls = RedisTls::default();
            let store = store_at(&url, tls, &self.prefix, Clock::from(&self.clock));
            over(store, rules)
        }

        fn clock(&self) -> &ManualClock {
            &self.clock
        }
    }

    #[test]
    fn in_a_cluster() {
        let shared_checks: [fn(&dyn Home); 2] =
            [a_client_shows_all_its_routes, a_removed_rule_is_not_known];
        in_a_cluster_of_its_own(CHECKS.into_iter().chain(shared_checks));
    }

    pub(crate) fn per_route() -> Vec<Rule> {
        vec![
            rule("client", "1/h burst 50000", &[Dimension::Client]),
            rule(
                "route",
                "1/h burst 1000",
                &[Dimension::Client, Dimension::Route],
            ),
            rule(
                "route-log",
                "1000 per 1h sliding_log",
                &[Dimension::Client, Dimension::Route],
            ),
        ]
    }

    fn a_client_shows_all_its_routes(home: &dyn Home) {
        let limiter = home.limiter(per_route());
        // More than one look takes.
        let routes: Vec<String> = (1..=150).map(|i| format!("/route/{i}")).collect();
        let client = Request::new().client("a");
        for (cost, route) in (1..).zip(&routes) {
            let request = client.clone().route(route).cost(cost);
            assert!(run(limiter.decide(&request)).allowed());
        }
        let used = |usages: &[Usage], rule: &str, is_asked: bool| -> Vec<u64> {
            let rule = Some(Name::new(rule).unwrap());
            let mut used: Vec<u64> = usages
                .iter()
                .filter(|usage| usage.rule() == rule)
                .filter(|usage| (usage.bucket() == BucketKind::Matched) == is_asked)
                .map(|usage| usage.used().unwrap())
                .collect();
            used.sort_unstable();
            used
        };
        let all: Vec<u64> = (1..=150).collect();
        let usages = inspect(&limiter, &client);
        assert_eq!(usages.len(), 301);
        assert_eq!(used(&usages, "client", true), [all.iter().sum::<u64>()]);
        assert_eq!(used(&usages, "route", false), all);
        assert_eq!(used(&usages, "route-log", false), all);
        // One that is named is the one that is asked for.
        let usages = inspect(&limiter, &client.clone().route("/route/150"));
        assert_eq!(usages.len(), 301);
        assert_eq!(used(&usages, "route", true), [150]);
        assert_eq!(used(&usages, "route", false), all[..149]);
        // Nobody else sees any of it.
        assert_eq!(inspect(&limiter, &Request::new().client("b")).len(), 1);
    }

    #[test]
    fn a_client_shows_all_its_routes_in_redis() {
        a_client_shows_all_its_routes(&InRedis::start());
    }

    fn a_removed_rule_is_not_known(home: &dyn Home) {
        let limiter = home.limiter(per_route());
        let request = Request::new().client("a").route("/x").cost(5);
        let decision = run(limiter.decide(&request));
        let mut fewer = per_route();
        let _ = fewer.remove(0);
        let usages = inspect(&home.limiter(fewer), &request);
        let known: Vec<_> = usages.iter().map(Usage::used).collect();
        assert_eq!(known, [Some(5), Some(5), None]);
        let gone = &usages[2];
        assert_eq!((gone.rule(), gone.limit()), (None, None));
        assert!(matches!(gone.bucket(), BucketKind::Other(_)));
        // Rounded up by a sixteenth at the most.
        let until = decision.tiers()[0].reset_after();
        assert!((until..until * 17 / 16).contains(&gone.reset_after()));
        // Also if nothing is left to ask by, and until it says nothing.
        assert_eq!(inspect(&home.limiter(Vec::new()), &request).len(), 3);
        home.clock().advance(gone.reset_after());
        assert_eq!(inspect(&home.limiter(Vec::new()), &request), []);
    }

    #[test]
    fn a_removed_rule_is_not_known_in_redis() {
        a_removed_rule_is_not_known(&InRedis::start());
    }

    #[test]
    fn a_removed_plan_is_not_guessed() {
        let home = InRedis::start();
        let plans = |ids: &[&str]| -> Vec<Rule> {
            (ids.iter())
                .map(|plan| rule("ip", "1/h burst 10", &[Dimension::Ip]).plan(plan))
                .chain([rule("ip", "1/h burst 5", &[Dimension::Ip])])
                .collect()
        };
        let request = Request::new().ip(HOME);
        let limiter = home.limiter(plans(&["pro", "max"]));
        let _ = run(limiter.decide(&request.clone().plan("max").cost(2)));
        let _ = run(limiter.decide(&request.clone().plan("pro").cost(3)));
        let used = |limiter: &Limiter| -> Vec<_> {
            let usages = inspect(limiter, &request);
            usages
                .iter()
                .map(|usage| (usage.rule().is_some(), usage.used()))
                .collect()
        };
        assert_eq!(
            used(&limiter),
            [(true, Some(0)), (true, Some(2)), (true, Some(3))]
        );
        let without_max = home.limiter(plans(&["pro"]));
        assert_eq!(
            used(&without_max),
            [(true, Some(0)), (true, Some(3)), (true, None)]
        );
    }

    /// Every key with its value and when it expires.
    pub(crate) fn everything(server: &Server) -> Vec<(String, Vec<u8>, i64)> {
        let mut keys: Vec<String> = server.ask("KEYS *");
        keys.sort_unstable();
        let all = keys.into_iter().map(|key| {
            let value = server.ask(&format!("GET {key}"));
            let expires = server.ask(&format!("PEXPIRETIME {key}"));
            (key, value, expires)
        });
        all.collect()
    }

    /// Also for stores with a bug.
    pub(crate) fn changes_nothing(redis: &OwnRedis, clock: &ManualClock) {
        let mut rules = per_route();
        rules.push(rule("everyone", "5/h", &[]));
        let limiter = over(redis.store(), rules);
        let request = Request::new().client("a").route("/x");
        let _ = run(limiter.decide(&request));
        let before = everything(redis.server());
        assert_eq!(before.len(), 3);
        for later in [us(0), us(1_500_000), Duration::from_secs(7_200)] {
            clock.advance(later);
            for request in [&request, &Request::new().client("b").ip(HOME).route("/y")] {
                assert!(!inspect(&limiter, request).is_empty());
            }
            assert_eq!(everything(redis.server()), before);
        }
    }

    #[test]
    fn looking_changes_nothing() {
        let home = InRedis::start();
        changes_nothing(&home.redis, &home.clock);
    }

    #[test]
    fn what_is_remembered_does_not_matter() {
        let home = InRedis::start();
        let rules = || vec![rule("client", "1/h burst 5", &[Dimension::Client])];
        let (limiter, another) = (home.limiter(rules()), home.limiter(rules()));
        let request = Request::new().client("a");
        let _ = run(limiter.decide(&request.clone().cost(5)));
        for source in [Source::Store, Source::Remembered] {
            assert_eq!(run(limiter.decide(&request)).source(), source);
        }
        run(another.request(&request).reset()).unwrap();
        assert_eq!(inspect(&limiter, &request)[0].used(), Some(0));
    }

    #[test]
    fn a_store_that_is_gone_is_an_error() {
        let mut server = Server::start();
        let store = RedisStore::open(&server.url(), RedisConfig::default()).unwrap();
        let limiter = over(store, per_route());
        server.kill();
        let error = run(limiter.request(&Request::new().client("a")).inspect()).unwrap_err();
        assert!(error.to_string().contains("redis"), "{error}");
        assert_eq!(limiter.shared_stats().unwrap().by_fallback, 0);
    }
}
