//! Stalls: the program is stopped for a while, as in a frozen container. What arrived meanwhile is not late, and no server has
//! failed.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use serde_json::{Value, json};
use tollgate_testing::client::{connect_from, request};
use tollgate_testing::servers::RedisServer;
use tollgate_testing::wait::{until, until_value};
use tollgate_testing::{Running, TIMEOUT};

use crate::kit;

/// The timeout in the configurations below.
const ALLOWED: &str = "1s";

/// Longer than that.
const STALL: Duration = Duration::from_millis(1_500);

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

fn gateway(fields: &str, upstream: &str, server: SocketAddr) -> Running {
    kit::serve(&format!(
        "
gateway:
  listen: 127.0.0.1:0
  {fields}
  upstreams: [{{ path: /, to: [\"http://{server}\"], {upstream} }}]
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
rules: []
"
    ))
}

/// The state of a process, such as `T` for one that is stopped.
fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.chars().next()
}

fn stop(running: &Running) {
    running.signal("STOP");
    until("the stop of the program", || {
        state(running.pid()) == Some('T')
    });
}

/// Stops the program for longer than its timeouts, and does something meanwhile.
fn stall(running: &Running, meanwhile: impl FnOnce()) {
    stop(running);
    meanwhile();
    std::thread::sleep(STALL);
    running.signal("CONT");
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn connect(running: &Running) -> TcpStream {
    connect_from(Ipv4Addr::LOCALHOST.into(), running.address("gateway")).unwrap()
}

/// Reads until these words have come, or the end.
fn read_to(stream: &mut TcpStream, words: &str) -> String {
    let mut text = String::new();
    let mut part = [0; 1_024];
    while !text.contains(words) {
        match stream.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(length) => text.push_str(&String::from_utf8_lossy(&part[..length])),
        }
    }
    text
}

#[test]
fn a_stall_fails_no_health_check() {
    let (listener, address) = listener();
    let is_held = Arc::new(AtomicBool::new(false));
    let (report_check, checks) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let held = Arc::clone(&is_held);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            read_to(&mut stream, "\r\n\r\n");
            if held.swap(false, SeqCst) {
                report_check.send(()).unwrap();
                released.recv().unwrap();
            }
            let _ = stream.write_all(OK);
        }
    });
    let health =
        format!("failures: 1, health: {{ path: /healthz, every: 20ms, timeout: {ALLOWED} }}");
    let running = gateway("", &health, address);
    for _ in 0..2 {
        is_held.store(true, SeqCst);
        checks.recv_timeout(TIMEOUT).unwrap();
        stall(&running, || release.send(()).unwrap());
        // When the next check begins, that one is over.
        is_held.store(true, SeqCst);
        checks.recv_timeout(TIMEOUT).unwrap();
        release.send(()).unwrap();
    }
    let log = running.log();
    assert!(!log.contains("a server fails its checks"), "{log}");
}

#[test]
fn a_response_that_came_during_a_stall_is_passed_on() {
    let (listener, address) = listener();
    let timeout = format!("response_timeout: {ALLOWED}");
    let running = gateway("", &timeout, address);
    let mut client = connect(&running);
    let mut server = None;
    // The second request goes over the connection of the first.
    for _ in 0..2 {
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        let server = server.get_or_insert_with(|| listener.accept().unwrap().0);
        read_to(server, "\r\n\r\n");
        stall(&running, || server.write_all(OK).unwrap());
        let response = read_to(&mut client, "ok");
        assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    }
}

#[test]
fn a_response_body_that_came_during_a_stall_is_passed_on() {
    let (listener, address) = listener();
    let timeout = format!("idle_timeout: {ALLOWED}");
    let running = gateway("", &timeout, address);
    let mut client = connect(&running);
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    let (mut server, _) = listener.accept().unwrap();
    read_to(&mut server, "\r\n\r\n");
    let (first, second) = OK.split_at(OK.len() - 1);
    server.write_all(first).unwrap();
    read_to(&mut client, "\r\n\r\no");
    stall(&running, || server.write_all(second).unwrap());
    assert_eq!(read_to(&mut client, "k"), "k");
}

