//! What both ends of HTTP/1.1 have in common, where hyper does not speak.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};
use tollgate_tower::answer::FieldLines;

/// Writes `name: value` and the end of the line. Part by part, as what has a known length is then written without a call.
pub(crate) fn push_field(name: &HeaderName, value: &HeaderValue, head: &mut Vec<u8>) {
    let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
    head.reserve(name.len() + value.len() + 4);
    head.extend_from_slice(name);
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// What a server said in its head, as lines of a head of HTTP/1.1, among a response's extensions instead of its fields: for who writes heads itself. Whatever
/// somebody on the way looks for, removes or sets stands among the fields; nothing stands here and there.
#[derive(Clone, Debug)]
pub struct ReadLines {
    text: Bytes,
    has_date: bool,
}

impl ReadLines {
    /// Lines of the form `name: value`, with small letters in the names, each with its end.
    pub(crate) fn new(text: Bytes, has_date: bool) -> Self {
        Self { text, has_date }
    }

    /// All lines, each with its end.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// Whether one of them is the date.
    pub(crate) fn has_date(&self) -> bool {
        self.has_date
    }

    /// Puts the lines of a response among its fields, if it has any: for who does not write them.
    pub fn put_among_fields<B>(response: &mut Response<B>) {
        let Some(lines) = response.extensions_mut().remove::<Self>() else {
            return;
        };
        let fields = response.headers_mut();
        for line in lines.text.split(|byte| *byte == b'\n') {
            let Some((name, value)) = parts(line) else {
                continue;
            };
            let name = HeaderName::from_bytes(name);
            let value = HeaderValue::from_maybe_shared(lines.text.slice_ref(value));
            if let (Ok(name), Ok(value)) = (name, value) {
                fields.append(name, value);
            }
        }
    }
}

/// Name and value of a line without its last byte.
fn parts(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.strip_suffix(b"\r")?;
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, rest) = line.split_at_checked(colon)?;
    Some((name, rest.strip_prefix(b": ")?))
}

/// Puts all lines that a response has beside its fields among them.
pub(crate) fn put_lines_among_fields<B>(response: &mut Response<B>) {
    ReadLines::put_among_fields(response);
    FieldLines::put_among_fields(response);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_the_fields_that_they_are() {
        let mut response = Response::new(());
        let id = HeaderValue::from_static("7");
        response.headers_mut().insert("x-request-id", id);
        let text = b"server: a: b\r\nset-cookie: one\r\nx-empty: \r\nx-byte: \xe9\tz\r\nset-cookie: two\r\n";
        let lines = ReadLines::new(Bytes::from_static(text), false);
        response.extensions_mut().insert(lines);
        put_lines_among_fields(&mut response);
        let fields: Vec<_> = (response.headers().iter())
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect();
        let expected: [(&str, &[u8]); 6] = [
            ("x-request-id", b"7"),
            ("server", b"a: b"),
            ("set-cookie", b"one"),
            ("set-cookie", b"two"),
            ("x-empty", b""),
            ("x-byte", b"\xe9\tz"),
        ];
        assert_eq!(fields, expected);
        assert!(response.extensions().is_empty());
    }
}
