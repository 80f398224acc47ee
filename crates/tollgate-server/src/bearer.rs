//! A token that opens a door, said as `Authorization: Bearer TOKEN`; and who may come in where there is none.

use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue};
use subtle::ConstantTimeEq as _;
use tollgate_tower::identity::api_key_sha256;

use tollgate_config::Secret;

/// A token. It is known by its hash, so that all are of one length, and compared in a time that says nothing about it.
#[derive(Clone)]
pub(crate) struct Bearer([u8; 32]);

impl Bearer {
    pub(crate) fn of(token: &Secret) -> Self {
        Self(api_key_sha256(token.expose().as_bytes()))
    }

    /// Whether it is said, and nothing else is.
    pub(crate) fn opens(&self, headers: &HeaderMap) -> bool {
        self.compare(headers) == Presented::Right
    }

    /// Which token a request presents. Two `Authorization` headers may mean either, so they present none.
    pub(crate) fn compare(&self, headers: &HeaderMap) -> Presented {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return Presented::None;
        };
        match line.as_bytes().split_at_checked("bearer ".len()) {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => {
                match bool::from(api_key_sha256(token).ct_eq(&self.0)) {
                    true => Presented::Right,
                    false => Presented::Wrong,
                }
            }
            _ => Presented::None,
        }
    }
}

/// The token of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presented {
    /// The configured one.
    Right,
    /// Another one.
    Wrong,
    /// None, or something other than a bearer token.
    None,
}

/// What somebody hears whom a page in a browser may have sent, behind the name of the setting.
pub(crate) const SENT_BY_A_PAGE: &str = "is not set, so this is asked for as localhost or by an address, and not from a page in a browser. Set it, and send it as Authorization: Bearer TOKEN";

/// Whether a page in somebody's browser may have sent this. Where there is no token, everybody on this machine is let in, and such a page is on it: it asks for
/// an address from another origin, and says so; or has the name that it was loaded from lead here (DNS rebinding), and asks for that name.
///
/// The host of a request in HTTP/2 is not looked at: browsers speak no HTTP/2 without TLS, and Envoy has the name of its cluster there.
pub(crate) fn may_be_sent_by_a_page(headers: &HeaderMap) -> bool {
    let is_of_this_machine = |host: &HeaderValue| {
        let host = Authority::try_from(host.as_bytes());
        host.is_ok_and(|host| {
            let name = host.host().trim_end_matches('.').to_ascii_lowercase();
            let address = name.trim_start_matches('[').trim_end_matches(']');
            name == "localhost" || name.ends_with(".localhost") || address.parse::<IpAddr>().is_ok()
        })
    };
    headers.contains_key(ORIGIN) || !headers.get_all(HOST).iter().all(is_of_this_machine)
}

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_its_origin_or_by_the_name_that_leads_here() {
        let of = |host: &str| HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        assert!(!may_be_sent_by_a_page(&HeaderMap::new()));
        for host in [
            "localhost",
            "LocalHost.:8082",
            "tollgate.localhost:8082",
            "127.0.0.1:8082",
            "[::1]:8082",
            "[::1]",
            "192.0.2.1",
        ] {
            assert!(!may_be_sent_by_a_page(&of(host)), "{host}");
        }
        for host in [
            "rebound.example",
            "rebound.example:8082",
            "localhost.example",
            "notlocalhost",
            "127.0.0.1.example:8082",
            "user@rebound.example",
            "",
        ] {
            assert!(may_be_sent_by_a_page(&of(host)), "{host}");
        }
        let mut twice = of("localhost");
        twice.append(HOST, "rebound.example".parse().unwrap());
        assert!(may_be_sent_by_a_page(&twice));
        let mut elsewhere = of("127.0.0.1:8081");
        elsewhere.insert(ORIGIN, "https://elsewhere.example".parse().unwrap());
        assert!(may_be_sent_by_a_page(&elsewhere));
    }

    #[test]
    fn the_token_and_nothing_else_opens() {
        let bearer = Bearer::of(&Secret::new("correct-horse-battery"));
        let of = |values: &[&str]| {
            let lines = values
                .iter()
                .map(|value| (AUTHORIZATION, value.parse().unwrap()));
            HeaderMap::from_iter(lines)
        };
        let right = "Bearer correct-horse-battery";
        assert!(bearer.opens(&of(&[right])));
        assert!(bearer.opens(&of(&["bearer correct-horse-battery"])));
        assert!(!bearer.opens(&HeaderMap::new()));
        for wrong in [
            "correct-horse-battery",
            "Bearer correct-horse-batter",
            "Bearer correct-horse-battery1",
            "Bearer  correct-horse-battery",
            "Basic correct-horse-battery",
            "Bearer ",
            "Bearer",
        ] {
            assert!(!bearer.opens(&of(&[wrong])), "{wrong}");
            let is_token = wrong.starts_with("Bearer ");
            let presents_one = bearer.compare(&of(&[wrong])) == Presented::Wrong;
            assert_eq!(presents_one, is_token, "{wrong}");
        }
        let mut twice = of(&[right]);
        twice.append(AUTHORIZATION, "Bearer wrong".parse().unwrap());
        assert_eq!(bearer.compare(&twice), Presented::None);
        assert_eq!(format!("{bearer:?}"), "[redacted]");
    }
}
