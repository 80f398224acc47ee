//! Where it is said who calls and by which plan: one source each, as written in the configuration.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use http::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue};

use super::explanation::Outcome;

/// A header with one of these words in its name carries a secret.
const SECRET_WORDS: [&str; 10] = [
    "key",
    "apikey",
    "token",
    "secret",
    "authorization",
    "password",
    "credential",
    "credentials",
    "jwt",
    "cookie",
];

/// Where a client may be found in a request.
///
/// | written | means |
/// |---|---|
/// | `api_key:X-API-Key` | The header holds a secret. Who has it is the client that it belongs to; a secret that nobody knows counts as none. In `Authorization`, the scheme before it is not part of it. |
/// | `bearer` | The same for `Authorization: Bearer …`, and for no other scheme. |
/// | `header:X-User-Id` | The header holds an id that somebody in front of us vouches for. Where proxies are trusted, it is believed from them alone. |
/// | `header:X-API-Key` | The same as `api_key:X-API-Key`, as the name says that it is a secret: a word of it is key, apikey, token, secret, password, credential(s), authorization, jwt or cookie. |
/// | `ip` | The caller's address. |
///
/// ```
/// use tollgate_tower::identity::ClientSource;
///
/// let source: ClientSource = "header:X-API-Key".parse()?;
/// assert!(source.is_secret());
/// assert_eq!(source.to_string(), "api_key:x-api-key");
/// # Ok::<(), tollgate_tower::identity::SourceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientSource(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    ApiKey { name: HeaderName, scheme: Scheme },
    Header(HeaderName),
    Ip,
}

/// What stands before a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Nothing: all of the value is the secret.
    None,
    /// Any word, or none.
    Any,
    /// `Bearer`.
    Bearer,
}

impl ClientSource {
    /// The caller's address.
    #[must_use]
    pub fn ip() -> Self {
        Self(Kind::Ip)
    }

    /// `Authorization: Bearer …`, the secret of a known client.
    #[must_use]
    pub fn bearer() -> Self {
        Self(Kind::ApiKey {
            name: AUTHORIZATION,
            scheme: Scheme::Bearer,
        })
    }

    /// A header that holds the secret of a known client.
    #[must_use]
    pub fn api_key(name: HeaderName) -> Self {
        let scheme = match words(&name).any(|word| word == "authorization") {
            true => Scheme::Any,
            false => Scheme::None,
        };
        Self(Kind::ApiKey { name, scheme })
    }

    /// A header that holds an id; or a secret, if its name says so.
    ///
    /// # Errors
    /// When it is called `ip`: its clients would have the names of addresses.
    pub fn header(name: HeaderName) -> Result<Self, SourceError> {
        if is_secret(&name) {
            return Ok(Self::api_key(name));
        }
        match name.as_str() {
            "ip" => Err(SourceError::NamedIp),
            _ => Ok(Self(Kind::Header(name))),
        }
    }

    /// Whether it holds a secret, so that only who knows it is the client.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        matches!(self.0, Kind::ApiKey { .. })
    }

    /// Whether it holds a name that the sender chose: good only if somebody trusted sent it, or had it checked.
    #[must_use]
    pub fn is_claimed(&self) -> bool {
        matches!(self.0, Kind::Header(_))
    }

    /// Whether it is the caller's address, which every caller has.
    #[must_use]
    pub fn is_ip(&self) -> bool {
        self.0 == Kind::Ip
    }

    /// The header it looks at.
    #[must_use]
    pub fn header_name(&self) -> Option<&HeaderName> {
        match &self.0 {
            Kind::ApiKey { name, .. } | Kind::Header(name) => Some(name),
            Kind::Ip => None,
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.0
    }
}

impl fmt::Display for ClientSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::ApiKey {
                scheme: Scheme::Bearer,
                ..
            } => f.pad("bearer"),
            Kind::ApiKey { name, .. } => write!(f, "api_key:{name}"),
            Kind::Header(name) => write!(f, "header:{name}"),
            Kind::Ip => f.pad("ip"),
        }
    }
}

