//! The heads of requests and responses on their way through: headers for one hop are removed, and forwarding headers are set.

use std::net::IpAddr;

use http::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, HOST, InvalidHeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;
use hyper::upgrade::OnUpgrade;

use super::upstream::Server;
use super::{ClientInfo, ProxySettings};
use crate::body::LimitedBody;
use crate::headers::{
    SpecialHeaders, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, remove_hop_by_hop, tokens,
};

const ROOT: PathAndQuery = PathAndQuery::from_static("/");

/// What was found in the head of a request.
pub(super) struct PreparedHead {
    /// The client's side of the connection, if it asks for a WebSocket.
    pub(super) upgrade: Option<OnUpgrade>,
    pub(super) has_host: bool,
}

/// Prepares the head of a request for HTTP/1.1. Only upgrades to WebSocket are forwarded: what follows others passes the limiter
/// unseen.
pub(super) fn prepare<B>(
    request: &mut Request<B>,
    client: &ClientInfo<'_>,
    settings: &ProxySettings,
    may_upgrade: bool,
) -> PreparedHead {
    let (special, host, is_stated) = host_and_special(request);
    let version = request.version();
    let mut upgrade = None;
    if may_upgrade && special.has(SpecialHeaders::UPGRADE) && asks_for_websocket(request) {
        upgrade = request.extensions_mut().remove();
    }
    request.extensions_mut().clear();
    let headers = request.headers_mut();
    let wants_trailers = special.has(SpecialHeaders::TE)
        && tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case("trailers"));
    if !remove_hop_by_hop(headers, special) {
        // hyper would have rejected the request; the body is framed again, as it arrived.
        headers.remove(CONTENT_LENGTH);
    }
    // The server of the client's connection sends `100 Continue` itself, when the body is read.
    if special.has(SpecialHeaders::EXPECT) {
        headers.remove(EXPECT);
    }
    if upgrade.is_some() {
        add_upgrade(headers);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if version == Version::HTTP_2 {
        join_cookies(headers);
    }
    set_forwarding_headers(headers, special, client, host.as_ref(), settings.is_tls);
    if settings.via {
        let via = match version {
            Version::HTTP_10 => "1.0 tollgate",
            Version::HTTP_2 => "2.0 tollgate",
            _ => "1.1 tollgate",
        };
        headers.append(VIA, HeaderValue::from_static(via));
    }
    let has_host = host.is_some();
    match host {
        Some(_) if is_stated => {}
        // One of them, whatever came: the rules have seen no other.
        Some(host) => _ = headers.insert(HOST, host),
        None if special.has(SpecialHeaders::HOST) => _ = headers.remove(HOST),
        None => {}
    }
    *request.version_mut() = Version::HTTP_11;
    PreparedHead { upgrade, has_host }
}

/// The special headers, the requested host as the rules see it (that of the target comes first, and the target loses it), and
/// whether there is one `Host` header with just that value.
fn host_and_special<B>(request: &mut Request<B>) -> (SpecialHeaders, Option<HeaderValue>, bool) {
    let mut hosts = 0;
    let mut first = None;
    let special = SpecialHeaders::find(request.headers(), |host| {
        hosts += 1;
        first = first.or(Some(host));
    });
    if request.uri().authority().is_none() {
        return (special, first.cloned(), hosts == 1);
    }
    let uri = std::mem::take(request.uri_mut()).into_parts();
    let path = uri.path_and_query.map_or(ROOT, origin_form);
    *request.uri_mut() = Uri::from(path);
    let authority = uri.authority.as_ref().map(Authority::as_str);
    // Without user and password, which are not for the server.
    let host = authority.map(|text| text.rsplit_once('@').map_or(text, |(_, host)| host));
    let host = host.and_then(|host| HeaderValue::from_str(host).ok());
    (special, host, false)
}

/// The paths of `http://a`, `http://a?b` and `http://a#c` begin with a slash, too.
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
    let upgrade = headers.get(UPGRADE).map(HeaderValue::as_bytes);
    request.version() == Version::HTTP_11
        && *request.method() == Method::GET
        && upgrade.is_some_and(|upgrade| upgrade.eq_ignore_ascii_case(b"websocket"))
        && tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case("upgrade"))
}

