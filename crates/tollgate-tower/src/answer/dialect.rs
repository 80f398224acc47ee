//! What kind of answer a caller understands.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};

/// What a caller understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// HTTP with bodies.
    Http,
    /// HTTP without a body: it asked with `HEAD`.
    Head,
    /// gRPC of this kind: a status beside the fields, and always HTTP's 200.
    Grpc(&'static str),
}

impl Dialect {
    /// Who asks like this.
    ///
    /// ```
    /// use http::{HeaderMap, Method};
    /// use tollgate_tower::answer::Dialect;
    ///
    /// let mut headers = HeaderMap::new();
    /// assert_eq!(Dialect::of(&Method::GET, &headers), Dialect::Http);
    /// assert_eq!(Dialect::of(&Method::HEAD, &headers), Dialect::Head);
    /// headers.insert("content-type", "application/grpc+proto".parse()?);
    /// assert_eq!(Dialect::of(&Method::POST, &headers), Dialect::Grpc("application/grpc"));
    /// # Ok::<(), http::header::InvalidHeaderValue>(())
    /// ```
    #[must_use]
    pub fn of(method: &Method, headers: &HeaderMap) -> Self {
        if *method == Method::HEAD {
            return Self::Head;
        }
        let kind = headers.get(CONTENT_TYPE).map(http::HeaderValue::as_bytes);
        kind.and_then(grpc_kind).map_or(Self::Http, Self::Grpc)
    }
}

/// The caller's kind of gRPC in our words, as what a caller wrote is not sent back.
fn grpc_kind(content_type: &[u8]) -> Option<&'static str> {
    let kinds = [
        "application/grpc-web-text",
        "application/grpc-web",
        "application/grpc",
    ];
    kinds.into_iter().find(|kind| {
        let Some((start, rest)) = content_type.split_at_checked(kind.len()) else {
            return false;
        };
        start.eq_ignore_ascii_case(kind.as_bytes())
            && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
    })
}
