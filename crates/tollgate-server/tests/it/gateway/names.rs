//! Names by which rules and servers know a request: hosts, methods and headers. No other form of them evades a rule or misleads a server.

use http::HeaderValue;

use crate::gateway::{Front, PLENTY, start};
use crate::gateway_two::{ask, connect};

/// The statuses of these lines, each sent twice: once the way of plain requests, and once the way of all others.
async fn statuses(front: &Front, first: &str, lines: &str) -> [u16; 2] {
    let plain = format!(
        "{first} HTTP/1.1\r\n{lines}\r\nGET /end HTTP/1.1\r\nHost: end\r\nConnection: close\r\n\r\n"
    );
    let other = format!("{first} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n");
    let plain = front.exchange(plain).await;
    let other = front.exchange(other).await;
    [plain[0].status, other[0].status]
}

/// The names of the headers that reached the service behind with the last request for this path.
fn arrived(front: &Front, path: &str) -> Vec<String> {
    let requests = front.behind.requests.lock();
    let (_, _, headers) = (requests.iter().rev())
        .find(|(_, uri, _)| uri.path() == path)
        .unwrap();
    headers.keys().map(ToString::to_string).collect()
}

const ODD: &str = "Host: a\r\nX-Api-Key: 1\r\nX_Api_Key: 2\r\nX_Real_IP: 203.0.113.9\r\n\
    X-HTTP-Method-Override: DELETE\r\nX-Original-URL: /admin\r\nX-Rewrite-URL: /admin\r\n";

#[tokio::test]
async fn headers_with_underscores_are_dropped_passed_or_refused() {
    for (fields, status, has_underscores) in [
        ("", 200, false),
        ("underscores: drop", 200, false),
        ("underscores: pass", 200, true),
        ("underscores: reject", 400, false),
    ] {
        let front = start(fields, PLENTY).await;
        for way in 0..2 {
            let path = format!("/way-{way}");
            let heard = statuses(&front, &format!("GET {path}"), ODD).await;
            assert_eq!(heard[way], status, "{fields}");
            if status != 200 {
                continue;
            }
            let names = arrived(&front, &path);
            assert!(names.contains(&"x-api-key".to_owned()), "{names:?}");
            for odd in ["x_api_key", "x_real_ip"] {
                let is_there = names.iter().any(|name| name == odd);
                assert_eq!(is_there, has_underscores, "{fields}: {names:?}");
            }
        }
        front.end().await;
    }
}

#[tokio::test]
async fn override_headers_pass_or_are_dropped() {
    for (fields, is_there) in [("", true), ("override_headers: drop", false)] {
        let front = start(fields, PLENTY).await;
        assert_eq!(statuses(&front, "GET /a", ODD).await, [200, 200]);
        let names = arrived(&front, "/a");
        for name in ["x-http-method-override", "x-original-url", "x-rewrite-url"] {
            let found = names.iter().any(|known| known == name);
            assert_eq!(found, is_there, "{fields}: {names:?}");
        }
        front.end().await;
    }
}

/// Each rule lets two of its requests pass.
const RULES: &str = "rules:
  - { id: host, match: { host: lim.example.com }, per: [], limit: \"1/h burst 2\" }
  - { id: v6, match: { host: \"[2001:db8::1]\" }, per: [], limit: \"1/h burst 2\" }
  - { id: region, match: { headers: { X-Region: eu } }, per: [], limit: \"1/h burst 2\" }
  - { id: posts, match: { methods: [POST], path: /posts }, per: [], limit: \"1/h burst 2\" }
  - { id: tenant, per: [\"header:X-Tenant\"], limit: \"1/h burst 1000\" }";

#[tokio::test]
async fn no_other_form_of_a_host_evades_its_rule() {
    let front = start("", RULES).await;
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
        let heard = statuses(&front, "GET /", &format!("Host: {host}\r\n")).await;
        assert_eq!(heard, expected, "{host}");
        // The same in the first line.
        let (first, line) = (format!("GET http://{host}/"), format!("Host: {host}\r\n"));
        let whole = statuses(&front, &first, &line).await;
        match expected {
            [200, _] => {}
            expected => assert_eq!(whole, expected, "http://{host}/"),
        }
    }
    front.end().await;
}

#[tokio::test]
async fn a_header_in_lines_or_a_list_does_not_evade_its_rule() {
    let front = start("", RULES).await;
    let lines = |regions: &[&str]| -> String {
        let regions = regions.iter();
        let lines = regions.map(|region| format!("X-Region: {region}\r\n"));
        format!("Host: a\r\n{}", lines.collect::<String>())
    };
    assert_eq!(statuses(&front, "GET /", &lines(&["eu"])).await, [200, 200]);
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
        let heard = statuses(&front, "GET /", &lines(regions)).await;
        assert_eq!(heard, [429, 429], "{regions:?}");
    }
    assert_eq!(statuses(&front, "GET /", &lines(&["us"])).await, [200, 200]);
    assert_eq!(
        statuses(&front, "GET /", &lines(&["us, u"])).await,
        [200, 200]
    );
    let tenants = "Host: a\r\nX-Tenant: a\r\nX-Tenant: b\r\n";
    assert_eq!(statuses(&front, "GET /", tenants).await, [400, 400]);
    front.end().await;
}

#[tokio::test]
async fn spaces_around_a_header_in_http_2_do_not_evade_its_rule() {
    let front = start("", RULES).await;
    let mut sender = connect(&front).await;
    for (region, expected) in [
        ("eu", 200),
        (" eu", 200),
        ("eu ", 429),
        ("\teu", 429),
        (" \t eu\t ", 429),
        ("eu us", 200),
    ] {
        let mut request = ask("/");
        let region = HeaderValue::from_static(region);
        request.headers_mut().insert("x-region", region.clone());
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), expected, "{region:?}");
    }
    front.end().await;
}

#[tokio::test]
async fn methods_are_compared_without_case() {
    let front = start("", RULES).await;
    let host = "Host: a\r\n";
    assert_eq!(statuses(&front, "post /posts", host).await, [200, 200]);
    for method in ["POST", "post", "Post"] {
        let heard = statuses(&front, &format!("{method} /posts"), host).await;
        assert_eq!(heard, [429, 429], "{method}");
    }
    for method in ["TRACE", "trace", "Trace", "connect", "Connect"] {
        let heard = statuses(&front, &format!("{method} /"), host).await;
        assert_eq!(heard, [405, 405], "{method}");
    }
    front.end().await;
}
