//! A router of axum as the handler of a listener.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use http::{Request, Response};
use tollgate_http::body::IncomingBody;
use tollgate_http::server::Handler;
use tollgate_tower::layer::PeerAddr;
use tower::ServiceExt as _;

/// Routes requests. Handlers find the [`PeerAddr`] among a request's extensions.
#[derive(Clone)]
pub(crate) struct RouterHandler(pub(crate) Router);

impl Handler for RouterHandler {
    type Body = Body;

    async fn handle(&self, request: Request<IncomingBody>, peer: SocketAddr) -> Response<Body> {
        let mut request = request.map(|body| body.map_or_else(Body::empty, Body::new));
        request.extensions_mut().insert(PeerAddr(peer));
        match self.0.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}
