//! The program with few file descriptors.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use socket2::{Domain, Socket, Type};

use crate::serving::{PATIENCE, Serving};

/// Starts the program with these soft and hard limits.
fn with_limits(soft: usize, hard: usize, config: &str) -> Serving {
    Serving::started(config, |command| {
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

/// A server that answers every request with 204, one connection after the other.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 4_096];
                while stream.read(&mut buffer).is_ok_and(|count| count > 0) {
                    if stream
                        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn config(upstream: SocketAddr) -> String {
    format!(
        "
gateway: {{ listen: 127.0.0.1:0, max_connections: 1000, upstreams: [{{ path: /, to: [\"http://{upstream}\"] }}] }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
rules: [{{ id: ip, per: [ip], limit: \"100000/s\" }}]
"
    )
}

/// The status that a client at this address gets for one request.
fn status_for(client: Ipv4Addr, gateway: SocketAddr) -> String {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((client, 0)).into()).unwrap();
    socket.connect(&gateway.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    let _ = stream.read_to_string(&mut response);
    response.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let serving = with_limits(256, 4_096, &config(upstream()));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", serving.pid())).unwrap();
    let line = (limits
        .lines()
        .find(|line| line.starts_with("Max open files")))
    .unwrap();
    let soft = line.split_whitespace().nth(3);
    assert_eq!(soft, Some("4096"), "{line}");
    assert!(
        !serving.log().contains("file descriptors"),
        "{}",
        serving.log()
    );
}

#[test]
fn idle_connections_do_not_use_up_the_descriptors() {
    let serving = with_limits(300, 300, &config(upstream()));
    serving.wait_for("the limit on file descriptors is too low");
    let gateway = serving.address("gateway");
    // More than there are descriptors, from addresses enough that no bound per address holds them back.
    let idle: Vec<Socket> = (0..400_u16)
        .map(|nth| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let [_, host] = (nth + 10).to_be_bytes();
            let client = Ipv4Addr::new(127, 0, 1, host);
            socket.bind(&SocketAddr::from((client, 0)).into()).unwrap();
            socket.connect(&gateway.into()).unwrap();
            socket
        })
        .collect();
    for host in 1..=20 {
        let status = status_for(Ipv4Addr::new(127, 0, 2, host), gateway);
        assert_eq!(status, "HTTP/1.1 204 No Content", "{}", serving.log());
    }
    drop(idle);
}
