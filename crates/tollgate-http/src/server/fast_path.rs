//! The fast path of HTTP/1.1: requests without a body, whose head arrives in one read, and responses of a known length.
//!
//! It costs a third of what hyper costs for these, which are most requests at a gateway. The contract is narrow: [`parse_request`]
//! returns the request that hyper would read from the same bytes, or declines; [`write_head`] writes what a client reads as the
//! same response as hyper's, or declines. Nothing is judged here. Whatever is declined goes to hyper with everything that was
//! read, as if it had just arrived, and hyper serves the connection from then on: bodies, upgrades, other versions, heads that
//! are long, in pieces or malformed, and connections that are about to finish.
//!
//! `gateway.fast_path: false` turns it off. Differential fuzzing compares it with hyper (`fuzz/`, `tests/it/differential.rs`).

mod inbox;
mod message;
mod rejected_target;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http::Response;
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::state::{ConnectionState, Order};
use super::tracked::{TrackedBody, TrackedHandler, close_after};
use super::{Handler, RejectedHead, ServerConfig};
use inbox::Inbox;

pub use message::{parse_request, write_head};
pub use rejected_target::rejection;

/// Bodies up to this many bytes are sent in one write with their head.
const MAX_JOINED_BYTES: usize = 4 * 1_024;

/// What was read and not answered, and the response to the first request of that if there is one already.
pub(super) type ForHyper<B> = (Bytes, Option<Response<TrackedBody<B>>>);

/// Serves a connection until something is left to hyper. `None` if it has ended.
pub(super) async fn serve<H: Handler>(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    handler: &TrackedHandler<H>,
    state: &ConnectionState,
    config: &ServerConfig,
) -> Option<ForHyper<H::Body>> {
    let mut inbox = Inbox::default();
    let for_hyper = |inbox: &Inbox, response| (Bytes::copy_from_slice(inbox.bytes()), response);
    loop {
        if inbox.bytes().is_empty() {
            let read = poll_fn(|context| match inbox.poll_read(stream, context) {
                Poll::Pending if state.order() != Order::Continue => Poll::Ready(None),
                polled => polled.map(Some),
            });
            match read.await {
                Some(Ok(0)) => {
                    let _ = stream.shutdown().await;
                    return None;
                }
                Some(Ok(_)) => {}
                Some(Err(_)) => return None,
                // It is ordered to finish.
                None => return Some(for_hyper(&inbox, None)),
            }
        }
        let Some((request, end)) = parse_request(inbox.bytes(), config.max_head_bytes) else {
            if let Some(response) = rejection(inbox.bytes()) {
                config.metrics.closed("malformed");
                (config.on_rejected_head)(handler.peer, RejectedHead::Malformed);
                stream.write_all(&response).await.ok()?;
                let _ = stream.shutdown().await;
                return None;
            }
            // It may have arrived with the request before it, and its time counts from now on.
            state.note_read();
            return Some(for_hyper(&inbox, None));
        };
        let mut response = {
            let request = request.map(|()| None);
            // Boxed, because it would make the task of every idle connection larger.
            let mut response = Box::pin(handler.handle(request, handler.begin_request()));
            let response = poll_fn(|context| match response.as_mut().poll(context) {
                Poll::Ready(response) => Poll::Ready(Some(response)),
                Poll::Pending => inbox.poll_disconnect(stream, end, context).map(|()| None),
            });
            response.await?
        };
        if state.order() != Order::Continue {
            close_after(&mut response);
        }
        let mut head = inbox::head();
        let Some(length) = write_head(&response, &mut head) else {
            return Some(for_hyper(&inbox, Some(response)));
        };
        let body = pin!(response.into_body());
        send(stream, &mut head, body, length, &mut inbox, end).await?;
        inbox::return_head(head);
        inbox.consume(end);
        if !inbox.bytes().is_empty() {
            // A client that pipelines would keep this thread for as long as it sends.
            tokio::task::yield_now().await;
        }
    }
}

/// Sends a response. `None` if it could not be sent completely, so that nothing can follow it.
async fn send<B: Body<Data = Bytes>>(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    head: &mut Vec<u8>,
    mut body: Pin<&mut B>,
    length: u64,
    inbox: &mut Inbox,
    end: usize,
) -> Option<()> {
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
                stream.write_all(head).await.ok()?;
                stream.flush().await.ok()?;
                head.clear();
                let next = poll_fn(|context| match poll_frame(context) {
                    Poll::Ready(frame) => Poll::Ready(frame),
                    Poll::Pending => inbox.poll_disconnect(stream, end, context).map(|()| None),
                });
                next.await
            }
        };
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        // Never more bytes than the head states.
        left = left.checked_sub(u64::try_from(data.len()).ok()?)?;
        if data.len() <= MAX_JOINED_BYTES {
            head.extend_from_slice(&data);
            stream.write_all(head).await.ok()?;
        } else {
            let mut both = head.chain(&*data);
            stream.write_all_buf(&mut both).await.ok()?;
        }
        head.clear();
    }
    stream.write_all(head).await.ok()?;
    stream.flush().await.ok()
}
