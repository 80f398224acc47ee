//! Headers on their way through a gateway: which of them are forwarded, and which end at this hop.

mod filter;
mod names;

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

pub use filter::drop_named_by_connection;
pub(crate) use filter::{
    SpecialHeaders, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, filter_request_trailers,
    filter_response, filter_response_trailers, remove_hop_by_hop, tokens,
};
pub use names::{HeaderNames, OVERRIDES, OverrideHeaders, Underscores, is_plain_name};

/// The header with a request's id, in requests and responses.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

const MAX_ID_BYTES: usize = 64;

/// Whether a header of this name means something to the limiter, so that no trailer of a request may have it.
pub type ReservedNames = Arc<dyn Fn(&HeaderName) -> bool + Send + Sync>;

/// The id in the headers of a request, if there is one of letters, digits, dots, underscores and hyphens. Only ids from trusted
/// proxies count.
#[must_use]
pub fn request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(X_REQUEST_ID).iter();
    let id = lines.next()?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let bytes = id.as_bytes();
    let is_id = (1..=MAX_ID_BYTES).contains(&bytes.len()) && bytes.iter().all(is_plain);
    (is_id && lines.next().is_none()).then_some(id)
}

/// Appends a header and its line end to a head of HTTP/1.
pub(crate) fn push_line(name: &HeaderName, value: &HeaderValue, head: &mut Vec<u8>) {
    let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
    head.reserve(name.len() + value.len() + 4);
    // Part by part: those of a known length are written without a call.
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// Removes all headers with such names.
fn remove_all(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    // Usually there is none, and the list takes no memory.
    let names: Vec<HeaderName> = (headers.keys().filter(|name| is_removed(name)))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_ids_are_read() {
        let with = |lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                let value = HeaderValue::from_bytes(line).unwrap();
                headers.append(X_REQUEST_ID, value);
            }
            request_id(&headers).cloned()
        };
        for plain in ["a", "7f9c-AB_c.9", &"x".repeat(64)] {
            assert_eq!(with(&[plain.as_bytes()]).unwrap(), plain);
        }
        for wrong in ["", "a b", "a\"b", "a/b", "a\tb", "a,b", &"x".repeat(65)] {
            assert_eq!(with(&[wrong.as_bytes()]), None, "{wrong}");
        }
        assert_eq!(with(&[b"caf\xc3\xa9"]), None);
        assert_eq!(with(&[b"a", b"a"]), None);
        assert_eq!(with(&[]), None);
    }
}
