//! `tollgate serve`: how it starts, hears signals, hands over and ends.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt as _, FdMapping};

use tollgate_testing::servers::RedisServer;

use crate::program::{Program, stderr};
use crate::serving::{PATIENCE, Serving, ask, until};

const CONFIG: &str = "
admin: { listen: 127.0.0.1:0 }
log: { format: json }
rules:
  - { id: client, per: [client], limit: \"10/s burst 50\" }
  - { id: everyone, per: [], limit: \"1000/s\" }
";

fn refused(config: Option<&str>, args: &[&str]) -> (Option<i32>, String) {
    let program = Program::new();
    if let Some(config) = config {
        program.write("tollgate.yaml", config);
    }
    let mut command = program.bare(&[&["serve"], args].concat());
    let output = command.stdout(Stdio::null()).output().unwrap();
    (output.status.code(), stderr(&output))
}

#[test]
fn a_missing_file_is_reported_with_what_to_do() {
    let (code, said) = refused(None, &["-c", "nowhere.yaml"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("nowhere.yaml") && said.contains("tollgate init"),
        "{said}"
    );
}

#[test]
fn a_wrong_file_is_refused_with_its_lines() {
    let (code, said) = refused(Some("admin: { listen: 127.0.0.1:0 }\nrulez: []\n"), &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("did you mean \"rules\"?") && said.contains("tollgate.yaml:2:1"),
        "{said}"
    );
}

#[test]
fn an_address_in_use_fails_the_start_with_help() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let (code, said) = refused(
        Some(&CONFIG.replace("127.0.0.1:0", &address.to_string())),
        &[],
    );
    assert_eq!(code, Some(1), "{said}");
    for words in [
        &format!("admin cannot listen at {address}"),
        "another program listens there",
        "admin.listen",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("listening"), "{said}");
}

#[test]
fn the_log_names_listeners_rules_and_store() {
    let serving = Serving::by(CONFIG);
    let log = serving.log();
    for line in log.lines() {
        serde_json::from_str::<serde_json::Value>(line)
            .unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    for words in [
        "\"rules\":2",
        "\"generation\":1",
        "memory, for this process alone",
        "\"door\":\"admin\"",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert_eq!(serving.get("admin", "/livez", &[]).status, 200);
}

#[test]
fn sighup_reloads_and_a_wrong_file_changes_nothing() {
    let serving = Serving::by(CONFIG);
    let generation =
        || serving.get("admin", "/v1/status", &[]).json()["rules"]["generation"].as_u64();
    assert_eq!(generation(), Some(1));
    serving
        .program
        .write("tollgate.yaml", &CONFIG.replace("burst 50", "burst 60"));
    serving.signal("HUP");
    serving.wait_for("again, as told");
    until("the second generation", generation, |generation| {
        *generation == Some(2)
    });
    serving
        .program
        .write("tollgate.yaml", &CONFIG.replace("burst 50", "burts 50"));
    serving.signal("HUP");
    serving.wait_for("is refused, and the last good generation stays in force");
    assert_eq!(generation(), Some(2));
    let metrics = serving.get("admin", "/metrics", &[]).body;
    assert!(
        metrics.contains("\ntollgate_rules_refused_total 1\n"),
        "{metrics}"
    );
}

/// How many requests were decided so far.
pub(crate) fn decided(serving: &Serving) -> u64 {
    let metrics = serving.get("admin", "/metrics", &[]).body;
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("tollgate_decisions_total"));
    lines
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[test]
fn sigterm_drains_and_reports_not_ready() {
    let mut serving = Serving::demo();
    let (gateway, admin) = (serving.address("gateway"), serving.address("admin"));
    assert_eq!(serving.get("admin", "/readyz", &[]).status, 200);
    let slow = std::thread::spawn(move || ask(gateway, "GET", "/slow", &[]));
    until(
        "the request to be under way",
        || decided(&serving),
        |decided| *decided == 1,
    );
    serving.signal("TERM");
    serving.wait_for("stopping, as told");
    // It takes two seconds, and this asks at once; if the machine slept for so long, nothing is there to be asked.
    if let Ok(ready) = ask(admin, "GET", "/readyz", &[]) {
        assert_eq!(
            (ready.status, &ready.json()["stage"]),
            (503, &"stopping".into()),
            "{ready:?}"
        );
    }
    let answer = slow.join().unwrap().unwrap();
    assert_eq!(
        (answer.status, answer.body.contains("two seconds")),
        (200, true),
        "{answer:?}"
    );
    // With it, nobody listens any more. Whoever asks may hear another demo, which takes the usual ports when they are free.
    assert_eq!(serving.ended().code(), Some(0), "{}", serving.log());
}

#[test]
fn a_store_that_would_reset_limits_is_warned_of_at_the_start() {
    let redis = RedisServer::start();
    let said = redis.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(said.contains("OK"), "{said}");
    let serving = Serving::by(&format!("{CONFIG}store: {{ redis: {:?} }}\n", redis.url()));
    serving.wait_for("the store may break promises");
    serving.wait_for("maxmemory-policy allkeys-lru");
}

/// As pools of connections do: they read when they send the next request, and notice the end of the connection then.
#[test]
fn idle_connections_do_not_delay_the_shutdown() {
    let mut serving = Serving::by(&format!(
        "{CONFIG}gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ path: /, to: [\"http://127.0.0.1:9\"] }}] }}\n\
         service: {{ listen: 127.0.0.1:0 }}\n"
    ));
    let doors = ["gateway", "service", "admin"];
    let kept: Vec<TcpStream> = (doors.iter())
        .flat_map(|door| {
            let silent = TcpStream::connect(serving.address(door)).unwrap();
            let mut idle = TcpStream::connect(serving.address(door)).unwrap();
            idle.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
                .unwrap();
            let mut some = [0; 4_096];
            assert!(idle.read(&mut some).unwrap() > 0);
            // Without a request, HTTP/2 is idle as well.
            let mut two = TcpStream::connect(serving.address(door)).unwrap();
            two.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
                .unwrap();
            assert!(two.read(&mut some).unwrap() > 0);
            [silent, idle, two]
        })
        .collect();
    // Nothing shows from outside that a connection has been idle for a second, which it must have been.
    std::thread::sleep(Duration::from_millis(1_500));
    serving.signal("TERM");
    let begun = Instant::now();
    assert_eq!(serving.ended().code(), Some(0), "{}", serving.log());
    let took = begun.elapsed();
    let log = serving.log();
    assert!(!log.contains("connections are cut"), "{log}");
    // Twice a second of quiet, as the admin interface ends last. It was five seconds more.
    assert!(took < Duration::from_secs(5), "{took:?}: {log}");
    drop(kept);
}

#[test]
fn a_second_signal_stops_it_at_once() {
    // A server that takes requests and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = silent.local_addr().unwrap();
    let mut serving = Serving::by(&format!(
        "{CONFIG}gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ path: /, to: [\"http://{upstream}\"] }}] }}\n"
    ));
    let gateway = serving.address("gateway");
    let slow = std::thread::spawn(move || ask(gateway, "GET", "/slow", &[]));
    until(
        "the request to be under way",
        || decided(&serving),
        |decided| *decided == 1,
    );
    serving.signal("TERM");
    serving.wait_for("stopping, as told");
    serving.signal("INT");
    assert_eq!(serving.ended().code(), Some(1));
    serving.wait_for("ended at once, as told a second time");
    assert!(slow.join().unwrap().is_err(), "the request was cut");
}

#[test]
fn during_the_shutdown_delay_it_listens_and_is_not_ready() {
    let mut serving = Serving::by(&format!("{CONFIG}shutdown_delay: 3s\n"));
    serving.signal("TERM");
    serving.wait_for("stopping, as told");
    let ready = serving.get("admin", "/readyz", &[]);
    assert_eq!(ready.status, 503, "{ready:?}");
    assert_eq!(serving.get("admin", "/livez", &[]).status, 200);
    assert_eq!(serving.ended().code(), Some(0), "{}", serving.log());
}

/// Asks again and again, on a connection of its own each time; what went wrong is kept.
fn load(
    at: SocketAddr,
    path: &'static str,
    done: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let mut wrong = Vec::new();
        while !done.load(Relaxed) {
            match ask(at, "GET", path, &[]) {
                Ok(answer) if matches!(answer.status, 200 | 404 | 429) => {}
                Ok(answer) => wrong.push(format!("{answer:?}")),
                Err(error) => wrong.push(error.to_string()),
            }
            asked.fetch_add(1, Relaxed);
        }
        wrong
    })
}

#[test]
fn sigusr2_hands_over_to_a_new_program_without_a_failed_request() {
    let mut serving = Serving::demo();
    let (gateway, admin) = (serving.address("gateway"), serving.address("admin"));
    let (done, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let loads: Vec<_> = [
        (gateway, "/hello"),
        (gateway, "/nothing"),
        (admin, "/readyz"),
    ]
    .map(|(at, path)| load(at, path, Arc::clone(&done), Arc::clone(&asked)))
    .into();
    let more = |some: u64| {
        let before = asked.load(Relaxed);
        until(
            "more requests",
            || asked.load(Relaxed),
            |now| *now >= before + some,
        );
    };
    more(50);
    serving.signal("USR2");
    assert_eq!(serving.ended().code(), Some(0), "{}", serving.log());
    serving.wait_for("it has the sockets, and this one ends");
    more(50);
    let status = ask(admin, "GET", "/v1/status", &[]).unwrap().json();
    assert_ne!(
        status["pid"].as_u64(),
        Some(u64::from(serving.pid())),
        "{status}"
    );
    assert_eq!(status["health"]["ready"], true, "{status}");
    done.store(true, Relaxed);
    let wrong: Vec<_> = loads
        .into_iter()
        .flat_map(|load| load.join().unwrap())
        .collect();
    assert!(wrong.is_empty(), "{wrong:?} {}", serving.log());
}

#[test]
fn a_restart_that_fails_changes_nothing() {
    let mut serving = Serving::by(CONFIG);
    let admin = serving.address("admin");
    serving.program.write("tollgate.yaml", "rulez: []\n");
    serving.signal("USR2");
    serving.wait_for("the restart failed, and this program goes on");
    serving.wait_for("ended before it was ready: exit status: 2");
    assert_eq!(ask(admin, "GET", "/readyz", &[]).unwrap().status, 200);
    serving.program.write("tollgate.yaml", CONFIG);
    serving.signal("USR2");
    assert_eq!(serving.ended().code(), Some(0), "{}", serving.log());
    let status = ask(admin, "GET", "/v1/status", &[]).unwrap().json();
    assert_ne!(status["pid"].as_u64(), Some(u64::from(serving.pid())));
}

#[test]
fn systemd_sockets_are_used_and_systemd_is_notified() {
    let folder = tempfile::tempdir().unwrap();
    let told = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    told.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut words = [0; 100];
        let length = told.recv(&mut words).unwrap();
        String::from_utf8_lossy(&words[..length]).into_owned()
    };
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    // Found by its address, as it has another name.
    let config = CONFIG.replace("127.0.0.1:0", &address.to_string());
    let serving = Serving::started(&config, |command| {
        let mapping = FdMapping {
            parent_fd: socket.into(),
            child_fd: 3,
        };
        command.fd_mappings(vec![mapping]).unwrap();
        command.env("LISTEN_FDS", "1");
        command.env("LISTEN_FDNAMES", "tollgate.socket");
        command.env("NOTIFY_SOCKET", folder.path().join("notify"));
    });
    assert_eq!(hear(), "READY=1");
    assert_eq!(serving.address("admin"), address);
    assert_eq!(serving.get("admin", "/livez", &[]).status, 200);
    serving.signal("USR2");
    // The new program tells as well, and the old one whom to follow.
    let mut words = [hear(), hear()];
    words.sort();
    assert!(
        words[0].starts_with("MAINPID=") && words[1] == "READY=1",
        "{words:?}"
    );
    assert_ne!(words[0], format!("MAINPID={}", serving.pid()));
}

#[test]
fn the_demo_prints_lines_that_work_when_they_are_pasted() {
    let serving = Serving::demo();
    let printed = until(
        "what to try",
        || serving.out(),
        |out| out.contains("Ctrl-C"),
    );
    let is_line = |line: &&str| line.starts_with("  for ") || line.starts_with("  curl ");
    let pasted = |line: &str| {
        let output = std::process::Command::new("bash")
            .args(["-c", line])
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let lines: Vec<&str> = printed.lines().filter(is_line).collect();
    let [hello, told, alice, charges, drivers, decisions, top] = lines[..] else {
        panic!("other lines: {lines:?}")
    };
    let codes = pasted(hello);
    let codes: Vec<&str> = codes.lines().collect();
    assert_eq!(
        (codes[..5].to_vec(), codes.len()),
        (vec!["200"; 5], 7),
        "{codes:?}"
    );
    let told = pasted(told).to_ascii_lowercase();
    assert!(
        told.contains("ratelimit-policy: ") && told.contains("x-ratelimit-limit: 5"),
        "{told}"
    );
    assert_eq!(pasted(alice).lines().collect::<Vec<_>>(), ["200"; 7]);
    let charged = pasted(charges);
    assert_eq!(
        charged.lines().filter(|code| *code == "200").count(),
        3,
        "{charged}"
    );
    let drivers = pasted(drivers);
    let accepted = drivers
        .lines()
        .filter(|line| line.starts_with("200"))
        .count();
    assert!((4..=6).contains(&accepted), "{drivers}");
    assert!(drivers.contains("429"), "{drivers}");
    let decisions = pasted(decisions);
    assert!(
        decisions.contains("rule=\"charges\",outcome=\"denied\"} 2"),
        "{decisions}"
    );
    assert!(pasted(top).contains("ip:127.0.0.1"));
}
