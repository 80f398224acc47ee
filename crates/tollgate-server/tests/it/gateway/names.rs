//! Names by which rules and upstreams know a request: hosts, methods and headers. No other form of them evades a rule or misleads an
//! upstream.

use http::HeaderValue;
use tollgate_testing::gateway::PLENTY;
use tollgate_testing::{Gateway, http2};

use crate::kit;

/// The statuses of a request that is sent twice: on a connection that stays open, which takes the fast path, and with
/// `Connection: close`.
async fn statuses(gateway: &Gateway, first_line: &str, lines: &str) -> [u16; 2] {
    let kept_open = format!(
        "{first_line} HTTP/1.1\r\n{lines}\r\nGET /end HTTP/1.1\r\nHost: end\r\nConnection: close\r\n\r\n"
    );
    let closed = format!("{first_line} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n");
    let kept_open = gateway.exchange(kept_open).await;
    let closed = gateway.exchange(closed).await;
    [kept_open[0].status, closed[0].status]
}

/// The header names of each request for this path that reached the upstream.
fn forwarded_names(gateway: &Gateway, path: &str) -> Vec<Vec<String>> {
    let requests = gateway.upstream.requests().into_iter();
    requests
        .filter(|request| request.uri.path() == path)
        .map(|request| request.headers.keys().map(ToString::to_string).collect())
        .collect()
}

const ODD: &str = "Host: a\r\nX-Api-Key: 1\r\nX_Api_Key: 2\r\nX_Real_IP: 203.0.113.9\r\n\
    X.Api.Key: 3\r\nX!Api~Key: 4\r\n\
    X-HTTP-Method-Override: DELETE\r\nX-Original-URL: /admin\r\nX-Rewrite-URL: /admin\r\n";

#[tokio::test]
async fn headers_with_underscores_are_dropped_passed_or_refused() {
    for (fields, status, has_odd_names) in [
        ("", 200, false),
        ("underscores: drop", 200, false),
        ("underscores: pass", 200, true),
        ("underscores: reject", 400, false),
    ] {
        let gateway = kit::gateway(fields, PLENTY);
        let sent = statuses(&gateway, "GET /a", ODD).await;
        assert_eq!(sent, [status; 2], "{fields}");
        let forwarded = forwarded_names(&gateway, "/a");
        let count = if status == 200 { 2 } else { 0 };
        assert_eq!(forwarded.len(), count, "{fields}: {forwarded:?}");
        for names in forwarded {
            assert!(names.contains(&"x-api-key".to_owned()), "{names:?}");
            for odd in ["x_api_key", "x_real_ip", "x.api.key", "x!api~key"] {
                let is_there = names.iter().any(|name| name == odd);
                assert_eq!(is_there, has_odd_names, "{fields}: {names:?}");
            }
        }
        gateway.stop();
    }
}

#[tokio::test]
async fn override_headers_pass_or_are_dropped() {
    for (fields, is_there) in [("", true), ("override_headers: drop", false)] {
        let gateway = kit::gateway(fields, PLENTY);
        assert_eq!(statuses(&gateway, "GET /a", ODD).await, [200, 200]);
        let forwarded = forwarded_names(&gateway, "/a");
        assert_eq!(forwarded.len(), 2, "{fields}: {forwarded:?}");
        for names in forwarded {
            for odd in ["x-http-method-override", "x-original-url", "x-rewrite-url"] {
                let is_forwarded = names.iter().any(|name| name == odd);
                assert_eq!(is_forwarded, is_there, "{fields}: {names:?}");
            }
        }
        gateway.stop();
    }
}

