//! The head of a request and of a response on their way through: what is meant for the next hop alone stays here, and the server is
//! told who asked whom for what.

use std::net::IpAddr;

use http::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, EXPECT, FORWARDED, HOST,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body::Body as _;
use tollgate_tower::answer::Dialect;

use super::seen::Seen;
use super::server::Server;
use super::told::{Told, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO};
use super::upload::Upload;

/// What is meant for the next hop alone, beside `Connection`, what that names, and how a body is framed. [`Seen`] and `plain` know them by sight.
pub(super) const HOP_BY_HOP: [HeaderName; 6] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    UPGRADE,
];
/// What other proxies say of a caller. From a stranger it is only a claim, and the server would take it for ours.
const CLAIMS: [HeaderName; 6] = [
    FORWARDED,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    HeaderName::from_static("x-forwarded-port"),
    HeaderName::from_static("x-forwarded-prefix"),
    HeaderName::from_static("x-real-ip"),
];

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");

/// Who asks, and how.
pub(super) struct Asker<'a> {
    /// The other end of the connection.
    pub(super) peer: Option<IpAddr>,
    /// Whether a peer is a proxy whose word counts.
    pub(super) trusts: &'a dyn Fn(IpAddr) -> bool,
    /// Whether it asked over TLS.
    pub(super) is_tls: bool,
    /// Whether it could have a WebSocket with the server.
    pub(super) may_upgrade: bool,
}

impl Asker<'_> {
    fn is_trusted(&self) -> bool {
        self.peer.is_some_and(|peer| (self.trusts)(peer))
    }
}

/// What there is to know of a request that can be sent.
pub(super) struct Forwarded {
    /// Whether it asks for a WebSocket.
    pub(super) is_websocket: bool,
    pub(super) has_host: bool,
    /// What its caller understands.
    pub(super) dialect: Dialect,
    /// What the server is to hear as well.
    pub(super) told: Told,
}

/// Makes the head of a request one that can be sent to a server in HTTP/1.1. No other upgrade than to a WebSocket is passed on, as what comes after would go by
/// whoever decides about requests.
pub(super) fn forward<B>(request: &mut Request<B>, asker: &Asker<'_>) -> Forwarded {
    let (seen, host, is_said) = look(request);
    let version = request.version();
    let dialect = match *request.method() {
        // Nothing says that it is another.
        ref method if *method != Method::HEAD && !seen.has(Seen::CONTENT_TYPE) => Dialect::Http,
        ref method => Dialect::of(method, request.headers()),
    };
    let is_websocket = asker.may_upgrade && seen.has(Seen::UPGRADE) && asks_for_websocket(request);
    let headers = request.headers_mut();
    let wants_trailers = seen.has(Seen::TE) && te_has_trailers(headers);
    remove_seen_hop_by_hop(headers, seen);
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
    let told = tell_of(headers, seen, asker, host.as_ref(), version);
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
    Forwarded {
        is_websocket,
        has_host,
        dialect,
        told,
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
    let path = (uri.path_and_query).unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    // Without a user and password, which are nobody else's business.
    let text = uri.authority.as_ref().map(Authority::as_str);
    let text = text.map(|text| text.rsplit_once('@').map_or(text, |(_, host)| host));
    let host = text.and_then(|text| HeaderValue::from_str(text).ok());
    (seen, host, false)
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

/// The parts of a list that can be read.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',').map(str::trim))
}

/// Removes what is meant for the next hop alone, and what `Connection` names.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    remove_seen_hop_by_hop(headers, Seen::in_all(headers));
}

fn remove_seen_hop_by_hop(headers: &mut HeaderMap, seen: Seen) {
    if seen.has(Seen::CONNECTION) {
        let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
            // The usual words, which go anyway or name no field.
            .filter(|word| !["keep-alive", "close"].contains(word))
            .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
            // Nobody may have us drop what tells where a message goes, or where it ends.
            .filter(|name| ![HOST, CONTENT_LENGTH, CONNECTION].contains(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    if seen.has(Seen::TRANSFER_ENCODING) && headers.remove(TRANSFER_ENCODING).is_some() {
        // Of the two, only one can be true, and it is not this one.
        headers.remove(CONTENT_LENGTH);
    }
    if seen.has(Seen::TE | Seen::UPGRADE | Seen::HOP) {
        for name in HOP_BY_HOP {
            headers.remove(name);
        }
    }
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

/// Says who asked: always for whom we ask, and what a stranger says of the rest is not passed on.
fn tell_of(
    headers: &mut HeaderMap,
    seen: Seen,
    asker: &Asker<'_>,
    host: Option<&HeaderValue>,
    version: Version,
) -> Told {
    let scheme = if asker.is_tls { "https" } else { "http" };
    let mut told = Told {
        peer: asker.peer,
        before_peer: Vec::new(),
        scheme: Some(scheme),
        host: host.cloned(),
        version,
    };
    if seen.has(Seen::FORWARDED_FOR) && asker.peer.is_some() {
        for line in headers.get_all(X_FORWARDED_FOR) {
            told.before_peer.extend_from_slice(line.as_bytes());
            told.before_peer.extend_from_slice(b", ");
        }
        headers.remove(X_FORWARDED_FOR);
    }
    // Mostly nobody says anything, and then it does not matter who is trusted.
    if seen.has(Seen::CLAIM | Seen::FORWARDED_HOST_OR_PROTO) {
        if asker.is_trusted() {
            let is_said = |name| headers.contains_key(name);
            told.scheme.take_if(|_| is_said(X_FORWARDED_PROTO));
            told.host.take_if(|_| is_said(X_FORWARDED_HOST));
        } else {
            for claim in CLAIMS {
                headers.remove(claim);
            }
        }
    }
    told
}

pub(super) fn set_host(request: &mut Request<Upload>, host: &HeaderValue) {
    request.headers_mut().insert(HOST, host.clone());
}

/// The form in which HTTP/1.1 wants it.
pub(super) fn for_http1(request: &mut Request<Upload>) {
    let has_length = request.body().size_hint().exact().is_some();
    // hyper would leave out the body, as these seldom have one.
    if !has_length && matches!(*request.method(), Method::GET | Method::HEAD) {
        let chunked = HeaderValue::from_static("chunked");
        request.headers_mut().insert(TRANSFER_ENCODING, chunked);
    }
}

/// The form in which HTTP/2 wants it: the host is part of the target. `None` if the host is none.
pub(super) fn for_http2(mut request: Request<Upload>, server: &Server) -> Option<Request<Upload>> {
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
pub(super) fn from_http2(request: &mut Request<Upload>) {
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
