//! Forward-auth: requests of Traefik, Caddy and nginx about the requests of their clients.

use serde_json::json;

use super::{RULES, standard_service, traefik};
use crate::kit;
use tollgate_testing::servers::RedisServer;

#[test]
fn traefik_gets_headers_to_copy_or_the_denial_to_return() {
    let service = standard_service();
    let get = |client: &str, uri: &str| traefik(&service, client, "GET", uri, &[]);
    let responses: Vec<_> = (0..4)
        .map(|_| get("203.0.113.7", "/v1/users?x=1"))
        .collect();
    let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(responses[0].header("x-ratelimit-remaining"), Some("2"));
    assert_eq!(
        responses[3].header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(responses[3].json()["violated-policies"], json!(["client"]));
    assert!(responses[3].header("retry-after").is_some());
    assert_eq!(
        get("203.0.113.8", "/").status,
        200,
        "another client has its own limit"
    );
    assert_eq!(
        get("203.0.113.8", "/a%2fb").status,
        400,
        "an odd path is refused"
    );
    // Elements to the left are claims of the client.
    assert_eq!(get("203.0.113.8, 203.0.113.7", "/").status, 429);
}

/// The gateway in front passes them on to the API like every other request.
#[test]
fn preflights_of_other_gateways_are_limited() {
    let service = standard_service();
    let preflight = [
        "Origin: https://example.com",
        "Access-Control-Request-Method: POST",
    ];
    let statuses =
        [0; 4].map(|_| traefik(&service, "203.0.113.7", "OPTIONS", "/v1/users", &preflight).status);
    assert_eq!(statuses, [200, 200, 200, 429]);
}

/// The gateway in front forwards the path as it came, so `paths.forward` does not apply.
#[test]
fn paths_are_judged_as_they_came_where_others_forward() {
    let service = kit::service("", &format!("paths: {{ forward: normalised }}\n{RULES}"));
    for path in ["/x/../v1/charges", "//x/v1/charges", "/v1//charges"] {
        let response = traefik(&service, "203.0.113.7", "POST", path, &[]);
        assert_eq!(response.status, 400, "{path}");
        let direct = json!({ "client": "a", "method": "POST", "path": path });
        let described =
            json!({ "request": { "method": "POST", "path": path, "ip": "203.0.113.7" } });
        for check in [direct, described] {
            assert_eq!(service.check(&check)["status"], json!(400), "{path}");
        }
    }
}

#[test]
fn a_denied_grpc_call_is_not_answered_with_200() {
    let service = standard_service();
    let grpc = ["Content-Type: application/grpc"];
    let statuses =
        [0, 1].map(|_| traefik(&service, "203.0.113.7", "POST", "/v1/charges", &grpc).status);
    assert_eq!(statuses, [200, 429]);
}

#[test]
fn nginx_gets_403_for_denials_and_400_for_setup_mistakes() {
    let service = standard_service();
    let get = |headers: &[&str]| service.get("service", "/v1/auth-request", headers);
    let right = [
        "X-Original-Method: POST",
        "X-Original-URI: /v1/charges",
        "X-Forwarded-For: 203.0.113.7",
    ];
    assert_eq!(get(&right).status, 200);
    let denied = get(&right);
    let status = denied.header("x-tollgate-status");
    assert_eq!((denied.status, status), (403, Some("429")));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert!(denied.header("retry-after").is_some());
    let odd = get(&["X-Original-Method: GET", "X-Original-URI: /a%00b"]);
    let status = odd.header("x-tollgate-status");
    assert_eq!((odd.status, status), (403, Some("400")));
    for (headers, problem) in [
        (
            &["X-Original-Method: GET"][..],
            "the header x-original-uri is missing",
        ),
        (
            &["X-Original-URI: /"],
            "the header x-original-method is missing",
        ),
        (
            &[
                "X-Original-Method: GET",
                "X-Original-URI: /",
                "X-Original-URI: /free",
            ],
            "there are several x-original-uri headers",
        ),
    ] {
        let response = get(headers);
        assert_eq!(response.status, 400, "{headers:?}");
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with(problem), "{detail}");
    }
}

