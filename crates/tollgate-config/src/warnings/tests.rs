//! Each warning: a configuration that causes it, and the same configuration without it.

use crate::parse;

fn warnings(text: &str) -> String {
    let env = |name: &str| Some(format!("value-of-{name}-that-is-long"));
    match parse(text, &env) {
        Ok(config) => config.warnings.to_string(),
        Err(problems) => panic!("{}", problems.render("test", text)),
    }
}

/// The text causes a warning that contains `says`, until a part of it is replaced.
fn warns(text: &str, says: &str, (part, better): (&str, &str)) {
    let found = warnings(text);
    assert!(found.contains(says), "expected {says:?} in:\n{found}");
    assert!(text.contains(part), "{part:?} is not in the text");
    let found = warnings(&text.replace(part, better));
    assert!(!found.contains(says), "expected no {says:?} in:\n{found}");
}

const GATEWAY: &str = "gateway: { listen: 0.0.0.0:80, upstreams: [{ to: http://a }] }\n";
const RULE: &str = "rules: [{ id: a, per: [ip], limit: \"10/s\" }]\n";

#[test]
fn no_listener_for_requests() {
    warns(
        RULE,
        "no request arrives",
        ("rules:", "service: {}\nrules:"),
    );
}

#[test]
fn nothing_is_limited() {
    warns(
        GATEWAY,
        "nothing is limited",
        ("gateway", &format!("{RULE}gateway")),
    );
    let off = format!("{GATEWAY}rules: [{{ id: a, per: [], limit: \"1/s\", mode: off }}]\n");
    warns(&off, "nothing is limited", ("mode: off", "mode: shadow"));
}

#[test]
fn a_store_field_without_effect() {
    let text = format!("{GATEWAY}{RULE}store: {{ deadline: 5ms }}\n");
    warns(
        &text,
        "store.deadline: this has no effect: it is for Redis",
        ("deadline", "redis: redis://127.0.0.1, deadline"),
    );
    let text = format!("{GATEWAY}{RULE}store: {{ redis: redis://127.0.0.1, max_keys: 5 }}\n");
    warns(
        &text,
        "store.max_keys: this has no effect: it is for memory",
        ("redis: redis://127.0.0.1, ", ""),
    );
}

#[test]
fn a_plan_without_clients() {
    let text =
        format!("{GATEWAY}rules: [{{ id: a, plan: gold, per: [client], limit: \"1/s\" }}]\n");
    let says = "rules[0].plan: no client has this plan, so no request matches this rule";
    warns(
        &text,
        says,
        ("rules:", "clients: [{ id: x, plan: gold }]\nrules:"),
    );
    let with_header = "identity: { plan: \"header:X-Plan\", trusted_proxies: 10.0.0.0/8 }\nrules:";
    warns(&text, says, ("rules:", with_header));
    let text = text.replace("plan: gold", "match: { plan: [gold, silver] }");
    let says = "no client has this plan";
    warns(
        &text,
        says,
        ("rules:", "clients: [{ id: x, plan: silver }]\nrules:"),
    );
}

#[test]
fn a_plan_excluded_by_the_match_of_its_rule() {
    let text = format!(
        "{GATEWAY}rules: [{{ id: a, plan: free, match: {{ plan: pro }}, per: [], limit: \"1/s\" }}]\n"
    );
    warns(
        &text,
        "the match of this rule excludes its plan",
        ("plan: pro", "plan: [pro, free]"),
    );
}

