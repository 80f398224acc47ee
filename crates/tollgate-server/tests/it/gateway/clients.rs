//! The gateway as its callers meet it: curl, Python's requests, a client that keeps its connections, and crowds while it reloads, restarts and
//! stops. The server behind is real and writes down what reaches it.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::any;
use http_body_util::BodyExt as _;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::gateway_queue::Rush;
use crate::gateway_two;
use crate::metrics::{OPEN_METRICS, check_open_metrics};
use crate::serve::decided;
use crate::serving::{PATIENCE, Serving, ask, until};

/// A server behind the gateway, which notes when requests reach it.
struct Behind {
    address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Instant>>>,
    // Ends the server.
    _runtime: tokio::runtime::Runtime,
}

impl Behind {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let noting = Arc::clone(&arrivals);
        let hello = any(move |body: String| async move {
            noting.lock().unwrap().push(Instant::now());
            format!("hello {body}")
        });
        let app = Router::new().fallback(hello);
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self {
            address,
            arrivals,
            _runtime: runtime,
        }
    }

    fn count(&self) -> usize {
        self.arrivals.lock().unwrap().len()
    }
}

fn config(behind: &Behind, rules: &str) -> String {
    let address = behind.address;
    format!(
        "gateway:\n  listen: 127.0.0.1:0\n  upstreams: [{{ path: /, to: [\"http://{address}\"] }}]\nlog: {{ format: json }}\nrules:\n{rules}\n"
    )
}

fn gateway(behind: &Behind, rules: &str) -> Serving {
    Serving::by(&config(behind, rules))
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn curl(args: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "60"]);
    command.args(args).output().unwrap()
}

#[test]
fn curl_hears_the_limits_and_passes_when_it_retries_as_told() {
    let behind = Behind::start();
    let serving = gateway(
        &behind,
        "  - { id: address, per: [ip], limit: \"1/s burst 2\" }",
    );
    let url = format!("http://{}/hello", serving.address("gateway"));
    let first = said(&curl(&["--include", &url])).to_ascii_lowercase();
    assert!(first.starts_with("http/1.1 200"), "{first}");
    assert!(first.contains("x-ratelimit-limit: 2\r\n"), "{first}");
    assert!(first.contains("x-ratelimit-remaining: 1\r\n"), "{first}");
    assert!(first.ends_with("hello "), "{first}");
    // Both versions of the protocol share what is left.
    let second = said(&curl(&["--include", "--http2-prior-knowledge", &url]));
    assert!(second.starts_with("HTTP/2 200"), "{second}");
    let denied = said(&curl(&["--include", &url])).to_ascii_lowercase();
    assert!(denied.starts_with("http/1.1 429"), "{denied}");
    assert!(denied.contains("retry-after: 1\r\n"), "{denied}");
    assert!(denied.contains("application/problem+json"), "{denied}");
    assert!(denied.contains("quota-exceeded"), "{denied}");
    assert_eq!(behind.count(), 2, "a denial touches nothing behind");
    // curl waits for as long as Retry-After says, and once is enough.
    let retried = curl(&["--retry", "1", "--fail", "--include", &url]);
    assert!(said(&retried).contains("HTTP/1.1 200"), "{retried:?}");
    assert_eq!(behind.count(), 3);
}

/// One retry each, and no waiting but what Retry-After says: so each of them was told the truth.
const REQUESTS: &str = r#"
import sys, requests
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry
session = requests.Session()
session.mount("http://", HTTPAdapter(max_retries=Retry(total=1, status_forcelist=[429], respect_retry_after_header=True)))
retries = 0
for n in range(6):
    answer = session.get(sys.argv[1], timeout=60)
    assert answer.status_code == 200, (n, answer.status_code, answer.text)
    retries += len(answer.raw.retries.history)
print(retries)
"#;

fn python(script: &str, url: &str) -> String {
    // Debian's own, which has Debian's packages.
    let mut command = Command::new("/usr/bin/python3");
    let output = command.args(["-c", script, url]).output();
    said(&output.expect("python3 must be installed: `make test` sees to that"))
}

