//! The id that a request already has.

use http::{HeaderMap, HeaderValue};

use super::X_REQUEST_ID;

/// Maximum length of an id, in bytes.
const MAX_BYTES: usize = 64;

/// The id in the headers of a request, if there is one of letters, digits, dots, underscores and hyphens. Only ids from trusted
/// proxies count.
#[must_use]
pub fn request_id(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut lines = headers.get_all(X_REQUEST_ID).iter();
    let id = lines.next()?;
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    let bytes = id.as_bytes();
    let is_id = (1..=MAX_BYTES).contains(&bytes.len()) && bytes.iter().all(is_plain);
    (is_id && lines.next().is_none()).then_some(id)
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
