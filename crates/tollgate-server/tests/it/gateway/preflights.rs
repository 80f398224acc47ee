//! CORS preflights at the gateway: what browsers ask before they ask another origin, and what others may send just as well.

use tokio::net::TcpStream;

use crate::gateway::{Front, start};
use crate::gateway_denials::ask;

const HOURLY: &str = "rules: [{ id: address, per: [ip], limit: \"1/h burst 2\" }]";

/// Sends so many for this path, each on a connection of its own, and returns what was answered.
async fn preflights(front: &Front, path: &str, count: usize) -> Vec<u16> {
    let said = format!(
        "OPTIONS {path} HTTP/1.1\r\nHost: a\r\nOrigin: https://example.com\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n"
    );
    let mut statuses = Vec::new();
    for _ in 0..count {
        let heard = front.exchange(&said).await;
        statuses.extend(heard.iter().map(|heard| heard.status));
    }
    statuses
}

#[tokio::test]
async fn a_flood_of_preflights_is_limited_like_any_other() {
    let front = start("", HOURLY).await;
    assert_eq!(
        preflights(&front, "/v1", 5).await,
        [200, 200, 429, 429, 429]
    );
    assert_eq!(front.behind.count(), 2);
}

#[tokio::test]
async fn preflights_pass_uncharged_where_that_is_wanted() {
    let front = start("preflights: pass", HOURLY).await;
    assert_eq!(preflights(&front, "/v1", 5).await, [200; 5]);
    // Nothing was taken for them.
    let heard = front.exchange("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    let statuses: Vec<u16> = heard.iter().map(|heard| heard.status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(front.behind.count(), 7);
}

/// Again and again on one connection, where denied ones are known again.
#[tokio::test]
async fn on_a_connection_that_is_kept_it_is_the_same() {
    for (fields, statuses) in [
        ("", [200, 200, 429, 429, 429, 429]),
        ("preflights: pass", [200; 6]),
    ] {
        let front = start(fields, HOURLY).await;
        let mut stream = TcpStream::connect(front.address).await.unwrap();
        let said = "OPTIONS /v1 HTTP/1.1\r\nHost: a\r\nOrigin: https://example.com\r\nAccess-Control-Request-Method: POST\r\n\r\n";
        let mut heard = Vec::new();
        for _ in 0..6 {
            heard.push(ask(&mut stream, said).await.status);
        }
        assert_eq!(heard, statuses, "{fields}");
        let passed = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(front.behind.count(), passed);
    }
}

/// Whether or not it is charged: servers could read it as a path that meets other rules.
#[tokio::test]
async fn the_path_of_a_preflight_is_judged_like_any_other() {
    let rules = format!("{HOURLY}\nroutes: [/admin]");
    for fields in ["", "preflights: pass"] {
        let front = start(fields, &rules).await;
        assert_eq!(preflights(&front, "//admin", 1).await, [400], "{fields}");
        assert_eq!(preflights(&front, "/a%2Fb", 1).await, [400], "{fields}");
        assert_eq!(preflights(&front, "/v1/..;/x", 1).await, [400], "{fields}");
        assert_eq!(front.behind.count(), 0);
        assert_eq!(preflights(&front, "//a/./%62?q=1", 1).await, [200]);
        let requests = front.behind.requests.lock();
        let (_, uri, _) = &requests[0];
        assert_eq!(uri, "//a/./%62?q=1", "{fields}");
    }
}
