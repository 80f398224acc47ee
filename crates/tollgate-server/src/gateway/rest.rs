//! What is left of a request's body when its answer is there already. A little is read, so that the connection can be kept; if there may be more, the
//! caller is told that the connection ends. Without this, hyper ends it without a word, and whoever sends the next request on it hears nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Sleep;

use crate::listen::Arriving;

/// So much is read of what nobody wants.
const MOST: u64 = 64 * 1_024;

/// For so long is it waited for.
const PATIENCE: Duration = Duration::from_secs(1);

type Place = Arc<Mutex<Option<Arriving>>>;

/// A body that comes back if it is dropped before its end. Most requests have none, and are handed on from one to the next: so it is small.
#[derive(Debug)]
pub struct LentBody(Option<Box<Lent>>);

#[derive(Debug)]
struct Lent {
    /// There until it is dropped.
    incoming: Option<Arriving>,
    has_ended: bool,
    back: Option<Place>,
}

/// Where a body comes back to.
#[derive(Debug)]
pub(super) struct Lender {
    back: Place,
    /// A caller that waits for our word before it sends its body, and is not to hear it.
    waits_for_word: bool,
}

/// Lends the request's body to whoever answers it. There is no lender if nothing is to come, or nothing has to be done about it: streams of HTTP/2 end by
/// themselves.
pub(super) fn lend(request: Request<Arriving>) -> (Request<LentBody>, Option<Lender>) {
    let is_whole = request.body().is_end_stream();
    let lender = (!is_whole && request.version() <= Version::HTTP_11).then(|| Lender {
        back: Place::default(),
        waits_for_word: request.headers().contains_key(EXPECT),
    });
    let back = lender.as_ref().map(|lender| Arc::clone(&lender.back));
    let request = request.map(|incoming| match is_whole {
        true => LentBody(None),
        false => LentBody(Some(Box::new(Lent {
            incoming: Some(incoming),
            has_ended: false,
            back,
        }))),
    });
    (request, lender)
}

impl Lender {
    /// What was not read, if it has come back.
    pub(super) fn rest(self) -> Option<Rest> {
        let incoming = self.back.lock().take()?;
        Some(Rest {
            is_little: !self.waits_for_word && incoming.size_hint().lower() <= MOST,
            incoming,
            read: 0,
            patience: None,
        })
    }
}

/// What nobody has read.
#[derive(Debug)]
pub(super) struct Rest {
    incoming: Arriving,
    is_little: bool,
    read: u64,
    /// Set when it is waited for; mostly it is there.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Rest {
    /// Reads it; says whether it came to its end, so that the connection can be kept.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        if !self.is_little {
            return Poll::Ready(false);
        }
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) else {
                let patience =
                    (self.patience).get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
                ready!(patience.as_mut().poll(context));
                return Poll::Ready(false);
            };
            match frame {
                None => return Poll::Ready(true),
                Some(Err(_)) => return Poll::Ready(false),
                Some(Ok(frame)) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    self.read += u64::try_from(length).unwrap_or(MOST);
                    if self.read > MOST {
                        return Poll::Ready(false);
                    }
                }
            }
        }
    }
}

impl Body for LentBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(lent) => lent.poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|lent| lent.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(lent) => lent.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}

impl Lent {
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

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(back) = &self.back
            && !self.has_ended
            && !self.is_end_stream()
        {
            *back.lock() = self.incoming.take();
        }
    }
}
