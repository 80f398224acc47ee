//! What the program says to a server behind it, byte for byte, when it is asked in ways that servers may read differently.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use crate::gateway::exchange;
use crate::gateway_malformed::cases;
use crate::proxy_setting::LONG;
use crate::serve::decided;
use crate::serving::Serving;

/// What the test itself says to it.
const LAST: &[u8] = b"GET /last HTTP/1.1\r\nhost: a\r\n\r\n";

/// A server that takes down all that it is told, and answers what it has heard to the end.
struct Wire {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<JoinHandle<Vec<u8>>>>>,
}

impl Wire {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let accepted = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = std::thread::spawn(move || take_down(stream));
                accepted.lock().push(connection);
            }
        });
        Self {
            address,
            connections,
        }
    }

    /// All that was said on each connection; whoever spoke must have ended.
    fn said(self) -> Vec<Vec<u8>> {
        // Who is answered now was let in after all others.
        let mut last = TcpStream::connect(self.address).unwrap();
        last.write_all(LAST).unwrap();
        assert_eq!(last.read(&mut [0]).unwrap(), 1);
        drop(last);
        let connections = std::mem::take(&mut *self.connections.lock());
        let said = connections.into_iter().map(|said| said.join().unwrap());
        said.filter(|said| said != LAST).collect()
    }
}

fn take_down(mut stream: TcpStream) -> Vec<u8> {
    let (mut said, mut answered, mut some) = (Vec::new(), 0, [0; 4_096]);
    loop {
        match stream.read(&mut some) {
            Ok(0) | Err(_) => return said,
            Ok(read) => said.extend_from_slice(&some[..read]),
        }
        let whole = requests(&said).into_iter().filter(|asked| asked.is_whole);
        let whole = whole.count();
        for _ in answered..whole {
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            let _ = stream.write_all(answer);
        }
        answered = whole;
    }
}

/// A request as it was written.
#[derive(Debug)]
struct Asked {
    head: String,
    /// Whether its body came to its end.
    is_whole: bool,
}

impl Asked {
    /// All values of a field.
    fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.head.split("\r\n").skip(1);
        let fields = fields.filter_map(|line| line.split_once(':'));
        fields
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }

    /// Whether there is but one way to read it.
    fn check(&self) {
        let lines: Vec<&str> = self.head.split("\r\n").collect();
        let no_ends = |line: &&str| !line.contains(['\r', '\n', '\0']);
        assert!(lines.iter().all(no_ends), "{self:?}");
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
        assert_eq!(self.all("host").len(), 1, "{self:?}");
        let (lengths, codings) = (self.all("content-length"), self.all("transfer-encoding"));
        assert!(lengths.len() + codings.len() <= 1, "{self:?}");
        assert!(matches!(codings[..], [] | ["chunked"]), "{self:?}");
        assert!(self.all("upgrade").is_empty(), "{self:?}");
    }
}

/// What was said, request by request; the last may not have come to its end.
fn requests(mut said: &[u8]) -> Vec<Asked> {
    let mut all = Vec::new();
    while !said.is_empty() {
        let (head, rest) = cut(said, b"\r\n\r\n").unwrap_or((said, b""));
        let mut asked = Asked {
            head: String::from_utf8(head.to_vec()).unwrap(),
            is_whole: false,
        };
        let length = asked
            .all("content-length")
            .first()
            .map(|value| value.parse());
        let rest = match length {
            _ if head.len() == said.len() => None,
            Some(length) => rest.get(length.unwrap()..),
            None if asked.all("transfer-encoding").is_empty() => Some(rest),
            None => behind_chunks(rest),
        };
        asked.is_whole = rest.is_some();
        all.push(asked);
        said = rest.unwrap_or_default();
    }
    all
}

/// What follows behind the last chunk, if it is there. Neither extensions nor trailers are expected.
fn behind_chunks(mut said: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, rest) = cut(said, b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(length).unwrap(), 16).unwrap();
        let end = rest.get(length..length + 2)?;
        assert_eq!(end, b"\r\n", "a chunk ends where it says");
        said = &rest[length + 2..];
        if length == 0 {
            return Some(said);
        }
    }
}

/// What stands before and behind the first of these.
fn cut<'a>(said: &'a [u8], end: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = said.windows(end.len()).position(|part| part == end)?;
    Some((&said[..at], &said[at + end.len()..]))
}

#[tokio::test]
async fn whatever_is_asked_a_server_is_told_what_was_decided_on_and_in_one_way_to_read_it() {
    let wire = Wire::start();
    let mut serving = Serving::by(&format!(
        "
gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{}\" }}] }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
rules: [{{ id: everyone, per: [], limit: \"1/h burst 800000\" }}]
",
        wire.address
    ));
    let gateway = serving.address("gateway");
    let (mut wrong, mut allowed, mut answered) = (Vec::new(), 0, Vec::new());
    for (name, said, expected, reached) in cases() {
        let heard = tokio::time::timeout(LONG, exchange(gateway, &said)).await;
        let Ok(heard) = heard else {
            wrong.push(format!("{name}: the connection does not end"));
            continue;
        };
        let statuses: Vec<u16> = heard.iter().map(|heard| heard.status).collect();
        if statuses != expected {
            wrong.push(format!("{name}: {statuses:?}, expected {expected:?}"));
        }
        allowed += reached;
        let good = heard.iter().filter(|heard| heard.status == 200);
        answered.extend(good.map(|heard| heard.field("x-request-id").unwrap().to_owned()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(decided(&serving), allowed as u64);
    serving.signal("TERM");
    assert!(serving.ended().success(), "{}", serving.log());
    let said = wire.said();
    for said in &said {
        let text = String::from_utf8_lossy(said);
        assert!(!text.contains("smuggled"), "{text}");
    }
    let asked: Vec<Asked> = said.iter().flat_map(|said| requests(said)).collect();
    asked.iter().for_each(Asked::check);
    // A body that turns out to be wrong never comes to its end, and mostly nothing of its request goes out.
    assert!(asked.len() <= allowed, "{asked:#?}");
    let whole = asked.iter().filter(|asked| asked.is_whole);
    let mut named: Vec<&str> = whole.flat_map(|asked| asked.all("x-request-id")).collect();
    named.sort_unstable();
    answered.sort_unstable();
    assert_eq!(named, answered, "each once, and nothing else: {asked:#?}");
    assert!(named.len() >= 10, "{named:?}");
}
