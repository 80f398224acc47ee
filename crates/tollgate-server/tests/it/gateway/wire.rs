//! The bytes that reach an upstream, when clients send requests that servers may read in different ways.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tollgate_testing::client::responses_to;
use tollgate_testing::upstream::RawUpstream;
use tollgate_testing::{Connection, TIMEOUT};

use super::malformed::cases;
use crate::kit;

/// A request of the test itself.
const LAST: &[u8] = b"GET /last HTTP/1.1\r\nhost: a\r\n\r\n";

/// An upstream that records the bytes of each connection, and answers each complete request.
struct ConnectionRecorder {
    upstream: RawUpstream,
    /// One for each connection; it yields the bytes once the connection has ended.
    connections: Arc<Mutex<Vec<oneshot::Receiver<Vec<u8>>>>>,
}

impl ConnectionRecorder {
    fn start() -> Self {
        let connections: Arc<Mutex<Vec<_>>> = Arc::default();
        let accepted = Arc::clone(&connections);
        let upstream = RawUpstream::start(move |stream, _| {
            let (sender, receiver) = oneshot::channel();
            accepted.lock().push(receiver);
            async move {
                let _ = sender.send(record(stream).await);
            }
        });
        Self {
            upstream,
            connections,
        }
    }

    /// The bytes of each connection. The client must have ended.
    async fn received(self) -> Vec<Vec<u8>> {
        // A connection that is answered now was accepted after all others.
        let mut last = Connection::open(self.upstream.address).await;
        assert_eq!(last.request(LAST).await.status, 200);
        drop(last);
        let connections = std::mem::take(&mut *self.connections.lock());
        let mut received = Vec::new();
        for connection in connections {
            let bytes = tokio::time::timeout(TIMEOUT, connection).await;
            received.push(bytes.expect("the connection ends in time").unwrap());
        }
        received.retain(|bytes| bytes != LAST);
        received
    }
}

/// All bytes of a connection.
async fn record(mut stream: TcpStream) -> Vec<u8> {
    let (mut received, mut answered, mut part) = (Vec::new(), 0, [0; 4_096]);
    loop {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return received,
            Ok(read) => received.extend_from_slice(&part[..read]),
        }
        let requests = requests(&received);
        let complete = requests.iter().filter(|request| request.is_complete);
        let complete = complete.count();
        for _ in answered..complete {
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            let _ = stream.write_all(response).await;
        }
        answered = complete;
    }
}

/// A request as it was written.
#[derive(Debug)]
struct RawRequest {
    head: String,
    /// Whether all of its body is there.
    is_complete: bool,
}

impl RawRequest {
    /// All values of a header.
    fn headers(&self, name: &str) -> Vec<&str> {
        let lines = self.head.split("\r\n").skip(1);
        let headers = lines.filter_map(|line| line.split_once(':'));
        headers
            .filter(|(header, _)| header.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// Checks that there is only one way to read it.
    fn check(&self) {
        let lines: Vec<&str> = self.head.split("\r\n").collect();
        let is_one_line = |line: &&str| !line.contains(['\r', '\n', '\0']);
        assert!(lines.iter().all(is_one_line), "{self:?}");
        let first: Vec<&str> = lines[0].split(' ').collect();
        assert!(
            matches!(first[..], [_, path, "HTTP/1.1"] if path.starts_with('/')),
            "{self:?}"
        );
        for line in &lines[1..] {
            let (name, _) = line.split_once(':').unwrap_or_default();
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            assert!(!name.is_empty() && name.chars().all(is_name), "{line:?}");
        }
        assert_eq!(self.headers("host").len(), 1, "{self:?}");
        let lengths = self.headers("content-length");
        let codings = self.headers("transfer-encoding");
        assert!(lengths.len() + codings.len() <= 1, "{self:?}");
        assert!(matches!(codings[..], [] | ["chunked"]), "{self:?}");
        assert!(self.headers("upgrade").is_empty(), "{self:?}");
    }
}

/// The requests in these bytes; the last may be incomplete.
fn requests(mut bytes: &[u8]) -> Vec<RawRequest> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = split_at(bytes, b"\r\n\r\n").unwrap_or((bytes, b""));
        let mut request = RawRequest {
            head: String::from_utf8(head.to_vec()).unwrap(),
            is_complete: false,
        };
        let lengths = request.headers("content-length");
        let length = lengths.first().map(|value| value.parse());
        let rest = match length {
            _ if head.len() == bytes.len() => None,
            Some(length) => rest.get(length.unwrap()..),
            None if request.headers("transfer-encoding").is_empty() => Some(rest),
            None => after_chunks(rest),
        };
        request.is_complete = rest.is_some();
        all.push(request);
        bytes = rest.unwrap_or_default();
    }
    all
}

/// The bytes after the last chunk, if it is there. Neither extensions nor trailers are expected.
fn after_chunks(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, rest) = split_at(bytes, b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(length).unwrap(), 16).unwrap();
        let end = rest.get(length..length + 2)?;
        assert_eq!(end, b"\r\n", "a chunk is as long as its length");
        bytes = &rest[length + 2..];
        if length == 0 {
            return Some(bytes);
        }
    }
}

/// The bytes before and after the first of these separators.
fn split_at<'a>(bytes: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let mut parts = bytes.windows(separator.len());
    let at = parts.position(|part| part == separator)?;
    Some((&bytes[..at], &bytes[at + separator.len()..]))
}

#[tokio::test]
async fn the_upstream_receives_only_admitted_requests_that_read_in_one_way() {
    let recorder = ConnectionRecorder::start();
    let mut running = kit::serve(&format!(
        "
gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{}\" }}] }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
rules: [{{ id: everyone, per: [], limit: \"1/h burst 800000\" }}]
",
        recorder.upstream.address
    ));
    let gateway = running.address("gateway");
    let (mut wrong, mut admitted, mut answered) = (Vec::new(), 0, Vec::new());
    for (name, bytes, expected, count) in cases() {
        let exchange = responses_to(gateway, &bytes);
        let Ok(responses) = tokio::time::timeout(Duration::from_secs(20), exchange).await else {
            wrong.push(format!("{name}: the connection does not end"));
            continue;
        };
        let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
        if statuses != expected {
            wrong.push(format!("{name}: {statuses:?}, expected {expected:?}"));
        }
        admitted += count;
        let good = responses.iter().filter(|response| response.status == 200);
        answered.extend(good.map(|response| response.header("x-request-id").unwrap().to_owned()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(running.decisions(), admitted as u64);
    running.stop();
    let received = recorder.received().await;
    for bytes in &received {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains("smuggled"), "{text}");
    }
    let requests: Vec<RawRequest> = received.iter().flat_map(|bytes| requests(bytes)).collect();
    requests.iter().for_each(RawRequest::check);
    // A malformed body is never completed, and mostly nothing of its request is forwarded.
    assert!(requests.len() <= admitted, "{requests:#?}");
    let complete = requests.iter().filter(|request| request.is_complete);
    let mut ids: Vec<&str> = complete
        .flat_map(|request| request.headers("x-request-id"))
        .collect();
    ids.sort_unstable();
    answered.sort_unstable();
    assert_eq!(ids, answered, "each once, and no other: {requests:#?}");
    assert!(ids.len() >= 10, "{ids:?}");
}
