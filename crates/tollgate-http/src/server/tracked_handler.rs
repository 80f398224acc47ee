//! Passes requests to the handler. The state of the connection counts them until their responses have been sent.

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
use super::state::{ConnectionState, RequestInFlight, ResponseFlow};
use crate::body::{FramePoll, IncomingBody};

/// Over HTTP/2, bodies are split into parts of at most the size of a frame, so that slow clients are seen to read.
const PART_BYTES: usize = 16 * 1_024;

#[derive(Clone, Debug)]
pub(super) struct TrackedHandler<H> {
    handler: H,
    pub(super) peer: SocketAddr,
    state: Arc<ConnectionState>,
}

impl<H: Handler> TrackedHandler<H> {
    pub(super) fn new(handler: H, peer: SocketAddr, state: Arc<ConnectionState>) -> Self {
        Self {
            handler,
            peer,
            state,
        }
    }

    /// Counts a request as in flight, as soon as it is read.
    pub(super) fn begin_request(&self) -> RequestInFlight {
        self.state.begin_request()
    }

    /// Answers a request, which is in flight until its response has been sent.
    pub(super) async fn handle(
        &self,
        request: Request<IncomingBody>,
        in_flight: RequestInFlight,
    ) -> Response<TrackedBody<H::Body>> {
        let mut response = self.handler.handle(request, self.peer).await;
        let mut flow = None;
        if self.state.is_http2() {
            let flow = flow.insert(ResponseFlow::new(Arc::clone(&self.state)));
            flow.note(!response.body().is_end_stream());
        } else if self.state.is_stopping() {
            close_after(&mut response);
        }
        response.map(|body| TrackedBody {
            body,
            part: Bytes::new(),
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

pin_project! {
    pub(super) struct TrackedBody<B> {
        #[pin]
        body: B,
        // The rest of a part that was too large.
        part: Bytes,
        flow: Option<ResponseFlow>,
        in_flight: RequestInFlight,
    }
}

impl<B: Body<Data = Bytes>> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> FramePoll<B::Error> {
        let this = self.project();
        let Some(flow) = this.flow else {
            return this.body.poll_frame(context);
        };
        if this.part.is_empty() {
            let polled = this.body.poll_frame(context);
            flow.note(matches!(polled, Poll::Ready(Some(Ok(_)))));
            match ready!(polled).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => *this.part = data,
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        } else {
            flow.note(true);
        }
        let part = this.part.split_to(this.part.len().min(PART_BYTES));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.part.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.part.is_empty() {
            true => self.body.size_hint(),
            // Not needed after the first part.
            false => SizeHint::default(),
        }
    }
}
