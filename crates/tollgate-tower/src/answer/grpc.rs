//! The same in gRPC's words: HTTP's 200, and a status among the fields of a response that has nothing else ("trailers only").

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Response, StatusCode};

use super::denial::{Denial, Reason};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// Tells clients that retry by themselves when to do so; below 0, that they should not.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const UNKNOWN: &str = "2";
const INVALID_ARGUMENT: &str = "3";
const RESOURCE_EXHAUSTED: &str = "8";
const UNIMPLEMENTED: &str = "12";
const INTERNAL: &str = "13";
const UNAVAILABLE: &str = "14";

pub(super) fn denied(denial: &Denial<'_>, kind: &'static str) -> Response<Bytes> {
    let status = match denial.reason() {
        Reason::Closed => UNAVAILABLE,
        _ => RESOURCE_EXHAUSTED,
    };
    let mut response = trailers_only(kind, status, &denial.detail());
    let pushback = match denial.retry_after_ms() {
        Some(ms) => HeaderValue::from(ms),
        None => HeaderValue::from_static("-1"),
    };
    response.headers_mut().insert(PUSHBACK, pushback);
    response
}

pub(super) fn refused(detail: &str, kind: &'static str) -> Response<Bytes> {
    trailers_only(kind, INVALID_ARGUMENT, detail)
}

/// HTTP's statuses as gRPC has them.
pub(super) fn failure(status: StatusCode, detail: &str, kind: &'static str) -> Response<Bytes> {
    let code = match status.as_u16() {
        400 => INTERNAL,
        404 | 501 => UNIMPLEMENTED,
        413 => RESOURCE_EXHAUSTED,
        502..=504 => UNAVAILABLE,
        _ => UNKNOWN,
    };
    trailers_only(kind, code, detail)
}

fn trailers_only(kind: &'static str, status: &'static str, message: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(STATUS, HeaderValue::from_static(status));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(message)) {
        headers.insert(MESSAGE, message);
    }
    response
}

/// As gRPC has it: everything but printable ASCII, and the percent sign itself.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
