//! A token that opens a door, said as `Authorization: Bearer TOKEN`; and who may come in where there is none.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{AUTHORIZATION, HOST};
use http::uri::Authority;
use subtle::ConstantTimeEq as _;
use tollgate_tower::identity::api_key_sha256;

use crate::config::Secret;

/// A token. It is known by its hash, so that all are of one length, and compared in a time that says nothing about it.
#[derive(Clone)]
pub(crate) struct Bearer([u8; 32]);

impl Bearer {
    pub(crate) fn of(token: &Secret) -> Self {
        Self(api_key_sha256(token.expose().as_bytes()))
    }

    /// Whether it is said, and nothing else is.
    pub(crate) fn opens(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return false;
        };
        let said = line.as_bytes().split_at_checked("bearer ".len());
        said.is_some_and(|(scheme, said)| {
            scheme.eq_ignore_ascii_case(b"bearer ")
                && bool::from(api_key_sha256(said).ct_eq(&self.0))
        })
    }
}

/// Whether somebody asks for this machine as those do who are on it: by an address, or as `localhost`. Where there is no token, everybody on it is
/// let in; but a page in a browser is there as well if the name that it was loaded from leads here (DNS rebinding), and then asks for that name.
pub(crate) fn is_asked_nearby(headers: &HeaderMap) -> bool {
    headers.get_all(HOST).iter().all(|host| {
        let host = Authority::try_from(host.as_bytes());
        host.is_ok_and(|host| {
            let name = host.host();
            let address = name.trim_start_matches('[').trim_end_matches(']');
            name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
        })
    })
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
    fn a_name_that_leads_here_is_not_nearby() {
        let of = |host: &str| HeaderMap::from_iter([(HOST, host.parse().unwrap())]);
        assert!(is_asked_nearby(&HeaderMap::new()));
        for host in [
            "localhost",
            "LocalHost:8082",
            "127.0.0.1:8082",
            "[::1]:8082",
            "[::1]",
            "192.0.2.1",
        ] {
            assert!(is_asked_nearby(&of(host)), "{host}");
        }
        for host in [
            "rebound.example",
            "rebound.example:8082",
            "localhost.example",
            "127.0.0.1.example:8082",
            "user@rebound.example",
            "",
        ] {
            assert!(!is_asked_nearby(&of(host)), "{host}");
        }
        let mut twice = of("localhost");
        twice.append(HOST, "rebound.example".parse().unwrap());
        assert!(!is_asked_nearby(&twice));
    }

    #[test]
    fn the_token_and_nothing_else_opens() {
        let bearer = Bearer::of(&Secret::new("correct-horse-battery".to_owned(), true));
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
        }
        let mut twice = of(&[right]);
        twice.append(AUTHORIZATION, "Bearer wrong".parse().unwrap());
        assert!(!bearer.opens(&twice), "who says two may mean either");
        assert_eq!(format!("{bearer:?}"), "[redacted]");
    }
}
