//! The decision service on a port of its own, and a client that says exactly what it is told to.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tollgate_server::door::{self, Door};
use tollgate_server::listen::{self, ListenConfig};
use tollgate_server::live::{Live, LiveConfig};
use tollgate_server::service::{self, Metrics};

/// So long is waited for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A service that ends with the test.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
    registry: Arc<Registry>,
    _folder: TempDir,
}

impl Served {
    /// With this configuration, which has a section `service`.
    pub(crate) fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        std::fs::write(&file, config).unwrap();
        let stop = CancellationToken::new();
        let (tell, told) = mpsc::channel();
        let until = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let (live, config) = Live::start(LiveConfig::of(&file)).await.unwrap();
                let limiter = door::limiter(&config.store).unwrap();
                let mut registry = Registry::default();
                let metrics = Metrics::new(&mut registry);
                let door = Door::new(live, limiter, None);
                let router = service::router(door, config.service.as_ref().unwrap(), metrics);
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                tell.send((address, Arc::new(registry))).unwrap();
                listen::serve(listener, ListenConfig::default(), until, router).await;
            });
        });
        let (address, registry) = told.recv_timeout(PATIENCE).unwrap();
        Self {
            address,
            stop,
            thread: Some(thread),
            registry,
            _folder: folder,
        }
    }

    /// Asks in JSON, with these headers beside.
    pub(crate) fn post(&self, path: &str, headers: &str, body: &str) -> Reply {
        ask(self.address, "POST", path, headers, body)
    }

    /// Asks one check; the answer must come with 200.
    pub(crate) fn check(&self, body: &Value) -> Value {
        let reply = self.post("/v1/check", "", &body.to_string());
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.json()
    }

    pub(crate) fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            std::thread::panicking() || matches!(ended, Some(Ok(()))),
            "the service did not end well"
        );
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// By names in small letters; lines of one name are joined by a comma.
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// One request on a connection of its own. `headers` are whole lines.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Reply {
    let host = if headers.to_ascii_lowercase().contains("host:") && !headers.contains("-Host:") {
        ""
    } else {
        "Host: localhost\r\n"
    };
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    ask_bytes(address, request.as_bytes())
}

/// These bytes on a connection of their own, which the other side is to close.
pub(crate) fn ask_bytes(address: SocketAddr, request: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let mut headers: HashMap<String, String> = HashMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(':')) {
        let known = headers.entry(name.to_ascii_lowercase()).or_default();
        if !known.is_empty() {
            known.push_str(", ");
        }
        known.push_str(value.trim());
    }
    Reply {
        status: status.parse().unwrap(),
        headers,
        body: body.to_owned(),
    }
}

/// A small API that keeps the heads of the requests that reach it.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Upstream {
    /// Its thread ends with the process.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::default());
        let kept = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || answer(stream, &kept));
            }
        });
        Self { address, heads }
    }

    pub(crate) fn hits(&self) -> usize {
        self.heads.lock().len()
    }

    /// The heads of all requests, with their line ends.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

fn answer(mut stream: TcpStream, heads: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            // Whoever only looked whether somebody is here.
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    heads.lock().push(head);
    let _ = stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nreached");
}

/// A port that nobody has at the moment, for a program that cannot be asked which it took.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Waits until something is so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