#[test]
fn pythons_requests_succeeds_by_obeying_retry_after() {
    let behind = Behind::start();
    let serving = gateway(
        &behind,
        "  - { id: address, per: [ip], limit: \"1/s burst 2\" }",
    );
    let url = format!("http://{}/hello", serving.address("gateway"));
    let retries: usize = python(REQUESTS, &url).trim().parse().unwrap();
    assert!(retries >= 2, "{retries}: it was denied and came back");
    assert_eq!(behind.count(), 6, "each reached the server once");
}

/// Six connections, as a browser has; pages, forms and denials in turns, each on the connection it had.
const KEEP_ALIVE: &str = r#"
import sys, http.client
from urllib.parse import urlparse
where = urlparse(sys.argv[1])
connections = [http.client.HTTPConnection(where.hostname, where.port, timeout=60) for _ in range(6)]
for connection in connections:
    connection.connect()
sockets = [connection.sock for connection in connections]
statuses = {}
for n in range(120):
    connection = connections[n % 6]
    if n % 3 == 0:
        connection.request("POST", where.path, body=b"x" * 2000)
    else:
        connection.request("GET", where.path)
    answer = connection.getresponse()
    answer.read()
    statuses[answer.status] = statuses.get(answer.status, 0) + 1
assert sockets == [connection.sock for connection in connections], "a connection was closed"
print(statuses.get(200, 0), statuses.get(429, 0))
"#;

#[test]
fn a_client_that_keeps_its_connections_keeps_them_through_denials() {
    let behind = Behind::start();
    let serving = gateway(
        &behind,
        "  - { id: address, per: [ip], limit: \"1/h burst 50\" }",
    );
    let url = format!("http://{}/hello", serving.address("gateway"));
    assert_eq!(python(KEEP_ALIVE, &url).trim(), "50 70");
    assert_eq!(behind.count(), 50);
}

/// R03, through the program.
#[test]
fn a_leaky_bucket_spaces_out_what_reaches_the_server_and_rejects_what_finds_the_queue_full() {
    const CALLERS: u64 = 150;
    const QUEUE: usize = 40;
    const PER_SECOND: u32 = 20;
    let behind = Behind::start();
    let rules = format!(
        "  - {{ id: drivers, per: [], limit: {{ algorithm: leaky_bucket, rate: {PER_SECOND}/s, queue: {QUEUE} }} }}"
    );
    let serving = Serving::by(&(config(&behind, &rules) + "admin: { listen: 127.0.0.1:0 }\n"));
    let at = serving.address("gateway");
    let began = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| std::thread::spawn(move || ask(at, "GET", "/location", &[]).unwrap().status))
        .collect();
    until(
        "a decision on each",
        || decided(&serving),
        |decided| *decided == CALLERS,
    );
    let decided = Instant::now();
    let statuses = callers.into_iter().map(|c| c.join().unwrap()).collect();
    let came = behind.arrivals.lock().unwrap().clone();
    let rush = Rush {
        per_second: PER_SECOND,
        queue: QUEUE,
        began,
        decided,
        statuses,
        came,
    };
    rush.check();
}

/// Asks again and again on connections that it keeps, until it is told to stop; says how many were answered.
fn keep_asking(at: SocketAddr, until: &AtomicBool) -> Result<usize, String> {
    let mut answered = 0;
    let mut kept: Option<BufReader<TcpStream>> = None;
    while !until.load(Relaxed) {
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(at).map_err(|error| format!("connect: {error}"))?;
                stream
                    .set_read_timeout(Some(Duration::from_secs(60)))
                    .unwrap();
                BufReader::new(stream)
            }
        };
        let request = format!("GET /hello HTTP/1.1\r\nhost: {at}\r\n\r\n");
        (stream.get_mut().write_all(request.as_bytes()))
            .map_err(|error| format!("send: {error}"))?;
        let (status, closes) = read_answer(&mut stream)?;
        if status != 200 && status != 429 {
            return Err(format!("status {status}"));
        }
        answered += 1;
        kept = (!closes).then_some(stream);
    }
    Ok(answered)
}

