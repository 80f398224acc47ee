//! Whole configurations: values, many mistakes at once, and rules from a database.

use std::time::Duration;

use serde_json::json;
use tollgate::{Instances, Request};
use tollgate_config::document::{Node, Problems};
use tollgate_config::{Config, LogFormat, LogLevel, RulesFrom, StoreConfig, parse};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn env(name: &str) -> Option<String> {
    (name == "TOLLGATE_ADMIN_TOKEN").then(|| TOKEN.to_owned())
}

fn good(text: &str) -> Config {
    match parse(text, &env) {
        Ok(config) => config,
        Err(problems) => panic!("{}", problems.render("tollgate.yaml", text)),
    }
}

fn bad(text: &str) -> Problems {
    match parse(text, &env) {
        Ok(config) => panic!("nothing is wrong: {config:?}"),
        Err(problems) => problems,
    }
}

/// A configuration with most sections.
const COMPLETE: &str = r#"
gateway:
  listen: 127.0.0.1:8080
  upstreams:
    - { path: /, to: ["http://127.0.0.1:3000"] }
service: { listen: 127.0.0.1:8081 }        # decisions: HTTP JSON, forward-auth, gRPC (RLS), one port
admin:   { listen: 127.0.0.1:8082, token: "${TOLLGATE_ADMIN_TOKEN}" }   # dashboard, API, /metrics
store:
  redis: redis://127.0.0.1:6379            # absent: in memory
  deadline: 10ms
  breaker: { failures: 5, within: 10s, open_for: 30s }
identity:
  client: ["header:X-API-Key", "header:X-User-Id", ip]    # the first that is present
  plan: ["header:X-Plan"]                  # or from `clients`, or from the database
  trusted_proxies: [127.0.0.0/8]
  ipv6_prefix: 64
clients:
  - { id: merchant_123, plan: enterprise, api_key_sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08" }
costs:
  - { match: { methods: [POST], path: /reports/generate }, cost: 10 }
rules:
  - id: client
    per: [client]                          # who gets a bucket of its own; []: one for everybody
    limit: { algorithm: token_bucket, rate: 10/s, burst: 50 }
  - id: client
    plan: pro
    per: [client]
    limit: { algorithm: token_bucket, rate: 100/s, burst: 500 }
  - id: charges
    match: { methods: [POST], path: "/v1/charges/{*rest}" }
    per: [client, route]
    limit: { algorithm: sliding_counter, limit: 600, window: 1m }
    on_store_failure: closed               # local (default) | open | closed
    mode: enforce                          # enforce | shadow | off
  - id: everyone
    per: []
    limit: { algorithm: token_bucket, rate: 50000/s, burst: 100000 }
"#;

#[test]
fn a_complete_configuration_has_no_warning() {
    let config = good(COMPLETE);
    assert_eq!(config.warnings.to_string(), "");
    assert_eq!(
        config.gateway.unwrap().upstreams[0].to,
        ["http://127.0.0.1:3000"]
    );
    assert_eq!(config.service.unwrap().listen.port(), 8081);
    assert_eq!(config.admin.unwrap().token.unwrap().expose(), TOKEN);
    let StoreConfig::Redis(redis) = config.store else {
        panic!("the store is Redis");
    };
    assert_eq!(redis.config.deadline, Duration::from_millis(10));
    assert_eq!(redis.shared.breaker, Default::default());
    assert_eq!(config.policy.rules.rules().count(), 4);
    assert_eq!(
        config.policy.clients.plan_of("merchant_123"),
        Some("enterprise")
    );

    let path = config.policy.paths().normalise("/v1/charges/7").unwrap();
    let charges = Request::new().client("a").method("POST").path(&path);
    let met = config.policy.rules.matching(&charges);
    let ids: Vec<&str> = met.rules().iter().map(|rule| rule.id().as_str()).collect();
    assert_eq!(ids, ["client", "charges", "everyone"]);
}

#[test]
fn routes_name_endpoints_without_a_rule() {
    let config =
        good("routes: [\"/v1/users/{id}\"]\nrules: [{ id: a, per: [route], limit: 1/s }]\n");
    let path = config.policy.paths().normalise("/v1/users/7").unwrap();
    let request = Request::new().path(&path);
    assert_eq!(
        config.policy.rules.matching(&request).route(),
        Some("/v1/users/{id}")
    );
}

#[test]
fn absent_sections_have_defaults() {
    let config = good("service: {}\nadmin: {}\nrules: [{ id: a, per: [], limit: 1/s }]\n");
    assert_eq!(
        config.service.unwrap().listen,
        "127.0.0.1:8081".parse().unwrap()
    );
    assert_eq!(
        config.admin.unwrap().listen,
        "127.0.0.1:8082".parse().unwrap()
    );
    let StoreConfig::Memory(memory) = config.store else {
        panic!("the store is memory");
    };
    assert_eq!(memory.max_keys, 1_000_000);
    assert_eq!(
        (config.log.level, config.log.format),
        (LogLevel::Info, LogFormat::Text)
    );
    assert_eq!(config.rules_from, RulesFrom::File);
    assert!(config.audit.is_none() && config.database.is_none());
}

#[test]
fn every_field_is_read() {
    let config = good(
        r#"{ "service": { "listen": "[::1]:9000" },
             "store": { "redis": "rediss://u:pw@h/1", "instances": "counted", "prefix": "eu", "connect_timeout": "2s" },
             "database": { "url": "sqlite:tollgate.db", "poll": "5s", "scope": "eu", "cache": "rules.json" },
             "audit": { "retention": "7d", "queue": 500 }, "log": { "level": "debug", "format": "json" },
             "paths": { "ignore_case": true, "encoded_slash": "keep" } }"#,
    );
    let StoreConfig::Redis(redis) = &config.store else {
        panic!("the store is Redis");
    };
    assert_eq!(redis.shared.instances, Instances::counted());
    assert_eq!(redis.config.prefix, "eu");
    assert!(!format!("{config:?}").contains("pw"), "{config:?}");
    let database = config.database.unwrap();
    assert_eq!(
        (database.scope.as_str(), database.watch.poll),
        ("eu", Some(Duration::from_secs(5)))
    );
    let audit = config.audit.unwrap();
    assert_eq!(
        (audit.retention, audit.max_backlog),
        (Some(Duration::from_secs(7 * 86_400)), 500)
    );
    assert_eq!(config.rules_from, RulesFrom::Database);
    assert!(config.policy.paths().ignore_case);
}

