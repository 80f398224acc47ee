//! Encryption of connections to PostgreSQL, and whose certificates are accepted.
//!
//! The default of the driver, `sslmode=prefer`, sends the password in clear to a server that offers no TLS, and accepts any
//! certificate. An attacker between this machine and the database could read the password and replace the rules. So the
//! default for another machine is `verify-full` here.

use std::net::IpAddr;

use percent_encoding::percent_decode_str;

use crate::secret::{Secret, Url};
use crate::text::escaped;

/// The values of `sslmode`, from the weakest to the strongest.
pub(crate) const SSL_MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

/// The encryption settings in a PostgreSQL URL; and, where it has none, in the environment (`PGSSLMODE`, `PGSSLROOTCERT`,
/// `PGHOST`), as for every PostgreSQL client.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Encryption {
    /// Empty for a socket file of this machine.
    host: String,
    mode: Option<String>,
    /// A file of authorities, or `system`.
    root_cert: Option<String>,
}

/// How a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    /// Not at all.
    Disable,
    /// Only if the server offers it.
    Prefer,
    /// With any certificate.
    Require,
    /// With a certificate from a known authority, for any name.
    VerifyCa,
    /// With a certificate for the host.
    VerifyFull,
}

impl Encryption {
    /// The settings in the URL and in the environment of this process.
    #[must_use]
    pub fn of(url: &str) -> Self {
        Self::in_environment(url, &|name| std::env::var(name).ok())
    }

    fn in_environment(url: &str, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| env(name).filter(|value| !value.is_empty());
        let of_url = Self::of_url(url);
        let host = Some(of_url.host).filter(|host| !host.is_empty());
        let host = host.or_else(|| variable("PGHOSTADDR").or_else(|| variable("PGHOST")));
        Self {
            host: host.unwrap_or_default(),
            mode: of_url.mode.or_else(|| variable("PGSSLMODE")),
            root_cert: of_url.root_cert.or_else(|| variable("PGSSLROOTCERT")),
        }
    }

    /// The same settings for another host: the one that the driver connects to.
    #[must_use]
    pub fn at(self, host: &str) -> Self {
        Self {
            host: host.to_owned(),
            ..self
        }
    }

    /// The host of the database; empty for a socket file of this machine.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether a file of authorities is set.
    #[must_use]
    pub fn has_root_cert_file(&self) -> bool {
        self.root_cert
            .as_deref()
            .is_some_and(|file| file != "system")
    }

    /// The settings in the URL alone.
    #[must_use]
    pub fn of_url(url: &str) -> Self {
        let address = Url::new(Secret::new(url));
        let mut found = Self {
            host: percent_decoded(address.hosts().next().unwrap_or_default()),
            ..Self::default()
        };
        let (_, query) = url.split_once('?').unwrap_or_default();
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = percent_decoded(value);
            match name {
                "host" | "hostaddr" => found.host = value,
                "sslmode" | "ssl-mode" => found.mode = Some(value),
                "sslrootcert" | "ssl-root-cert" | "ssl-ca" => found.root_cert = Some(value),
                _ => {}
            }
        }
        found
    }

    pub(crate) fn has_mode(&self) -> bool {
        self.mode.is_some()
    }

    /// Whether `sslmode`, if set, is one that exists.
    pub(crate) fn has_known_mode(&self) -> bool {
        let is_known = |mode: &String| SSL_MODES.contains(&&*mode.to_ascii_lowercase());
        self.mode.as_ref().is_none_or(is_known)
    }

    /// The mode to connect with.
    ///
    /// # Errors
    /// When the environment sets a mode that does not exist: the driver would take it for `prefer`.
    pub fn mode(&self) -> Result<SslMode, String> {
        let mode = match &self.mode {
            Some(mode) if !self.has_known_mode() => {
                let mode = escaped(mode, 100);
                let known = SSL_MODES.join(", ");
                return Err(format!("PGSSLMODE={mode} is unknown; use {known}"));
            }
            Some(mode) => mode.to_ascii_lowercase(),
            None if is_this_machine(&self.host) => "prefer".to_owned(),
            None => "verify-full".to_owned(),
        };
        Ok(match (mode.as_str(), self.root_cert.as_deref()) {
            ("disable" | "allow", _) => SslMode::Disable,
            ("prefer", _) => SslMode::Prefer,
            ("require", None) => SslMode::Require,
            ("require" | "verify-ca", Some("system")) => SslMode::VerifyFull,
            // As in libpq, a file of authorities strengthens `require`.
            ("require" | "verify-ca", _) => SslMode::VerifyCa,
            _ => SslMode::VerifyFull,
        })
    }

    /// What an attacker between here and the database can do, if that is on another machine.
    ///
    /// # Errors
    /// When the environment sets a mode that does not exist.
    pub(crate) fn weakness(&self) -> Result<Option<&'static str>, String> {
        Ok(self.weak_mode()?.map(|mode| match mode {
            SslMode::Disable => {
                "the connection to the database is not encrypted: anybody on the way can read the password and change the rules"
            }
            SslMode::Prefer => {
                "the connection to the database is encrypted only if the server offers it: an attacker in its place gets the \
                 password in clear"
            }
            SslMode::Require => {
                "the certificate of the database is not verified: an attacker in its place gets the password and can change the \
                 rules"
            }
            SslMode::VerifyCa | SslMode::VerifyFull => {
                "the certificate of the database may be for any name: an attacker with a certificate from a known authority can \
                 take its place"
            }
        }))
    }

    fn weak_mode(&self) -> Result<Option<SslMode>, String> {
        if is_this_machine(&self.host) {
            return Ok(None);
        }
        Ok(Some(self.mode()?).filter(|mode| *mode != SslMode::VerifyFull))
    }
}

