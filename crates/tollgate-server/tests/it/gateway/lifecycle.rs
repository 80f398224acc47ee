//! Requests while the program loads another configuration, is replaced by another process, and stops.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper_util::rt::TokioExecutor;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tollgate_testing::wait::eventually;
use tollgate_testing::{Connection, http2};

use crate::kit;

const GET: &[u8] = b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";

/// Admits all requests of a test.
const RULES: &str = "rules: [{ id: address, per: [ip], limit: \"1000000/s\" }]";

/// Sends requests, on one connection for as long as the gateway keeps it open, until this is over. Returns how many there were; each
/// must be answered.
async fn send_requests(gateway: SocketAddr, is_over: Arc<AtomicBool>) -> usize {
    let (mut answered, mut kept) = (0, None);
    while !is_over.load(Relaxed) {
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => Connection::open(gateway).await,
        };
        let response = connection.request(GET).await;
        assert!(matches!(response.status, 200 | 429), "{response:?}");
        answered += 1;
        if response.header("connection") != Some("close") {
            kept = Some(connection);
        }
    }
    answered
}

/// Does something while several clients send requests. Returns how many there were; each must be answered.
async fn requests_during(gateway: SocketAddr, change: impl AsyncFnOnce()) -> usize {
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|_| tokio::spawn(send_requests(gateway, Arc::clone(&is_over))))
        .collect();
    change().await;
    is_over.store(true, Relaxed);
    let mut answered = 0;
    for client in clients {
        answered += client.await.unwrap();
    }
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_the_configuration_changes() {
    let limit = |limit: u32| format!("\"{limit}/s burst {limit}\"");
    let rules = format!(
        "rules: [{{ id: address, per: [ip], limit: {} }}]",
        limit(1_000)
    );
    let gateway = kit::gateway("", &rules);
    let config = gateway.program.read("tollgate.yaml");
    assert!(config.contains(&limit(1_000)));
    let answered = requests_during(gateway.address, async || {
        for round in 1..=20 {
            let changed = config.replace(&limit(1_000), &limit(1_000 + round));
            gateway.program.write("tollgate.yaml", &changed);
            let generation = format!("\"generation\":{}", round + 1);
            eventually(&generation, async || gateway.log().contains(&generation)).await;
        }
    })
    .await;
    assert!(answered > 100, "{answered}");
    gateway.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_the_program_is_replaced() {
    let mut gateway = kit::gateway("", RULES);
    let answered = requests_during(gateway.address, async || {
        gateway.upstream.until_hits(100).await;
        gateway.signal("USR2");
        let status = gateway.running.wait_for_exit();
        assert!(status.success(), "{status}: {}", gateway.log());
        gateway.wait_for_log("restarted: the new process has the sockets");
        // Now only the new process answers, and more than once.
        let hits = gateway.upstream.hits();
        gateway.upstream.until_hits(hits + 101).await;
    })
    .await;
    assert!(answered > 100, "{answered}");
}

/// The requests of a client: how many were answered, and how many got no byte of a response before the connection ended.
#[derive(Debug, Default)]
struct Counts {
    answered: usize,
    /// Why each of the others has no response.
    unanswered: Vec<String>,
}

/// Sends requests on connections that it keeps, until connections are refused. No response may be incomplete.
async fn send_until_the_end(gateway: SocketAddr, pause: Duration) -> Counts {
    let mut counts = Counts::default();
    while let Ok(stream) = TcpStream::connect(gateway).await {
        let mut connection = Connection::over(stream);
        while connection.stream.write_all(GET).await.is_ok() {
            let Some(response) = connection.response().await else {
                let part = connection.bytes_to_end().await;
                assert!(part.is_empty(), "{}", String::from_utf8_lossy(&part));
                counts.unanswered.push("closed".to_owned());
                break;
            };
            assert_eq!(response.status, 200);
            counts.answered += 1;
            if response.header("connection") == Some("close") {
                break;
            }
            tokio::time::sleep(pause).await;
        }
    }
    counts
}

/// The same over HTTP/2, with three requests at a time.
async fn send_over_http2_until_the_end(gateway: SocketAddr, pause: Duration) -> Counts {
    let mut counts = Counts::default();
    let settings = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    while let Ok(stream) = TcpStream::connect(gateway).await {
        let Ok((sender, _)) = http2::handshake(stream, &settings).await else {
            continue;
        };
        while !sender.is_closed() {
            let requests = [(); 3].map(|()| {
                let mut sender = sender.clone();
                async move { sender.send_request(http2::get("/hello")).await }
            });
            for response in futures_util::future::join_all(requests).await {
                let response = match response {
                    Ok(response) => response,
                    Err(error) => {
                        counts.unanswered.push(format!("{error:?}"));
                        continue;
                    }
                };
                assert_eq!(response.status(), 200);
                response.into_body().collect().await.expect("all of a body");
                counts.answered += 1;
            }
            tokio::time::sleep(pause).await;
        }
    }
    counts
}

/// Stops a gateway while clients send requests in this way.
///
/// Each client has a thread of its own. hyper runs an HTTP/2 client as two tasks; on two threads, the one that has just sent a
/// request gives it up when the other receives GOAWAY at that moment, although the server answers it.
async fn check_stop<Fut>(send: fn(SocketAddr, Duration) -> Fut)
where
    Fut: Future<Output = Counts> + 'static,
{
    for _ in 0..3 {
        let mut gateway = kit::gateway("", RULES);
        // Some of the connections are idle now and then.
        let clients: Vec<_> = (0..12)
            .map(|nth| {
                let (address, pause) = (gateway.address, Duration::from_millis(nth % 4 * 20));
                std::thread::spawn(move || {
                    let runtime = Builder::new_current_thread().enable_all().build();
                    runtime.unwrap().block_on(send(address, pause))
                })
            })
            .collect();
        gateway.upstream.until_hits(1_001).await;
        gateway.running.stop();
        let mut total = Counts::default();
        for client in clients {
            let counts = client.join().unwrap();
            total.answered += counts.answered;
            total.unanswered.extend(counts.unanswered);
        }
        let hits = gateway.upstream.hits();
        assert_eq!(
            total.answered, hits,
            "a request that reached the upstream is answered: {total:?}"
        );
    }
}

#[tokio::test]
async fn at_shutdown_every_request_at_the_upstream_is_answered() {
    check_stop(send_until_the_end).await;
}

#[tokio::test]
async fn at_shutdown_every_http2_request_at_the_upstream_is_answered() {
    check_stop(send_over_http2_until_the_end).await;
}

#[test]
fn at_shutdown_the_audit_trail_is_written() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 1\" }]";
    let database = "database: { url: \"sqlite:trail.db\" }\nrules_from: file";
    let gateway = kit::gateway("", &format!("{database}\n{rules}"));
    let statuses = [(); 4].map(|()| gateway.running.get("gateway", "/hello", &[]).status);
    assert_eq!(statuses, [200, 429, 429, 429]);
    let program = gateway.stop();
    let violations = program.stdout(&["violations", "--json"]);
    assert!(
        violations.contains("\"count\":3") || violations.contains("\"count\": 3"),
        "{violations}"
    );
}