/// Whether a client asks for an event stream, as browsers' `EventSource` does.
pub(super) fn accepts_event_stream(headers: &HeaderMap) -> bool {
    tokens(headers, &ACCEPT).any(is_type_of_event_stream)
}

pub(super) fn is_event_stream(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE);
    value.is_some_and(|value| value.to_str().is_ok_and(is_type_of_event_stream))
}

fn is_type_of_event_stream(value: &str) -> bool {
    let media_type = value.split(';').next().unwrap_or_default().trim();
    media_type.eq_ignore_ascii_case("text/event-stream")
}

/// Asks for a WebSocket, or agrees to one.
pub(super) fn add_upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// HTTP/2 may send cookies one by one, HTTP/1.1 may not.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_some() {
        let cookies = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
        let cookies: Vec<&[u8]> = cookies.collect();
        if let Ok(joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..])) {
            headers.insert(COOKIE, joined);
        }
    }
}

/// Sets the headers with the client, the requested host and the scheme. Claims of a peer that is not trusted are removed.
fn set_forwarding_headers(
    headers: &mut HeaderMap,
    special: SpecialHeaders,
    client: &ClientInfo<'_>,
    host: Option<&HeaderValue>,
    is_tls: bool,
) {
    let chain = match special.has(SpecialHeaders::FORWARDED_FOR) {
        true => chain_of(headers, client.peer),
        false => HeaderValue::try_from(client.peer.to_canonical().to_string()),
    };
    if let Ok(chain) = chain {
        headers.insert(X_FORWARDED_FOR, chain);
    }
    // Usually there are no claims, and trust need not be looked up.
    let has_claims = special.has(SpecialHeaders::CLAIM);
    let is_trusted = has_claims && (client.trusts)(client.peer);
    if has_claims && !is_trusted {
        SpecialHeaders::remove(headers, SpecialHeaders::CLAIM);
    }
    let is_claimed = |headers: &HeaderMap, name| is_trusted && headers.contains_key(name);
    if !is_claimed(headers, X_FORWARDED_PROTO) {
        let scheme = if is_tls { "https" } else { "http" };
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(scheme));
    }
    if let Some(host) = host
        && !is_claimed(headers, X_FORWARDED_HOST)
    {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
}

/// The addresses in the request's `X-Forwarded-For`, and the peer.
fn chain_of(headers: &HeaderMap, peer: IpAddr) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut chain = Vec::new();
    for line in headers.get_all(X_FORWARDED_FOR) {
        chain.extend_from_slice(line.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(peer.to_canonical().to_string().as_bytes());
    HeaderValue::try_from(chain)
}

/// Completes a head for HTTP/1.1.
pub(super) fn for_http1(request: &mut Request<LimitedBody>) {
    let has_length = request.body().size_hint().exact().is_some();
    // hyper would leave out the body, because these seldom have one.
    if !has_length && matches!(*request.method(), Method::GET | Method::HEAD) {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(TRANSFER_ENCODING, chunked);
    }
}

/// Makes the host a part of the target, for HTTP/2. `None` if it is malformed.
pub(super) fn for_http2(
    mut request: Request<LimitedBody>,
    server: &Server,
) -> Option<Request<LimitedBody>> {
    let host = request.headers_mut().remove(HOST);
    let host = host.as_ref().unwrap_or(&server.authority);
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(server.scheme.clone());
    uri.authority = Some(Authority::try_from(host.as_bytes()).ok()?);
    *request.uri_mut() = Uri::from_parts(uri).ok()?;
    *request.version_mut() = Version::HTTP_2;
    Some(request)
}

/// Makes the host a header again.
pub(super) fn from_http2(request: &mut Request<LimitedBody>) {
    if request.version() != Version::HTTP_2 {
        return;
    }
    let uri = std::mem::take(request.uri_mut()).into_parts();
    *request.uri_mut() = Uri::from(uri.path_and_query.unwrap_or(ROOT));
    let host = uri.authority.as_ref().map(Authority::as_str);
    if let Some(host) = host.and_then(|host| HeaderValue::from_str(host).ok()) {
        request.headers_mut().insert(HOST, host);
    }
    *request.version_mut() = Version::HTTP_11;
}
