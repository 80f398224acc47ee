//! Clients that keep sending on one connection after a denial: every request is decided, named, counted and logged.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tollgate::Request;

use crate::gateway::{Front, Heard, PATIENCE, hear_one, heard, start, start_in};

const HOURLY: &str = "rules: [{ id: address, per: [ip], limit: \"1/h burst 2\" }]";
const SAME: &str = "GET /v1/charges?card=4242 HTTP/1.1\r\nHost: a\r\n\r\n";

pub(crate) async fn ask(stream: &mut TcpStream, said: &str) -> Heard {
    stream.write_all(said.as_bytes()).await.unwrap();
    hear_one(stream).await.unwrap()
}

/// Asks the same so often on one connection.
async fn ask_again(stream: &mut TcpStream, times: usize) -> Vec<Heard> {
    let mut all = Vec::new();
    for _ in 0..times {
        all.push(ask(stream, SAME).await);
    }
    all
}

fn statuses(heard: &[Heard]) -> Vec<u16> {
    heard.iter().map(|heard| heard.status).collect()
}

/// Head and body, without what is another one each time: the name, the date, and how long to wait.
fn said(heard: &Heard) -> String {
    let body = String::from_utf8(heard.body.clone()).unwrap();
    let id = heard.field("x-request-id").unwrap();
    let date = heard.field("date").unwrap();
    let text = format!("{}{body}", heard.head);
    let text = text.replace(id, "ID").replace(date, "DATE");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let mut said = lines.join("\n").replace(|c: char| c.is_ascii_digit(), "#");
    while said.contains("##") {
        said = said.replace("##", "#");
    }
    said
}

#[tokio::test]
async fn every_denial_is_answered_named_counted_and_logged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let fields = format!("access_log: json, access_log_file: \"{}\"", file.display());
    let front = start_in(folder, &fields, HOURLY).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    let heard = ask_again(&mut stream, 12).await;
    assert_eq!(statuses(&heard)[..2], [200; 2]);
    assert_eq!(statuses(&heard)[2..], [429; 10]);
    for again in &heard[3..] {
        assert_eq!(said(again), said(&heard[2]));
    }
    let ids: HashSet<&str> = (heard.iter())
        .map(|heard| heard.field("x-request-id").unwrap())
        .collect();
    assert_eq!(ids.len(), 12);
    assert_eq!(front.behind.count(), 2);
    front
        .until_figure("tollgate_gateway_requests_total{status=\"4xx\"}", |n| {
            n == 10
        })
        .await;
    assert_eq!(
        front.figure("tollgate_gateway_request_duration_seconds_count"),
        12
    );
    drop(stream);
    let folder = front.end().await;
    let text = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    let lines: Vec<Value> = (text.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 12);
    let mut logged = HashSet::new();
    for (line, heard) in lines.iter().zip(&heard) {
        assert_eq!(line["status"], heard.status, "{line}");
        assert_eq!(
            line["request_id"],
            heard.field("x-request-id").unwrap(),
            "{line}"
        );
        assert_eq!(line["bytes"], heard.body.len(), "{line}");
        logged.extend(line.as_object().unwrap().keys().cloned());
    }
    // What is known of the first denial is known of all others.
    for line in &lines[3..] {
        for name in &logged {
            let is_told = |line: &Value| line.get(name).is_some_and(|told| !told.is_null());
            assert_eq!(is_told(line), is_told(&lines[2]), "{name}: {line}");
        }
        for same in ["method", "path", "client", "ip", "rule"] {
            assert_eq!(line.get(same), lines[2].get(same), "{line}");
        }
    }
}

pub(crate) async fn reset(front: &Front) {
    let (policy, request) = (
        front.door.policy(),
        Request::new().ip([127, 0, 0, 1].into()),
    );
    let reset = front.door.limiter().reset_by(policy.rules(), &request);
    reset.await.unwrap();
}

#[tokio::test]
async fn a_denied_client_is_admitted_again_and_charged_once() {
    let front = start("", HOURLY).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    for _ in 0..3 {
        let heard = ask_again(&mut stream, 6).await;
        assert_eq!(statuses(&heard), [200, 200, 429, 429, 429, 429]);
        let left: Vec<_> = (heard.iter())
            .map(|heard| heard.field("x-ratelimit-remaining").unwrap())
            .collect();
        assert_eq!(left, ["1", "0", "0", "0", "0", "0"]);
        reset(&front).await;
    }
    assert_eq!(front.behind.count(), 6);
    let is_it = |uri: &http::Uri| *uri == "/v1/charges?card=4242";
    assert!((front.behind.requests.lock().iter()).all(|(_, uri, _)| is_it(uri)));
    drop(stream);
    front.end().await;
}

