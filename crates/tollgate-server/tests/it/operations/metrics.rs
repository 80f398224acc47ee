//! Metrics of the program: they match its decisions, are valid OpenMetrics, and have a bounded number of series.

use serde_json::json;
use tollgate_testing::Running;
use tollgate_testing::servers::RedisServer;
use tollgate_testing::wait::until_value;

use crate::kit;
use crate::kit::database::TestDatabase;
use crate::kit::open_metrics::{OPEN_METRICS, Samples, check_open_metrics};

/// All metrics.
fn metrics(service: &Running) -> Samples {
    let page = service.get("admin", "/metrics", &[OPEN_METRICS]);
    check_open_metrics(&page.text())
}

/// Checks this many requests, one after another. Returns how many were allowed.
fn decide(service: &Running, times: usize, path: &str, user: &str) -> u32 {
    let check = json!({ "request": {
        "method": "GET", "path": path, "ip": "203.0.113.7", "headers": { "X-User-Id": user },
    } });
    let is_allowed = |_| service.check(&check)["allowed"].as_bool().unwrap();
    (0..times).map(is_allowed).map(u32::from).sum()
}

fn decisions(samples: &Samples, rule: &str, outcome: &str) -> f64 {
    let series = format!("tollgate_decisions_total{{rule=\"{rule}\",outcome=\"{outcome}\"}}");
    samples.get(&series).copied().unwrap_or(-1.0)
}

