//! Request ids, and the access log.

use serde_json::Value;
use tollgate_testing::gateway::PLENTY;
use tollgate_testing::wait::eventually;
use tollgate_testing::{Connection, Gateway};

use crate::kit;

const TRUSTED: &str = "identity: { trusted_proxies: [127.0.0.1], client: [\"header:X-User\", ip] }";

/// A GET request with these header lines.
fn get(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n")
}

/// The request id of the response to a request with this id, which must be the one that the upstream received.
async fn request_id(gateway: &Gateway, given: &str) -> String {
    let request = get("/", &format!("X-Request-Id: {given}\r\n"));
    let responses = gateway.exchange(request).await;
    let id = responses[0].header("x-request-id").unwrap();
    let received = gateway.upstream.requests().pop().unwrap();
    let received: Vec<_> = received.headers.get_all("x-request-id").iter().collect();
    assert_eq!(received, [id]);
    id.to_owned()
}

#[tokio::test]
async fn only_plain_request_ids_of_trusted_proxies_are_kept() {
    let gateway = kit::gateway("", PLENTY);
    let id = request_id(&gateway, "mine").await;
    assert_eq!(id.len(), 32);
    gateway.stop();

    let gateway = kit::gateway("", &format!("{TRUSTED}\n{PLENTY}"));
    for (given, is_kept) in [
        ("theirs-1.2_3", true),
        ("a b", false),
        ("<script>", false),
        (&*"x".repeat(65), false),
    ] {
        let id = request_id(&gateway, given).await;
        assert_eq!(id == given, is_kept, "{id}");
    }
    gateway.stop();
}

/// Sends a few requests, good and malicious, and returns the lines of the log.
async fn logged(format: &str) -> Vec<String> {
    let fields = format!("access_log: {format}, access_log_file: FOLDER/access.log");
    let rules =
        format!("{TRUSTED}\nrules: [{{ id: user, per: [client], limit: \"1/h burst 2\" }}]");
    let gateway = kit::gateway(&fields, &rules);
    let user = "X-User: bob\r\nX-Request-Id: one\r\nX-Forwarded-For: 203.0.113.7\r\n";
    for _ in 0..3 {
        gateway.exchange(get("/v1/charges?card=4242", user)).await;
    }
    let malicious = "X-User: eve\" 200 \\n{\\\"status\\\":200}\r\nX-Request-Id: a\"b\r\n";
    gateway.exchange(get("/a%0Ab%1B%5B2J\"c", malicious)).await;
    gateway.exchange("GET / HTTP/1.1\r\n\r\n\0").await;
    let mut aborted = Connection::open(gateway.address).await;
    aborted
        .send("GET /wait/600000 HTTP/1.1\r\nHost: a\r\nX-User: carol\r\n\r\n")
        .await;
    eventually("the request at the upstream", async || {
        gateway.upstream.in_flight() == 1
    })
    .await;
    drop(aborted);
    gateway
        .until_metric(
            "tollgate_gateway_requests_total{status=\"none\"}",
            |count| count == 1.0,
        )
        .await;
    let log = gateway.stop().read("access.log");
    log.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_json_log_has_the_client_and_the_result_of_each_request() {
    let lines: Vec<Value> = (logged("json").await.iter())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 6, "{lines:#?}");
    for line in &lines[..3] {
        assert_eq!(line["client"], "x-user:bob");
        assert_eq!(line["ip"], "203.0.113.7");
        assert_eq!(line["path"], "/v1/charges");
        assert_eq!(
            (&line["method"], &line["protocol"]),
            (&"GET".into(), &"HTTP/1.1".into())
        );
        assert_eq!(line["request_id"], "one");
        assert!(line["seconds"].as_f64().unwrap() > 0.0);
        assert!(!line.to_string().contains("4242"));
    }
    let figures = |nth: usize| {
        (
            lines[nth]["status"].as_u64(),
            lines[nth]["remaining"].as_u64(),
            lines[nth]["denied_by"].as_str(),
        )
    };
    assert_eq!(figures(0), (Some(200), Some(1), None));
    assert_eq!(figures(1), (Some(200), Some(0), None));
    assert_eq!(figures(2), (Some(429), Some(0), Some("user")));
    assert_eq!(lines[0]["bytes"], 5);
    assert!(lines[0].get("broken_off").is_none());
    assert_ne!(lines[3]["request_id"], "a\"b");
    assert_eq!(
        (&lines[4]["status"], &lines[4]["client"]),
        (&400.into(), &"ip:127.0.0.1".into())
    );
    assert_eq!(
        (&lines[5]["status"], &lines[5]["broken_off"]),
        (&499.into(), &true.into())
    );
    assert_eq!(lines[5]["client"], "x-user:carol");
}

#[tokio::test]
async fn the_text_log_has_one_line_per_request_and_none_injected() {
    let lines = logged("text").await;
    assert_eq!(lines.len(), 6, "{lines:#?}");
    let denied = &lines[2];
    assert!(
        denied.contains(" 203.0.113.7 \"x-user:bob\" \"GET /v1/charges HTTP/1.1\" 429 "),
        "{denied}"
    );
    assert!(
        denied.ends_with(" one denied_by=user remaining=0 source=store"),
        "{denied}"
    );
    let starts_with_time = |line: &String| line.starts_with("20") && line.as_bytes()[10] == b'T';
    assert!(lines.iter().all(starts_with_time), "{lines:#?}");
    let has_no_control = |line: &String| !line.contains(char::is_control);
    assert!(lines.iter().all(has_no_control), "{lines:#?}");
}
