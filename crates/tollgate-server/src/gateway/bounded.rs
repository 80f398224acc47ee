//! Stands between the decision and the service behind, and answers for bodies that are too long, too slow or broken.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::Either;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::{BodyError, BodyLimits, Fate, RequestBody};
use super::problem::{Whole, last, problem};
use super::rest::LentBody;

/// A service whose requests have bodies within limits.
#[derive(Clone, Debug)]
pub(super) struct Bounded<S> {
    inner: S,
    limits: BodyLimits,
}

impl<S> Bounded<S> {
    pub(super) fn new(inner: S, limits: BodyLimits) -> Self {
        Self { inner, limits }
    }
}

impl<S, B> Service<Request<LentBody>> for Bounded<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
{
    type Response = Response<Either<B, Whole>>;
    type Error = Infallible;
    type Future = BoundedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<LentBody>) -> BoundedFuture<S::Future> {
        let version = request.version();
        if request.body().size_hint().lower() > self.limits.most {
            let response = Some(answer_for(BodyError::TooLong, version));
            return BoundedFuture::Refused { response };
        }
        let request = request.map(|body| RequestBody::new(body, self.limits));
        let fate = request.body().fate();
        BoundedFuture::Running {
            response: self.inner.call(request),
            fate,
            version,
        }
    }
}

pin_project! {
    #[project = BoundedProjected]
    pub(super) enum BoundedFuture<F> {
        Running { #[pin] response: F, fate: Option<Arc<Fate>>, version: Version },
        Refused { response: Option<Response<Whole>> },
    }
}

impl<F, B> Future for BoundedFuture<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<Either<B, Whole>>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match self.project() {
            BoundedProjected::Running {
                response,
                fate,
                version,
            } => {
                let Ok(response) = ready!(response.poll(context));
                // Whatever the service makes of a body that failed, it is the caller who is to hear of it.
                match fate.as_ref().and_then(|fate| fate.get()) {
                    Some(error) => answer_for(error, *version).map(Either::Right),
                    None => response.map(Either::Left),
                }
            }
            BoundedProjected::Refused { response } => match response.take() {
                Some(response) => response.map(Either::Right),
                None => return Poll::Pending,
            },
        };
        Poll::Ready(Ok(response))
    }
}

fn answer_for(error: BodyError, version: Version) -> Response<Whole> {
    let mut response = match error {
        BodyError::TooLong => problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            "The body is longer than is taken here.",
        ),
        BodyError::TooSlow => problem(
            StatusCode::REQUEST_TIMEOUT,
            "The body took too long to come.",
        ),
        BodyError::Broken => problem(
            StatusCode::BAD_REQUEST,
            "The body is not framed as the head said.",
        ),
    };
    // What is left of the body is not read, so nothing can follow it.
    last(&mut response, version);
    response
}
