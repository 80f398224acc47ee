//! Connections on which requests without a body, and others, come in any order: most are served without hyper, and nobody notices which.

use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::proxy_setting::{Front, Server, by_hand, read_head, reply, streamed};

/// Answers with the method and the body of a request; at `/chunked` without saying how long that is.
async fn echo() -> Server {
    Server::answering(|request| async move {
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
    .await
}

const GET: &str = "GET /a HTTP/1.1\r\nhost: h\r\n\r\n";
const KEPT: &str = "GET /b HTTP/1.1\r\nhost: h\r\nconnection: Keep-Alive\r\n\r\n";
const POST: &str = "POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc";
const CHUNKED: &str = "GET /chunked HTTP/1.1\r\nhost: h\r\n\r\n";
const LAST: &str = "GET /a HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn whatever_is_asked_on_one_connection_is_answered_in_its_order() {
    let server = echo().await;
    let front = Front::before(server.address).await;
    for before in [
        &[GET][..],
        &[GET, KEPT, GET],
        &[POST, GET],
        &[GET, POST, GET, KEPT],
        &[CHUNKED, GET],
        &[GET, GET, CHUNKED, POST, GET],
    ] {
        let all = [before, &[LAST]].concat();
        // One after the other.
        let mut caller = front.caller().await;
        for request in &all {
            let method = request.split(' ').next().unwrap();
            caller.send(request).await;
            let heard = caller.read_until(">").await;
            assert!(heard.contains(&format!("<{method} ")), "{heard}");
        }
        // All at once, and in pieces that end anywhere.
        let text = all.concat();
        for size in [text.len(), 7, text.len() - 5] {
            let mut caller = front.caller().await;
            for piece in text.as_bytes().chunks(size) {
                caller.send(piece).await;
                tokio::task::yield_now().await;
            }
            let heard = caller.rest().await;
            let methods: Vec<&str> = (heard.split('<').skip(1))
                .map(|rest| rest.split(' ').next().unwrap())
                .collect();
            let asked: Vec<&str> = all.iter().map(|r| r.split(' ').next().unwrap()).collect();
            assert_eq!(methods, asked, "{heard}");
        }
    }
}

#[tokio::test]
async fn a_head_that_is_wrong_is_refused_after_any_number_that_were_right() {
    let server = echo().await;
    let front = Front::before(server.address).await;
    let wrong = "GET /a HTTP/1.1\r\nhost: h\r\na b: c\r\n\r\n";
    for before in ["", GET, &[GET, GET].concat()] {
        let mut caller = front.caller().await;
        caller.send([before, wrong, GET].concat()).await;
        let heard = caller.rest().await;
        assert_eq!(
            heard.matches("HTTP/1.1 200").count(),
            before.len() / GET.len()
        );
        assert_eq!(heard.matches("HTTP/1.1 400").count(), 1, "{heard}");
        assert_eq!(
            heard.matches("HTTP/1.1 ").count(),
            before.len() / GET.len() + 1
        );
    }
}

/// Sends the head of an answer of ten bytes and the first half of its body; the rest when it is told to, or nothing any more.
async fn halting() -> (std::net::SocketAddr, mpsc::UnboundedSender<bool>) {
    let (tell, told) = mpsc::unbounded_channel();
    let told = std::sync::Arc::new(tokio::sync::Mutex::new(told));
    let address = by_hand(move |mut stream, _| {
        let told = told.clone();
        async move {
            while !read_head(&mut stream).await.is_empty() {
                let half = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345";
                stream.write_all(half).await.unwrap();
                match told.lock().await.recv().await {
                    Some(true) => stream.write_all(b"67890").await.unwrap(),
                    _ => return,
                }
            }
        }
    })
    .await;
    (address, tell)
}

#[tokio::test]
async fn what_is_there_of_an_answer_does_not_wait_for_the_rest() {
    let (server, tell) = halting().await;
    let front = Front::before(server).await;
    let mut caller = front.caller().await;
    for _ in 0..3 {
        caller.send(GET).await;
        caller.read_until("12345").await;
        tell.send(true).unwrap();
        caller.read_until("67890").await;
    }
    // What is cut off is not taken for whole: nothing follows it.
    caller.send([GET, GET].concat()).await;
    caller.read_until("12345").await;
    tell.send(false).unwrap();
    assert_eq!(caller.rest().await, "");
}

#[tokio::test]
async fn who_leaves_takes_its_request_along() {
    let (gone, mut has_gone) = mpsc::unbounded_channel();
    let server = by_hand(move |mut stream, _| {
        let gone = gone.clone();
        async move {
            read_head(&mut stream).await;
            // Until the proxy gives up on us.
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
            gone.send(()).unwrap();
        }
    })
    .await;
    let front = Front::before(server).await;
    let mut caller = front.caller().await;
    caller.send(GET).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    drop(caller);
    let heard = tokio::time::timeout(crate::proxy_setting::LONG, has_gone.recv());
    assert_eq!(heard.await.expect("in time"), Some(()));
}

#[tokio::test]
async fn a_client_that_pipelines_does_not_hold_up_others() {
    const PIPELINED: usize = 1_000;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (served, mut order) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<_>| {
        let served = served.clone();
        async move {
            served.send(request.uri().path().to_owned()).unwrap();
            drop::<tollgate_server::listen::Arriving>(request.into_body());
            Ok(http::Response::new(
                http_body_util::Empty::<bytes::Bytes>::new(),
            ))
        }
    });
    // All requests wait in the sockets before the first is read.
    let mut flooding = tokio::net::TcpStream::connect(address).await.unwrap();
    flooding
        .write_all(GET.repeat(PIPELINED).as_bytes())
        .await
        .unwrap();
    let mut other = tokio::net::TcpStream::connect(address).await.unwrap();
    other.write_all(KEPT.as_bytes()).await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let config = tollgate_server::listen::ListenConfig::default();
    let serving = tokio::spawn(tollgate_server::listen::serve(
        listener,
        config,
        stop.clone(),
        service,
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
