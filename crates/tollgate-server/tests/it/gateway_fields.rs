//! What a server says in its head, as callers of the gateway read it: the same whether or not hyper speaks with them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::serving::{PATIENCE, Serving};

/// How long a body is, as it is said in front of it and within.
#[derive(Clone, Copy)]
enum Framing {
    Known,
    Chunked,
}

impl Framing {
    /// All that comes behind a server's other fields.
    fn framed(self, body: &str) -> String {
        match self {
            Self::Known => format!("Content-Length: {}\r\n\r\n{body}", body.len()),
            Self::Chunked => format!("Transfer-Encoding: chunked\r\n\r\n{}", self.read(body)),
        }
    }

    /// What callers read behind the head.
    fn read(self, body: &str) -> String {
        match self {
            Self::Known => body.to_owned(),
            Self::Chunked => format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        }
    }
}

/// Answers whoever asks with these fields and this body, on connections that stay.
fn server(fields: &'static [u8], body: &'static str, framing: Framing) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                while !head(&mut stream).is_empty() {
                    let rest = framing.framed(body);
                    let answer = [b"HTTP/1.1 200 OK\r\n", fields, rest.as_bytes()];
                    stream.write_all(&answer.concat()).unwrap();
                }
            });
        }
    });
    address
}

fn head(stream: &mut TcpStream) -> Vec<u8> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
        head.push(byte[0]);
    }
    head
}

/// All fields that a caller reads, sorted, without the request's name, which is ours and new each time.
fn heard(gateway: SocketAddr, request: &str, expected: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(gateway).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let head = head(&mut stream).escape_ascii().to_string();
    let mut body = vec![0; expected.len()];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(body, expected.as_bytes());
    let mut lines: Vec<String> = head.split("\\r\\n").map(str::to_owned).collect();
    let ids = lines.extract_if(.., |line| line.starts_with("x-request-id: "));
    let ids: Vec<String> = ids.collect();
    assert!(ids.len() == 1 && ids[0].len() == 46, "{ids:?}");
    // Not of the server's making: how it goes on with the connection, and the first line.
    lines.retain(|line| {
        !line.is_empty() && !line.starts_with("HTTP/") && !line.starts_with("connection:")
    });
    lines.sort();
    lines
}

/// What callers hear with these fields and this body from the server, in each way in which they can ask, with what is said of limits.
fn each_way(fields: &'static [u8], body: &'static str) -> Vec<String> {
    each_way_in(Framing::Known, "x-ratelimit", fields, body)
}

