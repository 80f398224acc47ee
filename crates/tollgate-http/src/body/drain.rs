//! What is left of a request's body when its response is ready. A little is read, so that the connection can be kept; if there
//! may be more, the response says `Connection: close`. hyper would close the connection without that, and a request that the
//! client sends on it would be lost.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;

use super::incoming::IncomingBody;

/// Maximum number of unwanted bytes that are read.
const MAX_BYTES: u64 = 64 * 1_024;

/// How long they are waited for.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Where a body goes that was not read to its end.
type Unread = Arc<Mutex<Option<IncomingBody>>>;

/// The body of a request. If it is dropped before its end, its [`Drain`] gets what is left. Most requests have none, so it is
/// small.
#[derive(Debug)]
pub struct DrainedBody(Option<Box<Inner>>);

#[derive(Debug)]
struct Inner {
    /// Taken when it is dropped.
    incoming: Option<IncomingBody>,
    has_ended: bool,
    unread: Option<Unread>,
}

/// Reads what is left of a body.
#[derive(Debug)]
pub struct Drain {
    unread: Unread,
    /// The client waits for `100 Continue` before it sends the body, and did not get it.
    awaits_continue: bool,
}

/// Splits off a [`Drain`] for what nobody reads of a body. There is none if the request has no body, or is an HTTP/2 stream,
/// which ends by itself.
pub fn drained(request: Request<IncomingBody>) -> (Request<DrainedBody>, Option<Drain>) {
    let is_empty = request.body().is_end_stream();
    let drain = (!is_empty && request.version() <= Version::HTTP_11).then(|| Drain {
        unread: Unread::default(),
        awaits_continue: request.headers().contains_key(EXPECT),
    });
    let unread = drain.as_ref().map(|drain| Arc::clone(&drain.unread));
    let request = request.map(|incoming| match is_empty {
        true => DrainedBody(None),
        false => DrainedBody(Some(Box::new(Inner {
            incoming: Some(incoming),
            has_ended: false,
            unread,
        }))),
    });
    (request, drain)
}

impl Drain {
    /// Reads what is left of the body, if it was not read to its end. Returns whether the connection can be kept.
    pub async fn finish(self) -> bool {
        let Some(mut incoming) = self.unread.lock().take() else {
            return true;
        };
        if self.awaits_continue || incoming.size_hint().lower() > MAX_BYTES {
            return false;
        }
        let mut read = 0;
        let rest = async {
            while let Some(frame) = incoming.frame().await {
                let Ok(frame) = frame else { return false };
                let length = frame.data_ref().map_or(0, Bytes::len);
                read += u64::try_from(length).unwrap_or(MAX_BYTES);
                if read > MAX_BYTES {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(TIMEOUT, rest).await.unwrap_or(false)
    }
}

impl Body for DrainedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(inner) => inner.poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|inner| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(inner) => inner.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Inner {
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(incoming).poll_frame(context));
        self.has_ended = !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        (self.incoming.as_ref()).map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(unread) = &self.unread
            && !self.has_ended
            && !self.is_end_stream()
        {
            *unread.lock() = self.incoming.take();
        }
    }
}
