//! The way of a request through the gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::{Either, Full};
use tollgate_http::body::{
    BodyError, BodyLimits, BodyProgress, IncomingBody, LimitedBody, limited,
};
use tollgate_http::headers::{HeaderNames, X_REQUEST_ID, drop_named_by_connection, request_id};
use tollgate_http::proxy::{ClientInfo, Proxy, ProxyBody};
use tollgate_http::server::Handler;
use tollgate_tower::answer::{Dialect, failure};
use tollgate_tower::gate::{Gate, RequestContext};

use super::access_log::AccessLog;
use super::metrics::GatewayMetrics;
use super::record::{RecordedBody, RequestRecord};
use super::rejection::{rejection, without_h2c};
use crate::decider::Decider;

/// What all requests of a worker share.
#[derive(Debug)]
pub(super) struct HandlerState {
    pub(super) decider: Decider,
    pub(super) gate: Arc<Gate>,
    pub(super) metrics: GatewayMetrics,
    pub(super) log: Option<AccessLog>,
    pub(super) header_names: HeaderNames,
    pub(super) body_limits: BodyLimits,
}

/// Answers the requests of a worker.
#[derive(Clone, Debug)]
pub(super) struct GatewayHandler {
    pub(super) state: Arc<HandlerState>,
    pub(super) proxy: Proxy,
}

type GatewayBody = Either<ProxyBody, Full<Bytes>>;

impl Handler for GatewayHandler {
    type Body = RecordedBody<GatewayBody>;

    async fn handle(
        &self,
        request: Request<IncomingBody>,
        peer: SocketAddr,
    ) -> Response<Self::Body> {
        let state = &self.state;
        let (request, progress) = limited(request, state.body_limits);
        let (mut request, body) = request.into_parts();
        let version = request.version;
        let rejected = rejection(&request, state.header_names);
        state.header_names.drop_from(&mut request.headers);
        drop_named_by_connection(&mut request.headers);
        let context = RequestContext::new(peer.ip(), state.decider.policy());
        let id = identify(&mut request, &context);
        let mut record = RequestRecord::begin(state, context, &mut request, &id);
        let mut response = match rejected {
            Some(rejected) => {
                record.context.identify(&request.headers);
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
        let gate = &self.state.gate;
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
        let (version, limits) = (request.version, self.state.body_limits);
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
                reserved: &|| {
                    let policy = Arc::clone(context.policy());
                    Arc::new(move |name| policy.looks_at(name))
                },
            };
            self.proxy
                .forward(Request::from_parts(request, body), &client)
        };
        let forwarded = forwarding.await;
        record.forwarded(forwarded.took, forwarded.tunnel);
        // If the body failed, the client learns that, whatever the upstream responded.
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

/// The id of a request, which is forwarded with it: that from a trusted proxy, or a new one.
fn identify(request: &mut Parts, context: &RequestContext) -> HeaderValue {
    let is_trusted = || context.policy().identity().trusts(context.peer());
    match request_id(&request.headers).filter(|_| is_trusted()) {
        Some(id) => id.clone(),
        None => {
            let id = hex(rand::random());
            // Hexadecimal digits are valid in a header.
            let id = HeaderValue::from_bytes(&id).unwrap_or(HeaderValue::from_static("0"));
            request.headers.insert(X_REQUEST_ID, id.clone());
            id
        }
    }
}

fn hex(bytes: [u8; 16]) -> [u8; 32] {
    let digit = |half: u8| half + if half < 10 { b'0' } else { b'a' - 10 };
    let mut text = [0; 32];
    for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = [digit(byte >> 4), digit(byte & 15)];
    }
    text
}

/// The response to a request whose body is too long, too slow or malformed.
fn body_failure(error: BodyError, version: Version) -> Response<Full<Bytes>> {
    let (status, detail) = match error {
        BodyError::TooLong => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "The request body exceeds the configured limit.",
        ),
        BodyError::TooSlow => (
            StatusCode::REQUEST_TIMEOUT,
            "The request body took too long to arrive.",
        ),
        BodyError::Broken => (
            StatusCode::BAD_REQUEST,
            "The request body is not framed as its headers say.",
        ),
    };
    let mut response = failure(status, detail, Dialect::Http).map(Full::new);
    // What is left of the body is not read, so nothing can follow it.
    close_after(&mut response, version);
    response
}

/// Closes the connection after this response. In HTTP/2 other requests do not depend on this one.
pub(super) fn close_after<B>(response: &mut Response<B>, version: Version) {
    if version <= Version::HTTP_11 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn request_ids_are_unique_and_random_throughout() {
        let ids: HashSet<[u8; 32]> = (0..20_000).map(|_| hex(rand::random())).collect();
        assert_eq!(ids.len(), 20_000);
        let beginnings: HashSet<&[u8]> = ids.iter().map(|id| &id[..8]).collect();
        assert!(beginnings.len() > 19_900, "{}", beginnings.len());
    }

    #[test]
    fn request_ids_are_hexadecimal() {
        let mut number = 0x0123_4567_89ab_cdef_0011_2233_4455_6677_u128;
        for _ in 0..1_000 {
            assert_eq!(
                hex(number.to_be_bytes()),
                format!("{number:032x}").as_bytes()
            );
            number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number >> 29);
        }
        assert_eq!(hex([0xff; 16]), [b'f'; 32]);
    }
}
