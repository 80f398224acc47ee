//! Headers by whose names servers behind the gateway may be misled.
//!
//! CGI, WSGI, PHP and others make one variable of `X-Api-Key` and `X_Api_Key`, so a client could say with underscores what it may not
//! say with hyphens. Others take method and path from headers in place of those that were matched.

use http::header::{HeaderMap, HeaderName};

use crate::config::{OverrideHeaders, Underscores};

/// Headers that some frameworks believe in place of the method, path or host of the request.
pub(crate) const OVERRIDES: [&str; 8] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-override-url",
    "x-http-host-override",
    "x-host",
];

/// What becomes of such headers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeaderNames {
    pub(super) underscores: Underscores,
    pub(super) overrides: OverrideHeaders,
}

impl HeaderNames {
    /// Whether the request is refused for one of them.
    pub(super) fn are_refused(self, headers: &HeaderMap) -> bool {
        self.underscores == Underscores::Reject && headers.keys().any(has_underscore)
    }

    /// Removes those that are to be dropped.
    pub(super) fn drop_from(self, headers: &mut HeaderMap) {
        // Mostly there is none, and to look is cheaper than to collect.
        if !headers.keys().any(|name| self.is_dropped(name)) {
            return;
        }
        let dropped: Vec<HeaderName> = (headers.keys())
            .filter(|name| self.is_dropped(name))
            .cloned()
            .collect();
        for name in dropped {
            headers.remove(name);
        }
    }

    fn is_dropped(self, name: &HeaderName) -> bool {
        let drops_overrides = self.overrides == OverrideHeaders::Drop;
        self.underscores == Underscores::Drop && has_underscore(name)
            || drops_overrides && OVERRIDES.contains(&name.as_str())
    }
}

fn has_underscore(name: &HeaderName) -> bool {
    name.as_str().as_bytes().contains(&b'_')
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
        assert!(!default.are_refused(&headers(&["x_api_key"])));
        let strict = HeaderNames {
            underscores: Underscores::Reject,
            overrides: OverrideHeaders::Drop,
        };
        assert!(strict.are_refused(&headers(&["a", "x_api_key"])));
        assert!(!strict.are_refused(&headers(&["a", "x-api-key"])));
        let lenient = HeaderNames {
            underscores: Underscores::Pass,
            ..default
        };
        assert_eq!(left(lenient).len(), 5);
        let drops_overrides = HeaderNames {
            underscores: Underscores::Pass,
            overrides: OverrideHeaders::Drop,
        };
        let kept = ["x-api-key", "x_api_key", "x_api_key", "x_http-method"];
        assert_eq!(left(drops_overrides), kept);
    }
}
