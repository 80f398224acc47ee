//! Values that must not be shown.

use std::fmt;

use crate::document::Scalar;

/// A secret. Only [`expose`](Self::expose) shows it, not its `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    is_in_file: bool,
}

impl Secret {
    /// A secret that is not in a file.
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_in_file: false,
        }
    }

    /// A secret of a configuration. It is in the file unless it came from the environment.
    pub(crate) fn configured(scalar: &Scalar) -> Self {
        Self {
            text: scalar.text.clone(),
            is_in_file: !scalar.is_from_environment(),
        }
    }

    /// The secret itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// Whether it is in the file, where everyone with access to the file can read it.
    pub(super) fn is_in_file(&self) -> bool {
        self.is_in_file
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

    /// All of it, with the password.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// The part before the colon.
    pub(super) fn scheme(&self) -> &str {
        self.expose().split(':').next().unwrap_or_default()
    }

    /// Scheme, login and rest; all of it is the rest if it has no `://`.
    fn split(&self) -> (&str, Option<&str>, &str) {
        let Some((scheme, rest)) = self.expose().split_once("://") else {
            return ("", None, self.expose());
        };
        // The last "@" before the query: a password may hold one, or a slash, that nobody escaped.
        let before_query = rest.split('?').next().unwrap_or_default();
        match before_query.rfind('@').or(rest.rfind('@')) {
            Some(at) => (scheme, Some(&rest[..at]), &rest[at + 1..]),
            None => (scheme, None, rest),
        }
    }

    pub(super) fn has_password(&self) -> bool {
        let (_, login, _) = self.split();
        let password = login.and_then(|login| login.split_once(':'));
        let query = self.expose().split_once('?');
        password.is_some_and(|(_, password)| !password.is_empty())
            || query.is_some_and(|(_, query)| query.contains("pass"))
    }

    pub(super) fn has_password_in_file(&self) -> bool {
        self.has_password() && self.0.is_in_file()
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

/// Without the login, and without the query, which may hold a password.
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
            ("redis://:hunter/2@hunter@h/0", "redis://***@h/0"),
            ("postgres://u:hunter2@h/db?x=1", "postgres://***@h/db"),
            ("postgres://u:hunter2@h/db?x=a@b", "postgres://***@h/db"),
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
