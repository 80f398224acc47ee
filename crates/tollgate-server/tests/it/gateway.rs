//! The gateway's front on a real socket, with a service behind it that counts and echoes; and a client that says exactly what it is told to.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tollgate::{Decision, Limiter};
use tollgate_server::config;
use tollgate_server::door::Door;
use tollgate_server::gateway::{Gateway, GatewayMetrics, RequestBody};
use tollgate_server::live::{Live, LiveConfig};
use tollgate_server::metrics;
use tollgate_tower::policy::Head;
use tower_service::Service;

use crate::gateway_queue::Rush;

/// So long does a test wait for what must come. Never reached if all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Enough for every test that is not about limits.
const BURST: u64 = 800_000;

pub(crate) const PLENTY: &str = "rules: [{ id: everyone, per: [], limit: \"1/h burst 800000\" }]";

/// A gateway that runs, and what is known of it.
pub(crate) struct Front {
    pub(crate) address: SocketAddr,
    pub(crate) behind: Arc<Seen>,
    pub(crate) stop: CancellationToken,
    pub(crate) folder: TempDir,
    gateway: Gateway,
    pub(crate) door: Door,
    registry: Registry,
}

/// What has come to the service behind.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) requests: Mutex<Vec<(Instant, Uri, HeaderMap)>>,
    pub(crate) at_a_time: AtomicUsize,
}

impl Seen {
    pub(crate) fn count(&self) -> usize {
        self.requests.lock().len()
    }