#[test]
fn ten_mistakes_are_reported_at_once() {
    let text = "\
gateway:
  listen: 8080
  upstreams: [{ path: v1, to: localhost:3000 }]
store:
  max_keys: many
  redis: 7
identity:
  client: [cookie]
rules:
  - id: a b
    per: [customer]
    limit: 10
    mode: dry
";
    let problems = bad(text);
    let found: Vec<(usize, usize, String)> = (problems.sorted().iter())
        .map(|problem| {
            let span = problem.location.span.unwrap();
            (span.line, span.column, problem.location.path.clone())
        })
        .collect();
    let expected = [
        (2, 11, "gateway.listen"),
        (3, 23, "gateway.upstreams[0].path"),
        (3, 31, "gateway.upstreams[0].to"),
        (5, 13, "store.max_keys"),
        (6, 10, "store.redis"),
        (8, 12, "identity.client[0]"),
        (10, 9, "rules[0].id"),
        (11, 11, "rules[0].per[0]"),
        (12, 12, "rules[0].limit"),
        (13, 11, "rules[0].mode"),
    ];
    let expected = expected.map(|(line, column, path)| (line, column, path.to_owned()));
    assert_eq!(found, expected);
    assert_eq!(problems.errors(), 10);
}

#[test]
fn debug_shows_no_secret_from_the_environment() {
    let config = good("service: {}\nadmin: { token: \"${TOLLGATE_ADMIN_TOKEN}\" }\n");
    assert!(!format!("{config:?}").contains(TOKEN));
}

#[test]
fn ten_thousand_rules_are_read() {
    let mut text = String::from("service: {}\nrules:\n");
    for nth in 0..10_000 {
        text.push_str(&format!(
            "  - id: rule-{nth}\n    description: the rule for service number {nth}\n    match: {{ methods: [GET, POST], path: \
             \"/service-{nth}/{{*rest}}\" }}\n    per: [client, route]\n    limit: {{ algorithm: token_bucket, rate: {}/s, burst: 50 }}\n",
            nth % 100 + 1
        ));
    }
    let config = good(&text);
    assert_eq!(config.policy.rules.rules().count(), 10_000);
}