/// Whether a host can only be this machine: its socket files, its loopback addresses and their usual name.
pub(crate) fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => {
            host.is_empty() || host.starts_with('/') || host.eq_ignore_ascii_case("localhost")
        }
    }
}

/// Text with its percent-encoded bytes decoded. Bytes that are not UTF-8 become replacement characters.
#[must_use]
pub fn percent_decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_reveals_a_weak_connection() {
        for (url, expected) in [
            ("postgres://u:p@db/x", None),
            ("postgres://u:p@db/x?sslmode=verify-full", None),
            ("postgres://u:p@127.0.0.1/x?sslmode=disable", None),
            ("postgres://u:p@db/x?host=%2Frun&sslmode=disable", None),
            (
                "postgres://u:p@db/x?sslmode=disable",
                Some(SslMode::Disable),
            ),
            ("postgres://u:p@db/x?sslmode=Allow", Some(SslMode::Disable)),
            (
                "postgres://u:p@[::1]/x?host=db&sslmode=prefer",
                Some(SslMode::Prefer),
            ),
            (
                "postgres://u:p@db/x?sslmode=require",
                Some(SslMode::Require),
            ),
            (
                "postgres://u:p/q@db/x?sslmode=require&sslrootcert=a",
                Some(SslMode::VerifyCa),
            ),
            (
                "postgres://u:p@db/x?sslmode=verify-ca",
                Some(SslMode::VerifyCa),
            ),
        ] {
            assert_eq!(Encryption::of(url).weak_mode(), Ok(expected), "{url}");
        }
        assert!(!Encryption::of("postgres://db/x?sslmode=verify_full").has_known_mode());
    }

    #[test]
    fn the_environment_fills_what_the_url_leaves_out() {
        fn weak_mode(url: &str, variables: &[(&str, &str)]) -> Result<Option<SslMode>, String> {
            let env = |name: &str| {
                let value = variables.iter().find(|(known, _)| *known == name);
                value.map(|(_, value)| (*value).to_owned())
            };
            Encryption::in_environment(url, &env).weak_mode()
        }
        let (db, local) = ("postgres://u:p@db/x", "postgres://u:p@localhost/x");
        let disable = ("PGSSLMODE", "disable");
        assert_eq!(weak_mode(db, &[disable]), Ok(Some(SslMode::Disable)));
        assert_eq!(weak_mode(local, &[disable]), Ok(None));
        let verified = "postgres://u:p@db/x?sslmode=verify-full";
        assert_eq!(weak_mode(verified, &[disable]), Ok(None));
        assert_eq!(weak_mode(db, &[("PGSSLMODE", "")]), Ok(None));
        let require = ("PGSSLMODE", "Require");
        assert_eq!(weak_mode(db, &[require]), Ok(Some(SslMode::Require)));
        for (authority, expected) in [("ca.pem", Some(SslMode::VerifyCa)), ("system", None)] {
            let variables = [require, ("PGSSLROOTCERT", authority)];
            assert_eq!(weak_mode(db, &variables), Ok(expected), "{authority}");
        }
        let prefer = "postgres:///x?sslmode=prefer";
        assert_eq!(weak_mode(prefer, &[]), Ok(None));
        for variable in ["PGHOST", "PGHOSTADDR"] {
            let optional = Ok(Some(SslMode::Prefer));
            assert_eq!(weak_mode(prefer, &[(variable, "192.0.2.1")]), optional);
        }
        let unknown = weak_mode(db, &[("PGSSLMODE", "verify\n")]).unwrap_err();
        assert!(unknown.starts_with("PGSSLMODE=verify\\n is unknown; use disable, "));
    }
}
