//! The heads of requests and responses on their way through: headers for this hop alone are removed, and forwarding headers are
//! set.

use std::net::IpAddr;

use http::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, InvalidHeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;

use super::ClientInfo;
use super::request_body::RequestBody;
use super::server::Server;
use crate::headers::{
    CLAIMS, Seen, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, remove_seen_hop_by_hop,
    tokens,
};

const ROOT: PathAndQuery = PathAndQuery::from_static("/");
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// What is to be said of a request's client, and how.
pub(super) struct Forwarding<'a> {
    pub(super) client: &'a ClientInfo<'a>,
    /// Whether the client uses TLS.
    pub(super) is_tls: bool,
    /// Whether the upstream may agree to a WebSocket.
    pub(super) may_upgrade: bool,
    /// Whether to add a `Via` header.
    pub(super) adds_via: bool,
}

/// A request whose head can be sent.
pub(super) struct Prepared {
    /// Whether it asks for a WebSocket.
    pub(super) is_websocket: bool,
    pub(super) has_host: bool,
}

/// Makes the head of a request one that can be sent to a server in HTTP/1.1. No other upgrade than to a WebSocket is passed on, as what comes after would go by
/// whoever decides about requests.
pub(super) fn prepare<B>(request: &mut Request<B>, forwarding: &Forwarding<'_>) -> Prepared {
    let (seen, host, is_said) = look(request);
    let version = request.version();
    let is_websocket =
        forwarding.may_upgrade && seen.has(Seen::UPGRADE) && asks_for_websocket(request);
    let headers = request.headers_mut();
    let wants_trailers = seen.has(Seen::TE) && te_has_trailers(headers);
    if !remove_seen_hop_by_hop(headers, seen) {
        // Whoever read the request has not let it pass; the body is framed anew, as it came.
        headers.remove(CONTENT_LENGTH);
    }
    // Who waits for a word before it sends the body gets it from us, when the body is asked for.
    if seen.has(Seen::EXPECT) {
        headers.remove(EXPECT);
    }
    if is_websocket {
        add_upgrade(headers);
    }
    if wants_trailers {
        headers.insert(TE, TRAILERS);
    }
    if version == Version::HTTP_2 {
        join_cookies(headers);
    }
    set_forwarding_headers(headers, seen, forwarding, host.as_ref(), version);
    let has_host = host.is_some();
    match host {
        Some(_) if is_said => {}
        // One of them, whatever came: the rules have seen no other.
        Some(host) => {
            headers.insert(HOST, host);
        }
        None if seen.has(Seen::HOST) => {
            headers.remove(HOST);
        }
        None => {}
    }
    *request.version_mut() = Version::HTTP_11;
    Prepared {
        is_websocket,
        has_host,
    }
}

/// Which fields need care, and the host that is asked for, as the rules see it: the target's own comes first. The target loses it. Whether the host's field says
/// just that.
fn look<B>(request: &mut Request<B>) -> (Seen, Option<HeaderValue>, bool) {
    let mut hosts = 0;
    let mut first = None;
    // In one walk, as to ask for it would be to hash its name.
    let seen = Seen::in_each(request.headers(), |host| {
        hosts += 1;
        first = first.or(Some(host));
    });
    if request.uri().authority().is_none() {
        return (seen, first.cloned(), hosts == 1);
    }
    let uri = std::mem::take(request.uri_mut()).into_parts();
    let path = uri.path_and_query.map_or(ROOT, origin_form);
    *request.uri_mut() = Uri::from(path);
    // Without a user and password, which are nobody else's business.
    let text = uri.authority.as_ref().map(Authority::as_str);
    let text = text.map(|text| text.rsplit_once('@').map_or(text, |(_, host)| host));
    let host = text.and_then(|text| HeaderValue::from_str(text).ok());
    (seen, host, false)
}

/// What `http://a`, `http://a?b` and `http://a#c` ask for begins with a slash, too.
fn origin_form(path: PathAndQuery) -> PathAndQuery {
    match (path.path(), path.query()) {
        // It may have no bytes at all.
        ("/", None) => ROOT,
        ("/", Some(query)) => PathAndQuery::try_from(format!("/?{query}")).unwrap_or(ROOT),
        _ => path,
    }
}

fn asks_for_websocket<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let Some(upgrade) = headers.get(UPGRADE) else {
        return false;
    };
    request.version() == Version::HTTP_11
        && *request.method() == Method::GET
        && upgrade.as_bytes().eq_ignore_ascii_case(b"websocket")
        && tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// Whether a client asks for an event stream, as browsers' `EventSource` does.
