use std::future::poll_fn;
use std::net::IpAddr;

use super::super::request_head::prepare;
use super::super::{ClientInfo, ProxySettings};
use super::*;
use crate::body::LimitedBody;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::AsyncWriteExt as _;
use tokio_util::either::Either;

fn response(text: &str) -> Option<Response<Bytes>> {
    parse_response(text.as_bytes())
}

#[test]
fn whole_response_of_a_known_length_is_read() {
    let read = response(
        "HTTP/1.1 404 Not Found\r\nServer: s\r\nConnection: Keep-Alive\r\nset-cookie: a\r\nContent-Length: 3\r\nset-cookie: b\r\n\r\nabc",
    )
    .unwrap();
    assert_eq!(read.status(), 404);
    assert_eq!(read.body(), "abc");
    assert_eq!(read.headers()["server"], "s");
    assert_eq!(read.headers().get_all("set-cookie").iter().count(), 2);
    assert!(!read.headers().contains_key("connection"));
    let empty = response("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert!(empty.body().is_empty());
}

#[test]
fn other_responses_are_left_to_hyper() {
    for text in [
        // Not all of it, or more than that.
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcd",
        // Framed in another way, or in two.
        "HTTP/1.1 200 OK\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ncontent-length: +3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ncontent-length: 3, 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\nabc",
        // The last one, of another version, with another reason, or not the final response.
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 3\r\n\r\nabc",
        "HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        "HTTP/1.1 200 Fine\r\ncontent-length: 3\r\n\r\nabc",
        "HTTP/1.1 204 No Content\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 100 Continue\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\ncontent-length: 0\r\n\r\n",
        // Not HTTP.
        "HTTP/1.1 200 OK\r\na b: c\r\ncontent-length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\na: b\r\n c\r\ncontent-length: 3\r\n\r\nabc",
        "SSH-2.0-OpenSSH_9.2\r\n",
    ] {
        assert!(response(text).is_none(), "{text:?}");
    }
}

fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> Option<String> {
    let mut request = Request::builder().method(method).uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut head = Vec::new();
    let request = request.body(LimitedBody::default()).unwrap();
    write_head(&request, &mut head)?;
    Some(String::from_utf8(head).unwrap())
}

#[test]
fn request_without_a_body_is_written() {
    assert_eq!(
        head(
            "DELETE",
            "/a?b=c",
            &[("host", "h"), ("x-a", "1"), ("x-a", "2")]
        )
        .unwrap(),
        "DELETE /a?b=c HTTP/1.1\r\nhost: h\r\nx-a: 1\r\nx-a: 2\r\n\r\n"
    );
    assert!(head("POST", "/", &[("content-length", "0")]).is_some());
    for (method, target, field) in [
        ("HEAD", "/", ("host", "h")),
        ("OPTIONS", "*", ("host", "h")),
        ("GET", "http://h/", ("host", "h")),
        ("GET", "/", ("upgrade", "websocket")),
        ("GET", "/", ("expect", "100-continue")),
        ("GET", "/", ("transfer-encoding", "chunked")),
        ("POST", "/", ("content-length", "5")),
    ] {
        assert_eq!(
            head(method, target, &[field]),
            None,
            "{method} {target} {field:?}"
        );
    }
}

/// The headers that a server gets for a request with these fields, sorted.
fn forwarded(is_trusted: bool, fields: &[(&str, &[u8])]) -> Vec<String> {
    forwarded_for([192, 0, 2, 7].into(), is_trusted, fields)
}

/// The same for a request of this peer.
fn forwarded_for(peer: IpAddr, is_trusted: bool, fields: &[(&str, &[u8])]) -> Vec<String> {
    let mut request = Request::builder().uri("/a");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut request = request.body(LimitedBody::default()).unwrap();
    let client = ClientInfo {
        peer,
        address: peer,
        trusts: &|_| is_trusted,
        path: "/a",
        reserved: &|| std::sync::Arc::new(|_| false),
    };
    let settings = ProxySettings {
        via: true,
        ..ProxySettings::default()
    };
    let prepared = prepare(&mut request, &client, &settings, true);
    assert!(prepared.upgrade.is_none());
    let mut head = Vec::new();
    write_head(&request, &mut head).unwrap();
    let head = head.escape_ascii().to_string();
    let head = head.strip_suffix("\\r\\n\\r\\n").unwrap();
    let lines = head.split("\\r\\n").skip(1);
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn forwarding_headers_name_the_client_and_drop_claims() {
    let ours = |host: &str, chain: &str| {
        [
            format!("host: {host}"),
            "via: 1.1 tollgate".into(),
            format!("x-forwarded-for: {chain}192.0.2.7"),
            format!("x-forwarded-host: {host}"),
            "x-forwarded-proto: http".into(),
        ]
    };
    let untrusted: [&[(&str, &[u8])]; 4] = [
        &[("host", b"h")],
        &[
            ("Host", b"h"),
            ("X-Forwarded-Proto", b"gopher"),
            ("X-FORWARDED-HOST", b"evil"),
            ("x-forwarded-host", b"evil"),
            ("forwarded", b"for=evil"),
            ("x-forwarded-port", b"1"),
            ("x-forwarded-prefix", b"/evil"),
            ("x-real-ip", b"198.51.100.9"),
        ],
        // What `Connection` names is dropped, and what is ours is set all the same.
        &[
            ("host", b"h"),
            (
                "connection",
                b"host, x-forwarded-for, X-Forwarded-Host, via, x-a",
            ),
            ("x-forwarded-host", b"evil"),
            ("via", b"1.0 other"),
            ("x-a", b"1"),
        ],
        &[
            ("host", b"h"),
            ("te", b"gzip"),
            ("proxy-authorization", b"a"),
            ("keep-alive", b"1"),
        ],
    ];
    for fields in untrusted {
        assert_eq!(forwarded(false, fields), ours("h", ""), "{fields:?}");
    }
    let sent: &[(&str, &[u8])] = &[
        ("host", b"h"),
        ("x-forwarded-for", b"198.51.100.1"),
        ("x-forwarded-for", b"caf\xe9"),
        ("via", b"1.0 other"),
    ];
    let mut expected = ours("h", "198.51.100.1, caf\\xe9, ").to_vec();
    expected.insert(1, "via: 1.0 other".into());
    for is_trusted in [false, true] {
        assert_eq!(forwarded(is_trusted, sent), expected);
    }
    let sent: &[(&str, &[u8])] = &[
        ("host", b"h"),
        ("x-forwarded-proto", b"https"),
        ("x-forwarded-host", b"front"),
        ("x-real-ip", b"198.51.100.9"),
    ];
    let expected = [
        "host: h",
        "via: 1.1 tollgate",
        "x-forwarded-for: 192.0.2.7",
        "x-forwarded-host: front",
        "x-forwarded-proto: https",
        "x-real-ip: 198.51.100.9",
    ];
    assert_eq!(forwarded(true, sent), expected);
    // Without a host, and with several: the first is what the rules have seen.
    let expected = [
        "via: 1.1 tollgate",
        "x-forwarded-for: 192.0.2.7",
        "x-forwarded-proto: http",
    ];
    let without_host = forwarded(false, &[("x-forwarded-host", b"evil")]);
    assert_eq!(without_host, expected);
    let with_several = forwarded(false, &[("host", b"h"), ("host", b"other")]);
    assert_eq!(with_several, ours("h", ""));
}

#[test]
fn forwarding_headers_have_peers_in_their_canonical_form() {
    for (peer, chain, expected) in [
        ("192.0.2.1", None, "192.0.2.1"),
        ("255.0.10.99", None, "255.0.10.99"),
        ("2001:db8::1", None, "2001:db8::1"),
        (
            "2001:db8::1",
            Some("198.51.100.1"),
            "198.51.100.1, 2001:db8::1",
        ),
        ("::ffff:192.0.2.1", None, "192.0.2.1"),
        (
            "::ffff:192.0.2.1",
            Some("198.51.100.1"),
            "198.51.100.1, 192.0.2.1",
        ),
    ] {
        let chain = chain.map(|chain: &str| ("x-forwarded-for", chain.as_bytes()));
        let fields: Vec<(&str, &[u8])> = chain.into_iter().collect();
        let lines = forwarded_for(peer.parse().unwrap(), false, &fields);
        let expected = format!("x-forwarded-for: {expected}");
        assert!(lines.contains(&expected), "{peer}: {lines:?}");
    }
}

#[tokio::test]
async fn received_bytes_are_noticed_out_of_budget_too() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
    let (stream, accepted) = tokio::join!(stream, listener.accept());
    let (stream, mut server) = (stream.unwrap(), accepted.unwrap().0);
    let mut connection = FastConnection::new(Stream::new(Either::Left(stream), Gauge::default()));
    assert!(connection.is_quiet());
    server.write_all(b"HTTP/1.1 408").await.unwrap();
    let has_received = |connection: &mut FastConnection, context: &mut Context<'_>| {
        while let Poll::Ready(budget) = tokio::task::coop::poll_proceed(context) {
            budget.made_progress();
        }
        !connection.is_quiet()
    };
    // The bytes arrive soon, and tokio notices them between two polls.
    for _ in 0..1_000 {
        if poll_fn(|context| Poll::Ready(has_received(&mut connection, context))).await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("nothing was noticed");
}
