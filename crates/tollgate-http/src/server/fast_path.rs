//! The fast path of HTTP/1.1: requests without a body, whose head arrives in one read, and responses of a known length.
//!
//! It is a third of what hyper costs for these, which are most requests at a gateway. The contract is narrow:
//! [`parse_request`] returns the request that hyper would read from the same bytes, or declines; [`write_head`] writes what a client reads as the
//! same response as hyper's, or declines. Nothing is judged here. Whatever is declined goes to hyper with all that was
//! read, as if it had just arrived, and hyper serves the connection from then on: bodies, upgrades, other versions, heads that are
//! long, in pieces or malformed, and connections that were asked to finish.
//!
//! `gateway.fast_path: false` turns it off. Differential fuzzing compares it with hyper (`fuzz/`, `tests/it/fast_path.rs`).

mod buffer_pool;
mod date;
mod message;
mod rejected_target;

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::in_flight::{Requests, TrackedBody, close_after};
use super::metrics::ServerMetrics;
use super::rejected_head::RejectedHead;
use super::state::{ConnectionState, Order};
use super::{Handler, ServerConfig};
use crate::body::IncomingBody;

pub use message::{parse_request, write_head};
pub use rejected_target::rejection;

/// How many bytes are read at once.
const READ_BYTES: usize = 8 * 1_024;

/// Bodies up to this many bytes are sent in one write with their head.
const MAX_JOINED_BYTES: usize = 4 * 1_024;

/// What is left to hyper.
pub(super) struct Left<B> {
    /// What was read and not answered.
    pub(super) read: Bytes,
    /// The response to the first request of that, if the handler has answered it already.
    pub(super) response: Option<Response<TrackedBody<B>>>,
}

impl<B> Default for Left<B> {
    fn default() -> Self {
        Self {
            read: Bytes::new(),
            response: None,
        }
    }
}

/// Serves a connection until something is left to hyper. `None` if it has ended.
pub(super) async fn serve<T, H>(
    stream: &mut T,
    requests: &Requests<H>,
    state: &ConnectionState,
    config: &ServerConfig,
    metrics: &ServerMetrics,
) -> Option<Left<H::Body>>
where
    T: AsyncRead + AsyncWrite + Unpin,
    H: Handler,
{
    let mut inbox = Inbox::default();
    loop {
        let left = |inbox: &Inbox, response| Left {
            read: Bytes::copy_from_slice(inbox.read()),
            response,
        };
        if inbox.read().is_empty() {
            match next_head(stream, &mut inbox, state).await {
                Next::Read => {}
                Next::AskedToFinish => return Some(left(&inbox, None)),
                Next::Ended => {
                    let _ = poll_fn(|context| Pin::new(&mut *stream).poll_shutdown(context)).await;
                    return None;
                }
                Next::Broken => return None,
            }
        }
        let Some((request, end)) = parse_request(inbox.read(), config.max_head_bytes) else {
            if let Some(response) = rejection(inbox.read()) {
                metrics.malformed.inc();
                (config.on_rejected_head).call(requests.peer(), RejectedHead::Malformed);
                write_all(stream, &response, &[]).await.ok()?;
                let _ = poll_fn(|context| Pin::new(&mut *stream).poll_shutdown(context)).await;
                return None;
            }
            // It may have arrived with the request before it, and its time counts from now on.
            state.has_read();
            return Some(left(&inbox, None));
        };
        let mut response = {
            // Boxed, as it would make the task of every idle connection larger.
            let request = request.map(|()| IncomingBody::Empty);
            let mut response = Box::pin(requests.handle(request, requests.begin()));
            let response = poll_fn(|context| match response.as_mut().poll(context) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => inbox.poll_gone(stream, end, context).map(|()| None),
            });
            response.await?
        };
        if state.order() != Order::Continue {
            close_after(&mut response);
        }
        let mut head = buffer_pool::text();
        let Some(length) = write_head(&response, &mut head) else {
            return Some(left(&inbox, Some(response)));
        };
        let body = pin!(response.into_body());
        send(stream, &mut head, body, length, &mut inbox, end).await?;
        buffer_pool::return_text(head);
        inbox.forget(end);
        yield_if_pipelined(&inbox).await;
    }
}

