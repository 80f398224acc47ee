//! Requests that the server's fast path can take, and others, in turns on one connection. Clients see no difference.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;
use tollgate_http::body::IncomingBody;
use tollgate_http::server::{self, Handler, ServerConfig};
use tollgate_testing::upstream::{RawUpstream, read_head, reply, streamed};
use tollgate_testing::{TIMEOUT, Upstream};

use crate::proxy::{Options, RunningProxy, upstream};

/// Responds with the method and the body of a request; at `/chunked` without a length.
fn echo() -> Upstream {
    Upstream::answering(|request| async move {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let text = format!("<{} {}>", parts.method, String::from_utf8_lossy(&body));
        if parts.uri.path() != "/chunked" {
            return reply(200, text);
        }
        let (sender, reply) = streamed();
        sender.send(http_body::Frame::data(text.into())).unwrap();
        reply
    })
}

const GET: &str = "GET /a HTTP/1.1\r\nhost: h\r\n\r\n";
const KEPT: &str = "GET /b HTTP/1.1\r\nhost: h\r\nconnection: Keep-Alive\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc";
const CHUNKED: &str = "GET /chunked HTTP/1.1\r\nhost: h\r\n\r\n";
const LAST: &str = "GET /a HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";

/// The response's body to one of these requests.
fn body_of(request: &str) -> String {
    match request == POST {
        true => "<POST abc>".to_owned(),
        false => "<GET >".to_owned(),
    }
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_order() {
    let server = echo();
    for fast_path in [true, false] {
        let options = Options {
            fast_path,
            ..Options::default()
        };
        let proxy = RunningProxy::with(&[upstream(server.address)], options).await;
        for before in [
            &[GET][..],
            &[GET, KEPT, GET],
            &[POST, GET],
            &[GET, POST, GET, KEPT],
            &[CHUNKED, GET],
            &[GET, GET, CHUNKED, POST, GET],
        ] {
            let requests = [before, &[LAST]].concat();
            // One after the other.
            let mut client = proxy.connect().await;
            for request in &requests {
                client.send(request).await;
                let response = client.response().await.unwrap();
                assert_eq!(response.text(), body_of(request), "{response:?}");
            }
            // All at once, and in pieces that end anywhere.
            let text = requests.concat();
            for size in [text.len(), 7, text.len() - 5] {
                let mut client = proxy.connect().await;
                for piece in text.as_bytes().chunks(size) {
                    client.send(piece).await;
                    tokio::task::yield_now().await;
                }
                let responses = client.responses().await;
                let bodies: Vec<String> = responses
                    .iter()
                    .map(tollgate_testing::Response::text)
                    .collect();
                let expected: Vec<String> =
                    requests.iter().map(|request| body_of(request)).collect();
                assert_eq!(bodies, expected, "{responses:?}");
            }
        }
    }
}

#[tokio::test]
async fn malformed_head_is_rejected_after_any_number_of_requests() {
    let server = echo();
    let proxy = RunningProxy::before(server.address).await;
    let malformed = "GET /a HTTP/1.1\r\nhost: h\r\na b: c\r\n\r\n";
    for count in 0..3 {
        let mut client = proxy.connect().await;
        let requests = [&*GET.repeat(count), malformed, GET].concat();
        client.try_send(requests).await;
        let responses = client.responses().await;
        let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
        let expected = [&[200].repeat(count)[..], &[400]].concat();
        assert_eq!(statuses, expected, "{responses:?}");
    }
}

/// Sends the head of a response of ten bytes and the first half of its body; the rest when it receives `true`, or nothing more.
fn halting() -> (RawUpstream, mpsc::UnboundedSender<bool>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let receiver = Arc::new(Mutex::new(receiver));
    let server = RawUpstream::start(move |mut stream, _| {
        let receiver = Arc::clone(&receiver);
        async move {
            while !read_head(&mut stream).await.is_empty() {
                let half = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345";
                stream.write_all(half).await.unwrap();
                match receiver.lock().await.recv().await {
                    Some(true) => stream.write_all(b"67890").await.unwrap(),
                    _ => return,
                }
            }
        }
    });
    (server, sender)
}

#[tokio::test]
async fn the_first_part_of_a_body_does_not_wait_for_the_rest() {
    let (server, goes_on) = halting();
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    for _ in 0..3 {
        client.send(GET).await;
        client.read_until("12345").await;
        goes_on.send(true).unwrap();
        client.read_until("67890").await;
    }
    // A truncated body is not taken for a complete one: nothing follows it.
    client.send([GET, GET].concat()).await;
    client.read_until("12345").await;
    goes_on.send(false).unwrap();
    assert_eq!(client.text_to_end().await, "");
}

#[tokio::test]
async fn client_disconnect_ends_its_request() {
    let (events, mut received) = mpsc::unbounded_channel();
    let server = RawUpstream::start(move |mut stream, _| {
        let events = events.clone();
        async move {
            read_head(&mut stream).await;
            events.send("arrived").unwrap();
            // Until the proxy closes the connection.
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            events.send("ended").unwrap();
        }
    });
    let proxy = RunningProxy::before(server.address).await;
    let mut client = proxy.connect().await;
    client.send(GET).await;
    assert_eq!(received.recv().await, Some("arrived"));
    drop(client);
    let event = tokio::time::timeout(TIMEOUT, received.recv()).await;
    assert_eq!(event.expect("in time"), Some("ended"));
}

/// Sends the path of each request to a channel.
#[derive(Clone)]
struct Recording(mpsc::UnboundedSender<String>);

impl Handler for Recording {
    type Body = Empty<Bytes>;

    async fn handle(&self, request: Request<IncomingBody>, _: SocketAddr) -> Response<Self::Body> {
        self.0.send(request.uri().path().to_owned()).unwrap();
        Response::new(Empty::new())
    }
}

#[tokio::test]
async fn pipelining_client_does_not_hold_up_others() {
    const PIPELINED: usize = 1_000;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (served, mut order) = mpsc::unbounded_channel();
    // All requests wait in the sockets before the first is read.
    let mut flooding = TcpStream::connect(address).await.unwrap();
    let flood = GET.repeat(PIPELINED);
    flooding.write_all(flood.as_bytes()).await.unwrap();
    let mut other = TcpStream::connect(address).await.unwrap();
    other.write_all(KEPT.as_bytes()).await.unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(server::serve(
        listener,
        ServerConfig::default(),
        stop.clone(),
        Recording(served),
    ));
    let mut served_before = 0;
    while order.recv().await.unwrap() != "/b" {
        served_before += 1;
    }
    assert!(
        served_before < 50,
        "{served_before} of {PIPELINED} came first"
    );
    drop((flooding, other));
    stop.cancel();
    serving.await.unwrap();
}
