//! The one filter for headers and trailers, in both directions.
//!
//! Headers for one hop are not forwarded, a length is stated once, and no trailer has a name that its reader may take for a
//! header that we decide by or write ourselves.

use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};

use super::{OVERRIDES, ReservedNames, is_plain_name, remove_all};

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Other headers that have no place in a trailer (RFC 9110, 6.5.1): they route or modify a message, authenticate its sender, or
/// control how it is cached or read.
const HEAD_ONLY: &str = "age authorization cache-control content-encoding content-range cookie date expires location \
    max-forwards pragma range set-cookie traceparent tracestate trailer vary via www-authenticate x-request-id";

/// Which headers of a head are not forwarded as they are: found in one walk, because looking each up would hash each name.
#[derive(Clone, Copy)]
pub(crate) struct SpecialHeaders(u16);

impl SpecialHeaders {
    pub(crate) const CONNECTION: u16 = 1;
    pub(crate) const TRANSFER_ENCODING: u16 = 1 << 1;
    pub(crate) const TE: u16 = 1 << 2;
    pub(crate) const UPGRADE: u16 = 1 << 3;
    /// Headers for one hop, other than those above.
    const HOP: u16 = 1 << 4;
    pub(crate) const EXPECT: u16 = 1 << 5;
    /// What other proxies claim about the client, except for `X-Forwarded-For`. Clients may claim anything.
    pub(crate) const CLAIM: u16 = 1 << 6;
    pub(crate) const FORWARDED_FOR: u16 = 1 << 7;
    pub(crate) const HOST: u16 = 1 << 8;
    const CONTENT_TYPE: u16 = 1 << 9;
    const CONTENT_LENGTH: u16 = 1 << 10;

    /// Finds them, and passes each value of `Host` to `host`.
    pub(crate) fn find<'a>(headers: &'a HeaderMap, mut host: impl FnMut(&'a HeaderValue)) -> Self {
        let mut all = 0;
        for (name, value) in headers {
            let kind = Self::kind(name);
            all |= kind;
            if kind == Self::HOST {
                host(value);
            }
        }
        Self(all)
    }

    fn kind(name: &HeaderName) -> u16 {
        match name.as_str() {
            "connection" => Self::CONNECTION,
            "transfer-encoding" => Self::TRANSFER_ENCODING,
            "te" => Self::TE,
            "upgrade" => Self::UPGRADE,
            "keep-alive" | "proxy-connection" | "proxy-authenticate" | "proxy-authorization" => {
                Self::HOP
            }
            "expect" => Self::EXPECT,
            "forwarded" | "x-forwarded-port" | "x-forwarded-prefix" | "x-real-ip"
            | "x-forwarded-host" | "x-forwarded-proto" => Self::CLAIM,
            "x-forwarded-for" => Self::FORWARDED_FOR,
            "host" => Self::HOST,
            "content-type" => Self::CONTENT_TYPE,
            "content-length" => Self::CONTENT_LENGTH,
            _ => 0,
        }
    }

    pub(crate) fn has(self, one_of: u16) -> bool {
        self.0 & one_of != 0
    }

    /// Removes headers of these kinds.
    pub(crate) fn remove(headers: &mut HeaderMap, kinds: u16) {
        remove_all(headers, |name| Self::kind(name) & kinds != 0);
    }
}

/// Whether `Connection` may name a header: none that routes or frames a message, identifies its sender, or is ours.
fn may_be_named(name: &HeaderName) -> bool {
    const KEPT: u16 = SpecialHeaders::HOST
        | SpecialHeaders::CONTENT_LENGTH
        | SpecialHeaders::TRANSFER_ENCODING
        | SpecialHeaders::CONNECTION
        | SpecialHeaders::CLAIM
        | SpecialHeaders::FORWARDED_FOR;
    let others = [
        "cookie",
        "authorization",
        "traceparent",
        "tracestate",
        "x-request-id",
    ];
    SpecialHeaders::kind(name) & KEPT == 0 && !others.contains(&name.as_str())
}

/// The elements of a list that can be read.
pub(crate) fn tokens<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = &'a str> {
    let lines = headers.get_all(name).into_iter();
    let lines = lines.filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',').map(str::trim))
}

