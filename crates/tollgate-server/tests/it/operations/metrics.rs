//! What is counted: exactly what was decided, in a form that every reader of OpenMetrics takes, and without secrets.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Uri};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tollgate_server::admin::{Admin, Health, Inside, Stage};
use tollgate_server::audit::Trail;
use tollgate_server::config::Config;
use tollgate_server::database::Database;
use tollgate_server::door::{self, Door};
use tollgate_server::listen::{self, ListenConfig};
use tollgate_server::live::{Live, LiveConfig};
use tollgate_server::metrics;
use tollgate_tower::policy::Head;

use crate::database::Place;
use crate::serving::{Answer, ask, until};
use tollgate_testing::servers::RedisServer;

/// A door by this configuration with its operators' door, in this process.
struct Opened {
    door: Door,
    admin: std::net::SocketAddr,
    _folder: TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Opened {
    fn by(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        std::fs::write(
            &file,
            config.replace("FOLDER", &folder.path().display().to_string()),
        )
        .unwrap();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        let (door, admin) = runtime.block_on(async {
            let (live, config) = Live::start(LiveConfig::of(&file)).await.unwrap();
            let door = Door::new(
                live,
                door::limiter(&config.store).unwrap(),
                trail(&config).await,
            );
            let health = Arc::new(Health::default());
            let admin = Admin::new(None, Arc::clone(&health));
            admin.show(Inside {
                door: door.clone(),
                registry: metrics::registry(&door),
                config,
                listens: Vec::new(),
            });
            health.set(Stage::Ready);
            let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = socket.local_addr().unwrap();
            let (limits, stop) = (ListenConfig::default(), CancellationToken::new());
            tokio::spawn(listen::serve(socket, limits, stop, admin.router()));
            (door, address)
        });
        Self {
            door,
            admin,
            _folder: folder,
            runtime,
        }
    }

    fn get(&self, path: &str) -> Answer {
        ask(self.admin, "GET", path, &[]).unwrap()
    }

    fn metrics(&self) -> Samples {
        let page = ask(self.admin, "GET", "/metrics", &[OPEN_METRICS]).unwrap();
        check_open_metrics(&page.body)
    }

    /// Decides about so many requests; how many passed.
    fn decide(&self, times: usize, path: &str, user: &str) -> u32 {
        let uri: Uri = path.parse().unwrap();
        let user = HeaderValue::from_bytes(user.as_bytes()).unwrap();
        let headers = HeaderMap::from_iter([(http::HeaderName::from_static("x-user-id"), user)]);
        let head = Head {
            method: &Method::GET,
            uri: &uri,
            headers: &headers,
        };
        let peer: IpAddr = [203, 0, 113, 7].into();
        let decide = async || self.door.decide(&head, peer).await.unwrap().allowed();
        (0..times)
            .map(|_| u32::from(self.runtime.block_on(decide())))
            .sum()
    }
}

async fn trail(config: &Config) -> Option<Trail> {
    let (audit, settings) = (config.audit.clone()?, config.database.as_ref()?);
    let database = Database::open(settings.url.expose()).await.unwrap();
    Some(Trail::start(database, audit))
}

fn decisions(samples: &Samples, rule: &str, outcome: &str) -> f64 {
    let series = format!("tollgate_decisions_total{{rule=\"{rule}\",outcome=\"{outcome}\"}}");
    samples.get(&series).copied().unwrap_or(-1.0)
}

const CONFIG: &str = "
database: { url: \"sqlite:FOLDER/tollgate.db\" }
rules_from: file
identity: { client: [\"header:X-User-Id\", ip] }
costs: [{ match: { path: /dear }, cost: 100 }]
rules:
  - { id: client, per: [client], limit: \"1/h burst 20\" }
  - { id: watched, per: [client], limit: \"1/h burst 5\", mode: shadow }
  - { id: queue, match: { path: /queue }, per: [], limit: \"1/h queue 3\" }
  - { id: never-met, match: { path: /nowhere }, per: [], limit: \"1/s\" }
";

#[test]
fn decision_counters_match_the_decisions() {
    let opened = Opened::by(CONFIG);
    assert_eq!(opened.decide(30, "/a", "alice"), 20);
    assert_eq!(opened.decide(3, "/dear", "bob"), 0);
    let queued = opened.decide(6, "/queue", "carol");
    let samples = opened.metrics();
    assert_eq!(decisions(&samples, "client", "denied"), 10.0);
    assert_eq!(decisions(&samples, "client", "never_fits"), 3.0);
    assert_eq!(
        decisions(&samples, "queue", "denied"),
        f64::from(6 - queued)
    );
    assert_eq!(
        decisions(&samples, "never-met", "allowed"),
        0.0,
        "known before it is met"
    );
    let all: f64 = (samples.iter())
        .filter(|(series, _)| series.starts_with("tollgate_decisions_total"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(all, 39.0);
    // Of alice 25, of bob all, as they cost more than it holds, of carol none.
    assert!(queued < 5, "{queued}");
    let watched = samples["tollgate_shadow_denials_total{rule=\"watched\"}"];
    assert_eq!(watched, 28.0);
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
    let top = opened.get("/v1/top").json();
    assert_eq!(top["clients"][0]["client"], "x-user-id:alice", "{top}");
    assert_eq!(top["clients"][0]["denied"], 10, "{top}");
}

#[test]
fn names_of_clients_are_escaped_and_their_series_bounded() {
    let opened = Opened::by(CONFIG);
    opened.decide(40, "/a", "evil\"} 1 \\ \u{ad}x");
    for n in 0..50 {
        opened.decide(21, "/a", &format!("client-{n}"));
    }
    let samples = opened.metrics();
    let clients: Vec<_> = samples
        .keys()
        .filter(|series| series.starts_with("tollgate_top_denied_clients"))
        .collect();
    assert_eq!(clients.len(), 10, "{clients:?}");
    let shown = clients
        .iter()
        .find(|series| series.contains("evil"))
        .expect("it was denied most often");
    assert!(
        shown.contains(r#"client="x-user-id:evil\"} 1 \\\\ \\u{ad}x""#),
        "{shown}"
    );
    let top = opened.get("/v1/top").json();
    assert_eq!(top["clients"].as_array().unwrap().len(), 51, "{top}");
}

#[test]
fn a_store_outage_shows_in_metrics_and_readiness() {
    let mut redis = RedisServer::start();
    let opened = Opened::by(&format!(
        "store: {{ redis: {:?}, deadline: 1s, breaker: {{ failures: 2, within: 10s, open_for: 100ms }} }}
admin: {{}}
rules: [{{ id: everyone, per: [], limit: \"1/h burst 100000\" }}]
",
        redis.url()
    ));
    assert_eq!(opened.decide(5, "/a", "alice"), 5);
    let samples = opened.metrics();
    assert_eq!(
        samples["tollgate_store_decisions_total{source=\"store\"}"],
        5.0
    );
    assert_eq!(samples["tollgate_store_call_duration_seconds_count"], 5.0);
    assert_eq!(samples["tollgate_store_batch_size_bucket{le=\"1.0\"}"], 5.0);
    assert_eq!(samples["tollgate_store_breaker_open"], 0.0);
    assert!(samples["tollgate_store_call_duration_seconds_sum"] > 0.0);
    let store = || {
        let ready = opened.get("/readyz");
        assert_eq!(ready.status, 200, "limits are enforced: {ready:?}");
        ready.json()["parts"]["store"].clone()
    };
    assert_eq!(store()["ok"], true);

    redis.stop();
    opened.decide(5, "/a", "alice");
    assert_eq!(store()["ok"], false);
    assert_eq!(store()["decided_by"], "this process");
    let samples = opened.metrics();
    assert_eq!(samples["tollgate_store_breaker_open"], 1.0);
    assert_eq!(samples["tollgate_store_breaker_openings_total"], 1.0);
    assert_eq!(
        samples["tollgate_store_decisions_total{source=\"fallback\"}"],
        5.0
    );
    assert!(samples["tollgate_store_call_failures_total"] >= 2.0);

    redis.start_again();
    until(
        "the store to be asked again",
        || {
            opened.decide(1, "/a", "alice");
            store()["ok"].as_bool()
        },
        |is_ok| *is_ok == Some(true),
    );
    assert_eq!(opened.metrics()["tollgate_store_breaker_open"], 0.0);
}

#[test]
fn remembered_denials_are_counted_apart() {
    let redis = RedisServer::start();
    let opened = Opened::by(&format!(
        "store: {{ redis: {:?}, deadline: 20s }}
admin: {{}}
rules: [{{ id: everyone, per: [], limit: \"1/h burst 1\" }}]
",
        redis.url()
    ));
    let by = |source: &str| {
        opened.metrics()[&format!("tollgate_store_decisions_total{{source=\"{source}\"}}")]
    };
    assert_eq!(opened.decide(2, "/a", "alice"), 1);
    assert_eq!((by("store"), by("remembered")), (2.0, 0.0));
    assert_eq!(opened.decide(1, "/a", "alice"), 0);
    assert_eq!((by("store"), by("remembered")), (2.0, 1.0));
    assert_eq!(by("fallback"), 0.0);
}

#[test]
fn lost_audit_records_are_counted() {
    const DENIED: f64 = 400.0;
    let mut place = Place::postgres();
    let opened = Opened::by(&format!(
        "database: {{ url: {:?} }}
rules_from: file
audit: {{ queue: 100 }}
identity: {{ client: [\"header:X-User-Id\", ip] }}
rules: [{{ id: client, per: [client], limit: \"1/h burst 1\" }}]
",
        place.url
    ));
    assert_eq!(opened.metrics()["tollgate_audit_lost_total"], 0.0);
    let server = place.server.as_mut().unwrap();
    server.kill();
    // Each is denied once, in a row of its own, and there is room for a hundred.
    for client in 0..400 {
        assert_eq!(opened.decide(2, "/a", &client.to_string()), 1);
    }
    let samples = until(
        "violations to be lost",
        || opened.metrics(),
        |samples| {
            let waits = samples["tollgate_audit_backlog"];
            waits + samples["tollgate_audit_lost_total"] == DENIED
        },
    );
    assert_eq!(samples["tollgate_audit_noted_total"], DENIED);
    assert_eq!(samples["tollgate_audit_lost_total"], DENIED - 100.0);
    server.start_again();
    let samples = until(
        "the rest to be written",
        || opened.metrics(),
        |samples| samples["tollgate_audit_backlog"] == 0.0,
    );
    assert_eq!(
        samples["tollgate_audit_written_total"],
        DENIED - samples["tollgate_audit_lost_total"]
    );
}
