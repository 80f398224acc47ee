//! The admin interface: what is open, what needs the token, and how many wrong tokens an address may send.

use std::net::{SocketAddr, TcpListener};

use tollgate_testing::servers::RedisServer;

use crate::database::{Place, block_on};
use crate::metrics::{OPEN_METRICS, check_open_metrics};
use crate::served;
use crate::serving::{Answer, Serving, ask, until};

const TOKEN: &str = "canary-token-7c1e4b90aa55";
const RIGHT: &str = "authorization: Bearer canary-token-7c1e4b90aa55";

const CONFIG: &str = "
admin: { listen: 127.0.0.1:0, token: canary-token-7c1e4b90aa55 }
log: { format: json, level: trace }
rules: [{ id: everyone, per: [], limit: \"1000/s\" }]
";

#[test]
fn health_is_open_and_everything_else_needs_the_token() {
    let serving = Serving::by(CONFIG);
    for path in ["/livez", "/readyz"] {
        assert_eq!(serving.get("admin", path, &[]).status, 200, "{path}");
    }
    for path in ["/metrics", "/v1/top", "/v1/status"] {
        for wrong in [&[][..], &["authorization: Bearer nearly-the-right-one"][..]] {
            let answer = serving.get("admin", path, wrong);
            assert_eq!(answer.status, 401, "{answer:?}");
            assert!(
                answer.head.contains("www-authenticate: bearer"),
                "{answer:?}"
            );
            assert!(
                answer.head.contains("application/problem+json"),
                "{answer:?}"
            );
        }
        assert_eq!(serving.get("admin", path, &[RIGHT]).status, 200, "{path}");
    }
    let metrics = serving.get("admin", "/metrics", &[RIGHT, OPEN_METRICS]);
    assert!(
        metrics
            .head
            .contains("application/openmetrics-text; version=1.0.0"),
        "{}",
        metrics.head
    );
    check_open_metrics(&metrics.body);
    assert!(
        metrics.body.contains("\ntollgate_admin_refused_total 6\n"),
        "{}",
        metrics.body
    );
    let shown = [
        serving.log(),
        metrics.body,
        serving.get("admin", "/v1/status", &[RIGHT]).body,
    ]
    .concat();
    assert!(
        !shown.contains(TOKEN) && !shown.contains("7c1e4b90"),
        "{shown}"
    );
}

/// A page can have the name that it was loaded from lead to this machine, and would read what is said here.
#[test]
fn without_a_token_web_pages_cannot_read_the_admin_interface() {
    let serving = Serving::by(&CONFIG.replace(", token: canary-token-7c1e4b90aa55", ""));
    for path in ["/metrics", "/v1/top", "/v1/status"] {
        let rebound = serving.get("admin", path, &["host: rebound.example"]);
        assert_eq!(rebound.status, 403, "{rebound:?}");
        assert!(rebound.body.contains("admin.token"), "{rebound:?}");
        let elsewhere = serving.get("admin", path, &["origin: https://elsewhere.example"]);
        assert_eq!(elsewhere.status, 403, "{elsewhere:?}");
        assert_eq!(serving.get("admin", path, &[]).status, 200, "{path}");
    }
    let health = serving.get("admin", "/livez", &["host: rebound.example"]);
    assert_eq!(health.status, 200, "whoever runs the program asks for it");
}

#[test]
fn unknown_paths_and_methods_are_problem_documents() {
    let serving = Serving::by(CONFIG);
    let missing = serving.get("admin", "/nothing", &[]);
    assert_eq!(
        (missing.status, &missing.json()["status"]),
        (404, &404.into()),
        "{missing:?}"
    );
    assert!(
        missing.head.contains("application/problem+json"),
        "{missing:?}"
    );
    let posted = ask(serving.address("admin"), "POST", "/livez", &[]).unwrap();
    assert_eq!(
        (posted.status, &posted.json()["status"]),
        (405, &405.into()),
        "{posted:?}"
    );
}

#[test]
fn wrong_tokens_do_not_lock_the_right_one_out() {
    let serving = Serving::by(CONFIG);
    let statuses: Vec<u16> = (0..60)
        .map(|_| {
            serving
                .get("admin", "/metrics", &["authorization: Bearer wrong"])
                .status
        })
        .collect();
    let refused = statuses.iter().filter(|status| **status == 401).count();
    assert!(refused >= 20 && statuses.contains(&429), "{statuses:?}");
    assert!(
        statuses.iter().all(|status| matches!(status, 401 | 429)),
        "{statuses:?}"
    );
    assert_eq!(serving.get("admin", "/metrics", &[RIGHT]).status, 200);
    assert_eq!(serving.get("admin", "/readyz", &[]).status, 200);
    serving.wait_for("wrong token for the admin interface");
    let log = serving.log();
    let lines = log.matches("wrong token for the admin interface").count();
    assert!((1..20).contains(&lines), "{lines} lines: {log}");
}

#[test]
fn requests_without_a_token_lock_nobody_out() {
    let serving = Serving::by(CONFIG);
    for _ in 0..60 {
        assert_eq!(serving.get("admin", "/metrics", &[]).status, 401);
    }
    let wrong = serving.get("admin", "/metrics", &["authorization: Bearer wrong"]);
    assert_eq!(wrong.status, 401, "{wrong:?}");
    assert_eq!(serving.get("admin", "/metrics", &[RIGHT]).status, 200);
}

#[test]
fn readiness_reports_each_part() {
    let serving = Serving::by(CONFIG);
    let ready = serving.get("admin", "/readyz", &[]).json();
    assert_eq!(ready["ready"], true);
    assert_eq!(ready["parts"]["store"]["kind"], "memory");
    assert_eq!(ready["parts"]["rules"]["generation"], 1);
}

fn status_and_stage(answer: &Answer) -> (u16, String) {
    let stage = answer.json()["stage"].as_str().unwrap().to_owned();
    (answer.status, stage)
}

/// From the first moment to the last. A database that hangs holds up the start for a while, so that there is time to look.
#[test]
fn it_stays_alive_while_redis_and_the_database_hang() {
    let redis = RedisServer::start();
    redis.pause();
    // The system takes connections for it, and nobody ever answers.
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    // It listens before the log says where.
    let admin = SocketAddr::from(([127, 0, 0, 1], served::free_port()));
    let serving = Serving::starting(&format!(
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
    let get = |path: &str| ask(admin, "GET", path, &[]);
    let lives = || assert_eq!(get("/livez").unwrap().status, 200);

    let first = until("somebody to answer", || get("/readyz"), Result::is_ok).unwrap();
    assert_eq!(status_and_stage(&first), (503, "starting".to_owned()));
    lives();
    for path in ["/metrics", "/v1/top", "/v1/status"] {
        let not_yet = get(path).unwrap();
        assert_eq!(not_yet.status, 503, "{path}: {not_yet:?}");
    }

    serving.wait_for("ready");
    let service = serving.address("service");
    for nth in 0..12 {
        let said = served::ask(service, "POST", "/v1/check", "", "{\"client\":\"a\"}");
        let decided = said.json();
        assert_eq!(decided["source"], "local", "{decided}");
        assert_eq!(decided["allowed"], nth < 8, "a careful share: {decided}");
        lives();
    }
    let parts_fail = |ready: &Answer| {
        let parts = &ready.json()["parts"];
        parts["store"]["ok"] == false && parts["audit"]["ok"] == false
    };
    let ready = until(
        "both to be seen to fail",
        || get("/readyz").unwrap(),
        parts_fail,
    );
    assert_eq!(status_and_stage(&ready), (200, "ready".to_owned()));
    let parts = &ready.json()["parts"];
    assert_eq!(parts["store"]["decided_by"], "this process", "{parts}");
    assert_eq!(parts["rules"]["ok"], true, "{parts}");

    serving.signal("TERM");
    serving.wait_for("stopping, as told");
    let last = get("/readyz").unwrap();
    assert_eq!(status_and_stage(&last), (503, "stopping".to_owned()));
    lives();
}

#[test]
fn it_stays_ready_while_the_database_of_its_rules_hangs() {
    let place = Place::postgres();
    block_on(place.open());
    let serving = Serving::by(&format!(
        "
admin: {{ listen: 127.0.0.1:0 }}
database: {{ url: {:?}, poll: 50ms }}
log: {{ format: json }}
",
        place.url
    ));
    let database = || {
        let ready = serving.get("admin", "/readyz", &[]);
        assert_eq!(ready.status, 200, "{ready:?}");
        ready.json()["parts"]["database"]["ok"].clone()
    };
    assert_eq!(database(), true);
    place.server.as_ref().unwrap().pause();
    until("the database to be missed", database, |is_ok| {
        *is_ok == false
    });
    assert_eq!(serving.get("admin", "/livez", &[]).status, 200);
}
