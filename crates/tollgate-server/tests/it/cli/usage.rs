//! What callers used, and forgetting it: `tollgate inspect` and `tollgate reset`, and the same asked of the service.

use std::fs;
use std::process::Output;

use serde_json::{Value, json};
use tollgate_testing::servers::RedisServer;

use crate::program::{Program, stderr};
use crate::served::{Reply, Served, until};

const RULES: &str = "
clients: [{ id: merchant_123, plan: pro }]
rules:
  - { id: client, per: [client], limit: \"1/h burst 50\" }
  - { id: client, plan: pro, per: [client], limit: \"1/h burst 500\" }
  - { id: charges, match: { path: \"/v1/charges/{id}\" }, per: [client, route], limit: \"20 per 1h sliding_log\" }
  - { id: address, per: [ip], limit: \"1/h burst 100\", mode: shadow }
  - { id: tenant, match: { attributes: { tenant: acme } }, per: [\"attribute:tenant\"], limit: \"1/h burst 10\" }
  - { id: everyone, per: [], limit: \"1/h burst 1000\" }
";

const TOKEN: &str = "0123456789abcdef";

/// The program's own configuration, and a service that runs with it.
fn config(store: &str) -> String {
    format!("service: {{ token: \"{TOKEN}\" }}\n{store}{RULES}")
}

fn over(redis: &RedisServer) -> String {
    config(&format!(
        "store: {{ redis: {:?}, deadline: 5s }}\n",
        redis.url()
    ))
}

fn folder(config: &str) -> Program {
    let program = Program::new();
    fs::write(program.folder().join("tollgate.yaml"), config).unwrap();
    program
}

fn run(program: &Program, args: &[&str]) -> Output {
    program.bare(args).output().unwrap()
}

fn text(program: &Program, args: &[&str]) -> String {
    let output = run(program, args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn document(program: &Program, args: &[&str]) -> Value {
    serde_json::from_str(&text(program, &[args, &["--json"]].concat())).unwrap()
}

fn refusal(program: &Program, exit_code: i32, args: &[&str]) -> String {
    let output = run(program, args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(exit_code), "{args:?}: {said}");
    assert!(output.stdout.is_empty());
    said
}

fn ask(served: &Served, path: &str, body: &Value) -> Reply {
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    served.post(path, &token, &body.to_string())
}

fn answer(served: &Served, path: &str, body: &Value) -> Value {
    let reply = ask(served, path, body);
    assert_eq!(reply.status, 200, "{path} {body}: {}", reply.body);
    reply.json()
}

/// Spends so much, and says whether it was let through.
fn spend(served: &Served, body: &Value) -> bool {
    answer(served, "/v1/check", body)["allowed"] == true
}

/// Rule, used and what is left of each bucket.
fn figures(buckets: &Value) -> Vec<(String, u64, u64)> {
    let figure = |bucket: &Value| {
        (
            bucket["rule"].as_str().unwrap().to_owned(),
            bucket["used"].as_u64().unwrap(),
            bucket["remaining"].as_u64().unwrap(),
        )
    };
    buckets.as_array().unwrap().iter().map(figure).collect()
}

fn used(rule: &str, used: u64, left: u64) -> (String, u64, u64) {
    (rule.to_owned(), used, left)
}

#[test]
fn the_commands_show_and_forget_what_a_client_used() {
    let redis = RedisServer::start();
    let (program, served) = (folder(&over(&redis)), Served::start(&over(&redis)));
    let charge = |client: &str, id: &str, cost: u64| {
        let path = format!("/v1/charges/{id}");
        spend(
            &served,
            &json!({ "client": client, "path": path, "cost": cost }),
        )
    };
    assert!(charge("merchant_123", "1", 15));
    assert!(!charge("merchant_123", "2", 6), "one endpoint, one bucket");
    assert!(charge("other", "1", 3));
    let inspect = ["inspect", "--client", "merchant_123"];
    let report = document(&program, &inspect);
    assert_eq!(
        figures(&report["buckets"]),
        [
            used("client", 15, 485),
            used("everyone", 18, 982),
            used("charges", 15, 5)
        ]
    );
    let other = &report["buckets"][2];
    assert_eq!(other["bucket"], json!([["client", "merchant_123"]]));
    assert_eq!(other["other"].as_str().unwrap().len(), 8);
    assert!(other["reset_after_ms"].as_u64().unwrap() > 3_500_000);
    // Who names the endpoint sees it by its name.
    let named = document(
        &program,
        &[&inspect[..], &["--path", "/v1/charges/7"]].concat(),
    );
    let charges = &named["buckets"][1];
    assert_eq!(
        charges["bucket"],
        json!([["client", "merchant_123"], ["route", "/v1/charges/{id}"]])
    );
    assert_eq!(named["buckets"].as_array().unwrap().len(), 3);
    let table = text(&program, &inspect);
    let lines: Vec<&str> = table.lines().collect();
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        words(lines[0]),
        [
            "rule", "limit", "used", "left", "full", "again", "in", "bucket"
        ]
    );
    assert!(lines[1].starts_with("client") && lines[1].ends_with("client=merchant_123"));
    assert!(lines[2].ends_with("everybody's"), "{table}");
    assert!(lines[3].contains("client=merchant_123 other "), "{table}");

    let said = text(&program, &["reset", "--client", "merchant_123"]);
    assert_eq!(said, "forgot 2 buckets: 1 of client, 1 of charges\n");
    assert_eq!(
        figures(&document(&program, &inspect)["buckets"]),
        [used("client", 0, 500), used("everyone", 18, 982)],
        "what all share stays"
    );
    let of_other = document(&program, &["inspect", "--client", "other"]);
    assert_eq!(figures(&of_other["buckets"])[0], used("client", 3, 47));
    assert_eq!(
        text(&program, &["reset", "--client", "merchant_123"]),
        "nothing was used by merchant_123\n"
    );
    let everybody = document(&program, &["reset", "--everybody"]);
    assert_eq!(
        figures(&everybody["forgotten"]),
        [used("everyone", 18, 982)]
    );
    assert_eq!(document(&program, &["inspect"])["buckets"][0]["used"], 0);
}

#[test]
fn a_program_that_runs_hears_of_a_reset_on_a_terminal() {
    let redis = RedisServer::start();
    let (program, served) = (folder(&over(&redis)), Served::start(&over(&redis)));
    let all = json!({ "client": "a", "cost": 50 });
    assert!(spend(&served, &all));
    let denied = answer(&served, "/v1/check", &all);
    assert_eq!(denied["source"], "store");
    assert_eq!(answer(&served, "/v1/check", &all)["source"], "remembered");
    text(&program, &["reset", "--client", "a"]);
    until("the denial is still believed", || spend(&served, &all));
}

#[test]
fn an_address_is_meant_as_it_is_counted_and_an_attribute_by_its_name() {
    let redis = RedisServer::start();
    let (program, served) = (folder(&over(&redis)), Served::start(&over(&redis)));
    let tenant = json!({ "ip": "2001:db8::1", "attributes": { "tenant": "acme" }, "cost": 4 });
    assert!(spend(&served, &tenant));
    let report = document(&program, &["inspect", "--ip", "2001:db8::ffff"]);
    assert_eq!(
        figures(&report["buckets"]),
        [
            used("client", 4, 46),
            used("address", 4, 96),
            used("everyone", 4, 996)
        ]
    );
    assert_eq!(report["buckets"][1]["shadow"], true);
    let said = text(&program, &["reset", "--ip", "2001:db8::2"]);
    assert_eq!(said, "forgot 2 buckets: 1 of client, 1 of address\n");
    let said = text(&program, &["reset", "--attribute", "tenant=acme"]);
    assert_eq!(said, "forgot 1 bucket: 1 of tenant\n");
}

#[test]
fn what_rules_counted_that_are_gone_is_shown_and_forgotten() {
    let redis = RedisServer::start();
    let served = Served::start(&over(&redis));
    assert!(spend(
        &served,
        &json!({ "client": "a\u{1b}[2J", "cost": 5 })
    ));
    let store = format!("store: {{ redis: {:?} }}\nrules: []", redis.url());
    let program = folder(&store);
    let client = ["--client", "a\u{1b}[2J"];
    let table = text(&program, &[&["inspect"], &client[..]].concat());
    assert!(
        table.contains("(gone)") && table.contains(r"client=a\u{1b}[2J other"),
        "{table}"
    );
    let said = text(&program, &[&["reset"], &client[..]].concat());
    assert_eq!(
        said,
        "forgot 1 bucket: 1 of rules that are not there any more\n"
    );
}

#[test]
fn what_makes_no_sense_or_cannot_be_done_is_said_with_what_to_do() {
    let redis = RedisServer::start();
    let program = folder(&over(&redis));
    for (args, says) in [
        (&["reset"][..], "say whom you mean by --client"),
        (&["reset", "--route", "/x"], "--everybody"),
        (
            &["reset", "--everybody", "--client", "a"],
            "cannot be used with",
        ),
        (&["reset", "--client", ""], "--client is empty"),
        (
            &["inspect", "--attribute", "tenant"],
            "use --attribute NAME=VALUE",
        ),
        (
            &["inspect", "--attribute", "device=7"],
            "they look at tenant",
        ),
        (&["inspect", "--path", "/a%2fb"], "--path is refused"),
    ] {
        let said = refusal(&program, 2, args);
        assert!(said.contains(says), "{args:?}: {said}");
    }
    let said = refusal(&program, 1, &["inspect", "-c", "none.yaml"]);
    assert!(said.contains("tollgate init"), "{said}");
    drop(redis);
    for (command, says) in [
        ("inspect", "nothing is known of what is used"),
        ("reset", "only a part may have been forgotten, or nothing"),
    ] {
        let said = refusal(&program, 1, &[command, "--client", "a"]);
        assert!(said.contains("redis") && said.contains(says), "{said}");
        assert!(said.contains("whether Redis runs there"), "{said}");
    }
}

#[test]
fn usage_in_memory_is_to_be_asked_of_the_program_that_has_it() {
    const BEARER: &str = "-H \"Authorization: Bearer $TOKEN\" -d";
    let open = "service: { listen: \"127.0.0.1:8081\" }\nrules: []\n";
    let guarded =
        "service: { listen: \"127.0.0.1:8081\", token: \"0123456789abcdef0123\" }\nrules: []\n";
    let asked = |config: &str, command: &str| {
        let said = refusal(&folder(config), 1, &[command, "--client", "a"]);
        assert!(said.contains("in the memory of the running"), "{said}");
        said
    };
    for (config, command, right) in [
        (
            open,
            "inspect",
            "curl http://127.0.0.1:8081/v1/inspect -d".to_owned(),
        ),
        (open, "reset", "set service.token".to_owned()),
        (guarded, "inspect", format!("/v1/inspect {BEARER}")),
        (guarded, "reset", format!("/v1/reset {BEARER}")),
        (
            "rules: []",
            "inspect",
            "add `service: { token: … }`".to_owned(),
        ),
    ] {
        let said = asked(config, command);
        assert!(said.contains(&right), "{said}");
    }
    let twice = ["inspect", "--attribute", "a=1", "--attribute", "a=2"];
    let rule = "rules: [{ id: a, per: [attribute:a], limit: \"1/s\" }]";
    let said = refusal(&folder(rule), 2, &twice);
    assert!(said.contains("\"a\" twice"), "{said}");
}

/// A command is no instance that would take its share of the limits.
#[test]
fn who_looks_is_not_counted_among_those_that_share_the_limits() {
    let redis = RedisServer::start();
    let store = format!(
        "store: {{ redis: {:?}, instances: counted }}\n",
        redis.url()
    );
    let program = folder(&config(&store));
    text(&program, &["inspect", "--client", "a"]);
    text(&program, &["reset", "--client", "a"]);
    text(&program, &["explain", "GET", "/"]);
    let ran = redis.ask(&["INFO", "commandstats"]);
    assert!(
        ran.contains("cmdstat_get") && !ran.contains("cmdstat_zadd"),
        "{ran}"
    );
    assert_eq!(redis.ask(&["DBSIZE"]), "0", "nothing is left behind");
}

fn the_service_shows_and_forgets(served: &Served) {
    let charge = json!({ "client": "a", "path": "/v1/charges/1", "cost": 20 });
    assert!(spend(served, &charge));
    assert!(!spend(served, &charge) && !spend(served, &charge));
    let who = json!({ "client": "a", "path": "/v1/charges/9" });
    let report = answer(served, "/v1/inspect", &who);
    assert_eq!(
        figures(&report["buckets"]),
        [
            used("client", 20, 30),
            used("charges", 20, 0),
            used("everyone", 20, 980)
        ]
    );
    assert_eq!(report["generation"], 1);
    let forgotten = answer(served, "/v1/reset", &who);
    assert_eq!(
        figures(&forgotten["forgotten"]),
        [used("client", 20, 30), used("charges", 20, 0)]
    );
    assert!(
        spend(served, &charge),
        "also if it was remembered that it is denied"
    );
    let everybody = answer(served, "/v1/reset", &json!({ "everybody": true }));
    assert_eq!(
        figures(&everybody["forgotten"]),
        [used("everyone", 40, 960)]
    );
    let metrics = served.metrics();
    for line in [
        "tollgate_service_requests_total{endpoint=\"inspect\",outcome=\"allowed\"} 1",
        "tollgate_service_requests_total{endpoint=\"reset\",outcome=\"allowed\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn the_service_shows_and_forgets_what_is_in_memory() {
    the_service_shows_and_forgets(&Served::start(&config("")));
}

#[test]
fn the_service_shows_and_forgets_what_is_in_redis() {
    let redis = RedisServer::start();
    the_service_shows_and_forgets(&Served::start(&over(&redis)));
}

#[test]
fn the_service_refuses_what_makes_no_sense() {
    let served = Served::start(&config(""));
    for (path, body, says) in [
        ("/v1/reset", json!({}), "this names no caller"),
        (
            "/v1/reset",
            json!({ "route": "/x" }),
            "this names no caller",
        ),
        (
            "/v1/reset",
            json!({ "client": "a", "everybody": true }),
            "everybody: a caller is named",
        ),
        (
            "/v1/reset",
            json!({ "everybody": "yes" }),
            "everybody: expected true or false, got text",
        ),
        (
            "/v1/reset",
            json!({ "attributes": { "device": "7" } }),
            "attributes: no rule looks at \"device\"",
        ),
        (
            "/v1/inspect",
            json!({ "everybody": true }),
            "there is no field \"everybody\"",
        ),
        (
            "/v1/inspect",
            json!({ "cost": 1 }),
            "there is no field \"cost\"",
        ),
        (
            "/v1/inspect",
            json!({ "path": "/a%2fb" }),
            "path: this is refused",
        ),
    ] {
        let reply = ask(&served, path, &body);
        // What is well-formed and not there is 404.
        let is_absent = says.starts_with("attributes:") || says.starts_with("path:");
        let status = if is_absent { 404 } else { 400 };
        assert_eq!(reply.status, status, "{body}");
        assert_eq!(reply.header("content-type"), "application/problem+json");
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with(says), "{body}: {detail}");
    }
    let large = json!({ "client": "x".repeat(300_000) });
    assert_eq!(ask(&served, "/v1/reset", &large).status, 413);
}

/// Whoever could reach the port could free itself.
#[test]
fn without_a_token_nobody_resets_anything() {
    let served = Served::start(&format!("service: {{}}\n{RULES}"));
    let body = json!({ "client": "a" }).to_string();
    assert_eq!(served.post("/v1/inspect", "", &body).status, 200);
    for headers in ["", "Authorization: Bearer \r\n"] {
        let reply = served.post("/v1/reset", headers, &body);
        assert_eq!(reply.status, 403);
        assert!(
            reply.json()["detail"]
                .as_str()
                .unwrap()
                .contains("service.token")
        );
    }
}

#[test]
fn a_service_without_its_redis_says_so() {
    let redis = RedisServer::start();
    let served = Served::start(&over(&redis));
    drop(redis);
    for path in ["/v1/inspect", "/v1/reset"] {
        let reply = ask(&served, path, &json!({ "client": "a" }));
        assert_eq!(reply.status, 503, "{}", reply.body);
        assert_eq!(reply.header("content-type"), "application/problem+json");
        assert!(reply.json()["detail"].as_str().unwrap().contains("redis"));
    }
}

const NAMED: &str = "
identity: { client: [\"header:X-User-Id\", ip], trusted_proxies: [127.0.0.1] }
clients: [{ id: merchant_123 }]
rules: [{ id: client, per: [client], limit: \"1/h burst 4\" }]
";

/// Whoever calls a client by its id alone means the bucket in which the gateway counts it.
#[test]
fn a_client_has_one_name_at_every_listener() {
    let redis = RedisServer::start();
    let upstream = crate::served::Upstream::start();
    let config = format!(
        "gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{}\" }}] }}\nservice: {{ listen: 127.0.0.1:0, token: {TOKEN} }}\n\
         log: {{ format: json }}\nstore: {{ redis: {:?}, deadline: 5s, remembered_denials: 0 }}\n{NAMED}",
        upstream.address,
        redis.url()
    );
    let serving = crate::serving::Serving::by(&config);
    let service = serving.address("service");
    let program = &serving.program;
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let post = |path: &str, body: &Value| {
        let reply = crate::served::ask(service, "POST", path, &token, &body.to_string());
        assert_eq!(reply.status, 200, "{path} {body}: {}", reply.body);
        reply.json()
    };
    let through_gateway = || serving.get("gateway", "/", &["X-User-Id: 42"]).status;
    assert_eq!([through_gateway(), through_gateway()], [200, 200]);
    let forwarded = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\nX-User-Id: 42\r\n";
    let reply = crate::served::ask(service, "GET", "/v1/forward-auth", forwarded, "");
    assert_eq!(reply.status, 200);
    let check = json!({ "client": "42" });
    let checked = post("/v1/check", &check);
    assert_eq!(
        (&checked["allowed"], &checked["remaining"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(checked["client"], "x-user-id:42");
    for client in ["42", "x-user-id:42"] {
        assert_eq!(
            post("/v1/check", &json!({ "client": client }))["allowed"],
            false
        );
    }
    assert_eq!(through_gateway(), 429);

    let inspect = document(program, &["inspect", "--client", "42"]);
    assert_eq!(inspect["client"], "x-user-id:42");
    assert_eq!(figures(&inspect["buckets"]), [used("client", 4, 0)]);
    assert_eq!(
        inspect["buckets"][0]["bucket"],
        json!([["client", "x-user-id:42"]])
    );
    let inspected = post("/v1/inspect", &check);
    assert_eq!(figures(&inspected["buckets"]), [used("client", 4, 0)]);
    let explained = document(program, &["explain", "GET", "/", "--client", "42"]);
    assert_eq!(explained["caller"]["client"], "x-user-id:42");
    assert_eq!(explained["decision"]["allowed"], false);

    // A client of the configuration keeps its id.
    let merchant = text(program, &["reset", "--client", "merchant_123"]);
    assert_eq!(merchant, "nothing was used by merchant_123\n");
    // Nobody has this one: what was meant is said.
    let nobody = text(program, &["reset", "--client", "43"]);
    assert!(
        nobody.starts_with("nothing was used by x-user-id:43\nhint: "),
        "{nobody}"
    );
    assert!(nobody.contains("x-user-id:ID"), "{nobody}");
    let nobody = post("/v1/reset", &json!({ "client": "43" }));
    assert_eq!(
        (&nobody["client"], &nobody["forgotten"]),
        (&json!("x-user-id:43"), &json!([]))
    );
    assert!(nobody["hint"].is_string());

    let forgotten = document(program, &["reset", "--client", "42"]);
    assert_eq!(forgotten["client"], "x-user-id:42");
    assert_eq!(figures(&forgotten["forgotten"]), [used("client", 4, 0)]);
    assert_eq!(forgotten["hint"], Value::Null);
    assert_eq!(through_gateway(), 200);
    let forgotten = post("/v1/reset", &check);
    assert_eq!(figures(&forgotten["forgotten"]), [used("client", 1, 3)]);
}
