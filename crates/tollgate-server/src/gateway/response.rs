//! Responses that the gateway makes itself.

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Response, StatusCode, Version};
use http_body_util::Full;
use tollgate_http::body::BodyError;
use tollgate_tower::answer::{Dialect, failure};

/// A body in one piece.
pub(super) type Whole = Full<Bytes>;

/// Problem details.
pub(super) fn problem(status: StatusCode, detail: &str) -> Response<Whole> {
    failure(status, detail, Dialect::Http).map(Full::new)
}

/// The response to a request whose body is too long, too slow or malformed.
pub(super) fn body_failure(error: BodyError, version: Version) -> Response<Whole> {
    let mut response = match error {
        BodyError::TooLong => problem(
            StatusCode::PAYLOAD_TOO_LARGE,
            "The request body exceeds the configured limit.",
        ),
        BodyError::TooSlow => problem(
            StatusCode::REQUEST_TIMEOUT,
            "The request body took too long to arrive.",
        ),
        BodyError::Broken => problem(
            StatusCode::BAD_REQUEST,
            "The request body is not framed as its headers say.",
        ),
    };
    // What is left of the body is not read, so nothing can follow it.
    close_after(&mut response, version);
    response
}

/// Says that nothing more is read on this connection. In HTTP/2 other requests do not depend on this one.
pub(super) fn close_after<B>(response: &mut Response<B>, version: Version) {
    if version <= Version::HTTP_11 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}
