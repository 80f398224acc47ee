//! `tollgate serve`: start, signals, restart and shutdown.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt as _, FdMapping};

use serde_json::{Value, json};
use tollgate_testing::client::request;
use tollgate_testing::program::stderr;
use tollgate_testing::servers::RedisServer;
use tollgate_testing::wait::{until, until_value};
use tollgate_testing::{Response, Running, TIMEOUT};

use crate::kit;

const CONFIG: &str = "
admin: { listen: 127.0.0.1:0 }
log: { format: json }
rules:
  - { id: client, per: [client], limit: \"10/s burst 50\" }
  - { id: everyone, per: [], limit: \"1000/s\" }
";

/// The response to a GET on a connection of its own.
fn get(at: SocketAddr, path: &str) -> io::Result<Response> {
    request(at, "GET", path, &[], "")
}

#[test]
fn a_missing_file_is_reported_with_what_to_do() {
    let error = kit::program().failure(1, &["serve", "-c", "nowhere.yaml"]);
    assert!(
        error.contains("nowhere.yaml") && error.contains("tollgate init"),
        "{error}"
    );
}

#[test]
fn a_wrong_file_is_refused_with_its_lines() {
    let program = kit::program();
    program.write(
        "tollgate.yaml",
        "admin: { listen: 127.0.0.1:0 }\nrulez: []\n",
    );
    let error = program.failure(2, &["serve"]);
    assert!(
        error.contains("did you mean \"rules\"?") && error.contains("tollgate.yaml:2:1"),
        "{error}"
    );
}

#[test]
fn an_address_in_use_fails_the_start_with_help() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let program = kit::program();
    program.write(
        "tollgate.yaml",
        &CONFIG.replace("127.0.0.1:0", &address.to_string()),
    );
    let error = program.failure(1, &["serve"]);
    for words in [
        &format!("admin cannot listen at {address}"),
        "another program listens there",
        "admin.listen",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    assert!(!error.contains("listening"), "{error}");
}

#[test]
fn the_log_names_listeners_rules_and_store() {
    let running = kit::serve(CONFIG);
    let log = running.log();
    for line in log.lines() {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    for words in [
        "\"rules\":2",
        "\"generation\":1",
        "memory, for this process alone",
        "\"listener\":\"admin\"",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert_eq!(running.get("admin", "/livez", &[]).status, 200);
}

#[test]
fn tools_find_a_listener_in_the_log() {
    let running = kit::serve(&format!("{CONFIG}service: {{ listen: 127.0.0.1:0 }}\n"));
    let tool = |path: &str| {
        let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    // `make openapi` takes the address of the service out of the log by sed.
    let check = tool("tools/openapi/check");
    let (_, command) = check.split_once("sed -nE '").unwrap();
    let (expression, _) = command.split_once('\'').unwrap();
    let log = running.program.folder().join("copied.log");
    std::fs::write(&log, running.log()).unwrap();
    let mut sed = Command::new("sed");
    let found = sed.args(["-nE", expression]).arg(log).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.trim(), running.address("service").to_string());
    // `make surge` reads the same field of each line.
    let surge = tool("bench/surge/surge.py");
    assert!(
        surge.contains("addresses[entry[\"listener\"]] ="),
        "{surge}"
    );
}

#[test]
fn sighup_reloads_and_a_wrong_file_changes_nothing() {
    let running = kit::serve(CONFIG);
    let generation =
        || running.get("admin", "/v1/status", &[]).json()["rules"]["generation"].as_u64();
    assert_eq!(generation(), Some(1));
    running
        .program
        .write("tollgate.yaml", &CONFIG.replace("burst 50", "burst 60"));
    running.signal("HUP");
    running.wait_for_log("received SIGHUP");
    until("the second generation", || generation() == Some(2));
    running
        .program
        .write("tollgate.yaml", &CONFIG.replace("burst 50", "burts 50"));
    running.signal("HUP");
    running.wait_for_log("is refused, the last valid generation stays in force");
    assert_eq!(generation(), Some(2));
    assert_eq!(running.count("tollgate_rules_refused_total"), 1);
}

fn wait_for_a_decision(running: &Running) {
    until("a decision", || running.decisions() == 1);
}

#[test]
fn sigterm_drains_and_reports_not_ready() {
    let mut running = kit::program().serve_demo();
    let (gateway, admin) = (running.address("gateway"), running.address("admin"));
    assert_eq!(running.get("admin", "/readyz", &[]).status, 200);
    let slow = std::thread::spawn(move || get(gateway, "/slow"));
    wait_for_a_decision(&running);
    running.signal("TERM");
    running.wait_for_log("received SIGTERM or SIGINT, shutting down");
    // The slow request takes two seconds. If the machine was suspended for longer, no listener is left.
    if let Ok(ready) = get(admin, "/readyz") {
        assert_eq!(ready.status, 503, "{ready:?}");
        assert_eq!(ready.json()["stage"], "stopping", "{ready:?}");
    }
    let response = slow.join().unwrap().unwrap();
    assert_eq!(response.status, 200, "{response:?}");
    assert!(response.text().contains("two seconds"), "{response:?}");
    // Its ports are not tried again: another demo may listen there by now, because demos prefer the same ports.
    assert_eq!(running.wait_for_exit().code(), Some(0), "{}", running.log());
}

#[test]
fn the_start_warns_of_a_store_that_would_reset_limits() {
    let redis = RedisServer::start();
    let reply = redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(reply.contains("OK"), "{reply}");
    let running = kit::serve(&format!("{CONFIG}store: {{ redis: {:?} }}\n", redis.url()));
    running.wait_for_log("the store may break guarantees");
    running.wait_for_log("maxmemory-policy allkeys-lru");
}

/// Connection pools of clients keep idle connections, and notice only at the next request that one was closed.
#[test]
fn idle_connections_do_not_delay_the_shutdown() {
    let mut running = kit::serve(&format!(
        "{CONFIG}gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ path: /, to: [\"http://127.0.0.1:9\"] }}] }}\n\
         service: {{ listen: 127.0.0.1:0 }}\n"
    ));
    let listeners = ["gateway", "service", "admin"];
    let kept: Vec<TcpStream> = (listeners.iter())
        .flat_map(|listener| {
            let silent = TcpStream::connect(running.address(listener)).unwrap();
            let mut idle = TcpStream::connect(running.address(listener)).unwrap();
            idle.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
                .unwrap();
            let mut part = [0; 4_096];
            assert!(idle.read(&mut part).unwrap() > 0);
            // An HTTP/2 connection without a request is idle as well.
            let mut http2 = TcpStream::connect(running.address(listener)).unwrap();
            http2
                .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
                .unwrap();
            assert!(http2.read(&mut part).unwrap() > 0);
            [silent, idle, http2]
        })
        .collect();
    // A connection must have been idle for a second, which cannot be observed from outside.
    std::thread::sleep(Duration::from_millis(1_500));
    running.signal("TERM");
    let start = Instant::now();
    assert_eq!(running.wait_for_exit().code(), Some(0), "{}", running.log());
    let took = start.elapsed();
    let log = running.log();
    assert!(!log.contains("cutting connections"), "{log}");
    // One second for the other listeners and then one for admin. Waiting for idle clients would take five more.
    assert!(took < Duration::from_secs(5), "{took:?}: {log}");
    drop(kept);
}

/// Clients that have said that they will send no more, and wait.
#[test]
fn half_closed_connections_do_not_delay_the_shutdown() {
    let mut running = kit::serve(&format!(
        "{CONFIG}gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ path: /, to: [\"http://127.0.0.1:9\"] }}] }}\n\
         service: {{ listen: 127.0.0.1:0 }}\n"
    ));
    let beginnings: [&[u8]; 4] = [
        b"",
        b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nho",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ];
    let kept: Vec<TcpStream> = (["gateway", "service", "admin"].iter())
        .flat_map(|listener| {
            beginnings.map(|beginning| {
                let mut client = TcpStream::connect(running.address(listener)).unwrap();
                client.write_all(beginning).unwrap();
                let is_answered = beginning.ends_with(b"\r\n\r\n") || beginning.starts_with(b"PRI");
                if is_answered {
                    assert!(client.read(&mut [0; 4_096]).unwrap() > 0);
                }
                client.shutdown(Shutdown::Write).unwrap();
                client
            })
        })
        .collect();
    running.signal("TERM");
    let start = Instant::now();
    assert_eq!(running.wait_for_exit().code(), Some(0), "{}", running.log());
    let (took, log) = (start.elapsed(), running.log());
    assert!(!log.contains("cutting connections"), "{log}");
    assert!(took < Duration::from_secs(5), "{took:?}: {log}");
    drop(kept);
}

#[test]
fn a_second_signal_stops_it_at_once() {
    // A server that accepts requests and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = silent.local_addr().unwrap();
    let mut running = kit::serve(&format!(
        "{CONFIG}gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ path: /, to: [\"http://{upstream}\"] }}] }}\n"
    ));
    let gateway = running.address("gateway");
    let slow = std::thread::spawn(move || get(gateway, "/slow"));
    wait_for_a_decision(&running);
    running.signal("TERM");
    running.wait_for_log("received SIGTERM or SIGINT, shutting down");
    running.signal("INT");
    assert_eq!(running.wait_for_exit().code(), Some(1));
    running.wait_for_log("received a second signal: stopped at once");
    assert!(slow.join().unwrap().is_err(), "the request was cut");
}

#[test]
fn during_the_shutdown_delay_it_listens_and_is_not_ready() {
    let mut running = kit::serve(&format!("{CONFIG}shutdown_delay: 3s\n"));
    running.signal("TERM");
    running.wait_for_log("received SIGTERM or SIGINT, shutting down");
    let look = || running.get("admin", "/readyz", &[]).status;
    until_value("the end of readiness", look, |status| *status == 503);
    assert_eq!(running.get("admin", "/livez", &[]).status, 200);
    assert_eq!(running.wait_for_exit().code(), Some(0), "{}", running.log());
}

/// Sends requests until `done`, each on a connection of its own. Returns what went wrong.
fn load(
    at: SocketAddr,
    path: &'static str,
    done: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
) -> JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut failures = Vec::new();
        while !done.load(Relaxed) {
            match get(at, path) {
                Ok(response) if matches!(response.status, 200 | 404 | 429) => {}
                Ok(response) => failures.push(format!("{response:?}")),
                Err(error) => failures.push(error.to_string()),
            }
            sent.fetch_add(1, Relaxed);
        }
        failures
    })
}

fn assert_is_another_process(running: &Running, status: &Value) {
    assert!(status["pid"].is_u64(), "{status}");
    assert_ne!(status["pid"], json!(running.pid()), "{status}");
}

#[test]
fn sigusr2_hands_over_to_a_new_program_without_a_failed_request() {
    let mut running = kit::program().serve_demo();
    let (gateway, admin) = (running.address("gateway"), running.address("admin"));
    let (done, sent) = <(Arc<AtomicBool>, Arc<AtomicU64>)>::default();
    let loads = [
        (gateway, "/hello"),
        (gateway, "/nothing"),
        (admin, "/readyz"),
    ]
    .map(|(at, path)| load(at, path, Arc::clone(&done), Arc::clone(&sent)));
    let wait_for_50_more = || {
        let before = sent.load(Relaxed);
        until("more requests", || sent.load(Relaxed) >= before + 50);
    };
    wait_for_50_more();
    running.signal("USR2");
    assert_eq!(running.wait_for_exit().code(), Some(0), "{}", running.log());
    running.wait_for_log("restarted: the new process has the sockets");
    wait_for_50_more();
    let status = get(admin, "/v1/status").unwrap().json();
    assert_is_another_process(&running, &status);
    assert_eq!(status["health"]["ready"], true, "{status}");
    done.store(true, Relaxed);
    let failures = loads.map(|load| load.join().unwrap()).concat();
    assert!(failures.is_empty(), "{failures:?} {}", running.log());
}

#[test]
fn a_restart_that_fails_changes_nothing() {
    let mut running = kit::serve(CONFIG);
    let admin = running.address("admin");
    running.program.write("tollgate.yaml", "rulez: []\n");
    running.signal("USR2");
    running.wait_for_log("restart failed, this process keeps serving");
    running.wait_for_log("the new process ended before it was ready: exit status: 2");
    assert_eq!(get(admin, "/readyz").unwrap().status, 200);
    running.program.write("tollgate.yaml", CONFIG);
    running.signal("USR2");
    assert_eq!(running.wait_for_exit().code(), Some(0), "{}", running.log());
    let status = get(admin, "/v1/status").unwrap().json();
    assert_is_another_process(&running, &status);
}

#[test]
fn systemd_sockets_are_used_and_systemd_is_notified() {
    let folder = tempfile::tempdir().unwrap();
    let systemd = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    systemd.set_read_timeout(Some(TIMEOUT)).unwrap();
    let notification = || {
        let mut state = [0; 100];
        let length = systemd.recv(&mut state).unwrap();
        let state = String::from_utf8_lossy(&state[..length]);
        state.trim_end().to_owned()
    };
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    // The socket is matched by its address, because its name is not that of a listener.
    let config = CONFIG.replace("127.0.0.1:0", &address.to_string());
    let running = kit::program().serve_with(&config, |command| {
        let mapping = FdMapping {
            parent_fd: socket.into(),
            child_fd: 3,
        };
        command.fd_mappings(vec![mapping]).unwrap();
        command.env("LISTEN_FDS", "1");
        command.env("LISTEN_FDNAMES", "tollgate.socket");
        command.env("NOTIFY_SOCKET", folder.path().join("notify"));
    });
    assert_eq!(notification(), "READY=1");
    assert_eq!(running.address("admin"), address);
    assert_eq!(running.get("admin", "/livez", &[]).status, 200);
    running.signal("USR2");
    // The new process notifies as well, and the old one sends the new process id.
    let mut notifications = [notification(), notification()];
    notifications.sort();
    assert!(
        notifications[0].starts_with("MAINPID=") && notifications[1] == "READY=1",
        "{notifications:?}"
    );
    assert_ne!(notifications[0], format!("MAINPID={}", running.pid()));
}

/// What a line prints in a shell.
fn pasted(line: &str) -> String {
    let output = Command::new("bash").args(["-c", line]).output().unwrap();
    assert!(output.status.success(), "{line}: {}", stderr(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_demo_prints_lines_that_work_when_they_are_pasted() {
    let running = kit::program().serve_demo();
    let look = || running.stdout();
    let printed = until_value("what to try", look, |stdout| stdout.contains("Ctrl-C"));
    let is_line = |line: &&str| line.starts_with("  for ") || line.starts_with("  curl ");
    let lines: Vec<&str> = printed.lines().filter(is_line).collect();
    let [hello, headers, alice, charges, drivers, decisions, top] = lines[..] else {
        panic!("other lines: {lines:?}")
    };
    let statuses = pasted(hello);
    let statuses: Vec<&str> = statuses.lines().collect();
    assert_eq!(statuses[..5], ["200"; 5], "{statuses:?}");
    assert_eq!(statuses.len(), 7, "{statuses:?}");
    let headers = pasted(headers).to_ascii_lowercase();
    assert!(
        headers.contains("ratelimit-policy: ") && headers.contains("x-ratelimit-limit: 5"),
        "{headers}"
    );
    assert_eq!(pasted(alice).lines().collect::<Vec<_>>(), ["200"; 7]);
    let charges = pasted(charges);
    let charged = charges.lines().filter(|status| *status == "200").count();
    assert_eq!(charged, 3, "{charges}");
    let drivers = pasted(drivers);
    let accepted = drivers.lines().filter(|line| line.starts_with("200"));
    assert!((4..=6).contains(&accepted.count()), "{drivers}");
    assert!(drivers.contains("429"), "{drivers}");
    let decisions = pasted(decisions);
    assert!(
        decisions.contains("rule=\"charges\",outcome=\"denied\"} 2"),
        "{decisions}"
    );
    assert!(pasted(top).contains("ip:127.0.0.1"));
}