const BY_KEY: &str = "
identity: { client: [\"header:X-API-Key\", \"header:X-User-Id\", ip], trusted_proxies: [127.0.0.1] }
clients: [{ id: acme, api_key_sha256: 770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c }]
rules:
  - { id: client, per: [client], limit: \"1/h burst 9\" }
  - { id: region, match: { headers: { X-Region: eu } }, per: [], limit: \"1/h burst 9\" }
";

/// Servers behind CGI, WSGI and PHP take all of these names for the one with hyphens.
#[test]
fn no_other_spelling_of_a_header_hides_a_client() {
    let service = kit::service("", BY_KEY);
    for line in [
        "X_API_Key: good",
        "x_api-key: good",
        "X.API.Key: good",
        "X!API~Key: good",
        "X_User_Id: 42",
        "X_Region: eu",
    ] {
        let response = traefik(&service, "203.0.113.7", "GET", "/", &[line]);
        assert_eq!(response.status, 400, "{line}");
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with("servers may take the x"), "{detail}");
        let asked = ["X-Original-Method: GET", "X-Original-URI: /", line];
        let response = service.get("service", "/v1/auth-request", &asked);
        let status = response.header("x-tollgate-status");
        assert_eq!((response.status, status), (403, Some("400")), "{line}");
        let (name, value) = line.split_once(": ").unwrap();
        let check = json!({ "request": {
            "method": "GET", "path": "/", "ip": "203.0.113.7", "headers": { name: value },
        } });
        let refused = service.check(&check);
        assert_eq!(refused["status"], 400, "{line}: {refused}");
        assert_eq!(refused["reason"], "header_refused", "{line}");
    }
    for line in ["X-API-Key: good", "X_Other: 1", "X.Trace: 1", "Accept: a"] {
        let response = traefik(&service, "203.0.113.7", "GET", "/", &[line]);
        assert_eq!(response.status, 200, "{line}");
    }
}

#[test]
fn a_peer_that_is_not_trusted_cannot_name_other_clients() {
    let rules = "rules: [{ id: client, per: [client], limit: \"1/h burst 2\" }]";
    let service = kit::service("", rules);
    let statuses =
        [7, 8, 9].map(|nth| traefik(&service, &format!("203.0.113.{nth}"), "GET", "/", &[]).status);
    let expected = [200, 200, 429];
    assert_eq!(statuses, expected, "a forged address is no other client");
}

#[test]
fn queued_requests_wait_here_and_checks_report_the_delay() {
    let rules = "rules: [{ id: slow, per: [], limit: \"20/s queue 9 leaky_bucket\" }]";
    let service = kit::service("", rules);
    let delays: Vec<u64> = (0..2)
        .map(|_| service.check(&json!({}))["delay_ms"].as_u64().unwrap())
        .collect();
    assert!(delays[1] > 0, "{delays:?}");
    let response = traefik(&service, "203.0.113.7", "GET", "/", &[]);
    assert_eq!(response.status, 200);
}

#[test]
fn a_late_request_reports_the_figures_after_its_refund() {
    let redis = RedisServer::start();
    let over_redis = format!(
        "store: {{ redis: {:?}, deadline: 10s, instances: 1 }}",
        redis.url()
    );
    for store in ["", over_redis.as_str()] {
        // The second request's turn comes after the longest delay.
        let rules = format!("{store}\nrules: [{{ id: slow, per: [], limit: \"1/min queue 5\" }}]");
        let service = kit::service("", &rules);
        let get = || traefik(&service, "203.0.113.7", "GET", "/", &[]);
        assert_eq!(get().status, 200);
        for _ in 0..4 {
            let denied = get();
            assert_eq!(denied.status, 429);
            assert_eq!(denied.header("x-ratelimit-remaining"), Some("4"));
            let ratelimit = denied.header("ratelimit").unwrap();
            assert!(ratelimit.contains(";r=4;"), "{ratelimit}");
        }
    }
}