/// Lets other connections run if the client has sent the next request already: a client that pipelines would keep this
/// thread for as long as it sends.
async fn yield_if_pipelined(inbox: &Inbox) {
    if !inbox.read().is_empty() {
        tokio::task::yield_now().await;
    }
}

/// What comes after a response.
enum Next {
    Read,
    Ended,
    Broken,
    AskedToFinish,
}

async fn next_head<T>(stream: &mut T, inbox: &mut Inbox, state: &ConnectionState) -> Next
where
    T: AsyncRead + Unpin,
{
    poll_fn(|context| {
        let polled = inbox.poll_read(stream, context);
        if polled.is_pending() {
            inbox.return_buffer();
        }
        match polled {
            Poll::Ready(Ok(0)) => Poll::Ready(Next::Ended),
            Poll::Ready(Ok(_)) => Poll::Ready(Next::Read),
            Poll::Ready(Err(_)) => Poll::Ready(Next::Broken),
            Poll::Pending if state.order() != Order::Continue => Poll::Ready(Next::AskedToFinish),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// What was read and not answered. It has no buffer while it is empty.
#[derive(Default)]
struct Inbox {
    buffer: Option<Box<[u8]>>,
    filled: usize,
}

impl Inbox {
    fn read(&self) -> &[u8] {
        let buffer = self.buffer.as_deref().unwrap_or_default();
        buffer.get(..self.filled).unwrap_or_default()
    }

    /// Removes that many bytes from the beginning.
    fn forget(&mut self, count: usize) {
        let rest = count.min(self.filled)..self.filled;
        self.filled = rest.len();
        if let Some(buffer) = &mut self.buffer
            && !rest.is_empty()
        {
            buffer.copy_within(rest, 0);
        }
    }

    /// Returns the buffer to the pool while it is empty.
    fn return_buffer(&mut self) {
        if self.filled == 0
            && let Some(buffer) = self.buffer.take()
        {
            buffer_pool::return_buffer(buffer);
        }
    }

    fn poll_read<T>(&mut self, stream: &mut T, context: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        T: AsyncRead + Unpin,
    {
        let buffer = self
            .buffer
            .get_or_insert_with(|| buffer_pool::buffer(READ_BYTES));
        let buffer = buffer.get_mut(self.filled..).unwrap_or_default();
        let mut read = ReadBuf::new(buffer);
        ready!(Pin::new(stream).poll_read(context, &mut read))?;
        let count = read.filled().len();
        self.filled += count;
        Poll::Ready(Ok(count))
    }

    /// Whether the client disconnects while the first `end` bytes are being answered. What it sends meanwhile is kept; no more
    /// than the buffer holds is read.
    fn poll_gone<T>(&mut self, stream: &mut T, end: usize, context: &mut Context<'_>) -> Poll<()>
    where
        T: AsyncRead + Unpin,
    {
        if self.filled > end || self.filled == READ_BYTES {
            return Poll::Pending;
        }
        match ready!(self.poll_read(stream, context)) {
            Ok(0) | Err(_) => Poll::Ready(()),
            Ok(_) => Poll::Pending,
        }
    }
}

/// Sends a response. `None` if it could not be sent completely, so that nothing can follow it.
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
    // `None` at the end and on errors.
    let mut poll_frame = |context: &mut Context<'_>| {
        let frame = body.as_mut().poll_frame(context);
        frame.map(|frame| frame.and_then(Result::ok))
    };
    while left > 0 {
        let frame = match poll_fn(|context| Poll::Ready(poll_frame(context))).await {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                // The head does not wait for the body.
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
        // Never more bytes than the head says.
        left = left.checked_sub(u64::try_from(data.len()).ok()?)?;
        if data.len() <= MAX_JOINED_BYTES {
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
