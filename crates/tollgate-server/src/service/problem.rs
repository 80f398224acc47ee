//! What is wrong with a question, as problem details.

use axum::body::Body;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Response, StatusCode, Uri};
use tollgate_tower::answer::{Dialect, failure};

use super::ENDPOINTS;
use crate::bearer::SENT_BY_A_PAGE;
use tollgate_config::text::escaped;

/// An answer that is not the one that was asked for.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }

    /// What was asked cannot be understood.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The same about something that is well-formed and not there.
    pub(super) fn not_found(self) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            ..self
        }
    }

    /// The token is missing, or another one.
    pub(super) fn unauthorised() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "this needs the service's token: Authorization: Bearer TOKEN",
        )
    }

    /// There is no token, and a page in a browser may ask.
    pub(super) fn sent_by_a_page() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            format!("service.token {SENT_BY_A_PAGE}"),
        )
    }

    /// As a status of gRPC.
    pub(super) fn grpc(&self) -> tonic::Status {
        match self.status {
            StatusCode::UNAUTHORIZED => tonic::Status::unauthenticated(&self.detail),
            _ => tonic::Status::permission_denied(&self.detail),
        }
    }

    pub(super) fn response(&self) -> Response<Body> {
        let mut response = failure(self.status, &self.detail, Dialect::Http).map(Body::from);
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

pub(super) async fn not_found(uri: Uri) -> Response<Body> {
    let all = ENDPOINTS.map(|(method, path, what)| format!("{method} {path} ({what})"));
    let path = escaped(uri.path(), 100);
    let detail = format!(
        "there is no {path} here; there is {}, and gRPC: envoy.service.ratelimit.v3.RateLimitService and grpc.health.v1.Health",
        all.join(", ")
    );
    Problem::new(StatusCode::NOT_FOUND, detail).response()
}

pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Response<Body> {
    let known = ENDPOINTS.iter().find(|(_, path, _)| *path == uri.path());
    let right = known.map_or("POST", |(method, _, _)| method);
    let detail = format!(
        "{} is asked for with {right}, not with {}",
        escaped(uri.path(), 100),
        escaped(method.as_str(), 20)
    );
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).response()
}
