//! Headers whose names can mislead upstreams.
//!
//! CGI, WSGI, PHP and others make one variable of `X-Api-Key` and `X_Api_Key`, and some of them also of `X.Api.Key` or `X!Api!Key`. So a
//! client could send under such a name what it may not send with hyphens. Some frameworks take method and path from headers instead of
//! those that were matched.

use http::header::{HeaderMap, HeaderName};

use super::remove_all;

/// What happens to headers with underscores, or other characters than letters, digits and hyphens, in their names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Underscores {
    /// They are removed.
    #[default]
    Drop,
    /// They are forwarded.
    Pass,
    /// The request is rejected.
    Reject,
}

/// What happens to headers such as `X-HTTP-Method-Override`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverrideHeaders {
    /// They are forwarded.
    #[default]
    Pass,
    /// They are removed.
    Drop,
}

/// Headers that some frameworks use instead of the method, path or host of the request.
pub const OVERRIDES: [&str; 8] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-override-url",
    "x-http-host-override",
    "x-host",
];

/// What happens to headers whose names can mislead upstreams.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeaderNames {
    /// Those with underscores, or other characters than letters, digits and hyphens.
    pub underscores: Underscores,
    /// Those that override method, path or host.
    pub overrides: OverrideHeaders,
}

impl HeaderNames {
    /// Whether a request with these headers is rejected.
    #[must_use]
    pub fn reject(self, headers: &HeaderMap) -> bool {
        self.underscores == Underscores::Reject && !headers.keys().all(is_plain)
    }

    /// Removes those that are not forwarded.
    pub fn drop_from(self, headers: &mut HeaderMap) {
        let drops_underscores = self.underscores == Underscores::Drop;
        let drops_overrides = self.overrides == OverrideHeaders::Drop;
        remove_all(headers, |name| {
            drops_underscores && !is_plain(name)
                || drops_overrides && OVERRIDES.contains(&name.as_str())
        });
    }
}

fn is_plain(name: &HeaderName) -> bool {
    is_plain_name(name.as_str())
}

/// Whether a header's name has letters, digits and hyphens alone, so that no server takes it for another.
///
/// ```
/// use tollgate_http::headers::is_plain_name;
///
/// assert!(is_plain_name("X-Api-Key"));
/// assert!(!is_plain_name("X_Api_Key") && !is_plain_name("X.Api.Key"));
/// ```
#[must_use]
pub fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(names: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in names {
            headers.append(*name, HeaderValue::from_static("x"));
        }
        headers
    }

    fn left(names: HeaderNames) -> Vec<String> {
        let mut headers = headers(&[
            "x-api-key",
            "x_api_key",
            "x_api_key",
            "x.api.key",
            "x!api~key",
            "x-original-url",
            "x_http-method",
        ]);
        names.drop_from(&mut headers);
        headers.iter().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn names_are_dropped_as_configured() {
        let default = HeaderNames::default();
        assert_eq!(left(default), ["x-api-key", "x-original-url"]);
        assert!(!default.reject(&headers(&["x_api_key"])));
        let strict = HeaderNames {
            underscores: Underscores::Reject,
            overrides: OverrideHeaders::Drop,
        };
        assert!(strict.reject(&headers(&["a", "x_api_key"])));
        assert!(strict.reject(&headers(&["a", "x.api.key"])));
        assert!(!strict.reject(&headers(&["a", "x-api-key"])));
        let lenient = HeaderNames {
            underscores: Underscores::Pass,
            ..default
        };
        assert_eq!(left(lenient).len(), 7);
        let drops_overrides = HeaderNames {
            underscores: Underscores::Pass,
            overrides: OverrideHeaders::Drop,
        };
        let kept = [
            "x-api-key",
            "x_api_key",
            "x_api_key",
            "x.api.key",
            "x!api~key",
            "x_http-method",
        ];
        assert_eq!(left(drops_overrides), kept);
    }
}
