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
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tollgate_tower::layer::PeerAddr;
use tower_service::Service;

use super::watch::{Underway, Watch};

/// Whatever is asked on one connection.
#[derive(Debug)]
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

impl<S, B> hyper::service::Service<Request<Incoming>> for Requests<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
{
    type Response = Response<WatchedBody<B>>;
    type Error = Infallible;
    type Future = Answer<S::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Answer<S::Future> {
        let underway = self.watch.begin();
        request.extensions_mut().insert(self.peer);
        Answer {
            response: self.service.clone().call(request),
            watch: Arc::clone(&self.watch),
            underway: Some(underway),
        }
    }
}

pin_project! {
    /// An answer that is not there yet.
    pub(super) struct Answer<F> {
        #[pin]
        response: F,
        watch: Arc<Watch>,
        underway: Option<Underway>,
    }
}

impl<F, B> Future for Answer<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<WatchedBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(mut response) = ready!(this.response.poll(context));
        if this.watch.is_stopping() && !this.watch.is_two() {
            say_that_it_is_the_last(&mut response);
        }
        let underway = this.underway.take();
        Poll::Ready(Ok(response.map(|body| WatchedBody { body, underway })))
    }
}

/// So the caller takes another connection for its next request, rather than losing it on this one.
fn say_that_it_is_the_last<B>(response: &mut Response<B>) {
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}

pin_project! {
    /// The body of an answer, under way until it has gone out.
    pub(super) struct WatchedBody<B> {
        #[pin]
        body: B,
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
        self.project().body.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
