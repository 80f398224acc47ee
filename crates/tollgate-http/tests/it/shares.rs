//! How clients share what a server can do: slots for concurrent requests.

use std::net::{Ipv4Addr, SocketAddr};

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tollgate_http::proxy::UpstreamConfig;
use tollgate_testing::upstream::{RawUpstream, read_head, reply, streamed};
use tollgate_testing::{Response, Upstream};

use crate::proxy::{self, RunningProxy};

const SLOTS: usize = 16;

const WEBSOCKET: &str = "connection: upgrade\r\nupgrade: websocket";

fn upstream(server: SocketAddr) -> UpstreamConfig {
    let mut upstream = proxy::upstream(server);
    upstream.max_connections = SLOTS;
    upstream
}

/// A server whose `/slow` never ends, whose `/events` is an event stream, and whose `/short` responds at once.
fn server() -> Upstream {
    Upstream::answering(|request| async move {
        if request.uri().path() == "/short" {
            return reply(200, "ok");
        }
        let (body, mut reply) = streamed();
        if request.uri().path() == "/events" {
            let event_stream = HeaderValue::from_static("text/event-stream");
            reply.headers_mut().insert(CONTENT_TYPE, event_stream);
        }
        // It ends with the test.
        std::mem::forget(body);
        reply
    })
}

/// A server that agrees to WebSockets, whose `/events` is an event stream, and which answers all else at once.
fn server_of_long_lived() -> RawUpstream {
    RawUpstream::start(|mut stream, _| async move {
        loop {
            let head = read_head(&mut stream).await;
            let response: &[u8] = if head.is_empty() {
                return;
            } else if head.contains("upgrade: websocket") {
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
            } else if head.starts_with("GET /events ") {
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
            } else {
                b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
            };
            stream.write_all(response).await.unwrap();
        }
    })
}

/// A client's address.
fn host(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 3, host)
}

/// Sends a request from this address, with these header lines.
async fn send(proxy: &RunningProxy, from: Ipv4Addr, path: &str, headers: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(proxy.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{headers}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The status of a response that ends with the connection.
async fn get(proxy: &RunningProxy, from: Ipv4Addr, path: &str) -> u16 {
    let mut stream = send(proxy, from, path, "connection: close").await;
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    let (response, _) = Response::parse(&received, true).unwrap();
    response.status
}

async fn expect_short_requests_to_pass(proxy: &RunningProxy) {
    for client in 201..=220 {
        assert_eq!(get(proxy, host(client), "/short").await, 200, "{client}");
    }
}

/// A path, header lines, and the status of what opens there and may last.
type LongLived = (&'static str, &'static str, u16);

const SOCKET: LongLived = ("/", WEBSOCKET, 101);
const EVENTS: LongLived = ("/events", "accept: text/event-stream", 200);
/// Only the response shows what it is.
const UNANNOUNCED_EVENTS: LongLived = ("/events", "accept: */*", 200);

/// Opens one; `None` if there is no slot for it.
async fn open(
    proxy: &RunningProxy,
    from: Ipv4Addr,
    (path, headers, expected): LongLived,
) -> Option<TcpStream> {
    let mut stream = send(proxy, from, path, headers).await;
    let head = read_head(&mut stream).await;
    match head.split(' ').nth(1) {
        Some("503") => None,
        status => {
            assert_eq!(status, Some(&*expected.to_string()), "{headers}: {head}");
            Some(stream)
        }
    }
}

#[tokio::test]
async fn slow_streams_of_one_client_leave_slots_to_others() {
    let server = server();
    let proxy = RunningProxy::of(&[upstream(server.address)]).await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(send(&proxy, host(1), "/slow", "connection: close").await);
    }
    // Its share: three quarters.
    server.until_hits(12).await;
    for other in 2..=20 {
        assert_eq!(get(&proxy, host(other), "/short").await, 200, "{other}");
    }
    assert_eq!(server.hits(), 12 + 19);
}

#[tokio::test]
async fn event_streams_leave_slots_to_short_requests() {
    let server = server();
    let proxy = RunningProxy::of(&[upstream(server.address)]).await;
    let events: LongLived = ("/events", "connection: close", 200);
    let mut streams = Vec::new();
    for client in 1..=12 {
        let stream = open(&proxy, host(client), events).await;
        streams.push(stream.unwrap_or_else(|| panic!("none for client {client}")));
    }
    for other in 101..=104 {
        assert_eq!(get(&proxy, host(other), "/events").await, 503, "{other}");
    }
    expect_short_requests_to_pass(&proxy).await;
}

#[tokio::test]
async fn websockets_leave_slots_to_short_requests() {
    let server = server_of_long_lived();
    let proxy = RunningProxy::of(&[upstream(server.address)]).await;
    let mut sockets = Vec::new();
    for client in 1..=12 {
        let socket = open(&proxy, host(client), SOCKET).await;
        sockets.push(socket.unwrap_or_else(|| panic!("none for client {client}")));
    }
    assert!(open(&proxy, host(101), SOCKET).await.is_none());
    expect_short_requests_to_pass(&proxy).await;
}

#[tokio::test]
async fn one_client_leaves_long_lived_slots_to_others() {
    let try_with = async |kind: LongLived| {
        let server = server_of_long_lived();
        let proxy = RunningProxy::of(&[upstream(server.address)]).await;
        let mut held = Vec::new();
        while let Some(stream) = open(&proxy, host(1), kind).await {
            held.push(stream);
        }
        // Three quarters of the twelve that may be long-lived.
        assert_eq!(held.len(), 9, "{kind:?}");
        for other in [SOCKET, EVENTS] {
            let opened = open(&proxy, host(2), other).await;
            held.push(opened.unwrap_or_else(|| panic!("no {other:?} beside {kind:?}")));
        }
        assert!(open(&proxy, host(3), kind).await.is_some(), "{kind:?}");
    };
    tokio::join!(
        try_with(SOCKET),
        try_with(EVENTS),
        try_with(UNANNOUNCED_EVENTS)
    );
}