fn read_answer(stream: &mut BufReader<TcpStream>) -> Result<(u16, bool), String> {
    let (mut status, mut length, mut closes) = (0, 0, false);
    for nth in 0.. {
        let mut line = String::new();
        let read = stream
            .read_line(&mut line)
            .map_err(|error| format!("read: {error}"))?;
        if read == 0 {
            return Err(format!("closed after {nth} lines of an answer"));
        }
        let line = line.trim_end().to_ascii_lowercase();
        match line.split_once(": ") {
            _ if line.is_empty() => break,
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(("connection", value)) => closes = value.contains("close"),
            Some(_) => {}
            None => status = line.split(' ').nth(1).unwrap_or("0").parse().unwrap(),
        }
    }
    let mut body = vec![0; length];
    stream
        .read_exact(&mut body)
        .map_err(|error| format!("body: {error}"))?;
    Ok((status, closes))
}

/// A crowd that asks all the time while something is done.
fn under_load<T>(at: SocketAddr, act: impl FnOnce() -> T) -> (usize, T) {
    let stop = Arc::new(AtomicBool::new(false));
    let crowd: Vec<_> = (0..8)
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || keep_asking(at, &stop))
        })
        .collect();
    let outcome = act();
    stop.store(true, Relaxed);
    let answered = crowd.into_iter().map(|caller| caller.join().unwrap());
    let answered: Result<usize, String> = answered.sum();
    (answered.unwrap(), outcome)
}

#[test]
fn no_request_fails_while_the_configuration_changes() {
    let behind = Behind::start();
    let rule = |limit: u32| {
        format!("  - {{ id: address, per: [ip], limit: \"{limit}/s burst {limit}\" }}")
    };
    let serving = gateway(&behind, &rule(1_000));
    let (answered, ()) = under_load(serving.address("gateway"), || {
        for round in 1..=20 {
            let text = config(&behind, &rule(1_000 + round));
            serving.program.write("tollgate.yaml", &text);
            serving.wait_for(&format!("\"generation\":{}", round + 1));
        }
    });
    assert!(answered > 100, "{answered}");
}

#[test]
fn no_request_fails_while_the_program_is_replaced() {
    let behind = Behind::start();
    let serving = gateway(
        &behind,
        "  - { id: address, per: [ip], limit: \"1000000/s\" }",
    );
    let (answered, ()) = under_load(serving.address("gateway"), || {
        serving.signal("USR2");
        serving.wait_for("the new program is ready");
        serving.wait_for("stopped");
        // The new one alone answers, and not only once.
        let answered = behind.count();
        until(
            "answers of the new program",
            || behind.count(),
            |now| *now > answered + 100,
        );
    });
    assert!(answered > 100, "{answered}");
}

/// What became of a caller's requests: they were answered, or the connection ended before a byte of an answer.
type Outcome = (usize, usize);

/// Asks on connections that it keeps until nobody listens any more. Nothing may be answered in part.
fn ask_until_the_end(at: SocketAddr, pause: Duration) -> Result<Outcome, String> {
    let (mut answered, mut unheard) = (0, 0);
    while let Ok(stream) = TcpStream::connect(at) {
        (stream.set_read_timeout(Some(PATIENCE))).unwrap();
        let mut stream = BufReader::new(stream);
        let request = format!("GET /hello HTTP/1.1\r\nhost: {at}\r\n\r\n");
        while stream.get_mut().write_all(request.as_bytes()).is_ok() {
            match stream.fill_buf().map(<[u8]>::len) {
                Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                    return Err(format!("read: {error}"));
                }
                Err(_) | Ok(0) => {
                    unheard += 1;
                    break;
                }
                Ok(_) => {}
            }
            let (status, closes) = read_answer(&mut stream)?;
            if status != 200 {
                return Err(format!("status {status}"));
            }
            answered += 1;
            if closes {
                break;
            }
            std::thread::sleep(pause);
        }
    }
    Ok((answered, unheard))
}

