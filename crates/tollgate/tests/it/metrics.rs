//! Metrics of a limiter, in a registry of the program's own.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use tollgate::{Dimension, Limiter, LocalLimiter, Mode, Request, Rule, RuleSet};

use crate::support::{clock, limit, memory, run};

fn rules() -> RuleSet {
    let rule = |id: &str, text: &str| Rule::new(id, limit(text)).unwrap();
    RuleSet::new([
        rule("client", "1/h burst 3").per([Dimension::Client]),
        rule("queue", "1/h queue 5").per([Dimension::Route]),
        rule("watched", "1/h burst 1").mode(Mode::Shadow),
    ])
    .unwrap()
}

fn text(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    text
}

/// The samples of a metric, as `labels value`.
fn samples(registry: &Registry, name: &str) -> Vec<String> {
    let text = text(registry);
    let lines = text.lines().filter_map(|line| line.strip_prefix(name));
    let samples = lines.filter(|line| line.starts_with(['{', ' ']));
    samples.map(|line| line.trim().to_owned()).collect()
}

#[test]
fn decisions_are_counted_by_rule_outcome_and_source() {
    let limiter = Arc::new(LocalLimiter::with_store(memory(&clock())));
    limiter.set_rules(rules());
    let request = Request::new().client("a");
    // Not counted yet.
    let _ = limiter.decide(&request);
    let mut registry = Registry::default();
    limiter.register_metrics(&mut registry);
    for _ in 0..3 {
        let _ = limiter.decide(&request);
        let _ = limiter.request(&request).peek();
    }
    let _ = limiter.request(&request).cost(9).decide();
    let _ = limiter.check("key", &limit("1/h"), 1);
    // An admitted request counts at the rule with the least left, a denied one at that with the longest wait.
    assert_eq!(
        samples(&registry, "decisions_total"),
        [
            r#"{rule="client",outcome="allowed",source="store"} 0"#,
            r#"{rule="client",outcome="denied",source="store"} 1"#,
            r#"{rule="client",outcome="delayed",source="store"} 2"#,
            r#"{rule="queue",outcome="allowed",source="store"} 0"#,
            r#"{rule="queue",outcome="denied",source="store"} 0"#,
            r#"{rule="queue",outcome="never_fits",source="store"} 1"#,
            r#"{rule="watched",outcome="allowed",source="store"} 0"#,
            r#"{rule="watched",outcome="denied",source="store"} 0"#,
            r#"{rule="",outcome="allowed",source="store"} 1"#,
        ]
    );
    // All that were admitted after the first; the last one was denied anyway.
    let shadows = samples(&registry, "shadow_denials_total");
    assert_eq!(shadows, [r#"{rule="watched"} 4"#]);
}

#[test]
fn a_removed_rule_keeps_its_counts() {
    let limiter = Arc::new(Limiter::new(memory(&clock())));
    let mut registry = Registry::default();
    limiter.register_metrics(registry.sub_registry_with_prefix("tollgate"));
    limiter.set_rules(rules());
    assert!(run(limiter.decide(&Request::new().client("a"))).allowed());
    limiter.set_rules(RuleSet::default());
    let counted = samples(&registry, "tollgate_decisions_total");
    assert_eq!(counted.len(), 1, "{counted:?}");
    assert!(counted[0].ends_with(r#"outcome="allowed",source="store"} 1"#));
    // What a limiter was is not shown when it is gone.
    drop(limiter);
    assert!(samples(&registry, "tollgate_decisions_total").is_empty());
}

#[test]
fn joint_decisions_count_each_request() {
    let limiter = Arc::new(Limiter::new(memory(&clock())));
    let mut registry = Registry::default();
    limiter.register_metrics(&mut registry);
    let rules = RuleSet::new([Rule::new("client", limit("1/h burst 3"))
        .unwrap()
        .per([Dimension::Client])]);
    limiter.set_rules(rules.unwrap());
    let rules = limiter.rules();
    let (one, other) = (
        Request::new().client("a"),
        Request::new().client("b").cost(9),
    );
    let matched = [rules.matching(&one), rules.matching(&other)];
    let check = limiter.all_of(&matched).unwrap();
    assert!(!run(check.decide()).whole.allowed());
    assert!(!run(check.peek()).whole.allowed());
    assert_eq!(
        samples(&registry, "decisions_total"),
        [
            r#"{rule="client",outcome="allowed",source="store"} 1"#,
            r#"{rule="client",outcome="denied",source="store"} 0"#,
            r#"{rule="client",outcome="never_fits",source="store"} 1"#
        ]
    );
}

#[test]
fn the_store_in_memory_is_shown() {
    let limiter = Arc::new(LocalLimiter::with_store(memory(&clock())));
    let mut registry = Registry::default();
    limiter.register_metrics(&mut registry);
    for key in 0..7 {
        let _ = limiter.check(format!("key-{key}"), &limit("1/h"), 1);
    }
    assert_eq!(samples(&registry, "memory_keys"), ["7"]);
    assert_eq!(samples(&registry, "memory_live_keys"), ["7"]);
    assert_eq!(samples(&registry, "memory_evicted_keys_total"), ["0"]);
    assert!(!text(&registry).contains("store_"));
}

#[cfg(feature = "redis")]
#[test]
fn the_shared_store_is_shown() {
    use std::time::Duration;
    use tollgate::store::{RedisConfig, RedisStore};

    let server = crate::server::Server::start();
    let config = RedisConfig::default().deadline(Duration::from_secs(10));
    let store = RedisStore::open(&server.url(), config).unwrap();
    let limiter = Limiter::builder(store).shared(crate::support::one_instance());
    let limiter = Arc::new(limiter.build());
    let mut registry = Registry::default();
    limiter.register_metrics(&mut registry);
    let limit = limit("1/h burst 1");
    for _ in 0..3 {
        let _ = run(limiter.check("key", &limit, 1));
    }
    assert_eq!(
        samples(&registry, "decisions_total"),
        [
            r#"{rule="",outcome="allowed",source="store"} 1"#,
            r#"{rule="",outcome="denied",source="store"} 1"#,
            r#"{rule="",outcome="denied",source="remembered"} 1"#
        ]
    );
    assert_eq!(samples(&registry, "store_breaker_open"), ["0"]);
    assert_eq!(samples(&registry, "store_instances"), ["1"]);
    assert_eq!(
        samples(&registry, "store_call_duration_seconds_count"),
        ["2"]
    );
    assert!(samples(&registry, "memory_keys").is_empty());
}
