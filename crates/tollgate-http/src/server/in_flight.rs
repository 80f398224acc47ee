//! Requests on their way to the handler. The connection's state counts them until their responses have been sent.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::Handler;
use super::state::{ConnectionState, Flow, InFlight};
use crate::body::IncomingBody;

/// The requests of one connection.
#[derive(Clone, Debug)]
pub(super) struct Requests<H> {
    handler: H,
    peer: SocketAddr,
    state: Arc<ConnectionState>,
}

impl<H: Handler> Requests<H> {
    pub(super) fn new(handler: H, peer: SocketAddr, state: Arc<ConnectionState>) -> Self {
        Self {
            handler,
            peer,
            state,
        }
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Counts a request as in flight, as soon as it is read.
    pub(super) fn begin(&self) -> InFlight {
        self.state.begin()
    }

    /// Has the handler answer a request, which is in flight until its response has been sent.
    pub(super) async fn handle(
        &self,
        request: Request<IncomingBody>,
        in_flight: InFlight,
    ) -> Response<TrackedBody<H::Body>> {
        let mut response = self.handler.handle(request, self.peer).await;
        let mut flow = None;
        if self.state.is_two() {
            let flow = flow.insert(Flow::new(Arc::clone(&self.state)));
            flow.moves(!response.body().is_end_stream());
        } else if self.state.is_stopping() {
            close_after(&mut response);
        }
        response.map(|body| TrackedBody {
            body,
            rest: Bytes::new(),
            flow,
            in_flight,
        })
    }
}

/// Asks the client to use another connection for its next request, which might be lost on this one.
pub(super) fn close_after<B>(response: &mut Response<B>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}

/// In HTTP/2, response bodies are split into parts of at most this many bytes, the size of a frame. So a client that reads
/// little at a time is seen to read.
const PART: usize = 16 * 1_024;

pin_project! {
    /// The body of a response, which is in flight until it has been sent.
    pub(super) struct TrackedBody<B> {
        #[pin]
        body: B,
        // What is left of a part that was too large.
        rest: Bytes,
        flow: Option<Flow>,
        in_flight: InFlight,
    }
}
impl<B: Body<Data = Bytes>> Body for TrackedBody<B> {
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