const CONFIG: &str = "
database: { url: \"sqlite:tollgate.db\" }
rules_from: file
identity: { client: [\"header:X-User-Id\", ip] }
costs: [{ match: { path: /dear }, cost: 100 }]
rules:
  - { id: client, per: [client], limit: \"1/h burst 20\" }
  - { id: watched, per: [client], limit: \"1/h burst 5\", mode: shadow }
  - { id: queue, match: { path: /queue }, per: [], limit: \"1/h queue 3\" }
  - { id: never-matched, match: { path: /nowhere }, per: [], limit: \"1/s\" }
";

#[test]
fn decision_counters_match_the_decisions() {
    let service = kit::service("", CONFIG);
    assert_eq!(decide(&service, 30, "/a", "alice"), 20);
    assert_eq!(decide(&service, 3, "/dear", "bob"), 0);
    let queued = decide(&service, 6, "/queue", "carol");
    let samples = metrics(&service);
    assert_eq!(decisions(&samples, "client", "denied"), 10.0);
    assert_eq!(decisions(&samples, "client", "never_fits"), 3.0);
    assert_eq!(
        decisions(&samples, "queue", "denied"),
        f64::from(6 - queued)
    );
    assert_eq!(
        decisions(&samples, "never-matched", "allowed"),
        0.0,
        "reported before a request meets it"
    );
    let all: f64 = (samples.iter())
        .filter(|(series, _)| series.starts_with("tollgate_decisions_total"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(all, 39.0);
    assert!(queued < 5, "{queued}");
    // 25 of alice; all 3 of bob, because they cost more than the burst; none of carol.
    let shadow_denials = samples["tollgate_shadow_denials_total{rule=\"watched\"}"];
    assert_eq!(shadow_denials, 28.0);
    assert_eq!(
        samples["tollgate_audit_noted_total"],
        f64::from(10 + 3 + 6 - queued)
    );
    assert_eq!(samples["tollgate_rules"], 4.0);
    assert_eq!(samples["tollgate_rules_generation"], 1.0);
    assert_eq!(
        samples["tollgate_top_denied_clients{rule=\"client\",client=\"x-user-id:alice\"}"],
        10.0
    );
    assert_eq!(
        samples[&format!(
            "tollgate_build_info{{version=\"{}\"}}",
            env!("CARGO_PKG_VERSION")
        )],
        1.0
    );
    let top = service.get("admin", "/v1/top", &[]).json();
    assert_eq!(top["clients"][0]["client"], "x-user-id:alice", "{top}");
    assert_eq!(top["clients"][0]["denied"], 10, "{top}");
}

#[test]
fn names_of_clients_are_escaped_and_their_series_bounded() {
    let service = kit::service("", CONFIG);
    decide(&service, 40, "/a", "evil\"} 1 \\ \u{ad}x");
    for n in 0..50 {
        decide(&service, 21, "/a", &format!("client-{n}"));
    }
    let samples = metrics(&service);
    let clients: Vec<_> = samples
        .keys()
        .filter(|series| series.starts_with("tollgate_top_denied_clients"))
        .collect();
    assert_eq!(clients.len(), 10, "{clients:?}");
    let shown = clients
        .iter()
        .find(|series| series.contains("evil"))
        .expect("the client that was denied most often");
    assert!(
        shown.contains(r#"client="x-user-id:evil\"} 1 \\\\ \\u{ad}x""#),
        "{shown}"
    );
    let top = service.get("admin", "/v1/top", &[]).json();
    assert_eq!(top["clients"].as_array().unwrap().len(), 51, "{top}");
}

#[test]
fn a_store_outage_shows_in_metrics_and_readiness() {
    let mut redis = RedisServer::start();
    let service = kit::service("", &format!(
        "store: {{ redis: {:?}, deadline: 1s, breaker: {{ failures: 2, within: 10s, open_for: 100ms }} }}
rules: [{{ id: everyone, per: [], limit: \"1/h burst 100000\" }}]
",
        redis.url()
    ));
    assert_eq!(decide(&service, 5, "/a", "alice"), 5);
    let samples = metrics(&service);
    assert_eq!(
        samples["tollgate_store_decisions_total{source=\"store\"}"],
        5.0
    );
    assert_eq!(samples["tollgate_store_call_duration_seconds_count"], 5.0);
    assert_eq!(samples["tollgate_store_batch_size_bucket{le=\"1.0\"}"], 5.0);
    assert_eq!(samples["tollgate_store_breaker_open"], 0.0);
    assert!(samples["tollgate_store_call_duration_seconds_sum"] > 0.0);
    let store = || {
        let ready = service.get("admin", "/readyz", &[]);
        assert_eq!(ready.status, 200, "limits are enforced: {ready:?}");
        ready.json()["parts"]["store"].clone()
    };
    assert_eq!(store()["ok"], true);

    redis.kill();
    decide(&service, 5, "/a", "alice");
    assert_eq!(store()["ok"], false);
    assert_eq!(store()["decided_by"], "this process");
    let samples = metrics(&service);
    assert_eq!(samples["tollgate_store_breaker_open"], 1.0);
    assert_eq!(samples["tollgate_store_breaker_openings_total"], 1.0);
    assert_eq!(
        samples["tollgate_store_decisions_total{source=\"fallback\"}"],
        5.0
    );
    assert!(samples["tollgate_store_call_failures_total"] >= 2.0);

    redis.restart();
    service.until_metric("tollgate_store_breaker_open", |open| open == 0.0);
    // It is well again when it has taken almost all decisions of the last minute.
    let is_ok = || {
        decide(&service, 20, "/a", "alice");
        store()["ok"].as_bool()
    };
    until_value("a store that is well", is_ok, |is_ok| *is_ok == Some(true));
    assert_eq!(metrics(&service)["tollgate_store_breaker_open"], 0.0);
}

#[test]
fn remembered_denials_are_counted_apart() {
    let redis = RedisServer::start();
    let service = kit::service(
        "",
        &format!(
            "store: {{ redis: {:?}, deadline: 20s }}
rules: [{{ id: everyone, per: [], limit: \"1/h burst 1\" }}]
",
            redis.url()
        ),
    );
    let by = |source: &str| {
        metrics(&service)[&format!("tollgate_store_decisions_total{{source=\"{source}\"}}")]
    };
    assert_eq!(decide(&service, 2, "/a", "alice"), 1);
    assert_eq!((by("store"), by("remembered")), (2.0, 0.0));
    assert_eq!(decide(&service, 1, "/a", "alice"), 0);
    assert_eq!((by("store"), by("remembered")), (2.0, 1.0));
    assert_eq!(by("fallback"), 0.0);
}

#[test]
fn lost_audit_records_are_counted() {
    const DENIED: f64 = 400.0;
    let mut test_database = TestDatabase::postgres();
    let service = kit::service(
        "",
        &format!(
            "database: {{ url: {:?} }}
rules_from: file
audit: {{ queue: 100 }}
identity: {{ client: [\"header:X-User-Id\", ip] }}
rules: [{{ id: client, per: [client], limit: \"1/h burst 1\" }}]
",
            test_database.url
        ),
    );
    assert_eq!(metrics(&service)["tollgate_audit_lost_total"], 0.0);
    let server = test_database.server.as_mut().unwrap();
    server.kill();
    // Each is denied once, in a row of its own, and the queue holds a hundred.
    for client in 0..400 {
        assert_eq!(decide(&service, 2, "/a", &client.to_string()), 1);
    }
    let samples = until_value(
        "lost violations",
        || metrics(&service),
        |samples| {
            let waiting = samples["tollgate_audit_backlog"];
            waiting + samples["tollgate_audit_lost_total"] == DENIED
        },
    );
    assert_eq!(samples["tollgate_audit_noted_total"], DENIED);
    assert_eq!(samples["tollgate_audit_lost_total"], DENIED - 100.0);
    server.restart();
    let samples = until_value(
        "the rest in the database",
        || metrics(&service),
        |samples| samples["tollgate_audit_backlog"] == 0.0,
    );
    assert_eq!(
        samples["tollgate_audit_written_total"],
        DENIED - samples["tollgate_audit_lost_total"]
    );
}
