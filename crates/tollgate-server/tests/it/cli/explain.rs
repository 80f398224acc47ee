//! `tollgate explain`: the client of a request, the rules that match and why others do not, and usage, without charging anything.

use std::process::Output;

use serde_json::{Value, json};
use tollgate_config::ConfigFile;
use tollgate_server::database::Database;
use tollgate_server::decider;
use tollgate_testing::Program;
use tollgate_testing::program::stderr;
use tollgate_testing::servers::RedisServer;

use crate::kit::database::block_on;
use crate::kit::program;

const CONFIG: &str = r#"
identity:
  client: ["api_key:X-API-Key", ip]
  trusted_proxies: [10.0.0.0/8]
clients:
  - { id: merchant_123, plan: pro, api_key_sha256: "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683" }
costs:
  - { match: { methods: [POST], path: /reports/generate }, cost: 10 }
rules:
  - { id: client, per: [client], limit: "1/h burst 50" }
  - { id: client, plan: pro, per: [client], limit: "1/h burst 500" }
  - { id: reports, match: { path: "/reports/{*rest}" }, per: [client, route], limit: "20 per 1h fixed_window" }
  - { id: charges, match: { methods: [POST], path: "/v1/charges/{id}" }, per: [client], limit: "1/h burst 5" }
  - { id: address, per: [ip], limit: "1/h burst 100", mode: shadow }
  - { id: old, per: [ip], limit: "1/h burst 100", mode: off }
"#;

/// The API key whose hash is in `CONFIG`.
const KEY: &str = "key";

fn folder(config: &str) -> Program {
    let program = program();
    program.write("tollgate.yaml", config);
    program
}

fn run(program: &Program, args: &[&str]) -> Output {
    program.run(&[&["explain"], args].concat())
}

fn text(program: &Program, args: &[&str]) -> String {
    program.stdout(&[&["explain"], args].concat())
}

fn json(program: &Program, args: &[&str]) -> Value {
    program.json(&[&["explain"], args, &["--json"]].concat())
}

#[test]
fn the_report_names_the_client_and_the_matching_rules() {
    let program = folder(CONFIG);
    let key = format!("X-API-Key: {KEY}");
    let report = json(
        &program,
        &[
            "post",
            "/reports/generate?x",
            "-H",
            &key,
            "--ip",
            "203.0.113.7",
        ],
    );
    assert_eq!(report["request"]["path"], "/reports/generate");
    assert_eq!(report["request"]["endpoint"], "/reports/generate");
    assert_eq!(report["request"]["cost"], 10);
    assert_eq!(report["caller"]["client"], "merchant_123");
    assert_eq!(report["caller"]["plan"], "pro");
    let rules: Vec<(&str, bool, &Value, &Value)> = (report["rules"].as_array().unwrap().iter())
        .map(|rule| {
            let id = rule["id"].as_str().unwrap();
            (
                id,
                rule["applies"].as_bool().unwrap(),
                &rule["limit"],
                &rule["why_not"],
            )
        })
        .collect();
    assert_eq!(
        rules,
        [
            ("client", true, &json!("1/h burst 500"), &Value::Null),
            (
                "reports",
                true,
                &json!("20 per 1h fixed_window"),
                &Value::Null
            ),
            (
                "charges",
                false,
                &Value::Null,
                &json!("the path is not /v1/charges/{id}")
            ),
            ("address", true, &json!("1/h burst 100"), &Value::Null),
            ("old", false, &Value::Null, &json!("it is off")),
        ]
    );
    let bucket = &report["rules"][1]["bucket"];
    assert_eq!(
        *bucket,
        json!([["client", "merchant_123"], ["route", "/reports/generate"]])
    );
    assert!(
        !report.to_string().contains(&format!("\"{KEY}\"")),
        "the key is a secret"
    );
    assert!(report["usage_unknown"].as_str().unwrap().contains("memory"));

    let report = text(
        &program,
        &[
            "GET",
            "/v1/charges/7",
            "-H",
            "X-API-Key: nobody's",
            "--ip",
            "203.0.113.7",
        ],
    );
    for line in [
        "client   ip:203.0.113.7, by its address",
        "api_key:x-api-key: unknown API key",
        "no   charges  the method is not POST",
        "yes  address  1/h burst 100 (shadow)",
        "no   old      it is off",
    ] {
        assert!(report.contains(line), "{line}\n{report}");
    }
    assert!(!report.contains("nobody's"), "{report}");
}

