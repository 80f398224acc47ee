//! The usual requests of a connection, without the machinery that others need: no body, a head that comes with one read, and an answer whose length
//! is known.
//!
//! Nothing is judged here. Whatever is not plain is left to hyper, which finds all that was read as if it came just now ([`Replayed`](super::replayed::Replayed)): bodies,
//! upgrades, other versions, heads that are long, in pieces or wrong, and the end of a connection that was asked to finish. So hyper's rules hold wherever there is something to decide. It
//! speaks from then on.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use httparse::{ParserConfig, Status};
use hyper::ext::ReasonPhrase;
use quanta::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::arriving::Arriving;
use super::metrics::ListenMetrics;
use super::refused::RefusedHead;
use super::request::{Requests, WatchedBody, say_that_it_is_the_last};
use super::watch::{Order, Watch};
use super::{ListenConfig, Served};
use super::{date, refused_target, spare};
use crate::http1::push_field;

/// So much is read at once.
const ROOM: usize = 8 * 1_024;

/// Who sends more fields is not plain.
const MOST_FIELDS: usize = 64;

/// Room for the fields that are added in front of the decision, the name of a request and those of a trace, so that nothing is moved when they are.
const ADDED_FIELDS: usize = 3;

/// What is as short goes out in one piece with its head.
const SHORT: usize = 4 * 1_024;

/// What is left to hyper.
pub(super) struct Left<B> {
    /// What was read and not answered.
    pub(super) read: Bytes,
    /// The answer to the first request of that, if it is there already.
    pub(super) answer: Option<Response<WatchedBody<B>>>,
}

/// Serves a connection for as long as it is plain. `None` if it has ended.
pub(super) async fn serve<T, S, B>(
    stream: &mut T,
    requests: &mut Requests<S>,
    watch: &Watch,
    config: &ListenConfig,
    metrics: &ListenMetrics,
) -> Option<Left<B>>
where
    T: AsyncRead + AsyncWrite + Unpin,
    S: Served<B>,
    B: Body<Data = Bytes>,
{
    let mut inbox = Inbox::default();
    loop {
        let left = |inbox: &Inbox, answer| Left {
            read: Bytes::copy_from_slice(inbox.read()),
            answer,
        };
        if inbox.read().is_empty() {
            match next_head(stream, &mut inbox, watch).await {
                Next::Read => {}
                Next::Told => return Some(left(&inbox, None)),
                Next::Ended => {
                    // It has said all, and so have we.
                    let _ = poll_fn(|context| Pin::new(&mut *stream).poll_shutdown(context)).await;
                    return None;
                }
                Next::Broken => return None,
            }
        }
        let Some((request, end)) = read_request(inbox.read(), config.most_head_bytes) else {
            if let Some(answer) = refused_target::answer(inbox.read()) {
                metrics.malformed.inc();
                let refused = RefusedHead::Malformed;
                config.on_refused_head.is(requests.peer(), refused);
                write_all(stream, &answer, &[]).await.ok()?;
                let _ = poll_fn(|context| Pin::new(&mut *stream).poll_shutdown(context)).await;
                return None;
            }
            // It may have come with the request before it, and its time counts from now on.
            watch.has_read();
            return Some(left(&inbox, None));
        };
        let mut answer = {
            let mut answer = pin!(requests.call(request));
            let answer = poll_fn(|context| match answer.as_mut().poll(context) {
                Poll::Ready(Ok(answer)) => Poll::Ready(Some(answer)),
                Poll::Pending => inbox.poll_gone(stream, end, context).map(|()| None),
            });
            answer.await?
        };
        if watch.order() != Order::GoOn {
            say_that_it_is_the_last(&mut answer);
        }
        let mut head = spare::text();
        let Some(length) = write_head(&answer, &mut head) else {
            return Some(left(&inbox, Some(answer)));
        };
        let body = pin!(answer.into_body());
        send(stream, &mut head, body, length, &mut inbox, end).await?;
        spare::give_text(head);
        inbox.forget(end);
        let_others_run(&inbox).await;
    }
}

/// Gives other connections their turn if the client has sent the next request already: a client that pipelines would keep this thread
/// for as long as it sends.
async fn let_others_run(inbox: &Inbox) {
    if !inbox.read().is_empty() {
        tokio::task::yield_now().await;
    }
}

