//! WebSockets: how they end, and what the access log records of them.

use std::time::{Duration, Instant};

use http::{Request, header};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tollgate_testing::upstream::{Reply, reply};
use tollgate_testing::wait::until_value;
use tollgate_testing::{Connection, Response, Running, TIMEOUT, Upstream};

use crate::kit;

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n";

const IDLE: Duration = Duration::from_secs(2);

/// Agrees to an upgrade, and echoes.
async fn echo(request: Request<Incoming>) -> Reply {
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(request).await.unwrap();
        let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded));
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.shutdown().await;
    });
    let mut reply = reply(101, "");
    let headers = reply.headers_mut();
    headers.insert(header::CONNECTION, "Upgrade".parse().unwrap());
    headers.insert(header::UPGRADE, "websocket".parse().unwrap());
    reply
}

/// A gateway with an access log. `fields` are those of the section `gateway`, `upstream_fields` those of the upstream.
fn serve(upstream: &Upstream, fields: &str, upstream_fields: &str) -> Running {
    kit::serve(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  upstreams: [{{ to: {:?}, {upstream_fields} }}]
  access_log: json
  access_log_file: access.log
  {fields}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        upstream.url()
    ))
}

async fn upgrade(connection: &mut Connection) -> Response {
    connection.send(UPGRADE).await;
    connection.response().await.unwrap()
}

/// Opens a WebSocket through the gateway.
async fn open(running: &Running) -> Connection {
    let mut connection = Connection::open(running.address("gateway")).await;
    assert_eq!(upgrade(&mut connection).await.status, 101);
    connection
}

/// Sends bytes, and waits until they come back.
async fn exchange(connection: &mut Connection, text: &str) {
    connection.send(text).await;
    assert_eq!(connection.read_until(text).await, text);
}

/// Checks that the other side has closed the connection, without a reset.
async fn assert_closed(connection: &mut Connection) {
    let mut byte = [0];
    let read = tokio::time::timeout(TIMEOUT, connection.stream.read(&mut byte)).await;
    assert_eq!(read.expect("the connection ends in time").unwrap(), 0);
}

/// The only line of the access log, once it is there.
fn line(running: &Running) -> Value {
    let text = until_value(
        "a line",
        || running.program.read("access.log"),
        |text| text.ends_with('\n'),
    );
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

const CLOSED_IDLE: &str = "tollgate_upstream_tunnels_idle_total";

#[tokio::test]
async fn an_idle_websocket_is_closed_counted_and_logged() {
    let upstream = Upstream::answering(echo);
    let running = serve(&upstream, "", "tunnel_timeout: 2s");
    let mut socket = open(&running).await;
    let began = Instant::now();
    // It stays open for as long as bytes are sent.
    let mut bytes = 0;
    while began.elapsed() < IDLE * 2 {
        exchange(&mut socket, "0123456789").await;
        bytes += 10;
        tokio::time::sleep(IDLE / 20).await;
    }
    assert_eq!(running.count(CLOSED_IDLE), 0);
    assert_closed(&mut socket).await;
    running.until_metric(CLOSED_IDLE, |count| count == 1.0);
    let line = line(&running);
    assert_eq!(
        (&line["status"], &line["tunnel"]),
        (&json!(101), &json!("idle"))
    );
    assert_eq!(
        (&line["path"], &line["bytes"]),
        (&json!("/ws"), &json!(bytes))
    );
    assert!(line["seconds"].as_f64().unwrap() > (IDLE * 2).as_secs_f64());
    assert!(line.get("broken_off").is_none());
}

#[tokio::test]
async fn a_websocket_is_logged_when_it_ends() {
    let upstream = Upstream::answering(echo);
    let running = serve(&upstream, "", "tunnel_timeout: none");
    let mut socket = open(&running).await;
    exchange(&mut socket, "hello").await;
    assert_eq!(running.program.read("access.log"), "", "not before it ends");
    socket.stream.shutdown().await.unwrap();
    assert_closed(&mut socket).await;
    let line = line(&running);
    assert_eq!(
        (&line["status"], &line["tunnel"]),
        (&json!(101), &json!("ended"))
    );
    assert_eq!(line["bytes"], 5);
    assert_eq!(running.count(CLOSED_IDLE), 0);
}

#[tokio::test]
async fn a_websocket_that_is_open_at_shutdown_is_logged_as_cut() {
    let upstream = Upstream::answering(echo);
    let mut running = serve(&upstream, "drain: 100ms", "");
    let mut socket = open(&running).await;
    exchange(&mut socket, "hello").await;
    running.stop();
    let line = line(&running);
    assert_eq!(
        (&line["tunnel"], &line["bytes"]),
        (&json!("cut"), &json!(5))
    );
}

#[tokio::test]
async fn a_denied_websocket_gets_429_and_never_reaches_its_server() {
    let rules = "rules: [{ id: sockets, per: [ip], limit: \"1/h burst 1\" }]";
    let gateway = kit::gateway_before(Upstream::answering(echo), "", rules);
    let mut admitted = open(&gateway).await;
    let mut denied = Connection::open(gateway.address).await;
    // Again and again on one connection, which stays open.
    for nth in 0..4 {
        let response = upgrade(&mut denied).await;
        assert_eq!(response.status, 429, "{nth}: {response:?}");
        for (name, begin) in [
            ("content-type", "application/problem+json"),
            ("retry-after", "3"),
            ("x-ratelimit-limit", "1"),
            ("x-ratelimit-remaining", "0"),
            ("ratelimit-policy", "\"sockets\";q=1"),
            ("ratelimit", "\"sockets\";r=0"),
            ("x-request-id", ""),
        ] {
            let value = response.header(name);
            assert!(
                value.is_some_and(|value| value.starts_with(begin)),
                "{name}: {response:?}"
            );
        }
        assert_eq!(response.header("upgrade"), None, "{response:?}");
        let problem = response.json();
        assert_eq!(problem["violated-policies"][0], "sockets", "{problem}");
    }
    assert_eq!(
        gateway.upstream.connections(),
        1,
        "that of the admitted one"
    );
    exchange(&mut admitted, "and it still works").await;
}