pub(super) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    tokens(headers, &ACCEPT).any(is_type_of_event_stream)
}

/// Whether a response is an event stream.
pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE);
    value.is_some_and(|value| value.to_str().is_ok_and(is_type_of_event_stream))
}

fn is_type_of_event_stream(value: &str) -> bool {
    let media_type = value.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("text/event-stream")
}

fn te_has_trailers(headers: &HeaderMap) -> bool {
    tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"))
}

/// Asks for a WebSocket, or agrees to one.
pub(super) fn add_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, WEBSOCKET);
}

/// HTTP/2 may send them one by one, HTTP/1.1 may not.
fn join_cookies(headers: &mut HeaderMap) {
    let mut cookies = headers.get_all(COOKIE).iter();
    let (Some(first), Some(second)) = (cookies.next(), cookies.next()) else {
        return;
    };
    let mut joined = first.as_bytes().to_vec();
    for cookie in std::iter::once(second).chain(cookies) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(cookie.as_bytes());
    }
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(COOKIE, joined);
    }
}

/// Tells the server who sent the request, for which host and how. Claims of a peer that is not trusted are removed.
fn set_forwarding_headers(
    headers: &mut HeaderMap,
    seen: Seen,
    forwarding: &Forwarding<'_>,
    host: Option<&HeaderValue>,
    version: Version,
) {
    let peer = forwarding.client.peer;
    let chain = match seen.has(Seen::FORWARDED_FOR) {
        true => chain_of(headers, peer),
        false => HeaderValue::try_from(peer.to_canonical().to_string()),
    };
    if let Ok(chain) = chain {
        headers.insert(X_FORWARDED_FOR, chain);
    }
    // Mostly nobody claims anything, and then it does not matter who is trusted.
    let has_claims = seen.has(Seen::CLAIM | Seen::FORWARDED_HOST_OR_PROTO);
    let is_trusted = has_claims && (forwarding.client.trusts)(forwarding.client.peer);
    if has_claims && !is_trusted {
        for claim in CLAIMS {
            headers.remove(claim);
        }
    }
    let is_claimed = |headers: &HeaderMap, name| is_trusted && headers.contains_key(name);
    if !is_claimed(headers, X_FORWARDED_PROTO) {
        let scheme = if forwarding.is_tls { "https" } else { "http" };
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
    if let Some(host) = host
        && !is_claimed(headers, X_FORWARDED_HOST)
    {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    if forwarding.adds_via {
        headers.append(VIA, HeaderValue::from_static(via(version)));
    }
}

/// The addresses that the request names so far, and the peer.
fn chain_of(headers: &HeaderMap, peer: IpAddr) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut chain = Vec::new();
    for line in headers.get_all(X_FORWARDED_FOR) {
        chain.extend_from_slice(line.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(peer.to_canonical().to_string().as_bytes());
    HeaderValue::try_from(chain)
}

fn via(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0 tollgate",
        Version::HTTP_2 => "2.0 tollgate",
        _ => "1.1 tollgate",
    }
}

pub(super) fn set_host(request: &mut Request<RequestBody>, host: &HeaderValue) {
    request.headers_mut().insert(HOST, host.clone());
}

/// The form in which HTTP/1.1 wants it.
pub(super) fn for_http1(request: &mut Request<RequestBody>) {
    let has_length = request.body().size_hint().exact().is_some();
    // hyper would leave out the body, as these seldom have one.
    if !has_length && matches!(*request.method(), Method::GET | Method::HEAD) {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(TRANSFER_ENCODING, chunked);
    }
}

/// The form in which HTTP/2 wants it: the host is part of the target. `None` if the host is none.
pub(super) fn for_http2(
    mut request: Request<RequestBody>,
    server: &Server,
) -> Option<Request<RequestBody>> {
    let host = request.headers_mut().remove(HOST);
    let host = host.as_ref().unwrap_or(&server.authority);
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(server.scheme.clone());
    uri.authority = Some(Authority::try_from(host.as_bytes()).ok()?);
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    *request.version_mut() = Version::HTTP_2;
    Some(request)
}

/// Back from it, if it was not sent.
pub(super) fn from_http2(request: &mut Request<RequestBody>) {
    if request.version() != Version::HTTP_2 {
        return;
    }
    let uri = std::mem::take(request.uri_mut()).into_parts();
    let path = (uri.path_and_query).unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    let host = uri.authority.as_ref().map(Authority::as_str);
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        set_host(request, &host);
    }
    *request.version_mut() = Version::HTTP_11;
}
