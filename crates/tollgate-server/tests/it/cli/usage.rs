//! Usage and forgetting it: `tollgate inspect` and `tollgate reset`, and the same endpoints of the service.

use serde_json::{Value, json};
use tollgate_testing::servers::RedisServer;
use tollgate_testing::wait::until;
use tollgate_testing::{Program, Response, Running, Upstream};

use crate::kit::{program, serve};

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

/// The configuration of the commands and of the server.
fn config(store: &str) -> String {
    format!(
        "service: {{ listen: 127.0.0.1:0, token: \"{TOKEN}\" }}
admin: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}
{store}{RULES}"
    )
}

fn over(redis: &RedisServer) -> String {
    config(&format!(
        "store: {{ redis: {:?}, deadline: 5s }}\n",
        redis.url()
    ))
}

fn folder(config: &str) -> Program {
    let program = program();
    program.write("tollgate.yaml", config);
    program
}

fn document(program: &Program, args: &[&str]) -> Value {
    program.json(&[args, &["--json"]].concat())
}

fn post(server: &Running, path: &str, body: &Value) -> Response {
    let token = format!("authorization: Bearer {TOKEN}");
    server.post(path, &[&token], &body.to_string())
}

fn answer(server: &Running, path: &str, body: &Value) -> Value {
    let response = post(server, path, body);
    assert_eq!(response.status, 200, "{path} {body}: {response:?}");
    response.json()
}

