//! How clients share what a server behind the gateway can do: slots for concurrent requests, and memory for what nobody reads.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tollgate_server::config::Upstream;

use crate::proxy_setting::{Front, Server, by_hand, read_head, reply, status, streamed, until};

const SLOTS: usize = 16;

const WEBSOCKET: &str = "connection: upgrade\r\nupgrade: websocket";

fn upstream(server: SocketAddr) -> Upstream {
    let mut upstream = Upstream::new("/", [format!("http://{server}")]);
    upstream.max_connections = SLOTS;
    upstream
}

/// A server whose `/slow` never ends, whose `/events` is an event stream, and which answers all else at once.
async fn server() -> Server {
    Server::answering(|request| async move {
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
    .await
}

/// A server that agrees to WebSockets, whose `/events` is an event stream, and which answers all else at once.
async fn server_of_long_lived() -> SocketAddr {
    by_hand(|mut stream, _| async move {
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
    .await
}

/// Sends a request from this address.
async fn send(front: &Front, from: Ipv4Addr, path: &str) -> TcpStream {
    send_with(front, from, path, "connection: close").await
}

async fn send_with(front: &Front, from: Ipv4Addr, path: &str, fields: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::from(from), 0).into()).unwrap();
    let mut stream = socket.connect(front.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// A path, header fields, and the status of what opens there and may last.
type LongLived = (&'static str, &'static str, u16);

const SOCKET: LongLived = ("/", WEBSOCKET, 101);
const EVENTS: LongLived = ("/events", "accept: text/event-stream", 200);
/// Only the response says what it is.
const UNANNOUNCED_EVENTS: LongLived = ("/events", "accept: */*", 200);

/// Opens one; `None` if there is no slot for it.
async fn open(
    front: &Front,
    from: Ipv4Addr,
    (path, fields, opened): LongLived,
) -> Option<TcpStream> {
    let mut stream = send_with(front, from, path, fields).await;
    match status(&read_head(&mut stream).await) {
        503 => None,
        status => {
            assert_eq!(status, opened, "{fields}");
            Some(stream)
        }
    }
}

async fn answer(mut stream: TcpStream) -> u16 {
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    status(&String::from_utf8_lossy(&response))
}

fn host(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 3, host)
}

#[tokio::test]
async fn slow_streams_of_one_client_leave_slots_to_others() {
    let server = server().await;
    let front = Front::of(&[upstream(server.address)]).await;
    let mut streams = Vec::new();
    for _ in 0..40 {
        streams.push(send(&front, host(1), "/slow").await);
    }
    until("the client to have its share", async || {
        server.requests() >= 12
    })
    .await;
    for other in 2..=20 {
        let short = send(&front, host(other), "/short").await;
        assert_eq!(answer(short).await, 200, "{other}");
    }
    // What the greedy client got: three quarters.
    assert_eq!(server.requests(), 12 + 19);
}

#[tokio::test]
async fn event_streams_leave_slots_to_short_requests() {
    let server = server().await;
    let front = Front::of(&[upstream(server.address)]).await;
    let mut streams = Vec::new();
    for client in 1..=12 {
        let mut stream = send(&front, host(client), "/events").await;
        assert_eq!(status(&read_head(&mut stream).await), 200, "{client}");
        streams.push(stream);
    }
    for other in 101..=104 {
        let refused = send(&front, host(other), "/events").await;
        assert_eq!(answer(refused).await, 503, "{other}");
    }
    for other in 201..=220 {
        let short = send(&front, host(other), "/short").await;
        assert_eq!(answer(short).await, 200, "{other}");
    }
}

#[tokio::test]
async fn websockets_leave_slots_to_short_requests() {
    let front = Front::of(&[upstream(server_of_long_lived().await)]).await;
    let mut sockets = Vec::new();
    for client in 1..=12 {
        let socket = open(&front, host(client), SOCKET).await;
        sockets.push(socket.unwrap_or_else(|| panic!("none for client {client}")));
    }
    assert!(open(&front, host(101), SOCKET).await.is_none());
    for other in 201..=220 {
        let short = send(&front, host(other), "/short").await;
        assert_eq!(answer(short).await, 200, "{other}");
    }
}

#[tokio::test]
async fn one_client_leaves_long_lived_slots_to_others() {
    let try_with = async |kind: LongLived| {
        let front = Front::of(&[upstream(server_of_long_lived().await)]).await;
        let mut held = Vec::new();
        while let Some(stream) = open(&front, host(1), kind).await {
            held.push(stream);
        }
        // Three quarters of the twelve that may be long-lived.
        assert_eq!(held.len(), 9, "{kind:?}");
        for other in [SOCKET, EVENTS] {
            let opened = open(&front, host(2), other).await;
            held.push(opened.unwrap_or_else(|| panic!("no {other:?} beside {kind:?}")));
        }
        assert!(open(&front, host(3), kind).await.is_some(), "{kind:?}");
    };
    tokio::join!(
        try_with(SOCKET),
        try_with(EVENTS),
        try_with(UNANNOUNCED_EVENTS)
    );
}