#[test]
fn every_form_of_a_limit_is_read() {
    for (found, expected) in [
        ("10/s", "10/s burst 10"),
        (
            "\"600 per 1m sliding_counter\"",
            "600 per 1m sliding_counter",
        ),
        ("{ rate: 10/s }", "10/s burst 10"),
        ("{ rate: 100/min, burst: 1_000 }", "100/m burst 1000"),
        ("{ rate: 0.5/s }", "1/2s burst 1"),
        ("{ rate: 10/s, queue: 5 }", "10/s queue 5"),
        ("{ algorithm: leaky_bucket, rate: 10/s }", "10/s queue 10"),
        (
            "{ algorithm: fixed_window, limit: 5, window: 1h }",
            "5 per 1h fixed_window",
        ),
        (
            "{ algorithm: sliding_log, limit: 5, window: 1w }",
            "5 per 7d sliding_log",
        ),
    ] {
        let config = good(&format!("rules: [{{ id: a, per: [], limit: {found} }}]"));
        let rule = config.policy.rules.rules().next().unwrap().clone();
        assert_eq!(rule.limit().to_string(), expected, "{found}");
    }
}

fn node(json: &serde_json::Value) -> Node {
    Node::from_json(json)
}

#[test]
fn database_rules_are_compiled_with_costs_of_the_file() {
    let config = good(
        "service: {}\ndatabase: { url: sqlite:x.db }\ncosts: [{ match: { path: /a }, cost: 3 }]\n",
    );
    let rules = [node(&json!({
        "id": "charges", "plan": null, "match": { "methods": ["POST"], "headers": { "X-Region": "eu" } },
        "per": ["client", "header:X-Region"], "limit": { "algorithm": "token_bucket", "rate": "10/s", "burst": 50 },
        "mode": "enforce", "on_store_failure": "local", "description": "charges",
    }))];
    let clients = [node(
        &json!({ "id": "merchant_123", "plan": "enterprise", "api_key_sha256": "ab".repeat(32) }),
    )];
    let policy = config.policy.with_documents(&rules, &clients).unwrap();
    assert_eq!(policy.rules.rules().count(), 1);
    assert_eq!(policy.clients.plan_of("merchant_123"), Some("enterprise"));
    assert_eq!(policy.costs().len(), 1);
    let names: Vec<&str> = policy
        .rules
        .attribute_names()
        .iter()
        .map(tollgate::Name::as_str)
        .collect();
    assert_eq!(names, ["header:x-region"]);
}

#[test]
fn problems_in_a_database_name_id_and_field() {
    let config = good("service: {}\ndatabase: { url: sqlite:x.db }\n");
    let rules = [
        node(&json!({ "id": "charges", "per": ["client"], "limit": { "rate": "10/fortnight" } })),
        node(&json!({ "per": [], "limit": "1/s" })),
        node(&json!({ "id": "x", "per": [], "limit": "${HOME}" })),
    ];
    let clients = [node(&json!({ "id": "m", "api_key_sha256": "abc" }))];
    let problems = config.policy.with_documents(&rules, &clients).unwrap_err();
    let found = problems.to_string();
    for part in [
        "rule \"charges\".limit.rate: \"10/fortnight\" is not a limit",
        "rule number 2: the field \"id\" is missing",
        // Variables are for files, not for databases.
        "rule \"x\".limit: \"${HOME}\" is not a limit",
        "client \"m\".api_key_sha256: this is not a SHA-256",
    ] {
        assert!(found.contains(part), "expected {part:?} in:\n{found}");
    }
    let twice = [
        node(&json!({ "id": "a", "per": [], "limit": "1/s" })),
        node(&json!({ "id": "a", "per": [], "limit": "2/s" })),
    ];
    let found = config
        .policy
        .with_documents(&twice, [])
        .unwrap_err()
        .to_string();
    assert_eq!(
        found,
        "rule \"a\".id: two rules have this id and no plan (give one of them another id or a plan of its own)"
    );
}

/// Values of variables that must not appear in messages.
fn hidden(name: &str) -> Option<String> {
    Some(
        match name {
            "PATH_OF" => "/hunter2",
            "SOURCE" => "header:X-Hunter2",
            "BY" => "header:hunter2",
            "OPEN" => "198.51.100.77:8082",
            "NETWORK" => "198.51.100.77/8",
            "RESERVED" => "ip:hunter2",
            _ => "hunter2",
        }
        .to_owned(),
    )
}

fn assert_nothing_hidden(text: &str, problems: &Problems, at_least: usize) {
    let rendered = problems.render("tollgate.yaml", text);
    assert!(problems.sorted().len() >= at_least, "{rendered}");
    for secret in ["hunter2", "Hunter2", "198.51.100"] {
        assert!(!rendered.contains(secret), "{rendered}");
    }
}

