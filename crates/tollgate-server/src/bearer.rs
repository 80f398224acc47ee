//! A token that opens a door, said as `Authorization: Bearer TOKEN`.

use http::HeaderMap;
use http::header::AUTHORIZATION;
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

impl std::fmt::Debug for Bearer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