#[test]
fn a_request_head_that_came_during_a_stall_is_served() {
    let (listener, address) = listener();
    let running = gateway(&format!("head_timeout: {ALLOWED}"), "", address);
    let mut client = connect(&running);
    client.write_all(b"GET / HTTP/1.1\r\n").unwrap();
    stall(&running, || client.write_all(b"host: a\r\n\r\n").unwrap());
    // If the connection ends here, it was cut.
    client.set_nonblocking(true).unwrap();
    listener.set_nonblocking(true).unwrap();
    let arrived = until_value(
        "the request, or the end of its connection",
        || (listener.accept().is_ok(), client.peek(&mut [0]).ok()),
        |(arrived, ended)| *arrived || ended.is_some(),
    );
    assert_eq!(arrived, (true, None));
}

#[test]
fn a_request_body_that_came_during_a_stall_is_served() {
    let (listener, address) = listener();
    let running = gateway(&format!("body_timeout: {ALLOWED}"), "", address);
    let mut client = connect(&running);
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\nfirst")
        .unwrap();
    let (mut server, _) = listener.accept().unwrap();
    read_to(&mut server, "first");
    stall(&running, || client.write_all(b"again").unwrap());
    assert_eq!(read_to(&mut server, "again"), "again");
    server.write_all(OK).unwrap();
    let response = read_to(&mut client, "ok");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

/// Passes bytes to Redis and back, and can hold what is sent to it.
struct Relay {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    is_holding: Arc<AtomicBool>,
    held: mpsc::Receiver<()>,
    release: mpsc::Sender<()>,
}

impl Relay {
    fn to(server: &str) -> Self {
        let server = server.to_owned();
        let (listener, address) = listener();
        let (connections, is_holding) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        let (holds, held) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let (count, is_held) = (Arc::clone(&connections), Arc::clone(&is_holding));
        let released = Arc::new(Mutex::new(released));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                count.fetch_add(1, SeqCst);
                let mut client = client.unwrap();
                let mut server = UnixStream::connect(&server).unwrap();
                let (mut back, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut back, &mut to));
                let (is_held, holds) = (Arc::clone(&is_held), holds.clone());
                let released = Arc::clone(&released);
                std::thread::spawn(move || {
                    let mut part = [0; 4_096];
                    while let Ok(length @ 1..) = client.read(&mut part) {
                        if is_held.swap(false, SeqCst) {
                            holds.send(()).unwrap();
                            released.lock().unwrap().recv().unwrap();
                        }
                        if server.write_all(&part[..length]).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self {
            address,
            connections,
            is_holding,
            held,
            release,
        }
    }
}

/// What decided one request.
fn source(service: SocketAddr) -> Value {
    let body = json!({ "client": "a" }).to_string();
    let response = request(service, "POST", "/v1/check", &[], &body).unwrap();
    response.json()["source"].clone()
}

#[test]
fn a_redis_reply_that_comes_after_a_stall_is_used() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.url().strip_prefix("unix://").unwrap());
    let running = kit::serve(&format!(
        "
admin: {{ listen: 127.0.0.1:0 }}
service: {{ listen: 127.0.0.1:0 }}
store: {{ redis: \"redis://{}\", deadline: {ALLOWED}, instances: 1 }}
log: {{ format: json }}
rules: [{{ id: client, per: [client], limit: \"1/h burst 100000\" }}]
",
        relay.address
    ));
    let service = running.address("service");
    let source = move || source(service);
    until_value("a decision by Redis", source, |source| source == "store");
    let connections = relay.connections.load(SeqCst);

    relay.is_holding.store(true, SeqCst);
    let check = std::thread::spawn(source);
    relay.held.recv_timeout(TIMEOUT).unwrap();
    stop(&running);
    // Long enough that the check and its connection are both overdue.
    std::thread::sleep(2 * STALL);
    running.signal("CONT");
    running.until_metric("tollgate_process_stalls_total", |stalls| stalls >= 1.0);
    relay.release.send(()).unwrap();

    assert_eq!(check.join().unwrap(), "store");
    assert_eq!(relay.connections.load(SeqCst), connections);
    assert_eq!(running.metric("tollgate_store_breaker_openings_total"), 0.0);
}

/// Stops the program for 60 ms: too short for any deadline to pass while nothing waits for one.
fn stall_briefly(running: &Running) {
    stop(running);
    std::thread::sleep(Duration::from_millis(60));
    running.signal("CONT");
}

fn brief_stalls_are_counted(store: &str) {
    let running = kit::serve(&format!(
        "admin: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}\nrules: []\n{store}"
    ));
    let before = running.metric("tollgate_process_stalls_total");
    for _ in 0..3 {
        stall_briefly(&running);
    }
    running.until_metric("tollgate_process_stalls_total", |stalls| {
        stalls >= before + 3.0
    });
    let longest = running.metric("tollgate_process_longest_stall_seconds");
    // Each was noticed to within a tick of 20 ms.
    assert!(longest >= 0.04, "{longest}");
    let process = running.get("admin", "/v1/status", &[]).json()["process"].clone();
    assert!(process["stalls"].as_f64().unwrap() >= 3.0, "{process}");
    assert!(
        process["longest_stall_ms"].as_f64().unwrap() >= 40.0,
        "{process}"
    );
}

#[test]
fn brief_stalls_are_counted_over_redis_and_in_memory() {
    brief_stalls_are_counted("");
    let redis = RedisServer::start();
    brief_stalls_are_counted(&format!("store: {{ redis: {:?} }}", redis.url()));
}

#[test]
fn decisions_that_missed_redis_in_a_stall_are_reported() {
    // Redis decides more than 99 of 100, so nothing else is reported.
    const BY_REDIS: usize = 200;
    let redis = RedisServer::start();
    let running = kit::serve(&format!(
        "
admin: {{ listen: 127.0.0.1:0 }}
service: {{ listen: 127.0.0.1:0 }}
store: {{ redis: {:?}, deadline: 1s, breaker: {{ failures: 1000 }} }}
log: {{ format: json }}
rules: [{{ id: client, per: [client], limit: \"1/h burst 100000\" }}]
",
        redis.url()
    ));
    let service = running.address("service");
    for _ in 0..BY_REDIS {
        assert_eq!(source(service), "store");
    }
    redis.pause();
    let missed = std::thread::spawn(move || source(service));
    // Repeatedly, so that one of the stalls is in the second of the missed deadline.
    while !missed.is_finished() {
        stall_briefly(&running);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(missed.join().unwrap(), "local");
    running.wait_for_log("this process stalled, and requests missed the deadline for Redis");
    assert!(running.log().contains("\"decided_without_redis\":1"));
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let tasks = tasks.flatten().flatten().map(|task| task.path());
    let children = tasks.filter_map(|task| std::fs::read_to_string(task.join("children")).ok());
    let pids = |line: String| -> Vec<u32> {
        let words = line.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    children.flat_map(pids).collect()
}

/// A database that keeps connections waiting while `holds`, and otherwise closes them at once.
fn database(holds: Arc<AtomicBool>) -> SocketAddr {
    let (listener, address) = listener();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        listener.set_nonblocking(true).unwrap();
        loop {
            match (listener.accept(), holds.load(SeqCst)) {
                (Ok((stream, _)), true) => held.push(stream),
                (_, false) => held.clear(),
                (Err(_), true) => {}
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    address
}

#[test]
fn a_stall_does_not_end_a_restart() {
    // The new process waits for the database of the audit trail before it is ready.
    let holds = Arc::new(AtomicBool::new(false));
    let mut running = kit::serve(&format!(
        "
admin: {{ listen: 127.0.0.1:0 }}
database: {{ url: \"postgres://nobody@{}/none\" }}
rules_from: file
audit: {{}}
log: {{ format: json }}
rules: []
",
        database(Arc::clone(&holds))
    ));
    holds.store(true, SeqCst);
    running.signal("USR2");
    until("the new process", || !children(running.pid()).is_empty());
    // Several times, because the old process may not wait for the new one yet.
    for _ in 0..10 {
        stop(&running);
        running.signal("CONT");
        until("the program to go on", || state(running.pid()) != Some('T'));
    }
    holds.store(false, SeqCst);
    let look = || running.log();
    let log = until_value("the end of the restart", look, |log| {
        log.contains("the new process has the sockets") || log.contains("restart failed")
    });
    assert!(!log.contains("restart failed"), "{log}");
    assert_eq!(running.wait_for_exit().code(), Some(0));
}
