//! Rejects a target with a character that must be encoded, and names it. hyper would answer with an empty 400, which is no help:
//! some clients send such characters, and other servers accept them.

use http::Uri;
use quanta::Instant;

use super::message::push_date;

/// The position and value of the first byte that must be encoded, if that is why a target is malformed.
fn unencoded(target: &[u8]) -> Option<(usize, u8)> {
    if target.first() != Some(&b'/') || Uri::try_from(target).is_ok() {
        return None;
    }
    let query = target.iter().position(|byte| *byte == b'?');
    let query = query.unwrap_or(target.len());
    let is_unencoded = |at: usize, byte: u8| match byte {
        b'<' | b'>' => true,
        b'"' => at > query,
        b'`' => at < query,
        _ => false,
    };
    let mut bytes = target.iter().copied().enumerate();
    let first = bytes.find(|(at, byte)| is_unencoded(*at, *byte));
    let not_utf8 = std::str::from_utf8(target).err();
    let not_utf8 = not_utf8.map(|error| error.valid_up_to());
    let at = first.map(|(at, _)| at).into_iter().chain(not_utf8).min()?;
    Some((at, *target.get(at)?))
}

/// The response to a request whose head is complete and whose target has such a character. hyper rejects all of these as well.
#[must_use]
pub fn rejection(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut lines = bytes
        .trim_ascii_start()
        .split(|byte| b"\r\n".contains(byte));
    // httparse has no target for what is not UTF-8.
    let mut words = lines.next()?.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(b"HTTP/1.1" | b"HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return None;
    };
    let (at, byte) = unencoded(target)?;
    let has = |end: &[u8]| bytes.windows(end.len()).any(|window| window == end);
    if !has(b"\n\r\n") && !has(b"\n\n") {
        return None;
    }
    let what = match byte {
        0x80.. => "a byte that is not UTF-8".to_owned(),
        b'"' => "an unencoded \\\"".to_owned(),
        _ => format!("an unencoded {}", char::from(byte)),
    };
    let body = format!(
        r#"{{"type":"about:blank","title":"Bad Request","status":400,"detail":"The target of the request has {what} at byte {at}. Send it as %{byte:02X}."}}"#
    );
    let mut response = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    )
    .into_bytes();
    push_date(Instant::now(), &mut response);
    response.extend_from_slice(b"\r\n");
    if method != b"HEAD" {
        response.extend_from_slice(body.as_bytes());
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_character_that_must_be_encoded_is_found() {
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
            let actual = unencoded(target);
            assert_eq!(actual, expected, "{}", target.escape_ascii());
        }
    }
}
