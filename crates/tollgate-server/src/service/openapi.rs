//! `GET /openapi.json`: what can be asked, for programs. Kept by hand; a test compares it with what is answered.

use axum::body::Body;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};

const DOCUMENT: &str = include_str!("openapi.json");

pub(super) async fn document() -> Response<Body> {
    let mut response = Response::new(Body::from(DOCUMENT));
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
