//! The requests of a connection on their way to the service: it is told who is at the other end, and the connection is watched
//! until the answer has gone out.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate_tower::layer::PeerAddr;

use super::Served;
use super::arriving::Arriving;
use super::watch::{Flow, Underway, Watch};

/// Whatever is asked on one connection.
#[derive(Clone, Debug)]
pub(super) struct Requests<S> {
    service: S,
    peer: PeerAddr,
    watch: Arc<Watch>,
}

impl<S> Requests<S> {
    pub(super) fn new(service: S, peer: SocketAddr, watch: Arc<Watch>) -> Self {
        Self {
            service,
            peer: PeerAddr(peer),
            watch,
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer.0
    }
}

impl<S> Requests<S> {
    pub(super) fn call<B>(&mut self, mut request: Request<Arriving>) -> Answer<S::Future>
    where
        S: Served<B>,
    {
        let underway = self.watch.begin();
        request.extensions_mut().insert(self.peer);
        Answer {
            response: self.service.call(request),
            underway: Some(underway),
        }
    }
}

pin_project! {
    /// An answer that is not there yet.
    pub(super) struct Answer<F> {
        #[pin]
        response: F,
        // Until it is there.
        underway: Option<Underway>,
    }
}

impl<F, B> Future for Answer<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: Body,
{
    type Output = Result<Response<WatchedBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.response.poll(context));
        let underway = this.underway.take();
        let mut flow = None;
        if let Some(watch) = underway.as_ref().map(Underway::watch) {
            if watch.is_two() {
                let flow = flow.insert(Flow::new(Arc::clone(watch)));
                flow.moves(!response.body().is_end_stream());
            } else if watch.is_stopping() {
                say_that_it_is_the_last(&mut response);
            }
        }
        Poll::Ready(Ok(response.map(|body| WatchedBody {
            body,
            rest: Bytes::new(),
            flow,
            underway,
        })))
    }
}

/// So the caller takes another connection for its next request, rather than losing it on this one.
pub(super) fn say_that_it_is_the_last<B>(response: &mut Response<B>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}

/// In HTTP/2 an answer is handed on in parts of so many bytes at the most, as they go into its frames: who takes only a little at a time is seen to take it.
const PART: usize = 16 * 1_024;

pin_project! {
    /// The body of an answer, under way until it has gone out.
    pub(super) struct WatchedBody<B> {
        #[pin]
        body: B,
        // What is left of a part that was too large.
        rest: Bytes,
        flow: Option<Flow>,
        underway: Option<Underway>,
    }
}

impl<B: Body<Data = Bytes>> Body for WatchedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let Some(flow) = this.flow else {
            return this.body.poll_frame(context);
        };
        if this.rest.is_empty() {
            let polled = this.body.poll_frame(context);
            flow.moves(matches!(polled, Poll::Ready(Some(Ok(_)))));
            match ready!(polled).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => *this.rest = data,
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        } else {
            flow.moves(true);
        }
        let part = this.rest.split_to(this.rest.len().min(PART));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or_default();
        let mut hint = self.body.size_hint();
        if rest > 0 {
            let upper = hint.upper().map(|upper| upper.saturating_add(rest));
            let lower = hint.lower().saturating_add(rest);
            hint = SizeHint::new();
            hint.set_lower(lower);
            if let Some(upper) = upper {
                hint.set_upper(upper);
            }
        }
        hint
    }
}
