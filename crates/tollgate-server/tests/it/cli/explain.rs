//! `tollgate explain`: who a caller is taken for, which rules it meets and why not the others, what is used; and nothing is charged.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use tollgate_server::database::Database;

use crate::database::block_on;
use crate::program::Program;
use tollgate_testing::servers::RedisServer;

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

/// What `CONFIG` has the hash of.
const KEY: &str = "key";

fn folder(config: &str) -> Program {
    let program = Program::new();
    fs::write(program.folder().join("tollgate.yaml"), config).unwrap();
    program
}

fn run(program: &Program, args: &[&str]) -> Output {
    let mut command = program.bare(&[&["explain"], args].concat());
    command.output().unwrap()
}

fn text(program: &Program, args: &[&str]) -> String {
    let output = run(program, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(program: &Program, args: &[&str]) -> Value {
    serde_json::from_str(&text(program, &[args, &["--json"]].concat())).unwrap()
}

#[test]
fn it_says_who_calls_what_and_which_rules_are_met() {
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

    let said = text(
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
        "caller   ip:203.0.113.7, by its address",
        "api_key:x-api-key: unknown API key",
        "no   charges  the method is not POST",
        "yes  address  1/h burst 100 (only watches)",
        "no   old      it is off",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
    assert!(!said.contains("nobody's"), "{said}");
}

#[test]
fn behind_a_trusted_proxy_it_says_how_the_address_was_found() {
    let program = folder(CONFIG);
    let forwarded = ["-H", "X-Forwarded-For: 198.51.100.1, 203.0.113.7, 10.0.0.2"];
    let said = text(
        &program,
        &[&["GET", "/", "--ip", "10.0.0.1"], &forwarded[..]].concat(),
    );
    assert!(said.contains("caller   ip:203.0.113.7"), "{said}");
    assert!(said.contains("10.0.0.1 is a trusted proxy"), "{said}");
    let said = text(
        &program,
        &[&["GET", "/", "--ip", "203.0.113.9"], &forwarded[..]].concat(),
    );
    assert!(said.contains("caller   ip:203.0.113.9"), "{said}");
}

#[test]
fn a_path_that_is_refused_is_said_with_the_reason() {
    let report = json(&folder(CONFIG), &["GET", "/v1/..;/admin"]);
    let why = report["request"]["refused"].as_str().unwrap();
    assert!(why.contains("dots"), "{why}");
    assert_eq!(report["rules"], json!([]));
}

#[test]
fn what_is_used_is_shown_from_redis_and_nothing_is_charged() {
    let redis = RedisServer::start();
    let program = folder(&format!("store: {{ redis: {:?} }}\n{CONFIG}", redis.url()));
    let ask = ["POST", "/reports/generate", "--ip", "203.0.113.7"];
    for _ in 0..3 {
        let report = json(&program, &ask);
        assert_eq!(report["decision"]["allowed"], true, "{report}");
        assert_eq!(report["rules"][1]["used"], 0);
    }
    assert_eq!(redis.ask(&["DBSIZE"]), "0", "looking leaves nothing behind");
    // Two of these use up the narrowest.
    let limiter =
        tollgate_server::config::ConfigFile::read(&program.folder().join("tollgate.yaml"));
    let config = limiter.unwrap().parse().unwrap();
    block_on(async {
        let limiter = tollgate_server::door::limiter(&config.store).unwrap();
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
            let met = config.policy.rules.meet(&request);
            assert!(limiter.decide_on(&met).await.allowed());
        }
    });
    let report = json(&program, &ask);
    assert_eq!(report["rules"][0]["used"], 20);
    assert_eq!(report["rules"][1]["remaining"], 0);
    assert_eq!(report["decision"]["allowed"], false);
    assert_eq!(report["decision"]["rule"], "reports");
    assert!(report["decision"]["retry_after_ms"].as_u64().unwrap() > 0);
    let said = text(&program, &ask);
    assert!(
        said.contains("now it would be denied for another"),
        "{said}"
    );
    drop(redis);
    let said = text(&program, &ask);
    assert!(said.contains("the store cannot be asked"), "{said}");
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
    // Who only looks leaves the cache to the program: it may be another user's.
    assert!(!program.folder().join("rules.cache").exists());
}

#[test]
fn what_makes_no_sense_is_said_and_secrets_are_not() {
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
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains(hint) && !said.contains("canary"),
            "{args:?}: {said}"
        );
    }
}
