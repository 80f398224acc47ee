//! Errors of the decision service and the admin interface, as problem details.

use axum::body::Body;
use axum::response::IntoResponse;
use http::header::{HeaderValue, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use tollgate_tower::answer::{Dialect, failure};

#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { status, detail }
    }

    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn grpc(&self) -> tonic::Status {
        match self.status {
            StatusCode::UNAUTHORIZED => tonic::Status::unauthenticated(&self.detail),
            _ => tonic::Status::permission_denied(&self.detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let mut response = failure(self.status, &self.detail, Dialect::Http).map(Body::from);
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, bearer);
        }
        response
    }
}
