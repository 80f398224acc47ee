//! The admin interface: what is open, what needs the token, and how many wrong tokens an address may send.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use serde_json::json;
use tollgate_testing::Response;
use tollgate_testing::client::request;
use tollgate_testing::ports::free_port;
use tollgate_testing::servers::RedisServer;
use tollgate_testing::wait::until_value;

use crate::kit;
use crate::kit::database::{TestDatabase, block_on};
use crate::kit::open_metrics::{OPEN_METRICS, check_open_metrics};

const TOKEN: &str = "canary-token-7c1e4b90aa55";
const RIGHT: &str = "authorization: Bearer canary-token-7c1e4b90aa55";
const WRONG: &str = "authorization: Bearer wrong";

const CONFIG: &str = "
admin: { listen: 127.0.0.1:0, token: canary-token-7c1e4b90aa55 }
log: { format: json, level: trace }
rules: [{ id: everyone, per: [], limit: \"1000/s\" }]
";

fn is_problem_document(response: &Response) -> bool {
    response.header("content-type") == Some("application/problem+json")
}

#[test]
fn health_is_open_and_everything_else_needs_the_token() {
    let running = kit::serve(CONFIG);
    for path in ["/livez", "/readyz"] {
        assert_eq!(running.get("admin", path, &[]).status, 200, "{path}");
    }
    for path in ["/metrics", "/v1/top", "/v1/status"] {
        for wrong in [&[][..], &["authorization: Bearer nearly-the-right-one"][..]] {
            let response = running.get("admin", path, wrong);
            assert_eq!(response.status, 401, "{response:?}");
            let scheme = response.header("www-authenticate").unwrap();
            assert!(scheme.starts_with("Bearer"), "{response:?}");
            assert!(is_problem_document(&response), "{response:?}");
        }
        assert_eq!(running.get("admin", path, &[RIGHT]).status, 200, "{path}");
    }
    let metrics = running.get("admin", "/metrics", &[RIGHT, OPEN_METRICS]);
    let content_type = metrics.header("content-type").unwrap();
    assert!(
        content_type.contains("application/openmetrics-text; version=1.0.0"),
        "{content_type}"
    );
    let samples = check_open_metrics(&metrics.text());
    assert_eq!(samples["tollgate_admin_refused_total"], 6.0);
    let status = running.get("admin", "/v1/status", &[RIGHT]);
    let output = [running.log(), metrics.text(), status.text()].concat();
    assert!(
        !output.contains(TOKEN) && !output.contains("7c1e4b90"),
        "{output}"
    );
}

/// A web page can have its own name resolve to this machine, and would then read the responses.
#[test]
fn without_a_token_web_pages_cannot_read_the_admin_interface() {
    let running = kit::serve(&CONFIG.replace(", token: canary-token-7c1e4b90aa55", ""));
    for path in ["/metrics", "/v1/top", "/v1/status"] {
        let rebound = running.get("admin", path, &["host: rebound.example"]);
        assert_eq!(rebound.status, 403, "{rebound:?}");
        assert!(rebound.text().contains("admin.token"), "{rebound:?}");
        let cross_origin = running.get("admin", path, &["origin: https://elsewhere.example"]);
        assert_eq!(cross_origin.status, 403, "{cross_origin:?}");
        assert_eq!(running.get("admin", path, &[]).status, 200, "{path}");
    }
    let health = running.get("admin", "/livez", &["host: rebound.example"]);
    assert_eq!(health.status, 200, "orchestrators use any name");
}

#[test]
fn unknown_paths_and_methods_are_problem_documents() {
    let running = kit::serve(CONFIG);
    let missing = running.get("admin", "/nothing", &[]);
    assert_eq!(missing.status, 404, "{missing:?}");
    assert_eq!(missing.json()["status"], 404, "{missing:?}");
    assert!(is_problem_document(&missing), "{missing:?}");
    let posted = request(running.address("admin"), "POST", "/livez", &[], "").unwrap();
    assert_eq!(posted.status, 405, "{posted:?}");
    assert_eq!(posted.json()["status"], 405, "{posted:?}");
}

#[test]
fn wrong_tokens_do_not_lock_the_right_one_out() {
    let running = kit::serve(CONFIG);
    let statuses: Vec<u16> = (0..60)
        .map(|_| running.get("admin", "/metrics", &[WRONG]).status)
        .collect();
    let refused = statuses.iter().filter(|status| **status == 401).count();
    assert!(refused >= 20 && statuses.contains(&429), "{statuses:?}");
    assert!(
        statuses.iter().all(|status| matches!(status, 401 | 429)),
        "{statuses:?}"
    );
    assert_eq!(running.get("admin", "/metrics", &[RIGHT]).status, 200);
    assert_eq!(running.get("admin", "/readyz", &[]).status, 200);
    running.wait_for_log("wrong token for the admin interface");
    let log = running.log();
    let lines = log.matches("wrong token for the admin interface").count();
    assert!((1..20).contains(&lines), "{lines} lines: {log}");
}

#[test]
fn requests_without_a_token_lock_nobody_out() {
    let running = kit::serve(CONFIG);
    for _ in 0..60 {
        assert_eq!(running.get("admin", "/metrics", &[]).status, 401);
    }
    let wrong = running.get("admin", "/metrics", &[WRONG]);
    assert_eq!(wrong.status, 401, "{wrong:?}");
    assert_eq!(running.get("admin", "/metrics", &[RIGHT]).status, 200);
}

#[test]
fn readiness_reports_each_part() {
    let running = kit::serve(CONFIG);
    let ready = running.get("admin", "/readyz", &[]).json();
    assert_eq!(ready["ready"], true);
    assert_eq!(ready["parts"]["store"]["kind"], "memory");
    assert_eq!(ready["parts"]["rules"]["generation"], 1);
}

fn status_and_stage(response: &Response) -> (u16, String) {
    let stage = response.json()["stage"].as_str().unwrap().to_owned();
    (response.status, stage)
}

/// From the first moment to the last. A database that hangs delays the start, so there is time to look.
#[test]
fn it_stays_alive_while_redis_and_the_database_hang() {
    let redis = RedisServer::start();
    redis.pause();
    // The system accepts connections for it, and nothing ever answers.
    let database = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    // A port chosen by the test, because the listener opens before the log reports its address.
    let admin = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let running = kit::program().serve_without_waiting(&format!(
        "
admin: {{ listen: {admin:?} }}
service: {{ listen: 127.0.0.1:0 }}
store: {{ redis: {:?}, instances: 1, breaker: {{ failures: 1, open_for: 1h }} }}
database: {{ url: \"postgres://tollgate@{}/tollgate\" }}
rules_from: file
log: {{ format: json }}
shutdown_delay: 5m
rules: [{{ id: client, per: [client], limit: \"1/h burst 10\" }}]
",
        redis.url(),
        database.local_addr().unwrap()
    ));
    let get = |path: &str| request(admin, "GET", path, &[], "");
    let assert_alive = || assert_eq!(get("/livez").unwrap().status, 200);

    let first = until_value("the first response", || get("/readyz"), Result::is_ok).unwrap();
    assert_eq!(status_and_stage(&first), (503, "starting".to_owned()));
    assert_alive();
    for path in ["/metrics", "/v1/top", "/v1/status"] {
        let early = get(path).unwrap();
        assert_eq!(early.status, 503, "{path}: {early:?}");
    }

    running.wait_for_log("ready");
    for nth in 0..12 {
        let decision = running.check(&json!({ "client": "a" }));
        assert_eq!(decision["source"], "local", "{decision}");
        assert_eq!(decision["allowed"], nth < 8, "a careful share: {decision}");
        assert_alive();
    }
    let both_fail = |ready: &Response| {
        let parts = &ready.json()["parts"];
        parts["store"]["ok"] == false && parts["audit"]["ok"] == false
    };
    let look = || get("/readyz").unwrap();
    let ready = until_value("reports of both failures", look, both_fail);
    assert_eq!(status_and_stage(&ready), (200, "ready".to_owned()));
    let parts = &ready.json()["parts"];
    assert_eq!(parts["store"]["decided_by"], "this process", "{parts}");
    assert_eq!(parts["rules"]["ok"], true, "{parts}");

    running.signal("TERM");
    running.wait_for_log("shutting down");
    let look = || status_and_stage(&get("/readyz").unwrap());
    until_value("the stage stopping", look, |(status, stage)| {
        *status == 503 && stage == "stopping"
    });
    assert_alive();
}

#[test]
fn it_stays_ready_while_the_database_of_its_rules_hangs() {
    let database = TestDatabase::postgres();
    // Creates the tables, so that the program finds an empty set of rules.
    block_on(database.open());
    let running = kit::serve(&format!(
        "
admin: {{ listen: 127.0.0.1:0 }}
database: {{ url: {:?}, poll: 50ms }}
log: {{ format: json }}
",
        database.url
    ));
    let is_database_ok = || {
        let ready = running.get("admin", "/readyz", &[]);
        assert_eq!(ready.status, 200, "{ready:?}");
        ready.json()["parts"]["database"]["ok"].clone()
    };
    assert_eq!(is_database_ok(), true);
    database.server.as_ref().unwrap().pause();
    until_value("a failing database", is_database_ok, |is_ok| {
        *is_ok == false
    });
    assert_eq!(running.get("admin", "/livez", &[]).status, 200);
}
