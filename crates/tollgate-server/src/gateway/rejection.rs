//! Requests that servers may read in different ways are rejected before anything is decided or forwarded.
//!
//! hyper rejects most of them while it reads the head, with 400 or 431: folded headers, headers without a colon, with a space before
//! it or with odd characters in their names; control characters in values; lengths that are not numbers or differ; transfer
//! codings that do not end in `chunked`, or in HTTP/1.0; first lines with additional spaces, an unknown version or a malformed target.
//! What it accepts is checked here.
//!
//! One thing cannot be seen here: a request with both `Content-Length` and `Transfer-Encoding`. hyper reads the chunks, removes
//! the length, and closes the connection after the response, as RFC 9112 (6.3) demands. The proxy frames the body again, and what
//! follows it on the connection is never read. So it holds no second request that the limiter does not see.

use http::header::{ALLOW, COOKIE, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Uri, Version};
use hyper::upgrade::OnUpgrade;
use tollgate::parse_host;
use tollgate_http::headers::HeaderNames;

use super::response::{Whole, close_after, problem};

/// hyper reads no more in HTTP/1. In HTTP/2 only their size is bounded, and many upstreams accept no more either.
const MAX_HEADERS: usize = 100;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// For a tunnel, or for what came to be sent back.
    Method,
    NoHost,
    SeveralHosts,
    NotAHost,
    OtherHost,
    NotHttp,
    TransferCoding,
    ManyHeaders,
    Underscore,
}

impl Rejection {
    pub(super) fn response(self, version: Version) -> Response<Whole> {
        let bad = StatusCode::BAD_REQUEST;
        let (status, detail) = match self {
            Self::Method => (
                StatusCode::METHOD_NOT_ALLOWED,
                "This method is not forwarded.",
            ),
            Self::NoHost => (bad, "The request has no Host field."),
            Self::SeveralHosts => (bad, "The request has several Host fields."),
            Self::NotAHost => (
                bad,
                "The host is not a name or an address, with or without a port.",
            ),
            Self::OtherHost => (
                bad,
                "The Host field names another host than the address in the first line.",
            ),
            Self::NotHttp => (bad, "The address in the first line is not one of HTTP."),
            Self::TransferCoding => (
                StatusCode::NOT_IMPLEMENTED,
                "The only transfer coding that is known is chunked, once.",
            ),
            Self::Underscore => (
                bad,
                "The name of a header has an underscore, which servers may take for a hyphen.",
            ),
            Self::ManyHeaders => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "The request has more than 100 header fields.",
            ),
        };
        let mut response = problem(status, detail);
        if self == Self::Method {
            let allowed = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            response.headers_mut().insert(ALLOW, allowed);
        }
        // What follows may be a part of what was refused.
        close_after(&mut response, version);
        response
    }
}

/// Whether a request is refused.
pub(super) fn rejection(request: &Parts, names: HeaderNames) -> Option<Rejection> {
    // A tunnel would pass what nobody decided on; and TRACE gives away what the proxies in between have added.
    if is_not_forwarded(&request.method) {
        return Some(Rejection::Method);
    }
    // It stands for the server as a whole, which can only be asked for its options.
    if request.uri.path() == "*" && request.method != Method::OPTIONS {
        return Some(Rejection::NotHttp);
    }
    if has_many_headers(&request.headers) {
        return Some(Rejection::ManyHeaders);
    }
    if names.reject(&request.headers) {
        return Some(Rejection::Underscore);
    }
    // In one walk, as to ask for each would be to hash each name.
    let (mut hosts, mut codings) = (Lines::None, Lines::None);
    for (name, value) in &request.headers {
        match *name {
            HOST => hosts.add(value),
            TRANSFER_ENCODING => codings.add(value),
            _ => {}
        }
    }
    let refused = of_host(request.version, &request.uri, hosts);
    refused.or_else(|| of_coding(codings))
}

/// Whatever its case, as there are servers for which `trace` is TRACE.
fn is_not_forwarded(method: &Method) -> bool {
    let is = |name: &Method| method.as_str().eq_ignore_ascii_case(name.as_str());
    is(&Method::CONNECT) || is(&Method::TRACE)
}

/// In HTTP/2 browsers send each cookie by itself, and they go on as one.
fn has_many_headers(headers: &HeaderMap) -> bool {
    let cookies = || headers.get_all(COOKIE).iter().count();
    headers.len() > MAX_HEADERS && headers.len() - cookies() > MAX_HEADERS
}

/// The lines of a field of which there should be one at the most.
#[derive(Clone, Copy)]
enum Lines<'a> {
    None,
    One(&'a HeaderValue),
    Several,
}

impl<'a> Lines<'a> {
    fn add(&mut self, line: &'a HeaderValue) {
        *self = match self {
            Self::None => Self::One(line),
            Self::One(_) | Self::Several => Self::Several,
        };
    }
}

/// Takes away an offer to go on in HTTP/2, which is not taken up. If it were sent on and taken up behind us, requests would follow that nobody
/// decided on. Offers may be passed over (RFC 9110, 7.8), and clients make this one without much thought.
pub(super) fn without_h2c(request: &mut Parts) {
    let Some(upgrade) = request.headers.get(UPGRADE) else {
        return;
    };
    let offers = upgrade.as_bytes().split(|byte| *byte == b',');
    let is_h2c = |offer: &[u8]| offer.trim_ascii().to_ascii_lowercase().starts_with(b"h2");
    let several = request.headers.get_all(UPGRADE).iter().nth(1).is_some();
    if several || offers.into_iter().any(is_h2c) {
        request.headers.remove(UPGRADE);
        request.headers.remove("http2-settings");
        request.extensions.remove::<OnUpgrade>();
    }
}