/// What comes after an answer.
enum Next {
    Read,
    Ended,
    Broken,
    /// The connection was told to end.
    Told,
}

async fn next_head<T>(stream: &mut T, inbox: &mut Inbox, watch: &Watch) -> Next
where
    T: AsyncRead + Unpin,
{
    poll_fn(|context| {
        let polled = inbox.poll_read(stream, context);
        if polled.is_pending() {
            inbox.lend_room();
        }
        match polled {
            Poll::Ready(Ok(0)) => Poll::Ready(Next::Ended),
            Poll::Ready(Ok(_)) => Poll::Ready(Next::Read),
            Poll::Ready(Err(_)) => Poll::Ready(Next::Broken),
            Poll::Pending if watch.order() != Order::GoOn => Poll::Ready(Next::Told),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// What was read and not answered. It has no room of its own while there is nothing.
#[derive(Default)]
struct Inbox {
    room: Option<Box<[u8]>>,
    filled: usize,
}

impl Inbox {
    fn read(&self) -> &[u8] {
        let room = self.room.as_deref().unwrap_or_default();
        room.get(..self.filled).unwrap_or_default()
    }

    /// Forgets so much of the beginning.
    fn forget(&mut self, count: usize) {
        let rest = count.min(self.filled)..self.filled;
        self.filled = rest.len();
        if let Some(room) = &mut self.room
            && !rest.is_empty()
        {
            room.copy_within(rest, 0);
        }
    }

    /// Others may use the room while nothing is in it.
    fn lend_room(&mut self) {
        if self.filled == 0
            && let Some(room) = self.room.take()
        {
            spare::give_room(room);
        }
    }

    fn poll_read<T>(&mut self, stream: &mut T, context: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        T: AsyncRead + Unpin,
    {
        let room = self.room.get_or_insert_with(|| spare::room(ROOM));
        let room = room.get_mut(self.filled..).unwrap_or_default();
        let mut read = ReadBuf::new(room);
        ready!(Pin::new(stream).poll_read(context, &mut read))?;
        let count = read.filled().len();
        self.filled += count;
        Poll::Ready(Ok(count))
    }

    /// Whether the caller is gone while we are busy with the first `end` bytes. What it sends meanwhile is kept, and no more than that is read.
    fn poll_gone<T>(&mut self, stream: &mut T, end: usize, context: &mut Context<'_>) -> Poll<()>
    where
        T: AsyncRead + Unpin,
    {
        if self.filled > end || self.filled == ROOM {
            return Poll::Pending;
        }
        match ready!(self.poll_read(stream, context)) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(_) => Poll::Pending,
        }
    }
}

/// The request that these bytes begin with and where it ends, if it is a plain one.
fn read_request(bytes: &[u8], most_head_bytes: usize) -> Option<(Request<Arriving>, usize)> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut []);
    // All at once, as the request shares it.
    let bytes = Bytes::copy_from_slice(bytes);
    let parsed =
        ParserConfig::default().parse_request_with_uninit_headers(&mut head, &bytes, &mut fields);
    let Ok(Status::Complete(end)) = parsed else {
        return None;
    };
    let method = Method::from_bytes(head.method?.as_bytes()).ok()?;
    let is_plain = !matches!(method, Method::HEAD | Method::CONNECT);
    if !is_plain || head.version != Some(1) || end > most_head_bytes {
        return None;
    }
    let uri = Uri::from_maybe_shared(bytes.slice_ref(head.path?.as_bytes())).ok()?;
    let mut headers = HeaderMap::with_capacity(head.headers.len() + ADDED_FIELDS);
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        match name {
            CONTENT_LENGTH | TRANSFER_ENCODING | UPGRADE | EXPECT => return None,
            CONNECTION if !field.value.eq_ignore_ascii_case(b"keep-alive") => return None,
            _ => {}
        }
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value)).ok()?;
        headers.append(name, value);
    }
    let mut request = Request::new(Arriving::Nothing);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Some((request, end))
}

