//! Connections of one thread take turns, however many requests each of them has.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tollgate_http::body::IncomingBody;
use tollgate_http::server::{self, Handler, ServerConfig};
use tollgate_testing::http2::{PREFACE, frame};
use tollgate_testing::wait::eventually;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const MANY: u32 = 1_000;

/// Notes the order in which requests are handled, by their hosts.
#[derive(Clone, Default)]
struct Order(Arc<Mutex<Vec<String>>>);

impl Order {
    fn count(&self, host: &str) -> usize {
        let hosts = self.0.lock().unwrap();
        hosts.iter().filter(|handled| *handled == host).count()
    }
}

impl Handler for Order {
    type Body = Empty<Bytes>;

    async fn handle(&self, request: Request<IncomingBody>, _: SocketAddr) -> Response<Self::Body> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        self.0.lock().unwrap().push(host);
        Response::new(Empty::new())
    }
}

/// These requests to a host, of about a hundred bytes each.
fn requests(host: &str, nths: std::ops::Range<u32>) -> Vec<u8> {
    let path = format!("/{}", "a".repeat(79));
    // `GET PATH HTTP/2`: two entries of HPACK's static table, and literals for path and host.
    let mut head = vec![0x82, 0x86];
    for (name, value) in [(0x04, &*path), (0x01, host)] {
        head.extend([name, u8::try_from(value.len()).unwrap()]);
        head.extend(value.as_bytes());
    }
    // END_HEADERS and END_STREAM.
    nths.flat_map(|nth| frame(HEADERS, 0x5, 2 * nth + 1, &head))
        .collect()
}

/// A connection over which a first request was handled.
async fn connect(address: SocketAddr, host: &str, order: &Order) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let first = requests(host, 0..1);
    let begin = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &first].concat();
    client.write_all(&begin).await.unwrap();
    eventually("the first request", async || order.count(host) == 1).await;
    client
}

/// All on one thread, so the server sees nothing before all of it is sent.
#[tokio::test]
async fn a_busy_connection_lets_others_have_their_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = ServerConfig {
        max_streams: MANY,
        ..ServerConfig::default()
    };
    let (order, stop) = (Order::default(), CancellationToken::new());
    let server = server::serve(listener, config, stop.clone(), order.clone());
    let server = tokio::spawn(server);
    let busy = connect(address, "busy", &order).await;
    let other = connect(address, "other", &order).await;
    order.0.lock().unwrap().clear();
    for (client, bytes) in [
        (&busy, requests("busy", 1..MANY + 1)),
        (&other, requests("other", 1..2)),
    ] {
        client.writable().await.unwrap();
        assert_eq!(client.try_write(&bytes).unwrap(), bytes.len());
    }
    eventually("all requests", async || order.count("busy") == 1_000).await;
    let handled = order.0.lock().unwrap().clone();
    let before = handled.iter().position(|host| host == "other").unwrap();
    assert!(before < 300, "{before} requests of the busy connection");
    stop.cancel();
    drop((busy, other));
    server.await.unwrap();
}