/// The same over HTTP/2, three at a time.
fn ask_two_until_the_end(at: SocketAddr, pause: Duration) -> Result<Outcome, String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut answered, mut unheard) = (0, 0);
        while let Ok(stream) = tokio::net::TcpStream::connect(at).await {
            let stream = TokioIo::new(stream);
            let Ok((sender, connection)) = http2::handshake(TokioExecutor::new(), stream).await
            else {
                continue;
            };
            tokio::spawn(connection);
            while !sender.is_closed() {
                let three = [(); 3].map(|()| {
                    let mut sender = sender.clone();
                    async move { sender.send_request(gateway_two::ask("/hello")).await }
                });
                for heard in futures_util::future::join_all(three).await {
                    let Ok(heard) = heard else {
                        unheard += 1;
                        continue;
                    };
                    if heard.status() != 200 {
                        return Err(format!("status {}", heard.status()));
                    }
                    let body = heard.into_body().collect().await;
                    body.map_err(|error| format!("body: {error}"))?;
                    answered += 1;
                }
                tokio::time::sleep(pause).await;
            }
        }
        Ok((answered, unheard))
    })
}

fn stop_under_load(ask: fn(SocketAddr, Duration) -> Result<Outcome, String>) {
    for _ in 0..3 {
        let behind = Behind::start();
        let mut serving = gateway(
            &behind,
            "  - { id: address, per: [ip], limit: \"1000000/s\" }",
        );
        let at = serving.address("gateway");
        // Some are idle now and then.
        let callers: Vec<_> = (0..12)
            .map(|nth| std::thread::spawn(move || ask(at, Duration::from_millis(nth % 4 * 20))))
            .collect();
        until("a crowd", || behind.count(), |count| *count > 1_000);
        serving.signal("TERM");
        assert!(serving.ended().success(), "{}", serving.log());
        let (mut answered, mut unheard) = (0, 0);
        for caller in callers {
            let outcome = caller.join().unwrap().unwrap();
            answered += outcome.0;
            unheard += outcome.1;
        }
        assert_eq!(
            answered,
            behind.count(),
            "all that reached the server were answered, and the {unheard} others did not reach it"
        );
    }
}

#[test]
fn when_it_is_told_to_stop_under_load_whatever_reached_the_server_is_answered() {
    stop_under_load(ask_until_the_end);
}

#[test]
fn when_it_is_told_to_stop_under_load_of_http_2_whatever_reached_the_server_is_answered() {
    stop_under_load(ask_two_until_the_end);
}

/// With every door open: what each counts is on one page, as OpenMetrics wants it and the documentation says it.
#[test]
fn every_door_counts_on_one_page() {
    let behind = Behind::start();
    let rule = "  - { id: address, per: [ip], limit: \"1/h burst 2\" }";
    let text = config(&behind, rule)
        + "service: { listen: 127.0.0.1:0 }\nadmin: { listen: 127.0.0.1:0 }\n";
    let serving = Serving::by(&text);
    for status in [200, 200, 429] {
        assert_eq!(serving.get("gateway", "/hello", &[]).status, status);
    }
    // As Traefik asks.
    let asked = [
        "x-forwarded-method: GET",
        "x-forwarded-uri: /hello",
        "x-forwarded-host: api.example.com",
    ];
    let asked = serving.get("service", "/v1/forward-auth", &asked);
    assert_eq!(asked.status, 429, "doors share what is left");
    let page = serving.get("admin", "/metrics", &[OPEN_METRICS]).body;
    let samples = check_open_metrics(&page);
    let says = |name: &str| samples.get(name).copied();
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
        assert_eq!(says(name), Some(value), "{name} in:\n{page}");
    }
}

/// What is noted of a denial is in the database when the program has ended.
#[test]
fn at_the_end_the_audit_trail_is_written() {
    let behind = Behind::start();
    let rule = "  - { id: address, per: [ip], limit: \"1/h burst 1\" }";
    let text = config(&behind, rule) + "database: { url: \"sqlite:trail.db\" }\nrules_from: file\n";
    let mut serving = Serving::by(&text);
    let statuses = [(); 4].map(|()| serving.get("gateway", "/hello", &[]).status);
    assert_eq!(statuses, [200, 429, 429, 429]);
    serving.signal("TERM");
    assert!(serving.ended().success(), "{}", serving.log());
    let mut command = serving.program.bare(&["violations", "--json"]);
    let output = command.output().unwrap();
    let said = said(&output);
    assert!(
        said.contains("\"count\":3") || said.contains("\"count\": 3"),
        "{said}"
    );
}
