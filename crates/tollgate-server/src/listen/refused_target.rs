//! Says why a target is none. hyper would answer with 400 and nothing else, and what some clients send unencoded is
//! not what others expect.

use std::fmt;

use bytes::Bytes;
use http::{StatusCode, Uri};
use quanta::Instant;
use tollgate_tower::answer::{Dialect, PROBLEM_JSON, failure};

use super::plain::push_answer;

/// A byte of a target that has to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unencoded {
    at: usize,
    byte: u8,
}

impl Unencoded {
    /// The first one, if that is why the target is none.
    fn in_target(target: &[u8]) -> Option<Self> {
        if target.first() != Some(&b'/') || Uri::try_from(target).is_ok() {
            return None;
        }
        let query = target.iter().position(|byte| *byte == b'?');
        let query = query.unwrap_or(target.len());
        let is_odd = |at: usize, byte: u8| match byte {
            b'<' | b'>' => true,
            b'"' => at > query,
            b'`' => at < query,
            _ => false,
        };
        let mut bytes = target.iter().copied().enumerate();
        let odd = bytes
            .find(|(at, byte)| is_odd(*at, *byte))
            .map(|(at, _)| at);
        let not_text = std::str::from_utf8(target)
            .err()
            .map(|error| error.valid_up_to());
        let at = odd.into_iter().chain(not_text).min()?;
        Some(Self {
            at,
            byte: *target.get(at)?,
        })
    }
}

impl fmt::Display for Unencoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, byte } = self;
        write!(f, "The target of the request has ")?;
        match byte {
            0x80.. => write!(f, "a byte that is not UTF-8")?,
            byte => write!(f, "an unencoded {}", char::from(*byte))?,
        }
        write!(f, " at byte {at}. Send it as %{byte:02X}.")
    }
}

/// The answer to the request that these bytes begin with, if all of its head is there and its target has a character that has to be
/// encoded.
pub(super) fn answer(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_whole = |end: &[u8]| bytes.windows(end.len()).any(|window| window == end);
    let line = bytes
        .trim_ascii_start()
        .split(|byte| matches!(byte, b'\r' | b'\n'))
        .next()?;
    // httparse has no target for what is not UTF-8.
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(b"HTTP/1.1" | b"HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return None;
    };
    let unencoded = Unencoded::in_target(target)?;
    if !is_whole(b"\n\r\n") && !is_whole(b"\n\n") {
        return None;
    }
    let status = StatusCode::BAD_REQUEST;
    let body: Bytes = failure(status, &unencoded.to_string(), Dialect::Http).into_body();
    let kind = format!("content-type: {PROBLEM_JSON}\r\n");
    let lines: [&[u8]; 2] = [kind.as_bytes(), b"connection: close\r\n"];
    let mut answer = Vec::new();
    push_answer(status, &lines, &body, Instant::now(), &mut answer);
    if method == b"HEAD" {
        answer.truncate(answer.len() - body.len());
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_character_that_has_to_be_encoded_is_named() {
        for (target, expected) in [
            (&b"/?filter={\"a\":1}"[..], Some((10, b'"'))),
            (b"/a<b", Some((2, b'<'))),
            (b"/?a>b", Some((3, b'>'))),
            (b"/a`b", Some((2, b'`'))),
            (b"/?a=caf\xe9", Some((7, 0xe9))),
            (b"/\xe9\"", Some((1, 0xe9))),
            // What browsers send as it is, and what else is wrong.
            (b"/{a}|\"b\"?{|}^`\\[]'", None),
            (b"admin", None),
            (b"/caf\xc3\xa9?\xc3\xa9", None),
        ] {
            let found = Unencoded::in_target(target).map(|found| (found.at, found.byte));
            assert_eq!(found, expected, "{}", target.escape_ascii());
        }
    }
}
