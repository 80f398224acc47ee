//! What servers may read in different ways: each such request, what it is answered with, and how many requests reached the service behind.

use std::time::Duration;

use serde_json::Value;

use crate::gateway::{PLENTY, start};

/// A name, what is said, the statuses of all answers, and how many requests reach the service behind. Every connection ends by itself.
pub(crate) type Case = (&'static str, String, &'static [u16], usize);

/// A request with these lines beside its first, and this after them.
fn post(lines: &str, rest: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nHost: a\r\n{lines}\r\n{rest}")
}

fn get(lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}Connection: close\r\n\r\n")
}

/// A second request, which must never be seen.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

fn lengths_and_codings() -> Vec<Case> {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let close = "Connection: close\r\n";
    vec![
        (
            "length before chunks: the chunks count, and nothing follows",
            post(
                &format!("Content-Length: 40\r\n{chunked}"),
                &format!("0\r\n\r\n{SMUGGLED}"),
            ),
            &[200],
            1,
        ),
        (
            "length behind chunks",
            post(
                &format!("{chunked}Content-Length: 4\r\n"),
                &format!("3\r\nabc\r\n0\r\n\r\n{SMUGGLED}"),
            ),
            &[200],
            1,
        ),
        (
            "a length that covers another request",
            post(
                &format!("{chunked}Content-Length: 6\r\n"),
                &format!("0\r\n\r\n{SMUGGLED}{SMUGGLED}"),
            ),
            &[200],
            1,
        ),
        (
            "two lengths",
            post("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"),
            &[400],
            0,
        ),
        (
            "the same length twice",
            post(
                &format!("Content-Length: 3\r\nContent-Length: 3\r\n{close}"),
                "abc",
            ),
            &[200],
            1,
        ),
        (
            "two lengths in a line",
            post("Content-Length: 3, 4\r\n", "abcd"),
            &[400],
            0,
        ),
        (
            "the same length twice in a line",
            post("Content-Length: 3, 3\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a length with a sign",
            post("Content-Length: +3\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a negative length",
            post("Content-Length: -3\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a length in hex",
            post("Content-Length: 0x3\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a length with a blank in it",
            post("Content-Length: 1 2\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "no length at all",
            post("Content-Length:\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a length beyond all numbers",
            post("Content-Length: 99999999999999999999\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a coding that is not known",
            post("Transfer-Encoding: gzip\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "a coding before chunks",
            post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
            &[501],
            0,
        ),
        (
            "a coding behind chunks",
            post("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "identity",
            post("Transfer-Encoding: identity\r\n", "abc"),
            &[400],
            0,
        ),
        (
            "chunks twice",
            post(&format!("{chunked}{chunked}"), "0\r\n\r\n"),
            &[501],
            0,
        ),
        (
            "chunks twice in a line",
            post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"),
            &[501],
            0,
        ),
        (
            "chunks and then not",
            post(
                &format!("{chunked}Transfer-Encoding: identity\r\n"),
                "0\r\n\r\n",
            ),
            &[400],
            0,
        ),
        (
            "something like chunked",
            post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "chunked in quotes",
            post("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "chunked behind a tab of another kind",
            post("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "a blank before the colon",
            post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "chunks in HTTP/1.0",
            format!("POST /echo HTTP/1.0\r\nHost: a\r\n{chunked}\r\n0\r\n\r\n"),
            &[400],
            0,
        ),
        (
            "chunks as they should be",
            post(&format!("{chunked}{close}"), "3\r\nabc\r\n0\r\n\r\n"),
            &[200],
            1,
        ),
    ]
}

/// The head is right, so these were decided on and the service has begun to read.
fn chunks() -> Vec<Case> {
    let chunked = |rest: &str| post("Transfer-Encoding: chunked\r\n", rest);
    vec![
        (
            "a chunk whose length is none",
            chunked("zz\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk of negative length",
            chunked("-1\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk without length",
            chunked("\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk with 0x",
            chunked("0x3\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk longer than it says",
            chunked("2\r\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk that ends without a line",
            chunked("3\r\nabc0\r\n\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk beyond all numbers",
            chunked("fffffffffffffffff\r\nabc\r\n"),
            &[400],
            1,
        ),
        (
            "a chunk with an endless extension",
            chunked(&format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(20_000))),
            &[400],
            1,
        ),
        (
            "a chunk's line that ends in a bare line feed",
            chunked("3\nabc\r\n0\r\n\r\n"),
            &[400],
            1,
        ),
    ]
}

fn hosts_and_targets() -> Vec<Case> {
    let with = |first: &str, lines: &str| format!("{first}\r\n{lines}Connection: close\r\n\r\n");
    let one = "GET / HTTP/1.1";
    vec![
        ("no host", with(one, ""), &[400], 0),
        ("two hosts", with(one, "Host: a\r\nHost: b\r\n"), &[400], 0),
        (
            "the same host twice",
            with(one, "Host: a\r\nHost: a\r\n"),
            &[400],
            0,
        ),
        ("an empty host", with(one, "Host:\r\n"), &[400], 0),
        (
            "a host with a path",
            with(one, "Host: a/admin\r\n"),
            &[400],
            0,
        ),
        ("a host with a user", with(one, "Host: a@b\r\n"), &[400], 0),
        ("a host with a blank", with(one, "Host: a b\r\n"), &[400], 0),
        (
            "HTTP/1.0 without a host",
            with("GET / HTTP/1.0", ""),
            &[200],
            1,
        ),
        (
            "a whole address and its host",
            with("GET http://a/ HTTP/1.1", "Host: A\r\n"),
            &[200],
            1,
        ),
        (
            "a whole address and another host",
            with("GET http://b/ HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "a whole address and no host",
            with("GET http://a/ HTTP/1.1", ""),
            &[400],
            0,
        ),
        (
            "a whole address with a user",
            with("GET http://u:p@a/ HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "an address of another kind",
            with("GET ftp://a/ HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "a name for a target",
            with("GET admin HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "everything for a target",
            with("GET * HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "a slash in disguise",
            with("GET /a%2Fb HTTP/1.1", "Host: a\r\n"),
            &[400],
            0,
        ),
        (
            "a tunnel",
            with("CONNECT a:443 HTTP/1.1", "Host: a:443\r\n"),
            &[405],
            0,
        ),
        (
            "a tunnel by its path",
            with("CONNECT / HTTP/1.1", "Host: a\r\n"),
            &[405],
            0,
        ),
        (
            "what came, sent back",
            with("TRACE / HTTP/1.1", "Host: a\r\n"),
            &[405],
            0,
        ),
    ]
}

fn lines() -> Vec<Case> {
    let long = "x".repeat(40_000);
    let many = (0..101)
        .map(|n| format!("X-{n}: 1\r\n"))
        .collect::<String>();
    vec![
        ("a folded line", get("X-A: 1\r\n 2\r\n"), &[400], 0),
        (
            "a folded first line",
            "GET / HTTP/1.1\r\n Host: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        ("a line without a colon", get("X-A\r\n"), &[400], 0),
        ("a field without a name", get(": 1\r\n"), &[400], 0),
        (
            "a name with a sign that has none",
            get("X@A: 1\r\n"),
            &[400],
            0,
        ),
        ("a name with a blank", get("X A: 1\r\n"), &[400], 0),
        (
            "a name with another alphabet",
            get("X-\u{e4}: 1\r\n"),
            &[400],
            0,
        ),
        ("a zero in a value", get("X-A: 1\x002\r\n"), &[400], 0),
        (
            "a bare carriage return in a value",
            get("X-A: 1\r2\r\n"),
            &[400],
            0,
        ),
        (
            "another control character in a value",
            get("X-A: 1\x1b2\r\n"),
            &[400],
            0,
        ),
        (
            "two blanks in the first line",
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "a tab in the first line",
            "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "a line feed in the target",
            "GET /a\nb HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "a version that is none",
            "GET / HTTP/1.2\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "a version in small letters",
            "GET / http/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        ("no version", "GET /\r\n\r\n".to_owned(), &[400], 0),
        (
            "a method that is none",
            "G(T / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
            &[400],
            0,
        ),
        (
            "a value that is too long",
            get(&format!("X-A: {long}\r\n")),
            &[431],
            0,
        ),
        (
            "a target that is too long",
            format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
            &[431],
            0,
        ),
        ("too many fields", get(&many), &[431], 0),
        (
            "lines that end in bare line feeds",
            "GET / HTTP/1.1\nHost: a\nConnection: close\n\n".to_owned(),
            &[200],
            1,
        ),
        (
            "empty lines in front",
            format!("\r\n\r\n{}", get("")),
            &[200],
            1,
        ),
        (
            "two requests at once",
            format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{}", get("")),
            &[200, 200],
            2,
        ),
        (
            "a bad one behind a good one",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\n\0".to_owned(),
            &[200, 400],
            1,
        ),
        (
            "an offer to go on in HTTP/2",
            get(
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
            ),
            &[200],
            1,
        ),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    [
        lines(),
        hosts_and_targets(),
        lengths_and_codings(),
        chunks(),
    ]
    .concat()
}

#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused_and_nothing_passes_undecided() {
    let front = start(
        "access_log: json, access_log_file: FOLDER/access.log",
        PLENTY,
    )
    .await;
    let cases = cases();
    assert!(cases.len() >= 40, "{}", cases.len());
    let mut wrong = Vec::new();
    let mut answers: Vec<u16> = Vec::new();
    for (name, said, expected, reached) in cases {
        let before = front.behind.count();
        let heard = tokio::time::timeout(Duration::from_secs(20), front.exchange(&said)).await;
        let Ok(heard) = heard else {
            wrong.push(format!("{name}: the connection does not end"));
            continue;
        };
        let statuses: Vec<u16> = heard.iter().map(|heard| heard.status).collect();
        answers.extend(&statuses);
        let came = front.behind.count() - before;
        if statuses != expected || came != reached {
            wrong.push(format!(
                "{name}: {statuses:?} and {came} behind, expected {expected:?} and {reached}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let seen = front.behind.requests.lock().clone();
    assert!(
        seen.iter().all(|(_, uri, _)| uri.path() != "/smuggled"),
        "{seen:?}"
    );
    for (_, _, headers) in &seen {
        let both =
            headers.contains_key("content-length") && headers.contains_key("transfer-encoding");
        assert!(!both && !headers.contains_key("upgrade"), "{headers:?}");
    }
    // Whatever reached the service was decided on, and what was refused was not even counted.
    assert_eq!(front.decided().await, front.behind.count());
    let refused = |reason| {
        front.figure(&format!(
            "tollgate_gateway_heads_refused_total{{reason=\"{reason}\"}}"
        ))
    };
    let (malformed, too_long) = (refused("malformed"), refused("too_long"));
    let folder = front.end().await;
    // Every answer has a line in the log, also those that are not ours but hyper's.
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    let log: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut logged: Vec<u64> = log
        .iter()
        .filter_map(|line| line["status"].as_u64())
        .collect();
    let mut answers: Vec<u64> = answers.into_iter().map(u64::from).collect();
    logged.sort_unstable();
    answers.sort_unstable();
    assert_eq!(logged, answers);
    for (reason, status, count) in [("malformed", 400, malformed), ("too_long", 431, too_long)] {
        let of_reason: Vec<&Value> = log
            .iter()
            .filter(|line| line["refused"] == reason)
            .collect();
        assert_eq!(of_reason.len() as u64, count, "{reason}");
        assert!(count > 2, "{reason}");
        for line in of_reason {
            assert_eq!(
                (&line["ip"], &line["status"]),
                (&"127.0.0.1".into(), &status.into())
            );
        }
    }
}

#[tokio::test]
async fn a_target_that_is_too_long_for_any_is_logged_with_what_it_is_answered() {
    let fields = "max_head: 1MiB, access_log: text, access_log_file: FOLDER/access.log";
    let front = start(fields, PLENTY).await;
    let target = "a".repeat(70_000);
    let said = format!("GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(front.exchange(said).await[0].status, 414);
    let folder = front.end().await;
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    let end = " 127.0.0.1 - \"- - HTTP/1.1\" 414 0 0.000000 - refused=too_long\n";
    assert!(log.ends_with(end) && log.lines().count() == 1, "{log}");
}
