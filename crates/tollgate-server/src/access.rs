//! Access to the decision service and the admin interface: with a bearer token, or, where none is configured, for all but web pages.

use std::fmt;
use std::net::IpAddr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, StatusCode};
use subtle::ConstantTimeEq as _;
use tollgate_config::Secret;
use tollgate_tower::identity::api_key_sha256;

use crate::problem::Problem;

pub(crate) struct Access {
    /// The name of the setting, for messages.
    setting: &'static str,
    /// The hash of the token, so that comparing takes the same time for all tokens.
    token: Option<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessError {
    /// It has no token, or something other than a bearer token.
    NoToken,
    WrongToken,
    /// No token is configured, and a web page may have sent it.
    WebPage,
}

impl Access {
    pub(crate) fn new(setting: &'static str, token: Option<&Secret>) -> Self {
        let token = token.map(|token| api_key_sha256(token.expose().as_bytes()));
        Self { setting, token }
    }

    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), AccessError> {
        let Some(token) = &self.token else {
            return match may_be_from_web_page(headers) {
                true => Err(AccessError::WebPage),
                false => Ok(()),
            };
        };
        let presented = presented_token(headers).ok_or(AccessError::NoToken)?;
        match bool::from(api_key_sha256(presented).ct_eq(token)) {
            true => Ok(()),
            false => Err(AccessError::WrongToken),
        }
    }

    /// The response to a request without access.
    pub(crate) fn problem(&self, error: AccessError) -> Problem {
        let setting = self.setting;
        match error {
            AccessError::NoToken | AccessError::WrongToken => Problem::new(
                StatusCode::UNAUTHORIZED,
                format!("send the token of {setting} as Authorization: Bearer TOKEN"),
            ),
            AccessError::WebPage => Problem::new(
                StatusCode::FORBIDDEN,
                format!(
                    "{setting} is not set, so requests must be for localhost or an address, and not from a page in a browser. Set it, and send it as Authorization: Bearer TOKEN"
                ),
            ),
        }
    }
}

/// The bearer token of a request. Several `Authorization` headers are ambiguous and present none.
fn presented_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return None;
    };
    let (scheme, token) = value.as_bytes().split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// Whether a page in a browser may have sent a request. Without a token, all requests from this machine have access, and such pages are on it: a page
/// sends requests to an address from another origin, which the browser marks; or has its own name resolve to this machine (DNS rebinding),
/// and sends requests to that name.
///
/// The `:authority` of HTTP/2 is not checked: browsers use HTTP/2 only with TLS, and Envoy sends the name of its cluster there.
fn may_be_from_web_page(headers: &HeaderMap) -> bool {
    let is_local = |host: &HeaderValue| {
        let host = Authority::try_from(host.as_bytes());
        host.is_ok_and(|host| {
            let name = host.host().trim_end_matches('.').to_ascii_lowercase();
            let address = name.trim_start_matches('[').trim_end_matches(']');
            name == "localhost" || name.ends_with(".localhost") || address.parse::<IpAddr>().is_ok()
        })
    };
    headers.contains_key(ORIGIN) || !headers.get_all(HOST).iter().all(is_local)
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_web_page_is_known_by_its_origin_or_its_host() {
        let of = |host: &str| HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        assert!(!may_be_from_web_page(&HeaderMap::new()));
        for host in [
            "localhost",
            "LocalHost.:8082",
            "tollgate.localhost:8082",
            "127.0.0.1:8082",
            "[::1]:8082",
            "[::1]",
            "192.0.2.1",
        ] {
            assert!(!may_be_from_web_page(&of(host)), "{host}");
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
            assert!(may_be_from_web_page(&of(host)), "{host}");
        }
        let mut twice = of("localhost");
        twice.append(HOST, "rebound.example".parse().unwrap());
        assert!(may_be_from_web_page(&twice));
        let mut elsewhere = of("127.0.0.1:8081");
        elsewhere.insert(ORIGIN, "https://elsewhere.example".parse().unwrap());
        assert!(may_be_from_web_page(&elsewhere));
    }

    #[test]
    fn only_the_token_gives_access() {
        let access = Access::new("token", Some(&Secret::new("correct-horse-battery")));
        let check = |values: &[&str]| {
            let values = values
                .iter()
                .map(|value| (AUTHORIZATION, value.parse().unwrap()));
            access.check(&HeaderMap::from_iter(values))
        };
        let right = "Bearer correct-horse-battery";
        assert_eq!(check(&[right]), Ok(()));
        assert_eq!(check(&["bearer correct-horse-battery"]), Ok(()));
        assert_eq!(check(&[]), Err(AccessError::NoToken));
        for wrong in [
            "correct-horse-battery",
            "Bearer correct-horse-batter",
            "Bearer correct-horse-battery1",
            "Bearer  correct-horse-battery",
            "Basic correct-horse-battery",
            "Bearer ",
            "Bearer",
        ] {
            let expected = match wrong.starts_with("Bearer ") {
                true => AccessError::WrongToken,
                false => AccessError::NoToken,
            };
            assert_eq!(check(&[wrong]), Err(expected), "{wrong}");
        }
        let mut twice = HeaderMap::from_iter([(AUTHORIZATION, right.parse().unwrap())]);
        twice.append(AUTHORIZATION, "Bearer wrong".parse().unwrap());
        assert_eq!(access.check(&twice), Err(AccessError::NoToken));
        let debug = format!("{access:?}");
        assert!(!debug.contains("token: "), "{debug}");
    }
}
