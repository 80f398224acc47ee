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

use bytes::Bytes;
use http::header::{ALLOW, COOKIE, HOST, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Response, StatusCode, Uri, Version};
use http_body_util::Full;
use hyper::upgrade::OnUpgrade;
use tollgate::parse_host;
use tollgate_http::headers::HeaderNames;
use tollgate_tower::answer::{Dialect, failure};

use super::handler::close_after;

/// hyper's maximum in HTTP/1. In HTTP/2 only the size of the headers is bounded, and many upstreams accept no more either.
const MAX_HEADERS: usize = 100;

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    status: StatusCode,
    detail: &'static str,
}

impl Rejection {
    const METHOD: Self = Self {
        status: StatusCode::METHOD_NOT_ALLOWED,
        detail: "This method is not forwarded.",
    };
    const NO_HOST: Self = Self::bad("The request has no Host header.");
    const SEVERAL_HOSTS: Self = Self::bad("The request has several Host headers.");
    const INVALID_HOST: Self =
        Self::bad("The host is not a name or an address, with or without a port.");
    const OTHER_HOST: Self =
        Self::bad("The Host header names another host than the URL in the first line.");
    const NOT_HTTP: Self = Self::bad("The URL in the first line is not one of HTTP.");
    const TRANSFER_CODING: Self = Self {
        status: StatusCode::NOT_IMPLEMENTED,
        detail: "The only known transfer coding is chunked, once.",
    };
    const HEADER_NAME: Self = Self::bad(
        "The name of a header has an underscore or another character that servers may take for a hyphen.",
    );
    const MANY_HEADERS: Self = Self {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        detail: "The request has more than 100 headers.",
    };

    const fn bad(detail: &'static str) -> Self {
        let status = StatusCode::BAD_REQUEST;
        Self { status, detail }
    }

    pub(super) fn response(self, version: Version) -> Response<Full<Bytes>> {
        let mut response = failure(self.status, self.detail, Dialect::Http).map(Full::new);
        if self == Self::METHOD {
            let allowed = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            response.headers_mut().insert(ALLOW, allowed);
        }
        // What follows may be a part of the rejected request.
        close_after(&mut response, version);
        response
    }
}

/// Why a request is rejected, if it is.
pub(super) fn rejection(request: &Parts, names: HeaderNames) -> Option<Rejection> {
    // A tunnel would carry requests without decisions, and TRACE reveals headers that proxies have added.
    if is_not_forwarded(&request.method) {
        return Some(Rejection::METHOD);
    }
    // `*` stands for the server as a whole, which only has options.
    if request.uri.path() == "*" && request.method != Method::OPTIONS {
        return Some(Rejection::NOT_HTTP);
    }
    if has_many_headers(&request.headers) {
        return Some(Rejection::MANY_HEADERS);
    }
    if names.reject(&request.headers) {
        return Some(Rejection::HEADER_NAME);
    }
    // One iteration instead of two lookups, which hash each name.
    let (mut hosts, mut host) = (0, None);
    let (mut codings, mut is_chunked) = (0, true);
    for (name, value) in &request.headers {
        match *name {
            HOST => (hosts, host) = (hosts + 1, Some(value)),
            TRANSFER_ENCODING => {
                codings += 1;
                is_chunked = value.as_bytes().eq_ignore_ascii_case(b"chunked");
            }
            _ => {}
        }
    }
    if hosts > 1 {
        return Some(Rejection::SEVERAL_HOSTS);
    }
    // hyper decodes only chunks; the result of other codings would be forwarded as if it were the body.
    let is_unknown_coding = codings > 1 || !is_chunked;
    host_rejection(request.version, &request.uri, host)
        .or(is_unknown_coding.then_some(Rejection::TRANSFER_CODING))
}

/// Whatever its case, because some servers take `trace` for TRACE.
fn is_not_forwarded(method: &Method) -> bool {
    let is = |name: &Method| method.as_str().eq_ignore_ascii_case(name.as_str());
    is(&Method::CONNECT) || is(&Method::TRACE)
}

/// In HTTP/2 browsers send each cookie separately; they are forwarded as one header.
fn has_many_headers(headers: &HeaderMap) -> bool {
    let cookies = || headers.get_all(COOKIE).iter().count();
    headers.len() > MAX_HEADERS && headers.len() - cookies() > MAX_HEADERS
}