/// Whether the request of a check is allowed.
fn is_allowed(server: &Running, body: &Value) -> bool {
    answer(server, "/v1/check", body)["allowed"] == true
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
    let (program, server) = (folder(&over(&redis)), serve(&over(&redis)));
    let charge = |client: &str, id: &str, cost: u64| {
        let path = format!("/v1/charges/{id}");
        is_allowed(
            &server,
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
    // With the path, the endpoint is shown by its name.
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
    let table = program.stdout(&inspect);
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
    assert!(lines[2].ends_with("shared by all"), "{table}");
    assert!(lines[3].contains("client=merchant_123 other "), "{table}");

    let printed = program.stdout(&["reset", "--client", "merchant_123"]);
    assert_eq!(printed, "forgot 2 buckets: 1 of client, 1 of charges\n");
    assert_eq!(
        figures(&document(&program, &inspect)["buckets"]),
        [used("client", 0, 500), used("everyone", 18, 982)],
        "what all share stays"
    );
    let of_other = document(&program, &["inspect", "--client", "other"]);
    assert_eq!(figures(&of_other["buckets"])[0], used("client", 3, 47));
    assert_eq!(
        program.stdout(&["reset", "--client", "merchant_123"]),
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
fn a_running_program_notices_a_reset_by_the_command() {
    let redis = RedisServer::start();
    let (program, server) = (folder(&over(&redis)), serve(&over(&redis)));
    let all = json!({ "client": "a", "cost": 50 });
    assert!(is_allowed(&server, &all));
    let denied = answer(&server, "/v1/check", &all);
    assert_eq!(denied["source"], "store");
    assert_eq!(answer(&server, "/v1/check", &all)["source"], "remembered");
    let _ = program.stdout(&["reset", "--client", "a"]);
    until("the denial is still believed", || is_allowed(&server, &all));
}

#[test]
fn addresses_and_attributes_are_matched_as_they_are_counted() {
    let redis = RedisServer::start();
    let (program, server) = (folder(&over(&redis)), serve(&over(&redis)));
    let tenant = json!({ "ip": "2001:db8::1", "attributes": { "tenant": "acme" }, "cost": 4 });
    assert!(is_allowed(&server, &tenant));
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
    let printed = program.stdout(&["reset", "--ip", "2001:db8::2"]);
    assert_eq!(printed, "forgot 2 buckets: 1 of client, 1 of address\n");
    let printed = program.stdout(&["reset", "--attribute", "tenant=acme"]);
    assert_eq!(printed, "forgot 1 bucket: 1 of tenant\n");
}

#[test]
fn usage_of_removed_rules_is_shown_and_forgotten() {
    let redis = RedisServer::start();
    let server = serve(&over(&redis));
    assert!(is_allowed(
        &server,
        &json!({ "client": "a\u{1b}[2J", "cost": 5 })
    ));
    let store = format!("store: {{ redis: {:?} }}\nrules: []", redis.url());
    let program = folder(&store);
    let client = ["--client", "a\u{1b}[2J"];
    let table = program.stdout(&[&["inspect"], &client[..]].concat());
    assert!(
        table.contains("(gone)") && table.contains(r"client=a\u{1b}[2J other"),
        "{table}"
    );
    let printed = program.stdout(&[&["reset"], &client[..]].concat());
    assert_eq!(printed, "forgot 1 bucket: 1 of removed rules\n");
}

#[test]
fn wrong_arguments_are_reported_with_what_to_do() {
    let redis = RedisServer::start();
    let program = folder(&over(&redis));
    for (args, expected) in [
        (&["reset"][..], "name one by --client"),
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
        let error = program.failure(2, args);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
    let error = program.failure(1, &["inspect", "-c", "none.yaml"]);
    assert!(error.contains("tollgate init"), "{error}");
    drop(redis);
    for (command, expected) in [
        ("inspect", "usage is unknown"),
        ("reset", "only a part may have been forgotten, or nothing"),
    ] {
        let error = program.failure(1, &[command, "--client", "a"]);
        assert!(
            error.contains("redis") && error.contains(expected),
            "{error}"
        );
        assert!(error.contains("whether Redis runs there"), "{error}");
    }
}

#[test]
fn usage_in_memory_refers_to_the_running_program() {
    const BEARER: &str = "-H \"Authorization: Bearer $TOKEN\" -d";
    let open = "service: { listen: \"127.0.0.1:8081\" }\nrules: []\n";
    let guarded =
        "service: { listen: \"127.0.0.1:8081\", token: \"0123456789abcdef0123\" }\nrules: []\n";
    let error_of = |config: &str, command: &str| {
        let error = folder(config).failure(1, &[command, "--client", "a"]);
        assert!(error.contains("in the memory of the running"), "{error}");
        error
    };
    for (config, command, expected) in [
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
        let error = error_of(config, command);
        assert!(error.contains(&expected), "{error}");
    }
    let twice = ["inspect", "--attribute", "a=1", "--attribute", "a=2"];
    let rule = "rules: [{ id: a, per: [attribute:a], limit: \"1/s\" }]";
    let error = folder(rule).failure(2, &twice);
    assert!(error.contains("\"a\" twice"), "{error}");
}

/// An instance takes a share of the limits.
#[test]
fn commands_do_not_count_as_instances() {
    let redis = RedisServer::start();
    let store = format!(
        "store: {{ redis: {:?}, instances: counted }}\n",
        redis.url()
    );
    let program = folder(&config(&store));
    let _ = program.stdout(&["inspect", "--client", "a"]);
    let _ = program.stdout(&["reset", "--client", "a"]);
    let _ = program.stdout(&["explain", "GET", "/"]);
    let ran = redis.command(&["INFO", "commandstats"]);
    assert!(
        ran.contains("cmdstat_get") && !ran.contains("cmdstat_zadd"),
        "{ran}"
    );
    assert_eq!(redis.command(&["DBSIZE"]), "0", "nothing is left behind");
}

fn the_service_shows_and_forgets(server: &Running) {
    let charge = json!({ "client": "a", "path": "/v1/charges/1", "cost": 20 });
    assert!(is_allowed(server, &charge));
    assert!(!is_allowed(server, &charge) && !is_allowed(server, &charge));
    let who = json!({ "client": "a", "path": "/v1/charges/9" });
    let report = answer(server, "/v1/inspect", &who);
    assert_eq!(
        figures(&report["buckets"]),
        [
            used("client", 20, 30),
            used("charges", 20, 0),
            used("everyone", 20, 980)
        ]
    );
    assert_eq!(report["generation"], 1);
    let forgotten = answer(server, "/v1/reset", &who);
    assert_eq!(
        figures(&forgotten["forgotten"]),
        [used("client", 20, 30), used("charges", 20, 0)]
    );
    assert!(
        is_allowed(server, &charge),
        "also if it was remembered that it is denied"
    );
    let everybody = answer(server, "/v1/reset", &json!({ "everybody": true }));
    assert_eq!(
        figures(&everybody["forgotten"]),
        [used("everyone", 40, 960)]
    );
    let metrics = server.metrics();
    for line in [
        "tollgate_service_requests_total{endpoint=\"inspect\",outcome=\"allowed\"} 1",
        "tollgate_service_requests_total{endpoint=\"reset\",outcome=\"allowed\"} 2",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}

#[test]
fn the_service_shows_and_forgets_what_is_in_memory() {
    the_service_shows_and_forgets(&serve(&config("")));
}

#[test]
fn the_service_shows_and_forgets_what_is_in_redis() {
    let redis = RedisServer::start();
    the_service_shows_and_forgets(&serve(&over(&redis)));
}

#[test]
fn the_service_refuses_invalid_requests() {
    let server = serve(&config(""));
    for (path, body, expected) in [
        ("/v1/reset", json!({}), "no client is named"),
        ("/v1/reset", json!({ "route": "/x" }), "no client is named"),
        (
            "/v1/reset",
            json!({ "client": "a", "everybody": true }),
            "everybody: a client is named",
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
        let response = post(&server, path, &body);
        // What is well-formed and not there is 404.
        let is_absent = expected.starts_with("attributes:") || expected.starts_with("path:");
        let status = if is_absent { 404 } else { 400 };
        assert_eq!(response.status, status, "{body}");
        assert_eq!(
            response.header("content-type"),
            Some("application/problem+json")
        );
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with(expected), "{body}: {detail}");
    }
    let large = json!({ "client": "x".repeat(300_000) });
    assert_eq!(post(&server, "/v1/reset", &large).status, 413);
}

/// Otherwise every client that reaches the port could reset its own limits.
#[test]
fn without_a_token_nobody_resets_anything() {
    let server = serve(&format!(
        "service: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}\n{RULES}"
    ));
    let body = json!({ "client": "a" }).to_string();
    assert_eq!(server.post("/v1/inspect", &[], &body).status, 200);
    for headers in [&[][..], &["authorization: Bearer "]] {
        let response = server.post("/v1/reset", headers, &body);
        assert_eq!(response.status, 403);
        assert!(
            response.json()["detail"]
                .as_str()
                .unwrap()
                .contains("service.token")
        );
    }
}

#[test]
fn the_service_reports_an_unreachable_redis() {
    let redis = RedisServer::start();
    let server = serve(&over(&redis));
    drop(redis);
    for path in ["/v1/inspect", "/v1/reset"] {
        let response = post(&server, path, &json!({ "client": "a" }));
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(
            response.header("content-type"),
            Some("application/problem+json")
        );
        assert!(
            response.json()["detail"]
                .as_str()
                .unwrap()
                .contains("redis")
        );
    }
}

const NAMED: &str = "
identity: { client: [\"header:X-User-Id\", ip], trusted_proxies: [127.0.0.1] }
clients: [{ id: merchant_123 }]
rules: [{ id: client, per: [client], limit: \"1/h burst 4\" }]
";

/// A client's bare id refers to the bucket in which the gateway counts it.
#[test]
fn a_client_has_one_name_at_every_listener() {
    let redis = RedisServer::start();
    let upstream = Upstream::start();
    let config = format!(
        "gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{}\" }}] }}\nservice: {{ listen: 127.0.0.1:0, token: {TOKEN} }}\n\
         log: {{ format: json }}\nstore: {{ redis: {:?}, deadline: 5s, remembered_denials: 0 }}\n{NAMED}",
        upstream.address,
        redis.url()
    );
    let server = serve(&config);
    let program = &server.program;
    let post = |path: &str, body: &Value| answer(&server, path, body);
    let through_gateway = || server.get("gateway", "/", &["X-User-Id: 42"]).status;
    assert_eq!([through_gateway(), through_gateway()], [200, 200]);
    let forwarded = [
        "x-forwarded-method: GET",
        "x-forwarded-uri: /",
        "x-user-id: 42",
    ];
    let response = server.get("service", "/v1/forward-auth", &forwarded);
    assert_eq!(response.status, 200);
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
    let merchant = program.stdout(&["reset", "--client", "merchant_123"]);
    assert_eq!(merchant, "nothing was used by merchant_123\n");
    // No client has this id: a hint names the form that clients have.
    let nobody = program.stdout(&["reset", "--client", "43"]);
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

/// The same in the audit trail, with clients from the file and from the database.
#[test]
fn violations_are_found_by_the_one_name_of_a_client() {
    let clients = "clients: [{ id: merchant_123 }]\n";
    let rules = "rules: [{ id: client, per: [client], limit: \"1/h burst 1\" }]\n";
    for from in ["file", "database"] {
        let program = program();
        let in_file = if from == "file" {
            format!("{clients}{rules}")
        } else {
            program.write("rules.yaml", &format!("{clients}{rules}"));
            let import = [
                "rules",
                "import",
                "rules.yaml",
                "--database",
                "sqlite:trail.db",
            ];
            let _ = program.stdout(&import);
            String::new()
        };
        let upstream = Upstream::start();
        let config = format!(
            "gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{}\" }}] }}
database: {{ url: \"sqlite:trail.db\" }}
rules_from: {from}
log: {{ format: json }}
identity: {{ client: [\"header:X-Account\", ip], trusted_proxies: [127.0.0.1] }}
{in_file}",
            upstream.address,
        );
        let mut server = program.serve(&config);
        for client in ["42", "merchant_123"] {
            let line = format!("X-Account: {client}");
            let get = || server.get("gateway", "/", &[&line]).status;
            assert_eq!([get(), get()], [200, 429]);
        }
        server.stop();
        let violations = |client: &str| server.program.stdout(&["violations", "--client", client]);
        for (client, name) in [
            ("42", "x-account:42"),
            ("x-account:42", "x-account:42"),
            (" 42\t", "x-account:42"),
            ("merchant_123", " merchant_123 "),
        ] {
            let found = violations(client);
            assert_eq!(found.lines().count(), 2, "{from} {client}: {found}");
            assert!(found.contains(name), "{from} {client}: {found}");
        }
        let nobody = violations("43");
        assert!(
            nobody.starts_with("no violations\nhint: no client"),
            "{nobody}"
        );
        assert!(nobody.contains("x-account:ID"), "{nobody}");
        assert!(!nobody.contains("x-user-id"), "{nobody}");
    }
}

/// Spaces and tabs around a name, which HTTP/2 carries in headers, name no other client.
#[test]
fn spaces_around_names_are_ignored_at_every_listener() {
    let redis = RedisServer::start();
    let server = serve(&format!(
        "service: {{ listen: 127.0.0.1:0, token: {TOKEN} }}
log: {{ format: json }}
store: {{ redis: {:?}, deadline: 5s, remembered_denials: 0 }}
identity: {{ client: [\"header:X-User-Id\", ip], trusted_proxies: [127.0.0.1] }}
clients: [{{ id: merchant_123, plan: pro }}]
rules:
  - {{ id: client, per: [client], limit: \"1/h burst 9\" }}
  - {{ id: client, plan: pro, per: [client], limit: \"1/h burst 99\" }}
  - {{ id: tenant, match: {{ attributes: {{ tenant: \"*\" }} }}, per: [\"attribute:tenant\"], limit: \"1/h burst 9\" }}
",
        redis.url()
    ));
    let program = &server.program;
    let left = |check: Value| answer(&server, "/v1/check", &check)["remaining"].clone();
    assert_eq!(left(json!({ "client": "42" })), 8);
    assert_eq!(left(json!({ "client": " 42\t" })), 7);
    assert_eq!(left(json!({ "client": " merchant_123" })), 98);
    assert_eq!(left(json!({ "client": "7", "plan": "\tpro " })), 98);
    for (tenant, expected) in [("acme", 8), ("\t acme", 7), ("acme ", 6)] {
        let check = json!({ "attributes": { "tenant": tenant } });
        assert_eq!(left(check), expected, "{tenant:?}");
    }
    let inspected = document(program, &["inspect", "--client", " 42"]);
    assert_eq!(figures(&inspected["buckets"]), [used("client", 2, 7)]);
    let inspected = answer(&server, "/v1/inspect", &json!({ "client": "42 " }));
    assert_eq!(figures(&inspected["buckets"]), [used("client", 2, 7)]);
    let explained = document(program, &["explain", "GET", "/", "--client", " 42"]);
    assert_eq!(explained["caller"]["client"], "x-user-id:42");
    let reset = json!({ "attributes": { "tenant": " acme" } });
    let forgotten = answer(&server, "/v1/reset", &reset);
    assert_eq!(figures(&forgotten["forgotten"]), [used("tenant", 3, 6)]);
    let forgotten = document(program, &["reset", "--client", "\t42"]);
    assert_eq!(figures(&forgotten["forgotten"]), [used("client", 2, 7)]);
}