impl FromStr for ClientSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        match text.split_once(':') {
            Some(("api_key", name)) => Ok(Self::api_key(header_name(name)?)),
            Some(("header", name)) => Self::header(header_name(name)?),
            None if text == "bearer" => Ok(Self::bearer()),
            None if text == "ip" => Ok(Self::ip()),
            _ => Err(SourceError::UnknownClientSource(shown(text))),
        }
    }
}

/// Where a plan may be found in a request: `header:X-Plan`. Believed from trusted proxies alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanSource(HeaderName);

impl PlanSource {
    /// A header that holds a plan's name.
    ///
    /// # Errors
    /// When the header's name says that it carries a secret, as plans are shown.
    pub fn header(name: HeaderName) -> Result<Self, SourceError> {
        match is_secret(&name) {
            true => Err(SourceError::SecretPlan(name)),
            false => Ok(Self(name)),
        }
    }

    /// The header it looks at.
    #[must_use]
    pub fn header_name(&self) -> &HeaderName {
        &self.0
    }
}

impl fmt::Display for PlanSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "header:{}", self.0)
    }
}

impl FromStr for PlanSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        match text.split_once(':') {
            Some(("header", name)) => Self::header(header_name(name)?),
            _ => Err(SourceError::UnknownPlanSource(shown(text))),
        }
    }
}

fn header_name(text: &str) -> Result<HeaderName, SourceError> {
    text.parse()
        .map_err(|_| SourceError::HeaderName(shown(text)))
}

/// The words of a header's name, which is in lower case.
fn words(name: &HeaderName) -> impl Iterator<Item = &str> {
    name.as_str().split(['-', '_', '.'])
}

fn is_secret(name: &HeaderName) -> bool {
    words(name).any(|word| SECRET_WORDS.contains(&word))
}

/// A source that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceError {
    /// Not a source of clients.
    UnknownClientSource(String),
    /// Not a source of plans.
    UnknownPlanSource(String),
    /// Not a header's name.
    HeaderName(String),
    /// A header named `ip` would name its clients like addresses.
    NamedIp,
    /// A plan is shown, and this header carries a secret.
    SecretPlan(HeaderName),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownClientSource(text) => write!(
                f,
                "{text:?} does not say where a client is found; use api_key:NAME or header:NAME with a header's name, bearer, or ip"
            ),
            Self::UnknownPlanSource(text) => {
                write!(f, "{text:?} does not say where a plan is found; use header:NAME with a header's name")
            }
            Self::HeaderName(text) => write!(f, "{text:?} cannot be a header's name; write it like X-User-Id"),
            Self::NamedIp => f.write_str(
                "a header named `ip` cannot name clients, as their names would be those of addresses; use `ip` for the caller's address, or another header",
            ),
            Self::SecretPlan(name) => write!(
                f,
                "the header {name} says by its name that it carries a secret, and plans are shown; use a header like X-Plan"
            ),
        }
    }
}

impl std::error::Error for SourceError {}

/// Maximum length of an id in a header.
pub(crate) const LONGEST_ID: usize = 256;

/// The longest API key that is hashed, so that nobody keeps us busy with hashing. As long as the longest header that nginx
/// accepts by default.
pub(crate) const LONGEST_KEY: usize = 8 * 1024;

/// The longest plan's name.
pub(crate) const LONGEST_PLAN: usize = 64;

/// The value of a header, without spaces around it.
///
/// Several lines with different values are ambiguous: some servers take the first, some the last, some join them.
pub(crate) fn single<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Cow<'h, [u8]>, Outcome> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next().ok_or(Outcome::NotPresent)?;
    let value = match lines.next() {
        None => Cow::Borrowed(trimmed(first.as_bytes())),
        Some(second) if *name == COOKIE => Cow::Owned(joined_cookies(first, second, lines)),
        Some(second) if second != first || lines.any(|other| other != first) => {
            return Err(Outcome::Ambiguous);
        }
        Some(_) => Cow::Borrowed(trimmed(first.as_bytes())),
    };
    match value.is_empty() {
        true => Err(Outcome::Empty),
        false => Ok(value),
    }
}

