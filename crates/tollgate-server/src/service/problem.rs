//! What is wrong with a question, as problem details.

use axum::body::Body;
use http::header::{CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Response, StatusCode, Uri};
use serde_json::json;
use tollgate_tower::answer::PROBLEM_JSON;

use super::ENDPOINTS;
use crate::audit::escaped;

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

    /// The token is missing, or another one.
    pub(super) fn unauthorised() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "this needs the service's token: Authorization: Bearer TOKEN",
        )
    }

    pub(super) fn response(&self) -> Response<Body> {
        let body = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason().unwrap_or_default(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
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
