//! The fast paths beside hyper: the same bytes are the same message, with the same framing, or the fast path declines.
//!
//! Each function panics if the two differ, and returns whether the fast path took what it was given. Shared with the fuzz
//! targets in `fuzz/`, which feed it bytes; here proptest does, in `generated`.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use http::header::{CONNECTION, DATE};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{client, server};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tollgate_http::{proxy, server::fast_path};

/// A plain request, for hyper to answer or to send.
const PLAIN: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// The limits that the proxy gives hyper.
const MAX_RESPONSE_HEADERS: usize = 256;

/// Requests on one connection, as the server reads them: by the fast path as far as it goes and then by hyper, or by hyper alone.
/// Returns how many the fast path took.
pub(crate) fn compare_requests(bytes: &[u8], max_head_bytes: usize) -> usize {
    let mut taken = Vec::new();
    let mut at = 0;
    while let Some((request, end)) = fast_path::parse_request(&bytes[at..], max_head_bytes) {
        taken.push(Seen::of(&request.map(|()| ()), Ok(Vec::new())));
        at += end;
    }
    let count = taken.len();
    let (rest, rest_end) = read_by_hyper(&bytes[at..], max_head_bytes);
    taken.extend(rest);
    let (expected, expected_end) = read_by_hyper(bytes, max_head_bytes);
    assert_eq!(taken, expected, "{}", bytes.escape_ascii());
    assert_eq!(rest_end, expected_end, "{}", bytes.escape_ascii());
    if fast_path::rejection(&bytes[at..]).is_some() {
        let is_rejected = rest_end.is_some_and(|end| end.is_err()) && expected.len() == count;
        assert!(is_rejected, "hyper accepts {}", bytes.escape_ascii());
    }
    count
}

/// The first response on a connection to a server. Returns whether the fast path took it.
pub(crate) fn compare_response(bytes: &[u8]) -> bool {
    let Some(response) = proxy::fast_path::parse_response(bytes) else {
        return false;
    };
    let received = response_read_by_hyper(bytes);
    let (mut parts, body, is_reusable) =
        received.unwrap_or_else(|error| panic!("{error}: {}", bytes.escape_ascii()));
    // The fast path leaves out what is for this hop alone.
    parts.headers.remove(CONNECTION);
    let expected = (parts.status, parts.version, lines(&parts.headers), body);
    let (status, version) = (response.status(), response.version());
    let headers = lines(response.headers());
    let seen = (status, version, headers, response.into_body());
    assert_eq!(seen, expected, "{}", bytes.escape_ascii());
    let reason = parts.extensions.get::<hyper::ext::ReasonPhrase>();
    assert!(reason.is_none(), "{reason:?}");
    assert!(is_reusable, "hyper closes after {}", bytes.escape_ascii());
    true
}

/// The head of a response and its body, as a client gets them. Returns whether the fast path wrote it.
pub(crate) fn compare_response_head(response: &Response<Full<Bytes>>) -> bool {
    let mut written = Vec::new();
    let Some(length) = fast_path::write_head(response, &mut written) else {
        return false;
    };
    let body = response.body().clone();
    let body = now(body.collect()).expect("in memory").unwrap().to_bytes();
    assert_eq!(length, body.len() as u64);
    written.extend_from_slice(&body);
    let has_date = response.headers().contains_key(DATE);
    let expected = response_written_by_hyper(response);
    assert_eq!(
        Written::of(&written, has_date),
        Written::of(&expected, has_date)
    );
    true
}

/// The head of a request, as a server gets it. Returns whether the fast path wrote it.
pub(crate) fn compare_request_head(request: &Request<Empty<Bytes>>) -> bool {
    let mut written = Vec::new();
    if proxy::fast_path::write_head(request, &mut written).is_none() {
        return false;
    }
    let expected = request_written_by_hyper(request);
    assert_eq!(
        written.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
    true
}

/// A request as a handler sees it.
#[derive(Debug, PartialEq)]
struct Seen {
    line: String,
    headers: Vec<(String, String)>,
    body: Result<Vec<u8>, String>,
}

impl Seen {
    fn of<B>(request: &Request<B>, body: Result<Vec<u8>, String>) -> Self {
        Self {
            line: format!(
                "{} {:?} {:?}",
                request.method(),
                request.uri(),
                request.version()
            ),
            headers: lines(request.headers()),
            body,
        }
    }
}

/// Names and values. Values of one name keep their order; that of names means nothing.
fn lines(headers: &HeaderMap) -> Vec<(String, String)> {
    let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (
            name.to_string(),
            value.as_bytes().escape_ascii().to_string(),
        )
    };
    let mut lines: Vec<(String, String)> = headers.iter().map(line).collect();
    lines.sort_by(|one, other| one.0.cmp(&other.0));
    lines
}

/// All requests of a connection that is set up like the server's, and how it ended; `None` if it waits for more.
fn read_by_hyper(bytes: &[u8], max_head_bytes: usize) -> (Vec<Seen>, Option<Result<(), String>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let (parts, body) = request.into_parts();
            let request = Seen::of(&Request::from_parts(parts, ()), Err("incomplete".into()));
            let nth = {
                let mut seen = seen.lock().unwrap();
                seen.push(request);
                seen.len() - 1
            };
            let body = body.collect().await;
            let body = body.map(|body| body.to_bytes().to_vec());
            seen.lock().unwrap()[nth].body = body.map_err(|error| error.to_string());
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let connection = server::conn::http1::Builder::new()
        .max_buf_size(max_head_bytes.max(8_192))
        .max_header_size(max_head_bytes)
        .serve_connection(TokioIo::new(Wire::sending(bytes).0), service)
        .with_upgrades();
    let ended = now(connection).map(|ended| ended.map_err(|error| error.to_string()));
    let requests = std::mem::take(&mut *seen.lock().unwrap());
    (requests, ended)
}