/// Rules and upstreams are chosen by the host, so there is to be one.
fn of_host(version: Version, uri: &Uri, hosts: Lines<'_>) -> Option<Rejection> {
    let named = match hosts {
        Lines::None => None,
        Lines::One(named) => Some(named),
        Lines::Several => return Some(Rejection::SeveralHosts),
    };
    if let Some(named) = named
        && !is_host(named.as_bytes())
    {
        return Some(Rejection::NotAHost);
    }
    let Some(authority) = uri.authority() else {
        // Before 1.1 nobody had to say it.
        let must_be_there = version > Version::HTTP_10;
        return (named.is_none() && must_be_there).then_some(Rejection::NoHost);
    };
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Some(Rejection::NotHttp);
    }
    // No user and password among it: that is how one host poses as another.
    if !is_host(authority.as_str().as_bytes()) {
        return Some(Rejection::NotAHost);
    }
    match named {
        // The first line would count. Who has read the field has read something else.
        Some(named)
            if !named
                .as_bytes()
                .eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
        {
            Some(Rejection::OtherHost)
        }
        // HTTP/1.1 wants the field also beside a whole address.
        None if version == Version::HTTP_11 => Some(Rejection::NoHost),
        _ => None,
    }
}

fn is_host(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| parse_host(text).is_ok())
}

/// hyper undoes the chunks; whatever else was done to the body would be sent on as if it were the body.
fn of_coding(codings: Lines<'_>) -> Option<Rejection> {
    let is_plain = match codings {
        Lines::None => true,
        Lines::One(coding) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        Lines::Several => false,
    };
    (!is_plain).then_some(Rejection::TransferCoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn what_can_be_read_in_one_way_passes() {
        for (method, uri, headers) in [
            ("GET", "/", vec![("host", "api.example.com:8080")]),
            ("GET", "/", vec![("host", "[::1]:8080")]),
            (
                "GET",
                "http://API.example.com/a",
                vec![("host", "api.example.com")],
            ),
            (
                "POST",
                "/",
                vec![("host", "a"), ("transfer-encoding", "Chunked")],
            ),
            ("PROPFIND", "/", vec![("host", "a")]),
        ] {
            assert_eq!(
                rejection(&request(method, uri, &headers), HeaderNames::default()),
                None,
                "{method} {uri}"
            );
        }
        let mut old = request("GET", "/", &[]);
        old.version = Version::HTTP_10;
        assert_eq!(rejection(&old, HeaderNames::default()), None);
        let mut two = request("GET", "https://a/", &[]);
        two.version = Version::HTTP_2;
        assert_eq!(rejection(&two, HeaderNames::default()), None);
    }

    #[test]
    fn what_can_be_read_in_two_ways_does_not() {
        let a = ("host", "a");
        for (method, uri, headers, expected) in [
            ("CONNECT", "a:443", vec![a], Rejection::Method),
            ("TRACE", "/", vec![a], Rejection::Method),
            ("trace", "/", vec![a], Rejection::Method),
            ("Connect", "/", vec![a], Rejection::Method),
            ("GET", "/", vec![], Rejection::NoHost),
            ("GET", "http://a/", vec![], Rejection::NoHost),
            ("GET", "/", vec![a, a], Rejection::SeveralHosts),
            ("GET", "/", vec![("host", "")], Rejection::NotAHost),
            ("GET", "/", vec![("host", "a b")], Rejection::NotAHost),
            ("GET", "/", vec![("host", "a@b")], Rejection::NotAHost),
            ("GET", "/", vec![("host", "a/b")], Rejection::NotAHost),
            ("GET", "/", vec![("host", "a,b")], Rejection::NotAHost),
            ("GET", "/", vec![("host", "a:x")], Rejection::NotAHost),
            ("GET", "/", vec![("host", "a:80:80")], Rejection::NotAHost),
            ("GET", "/", vec![("host", "a..")], Rejection::NotAHost),
            ("GET", "/", vec![("host", "[a]")], Rejection::NotAHost),
            ("GET", "http://u@a/", vec![a], Rejection::NotAHost),
            ("GET", "http://b/", vec![a], Rejection::OtherHost),
            ("GET", "http://a:80/", vec![a], Rejection::OtherHost),
            ("GET", "ftp://a/", vec![a], Rejection::NotHttp),
            ("GET", "*", vec![a], Rejection::NotHttp),
            (
                "POST",
                "/",
                vec![a, ("transfer-encoding", "gzip, chunked")],
                Rejection::TransferCoding,
            ),
            (
                "POST",
                "/",
                vec![
                    a,
                    ("transfer-encoding", "chunked"),
                    ("transfer-encoding", "chunked"),
                ],
                Rejection::TransferCoding,
            ),
            (
                "POST",
                "/",
                vec![a, ("transfer-encoding", "xchunked")],
                Rejection::TransferCoding,
            ),
        ] {
            let refused = rejection(&request(method, uri, &headers), HeaderNames::default());
            assert_eq!(refused, Some(expected), "{method} {uri} {headers:?}");
        }
    }

    #[test]
    fn an_offer_to_go_on_in_http_2_is_passed_over_and_a_websocket_is_not() {
        for offer in ["h2c", "H2C", "websocket, h2c", "h2"] {
            let mut request = request("GET", "/", &[("upgrade", offer), ("http2-settings", "AA")]);
            without_h2c(&mut request);
            assert!(request.headers.is_empty(), "{offer}");
        }
        let mut twice = request("GET", "/", &[("upgrade", "websocket"), ("upgrade", "h2c")]);
        without_h2c(&mut twice);
        assert!(twice.headers.is_empty());
        let mut socket = request("GET", "/", &[("upgrade", "websocket")]);
        without_h2c(&mut socket);
        assert_eq!(socket.headers[UPGRADE], "websocket");
    }
}
