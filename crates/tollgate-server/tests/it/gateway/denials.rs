//! Clients that keep sending on one connection after a denial: every request is decided, named, counted and logged.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_testing::wait::eventually;
use tollgate_testing::{Connection, Response, TIMEOUT};

use super::{SERVICE, reset};
use crate::kit;

const HOURLY: &str = "rules: [{ id: address, per: [ip], limit: \"1/h burst 2\" }]";
const SAME: &str = "GET /v1/charges?card=4242 HTTP/1.1\r\nHost: a\r\n\r\n";

async fn ask(client: &mut Connection, request: &str) -> Response {
    client.send(request).await;
    client.response().await.expect("a response to each request")
}

/// Sends the same request this often on one connection.
async fn ask_again(client: &mut Connection, times: usize) -> Vec<Response> {
    let mut responses = Vec::new();
    for _ in 0..times {
        responses.push(ask(client, SAME).await);
    }
    responses
}

fn statuses(responses: &[Response]) -> Vec<u16> {
    responses.iter().map(|response| response.status).collect()
}

/// Head and body, without what differs each time: the request id, the date, and how long to wait.
fn comparable(response: &Response) -> String {
    let id = response.header("x-request-id").unwrap();
    let date = response.header("date").unwrap();
    let text = format!("{}{}", response.head, response.text());
    let text = text.replace(id, "ID").replace(date, "DATE");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let mut text = lines.join("\n").replace(|c: char| c.is_ascii_digit(), "#");
    while text.contains("##") {
        text = text.replace("##", "#");
    }
    text
}

#[tokio::test]
async fn every_denial_is_answered_named_counted_and_logged() {
    let fields = "access_log: json, access_log_file: FOLDER/access.log";
    let gateway = kit::gateway(fields, HOURLY);
    let mut client = Connection::open(gateway.address).await;
    let responses = ask_again(&mut client, 12).await;
    assert_eq!(statuses(&responses)[..2], [200; 2]);
    assert_eq!(statuses(&responses)[2..], [429; 10]);
    for again in &responses[3..] {
        assert_eq!(comparable(again), comparable(&responses[2]));
    }
    let ids: HashSet<&str> = (responses.iter())
        .map(|response| response.header("x-request-id").unwrap())
        .collect();
    assert_eq!(ids.len(), 12);
    assert_eq!(gateway.upstream.hits(), 2);
    gateway
        .until_metric("tollgate_gateway_requests_total{status=\"4xx\"}", |count| {
            count == 10.0
        })
        .await;
    assert_eq!(
        gateway.count("tollgate_gateway_request_duration_seconds_count"),
        12
    );
    drop(client);
    let log = gateway.stop().read("access.log");
    let lines: Vec<Value> = (log.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 12);
    let mut logged = HashSet::new();
    for (line, response) in lines.iter().zip(&responses) {
        assert_eq!(line["status"], response.status, "{line}");
        assert_eq!(
            line["request_id"],
            response.header("x-request-id").unwrap(),
            "{line}"
        );
        assert_eq!(line["bytes"], response.body.len(), "{line}");
        logged.extend(line.as_object().unwrap().keys().cloned());
    }
    // The first denial and all others are logged with the same fields.
    for line in &lines[3..] {
        for name in &logged {
            let is_present = |line: &Value| line.get(name).is_some_and(|value| !value.is_null());
            assert_eq!(is_present(line), is_present(&lines[2]), "{name}: {line}");
        }
        for same in ["method", "path", "client", "ip", "rule"] {
            assert_eq!(line.get(same), lines[2].get(same), "{line}");
        }
    }
}

