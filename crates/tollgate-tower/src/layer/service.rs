//! The service a layer makes.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::body::TollgateBody;
use super::future::ResponseFuture;
use crate::gate::Gate;

/// Limits the service it holds. Made by a [`TollgateLayer`](super::TollgateLayer).
#[derive(Clone, Debug)]
pub struct TollgateService<S> {
    gate: Arc<Gate>,
    inner: S,
}

impl<S> TollgateService<S> {
    pub(super) fn new(gate: Arc<Gate>, inner: S) -> Self {
        Self { gate, inner }
    }
}

impl<S, B, R> Service<Request<B>> for TollgateService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
{
    type Response = Response<TollgateBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        // The one that was made ready goes with the request; its clone has yet to become so.
        let next = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, next);
        ResponseFuture::new(Arc::clone(&self.gate), request, ready)
    }
}
