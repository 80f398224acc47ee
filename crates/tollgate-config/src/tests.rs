//! The documentation against the reader: the same fields, and examples that work.

use std::collections::BTreeSet;
use std::time::Duration;

use tollgate::store::RedisClock;

use super::*;
use crate::document::reading::{duration_text, size_text};
use crate::sections::known_fields;

const DOCS: &str = include_str!("../../../docs/configuration.md");

/// The first column of every table, where it names a field.
fn documented_fields() -> BTreeSet<String> {
    let rows = DOCS.lines().filter_map(|line| line.strip_prefix("| `"));
    let fields = rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned()));
    fields.collect()
}

/// Every section, so that all fields are asked for.
const ALL_SECTIONS: &str = "
gateway: { tls: {}, upstreams: [{ to: http://a, health: {} }] }
service: { rls: {} }
admin: {}
store: { breaker: {} }
database: {}
audit: {}
log: {}
traces: {}
answers: { denied: {} }
identity: {}
paths: {}
clients: [{}]
costs: [{}]
rules: [{ match: {}, limit: {} }]
";

#[test]
fn fields_and_their_documentation_agree() {
    let known = known_fields(ALL_SECTIONS);
    let documented = documented_fields();
    let missing: Vec<_> = known.difference(&documented).collect();
    // Conditions are the same in rules and costs.
    let missing: Vec<_> = (missing.into_iter())
        .filter(|field| !field.starts_with("costs[].match."))
        .collect();
    let unknown: Vec<_> = documented.difference(&known).collect();
    assert!(
        missing.is_empty(),
        "not in docs/configuration.md: {missing:?}"
    );
    assert!(
        unknown.is_empty(),
        "only in docs/configuration.md: {unknown:?}"
    );
}

#[test]
fn documented_examples_are_valid() {
    let examples: Vec<&str> = (DOCS.split("```yaml\n").skip(1))
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(examples.len() >= 10, "{}", examples.len());
    for example in examples {
        let env = |name: &str| Some(format!("value-of-{name}"));
        if let Err(problems) = parse(example, &env) {
            panic!("{}", problems.render("docs/configuration.md", example));
        }
    }
}

#[test]
fn the_documented_message_is_the_real_one() {
    let text = "rules:\n  - id: a\n    per: []\n    limit: { rate: 10/fortnight }\n";
    let problems = parse(text, &|_| None).unwrap_err();
    let shown = problems.render("tollgate.yaml", text);
    assert!(DOCS.contains(shown.trim_end()), "{shown}");
}

#[test]
fn documented_defaults_are_the_real_ones() {
    let config = parse(
        "gateway: { upstreams: [{ to: \"http://a\", health: { path: / } }] }\nservice: {}\nadmin: {}\n",
        &|_| None,
    )
    .unwrap();
    let redis = parse("store: { redis: redis://127.0.0.1 }\n", &|_| None).unwrap();
    let StoreConfig::Redis(redis) = redis.store else {
        panic!("the store is Redis");
    };
    let StoreConfig::Memory(memory) = config.store else {
        panic!("the store is memory");
    };
    let text = "store: { redis: redis://127.0.0.1, clock: caller }\n";
    let RedisClock::Caller { tolerance, .. } = clock_of(text) else {
        panic!("the clock is that of callers");
    };
    let kept = parse("database: { url: sqlite:a }\n", &|_| None).unwrap();
    let (database, audit) = (kept.database.unwrap(), kept.audit.unwrap());
    let gateway = config.gateway.unwrap();
    let upstream = &gateway.upstreams[0];
    let health = upstream.health.as_ref().unwrap();
    let time = duration_text;
    let front = &gateway.front;
    let (service, admin) = (config.service.unwrap(), config.admin.unwrap());
    let size = |bytes: usize| size_text(bytes.try_into().unwrap());
    for (field, default) in [
        ("gateway.listen", gateway.listen.to_string()),
        (
            "gateway.upstreams[].connect_timeout",
            time(upstream.connect_timeout),
        ),
        (
            "gateway.upstreams[].response_timeout",
            time(upstream.response_timeout.unwrap()),
        ),
        (
            "gateway.upstreams[].idle_timeout",
            time(upstream.idle_timeout.unwrap()),
        ),
        (
            "gateway.upstreams[].tunnel_timeout",
            time(upstream.tunnel_timeout.unwrap()),
        ),
        ("gateway.upstreams[].retries", upstream.retries.to_string()),
        (
            "gateway.upstreams[].keepalive",
            upstream.keepalive.to_string(),
        ),
        (
            "gateway.upstreams[].keepalive_timeout",
            time(upstream.keepalive_timeout),
        ),
        (
            "gateway.upstreams[].max_connections",
            upstream.max_connections.to_string(),
        ),
        (
            "gateway.upstreams[].failures",
            upstream.failures.to_string(),
        ),
        ("gateway.upstreams[].set_aside", time(upstream.set_aside)),
        ("gateway.upstreams[].health.every", time(health.every)),
        ("gateway.upstreams[].health.timeout", time(health.timeout)),
        (
            "gateway.max_connections",
            front.connections.max_connections.to_string(),
        ),
        (
            "gateway.connections_per_address",
            front.connections.per_address.to_string(),
        ),
        (
            "gateway.waiting_per_address",
            front.waiting.per_address.to_string(),
        ),
        ("gateway.head_timeout", time(front.head_timeout)),
        ("gateway.idle_timeout", time(front.idle_timeout)),
        ("gateway.body_timeout", time(front.body_timeout)),
        ("gateway.send_timeout", time(front.send_timeout)),
        ("gateway.max_head", size(front.max_head)),
        ("gateway.max_body", size_text(front.max_body)),
        ("gateway.max_streams", front.max_streams.to_string()),
        ("gateway.max_age", time(front.max_age)),
        ("gateway.drain", time(front.drain)),
        ("service.listen", service.listen.to_string()),
        (
            "service.max_connections",
            service.connections.max_connections.to_string(),
        ),
        (
            "service.connections_per_address",
            service.connections.per_address.to_string(),
        ),
        (
            "service.waiting_per_address",
            service.waiting.per_address.to_string(),
        ),
        ("admin.listen", admin.listen.to_string()),
        (
            "admin.max_connections",
            admin.connections.max_connections.to_string(),
        ),
        (
            "admin.connections_per_address",
            admin.connections.per_address.to_string(),
        ),
        ("store.deadline", time(redis.config.deadline)),
        ("store.connect_timeout", time(redis.config.connect_timeout)),
        (
            "store.breaker.failures",
            redis.shared.breaker.failures.to_string(),
        ),
        ("store.breaker.within", time(redis.shared.breaker.within)),
        (
            "store.breaker.open_for",
            time(redis.shared.breaker.open_for),
        ),
        ("store.prefix", redis.config.prefix.clone()),
        ("store.clock_tolerance", time(tolerance)),
        (
            "store.remembered_denials",
            redis.shared.remembered_denials.to_string(),
        ),
        ("store.max_keys", memory.max_keys.to_string()),
        ("store.max_log_entries", memory.max_log_entries.to_string()),
        ("database.scope", database.scope.to_string()),
        ("audit.retention", time(audit.retention.unwrap())),
        ("audit.queue", audit.max_backlog.to_string()),
    ] {
        let row = DOCS
            .lines()
            .find(|line| line.starts_with(&format!("| `{field}`")))
            .unwrap();
        let column = row.split('|').nth(3).unwrap().trim();
        assert_eq!(column, format!("`{default}`"), "{field}");
    }
}

fn clock_of(text: &str) -> RedisClock {
    match parse(text, &|_| None).unwrap().store {
        StoreConfig::Redis(redis) => redis.config.clock,
        StoreConfig::Memory(_) => panic!("{text}"),
    }
}

#[test]
fn the_clock_of_the_store_is_the_default() {
    for clock in ["", ", clock: store"] {
        let text = format!("store: {{ redis: redis://127.0.0.1{clock} }}\n");
        assert!(matches!(clock_of(&text), RedisClock::Server), "{text}");
    }
    for (tolerance, ms) in [("", 100), (", clock_tolerance: 250ms", 250)] {
        let text = format!("store: {{ redis: redis://127.0.0.1, clock: caller{tolerance} }}\n");
        let RedisClock::Caller { tolerance, .. } = clock_of(&text) else {
            panic!("{text}");
        };
        assert_eq!(tolerance, Duration::from_millis(ms), "{text}");
    }
}

/// The values that rules count by are in keys of Redis and in the audit trail.
#[test]
fn rules_cannot_count_by_a_header_with_a_secret() {
    for header in ["Authorization", "X-API-Key", "cookie", "X-Auth-Token"] {
        let text = format!("rules: [{{ id: a, per: [ip, \"header:{header}\"], limit: 10/s }}]\n");
        let problems = parse(&text, &|_| None).unwrap_err();
        let shown = problems.render("tollgate.yaml", &text);
        assert!(shown.contains("carries a secret by its name"), "{shown}");
        assert!(shown.contains("count by client"), "{shown}");
    }
    let text = "rules: [{ id: a, per: [\"header:X-Tenant\"], limit: 10/s }]\n";
    assert!(parse(text, &|_| None).is_ok());
}