#[test]
fn no_error_contains_a_value_of_the_environment() {
    let text = r#"
gateway:
  listen: "${OPEN}"
  upstreams: [{ path: "${PATH_OF}", to: "http://a" }, { path: "${PATH_OF}", to: "${ANY}" }]
admin: { listen: "${OPEN}" }
store: { deadline: "${ANY}", prefix: "${PATH_OF}", instances: "${ANY}", clock: "${ANY}", clock_tolerance: "${ANY}", redis: "${ANY}" }
database: { url: "${ANY}", scope: "${PATH_OF}" }
rules_from: "${ANY}"
log: { level: "${ANY}" }
paths: { ignore_case: "${ANY}" }
identity: { client: ["${SOURCE}", "${SOURCE}", "${ANY}"], plan: ["${ANY}"], trusted_proxies: ["${NETWORK}", "${ANY}"] }
clients: [{ id: "${ANY}" }, { id: "${ANY}" }, { id: "${RESERVED}" }, { id: a, api_key_sha256: "${ANY}" }]
costs: [{ match: { methods: ["${PATH_OF}"], host: "${PATH_OF}", path: "${ANY}" }, cost: "${ANY}" }]
rules:
  - { id: "${ANY}", plan: "${ANY}", per: ["${BY}", "${BY}"], limit: "${ANY}", mode: "${ANY}" }
  - { id: "${ANY}", plan: "${ANY}", per: ["${ANY}"], limit: { rate: "${ANY}", burst: "${ANY}" } }
"#;
    let problems = parse(text, &hidden).unwrap_err();
    assert_nothing_hidden(text, &problems, 25);
    let text = r#"
clients: [{ id: "${ANY}" }, { id: "${ANY}" }]
rules:
  - { id: "${ANY}", plan: "${ANY}", per: ["${BY}"], limit: 1/s }
  - { id: "${ANY}", plan: "${ANY}", match: { path: "${PATH_OF}" }, per: [], limit: 1/s }
"#;
    let problems = parse(text, &hidden).unwrap_err();
    assert_nothing_hidden(text, &problems, 4);
}

#[test]
fn no_warning_contains_a_value_of_the_environment() {
    let text = r#"
gateway: { listen: 10.0.0.1:80, upstreams: [{ path: /v1, to: "http://${ANY}" }] }
identity: { client: ["${SOURCE}", ip], plan: "${SOURCE}" }
rules:
  - { id: "${ANY}", plan: "${ANY}", match: { path: "${PATH_OF}", plan: other }, per: [client], limit: 1/s }
"#;
    let config = parse(text, &hidden).unwrap();
    assert_nothing_hidden(text, &config.warnings, 5);
}

#[test]
fn rules_have_exceptions_and_costs_of_their_own() {
    let gateway = "gateway: { upstreams: [{ to: http://127.0.0.1:1 }] }\n";
    let config = good(&format!(
        "{gateway}rules:
  - {{ id: one, except: {{ path: /health }}, cost: 5, per: [], limit: \"10/s\" }}
  - {{ id: list, except: [{{ path: /health }}, {{ methods: [OPTIONS] }}], per: [], limit: \"10/s\" }}
"
    ));
    let rules = &config.policy.rules;
    let (health, other) = (rules.read_path("/health"), rules.read_path("/other"));
    let (health, other) = (health.unwrap(), other.unwrap());
    let excepted = rules.matching(&Request::new().path(&health)).rules().len();
    assert_eq!(excepted, 0);
    let request = Request::new().path(&other);
    let matched = rules.matching(&request);
    let charged: Vec<u64> = (matched.rules().iter())
        .map(|rule| rule.cost_of(matched.cost()))
        .collect();
    assert_eq!(charged, [5, 1]);
    for (except, says) in [
        (
            "except: {}",
            "rules[0].except: an exception without conditions",
        ),
        ("except: [{ path: x }]", "rules[0].except[0].path"),
        ("except: /health", "rules[0].except"),
        ("cost: -1", "rules[0].cost: expected a whole number"),
        ("costs: 3", "use cost: 5 for this rule"),
    ] {
        let text = format!("{gateway}rules: [{{ id: a, {except}, per: [], limit: \"1/s\" }}]\n");
        let problems = bad(&text).render("tollgate.yaml", &text);
        assert!(problems.contains(says), "{except}: {problems}");
    }
}