#[tokio::test]
async fn clients_on_one_connection_are_told_apart() {
    let rules = "identity: { trusted_proxies: [127.0.0.1], client: [\"header:X-User\", ip] }
rules: [{ id: client, per: [client], limit: \"1/h burst 1\" }, { id: odd, match: { path: /odd }, per: [], limit: \"1/h burst 1\" }]";
    let front = start("", rules).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    let of = |user: &str, path: &str| {
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
        let heard = ask(&mut stream, &of(user, path)).await;
        assert_eq!(heard.status, status, "{user} {path}: {heard:?}");
    }
    drop(stream);
    front.end().await;
}

#[tokio::test]
async fn pipelined_denials_are_answered_in_order() {
    let front = start("", HOURLY).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    assert_eq!(statuses(&ask_again(&mut stream, 5).await)[2..], [429; 3]);
    let last = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let other = "GET /other HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = [SAME, SAME, other, SAME, SAME, SAME, last].concat();
    stream.write_all(all.as_bytes()).await.unwrap();
    let heard = heard(&mut stream).await;
    assert_eq!(statuses(&heard), [429; 7]);
    drop(stream);
    // Also if a head arrives in pieces.
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    assert_eq!(statuses(&ask_again(&mut stream, 4).await), [429; 4]);
    for nth in 1..5 {
        let (one, other) = SAME.split_at(nth * 7);
        stream.write_all(one.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(ask(&mut stream, other).await.status, 429);
    }
    drop(stream);
    front.end().await;
}

#[tokio::test]
async fn a_thousand_pipelined_denials_are_answered_and_counted() {
    let front = start("", HOURLY).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    assert_eq!(statuses(&ask_again(&mut stream, 5).await)[2..], [429; 3]);
    let (mut hear, mut say) = stream.into_split();
    let said = tokio::spawn(async move {
        let last = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let all = SAME.repeat(1_000) + last;
        say.write_all(all.as_bytes()).await.unwrap();
        say
    });
    assert_eq!(statuses(&heard(&mut hear).await), [429; 1_001]);
    drop((hear, said.await.unwrap()));
    front
        .until_figure("tollgate_gateway_requests_total{status=\"4xx\"}", |n| {
            n == 1_004
        })
        .await;
    front.end().await;
}

#[tokio::test]
async fn every_denial_has_the_configured_body() {
    let own =
        format!("{HOURLY}\nanswers: {{ denied: {{ body: \"come back in {{retry_after}} s\" }} }}");
    let front = start("", &own).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    let heard = ask_again(&mut stream, 8).await;
    assert_eq!(statuses(&heard)[2..], [429; 6]);
    for heard in &heard[2..] {
        let body = String::from_utf8(heard.body.clone()).unwrap();
        assert!(body.starts_with("come back in "), "{body}");
    }
    drop(stream);
    front.end().await;
}

#[tokio::test]
async fn new_rules_apply_to_open_connections_at_once() {
    let front = start("", HOURLY).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    assert_eq!(statuses(&ask_again(&mut stream, 6).await)[2..], [429; 4]);
    let generation = front.door.policy().generation();
    let file = front.folder.path().join("tollgate.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("burst 2", "burst 4")).unwrap();
    front.door.live().reload();
    let patience = Instant::now() + PATIENCE;
    while front.door.policy().generation() == generation {
        assert!(Instant::now() < patience, "the file is never read");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let heard = ask_again(&mut stream, 5).await;
    assert_eq!(statuses(&heard), [200, 200, 429, 429, 429]);
    assert_eq!(heard[4].field("x-ratelimit-limit"), Some("4"));
    drop(stream);
    front.end().await;
}

#[tokio::test]
async fn a_request_id_of_a_trusted_proxy_is_kept() {
    let rules = format!("identity: {{ trusted_proxies: [127.0.0.1] }}\n{HOURLY}");
    let front = start("", &rules).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    let named = "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine\r\n\r\n";
    for nth in 0..6 {
        let heard = ask(&mut stream, named).await;
        assert_eq!(heard.status, if nth < 2 { 200 } else { 429 });
        assert_eq!(heard.field("x-request-id"), Some("mine"));
    }
    drop(stream);
    front.end().await;
}

/// A queue that is full denies; when a place is free, the request waits in it.
#[tokio::test]
async fn a_denied_client_waits_in_a_queue_once_it_has_room() {
    let rules = "rules: [{ id: even, per: [ip], limit: { algorithm: leaky_bucket, rate: 20/s, queue: 1 } }]";
    let front = start("", rules).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    let (mut passed, mut denied_in_a_row, mut longest) = (0, 0, 0);
    let began = Instant::now();
    // Others fill the queue, so that who asks on this connection is denied again and again, and let in between.
    while passed < 5 || longest < 3 {
        assert!(began.elapsed() < PATIENCE, "{passed} passed, {longest}");
        let others = [(); 2].map(|()| front.get("/"));
        let both = futures_util::future::join_all(others);
        let (heard, _) = futures_util::future::join(ask_again(&mut stream, 4), both).await;
        for heard in heard {
            match heard.status {
                200 => (passed, denied_in_a_row) = (passed + 1, 0),
                429 => denied_in_a_row += 1,
                other => panic!("{other}"),
            }
            longest = longest.max(denied_in_a_row);
        }
    }
    let took = began.elapsed().as_secs_f64();
    drop(stream);
    // Never more than the rate allows, one for the beginning and one for the end.
    let came = f64::from(u32::try_from(front.behind.count()).unwrap());
    assert!(came <= took * 20.0 + 2.0, "{came} in {took} s");
    front.end().await;
}

/// A client that keeps sending while the gateway stops gets `Connection: close`.
#[tokio::test]
async fn denied_clients_are_told_to_close_at_shutdown() {
    let front = start("", HOURLY).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    assert_eq!(statuses(&ask_again(&mut stream, 6).await)[2..], [429; 4]);
    let stop = front.stop.clone();
    let patience = Instant::now() + PATIENCE;
    let mut asked = 0;
    let closed = loop {
        assert!(Instant::now() < patience, "it is never told");
        stream.write_all(SAME.as_bytes()).await.unwrap();
        let heard = hear_one(&mut stream).await.expect("an answer to each");
        assert_eq!(heard.status, 429);
        asked += 1;
        if asked == 3 {
            stop.cancel();
        }
        if heard.field("connection") == Some("close") {
            break heard;
        }
    };
    assert!(closed.field("x-request-id").is_some());
    drop(stream);
    front.end().await;
}
