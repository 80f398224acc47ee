//! The program with few file descriptors.

use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;

use tollgate_testing::client::{connect_from, request_from};
use tollgate_testing::upstream::reply;
use tollgate_testing::{Connection, Running, Upstream};

use crate::kit;

/// Starts a gateway with these soft and hard limits.
fn with_limits(soft: usize, hard: usize, upstream: &Upstream) -> Running {
    let config = format!(
        "
gateway: {{ listen: 127.0.0.1:0, max_connections: 1000, upstreams: [{{ path: /, to: [{:?}] }}] }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
rules: [{{ id: ip, per: [ip], limit: \"100000/s\" }}]
",
        upstream.url()
    );
    kit::program().serve_with(&config, |command| {
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={soft}:{hard}"));
        limited.arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            limited.current_dir(folder);
        }
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        *command = limited;
    })
}

/// An upstream that answers every request with 204.
fn upstream() -> Upstream {
    Upstream::answering(|_| async { reply(204, "") })
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let upstream = upstream();
    let running = with_limits(256, 4_096, &upstream);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.pid())).unwrap();
    let line = (limits
        .lines()
        .find(|line| line.starts_with("Max open files")))
    .unwrap();
    let soft = line.split_whitespace().nth(3);
    assert_eq!(soft, Some("4096"), "{line}");
    let log = running.log();
    assert!(!log.contains("file descriptors"), "{log}");
}

#[test]
fn idle_connections_do_not_use_up_the_descriptors() {
    let upstream = upstream();
    let running = with_limits(300, 300, &upstream);
    running.wait_for_log("the limit on file descriptors is too low");
    let gateway = running.address("gateway");
    // More than there are descriptors, from so many addresses that the limit per address does not apply.
    let idle: Vec<TcpStream> = (0..400_u16)
        .map(|nth| {
            let [_, host] = (nth + 10).to_be_bytes();
            let client = Ipv4Addr::new(127, 0, 1, host);
            connect_from(client.into(), gateway).unwrap()
        })
        .collect();
    for host in 1..=20 {
        let client = Ipv4Addr::new(127, 0, 2, host);
        let response = request_from(client.into(), gateway, "GET", "/", &[], "");
        let status = response.map(|response| response.status);
        assert!(
            matches!(status, Ok(204)),
            "{host}: {status:?}\n{}",
            running.log()
        );
    }
    drop(idle);
}

/// Sets the soft limit of a running program.
fn set_soft_limit(running: &Running, soft: &str) {
    let mut command = Command::new("prlimit");
    command.arg(format!("--pid={}", running.pid()));
    command.arg(format!("--nofile={soft}:"));
    assert!(command.status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn running_out_of_descriptors_blames_no_server() {
    const REQUESTS: u32 = 20;
    let upstream = upstream();
    let running = with_limits(1_024, 1_024, &upstream);
    let mut client = Connection::open(running.address("gateway")).await;
    running.until_metric("tollgate_gateway_connections_open", |open| open == 1.0);
    // Fewer than are open, so that no connection to an upstream can be opened.
    set_soft_limit(&running, "8");
    for nth in 0..REQUESTS {
        let response = client.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(response.status, 503, "{nth}: {response:?}");
    }
    set_soft_limit(&running, "1024");
    assert_eq!(upstream.hits(), 0);
    // The same server is used at once.
    let response = client.request("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(response.status, 204, "{}", running.log());
    let page = running.metrics();
    let lines = page.lines();
    let failures: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("tollgate_upstream_failures_total{"))
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    let expected = format!("upstream=\"/\",reason=\"no_descriptors\"}} {REQUESTS}");
    assert_eq!(failures, [expected]);
    let log = running.log();
    assert!(log.contains("descriptors"), "{log}");
    for words in [
        "a server failed",
        "set a server aside",
        "fails its checks",
        "unreachable",
    ] {
        assert!(!log.contains(words), "{words}: {log}");
    }
}