/// HTTP/2 may send each cookie in a line of its own, and they mean one line (RFC 9113, 8.2.3).
fn joined_cookies<'h>(
    first: &'h HeaderValue,
    second: &'h HeaderValue,
    others: impl Iterator<Item = &'h HeaderValue>,
) -> Vec<u8> {
    let mut joined = first.as_bytes().to_vec();
    for line in std::iter::once(second).chain(others) {
        joined.extend_from_slice(b"; ");
        joined.extend_from_slice(line.as_bytes());
    }
    joined
}

/// The value as text that may be shown.
pub(crate) fn single_text<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    longest: usize,
) -> Result<Cow<'h, str>, Outcome> {
    let text = match single(headers, name)? {
        value if value.len() > longest => return Err(Outcome::TooLong),
        Cow::Borrowed(value) => std::str::from_utf8(value).ok().map(Cow::Borrowed),
        Cow::Owned(value) => String::from_utf8(value).ok().map(Cow::Owned),
    };
    let text = text.ok_or(Outcome::Unreadable)?;
    check_text(&text, longest).map(|()| text)
}

/// Whether text is of at most `longest` bytes and may be shown.
pub(crate) fn check_text(text: &str, longest: usize) -> Result<(), Outcome> {
    match text.len() > longest {
        true => Err(Outcome::TooLong),
        false if is_printable(text) => Ok(()),
        false => Err(Outcome::Unreadable),
    }
}

/// Spaces and tabs around a value are none of it.
pub(crate) fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

/// Without what would break a line of a log, or show another text than is there.
pub(crate) fn is_printable(text: &str) -> bool {
    !text.chars().any(|c| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    })
}

/// Text from outside as an error may show it: short, and escaped when it is formatted with `{:?}`.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_shown_but_for_headers_that_carry_secrets() {
        for (written, shown) in [
            ("ip", "ip"),
            ("bearer", "bearer"),
            ("header:X-User-Id", "header:x-user-id"),
            ("api_key:X-Tenant", "api_key:x-tenant"),
            ("header:X-API-Key", "api_key:x-api-key"),
            ("header:apikey", "api_key:apikey"),
            ("header:X_Auth_Token", "api_key:x_auth_token"),
            ("header:Authorization", "api_key:authorization"),
            ("header:Client.Secret", "api_key:client.secret"),
            ("header:Cookie", "api_key:cookie"),
            ("header:X-Monkey", "header:x-monkey"),
            ("header:X-Tokens-Used", "header:x-tokens-used"),
        ] {
            let source: ClientSource = written.parse().unwrap();
            assert_eq!(source.to_string(), shown);
            assert_eq!(source.to_string().parse(), Ok(source), "{written}");
        }
    }

    #[test]
    fn what_is_no_source_is_refused_with_what_would_be_right() {
        for (written, says) in [
            ("", "use api_key:NAME"),
            ("IP", "use api_key:NAME"),
            ("ip:", "use api_key:NAME"),
            ("cookie:session", "use api_key:NAME"),
            ("header", "use api_key:NAME"),
            ("header:", "header's name"),
            ("header: X-User-Id", "header's name"),
            ("header:X User", "header's name"),
            ("header:IP", "named `ip`"),
        ] {
            let error = written.parse::<ClientSource>().unwrap_err().to_string();
            assert!(error.contains(says), "{written}: {error}");
        }
        for (written, says) in [
            ("ip", "use header:NAME"),
            ("header:", "header's name"),
            ("header:X-API-Key", "a secret"),
        ] {
            let error = written.parse::<PlanSource>().unwrap_err().to_string();
            assert!(error.contains(says), "{written}: {error}");
        }
    }
}
