//! Programs that people use as clients: curl, and Python's requests and http.client.

use std::process::{Command, Output};

use tollgate_testing::Gateway;

use crate::kit;
use crate::kit::open_metrics::{OPEN_METRICS, check_open_metrics};

/// A gateway that admits two requests of an address at once, and one more each second.
fn gateway() -> Gateway {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/s burst 2\" }]";
    kit::gateway("", rules)
}

/// What a command printed. It must have succeeded.
fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn curl(args: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60"]);
    command.args(args).output().unwrap()
}

#[test]
fn curl_sees_the_limit_and_succeeds_when_it_obeys_retry_after() {
    let gateway = gateway();
    let url = format!("http://{}/hello", gateway.address);
    let first = stdout(&curl(&["--include", &url])).to_ascii_lowercase();
    assert!(first.starts_with("http/1.1 200"), "{first}");
    assert!(first.contains("x-ratelimit-limit: 2\r\n"), "{first}");
    assert!(first.contains("x-ratelimit-remaining: 1\r\n"), "{first}");
    assert!(first.ends_with("\r\n\r\nhello"), "{first}");
    // Both versions of the protocol share the limit.
    let second = stdout(&curl(&["--include", "--http2-prior-knowledge", &url]));
    assert!(second.starts_with("HTTP/2 200"), "{second}");
    let denied = stdout(&curl(&["--include", &url])).to_ascii_lowercase();
    assert!(denied.starts_with("http/1.1 429"), "{denied}");
    assert!(denied.contains("retry-after: 1\r\n"), "{denied}");
    assert!(denied.contains("application/problem+json"), "{denied}");
    assert!(denied.contains("quota-exceeded"), "{denied}");
    let hits = gateway.upstream.hits();
    assert_eq!(hits, 2, "denied requests do not reach the upstream");
    // curl waits for as long as Retry-After says, and one retry is enough.
    let retried = curl(&["--retry", "1", "--fail", "--include", &url]);
    assert!(stdout(&retried).contains("HTTP/1.1 200"), "{retried:?}");
    assert_eq!(gateway.upstream.hits(), 3);
    gateway.stop();
}

/// The output of a script, which gets the URL as its argument.
fn python(script: &str, url: &str) -> String {
    // Debian's own, which has Debian's packages.
    let mut command = Command::new("/usr/bin/python3");
    let output = command.args(["-c", script, url]).output();
    stdout(&output.expect("python3 must be installed: `make test` sees to that"))
}

/// Each request has one retry, after no other pause than Retry-After. So all succeed only if each Retry-After was right.
const REQUESTS: &str = r#"
import sys, requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry
session = requests.Session()
session.mount("http://", HTTPAdapter(max_retries=Retry(total=1, status_forcelist=[429], respect_retry_after_header=True)))
retries = 0
for n in range(6):
    response = session.get(sys.argv[1], timeout=60)
    assert response.status_code == 200, (n, response.status_code, response.text)
    retries += len(response.raw.retries.history)
print(retries)
"#;

#[test]
fn pythons_requests_succeeds_when_it_obeys_retry_after() {
    let gateway = gateway();
    let url = format!("http://{}/hello", gateway.address);
    let retries: usize = python(REQUESTS, &url).trim().parse().unwrap();
    assert!(retries >= 2, "{retries}: it was denied and retried");
    let hits = gateway.upstream.hits();
    assert_eq!(hits, 6, "each request reached the upstream once");
    gateway.stop();
}

/// Six connections, as a browser has, with GET, POST and denied requests in turn on each.
const KEEP_ALIVE: &str = r#"
import sys, http.client
from urllib.parse import urlparse
url = urlparse(sys.argv[1])
connections = [http.client.HTTPConnection(url.hostname, url.port, timeout=60) for _ in range(6)]
for connection in connections:
    connection.connect()
sockets = [connection.sock for connection in connections]
statuses = {}
for n in range(120):
    connection = connections[n % 6]
    if n % 3 == 0:
        connection.request("POST", url.path, body=b"x" * 2000)
    else:
        connection.request("GET", url.path)
    response = connection.getresponse()
    response.read()
    statuses[response.status] = statuses.get(response.status, 0) + 1
assert sockets == [connection.sock for connection in connections], "a connection was closed"
print(statuses.get(200, 0), statuses.get(429, 0))
"#;

#[test]
fn denials_do_not_close_the_connections_of_a_client() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 50\" }]";
    let gateway = kit::gateway("", rules);
    let url = format!("http://{}/echo", gateway.address);
    assert_eq!(python(KEEP_ALIVE, &url).trim(), "50 70");
    assert_eq!(gateway.upstream.hits(), 50);
    gateway.stop();
}

/// Clients of the gateway and of the service.
#[test]
fn all_listeners_share_limits_and_one_page_of_metrics() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 2\" }]";
    let gateway = kit::gateway("", &format!("service: {{ listen: 127.0.0.1:0 }}\n{rules}"));
    for status in [200, 200, 429] {
        let response = gateway.running.get("gateway", "/hello", &[]);
        assert_eq!(response.status, status);
    }
    // As Traefik does.
    let forwarded = [
        "x-forwarded-method: GET",
        "x-forwarded-uri: /hello",
        "x-forwarded-host: api.example.com",
    ];
    let response = (gateway.running).get("service", "/v1/forward-auth", &forwarded);
    assert_eq!(response.status, 429, "listeners share limits");
    let page = gateway.running.get("admin", "/metrics", &[OPEN_METRICS]);
    let page = page.text();
    let samples = check_open_metrics(&page);
    for (name, value) in [
        ("tollgate_gateway_requests_total{status=\"2xx\"}", 2.0),
        ("tollgate_gateway_requests_total{status=\"4xx\"}", 1.0),
        (
            "tollgate_upstream_requests_total{upstream=\"/\",status=\"2xx\"}",
            2.0,
        ),
        (
            "tollgate_service_requests_total{endpoint=\"forward_auth\",outcome=\"denied\"}",
            1.0,
        ),
        (
            "tollgate_decisions_total{rule=\"address\",outcome=\"allowed\"}",
            2.0,
        ),
        (
            "tollgate_decisions_total{rule=\"address\",outcome=\"denied\"}",
            2.0,
        ),
    ] {
        assert_eq!(
            samples.get(name).copied(),
            Some(value),
            "{name} in:\n{page}"
        );
    }
    gateway.stop();
}
