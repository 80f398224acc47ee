//! Shared by the HTTP/1.1 code on both sides that does not go through hyper.

use http::{HeaderName, HeaderValue};

/// Writes `name: value` and the end of the line. Part by part, as what has a known length is then written without a call.
pub(crate) fn push_field(name: &HeaderName, value: &HeaderValue, head: &mut Vec<u8>) {
    let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
    head.reserve(name.len() + value.len() + 4);
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}
