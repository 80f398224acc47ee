//! CORS preflights at the gateway: what browsers send before a request to another origin, and what anyone else can send as well.

use serde_json::Value;
use tollgate_testing::gateway::PLENTY;
use tollgate_testing::{Connection, Gateway, Upstream};

use crate::kit;

const HOURLY: &str = "rules: [{ id: address, per: [ip], limit: \"1/h burst 2\" }]";

/// A preflight for this path, with more header lines.
fn preflight(path: &str, lines: &str) -> String {
    format!(
        "OPTIONS {path} HTTP/1.1\r\nHost: a\r\nOrigin: https://example.com\r\nAccess-Control-Request-Method: POST\r\n{lines}\r\n"
    )
}

/// The statuses of this many preflights for a path, each on a connection of its own.
async fn preflights(gateway: &Gateway, path: &str, count: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..count {
        let responses = gateway
            .exchange(preflight(path, "Connection: close\r\n"))
            .await;
        statuses.extend(responses.iter().map(|response| response.status));
    }
    statuses
}

#[tokio::test]
async fn a_flood_of_preflights_is_limited_like_any_other() {
    let gateway = kit::gateway("", HOURLY);
    assert_eq!(
        preflights(&gateway, "/v1", 5).await,
        [200, 200, 429, 429, 429]
    );
    assert_eq!(gateway.upstream.hits(), 2);
}

#[tokio::test]
async fn preflights_pass_uncharged_if_so_configured() {
    let gateway = kit::gateway("preflights: pass", HOURLY);
    assert_eq!(preflights(&gateway, "/v1", 5).await, [200; 5]);
    // Nothing was charged for them.
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let responses = gateway.exchange([get, get, last].concat()).await;
    let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(gateway.upstream.hits(), 7);
}

#[tokio::test]
async fn preflights_on_one_connection_are_treated_alike() {
    for (fields, expected) in [
        ("", [200, 200, 429, 429, 429, 429]),
        ("preflights: pass", [200; 6]),
    ] {
        let gateway = kit::gateway(fields, HOURLY);
        let mut client = Connection::open(gateway.address).await;
        let mut statuses = Vec::new();
        for _ in 0..6 {
            statuses.push(client.request(preflight("/v1", "")).await.status);
        }
        assert_eq!(statuses, expected, "{fields}");
        let allowed = expected.iter().filter(|status| **status == 200).count();
        assert_eq!(gateway.upstream.hits(), allowed);
    }
}

/// Whether or not a preflight is charged, upstreams could read such a path as one that meets other rules.
#[tokio::test]
async fn the_path_of_a_preflight_is_checked_like_any_other() {
    let rules = format!("{HOURLY}\nroutes: [/admin]");
    for fields in ["", "preflights: pass"] {
        let gateway = kit::gateway(fields, &rules);
        for path in ["//admin", "/a%2Fb", "/v1/..;/x"] {
            let statuses = preflights(&gateway, path, 1).await;
            assert_eq!(statuses, [400], "{fields} {path}");
        }
        assert_eq!(gateway.upstream.hits(), 0);
        let path = "//a/./%62?q=1";
        assert_eq!(preflights(&gateway, path, 1).await, [200]);
        assert_eq!(gateway.upstream.requests()[0].uri, path, "{fields}");
    }
}

/// Behind this machine as a trusted proxy.
const TRUSTED: &str = "identity: { trusted_proxies: [127.0.0.1], client: [\"header:X-User\", ip] }";

#[tokio::test]
async fn an_uncharged_preflight_is_logged_with_its_client() {
    let fields = "preflights: pass, access_log: json, access_log_file: FOLDER/access.log";
    let gateway = kit::gateway(fields, &format!("{TRUSTED}\n{HOURLY}"));
    let named = "X-User: bob\r\nX-Forwarded-For: 203.0.113.7\r\nConnection: close\r\n";
    // Its client can be read in two ways, so it has none.
    let ambiguous = format!("X-User: eve\r\n{named}");
    for lines in [named, &ambiguous] {
        let responses = gateway.exchange(preflight("/v1", lines)).await;
        assert_eq!(responses[0].status, 200);
    }
    let log = gateway.stop().read("access.log");
    let clients: Vec<_> = (log.lines())
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["ip"].clone(), line["client"].clone()))
        .collect();
    let address = Value::from("203.0.113.7");
    assert_eq!(
        clients,
        [
            (address.clone(), "x-user:bob".into()),
            (address, Value::Null)
        ]
    );
}

#[tokio::test]
async fn uncharged_preflights_of_one_client_leave_slots_to_others() {
    let upstream = Upstream::start();
    let to = upstream.url();
    let running = kit::serve(&format!(
        "gateway: {{ listen: 127.0.0.1:0, preflights: pass, upstreams: [{{ to: [{to:?}], max_connections: 16 }}] }}\n\
         {TRUSTED}\n{PLENTY}\n"
    ));
    let mut waiting = Vec::new();
    for _ in 0..40 {
        let mut client = Connection::open(running.address("gateway")).await;
        let request = preflight("/wait/600000", "X-Forwarded-For: 203.0.113.7\r\n");
        client.send(request).await;
        waiting.push(client);
    }
    // Its share: three quarters.
    upstream.until_hits(12).await;
    for other in 1..=20 {
        let mut client = Connection::open(running.address("gateway")).await;
        let request =
            format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.{other}\r\n\r\n");
        assert_eq!(client.request(request).await.status, 200, "{other}");
    }
    assert_eq!(upstream.hits(), 12 + 20);
}
