//! The way of a request through the gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use http::request::Parts;
use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use http_body_util::Either;
use tollgate_http::body::{
    BodyError, BodyLimits, BodyProgress, IncomingBody, LimitedBody, limited,
};
use tollgate_http::headers::{HeaderNames, X_REQUEST_ID, drop_named_by_connection, request_id};
use tollgate_http::proxy::{ClientInfo, Proxy, ProxyBody};
use tollgate_http::server::Handler;
use tollgate_tower::answer::failure;
use tollgate_tower::gate::{Gate, RequestContext};

use super::access_log::AccessLog;
use super::metrics::GatewayMetrics;
use super::record::{RecordedBody, RequestRecord};
use super::rejection::{rejection, without_h2c};
use super::request_id::RequestIds;
use super::response::{Whole, body_failure, close_after};
use crate::decider::Decider;

/// What all requests of a worker share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) decider: Decider,
    pub(super) gate: Arc<Gate>,
    pub(super) ids: RequestIds,
    pub(super) metrics: GatewayMetrics,
    pub(super) log: Option<AccessLog>,
    pub(super) header_names: HeaderNames,
    pub(super) body_limits: BodyLimits,
}

/// Answers the requests of a worker.
#[derive(Clone, Debug)]
pub(super) struct GatewayHandler {
    pub(super) shared: Arc<Shared>,
    pub(super) proxy: Proxy,
}

type GatewayBody = Either<ProxyBody, Whole>;

impl Handler for GatewayHandler {
    type Body = RecordedBody<GatewayBody>;

    async fn handle(
        &self,
        request: Request<IncomingBody>,
        peer: SocketAddr,
    ) -> Response<Self::Body> {
        let shared = &self.shared;
        let (request, progress) = limited(request, shared.body_limits);
        let (mut request, body) = request.into_parts();
        let version = request.version;
        let rejected = rejection(&request, shared.header_names);
        shared.header_names.drop_from(&mut request.headers);
        drop_named_by_connection(&mut request.headers);
        let context = RequestContext::new(peer.ip(), shared.decider.policy());
        let id = shared.identify(&mut request, &context);
        let mut record = RequestRecord::begin(shared, context, &mut request, &id);
        let mut response = match rejected {
            Some(rejected) => {
                record.context.identify_rejected(&request.headers);
                rejected.response(version).map(Either::Right)
            }
            None => {
                without_h2c(&mut request);
                let responding = self.respond(request, body, progress.as_ref(), &mut record);
                let mut response = responding.await;
                if let Some(progress) = progress
                    && !progress.drain().await
                {
                    close_after(&mut response, version);
                }
                response
            }
        };
        response.headers_mut().insert(X_REQUEST_ID, id);
        record.respond(response)
    }
}

impl GatewayHandler {
    /// Decides about a request, and forwards it if it is admitted.
    async fn respond(
        &self,
        mut request: Parts,
        body: LimitedBody,
        progress: Option<&BodyProgress>,
        record: &mut RequestRecord,
    ) -> Response<GatewayBody> {
        let gate = &self.shared.gate;
        match gate.admit(&mut request, &mut record.context).await {
            Err(denied) => denied.map(|body| Either::Right(body.into())),
            Ok(()) => {
                let mut response = self.forward(request, body, progress, record).await;
                gate.add_headers(&record.context, response.headers_mut());
                response
            }
        }
    }

    async fn forward(
        &self,
        request: Parts,
        body: LimitedBody,
        progress: Option<&BodyProgress>,
        record: &mut RequestRecord,
    ) -> Response<GatewayBody> {
        let (version, limits) = (request.version, self.shared.body_limits);
        if body.size_hint().lower() > limits.max_bytes {
            return body_failure(BodyError::TooLong, version).map(Either::Right);
        }
        let forwarding = {
            let context = &record.context;
            let identity = context.policy().identity();
            let path = request.uri.clone();
            let client = ClientInfo {
                peer: context.peer(),
                address: context.address(),
                trusts: &|ip| identity.trusts(ip),
                path: context.path().unwrap_or_else(|| path.path()),
            };
            self.proxy
                .forward(Request::from_parts(request, body), &client)
        };
        let forwarded = forwarding.await;
        record.forwarded(forwarded.took, forwarded.tunnel);
        // Whatever the upstream makes of a body that failed, the client is told what is wrong with it.
        if let Some(error) = progress.and_then(BodyProgress::error) {
            return body_failure(error, version).map(Either::Right);
        }
        match forwarded.result {
            Ok(response) => response.map(Either::Left),
            Err(error) => failure(error.status(), error.detail(), record.context.dialect())
                .map(|body| Either::Right(body.into())),
        }
    }
}

impl Shared {
    /// The id of a request, which is forwarded with it: that from a trusted proxy, or a new one.
    fn identify(&self, request: &mut Parts, context: &RequestContext) -> HeaderValue {
        let is_trusted = || context.policy().identity().trusts(context.peer());
        match request_id(&request.headers).filter(|_| is_trusted()) {
            Some(id) => id.clone(),
            None => {
                let id = self.ids.make();
                request.headers.insert(X_REQUEST_ID, id.clone());
                id
            }
        }
    }
}