/// The same with a body of a length that is known or not, and these fields of ours.
fn each_way_in(
    framing: Framing,
    ours: &str,
    fields: &'static [u8],
    body: &'static str,
) -> Vec<String> {
    let serving = Serving::by(&format!(
        "gateway: {{ listen: 127.0.0.1:0, workers: 1, upstreams: [{{ to: \"http://{}\" }}] }}
log: {{ format: json }}
answers: {{ headers: [{ours}] }}
rules:
  - {{ id: everyone, per: [\"header:x-way\"], limit: \"1/h burst 5\" }}
",
        server(fields, body, framing)
    ));
    let gateway = serving.address("gateway");
    // Each with a bucket of its own.
    let mut all = vec![
        "GET / HTTP/1.1\r\nhost: h\r\nx-way: plain\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: h\r\nx-way: last\r\nconnection: close\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: h\r\nx-way: body\r\ncontent-length: 1\r\n\r\na",
    ];
    // Chunks cannot be said to who speaks this.
    if let Framing::Known = framing {
        all.push("GET / HTTP/1.0\r\nhost: h\r\nx-way: old\r\n\r\n");
    }
    let without_reset = |mut lines: Vec<String>| {
        lines.retain(|line| !line.starts_with("x-ratelimit-reset: 1"));
        lines
    };
    let body = framing.read(body);
    let mut all = (all.into_iter()).map(|request| without_reset(heard(gateway, request, &body)));
    let plain = all.next().unwrap();
    for other in all {
        assert_eq!(other, plain);
    }
    plain
}

#[test]
fn fields_of_a_server_are_passed_on_whoever_writes_them() {
    let fields = b"Server: s\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nSet-Cookie: a=1\r\nX-Byte: \xe9\r\nX-Empty:\r\n\
        set-cookie: b=2\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nTE: gzip\r\nX-Request-Id: theirs\r\n";
    assert_eq!(
        each_way(fields, "hi"),
        [
            "content-length: 2",
            "date: Sun, 06 Nov 1994 08:49:37 GMT",
            "server: s",
            "set-cookie: a=1",
            "set-cookie: b=2",
            r"x-byte: \xe9",
            "x-empty: ",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
        ]
    );
}

#[test]
fn what_a_server_says_of_limits_is_merged_with_ours() {
    let fields = b"Date: now\r\nX-RateLimit-Limit: 9\r\nx-ratelimit-remaining: 0\r\nX-RateLimit-Reset: 7\r\nRetry-After: 3\r\n";
    assert_eq!(
        each_way(fields, "hi"),
        [
            "content-length: 2",
            "date: now",
            "retry-after: 3",
            "x-ratelimit-limit: 9",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 7",
        ]
    );
    let looser = b"Date: now\r\nX-RateLimit-Limit: 99\r\nX-RateLimit-Remaining: 98\r\nX-RateLimit-Reset: 7\r\n";
    assert_eq!(
        each_way(looser, "hi"),
        [
            "content-length: 2",
            "date: now",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
        ]
    );
}

#[test]
fn lists_of_a_servers_limits_stand_beside_ours_whatever_the_length_of_its_answer() {
    let lists: &[u8] = b"Date: now\r\nRateLimit-Policy: \"daily\";q=9;w=86400\r\nratelimit: \"daily\";r=2;t=7\r\nRateLimit: \"monthly\";r=1;t=8\r\nRetry-After: 3\r\n";
    // An older draft, which is no list that ours could stand in.
    let older: &[u8] = b"Date: now\r\nRateLimit-Policy: 100;w=60\r\nRateLimit: limit=100, remaining=50, reset=5\r\n";
    for (framing, length) in [
        (Framing::Known, "content-length: 2"),
        (Framing::Chunked, "transfer-encoding: chunked"),
    ] {
        let heard = |fields| each_way_in(framing, "ratelimit", fields, "hi");
        let mut expected = [
            length,
            "date: now",
            r#"ratelimit-policy: \"daily\";q=9;w=86400"#,
            r#"ratelimit-policy: \"everyone\";q=5;w=18000"#,
            r#"ratelimit: \"daily\";r=2;t=7"#,
            r#"ratelimit: \"everyone\";r=4;t=3600"#,
            r#"ratelimit: \"monthly\";r=1;t=8"#,
            "retry-after: 3",
        ];
        expected.sort_unstable();
        assert_eq!(heard(lists), expected);
        let mut expected = [
            length,
            "date: now",
            "ratelimit-policy: 100;w=60",
            "ratelimit: limit=100, remaining=50, reset=5",
        ];
        expected.sort_unstable();
        assert_eq!(heard(older), expected);
    }
}

#[test]
fn what_connection_names_is_not_passed_on() {
    let fields = b"Date: now\r\nConnection: x-secret, keep-alive\r\nX-Secret: 1\r\nX-A: 1\r\n";
    assert_eq!(
        each_way(fields, "hi"),
        [
            "content-length: 2",
            "date: now",
            "x-a: 1",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
        ]
    );
}

#[test]
fn nothing_is_of_a_known_length_too() {
    assert_eq!(
        each_way(b"Date: now\r\n", ""),
        [
            "content-length: 0",
            "date: now",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 4",
        ]
    );
}
