//! What the gateway itself has to say.

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue};
use http::{Response, StatusCode, Version};
use http_body_util::Full;
use tollgate_tower::answer::{Dialect, failure};

/// A body that is there as a whole.
pub(super) type Whole = Full<Bytes>;

/// Problem details with words of ours.
pub(super) fn problem(status: StatusCode, detail: &'static str) -> Response<Whole> {
    failure(status, detail, Dialect::Http).map(Full::new)
}

/// Says that nothing is read any more on this connection. In HTTP/2 nothing else depends on one request.
pub(super) fn last(response: &mut Response<Whole>, version: Version) {
    if version <= Version::HTTP_11 {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
}