/// The head of an answer to a plain request, and the length of its body; `None` if there is more to it.
fn write_head<B: Body>(answer: &Response<B>, head: &mut Vec<u8>) -> Option<u64> {
    let status = answer.status();
    let length = answer.body().size_hint().exact()?;
    let has_body = status.as_u16() >= 200
        && !matches!(
            status,
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
        );
    if !has_body || answer.extensions().get::<ReasonPhrase>().is_some() {
        return None;
    }
    push_status(status, status.canonical_reason()?, head);
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(length).as_bytes();
    let (mut has_length, mut has_date) = (false, false);
    for (name, value) in answer.headers() {
        match *name {
            CONNECTION | TRANSFER_ENCODING | UPGRADE | TRAILER => return None,
            CONTENT_LENGTH if has_length || value.as_bytes() != digits => return None,
            CONTENT_LENGTH => has_length = true,
            DATE => has_date = true,
            _ => {}
        }
        push_field(name, value, head);
    }
    if !has_length {
        push_length(digits, head);
    }
    if !has_date {
        push_date(Instant::now(), head);
    }
    head.extend_from_slice(b"\r\n");
    Some(length)
}

fn push_status(status: StatusCode, reason: &str, head: &mut Vec<u8>) {
    // Those that most answers have, in one piece.
    match status {
        StatusCode::OK => return head.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        StatusCode::TOO_MANY_REQUESTS => {
            return head.extend_from_slice(b"HTTP/1.1 429 Too Many Requests\r\n");
        }
        _ => {}
    }
    for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
}

fn push_length(digits: &[u8], head: &mut Vec<u8>) {
    for part in [b"content-length: ", digits, b"\r\n"] {
        head.extend_from_slice(part);
    }
}

fn push_date(now: Instant, head: &mut Vec<u8>) {
    head.extend_from_slice(b"date: ");
    date::push(now, head);
    head.extend_from_slice(b"\r\n");
}

/// Writes a whole answer. Its lines are those of the head that say something else than its length and the date, each with its end.
pub(super) fn push_answer(
    status: StatusCode,
    lines: &[&[u8]],
    body: &[u8],
    now: Instant,
    answer: &mut Vec<u8>,
) {
    push_status(
        status,
        status.canonical_reason().unwrap_or_default(),
        answer,
    );
    for line in lines {
        answer.extend_from_slice(line);
    }
    push_length(itoa::Buffer::new().format(body.len()).as_bytes(), answer);
    push_date(now, answer);
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(body);
}

/// Sends an answer. `None` if it could not be sent as a whole, so that nothing can follow it.
async fn send<T, B>(
    stream: &mut T,
    head: &mut Vec<u8>,
    mut body: Pin<&mut B>,
    length: u64,
    inbox: &mut Inbox,
    end: usize,
) -> Option<()>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes>,
{
    let mut left = length;
    // `None` when nothing more comes, be it the end or an error.
    let mut poll_frame = |context: &mut Context<'_>| {
        let frame = body.as_mut().poll_frame(context);
        frame.map(|frame| frame.and_then(Result::ok))
    };
    while left > 0 {
        let frame = match poll_fn(|context| Poll::Ready(poll_frame(context))).await {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                // The head does not wait for it.
                write_all(stream, head, &[]).await.ok()?;
                head.clear();
                let next = poll_fn(|context| match poll_frame(context) {
                    Poll::Ready(frame) => Poll::Ready(frame),
                    Poll::Pending => inbox.poll_gone(stream, end, context).map(|()| None),
                });
                next.await
            }
        };
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        // Not a byte more than the head says.
        left = left.checked_sub(u64::try_from(data.len()).ok()?)?;
        if data.len() <= SHORT {
            head.extend_from_slice(&data);
            write_all(stream, head, &[]).await.ok()?;
        } else {
            write_all(stream, head, &data).await.ok()?;
        }
        head.clear();
    }
    write_all(stream, head, &[]).await.ok()
}

async fn write_all<T>(stream: &mut T, mut one: &[u8], mut other: &[u8]) -> io::Result<()>
where
    T: AsyncWrite + Unpin,
{
    poll_fn(|context| {
        while !one.is_empty() || !other.is_empty() {
            let stream = Pin::new(&mut *stream);
            let written = match other.is_empty() {
                true => ready!(stream.poll_write(context, one))?,
                false => {
                    let both = [IoSlice::new(one), IoSlice::new(other)];
                    ready!(stream.poll_write_vectored(context, &both))?
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_one = written.min(one.len());
            one = one.get(of_one..).unwrap_or_default();
            other = other.get(written - of_one..).unwrap_or_default();
        }
        Pin::new(&mut *stream).poll_flush(context)
    })
    .await
}

#[cfg(test)]
mod tests;
