//! Values that must not be seen.

use std::fmt;

/// A secret. Neither its `Debug` nor anything else but [`expose`](Self::expose) shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    in_clear: bool,
}

impl Secret {
    /// A secret that does not stand in the file itself.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            in_clear: false,
        }
    }

    /// A secret of a configuration: `in_clear` if it stands in the file itself.
    pub(crate) fn configured(text: String, in_clear: bool) -> Self {
        Self { text, in_clear }
    }

    /// The secret itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Whether it stands in the file itself, for everybody who can read that.
    pub(super) fn is_in_clear(&self) -> bool {
        self.in_clear
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// An address that may hold a password: `scheme://[user:password@]rest`, or `sqlite:file`.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(Secret);

impl Url {
    pub(super) fn new(url: Secret) -> Self {
        Self(url)
    }

    /// All of it, for whoever connects.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// What stands before the colon.
    pub(super) fn scheme(&self) -> &str {
        let (scheme, _) = self.0.text.split_once(':').unwrap_or_default();
        scheme
    }

    fn split(&self) -> (&str, Option<&str>, &str) {
        let (scheme, rest) = match self.0.text.split_once("://") {
            Some((scheme, rest)) => (scheme, rest),
            None => return ("", None, &self.0.text),
        };
        let authority = rest.find(['/', '?']).unwrap_or(rest.len());
        // A password may hold a slash that nobody escaped.
        let end = rest.rfind('@').map_or(authority, |at| at.max(authority));
        match rest
            .get(..end)
            .unwrap_or(rest)
            .rfind('@')
            .or(rest.rfind('@'))
        {
            Some(at) => (
                scheme,
                rest.get(..at),
                rest.get(at + 1..).unwrap_or_default(),
            ),
            None => (scheme, None, rest),
        }
    }

    /// Whether it holds a password.
    pub(super) fn has_password(&self) -> bool {
        let (_, login, _) = self.split();
        let password = login.and_then(|login| login.split_once(':'));
        let in_query = self.0.text.split_once('?');
        password.is_some_and(|(_, password)| !password.is_empty())
            || in_query.is_some_and(|(_, query)| query.contains("pass"))
    }

    /// Whether a password stands in the file itself.
    pub(super) fn has_password_in_clear(&self) -> bool {
        self.has_password() && self.0.is_in_clear()
    }

    /// The hosts, without their ports.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        let (_, _, rest) = self.split();
        let hosts = rest.split(['/', '?']).next().unwrap_or_default();
        hosts.split(',').map(|host| match host.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        })
    }
}

/// Without the login, and without settings, among which a password may be.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, login, rest) = self.split();
        match (scheme, login, rest.split('?').next().unwrap_or_default()) {
            ("", _, all) => f.write_str(all),
            (scheme, None, rest) => write!(f, "{scheme}://{rest}"),
            (scheme, Some(_), rest) => write!(f, "{scheme}://***@{rest}"),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "[redacted]");
        for (url, shown) in [
            ("redis://u:hunter2@h:1/0", "redis://***@h:1/0"),
            ("redis://:hunter/2@h", "redis://***@h"),
            ("redis://:hunter@2@h/0", "redis://***@h/0"),
            ("postgres://u:hunter2@h/db?x=1", "postgres://***@h/db"),
            ("unix:///run/redis?pass=hunter2", "unix:///run/redis"),
            ("sqlite:tollgate.db", "sqlite:tollgate.db"),
            ("redis://[::1]:6379", "redis://[::1]:6379"),
        ] {
            let url = Url::new(Secret::new(url));
            assert_eq!(url.to_string(), shown);
            assert!(!format!("{url:?}").contains("hunter"), "{url:?}");
        }
    }

    #[test]
    fn hosts_and_passwords_are_found() {
        let of = |url: &str| Url::new(Secret::new(url));
        let hosts = |url: &str| of(url).hosts().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(hosts("redis+sentinel://:p@a:1,b/x/0"), ["a", "b"]);
        assert_eq!(hosts("redis://[::1]:6379"), ["::1"]);
        assert!(of("redis://:p@a").has_password());
        assert!(!of("redis://u@a").has_password());
    }
}
