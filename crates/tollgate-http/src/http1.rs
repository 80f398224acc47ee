//! What the fast paths on both sides share.

use http::{HeaderName, HeaderValue};

/// Appends a header and its line end.
pub(crate) fn push_header(name: &HeaderName, value: &HeaderValue, head: &mut Vec<u8>) {
    let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
    head.reserve(name.len() + value.len() + 4);
    // Part by part: those of a known length are written without a call.
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}