/// Removes an offer to upgrade to HTTP/2. If an upstream accepted it, requests without decisions would follow. Servers may ignore offers
/// (RFC 9110, 7.8), and some clients always make this one.
pub(super) fn without_h2c(request: &mut Parts) {
    let Some(upgrade) = request.headers.get(UPGRADE) else {
        return;
    };
    let mut offers = upgrade.as_bytes().split(|byte| *byte == b',');
    let is_h2c = |offer: &[u8]| offer.trim_ascii().to_ascii_lowercase().starts_with(b"h2");
    let several = request.headers.get_all(UPGRADE).iter().nth(1).is_some();
    if several || offers.any(is_h2c) {
        request.headers.remove(UPGRADE);
        request.headers.remove("http2-settings");
        request.extensions.remove::<OnUpgrade>();
    }
}

/// Rules and upstreams are chosen by the host, so it must be unambiguous.
fn host_rejection(version: Version, uri: &Uri, host: Option<&HeaderValue>) -> Option<Rejection> {
    if host.is_some_and(|host| !is_host(host.as_bytes())) {
        return Some(Rejection::INVALID_HOST);
    }
    let Some(authority) = uri.authority() else {
        // HTTP/1.0 requires no host.
        let is_missing = host.is_none() && version > Version::HTTP_10;
        return is_missing.then_some(Rejection::NO_HOST);
    };
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Some(Rejection::NOT_HTTP);
    }
    let authority = authority.as_str().as_bytes();
    // It must have no user and password, with which one host can pose as another.
    if !is_host(authority) {
        return Some(Rejection::INVALID_HOST);
    }
    match host {
        // The first line would count, but other servers may have read the header.
        Some(host) if !host.as_bytes().eq_ignore_ascii_case(authority) => {
            Some(Rejection::OTHER_HOST)
        }
        // HTTP/1.1 requires the header even with a URL in the first line.
        None if version == Version::HTTP_11 => Some(Rejection::NO_HOST),
        _ => None,
    }
}

fn is_host(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| parse_host(text).is_ok())
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
    fn unambiguous_requests_pass() {
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
    fn ambiguous_requests_are_rejected() {
        let a = ("host", "a");
        for (method, uri, headers, expected) in [
            ("CONNECT", "a:443", vec![a], Rejection::METHOD),
            ("TRACE", "/", vec![a], Rejection::METHOD),
            ("trace", "/", vec![a], Rejection::METHOD),
            ("Connect", "/", vec![a], Rejection::METHOD),
            ("GET", "/", vec![], Rejection::NO_HOST),
            ("GET", "http://a/", vec![], Rejection::NO_HOST),
            ("GET", "/", vec![a, a], Rejection::SEVERAL_HOSTS),
            ("GET", "/", vec![("host", "")], Rejection::INVALID_HOST),
            ("GET", "/", vec![("host", "a b")], Rejection::INVALID_HOST),
            ("GET", "/", vec![("host", "a@b")], Rejection::INVALID_HOST),
            ("GET", "/", vec![("host", "a/b")], Rejection::INVALID_HOST),
            ("GET", "/", vec![("host", "a,b")], Rejection::INVALID_HOST),
            ("GET", "/", vec![("host", "a:x")], Rejection::INVALID_HOST),
            (
                "GET",
                "/",
                vec![("host", "a:80:80")],
                Rejection::INVALID_HOST,
            ),
            ("GET", "/", vec![("host", "a..")], Rejection::INVALID_HOST),
            ("GET", "/", vec![("host", "[a]")], Rejection::INVALID_HOST),
            ("GET", "http://u@a/", vec![a], Rejection::INVALID_HOST),
            ("GET", "http://b/", vec![a], Rejection::OTHER_HOST),
            ("GET", "http://a:80/", vec![a], Rejection::OTHER_HOST),
            ("GET", "ftp://a/", vec![a], Rejection::NOT_HTTP),
            ("GET", "*", vec![a], Rejection::NOT_HTTP),
            (
                "POST",
                "/",
                vec![a, ("transfer-encoding", "gzip, chunked")],
                Rejection::TRANSFER_CODING,
            ),
            (
                "POST",
                "/",
                vec![
                    a,
                    ("transfer-encoding", "chunked"),
                    ("transfer-encoding", "chunked"),
                ],
                Rejection::TRANSFER_CODING,
            ),
            (
                "POST",
                "/",
                vec![a, ("transfer-encoding", "xchunked")],
                Rejection::TRANSFER_CODING,
            ),
        ] {
            let refused = rejection(&request(method, uri, &headers), HeaderNames::default());
            assert_eq!(refused, Some(expected), "{method} {uri} {headers:?}");
        }
    }

    #[test]
    fn an_upgrade_to_http_2_is_removed_and_a_websocket_stays() {
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
