//! What the gateway itself has to say.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode, Version};
use http_body_util::Full;
use tollgate_tower::answer::PROBLEM_JSON;

/// A body that is there as a whole.
pub(super) type Whole = Full<Bytes>;

/// Problem details with words of ours.
pub(super) fn problem(status: StatusCode, detail: &'static str) -> Response<Whole> {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({
        "title": title,
        "status": status.as_u16(),
        "detail": detail,
    });
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(PROBLEM_JSON);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Says that nothing is read any more on this connection. In HTTP/2 nothing else depends on one request.
pub(super) fn last(response: &mut Response<Whole>, version: Version) {
    if version <= Version::HTTP_11 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}