    /// Waits until so many have come.
    pub(crate) async fn until(&self, count: usize) {
        let patience = Instant::now() + PATIENCE;
        while self.count() < count {
            assert!(
                Instant::now() < patience,
                "{} of {count} came",
                self.count()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Starts a gateway. `fields` are those of `gateway` in YAML's short form, `rest` the rest of the configuration. `FOLDER` is the folder of the test.
pub(crate) async fn start(fields: &str, rest: &str) -> Front {
    let folder = tempfile::tempdir().unwrap();
    start_in(folder, fields, rest).await
}

pub(crate) async fn start_in(folder: TempDir, fields: &str, rest: &str) -> Front {
    let fields = fields.replace("FOLDER", &folder.path().display().to_string());
    let text = format!(
        "gateway: {{ workers: 2, upstreams: [{{ to: \"http://unused\" }}], {fields} }}\n{rest}\n"
    );
    let file = folder.path().join("tollgate.yaml");
    std::fs::write(&file, &text).unwrap();
    let config = config::parse(&text, &|_| None);
    let config =
        config.unwrap_or_else(|problems| panic!("{}", problems.render("tollgate.yaml", &text)));
    let live = Live::start(LiveConfig::of(&file)).await.unwrap().0;
    let door = Door::new(live, Limiter::in_memory(), None);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut registry = metrics::registry(&door);
    let metrics = GatewayMetrics::new(registry.sub_registry_with_prefix("tollgate"));
    let behind = Arc::new(Seen::default());
    let (stop, seen) = (CancellationToken::new(), Arc::clone(&behind));
    let make = move || Echo(Arc::clone(&seen));
    let front = config.gateway.unwrap().front;
    let gateway = Gateway::start(&front, listener, &door, &metrics, make, stop.clone()).unwrap();
    Front {
        address,
        behind,
        stop,
        folder,
        gateway,
        door,
        registry,
    }
}

impl Front {
    /// Connects, says this, and hears all that is said until the connection ends.
    pub(crate) async fn exchange(&self, said: impl AsRef<[u8]>) -> Vec<Heard> {
        exchange(self.address, said).await
    }

    /// One good request.
    pub(crate) async fn get(&self, path: &str) -> Heard {
        let said = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut heard = self.exchange(said).await;
        assert_eq!(heard.len(), 1, "{path}: {heard:?}");
        heard.remove(0)
    }

    /// How many requests were decided on, under the rules of [`PLENTY`].
    pub(crate) async fn decided(&self) -> usize {
        let decision = self.decide().await;
        // Without this one.
        usize::try_from(BURST - 1 - decision.remaining().unwrap()).unwrap()
    }

    /// A figure as it is exported: `tollgate_gateway_connections_open`, say, with its labels.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let text = metrics::text(&self.registry, metrics::Format::OpenMetrics);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let line = line.unwrap_or_else(|| panic!("{name} is not among\n{text}"));
        line.parse().unwrap()
    }

    /// Waits until a figure is what it should be.
    pub(crate) async fn until_figure(&self, name: &str, is_right: impl Fn(u64) -> bool) {
        let patience = Instant::now() + PATIENCE;
        while !is_right(self.figure(name)) {
            assert!(Instant::now() < patience, "{name} is {}", self.figure(name));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// How many were decided on, whatever came of them.
    pub(crate) fn decisions(&self) -> u64 {
        let text = metrics::text(&self.registry, metrics::Format::OpenMetrics);
        let lines = (text.lines()).filter(|line| line.starts_with("tollgate_decisions_total"));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    pub(crate) async fn until_decisions(&self, wanted: u64) {
        let patience = Instant::now() + PATIENCE;
        while self.decisions() < wanted {
            assert!(
                Instant::now() < patience,
                "{} of {wanted}",
                self.decisions()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Decides about a request that nobody makes.
    pub(crate) async fn decide(&self) -> Decision {
        let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
        let head = Head {
            method: &Method::GET,
            uri: &uri,
            headers: &headers,
        };
        let decision = self.door.decide(&head, [127, 0, 0, 1].into());
        decision.await.unwrap()
    }

    /// Stops it, and gives back its folder.
    pub(crate) async fn end(self) -> TempDir {
        self.stop.cancel();
        let ended = tokio::time::timeout(PATIENCE, self.gateway.ended()).await;
        ended.expect("the gateway ends");
        self.folder
    }
}

/// Connects, says this, and hears all that is said until the connection ends.
pub(crate) async fn exchange(address: SocketAddr, said: impl AsRef<[u8]>) -> Vec<Heard> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It may have heard enough before we have said all.
    let _ = stream.write_all(said.as_ref()).await;
    heard(&mut stream).await
}

/// Answers as the path says, and keeps count.
#[derive(Clone)]
struct Echo(Arc<Seen>);

impl Service<Request<RequestBody>> for Echo {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let seen = Arc::clone(&self.0);
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        (seen.requests.lock()).push((Instant::now(), head.uri, head.headers));
        Box::pin(async move {
            seen.at_a_time.fetch_add(1, Relaxed);
            let answer = answer(&path, body).await;
            seen.at_a_time.fetch_sub(1, Relaxed);
            Ok(answer)
        })
    }
}

async fn answer(path: &str, body: RequestBody) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    match path.split('/').collect::<Vec<_>>()[..] {
        // What a proxy would say whose request could not be sent.
        ["", "echo"] => match body.collect().await {
            Ok(body) => *response.body_mut() = body.to_bytes().into(),
            Err(_) => *response.status_mut() = http::StatusCode::BAD_GATEWAY,
        },
        ["", "wait", ms] => {
            tokio::time::sleep(Duration::from_millis(ms.parse().unwrap())).await;
        }
        ["", "big", bytes] => *response.body_mut() = vec![b'x'; bytes.parse().unwrap()].into(),
        _ => *response.body_mut() = "hello".into(),
    }
    response
}

/// A response, as it came.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Heard {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut fields = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        fields.next().map(|(_, value)| value)
    }
}

/// All responses until the connection ends.
pub(crate) async fn heard(stream: &mut (impl AsyncRead + Unpin)) -> Vec<Heard> {
    let mut bytes = Vec::new();
    // A connection that is cut has said what it said.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .expect("the connection ends");
    let mut rest = &bytes[..];
    let mut all = Vec::new();
    while let Some((heard, used)) = parsed(rest) {
        all.push(heard);
        rest = &rest[used..];
    }
    assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(rest));
    all
}

/// The next response on a connection that stays.
pub(crate) async fn hear_one(stream: &mut (impl AsyncRead + Unpin)) -> Option<Heard> {
    let mut bytes = Vec::new();
    loop {
        if let Some((heard, _)) = parsed(&bytes) {
            return Some(heard);
        }
        let mut some = [0; 4_096];
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut some)).await;
        match read.expect("something comes") {
            Ok(0) | Err(_) => return None,
            Ok(read) => bytes.extend_from_slice(&some[..read]),
        }
    }
}

/// The first response, and how many bytes it has, if all of it is there.
fn parsed(bytes: &[u8]) -> Option<(Heard, usize)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
    let mut heard = Heard {
        status,
        head,
        body: Vec::new(),
    };
    let length = heard
        .field("content-length")
        .map_or(0, |value| value.parse().unwrap());
    let length = if status == 100 { 0 } else { length };
    heard.body = bytes.get(end..end + length)?.to_vec();
    Some((heard, end + length))
}

