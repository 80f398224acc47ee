//! Limits of every listener: connections in all and per address, and requests that wait in queues.

use std::net::{IpAddr, Ipv4Addr, TcpStream};

use tollgate_testing::Running;
use tollgate_testing::client::{connect_from, request_from};
use tollgate_testing::program::metric;
use tollgate_testing::wait::until_value;

use crate::kit;

const IDLE_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const METRICS_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

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

/// Ten connections from one address that send nothing.
fn idle_connections(running: &Running, listener: &str) -> Vec<TcpStream> {
    let address = running.address(listener);
    let connect = |_| connect_from(IDLE_CLIENT, address).unwrap();
    (0..10).map(connect).collect()
}

/// A metric, requested from another address than that of the idle connections.
fn metric_of(running: &Running, name: &str) -> f64 {
    let admin = running.address("admin");
    let response = request_from(METRICS_CLIENT, admin, "GET", "/metrics", &[], "");
    let page = response.unwrap().text();
    metric(&page, name).unwrap_or_else(|| panic!("there is no {name} in\n{page}"))
}

fn refused_connections(running: &Running, listener: &str) -> f64 {
    let name = format!("tollgate_{listener}_connections_refused_total{{reason=\"address\"}}");
    metric_of(running, &name)
}

#[test]
fn one_address_cannot_take_all_connections() {
    let running = kit::serve(&config(""));
    for listener in ["service", "admin"] {
        let idle = idle_connections(&running, listener);
        let look = || refused_connections(&running, listener);
        until_value("seven refused connections", look, |count| *count == 7.0);
        drop(idle);
    }
}

#[test]
fn connections_of_trusted_proxies_are_not_counted() {
    let running = kit::serve(&config("identity: { trusted_proxies: [127.0.0.1] }"));
    for listener in ["service", "admin"] {
        let idle = idle_connections(&running, listener);
        let open = format!("tollgate_{listener}_connections_open");
        // The connection that requests the metric may be among them.
        let look = || metric_of(&running, &open);
        until_value("ten open connections", look, |count| *count >= 10.0);
        assert_eq!(refused_connections(&running, listener), 0.0);
        drop(idle);
    }
}

/// Sends 30 concurrent requests on behalf of these client addresses. Returns the statuses.
fn forward_auth(running: &Running, client: impl Fn(u8) -> String) -> Vec<u16> {
    std::thread::scope(|scope| {
        let requests: Vec<_> = (0..30)
            .map(|nth| {
                let forwarded_for = format!("X-Forwarded-For: {}", client(nth));
                scope.spawn(move || {
                    let headers = [
                        "X-Forwarded-Method: GET",
                        "X-Forwarded-Uri: /",
                        &forwarded_for,
                    ];
                    running.get("service", "/v1/forward-auth", &headers).status
                })
            })
            .collect();
        let statuses = requests.into_iter().map(|request| request.join().unwrap());
        statuses.collect()
    })
}

fn denied(statuses: &[u16]) -> usize {
    statuses.iter().filter(|status| **status == 429).count()
}

#[test]
fn queued_requests_of_one_client_leave_room_for_others() {
    let service = |limits: &str, per: &str| {
        kit::service(
            limits,
            &format!(
                "identity: {{ trusted_proxies: [127.0.0.1] }}
rules: [{{ id: queue, per: [{per}], limit: \"1/s queue 30\" }}]"
            ),
        )
    };
    let per_address = service("waiting_per_address: 2", "ip");
    let one = forward_auth(&per_address, |_| "203.0.113.1".to_owned());
    // All thirty fit into the queue. One is admitted at once, and a few more may be while the others arrive.
    assert!((20..=27).contains(&denied(&one)), "{one:?}");
    let others = forward_auth(&per_address, |nth| format!("203.0.113.{}", 100 + nth));
    assert_eq!(denied(&others), 0, "{others:?}");

    let in_all = service("max_waiting: 2", "");
    let all = forward_auth(&in_all, |nth| format!("203.0.113.{nth}"));
    assert!((20..=27).contains(&denied(&all)), "{all:?}");
}
