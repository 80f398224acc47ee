//! Who sends its key in a way that the gateway reads differently than the server behind stays within its limits all the same.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use crate::proxy_setting::{Server, reply};
use crate::served::{Served, ask};
use crate::serving::Serving;

/// Of `good`.
const GOOD_SHA256: &str = "770e607624d689265ca6c44884d0807d9b054d23c473c106c72be9de08b7376c";

/// The client may send three requests, and so may each address.
fn rules() -> String {
    format!(
        "identity: {{ client: [\"api_key:X-API-Key\", bearer, ip], plan: [\"header:X-Plan\"], trusted_proxies: [127.0.0.99] }}
clients: [{{ id: merchant, plan: pro, api_key_sha256: {GOOD_SHA256} }}]
rules: [{{ id: client, per: [client], limit: \"1/h burst 3\" }}]
"
    )
}

/// Which of several lines a server reads.
#[derive(Clone, Copy, Debug)]
enum Reads {
    /// As Starlette does.
    First,
    /// As servers do that put headers into a map one after the other.
    Last,
    /// As Node's http does with most headers, and with a split at the first comma.
    JoinedAndFirst,
    /// The same with a split at the last one.
    JoinedAndLast,
}

impl Reads {
    fn value(self, headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
        let lines: Vec<&[u8]> = (headers.get_all(name).iter())
            .map(HeaderValue::as_bytes)
            .collect();
        let joined = || lines.join(&b", "[..]);
        match self {
            Self::First => lines.first().map(|line| line.to_vec()),
            Self::Last => lines.last().map(|line| line.to_vec()),
            Self::JoinedAndFirst => joined().split(|b| *b == b',').next().map(<[u8]>::to_vec),
            Self::JoinedAndLast => joined().rsplit(|b| *b == b',').next().map(<[u8]>::to_vec),
        }
    }

    /// Whether the server serves this request: it takes the key from either header, and is as generous with blanks as Python, and with
    /// words as many a handler that cuts the value into pieces.
    fn serves(self, headers: &HeaderMap) -> bool {
        let words = |value: Vec<u8>| -> Vec<Vec<u8>> {
            let is_blank = |b: &u8| b.is_ascii_whitespace() || *b == 0xa0 || *b == b'=';
            let words = value.split(is_blank).filter(|word| !word.is_empty());
            words.map(<[u8]>::to_vec).collect()
        };
        let key = self.value(headers, "x-api-key").map(words);
        let token = self.value(headers, "authorization").map(words);
        let is_good = |word: &Vec<u8>| word == b"good" || word == b"\"good\"";
        let has_key = key.is_some_and(|words| words.first().is_some_and(is_good));
        has_key || token.is_some_and(|words| words.iter().any(is_good))
    }
}

/// All ways to say the key that were found to be read differently.
fn contradictions() -> Vec<Vec<(&'static str, &'static [u8])>> {
    vec![
        vec![("X-API-Key", b"good"), ("X-API-Key", b"junk")],
        vec![("X-API-Key", b"junk"), ("X-API-Key", b"good")],
        vec![("X-API-Key", b"good"), ("x-api-key", b"")],
        vec![("X-API-Key", b""), ("x-api-key", b"good")],
        vec![("X-API-Key", b"good, junk")],
        vec![("X-API-Key", b"junk,good")],
        vec![("X-API-Key", b"junk"), ("X-API-Key", b"junk,good")],
        vec![
            ("Authorization", b"Bearer good"),
            ("Authorization", b"Bearer junk"),
        ],
        vec![
            ("Authorization", b"Bearer junk"),
            ("Authorization", b"Bearer good"),
        ],
        vec![
            ("Authorization", b"Basic junk"),
            ("Authorization", b"Bearer good"),
        ],
        vec![("Authorization", b"Bearer\tgood")],
        vec![("Authorization", b"bearer\t\tgood")],
        vec![("Authorization", b"Bearer\xa0good")],
        vec![("Authorization", b"Bearer=good")],
        vec![("Authorization", b"Bearer good junk")],
        vec![("Authorization", b"Bearer junk good")],
        vec![("Authorization", b"Bearer token=\"good\"")],
        vec![("Authorization", b"Bearer junk,Bearer good")],
        vec![("Authorization", b"Token good")],
        vec![("Authorization", b"good")],
    ]
}

/// The status of a request from one of the addresses of this machine. Kept open, it goes the way of plain requests.
async fn status_of(
    gateway: SocketAddr,
    from: u8,
    lines: &[(&str, &[u8])],
    is_kept_open: bool,
) -> u16 {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind(SocketAddr::from(([127, 0, 0, from], 0)))
        .unwrap();
    let mut stream = socket.connect(gateway).await.unwrap();
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    for (name, value) in lines {
        head.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    if !is_kept_open {
        head.extend_from_slice(b"Connection: close\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    let status = std::str::from_utf8(&answer[9..]).unwrap();
    status.parse().unwrap()
}

#[tokio::test]
async fn a_contradictory_identity_header_does_not_shed_the_clients_limit() {
    for reads in [
        Reads::First,
        Reads::Last,
        Reads::JoinedAndFirst,
        Reads::JoinedAndLast,
    ] {
        let server = Server::answering(move |request| async move {
            match reads.serves(request.headers()) {
                true => reply(200, "served"),
                false => reply(401, "who are you?"),
            }
        })
        .await;
        let upstream = server.address;
        let config = format!(
            "gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{upstream}\" }}] }}\nlog: {{ format: json }}\n{}",
            rules()
        );
        let serving = Serving::by(&config);
        let gateway = serving.address("gateway");
        let mut served = 0;
        for is_kept_open in [true, false] {
            for lines in contradictions() {
                for from in 2..12 {
                    let status = status_of(gateway, from, &lines, is_kept_open).await;
                    served += u32::from(status == 200);
                    assert_eq!(status, 400, "{reads:?} {lines:?}");
                }
            }
        }
        assert_eq!(served, 0, "{reads:?}");
        assert_eq!(server.requests(), 0, "none of them reaches the server");
        // In the one way that all read alike, the client is served three times, wherever it calls from.
        for from in 2..12 {
            let status = status_of(gateway, from, &[("X-API-Key", b"good")], true).await;
            served += u32::from(status == 200);
        }
        assert_eq!(served, 3, "{reads:?}");
    }
}

#[tokio::test]
async fn headers_that_name_no_client_leave_it_to_the_next_source() {
    let server = Server::named("served").await;
    let config = format!(
        "gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{}\" }}] }}\nlog: {{ format: json }}\n{}",
        server.address,
        rules()
    );
    let gateway = Serving::by(&config);
    let address = gateway.address("gateway");
    let cases: [&[(&str, &[u8])]; 7] = [
        &[],
        &[("X-API-Key", b"")],
        &[("X-API-Key", b"junk")],
        &[("X-API-Key", b"junk"), ("X-API-Key", b"junk")],
        &[("Authorization", b"Basic dXNlcjpwYXNz")],
        &[("Authorization", b"Bearer a.b.c")],
        // A plan from a stranger does not count, whatever it is.
        &[("X-Plan", b"gold"), ("X-Plan", b"silver")],
    ];
    for (from, lines) in (20..).zip(cases) {
        let mut statuses = Vec::new();
        for _ in 0..4 {
            statuses.push(status_of(address, from, lines, true).await);
        }
        assert_eq!(statuses, [200, 200, 200, 429], "{lines:?}");
    }
    let plans: [(&str, &[u8]); 2] = [("X-Plan", b"gold"), ("X-Plan", b"silver")];
    assert_eq!(status_of(address, 99, &plans, true).await, 400);
}

#[test]
fn forward_auth_and_described_checks_refuse_contradictory_identity_headers() {
    let served = Served::start(&format!(
        "service: {{}}\n{}",
        rules().replace("127.0.0.99", "127.0.0.1")
    ));
    for lines in contradictions() {
        // JSON has no bytes.
        if lines.iter().any(|(_, value)| !value.is_ascii()) {
            continue;
        }
        let text: String = (lines.iter())
            .map(|(name, value)| format!("{name}: {}\r\n", String::from_utf8_lossy(value)))
            .collect();
        let uri =
            "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\nX-Forwarded-For: 203.0.113.7\r\n";
        let forwarded = format!("{uri}{text}");
        let reply = ask(served.address, "GET", "/v1/forward-auth", &forwarded, "");
        assert_eq!(reply.status, 400, "{text}: {}", reply.body);
        let original = forwarded.replace("X-Forwarded-Method", "X-Original-Method");
        let original = original.replace("X-Forwarded-Uri", "X-Original-URI");
        let reply = ask(served.address, "GET", "/v1/auth-request", &original, "");
        assert_eq!(
            (reply.status, reply.header("x-tollgate-status")),
            (403, "400")
        );
        let mut headers = json!({});
        for (name, value) in &lines {
            let value = String::from_utf8_lossy(value).into_owned();
            let name = name.to_ascii_lowercase();
            match headers.get_mut(&name) {
                Some(Value::Array(values)) => values.push(value.into()),
                _ => headers[name] = json!([value]),
            }
        }
        let request =
            json!({ "method": "GET", "path": "/", "ip": "203.0.113.7", "headers": headers });
        let answer = served.check(&json!({ "request": request }));
        assert_eq!(
            (&answer["allowed"], &answer["status"], &answer["reason"]),
            (&json!(false), &json!(400), &json!("identity_refused")),
            "{text}"
        );
        let explained = served.post(
            "/v1/explain",
            "",
            &json!({ "request": request }).to_string(),
        );
        assert!(
            explained.json()["request"]["refused"].is_string(),
            "{}",
            explained.body
        );
    }
}

/// The log of requests knows the address of who was refused, and no client.
#[tokio::test]
async fn a_refused_request_is_logged_by_its_address() {
    let front = crate::gateway::start(
        "access_log: json, access_log_file: FOLDER/access.log",
        &rules(),
    )
    .await;
    let lines: [(&str, &[u8]); 2] = [("X-API-Key", b"good"), ("X-API-Key", b"junk")];
    assert_eq!(status_of(front.address, 7, &lines, false).await, 400);
    let folder = front.end().await;
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    let line: Value = serde_json::from_str(log.trim()).unwrap();
    assert_eq!(
        (&line["status"], &line["ip"], &line["client"]),
        (&json!(400), &json!("127.0.0.7"), &Value::Null)
    );
    assert!(!log.contains("good"), "{log}");
}
