//! The requests of a case, in both versions of HTTP.

use crate::lists::{Attacks, Family, Head, Place, Shape};
use crate::template::{Word, fill};
use crate::wire::http2;

/// The version of HTTP in which a case is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// What is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Http1(Vec<u8>),
    Http2(http2::Request),
}

const BODY: &[u8] = b"abc";

/// The attack with this number. `None` if this version of HTTP cannot say it.
pub(crate) fn attack(
    family: &Family,
    nth: usize,
    version: Version,
    word: Word,
    attempt: usize,
) -> Option<Request> {
    match family.attacks {
        Attacks::Texts(texts) => with_text(family, texts.get(nth)?, version, word, attempt),
        Attacks::Heads(heads) => {
            let head = heads.get(nth)?;
            (version == Version::Http2).then(|| {
                Request::Http2(http2::Request {
                    fields: fields_of_head(&family.shape, head, word, attempt),
                    ..http2::Request::default()
                })
            })
        }
    }
}

/// The pseudo-headers of the shape that the head does not name, and the head.
fn fields_of_head(shape: &Shape, head: Head, word: Word, attempt: usize) -> http2::Fields {
    let usual = [
        (":method", shape.method),
        (":scheme", "http"),
        (":path", shape.target),
        (":authority", shape.host),
    ];
    let is_named = |usual: &str| {
        head.iter()
            .any(|(name, _)| name.trim_start_matches('!') == usual)
    };
    let usual = usual.into_iter().filter(|(name, _)| !is_named(name));
    let named = head
        .iter()
        .filter(|(name, _)| !name.starts_with('!'))
        .copied();
    let filled = |text: &str| fill(text.as_bytes(), word, attempt);
    let both = usual.chain(named);
    both.map(|(name, value)| (filled(name), filled(value)))
        .collect()
}

/// The plain form.
pub(crate) fn plain(
    family: &Family,
    version: Version,
    word: Word,
    attempt: usize,
) -> Option<Request> {
    with_text(family, family.plain?, version, word, attempt)
}

fn with_text(
    family: &Family,
    text: &[u8],
    version: Version,
    word: Word,
    attempt: usize,
) -> Option<Request> {
    let text = fill(text, word, attempt);
    let parts = Parts::of(&family.shape, family.place, text, word, attempt);
    match version {
        Version::Http1 => Some(Request::Http1(parts.http1(family.place))),
        Version::Http2 => parts.http2(family.place).map(Request::Http2),
    }
}

/// A shape with the text in its place.
struct Parts {
    method: Vec<u8>,
    target: Vec<u8>,
    host: Vec<u8>,
    lines: Vec<u8>,
    trailers: Vec<u8>,
    whole: Vec<u8>,
}

impl Parts {
    fn of(shape: &Shape, place: Place, text: Vec<u8>, word: Word, attempt: usize) -> Self {
        let filled = |part: &str| fill(part.as_bytes(), word, attempt);
        let mut parts = Self {
            method: filled(shape.method),
            target: filled(shape.target),
            host: filled(shape.host),
            lines: filled(shape.lines),
            trailers: Vec::new(),
            whole: Vec::new(),
        };
        match place {
            Place::Method => parts.method = text,
            Place::Target => parts.target = text,
            Place::Host => parts.host = text,
            Place::Lines => {
                parts.lines.extend(text);
                parts.lines.extend_from_slice(b"\r\n");
            }
            Place::Trailers => parts.trailers = text,
            Place::Whole => parts.whole = text,
        }
        parts
    }

    fn http1(&self, place: Place) -> Vec<u8> {
        if place == Place::Whole {
            return self.whole.clone();
        }
        let mut bytes = [
            &self.method[..],
            b" ",
            &self.target,
            b" HTTP/1.1\r\nHost: ",
            &self.host,
            b"\r\n",
        ]
        .concat();
        bytes.extend_from_slice(&self.lines);
        if place == Place::Trailers {
            bytes.extend_from_slice(
                b"TE: trailers\r\nTransfer-Encoding: chunked\r\nConnection: close, TE\r\n\r\n3\r\n",
            );
            bytes.extend_from_slice(BODY);
            bytes.extend_from_slice(b"\r\n0\r\n");
            bytes.extend_from_slice(&self.trailers);
            bytes.extend_from_slice(b"\r\n\r\n");
        } else {
            bytes.extend_from_slice(b"Connection: close\r\n\r\n");
        }
        bytes
    }

    fn http2(&self, place: Place) -> Option<http2::Request> {
        if place == Place::Whole {
            return None;
        }
        let pseudo = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
        let mut fields = vec![
            pseudo(":method", &self.method),
            pseudo(":scheme", b"http"),
            pseudo(":path", &self.target),
            pseudo(":authority", &self.host),
        ];
        fields.extend(fields_of(&self.lines)?);
        Some(http2::Request {
            fields,
            body: (place == Place::Trailers).then(|| BODY.to_vec()),
            trailers: fields_of(&self.trailers)?,
        })
    }
}

/// Lines of HTTP/1 as fields. `None` if a line has no name of its own, as one that is folded.
fn fields_of(lines: &[u8]) -> Option<http2::Fields> {
    let mut fields = Vec::new();
    let mut rest = lines;
    while !rest.is_empty() {
        let end = rest.windows(2).position(|two| two == b"\r\n");
        let line = rest.get(..end.unwrap_or(rest.len()))?;
        rest = end.and_then(|end| rest.get(end + 2..)).unwrap_or_default();
        let colon = line.iter().skip(1).position(|byte| *byte == b':')? + 1;
        let (name, value) = line.split_at(colon);
        if name.first() == Some(&b' ') || name.first() == Some(&b'\t') {
            return None;
        }
        let value = value.strip_prefix(b": ").unwrap_or(value.get(1..)?);
        fields.push((name.to_ascii_lowercase(), value.to_vec()));
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::OPEN;

    #[test]
    fn a_head_takes_the_place_of_usual_pseudo_headers() {
        let head: Head = &[("!:authority", ""), (":path", "/{w}"), ("host", "a")];
        let fields = fields_of_head(&OPEN, head, Word(1), 0);
        let names: Vec<&[u8]> = fields.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [&b":method"[..], b":scheme", b":path", b"host"]);
        assert_eq!(fields[2].1, b"/w00001x");
    }

    #[test]
    fn lines_become_fields_unless_they_are_folded() {
        let fields = fields_of(b"X-A: 1\r\nX-B:\t2\r\n").unwrap();
        let expected = [
            (b"x-a".to_vec(), b"1".to_vec()),
            (b"x-b".to_vec(), b"\t2".to_vec()),
        ];
        assert_eq!(fields, expected);
        assert_eq!(fields_of(b"X-A: 1\r\n folded"), None);
        assert_eq!(fields_of(b"no colon"), None);
    }
}