#[test]
fn a_path_that_no_upstream_serves() {
    let text = "gateway: { listen: 0.0.0.0:80, upstreams: [{ path: /v1, to: http://a }] }
rules: [{ id: a, match: { path: \"/v2/{*rest}\" }, per: [ip], limit: \"10/s\" }]\n";
    let says = "rules[0].match.path: no upstream serves this path";
    warns(text, says, ("/v2", "/v1"));
    warns(text, says, ("path: /v1,", ""));
    warns(text, says, ("rules:", "service: {}\nrules:"));
}

#[test]
fn a_limit_below_the_cost_of_some_requests() {
    let text = format!(
        "{GATEWAY}costs: [{{ match: {{ path: /report }}, cost: 20 }}]
rules: [{{ id: a, match: {{ path: \"/{{name}}\" }}, per: [ip], limit: \"10/s\" }}]\n"
    );
    let says =
        "some requests cost 20, but this limit never holds more than 10, so they are always denied";
    warns(&text, says, ("10/s", "10/s burst 20"));
    warns(&text, says, ("/report", "/deep/report"));
    warns(&text, says, ("cost: 20", "cost: 10"));
}

#[test]
fn a_cost_without_a_rule() {
    let text = format!(
        "{GATEWAY}costs: [{{ match: {{ methods: POST }}, cost: 2 }}]
rules: [{{ id: a, match: {{ methods: GET }}, per: [ip], limit: \"10/s\" }}]\n"
    );
    warns(
        &text,
        "costs[0]: no rule counts such requests",
        ("methods: GET", "methods: [GET, POST]"),
    );
}

#[test]
fn a_large_sliding_log() {
    let text =
        format!("{GATEWAY}rules: [{{ id: a, per: [ip], limit: \"20000 per 1m sliding_log\" }}]\n");
    warns(&text, "up to 312 KiB for each key", ("20000", "10000"));
}

#[test]
fn all_clients_share_the_bucket_of_a_proxy() {
    let text = format!("{GATEWAY}{RULE}").replace("0.0.0.0", "10.0.0.5");
    let says = "all clients share the bucket of that proxy";
    warns(
        &text,
        says,
        (
            "rules:",
            "identity: { trusted_proxies: 10.0.0.0/8 }\nrules:",
        ),
    );
    warns(&text, says, ("10.0.0.5", "203.0.113.5"));
    warns(&text, says, ("per: [ip]", "per: []"));
    // Without another source, the client is its address.
    warns(
        &text.replace("[ip]", "[client]"),
        says,
        ("rules:", "identity: { client: bearer }\nrules:"),
    );
}

#[test]
fn client_names_that_clients_can_invent() {
    let text = format!(
        "{GATEWAY}identity: {{ client: \"header:X-User\" }}\nrules: [{{ id: a, per: [client], limit: \"10/s\" }}]\n"
    );
    let says = "identity.client: any client can send the header that names clients";
    warns(
        &text,
        says,
        (
            "rules: [{",
            "rules: [{ id: b, per: [ip], limit: \"9/s\" }, {",
        ),
    );
    warns(
        &text,
        says,
        (
            "\"header:X-User\"",
            "\"header:X-User\", trusted_proxies: 10.0.0.1",
        ),
    );
    warns(&text, says, ("header:X-User", "api_key:X-User"));
}

#[test]
fn plans_without_a_trusted_proxy() {
    let text = format!("{GATEWAY}{RULE}identity: {{ plan: \"header:X-Plan\" }}\n");
    warns(
        &text,
        "identity.plan: a plan in a header is believed from trusted proxies only",
        ("identity: {", "identity: { trusted_proxies: 10.0.0.1,"),
    );
}

#[test]
fn headers_that_are_dropped() {
    let says = "the gateway drops headers with other characters than letters, digits and hyphens";
    for rest in [
        "identity: { client: \"header:X_User\" }\n",
        "identity: { plan: \"header:X_Plan\" }\n",
        "identity: { client: \"header:X.User\" }\n",
    ] {
        let text = format!("{GATEWAY}{RULE}{rest}");
        let odd = if rest.contains("X_") { "X_" } else { "X." };
        warns(&text, says, (odd, "X-"));
        warns(&text, says, ("gateway: {", "gateway: { underscores: pass,"));
    }
    let rule =
        "rules: [{ id: a, match: { headers: { X_Region: eu } }, per: [ip], limit: \"10/s\" }]\n";
    warns(&format!("{GATEWAY}{rule}"), says, ("X_Region", "X-Region"));
    let rule = "rules: [{ id: a, per: [\"header:X_Region\"], limit: \"10/s\" }]\n";
    warns(&format!("{GATEWAY}{rule}"), says, ("X_Region", "X-Region"));
    warns(
        &format!("{GATEWAY}{rule}"),
        says,
        (GATEWAY, "service: {}\n"),
    );
}

#[test]
fn every_client_is_trusted() {
    let text = format!("{GATEWAY}{RULE}identity: {{ trusted_proxies: [10.0.0.0/8, 0.0.0.0/0] }}\n");
    warns(
        &text,
        "identity.trusted_proxies[1]: this trusts all clients",
        ("0.0.0.0/0", "10.1.0.0/16"),
    );
}

#[test]
fn a_source_of_keys_without_keys() {
    let text = format!("{GATEWAY}{RULE}identity: {{ client: [bearer, ip] }}\n");
    let client = format!(
        "clients: [{{ id: a, api_key_sha256: \"{}\" }}]\nidentity:",
        "ab".repeat(32)
    );
    warns(
        &text,
        "none has one, so every key is unknown",
        ("identity:", &client),
    );
}

#[test]
fn a_key_without_a_source() {
    let text = format!(
        "{GATEWAY}{RULE}clients: [{{ id: a, api_key_sha256: \"{}\" }}]\n",
        "ab".repeat(32)
    );
    warns(
        &text,
        "identity.client has no source of keys, so no request is from this client",
        ("clients:", "identity: { client: bearer }\nclients:"),
    );
}

#[test]
fn a_password_sent_without_tls() {
    let text = format!("{GATEWAY}{RULE}store: {{ redis: \"redis://:${{PW}}@redis.internal\" }}\n");
    let says = "the password is sent to another machine without TLS";
    warns(&text, says, ("redis://", "rediss://"));
    warns(&text, says, ("redis.internal", "127.0.0.1"));
    warns(&text, says, (":${PW}@", ""));
}

#[test]
fn a_database_without_verified_tls() {
    let text = |settings: &str| {
        format!(
            "{GATEWAY}{RULE}rules_from: file\ndatabase: {{ url: \"postgres://u:${{PW}}@db.internal/x{settings}\" }}\n"
        )
    };
    for (settings, says) in [
        (
            "?sslmode=disable",
            "database.url: the connection to the database is not encrypted",
        ),
        ("?sslmode=prefer", "encrypted only if the server offers it"),
        (
            "?sslmode=require",
            "the certificate of the database is not verified",
        ),
        ("?sslmode=verify-ca", "may be for any name"),
        ("?sslmode=require&sslrootcert=ca.pem", "may be for any name"),
    ] {
        warns(&text(settings), says, (settings, ""));
        warns(&text(settings), says, ("db.internal", "127.0.0.1"));
        warns(
            &text(settings),
            says,
            (settings, "?sslmode=verify-full&sslrootcert=ca.pem"),
        );
    }
    let error = parse(&text("?sslmode=verify_full"), &|_| Some("pw".to_owned())).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("there is no such sslmode") && error.contains("verify-full"),
        "{error}"
    );
}

#[test]
fn a_bucket_of_all_clients_without_a_name() {
    let text = format!(
        "{GATEWAY}identity: {{ client: [\"header:X-User-Id\"], trusted_proxies: 10.0.0.0/8 }}\n\
         rules: [{{ id: a, per: [client], limit: \"10/s\" }}]\n"
    );
    let says = "rules[0].per: all requests of clients without a name share one bucket";
    for better in [
        ("User-Id\"]", "User-Id\", ip]"),
        ("per: [client]", "per: [client, ip]"),
        ("per: [client]", "per: [ip]"),
        ("per: [", "match: { headers: { X-User-Id: \"*\" } }, per: ["),
        ("limit: \"10/s\"", "limit: \"10/s\", mode: off"),
    ] {
        warns(&text, says, better);
    }
    // Another header, or a key that may be unknown, is no name.
    for other in [
        text.replace("per: [", "match: { headers: { X-Other: \"*\" } }, per: ["),
        text.replace("header:X-User-Id", "api_key:X-Key")
            .replace("per: [", "match: { headers: { X-Key: \"*\" } }, per: ["),
    ] {
        assert!(warnings(&other).contains(says), "{other}");
    }
}

#[test]
fn a_bucket_of_all_requests_without_a_header() {
    let text = format!(
        "{GATEWAY}rules: [{{ id: a, per: [\"header:X-Tenant\", route], limit: \"10/s\" }}, {{ id: b, per: [ip], limit: \"9/s\" }}]\n"
    );
    let says = "rules[0].per: all requests without the header share one bucket";
    assert!(
        warnings(&text).contains("match: { headers: { x-tenant: \"*\" } }"),
        "{}",
        warnings(&text)
    );
    warns(
        &text,
        says,
        ("per: [", "match: { headers: { X-Tenant: \"*\" } }, per: ["),
    );
    warns(
        &text,
        says,
        ("per: [", "match: { headers: { x-tenant: [a, b] } }, per: ["),
    );
    warns(&text, says, ("route]", "client]"));
    warns(&text, says, ("route]", "ip]"));
    warns(
        &text,
        says,
        ("limit: \"10/s\"", "limit: \"10/s\", mode: off"),
    );
    let text = text.replace("header:X-Tenant", "attribute:tenant");
    let says = "all requests without the attribute share one bucket";
    warns(
        &text,
        says,
        ("per: [", "match: { attributes: { tenant: \"*\" } }, per: ["),
    );
}

#[test]
fn a_secret_in_the_file() {
    let text = format!("{GATEWAY}{RULE}admin: {{ token: 0123456789abcdef0123 }}\n");
    let says = "admin.token: the token is in the file";
    warns(&text, says, ("0123456789abcdef0123", "\"${TOKEN}\""));
    let text = format!("{GATEWAY}{RULE}store: {{ redis: \"redis://:hunter2@127.0.0.1\" }}\n");
    let says = "store.redis: the password is in the file";
    warns(&text, says, ("hunter2", "${PW}"));
    let text = format!(
        "{GATEWAY}{RULE}rules_from: file\ndatabase: {{ url: \"postgres://u:hunter2@127.0.0.1/db\" }}\n"
    );
    let says = "database.url: the password is in the file";
    warns(&text, says, ("hunter2", "${PW}"));
}

#[test]
fn rules_that_are_off_cause_no_warning() {
    let text = format!(
        "{GATEWAY}rules:
  - {{ id: a, per: [ip], limit: \"10/s\" }}
  - {{ id: b, plan: gold, per: [client], limit: \"20000 per 1m sliding_log\", mode: off }}\n"
    );
    assert_eq!(warnings(&text), "");
}

#[test]
fn a_placeholder_in_another_notation() {
    let says = "this segment is taken literally";
    for (foreign, better) in [(":id", "{id}"), ("<id>", "{id}")] {
        let text = format!(
            "service: {{}}\nrules:\n- id: a\n  per: [ip]\n  limit: 10/s\n  match:\n    path: /v1/users/{foreign}\n"
        );
        warns(&text, says, (foreign, better));
    }
    assert!(!warnings(&format!("service: {{}}\n{RULE}")).contains(says));
}

#[test]
fn plans_without_a_rule_for_all_others() {
    let text = format!(
        "{GATEWAY}clients: [{{ id: x, plan: gold }}]\nrules: [{{ id: a, plan: gold, per: [client], limit: \"1/s\" }}]\n"
    );
    let says = "rules[0].plan: the rules of this id are for plans only: clients without one of them are not limited by it";
    let fallback = "rules: [{ id: a, per: [client], limit: \"1/s\" }, {";
    warns(&text, says, ("rules: [{", fallback));
}

#[test]
fn a_rule_that_charges_more_than_it_holds() {
    let text = format!("{GATEWAY}rules: [{{ id: a, cost: 11, per: [], limit: \"10/s\" }}]\n");
    let says = "rules[0].limit: this rule charges more for each request than its limit ever allows";
    warns(&text, says, ("cost: 11", "cost: 10"));
}
