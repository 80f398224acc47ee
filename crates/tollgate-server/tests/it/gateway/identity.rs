//! A client that sends its key in a way that the gateway and the upstream read differently stays within its limits all the same.

use std::net::SocketAddr;

use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tollgate_testing::client::request;
use tollgate_testing::upstream::reply;
use tollgate_testing::{Connection, Upstream};

use crate::kit;

/// The SHA-256 of the key `good`.
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

/// Which of several header lines an upstream reads.
#[derive(Clone, Copy, Debug)]
enum Reads {
    /// Starlette does.
    First,
    /// Servers do that put headers into a map one after the other.
    Last,
    /// Node's http joins most headers; this one then splits at the first comma.
    JoinedAndFirst,
    /// The same with a split at the last comma.
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

    /// Whether the upstream serves this request. It takes the key from either header, and is as lenient with blanks as Python, and
    /// with words as many handlers that split the value.
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

/// All ways to send the key that servers were found to read differently.
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

/// The status of a request from one of the addresses of this machine. With a connection that stays open, it takes the fast path.
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
    let mut client = Connection::over(socket.connect(gateway).await.unwrap());
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    for (name, value) in lines {
        head.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    if !is_kept_open {
        head.extend_from_slice(b"Connection: close\r\n");
    }
    head.extend_from_slice(b"\r\n");
    client.send(&head).await;
    client.response().await.expect("a response").status
}

#[tokio::test]
async fn contradictory_identity_headers_do_not_evade_a_limit() {
    for reads in [
        Reads::First,
        Reads::Last,
        Reads::JoinedAndFirst,
        Reads::JoinedAndLast,
    ] {
        let upstream = Upstream::answering(move |request| async move {
            match reads.serves(request.headers()) {
                true => reply(200, "served"),
                false => reply(401, "unknown client"),
            }
        });
        let gateway = kit::gateway_before(upstream, "", &rules());
        let mut served = 0;
        for is_kept_open in [true, false] {
            for lines in contradictions() {
                for from in 2..12 {
                    let status = status_of(gateway.address, from, &lines, is_kept_open).await;
                    served += u32::from(status == 200);
                    assert_eq!(status, 400, "{reads:?} {lines:?}");
                }
            }
        }
        assert_eq!(served, 0, "{reads:?}");
        assert_eq!(gateway.upstream.hits(), 0, "none reaches the upstream");
        // In the one way that all read alike, the client is served three times, whatever address it sends from.
        for from in 2..12 {
            let status = status_of(gateway.address, from, &[("X-API-Key", b"good")], true).await;
            served += u32::from(status == 200);
        }
        assert_eq!(served, 3, "{reads:?}");
    }
}

#[tokio::test]
async fn headers_that_name_no_client_leave_it_to_the_next_source() {
    let gateway = kit::gateway("", &rules());
    let address = gateway.address;
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
fn the_service_refuses_contradictory_identity_headers() {
    let running = kit::serve(&format!(
        "service: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}\n{}",
        rules().replace("127.0.0.99", "127.0.0.1")
    ));
    let service = running.address("service");
    for lines in contradictions() {
        // JSON has no bytes.
        if lines.iter().any(|(_, value)| !value.is_ascii()) {
            continue;
        }
        let lines_of = |method: &str, uri: &str| -> Vec<String> {
            let own = [
                format!("{method}: GET"),
                format!("{uri}: /"),
                "X-Forwarded-For: 203.0.113.7".to_owned(),
            ];
            let identity = lines
                .iter()
                .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)));
            own.into_iter().chain(identity).collect()
        };
        let get = |path: &str, headers: &[String]| {
            let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
            request(service, "GET", path, &headers, "").unwrap()
        };
        let forwarded = lines_of("X-Forwarded-Method", "X-Forwarded-Uri");
        let response = get("/v1/forward-auth", &forwarded);
        assert_eq!(response.status, 400, "{forwarded:?}: {response:?}");
        let original = lines_of("X-Original-Method", "X-Original-URI");
        let response = get("/v1/auth-request", &original);
        assert_eq!(
            (response.status, response.header("x-tollgate-status")),
            (403, Some("400"))
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
        let described =
            json!({ "method": "GET", "path": "/", "ip": "203.0.113.7", "headers": headers });
        let result = running.check(&json!({ "request": described }));
        assert_eq!(
            (&result["allowed"], &result["status"], &result["reason"]),
            (&json!(false), &json!(400), &json!("identity_refused")),
            "{headers}"
        );
        let body = json!({ "request": described }).to_string();
        let explained = running.post("/v1/explain", &[], &body);
        assert!(
            explained.json()["request"]["refused"].is_string(),
            "{explained:?}"
        );
    }
}

/// The access log has the address of a refused client, and no id.
#[tokio::test]
async fn a_refused_request_is_logged_by_its_address() {
    let fields = "access_log: json, access_log_file: FOLDER/access.log";
    let gateway = kit::gateway(fields, &rules());
    let lines: [(&str, &[u8]); 2] = [("X-API-Key", b"good"), ("X-API-Key", b"junk")];
    assert_eq!(status_of(gateway.address, 7, &lines, false).await, 400);
    let log = gateway.stop().read("access.log");
    let line: Value = serde_json::from_str(log.trim()).unwrap();
    assert_eq!(
        (&line["status"], &line["ip"], &line["client"]),
        (&json!(400), &json!("127.0.0.7"), &Value::Null)
    );
    assert!(!log.contains("good"), "{log}");
}