#[tokio::test]
async fn a_denied_client_is_admitted_again_and_charged_once() {
    let gateway = kit::gateway("", &format!("{HOURLY}\n{SERVICE}"));
    let mut client = Connection::open(gateway.address).await;
    for _ in 0..3 {
        let responses = ask_again(&mut client, 6).await;
        assert_eq!(statuses(&responses), [200, 200, 429, 429, 429, 429]);
        let remaining: Vec<_> = (responses.iter())
            .map(|response| response.header("x-ratelimit-remaining").unwrap())
            .collect();
        assert_eq!(remaining, ["1", "0", "0", "0", "0", "0"]);
        reset(&gateway);
    }
    let requests = gateway.upstream.requests();
    assert_eq!(requests.len(), 6);
    let targets = requests.iter().map(|request| &request.uri);
    assert!(
        targets.clone().all(|uri| *uri == "/v1/charges?card=4242"),
        "{requests:?}"
    );
}

#[tokio::test]
async fn clients_on_one_connection_are_told_apart() {
    let rules = "identity: { trusted_proxies: [127.0.0.1], client: [\"header:X-User\", ip] }
rules: [{ id: client, per: [client], limit: \"1/h burst 1\" }, { id: odd, match: { path: /odd }, per: [], limit: \"1/h burst 1\" }]";
    let gateway = kit::gateway("", rules);
    let mut connection = Connection::open(gateway.address).await;
    let request_of = |user: &str, path: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n")
    };
    for (user, path, status) in [
        ("ann", "/", 200),
        ("ann", "/", 429),
        ("ann", "/", 429),
        ("ann", "/", 429),
        ("bob", "/", 200),
        ("ann", "/", 429),
        ("bob", "/", 429),
        ("bob", "/", 429),
        ("ann", "/", 429),
        ("eve", "/odd", 200),
        ("dan", "/odd", 429),
        ("dan", "/odd", 429),
        ("dan", "/odd", 429),
        ("dan", "/", 200),
    ] {
        let response = ask(&mut connection, &request_of(user, path)).await;
        assert_eq!(response.status, status, "{user} {path}: {response:?}");
    }
}

#[tokio::test]
async fn pipelined_denials_are_answered_in_order() {
    let gateway = kit::gateway("", HOURLY);
    let mut client = Connection::open(gateway.address).await;
    assert_eq!(statuses(&ask_again(&mut client, 5).await)[2..], [429; 3]);
    let last = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let other = "GET /other HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = [SAME, SAME, other, SAME, SAME, SAME, last].concat();
    client.send(all).await;
    assert_eq!(statuses(&client.responses().await), [429; 7]);
    // Also if a head arrives in pieces.
    let mut client = Connection::open(gateway.address).await;
    client.stream.set_nodelay(true).unwrap();
    assert_eq!(statuses(&ask_again(&mut client, 4).await), [429; 4]);
    for nth in 1..5 {
        let (one, other) = SAME.split_at(nth * 7);
        client.send(one).await;
        // Long enough for the gateway to read the first piece alone.
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(ask(&mut client, other).await.status, 429);
    }
}

#[tokio::test]
async fn a_thousand_pipelined_denials_are_answered_and_counted() {
    let gateway = kit::gateway("", HOURLY);
    let mut client = Connection::open(gateway.address).await;
    assert_eq!(statuses(&ask_again(&mut client, 5).await)[2..], [429; 3]);
    let (mut reader, mut writer) = client.stream.split();
    let last = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let all = SAME.repeat(1_000) + last;
    let mut received = Vec::new();
    let reading = tokio::time::timeout(TIMEOUT, reader.read_to_end(&mut received));
    let (sent, read) = tokio::join!(writer.write_all(all.as_bytes()), reading);
    sent.unwrap();
    read.expect("the connection ends in time").unwrap();
    assert_eq!(statuses(&Response::parse_all(&received)), [429; 1_001]);
    gateway
        .until_metric("tollgate_gateway_requests_total{status=\"4xx\"}", |count| {
            count == 1_004.0
        })
        .await;
}

#[tokio::test]
async fn every_denial_has_the_configured_body() {
    let own =
        format!("{HOURLY}\nanswers: {{ denied: {{ body: \"come back in {{retry_after}} s\" }} }}");
    let gateway = kit::gateway("", &own);
    let mut client = Connection::open(gateway.address).await;
    let responses = ask_again(&mut client, 8).await;
    assert_eq!(statuses(&responses)[2..], [429; 6]);
    for response in &responses[2..] {
        let body = response.text();
        assert!(body.starts_with("come back in "), "{body}");
    }
}

#[tokio::test]
async fn new_rules_apply_to_open_connections_at_once() {
    let gateway = kit::gateway("", HOURLY);
    let mut client = Connection::open(gateway.address).await;
    assert_eq!(statuses(&ask_again(&mut client, 6).await)[2..], [429; 4]);
    let generation = gateway.count("tollgate_rules_generation");
    let config = gateway.program.read("tollgate.yaml");
    let config = config.replace("burst 2", "burst 4");
    gateway.program.write("tollgate.yaml", &config);
    gateway.signal("HUP");
    eventually("the new rules", async || {
        gateway.count("tollgate_rules_generation") > generation
    })
    .await;
    let responses = ask_again(&mut client, 5).await;
    assert_eq!(statuses(&responses), [200, 200, 429, 429, 429]);
    assert_eq!(responses[4].header("x-ratelimit-limit"), Some("4"));
}

#[tokio::test]
async fn a_request_id_of_a_trusted_proxy_is_kept() {
    let rules = format!("identity: {{ trusted_proxies: [127.0.0.1] }}\n{HOURLY}");
    let gateway = kit::gateway("", &rules);
    let mut client = Connection::open(gateway.address).await;
    let named = "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n";
    for nth in 0..6 {
        let response = ask(&mut client, named).await;
        assert_eq!(response.status, if nth < 2 { 200 } else { 429 });
        assert_eq!(response.header("x-request-id"), Some("mine"));
    }
}

/// A full queue denies; when it has room, the request waits in it.
#[tokio::test]
async fn a_denied_client_waits_in_a_queue_once_it_has_room() {
    let rules = "rules: [{ id: even, per: [ip], limit: { algorithm: leaky_bucket, rate: 20/s, queue: 1 } }]";
    let gateway = kit::gateway("", rules);
    let mut client = Connection::open(gateway.address).await;
    let (mut passed, mut denied_in_a_row, mut longest) = (0, 0, 0);
    let began = Instant::now();
    // Others fill the queue, so that this connection is denied again and again, and admitted in between.
    while passed < 5 || longest < 3 {
        assert!(began.elapsed() < TIMEOUT, "{passed} passed, {longest}");
        let others = [(); 2].map(|()| gateway.get("/"));
        let others = futures_util::future::join_all(others);
        let (responses, _) = tokio::join!(ask_again(&mut client, 4), others);
        for response in responses {
            match response.status {
                200 => (passed, denied_in_a_row) = (passed + 1, 0),
                429 => denied_in_a_row += 1,
                other => panic!("{other}"),
            }
            longest = longest.max(denied_in_a_row);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    // Never more than the rate allows, one for the beginning and one for the end.
    let hits = f64::from(u32::try_from(gateway.upstream.hits()).unwrap());
    assert!(hits <= seconds * 20.0 + 2.0, "{hits} in {seconds} s");
}

/// A client that keeps sending while the gateway shuts down gets `Connection: close`.
#[tokio::test]
async fn denied_clients_are_told_to_close_at_shutdown() {
    let mut gateway = kit::gateway("", HOURLY);
    let mut client = Connection::open(gateway.address).await;
    assert_eq!(statuses(&ask_again(&mut client, 6).await)[2..], [429; 4]);
    let deadline = Instant::now() + TIMEOUT;
    let mut sent = 0;
    let closed = loop {
        assert!(Instant::now() < deadline, "no response closes");
        let response = ask(&mut client, SAME).await;
        assert_eq!(response.status, 429);
        sent += 1;
        if sent == 3 {
            gateway.signal("TERM");
        }
        if response.header("connection") == Some("close") {
            break response;
        }
    };
    assert!(sent >= 3, "the connection was closed before the shutdown");
    assert!(closed.header("x-request-id").is_some());
    drop(client);
    assert!(gateway.running.wait_for_exit().success());
}
