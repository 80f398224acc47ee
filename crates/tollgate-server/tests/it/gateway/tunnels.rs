//! WebSockets through the real program: how they end, and what the access log says of them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::serving::{PATIENCE, Serving, until};

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n";

const AGREED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

const IDLE: Duration = Duration::from_secs(2);

fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "the head is cut");
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

fn echoing() -> SocketAddr {
    echoing_to(Arc::default())
}

/// Agrees to every upgrade, and echoes; counts who connects. Its threads end with the process.
fn echoing_to(connected: Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            connected.fetch_add(1, SeqCst);
            std::thread::spawn(move || {
                head_of(&mut stream);
                stream.write_all(AGREED.as_bytes()).unwrap();
                let mut to = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut stream, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

fn serving(tunnel_timeout: &str) -> Serving {
    Serving::by(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  upstreams: [{{ to: \"http://{}\", tunnel_timeout: {tunnel_timeout} }}]
  access_log: json
  access_log_file: access.log
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
rules: [{{ id: everyone, per: [], limit: \"1000000/s\" }}]
",
        echoing()
    ))
}

fn open(serving: &Serving) -> TcpStream {
    let mut stream = TcpStream::connect(serving.address("gateway")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(UPGRADE.as_bytes()).unwrap();
    assert!(head_of(&mut stream).starts_with("HTTP/1.1 101 "));
    stream
}

fn say(stream: &mut TcpStream, words: &str) {
    stream.write_all(words.as_bytes()).unwrap();
    let mut echoed = vec![0; words.len()];
    stream.read_exact(&mut echoed).unwrap();
    assert_eq!(echoed, words.as_bytes());
}

/// The only line of the log, when it is there.
fn line(serving: &Serving) -> Value {
    let file = serving.program.folder().join("access.log");
    let read = || std::fs::read_to_string(&file).unwrap();
    let text = until("a line", read, |text| text.ends_with('\n'));
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn ended_idle(serving: &Serving) -> bool {
    let metrics = serving.get("admin", "/metrics", &[]).body;
    metrics.contains("tollgate_upstream_tunnels_idle_total 1\n")
}

#[test]
fn a_websocket_on_which_nobody_says_anything_is_ended_counted_and_logged() {
    let serving = serving("2s");
    let mut stream = open(&serving);
    let began = Instant::now();
    // It lives for as long as something is said, however long that is.
    let mut said = 0;
    while began.elapsed() < IDLE * 2 {
        say(&mut stream, "0123456789");
        said += 10;
        std::thread::sleep(IDLE / 20);
    }
    assert!(!ended_idle(&serving));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it is ended by us");
    until("it is counted", || ended_idle(&serving), |is_so| *is_so);
    let line = line(&serving);
    assert_eq!(
        (&line["status"], &line["tunnel"]),
        (&101.into(), &"idle".into())
    );
    assert_eq!(
        (&line["path"], &line["bytes"]),
        (&"/ws".into(), &said.into())
    );
    assert!(line["seconds"].as_f64().unwrap() > (IDLE * 2).as_secs_f64());
    assert!(line.get("broken_off").is_none());
}

#[test]
fn a_websocket_that_ends_by_itself_is_logged_when_it_does() {
    let serving = serving("none");
    let mut stream = open(&serving);
    say(&mut stream, "hello");
    let log = serving.program.folder().join("access.log");
    assert_eq!(
        std::fs::read_to_string(log).unwrap(),
        "",
        "not before its end"
    );
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    let line = line(&serving);
    assert_eq!(
        (&line["status"], &line["tunnel"]),
        (&101.into(), &"ended".into())
    );
    assert_eq!(line["bytes"], 5);
    assert!(!ended_idle(&serving));
}

#[test]
fn a_websocket_that_is_open_when_the_program_ends_is_logged_as_cut() {
    let mut serving = Serving::by(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  upstreams: [{{ to: \"http://{}\" }}]
  drain: 100ms
  access_log: json
  access_log_file: access.log
log: {{ format: json }}
",
        echoing()
    ));
    let mut stream = open(&serving);
    say(&mut stream, "hello");
    serving.signal("TERM");
    assert!(serving.ended().success());
    let line = line(&serving);
    assert_eq!(
        (&line["tunnel"], &line["bytes"]),
        (&"cut".into(), &5.into())
    );
}

#[test]
fn a_websocket_that_is_denied_hears_429_and_its_server_nothing() {
    let connected = Arc::new(AtomicUsize::new(0));
    let serving = Serving::by(&format!(
        "
gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{}\" }}] }}
log: {{ format: json }}
rules: [{{ id: sockets, per: [ip], limit: \"1/h burst 1\" }}]
",
        echoing_to(Arc::clone(&connected))
    ));
    let mut opened = open(&serving);
    let mut denied = TcpStream::connect(serving.address("gateway")).unwrap();
    denied.set_read_timeout(Some(PATIENCE)).unwrap();
    // Again and again on one connection, which none of them ends.
    for nth in 0..4 {
        denied.write_all(UPGRADE.as_bytes()).unwrap();
        let head = head_of(&mut denied).to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 429 "), "{nth}: {head}");
        for field in [
            "content-type: application/problem+json",
            "retry-after: 3",
            "x-ratelimit-limit: 1",
            "x-ratelimit-remaining: 0",
            "ratelimit-policy: \"sockets\";q=1",
            "ratelimit: \"sockets\";r=0",
            "x-request-id: ",
        ] {
            assert!(head.contains(&format!("\r\n{field}")), "{field}: {head}");
        }
        assert!(!head.contains("\r\nupgrade:"), "{head}");
        let length = head.split("content-length: ").nth(1).unwrap();
        let length = length.lines().next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        denied.read_exact(&mut body).unwrap();
        let problem: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(problem["violated-policies"][0], "sockets", "{problem}");
    }
    assert_eq!(connected.load(SeqCst), 1, "by the one that was let in");
    say(&mut opened, "and that goes on");
}