/// The first response, its body, and whether the connection can be used for another.
fn response_read_by_hyper(bytes: &[u8]) -> Result<(http::response::Parts, Bytes, bool), String> {
    let (wire, _) = Wire::answering(bytes);
    now(async {
        let (mut sender, mut connection) = client::conn::http1::Builder::new()
            .max_headers(MAX_RESPONSE_HEADERS)
            .handshake::<_, Empty<Bytes>>(TokioIo::new(wire))
            .await
            .map_err(|error| error.to_string())?;
        let request = Request::builder().header("host", "a").body(Empty::new());
        let received = {
            let mut receiving = pin!(async {
                let response = sender.send_request(request.unwrap()).await?;
                let (parts, body) = response.into_parts();
                let body = body.collect().await?.to_bytes();
                Ok::<_, hyper::Error>((parts, body))
            });
            std::future::poll_fn(|context| {
                let ended = Pin::new(&mut connection).poll(context).is_ready();
                match receiving.as_mut().poll(context) {
                    Poll::Pending if ended => Poll::Ready(None),
                    polled => polled.map(Some),
                }
            })
            .await
        };
        let (parts, body) = received
            .ok_or("closed")?
            .map_err(|error| error.to_string())?;
        let mut context = Context::from_waker(Waker::noop());
        let ended = Pin::new(&mut connection).poll(&mut context).is_ready();
        Ok((parts, body, !ended && sender.is_ready()))
    })
    .expect("everything has arrived")
}

fn response_written_by_hyper(response: &Response<Full<Bytes>>) -> Vec<u8> {
    let (wire, written) = Wire::sending(PLAIN);
    let service = service_fn(|_: Request<Incoming>| {
        let response = response.clone();
        async { Ok::<_, Infallible>(response) }
    });
    let connection =
        server::conn::http1::Builder::new().serve_connection(TokioIo::new(wire), service);
    // It waits for the next request.
    assert!(now(connection).is_none(), "hyper closes the connection");
    let written = written.lock().unwrap();
    written.clone()
}

fn request_written_by_hyper(request: &Request<Empty<Bytes>>) -> Vec<u8> {
    let (wire, written) = Wire::sending(b"");
    let sending = async {
        let (mut sender, mut connection) = client::conn::http1::Builder::new()
            .handshake::<_, Empty<Bytes>>(TokioIo::new(wire))
            .await
            .unwrap();
        let mut sending = pin!(sender.send_request(request.clone()));
        std::future::poll_fn(|context| {
            let polled = sending.as_mut().poll(context);
            let ended = Pin::new(&mut connection).poll(context);
            assert!(polled.is_pending() && ended.is_pending(), "nothing arrives");
            Poll::<()>::Pending
        })
        .await;
    };
    assert!(now(sending).is_none());
    let written = written.lock().unwrap();
    written.clone()
}

/// The output of a future; `None` if it waits for something else than itself.
fn now<F: Future>(future: F) -> Option<F::Output> {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    while woken.0.swap(false, Ordering::Relaxed) {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
    }
    None
}

/// A response as it is written.
#[derive(Debug, PartialEq)]
struct Written {
    status_line: String,
    /// Sorted by their names.
    headers: Vec<String>,
    body: String,
}

impl Written {
    /// `has_date` is whether the date is the response's own; otherwise it may be that of another second, and only its form is kept.
    fn of(bytes: &[u8], has_date: bool) -> Self {
        let text = bytes.escape_ascii().to_string();
        let (head, body) = text.split_once("\\r\\n\\r\\n").expect("a whole head");
        let mut lines = head.split("\\r\\n").map(str::to_owned);
        let status_line = lines.next().expect("a status line");
        let mut headers: Vec<String> = lines.collect();
        headers.sort_by(|one, other| name(one).cmp(name(other)));
        if !has_date {
            let date = headers.iter_mut().find(|line| name(line) == "date");
            let date = date.expect("responses have a date");
            assert!(date.len() == 35 && date.ends_with(" GMT"), "{date}");
            date.truncate(6);
        }
        Self {
            status_line,
            headers,
            body: body.to_owned(),
        }
    }
}

fn name(line: &str) -> &str {
    line.split(':').next().unwrap_or_default()
}

/// A connection in memory, that stays open.
struct Wire {
    input: Bytes,
    /// Whether the input arrives only after something was written.
    answers: bool,
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<Waker>,
}

impl Wire {
    fn new(input: &[u8], answers: bool) -> (Self, Arc<Mutex<Vec<u8>>>) {
        let written = Arc::default();
        let wire = Self {
            input: Bytes::copy_from_slice(input),
            answers,
            written: Arc::clone(&written),
            reader: None,
        };
        (wire, written)
    }

    /// On which this has arrived.
    fn sending(input: &[u8]) -> (Self, Arc<Mutex<Vec<u8>>>) {
        Self::new(input, false)
    }

    /// On which this arrives after something was sent.
    fn answering(input: &[u8]) -> (Self, Arc<Mutex<Vec<u8>>>) {
        Self::new(input, true)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let has_arrived = !self.answers || !self.written.lock().unwrap().is_empty();
        if !has_arrived || self.input.is_empty() {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = self.input.len().min(buffer.remaining());
        buffer.put_slice(&self.input.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        self.written.lock().unwrap().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
