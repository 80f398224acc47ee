//! The requests of a connection that hyper reads and answers.

use std::cell::Cell;
use std::convert::Infallible;

use futures_util::future::{Either, Ready, ready};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::Service;

use super::Served;
use super::arriving::Arriving;
use super::request::{Answer, Requests, WatchedBody};

/// Passes on what hyper reads.
pub(super) struct ByHyper<S, B> {
    requests: Requests<S>,
    /// Of the first request, if it was answered before hyper read it.
    answer: Cell<Option<Response<WatchedBody<B>>>>,
}

impl<S, B> ByHyper<S, B> {
    pub(super) fn new(requests: Requests<S>, answer: Option<Response<WatchedBody<B>>>) -> Self {
        Self {
            requests,
            answer: Cell::new(answer),
        }
    }
}

type Answered<B> = Result<Response<WatchedBody<B>>, Infallible>;

impl<S, B> Service<Request<Incoming>> for ByHyper<S, B>
where
    S: Served<B>,
    B: Body,
{
    type Response = Response<WatchedBody<B>>;
    type Error = Infallible;
    type Future = Either<Ready<Answered<B>>, Answer<S::Future>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        if let Some(answer) = self.answer.take() {
            return Either::Left(ready(Ok(answer)));
        }
        let request = request.map(Arriving::Coming);
        Either::Right(self.requests.clone().call(request))
    }
}
