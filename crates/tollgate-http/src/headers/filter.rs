//! The one filter for headers and trailers, in both directions: what is meant for the next hop alone stays here, lengths are said once, and
//! a trailer carries nothing that whoever reads it may take for a header that we decide by or write ourselves.

use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, COOKIE, DATE, EXPECT, EXPIRES, FORWARDED, HOST, LOCATION, MAX_FORWARDS, PRAGMA,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RANGE, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, VARY, VIA, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::names::OVERRIDES;
use super::seen::Seen;
use super::{ReservedNames, X_REQUEST_ID};

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What is meant for the next hop alone, beside `Connection`, what that names, and how a body is framed. [`Seen`] and `plain` know them by sight.
pub(crate) const HOP_BY_HOP: [HeaderName; 6] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    UPGRADE,
];

/// What other proxies say of a caller. From a stranger it is only a claim, and the server would take it for ours.
pub(crate) const CLAIMS: [HeaderName; 6] = [
    FORWARDED,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-real-ip"),
];

/// What has no place in a trailer: it frames, routes or modifies a message, authenticates its sender, or says how to cache or read it
/// (RFC 9110, 6.5.1).
const HEADERS_ALONE: [HeaderName; 27] = [
    AGE,
    AUTHORIZATION,
    CACHE_CONTROL,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_RANGE,
    CONTENT_TYPE,
    COOKIE,
    DATE,
    EXPECT,
    EXPIRES,
    HOST,
    LOCATION,
    MAX_FORWARDS,
    PRAGMA,
    RANGE,
    SET_COOKIE,
    TRAILER,
    TRANSFER_ENCODING,
    VARY,
    VIA,
    WWW_AUTHENTICATE,
    X_FORWARDED_FOR,
    X_REQUEST_ID,
    HeaderName::from_static("traceparent"),
    HeaderName::from_static("tracestate"),
];

/// Whether `Connection` may have a field dropped: not what tells where a message goes and where it ends, who sent it, or what we add ourselves.
pub(crate) fn may_be_dropped(name: &HeaderName) -> bool {
    let is_kept = matches!(
        *name,
        HOST | CONTENT_LENGTH | TRANSFER_ENCODING | CONNECTION | COOKIE | AUTHORIZATION
    );
    let is_ours = matches!(name.as_str(), "traceparent" | "tracestate" | "x-request-id");
    !is_kept && !is_ours && *name != X_FORWARDED_FOR && !CLAIMS.contains(name)
}

/// The parts of a list that can be read.
pub(crate) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',').map(str::trim))
}

/// Removes what is meant for the next hop alone, and what `Connection` names. `false` if there are lengths that differ.
#[must_use]
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) -> bool {
    remove_seen_hop_by_hop(headers, Seen::in_all(headers))
}

#[must_use]
pub(crate) fn remove_seen_hop_by_hop(headers: &mut HeaderMap, seen: Seen) -> bool {
    if seen.has(Seen::CONNECTION) {
        remove_named_by_connection(headers);
        headers.remove(CONNECTION);
    }
    if seen.has(Seen::TRANSFER_ENCODING) {
        headers.remove(TRANSFER_ENCODING);
        // Of the two, only one can be true, and it is not this one.
        headers.remove(CONTENT_LENGTH);
    } else if seen.has(Seen::CONTENT_LENGTH) && !say_length_once(headers) {
        return false;
    }
    if seen.has(Seen::TE | Seen::UPGRADE | Seen::HOP) {
        for name in HOP_BY_HOP {
            headers.remove(name);
        }
    }
    true
}

/// Removes the fields that `Connection` names, as far as it may have them dropped.
pub(crate) fn remove_named_by_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
        // The usual words, which go anyway or name no field.
        .filter(|word| !["keep-alive", "close"].contains(word))
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .filter(may_be_dropped)
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Makes one line of several that say the same length, which HTTP/2 lets pass; `false` if they do not.
fn say_length_once(headers: &mut HeaderMap) -> bool {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    if let (Some(only), None) = (lines.next(), lines.next())
        && is_number(only.as_bytes())
    {
        return true;
    }
    let mut lengths = tokens(headers, &CONTENT_LENGTH);
    let first = lengths.next().filter(|first| is_number(first.as_bytes()));
    let first = first.filter(|first| lengths.all(|length| length == *first));
    match first.map(HeaderValue::from_str) {
        Some(Ok(length)) => {
            drop(lengths);
            headers.insert(CONTENT_LENGTH, length);
            true
        }
        _ => false,
    }
}