/// Each rule admits two requests.
const RULES: &str = "rules:
  - { id: host, match: { host: lim.example.com }, per: [], limit: \"1/h burst 2\" }
  - { id: v6, match: { host: \"[2001:db8::1]\" }, per: [], limit: \"1/h burst 2\" }
  - { id: region, match: { headers: { X-Region: eu } }, per: [], limit: \"1/h burst 2\" }
  - { id: posts, match: { methods: [POST], path: /posts }, per: [], limit: \"1/h burst 2\" }
  - { id: tenant, per: [\"header:X-Tenant\"], limit: \"1/h burst 1000\" }";

#[tokio::test]
async fn no_other_form_of_a_host_evades_its_rule() {
    let gateway = kit::gateway("", RULES);
    for (host, expected) in [
        ("lim.example.com", [200, 200]),
        ("lim.example.com", [429, 429]),
        ("LIM.Example.com", [429, 429]),
        ("lim.example.com.", [429, 429]),
        ("lim.example.com:8080", [429, 429]),
        ("lim.example.com.:8080", [429, 429]),
        ("other.example.com", [200, 200]),
        ("[2001:db8::1]", [200, 200]),
        ("[2001:db8::1]:80", [429, 429]),
        ("[2001:0DB8:0::0:1]", [429, 429]),
        ("lim.example.com:x", [400, 400]),
        ("lim.example.com:", [400, 400]),
        ("lim.example.com:80:80", [400, 400]),
        ("lim.example.com:65536", [400, 400]),
        ("lim.example.com..", [400, 400]),
        (".lim.example.com", [400, 400]),
        ("[lim.example.com]", [400, 400]),
        ("user@lim.example.com", [400, 400]),
        ("[::1", [400, 400]),
    ] {
        let sent = statuses(&gateway, "GET /", &format!("Host: {host}\r\n")).await;
        assert_eq!(sent, expected, "{host}");
        // The same in the request line.
        let (first_line, line) = (format!("GET http://{host}/"), format!("Host: {host}\r\n"));
        let absolute = statuses(&gateway, &first_line, &line).await;
        match expected {
            [200, _] => {}
            expected => assert_eq!(absolute, expected, "http://{host}/"),
        }
    }
    gateway.stop();
}

#[tokio::test]
async fn a_header_in_lines_or_a_list_does_not_evade_its_rule() {
    let gateway = kit::gateway("", RULES);
    let lines = |regions: &[&str]| -> String {
        let regions = regions.iter();
        let lines = regions.map(|region| format!("X-Region: {region}\r\n"));
        format!("Host: a\r\n{}", lines.collect::<String>())
    };
    assert_eq!(
        statuses(&gateway, "GET /", &lines(&["eu"])).await,
        [200, 200]
    );
    for regions in [
        &["eu"][..],
        &["eu", "us"],
        &["us", "eu"],
        &["eu", "eu"],
        &["", "eu"],
        &["1", "2", "3", "4", "5", "6", "7", "8", "eu", "9"],
        &["us,eu"],
        &["eu, us"],
        &["us", ",\teu\t,x"],
        &["1,2,3,4,5,6,7,8,eu,9"],
    ] {
        let sent = statuses(&gateway, "GET /", &lines(regions)).await;
        assert_eq!(sent, [429, 429], "{regions:?}");
    }
    assert_eq!(
        statuses(&gateway, "GET /", &lines(&["us"])).await,
        [200, 200]
    );
    assert_eq!(
        statuses(&gateway, "GET /", &lines(&["us, u"])).await,
        [200, 200]
    );
    let tenants = "Host: a\r\nX-Tenant: a\r\nX-Tenant: b\r\n";
    assert_eq!(statuses(&gateway, "GET /", tenants).await, [400, 400]);
    gateway.stop();
}

#[tokio::test]
async fn spaces_around_a_header_in_http_2_do_not_evade_its_rule() {
    let gateway = kit::gateway("", RULES);
    let mut sender = http2::connect(gateway.address).await;
    for (region, expected) in [
        ("eu", 200),
        (" eu", 200),
        ("eu ", 429),
        ("\teu", 429),
        (" \t eu\t ", 429),
        ("eu us", 200),
    ] {
        let mut request = http2::get("/");
        let region = HeaderValue::from_static(region);
        request.headers_mut().insert("x-region", region.clone());
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), expected, "{region:?}");
    }
    gateway.stop();
}

#[tokio::test]
async fn methods_are_compared_without_case() {
    let gateway = kit::gateway("", RULES);
    let host = "Host: a\r\n";
    assert_eq!(statuses(&gateway, "post /posts", host).await, [200, 200]);
    for method in ["POST", "post", "Post"] {
        let sent = statuses(&gateway, &format!("{method} /posts"), host).await;
        assert_eq!(sent, [429, 429], "{method}");
    }
    for method in ["TRACE", "trace", "Trace", "connect", "Connect"] {
        let sent = statuses(&gateway, &format!("{method} /"), host).await;
        assert_eq!(sent, [405, 405], "{method}");
    }
    gateway.stop();
}
