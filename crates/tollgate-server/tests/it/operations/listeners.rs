//! Bounds that every listener has: connections in all and of one address, and requests that wait in queues.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc;

use socket2::{Domain, Socket, Type};

use crate::served::ask;
use crate::serving::{Serving, until};

const HOME: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn config(rest: &str) -> String {
    format!(
        "
service: {{ listen: 127.0.0.1:0, connections_per_address: 3 }}
admin: {{ listen: 127.0.0.1:0, connections_per_address: 3 }}
log: {{ format: json }}
{rest}
rules: [{{ id: everyone, per: [], limit: \"1000/s\" }}]
"
    )
}

/// A connection from this address that sends nothing.
fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// A figure of `/metrics`, asked for over a connection from another address than the test's others.
fn figure(serving: &Serving, name: &str) -> u64 {
    use std::io::{Read as _, Write as _};
    let mut stream = connect(ELSEWHERE, serving.address("admin"));
    let request = "GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let line = response.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("{name} is not in {response}"));
    line.trim().parse().unwrap()
}

#[test]
fn one_address_cannot_take_all_connections() {
    let serving = Serving::by(&config(""));
    for listener in ["service", "admin"] {
        let address = serving.address(listener);
        let idle: Vec<TcpStream> = (0..10).map(|_| connect(HOME, address)).collect();
        let refused =
            format!("tollgate_{listener}_connections_refused_total{{reason=\"address\"}}");
        until(
            "seven to be refused",
            || figure(&serving, &refused),
            |count| *count == 7,
        );
        drop(idle);
    }
}

#[test]
fn connections_of_trusted_proxies_are_not_counted() {
    let serving = Serving::by(&config("identity: { trusted_proxies: [127.0.0.1] }"));
    for listener in ["service", "admin"] {
        let address = serving.address(listener);
        let idle: Vec<TcpStream> = (0..10).map(|_| connect(HOME, address)).collect();
        let open = format!("tollgate_{listener}_connections_open");
        // The one that asks for the figure may be among them.
        until(
            "all to be open",
            || figure(&serving, &open),
            |count| *count >= 10,
        );
        let refused =
            format!("tollgate_{listener}_connections_refused_total{{reason=\"address\"}}");
        assert_eq!(figure(&serving, &refused), 0);
        drop(idle);
    }
}

/// Asks about 30 requests at a time that count for these client addresses; returns the statuses.
fn forward_auth(serving: &Serving, client: impl Fn(u8) -> String) -> Vec<u16> {
    let service = serving.address("service");
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        for nth in 0..30 {
            let tell = tell.clone();
            let headers = format!(
                "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\nX-Forwarded-For: {}\r\n",
                client(nth)
            );
            scope.spawn(move || {
                let reply = ask(service, "GET", "/v1/forward-auth", &headers, "");
                tell.send(reply.status).unwrap();
            });
        }
    });
    drop(tell);
    told.into_iter().collect()
}

fn denied(statuses: &[u16]) -> usize {
    statuses.iter().filter(|status| **status == 429).count()
}

#[test]
fn queued_requests_of_one_client_leave_room_for_others() {
    let config = |limits: &str, per: &str| {
        format!(
            "
service: {{ listen: 127.0.0.1:0, {limits} }}
log: {{ format: json }}
identity: {{ trusted_proxies: [127.0.0.1] }}
rules: [{{ id: queue, per: [{per}], limit: \"1/s queue 30\" }}]
"
        )
    };
    let serving = Serving::by(&config("waiting_per_address: 2", "ip"));
    let one = forward_auth(&serving, |_| "203.0.113.1".to_owned());
    // All thirty fit into the queue. One goes at once; a few more may while the others come.
    assert!((20..=27).contains(&denied(&one)), "{one:?}");
    let others = forward_auth(&serving, |nth| format!("203.0.113.{}", 100 + nth));
    assert_eq!(denied(&others), 0, "{others:?}");

    let serving = Serving::by(&config("max_waiting: 2", ""));
    let all = forward_auth(&serving, |nth| format!("203.0.113.{nth}"));
    assert!((20..=27).contains(&denied(&all)), "{all:?}");
}