fn is_number(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(u8::is_ascii_digit)
}

/// Leaves in the trailers of a request what a server may safely merge with its headers. Names with underscores are headers of other names for some.
pub(crate) fn filter_request_trailers(trailers: &mut HeaderMap, reserved: &ReservedNames) {
    retain(trailers, |name| {
        let is_override = OVERRIDES.contains(&name.as_str());
        !belongs_in_head(name) && !is_override && !name.as_str().contains('_') && !reserved(name)
    });
}

/// Leaves in the trailers of a response what is no header.
pub(crate) fn filter_response_trailers(trailers: &mut HeaderMap) {
    retain(trailers, |name| !belongs_in_head(name));
}

fn belongs_in_head(name: &HeaderName) -> bool {
    HEADERS_ALONE.contains(name) || HOP_BY_HOP.contains(name) || CLAIMS.contains(name)
}

fn retain(trailers: &mut HeaderMap, stays: impl Fn(&HeaderName) -> bool) {
    let dropped: Vec<HeaderName> = trailers
        .keys()
        .filter(|name| !stays(name))
        .cloned()
        .collect();
    for name in dropped {
        trailers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn connection_drops_what_it_names_and_nothing_that_is_ours_or_frames() {
        let mut head = headers(&[
            (
                "connection",
                "x-a, X-Request-Id, transfer-encoding, content-length, host, x-forwarded-for, close",
            ),
            ("connection", "authorization, traceparent, forwarded"),
            ("x-a", "1"),
            ("x-request-id", "7"),
            ("host", "h"),
            ("x-forwarded-for", "192.0.2.1"),
            ("authorization", "Bearer a"),
            ("traceparent", "00-1"),
            ("forwarded", "for=192.0.2.1"),
            ("content-length", "3"),
        ]);
        assert!(remove_hop_by_hop(&mut head));
        assert_eq!(
            names(&head),
            [
                "authorization",
                "content-length",
                "forwarded",
                "host",
                "traceparent",
                "x-forwarded-for",
                "x-request-id"
            ]
        );
    }

    #[test]
    fn a_length_beside_chunks_goes_whatever_connection_names() {
        let mut head = headers(&[
            ("connection", "transfer-encoding"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
        ]);
        assert!(remove_hop_by_hop(&mut head));
        assert!(head.is_empty());
    }

    #[test]
    fn a_length_is_said_once_or_is_none() {
        for (lines, expected) in [
            (&["3"][..], Some("3")),
            (&["3", "3"], Some("3")),
            (&["3, 3"], Some("3")),
            (&["3", "4"], None),
            (&["3", "x"], None),
            (&["-3"], None),
            (&["+3"], None),
            (&["3, 3,"], None),
        ] {
            let mut head = HeaderMap::new();
            for line in lines {
                head.append(CONTENT_LENGTH, HeaderValue::from_static(line));
            }
            let is_one = remove_hop_by_hop(&mut head);
            assert_eq!(is_one, expected.is_some(), "{lines:?}");
            if let Some(expected) = expected {
                let all: Vec<_> = head.get_all(CONTENT_LENGTH).iter().collect();
                assert_eq!(all, [expected]);
            }
        }
    }

    #[test]
    fn trailers_carry_nothing_that_belongs_in_a_head() {
        let forbidden = [
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "192.0.2.1"),
            ("forwarded", "for=192.0.2.1"),
            ("cookie", "a=b"),
            ("set-cookie", "a=b"),
            ("authorization", "Bearer a"),
            ("connection", "close"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("host", "h"),
            ("x-request-id", "7"),
            ("via", "1.1 a"),
        ];
        let kept = [
            ("x-checksum", "1"),
            ("grpc-status", "0"),
            ("server-timing", "a"),
        ];
        let mut response = headers(&[&forbidden[..], &kept, &[("x_a", "1")]].concat());
        filter_response_trailers(&mut response);
        assert_eq!(
            names(&response),
            ["grpc-status", "server-timing", "x-checksum", "x_a"]
        );
        let own = [
            ("x-api-key", "a"),
            ("x_api_key", "a"),
            ("x-http-method-override", "PUT"),
        ];
        let mut request = headers(&[&forbidden[..], &kept, &own].concat());
        let reserved: ReservedNames = std::sync::Arc::new(|name| name == "x-api-key");
        filter_request_trailers(&mut request, &reserved);
        assert_eq!(
            names(&request),
            ["grpc-status", "server-timing", "x-checksum"]
        );
    }
}
