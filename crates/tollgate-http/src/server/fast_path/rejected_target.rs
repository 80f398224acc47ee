//! Rejects a target with a character that must be encoded, and says which. hyper would answer with an empty 400, which
//! helps nobody: some clients send such characters, and other servers accept them.

use std::fmt;

use http::{StatusCode, Uri};
use quanta::Instant;

use super::message::push_response;

/// A byte of a target that must be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unencoded {
    at: usize,
    byte: u8,
}

impl Unencoded {
    /// The first one, if that is why the target is malformed.
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

/// The response to the request at the beginning of `bytes`, if its head is complete and its target has a character that must
/// be encoded. hyper rejects all of these as well.
#[must_use]
pub fn rejection(bytes: &[u8]) -> Option<Vec<u8>> {
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
    let detail = unencoded.to_string().replace('"', "\\\"");
    let body = format!(
        "{{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,\"detail\":\"{detail}\"}}"
    );
    let lines: [&[u8]; 2] = [
        b"content-type: application/problem+json\r\n",
        b"connection: close\r\n",
    ];
    let mut response = Vec::new();
    let status = StatusCode::BAD_REQUEST;
    push_response(
        status,
        &lines,
        body.as_bytes(),
        Instant::now(),
        &mut response,
    );
    if method == b"HEAD" {
        response.truncate(response.len() - body.len());
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_character_that_must_be_encoded_is_named() {
        for (target, expected) in [
            (&b"/?filter={\"a\":1}"[..], Some((10, b'"'))),
            (b"/a<b", Some((2, b'<'))),
            (b"/?a>b", Some((3, b'>'))),
            (b"/a`b", Some((2, b'`'))),
            (b"/?a=caf\xe9", Some((7, 0xe9))),
            (b"/\xe9\"", Some((1, 0xe9))),
            // What browsers send unencoded, and what is wrong for other reasons.
            (b"/{a}|\"b\"?{|}^`\\[]'", None),
            (b"admin", None),
            (b"/caf\xc3\xa9?\xc3\xa9", None),
        ] {
            let found = Unencoded::in_target(target).map(|found| (found.at, found.byte));
            assert_eq!(found, expected, "{}", target.escape_ascii());
        }
    }
}