#[tokio::test]
async fn a_request_goes_through_and_its_answer_comes_back_with_the_limits_and_a_name() {
    let front = start("", PLENTY).await;
    let mut stream = TcpStream::connect(front.address).await.unwrap();
    for nth in 1..=3_u64 {
        let said = "POST /echo?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nworld";
        stream.write_all(said.as_bytes()).await.unwrap();
        let heard = hear_one(&mut stream).await.unwrap();
        assert_eq!((heard.status, &heard.body[..]), (200, &b"world"[..]));
        let left = (BURST - nth).to_string();
        assert_eq!(heard.field("x-ratelimit-remaining"), Some(&*left));
        assert_eq!(heard.field("x-request-id").map(str::len), Some(32));
    }
    drop(stream);
    let (_, uri, headers) = front.behind.requests.lock()[0].clone();
    assert_eq!((uri.path(), uri.query()), ("/echo", Some("a=b")));
    assert_eq!(headers["x-request-id"].len(), 32);
    front
        .until_figure("tollgate_gateway_connections_open", |open| open == 0)
        .await;
    assert_eq!(
        front.figure("tollgate_gateway_connections_accepted_total"),
        1
    );
    assert_eq!(
        front.figure("tollgate_gateway_requests_total{status=\"2xx\"}"),
        3
    );
    assert_eq!(
        front.figure("tollgate_gateway_request_duration_seconds_count"),
        3
    );
    front.end().await;
}

#[tokio::test]
async fn a_path_goes_on_as_it_came_unless_it_is_to_be_normalised() {
    for (paths, forwarded) in [
        ("", "/a//b/../%7euser?q=%2F"),
        ("paths: { forward: original }", "/a//b/../%7euser?q=%2F"),
        ("paths: { forward: normalised }", "/a/~user?q=%2F"),
    ] {
        let front = start("", &format!("{PLENTY}\n{paths}")).await;
        assert_eq!(front.get("/a//b/../%7euser?q=%2F").await.status, 200);
        let uri = front.behind.requests.lock()[0].1.clone();
        assert_eq!(uri.to_string(), forwarded, "{paths}");
        front.end().await;
    }
}

#[tokio::test]
async fn a_path_that_may_meet_other_rules_at_the_upstream_is_refused_with_the_reason() {
    let rules =
        "rules: [{ id: admin, match: { path: /admin }, per: [], limit: \"1/h burst 800000\" }]";
    let front = start("", rules).await;
    for path in ["//admin", "/%61dmin", "/x/../admin", "/admin;a"] {
        let heard = front.get(path).await;
        let body: serde_json::Value = serde_json::from_slice(&heard.body).unwrap();
        assert_eq!(heard.status, 400, "{path}");
        let detail = body["detail"].as_str().unwrap();
        assert!(detail.contains("meet different rules"), "{path}: {detail}");
    }
    assert_eq!(front.behind.count(), 0);
    for path in ["/admin", "/admin/", "/x//y", "/%61dmin/x", "/x/../y"] {
        assert_eq!(front.get(path).await.status, 200, "{path}");
    }
    front.end().await;
}

#[tokio::test]
async fn a_denial_never_touches_the_service_behind() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 3\" }]";
    let front = start("", rules).await;
    let mut statuses = Vec::new();
    for _ in 0..10 {
        let heard = front.get("/").await;
        assert!(heard.field("x-request-id").is_some());
        statuses.push(heard.status);
    }
    assert_eq!(statuses[..3], [200; 3]);
    assert_eq!(statuses[3..], [429; 7]);
    assert_eq!(front.behind.count(), 3);
    assert_eq!(
        front.figure("tollgate_gateway_requests_total{status=\"4xx\"}"),
        7
    );
    front.end().await;
}

/// R03, in front of a service in this process.
#[tokio::test]
async fn a_leaky_bucket_lets_requests_through_at_a_constant_rate() {
    const CALLERS: u64 = 150;
    const QUEUE: usize = 40;
    const PER_SECOND: u32 = 20;
    let rules = format!(
        "rules: [{{ id: even, per: [], limit: {{ algorithm: leaky_bucket, rate: {PER_SECOND}/s, queue: {QUEUE} }} }}]"
    );
    let front = Arc::new(start("", &rules).await);
    let began = Instant::now();
    let asks: Vec<_> = (0..CALLERS)
        .map(|_| {
            let front = Arc::clone(&front);
            tokio::spawn(async move { front.get("/").await.status })
        })
        .collect();
    front.until_decisions(CALLERS).await;
    let decided = Instant::now();
    let mut statuses = Vec::new();
    for ask in asks {
        statuses.push(ask.await.unwrap());
    }
    let came = (front.behind.requests.lock().iter())
        .map(|(at, ..)| *at)
        .collect();
    let rush = Rush {
        per_second: PER_SECOND,
        queue: QUEUE,
        began,
        decided,
        statuses,
        came,
    };
    rush.check();
    let front = Arc::into_inner(front).unwrap();
    front.end().await;
}
