//! Whoever has the token may ask.

use std::hint::black_box;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::config::Secret;

/// The token that is asked for, if one is.
pub(super) struct Token(Option<Secret>);

impl Token {
    pub(super) fn new(token: Option<Secret>) -> Self {
        Self(token)
    }

    /// Whether one who says this may ask: `Authorization: Bearer TOKEN`, said once.
    pub(super) fn opens(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.0 else {
            return true;
        };
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (Some(line), None) = (lines.next(), lines.next()) else {
            return false;
        };
        let Some((scheme, said)) = line.as_bytes().split_at_checked("bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"bearer ")
            && is_same(said.trim_ascii(), token.expose().as_bytes())
    }
}

/// Takes as long whatever is different, so that nobody finds a token letter by letter.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differs = |differs, (a, b): (&u8, &u8)| black_box(differs | (a ^ b));
    one.len() == other.len() && one.iter().zip(other).fold(0, differs) == 0
}
