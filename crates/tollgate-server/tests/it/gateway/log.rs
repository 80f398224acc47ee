//! Names of requests, and the access log.

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::gateway::{PLENTY, start, start_in};

const TRUSTED: &str = "identity: { trusted_proxies: [127.0.0.1], client: [\"header:X-User\", ip] }";

fn ask(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n")
}

#[tokio::test]
async fn a_name_is_taken_over_only_from_a_trusted_proxy_and_only_if_it_is_plain() {
    let front = start("", PLENTY).await;
    let heard = front.exchange(ask("/", "X-Request-Id: mine\r\n")).await;
    let made = heard[0].field("x-request-id").unwrap().to_owned();
    assert_eq!(made.len(), 32);
    let seen = front.behind.requests.lock()[0].2.clone();
    assert_eq!(
        seen.get_all("x-request-id").iter().collect::<Vec<_>>(),
        [&made]
    );
    front.end().await;

    let front = start("", &format!("{TRUSTED}\n{PLENTY}")).await;
    for (given, is_taken) in [
        ("theirs-1.2_3", true),
        ("a b", false),
        ("<script>", false),
        (&*"x".repeat(65), false),
    ] {
        let heard = front
            .exchange(ask("/", &format!("X-Request-Id: {given}\r\n")))
            .await;
        let named = heard[0].field("x-request-id").unwrap();
        assert_eq!(named == given, is_taken, "{named}");
        let seen = front.behind.requests.lock().last().unwrap().2.clone();
        assert_eq!(
            seen.get_all("x-request-id").iter().collect::<Vec<_>>(),
            [named]
        );
    }
    front.end().await;
}

/// Runs a few requests, good and evil, and gives the lines of the log.
async fn logged(format: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let fields = format!(
        "access_log: {format}, access_log_file: \"{}\"",
        file.display()
    );
    let rules =
        format!("{TRUSTED}\nrules: [{{ id: user, per: [client], limit: \"1/h burst 2\" }}]");
    let front = start_in(folder, &fields, &rules).await;
    let user = "X-User: bob\r\nX-Request-Id: one\r\nX-Forwarded-For: 203.0.113.7\r\n";
    for _ in 0..3 {
        front.exchange(ask("/v1/charges?card=4242", user)).await;
    }
    let evil = "X-User: eve\" 200 \\n{\\\"status\\\":200}\r\nX-Request-Id: a\"b\r\n";
    front.exchange(ask("/a%0Ab%1B%5B2J\"c", evil)).await;
    front.exchange("GET / HTTP/1.1\r\n\r\n\0").await;
    let mut gone = TcpStream::connect(front.address).await.unwrap();
    gone.write_all(b"GET /wait/600000 HTTP/1.1\r\nHost: a\r\nX-User: carol\r\n\r\n")
        .await
        .unwrap();
    front.behind.until(3).await;
    drop(gone);
    front
        .until_figure(
            "tollgate_gateway_requests_total{status=\"none\"}",
            |count| count == 1,
        )
        .await;
    let folder = front.end().await;
    let text = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_log_in_json_says_who_asked_for_what_and_what_came_of_it() {
    let lines = logged("json").await;
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 6, "{lines:#?}");
    for line in &lines[..3] {
        assert_eq!(line["client"], "x-user:bob");
        assert_eq!(line["ip"], "203.0.113.7");
        assert_eq!(line["path"], "/v1/charges");
        assert_eq!(
            (&line["method"], &line["protocol"]),
            (&"GET".into(), &"HTTP/1.1".into())
        );
        assert_eq!(line["request_id"], "one");
        assert!(line["seconds"].as_f64().unwrap() > 0.0);
        assert!(!line.to_string().contains("4242"));
    }
    let figures = |nth: usize| {
        (
            lines[nth]["status"].as_u64(),
            lines[nth]["remaining"].as_u64(),
            lines[nth]["denied_by"].as_str(),
        )
    };
    assert_eq!(figures(0), (Some(200), Some(1), None));
    assert_eq!(figures(1), (Some(200), Some(0), None));
    assert_eq!(figures(2), (Some(429), Some(0), Some("user")));
    assert_eq!(lines[0]["bytes"], 5);
    assert!(lines[0].get("broken_off").is_none());
    assert_ne!(lines[3]["request_id"], "a\"b");
    assert_eq!(
        (&lines[4]["status"], &lines[4]["client"]),
        (&400.into(), &"ip:127.0.0.1".into())
    );
    assert_eq!(
        (&lines[5]["status"], &lines[5]["broken_off"]),
        (&499.into(), &true.into())
    );
    assert_eq!(lines[5]["client"], "x-user:carol");
}

#[tokio::test]
async fn the_log_for_people_has_a_line_for_each_request_and_no_line_of_a_callers_own() {
    let lines = logged("text").await;
    assert_eq!(lines.len(), 6, "{lines:#?}");
    let denied = &lines[2];
    assert!(
        denied.contains(" 203.0.113.7 \"x-user:bob\" \"GET /v1/charges HTTP/1.1\" 429 "),
        "{denied}"
    );
    assert!(
        denied.ends_with(" one denied_by=user remaining=0 source=store"),
        "{denied}"
    );
    assert!(
        lines
            .iter()
            .all(|line| line.starts_with("20") && line.as_bytes()[10] == b'T'),
        "{lines:#?}"
    );
    assert!(
        lines.iter().all(|line| !line.contains(char::is_control)),
        "{lines:#?}"
    );
}
