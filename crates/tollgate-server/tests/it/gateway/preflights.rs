//! CORS preflights at the gateway: what browsers send before a request to another origin, and what anyone else can send as well.

use tollgate_testing::{Connection, Gateway};

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

/// Repeated denied requests on one connection take a shorter way through the gateway.
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