/// Removes the headers that `Connection` names, and their names from it, before the limiter sees a request and before the gateway
/// adds its own headers: limiter and upstream see the same, and no client can remove what the gateway adds.
pub fn drop_named_by_connection(headers: &mut HeaderMap) {
    let Some(line) = headers.get(CONNECTION) else {
        return;
    };
    let is_usual = |word: &&[u8]| line.as_bytes().eq_ignore_ascii_case(word);
    let usual: [&[u8]; 3] = [b"keep-alive", b"close", b"upgrade"];
    if usual.iter().any(is_usual) && headers.get_all(CONNECTION).iter().nth(1).is_none() {
        return;
    }
    let upgrades = tokens(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case("upgrade"));
    let upgrade = headers.get(UPGRADE).filter(|_| upgrades).cloned();
    remove_named_by_connection(headers);
    headers.remove(CONNECTION);
    if upgrades {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
    // Whether the upgrade is allowed is decided later.
    if let Some(upgrade) = upgrade {
        headers.insert(UPGRADE, upgrade);
    }
}

fn remove_named_by_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
        // The usual words, which are removed anyway or name no header.
        .filter(|word| !["keep-alive", "close"].contains(word))
        .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
        .filter(may_be_named)
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// [Removes headers for one hop](remove_hop_by_hop) from a response.
#[must_use]
pub(crate) fn filter_response(headers: &mut HeaderMap) -> bool {
    let special = SpecialHeaders::find(headers, |_| {});
    remove_hop_by_hop(headers, special)
}

/// Removes headers for one hop, and those that `Connection` names. Returns `false` if there are several lengths.
#[must_use]
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap, special: SpecialHeaders) -> bool {
    const HOP_BY_HOP: u16 = SpecialHeaders::TE | SpecialHeaders::UPGRADE | SpecialHeaders::HOP;
    if special.has(SpecialHeaders::CONNECTION) {
        remove_named_by_connection(headers);
        headers.remove(CONNECTION);
    }
    if special.has(HOP_BY_HOP) {
        SpecialHeaders::remove(headers, HOP_BY_HOP);
    }
    if special.has(SpecialHeaders::TRANSFER_ENCODING) {
        headers.remove(TRANSFER_ENCODING);
        // The coding decides where the body ends.
        headers.remove(CONTENT_LENGTH);
        return true;
    }
    !special.has(SpecialHeaders::CONTENT_LENGTH) || state_length_once(headers)
}

/// Makes one line of several that state the same length, which HTTP/2 permits. Returns `false` if they differ.
fn state_length_once(headers: &mut HeaderMap) -> bool {
    let is_number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let mut lines = headers.get_all(CONTENT_LENGTH).iter();
    if let (Some(only), None) = (lines.next(), lines.next())
        && is_number(only.as_bytes())
    {
        return true;
    }
    let mut lengths = tokens(headers, &CONTENT_LENGTH);
    let first = lengths.next().filter(|first| is_number(first.as_bytes()));
    let first = first.filter(|first| lengths.all(|length| length == *first));
    let Some(Ok(length)) = first.map(HeaderValue::from_str) else {
        return false;
    };
    drop(lengths);
    headers.insert(CONTENT_LENGTH, length);
    true
}

/// Leaves in the trailers of a request what a server may safely merge with its headers.
pub(crate) fn filter_request_trailers(trailers: &mut HeaderMap, reserved: &ReservedNames) {
    remove_all(trailers, |name| {
        let is_override = OVERRIDES.contains(&name.as_str());
        belongs_in_head(name) || is_override || !is_plain_name(name.as_str()) || reserved(name)
    });
}

/// Leaves in the trailers of a response what is no header.
pub(crate) fn filter_response_trailers(trailers: &mut HeaderMap) {
    remove_all(trailers, belongs_in_head);
}

fn belongs_in_head(name: &HeaderName) -> bool {
    SpecialHeaders::kind(name) != 0 || HEAD_ONLY.split(' ').any(|other| other == name.as_str())
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
    fn named_headers_are_gone_before_the_limiter_sees_a_request() {
        let mut head = headers(&[
            ("connection", "Upgrade, X-Api-Key"),
            ("connection", "x-request-id, x-forwarded-for"),
            ("upgrade", "websocket"),
            ("x-api-key", "a"),
            ("x-request-id", "7"),
            ("x-forwarded-for", "192.0.2.1"),
        ]);
        drop_named_by_connection(&mut head);
        let lines = head
            .iter()
            .map(|(name, value)| format!("{name}: {value:?}"));
        let mut left: Vec<String> = lines.collect();
        left.sort();
        assert_eq!(
            left,
            [
                "connection: \"upgrade\"",
                "upgrade: \"websocket\"",
                "x-forwarded-for: \"192.0.2.1\"",
                "x-request-id: \"7\""
            ]
        );
    }

    #[test]
    fn connection_removes_what_it_names_except_ours_and_framing() {
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
        assert!(filter_response(&mut head));
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
    fn length_beside_a_transfer_coding_is_removed() {
        let mut head = headers(&[
            ("connection", "transfer-encoding"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
        ]);
        assert!(filter_response(&mut head));
        assert!(head.is_empty());
    }

    #[test]
    fn one_length_is_stated_or_the_message_is_rejected() {
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
            let is_one = filter_response(&mut head);
            assert_eq!(is_one, expected.is_some(), "{lines:?}");
            if let Some(expected) = expected {
                let all: Vec<_> = head.get_all(CONTENT_LENGTH).iter().collect();
                assert_eq!(all, [expected]);
            }
        }
    }

    #[test]
    fn trailers_have_no_name_that_belongs_in_a_head() {
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
            ("x.api.key", "a"),
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