#[test]
fn behind_a_trusted_proxy_the_report_explains_the_address() {
    let program = folder(CONFIG);
    let forwarded = ["-H", "X-Forwarded-For: 198.51.100.1, 203.0.113.7, 10.0.0.2"];
    let report = text(
        &program,
        &[&["GET", "/", "--ip", "10.0.0.1"], &forwarded[..]].concat(),
    );
    assert!(report.contains("client   ip:203.0.113.7"), "{report}");
    assert!(report.contains("10.0.0.1 is a trusted proxy"), "{report}");
    let report = text(
        &program,
        &[&["GET", "/", "--ip", "203.0.113.9"], &forwarded[..]].concat(),
    );
    assert!(report.contains("client   ip:203.0.113.9"), "{report}");
}

#[test]
fn a_refused_path_is_reported_with_the_reason() {
    let report = json(&folder(CONFIG), &["GET", "/v1/..;/admin"]);
    let why = report["request"]["refused"].as_str().unwrap();
    assert!(why.contains("dots"), "{why}");
    assert_eq!(report["rules"], json!([]));
}

#[test]
fn usage_is_read_from_redis_and_nothing_is_charged() {
    let redis = RedisServer::start();
    let program = folder(&format!("store: {{ redis: {:?} }}\n{CONFIG}", redis.url()));
    let request = ["POST", "/reports/generate", "--ip", "203.0.113.7"];
    for _ in 0..3 {
        let report = json(&program, &request);
        assert_eq!(report["decision"]["allowed"], true, "{report}");
        assert_eq!(report["rules"][1]["used"], 0);
    }
    assert_eq!(
        redis.command(&["DBSIZE"]),
        "0",
        "looking leaves nothing behind"
    );
    // Two requests use up the narrowest limit.
    let file = ConfigFile::read(&program.folder().join("tollgate.yaml"));
    let config = file.unwrap().parse().unwrap();
    block_on(async {
        let limiter = decider::limiter(&config.store).unwrap();
        let path = config
            .policy
            .paths()
            .normalise("/reports/generate")
            .unwrap();
        let ip = "203.0.113.7".parse().unwrap();
        let request = tollgate::Request::new()
            .client("ip:203.0.113.7")
            .ip(ip)
            .method("POST")
            .path(&path);
        for _ in 0..2 {
            let met = config.policy.rules.matching(&request);
            assert!(limiter.matched(&met).decide().await.allowed());
        }
    });
    let report = json(&program, &request);
    assert_eq!(report["rules"][0]["used"], 20);
    assert_eq!(report["rules"][1]["remaining"], 0);
    assert_eq!(report["decision"]["allowed"], false);
    assert_eq!(report["decision"]["rule"], "reports");
    assert!(report["decision"]["retry_after_ms"].as_u64().unwrap() > 0);
    let report = text(&program, &request);
    assert!(
        report.contains("now it would be denied for another"),
        "{report}"
    );
    drop(redis);
    let report = text(&program, &request);
    assert!(report.contains("the store cannot be asked"), "{report}");
}

#[test]
fn rules_of_a_database_are_explained_too() {
    let program = folder("database: { url: \"sqlite:tollgate.db\", cache: rules.cache }\n");
    let file = program.folder().join("tollgate.db");
    block_on(async {
        let database = Database::open(&format!("sqlite:{}", file.display()))
            .await
            .unwrap();
        let rule = json!({ "id": "from-sql", "per": ["ip"], "limit": "1/h burst 5" });
        database.set_rule("default", &rule).await.unwrap();
        database.close().await;
    });
    let report = json(&program, &["GET", "/"]);
    assert_eq!(report["rules"][0]["id"], "from-sql");
    // The cache is left to the server, which may run as another user.
    assert!(!program.folder().join("rules.cache").exists());
}

#[test]
fn wrong_arguments_are_reported_without_secrets() {
    let program = folder(CONFIG);
    for (args, hint) in [
        (&["G T", "/"][..], "is not a method"),
        (&["GET", "no path"], "is not a path"),
        (&["GET", "/", "-H", "X-API-Key"], "-H 'Name: value'"),
        (&["GET", "/", "-H", "X API Key: canary"], "-H 'Name: value'"),
        (&["GET", "/", "-c", "none.yaml"], "tollgate init"),
    ] {
        let output = run(&program, args);
        assert!(!output.status.success());
        let error = stderr(&output);
        assert!(
            error.contains(hint) && !error.contains("canary"),
            "{args:?}: {error}"
        );
    }
}
