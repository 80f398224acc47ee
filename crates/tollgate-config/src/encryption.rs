//! How a connection to PostgreSQL is encrypted, and whose certificate is accepted.
//!
//! The driver's own default, `sslmode=prefer`, sends the password in clear to a server that offers no TLS, and accepts any
//! certificate. Whoever stands between this machine and the database could read the password and replace the rules. So
//! the default for another machine is `verify-full` here.

use std::fmt;
use std::net::IpAddr;

use crate::text::escaped;

/// The values of `sslmode`, from the weakest to the strongest.
pub const SSL_MODES: [&str; 6] = [
    "disable",
    "allow",
    "prefer",
    "require",
    "verify-ca",
    "verify-full",
];

/// What is said about the encryption of a connection to PostgreSQL, by its URL and, where that says nothing, by the environment
/// (`PGSSLMODE`, `PGSSLROOTCERT`, `PGHOST`), as for every client of PostgreSQL.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Encryption {
    /// Empty: a socket file of this machine.
    host: String,
    mode: Option<String>,
    root_cert: Option<RootCert>,
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
    /// With a certificate of a known authority, for any name.
    VerifyCa,
    /// With a certificate for the host.
    VerifyFull,
}

/// What a variable of the environment holds.
type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RootCert {
    /// `sslrootcert=system`.
    System,
    File,
}

/// What somebody on the way to the database can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weakness {
    /// Nothing is encrypted.
    Clear,
    /// It is encrypted only if the server, or whoever answers for it, offers that.
    Optional,
    /// Any certificate is accepted.
    AnyCertificate,
    /// A certificate for any name is accepted.
    AnyName,
}

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Clear => {
                "the connection to the database is not encrypted: anybody on the way can read the password and change the rules"
            }
            Self::Optional => {
                "the connection to the database is encrypted only if the server offers it: whoever answers instead of the \
                 server gets the password in clear"
            }
            Self::AnyCertificate => {
                "the certificate of the database is not verified: whoever answers instead of the server gets the password \
                 and can change the rules"
            }
            Self::AnyName => {
                "the certificate of the database may be for any name: whoever has one from a known authority can answer \
                 instead of the server"
            }
        })
    }
}

impl Encryption {
    /// What the URL and the environment of this process say.
    #[must_use]
    pub fn of(url: &str) -> Self {
        Self::in_environment(url, &|name| std::env::var(name).ok())
    }

    fn in_environment(url: &str, environment: Environment<'_>) -> Self {
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        let mut said = Self::of_url(url);
        if said.host.is_empty() {
            let host = variable("PGHOSTADDR").or_else(|| variable("PGHOST"));
            said.host = host.unwrap_or_default();
        }
        said.mode = said.mode.or_else(|| variable("PGSSLMODE"));
        let root_cert_of_environment = || Some(root_cert(&variable("PGSSLROOTCERT")?));
        said.root_cert = said.root_cert.or_else(root_cert_of_environment);
        said
    }

    /// The same for another host: the one that the driver connects to.
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

    /// Whether the URL or the environment names a file with authorities.
    #[must_use]
    pub fn has_root_cert_file(&self) -> bool {
        self.root_cert == Some(RootCert::File)
    }

    /// What the URL alone says.
    #[must_use]
    pub fn of_url(url: &str) -> Self {
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
        let authority = place.split('/').next().unwrap_or_default();
        let host = match authority.strip_prefix('[') {
            Some(v6) => v6.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        };
        let mut said = Self {
            host: percent_decoded(host),
            ..Self::default()
        };
        for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let value = percent_decoded(value);
            match name {
                "host" | "hostaddr" => said.host = value,
                "sslmode" | "ssl-mode" => said.mode = Some(value),
                "sslrootcert" | "ssl-root-cert" | "ssl-ca" => {
                    said.root_cert = Some(root_cert(&value));
                }
                _ => {}
            }
        }
        said
    }

    /// Whether an `sslmode` is said.
    #[must_use]
    pub fn has_mode(&self) -> bool {
        self.mode.is_some()
    }

    /// Whether `sslmode` is one that exists.
    #[must_use]
    pub fn has_known_mode(&self) -> bool {
        let is_known = |mode: &String| {
            SSL_MODES
                .iter()
                .any(|known| mode.eq_ignore_ascii_case(known))
        };
        self.mode.as_ref().is_none_or(is_known)
    }

    /// The mode to connect with.
    ///
    /// # Errors
    /// When the environment names a mode that does not exist: the driver would take it for `prefer`.
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
        Ok(match (mode.as_str(), self.root_cert) {
            ("disable" | "allow", _) => SslMode::Disable,
            ("prefer", _) => SslMode::Prefer,
            ("require", None) => SslMode::Require,
            // As libpq does: whoever names an authority wants it to count.
            ("require" | "verify-ca", Some(RootCert::File)) | ("verify-ca", None) => {
                SslMode::VerifyCa
            }
            _ => SslMode::VerifyFull,
        })
    }

    /// What is weak about it, if the database is on another machine.
    ///
    /// # Errors
    /// When the environment names a mode that does not exist.
    pub fn weakness(&self) -> Result<Option<Weakness>, String> {
        if is_this_machine(&self.host) {
            return Ok(None);
        }
        Ok(match self.mode()? {
            SslMode::Disable => Some(Weakness::Clear),
            SslMode::Prefer => Some(Weakness::Optional),
            SslMode::Require => Some(Weakness::AnyCertificate),
            SslMode::VerifyCa => Some(Weakness::AnyName),
            SslMode::VerifyFull => None,
        })
    }
}

fn root_cert(value: &str) -> RootCert {
    match value {
        "system" => RootCert::System,
        _ => RootCert::File,
    }
}

/// Whether a host can only be this machine: its socket files, its loopback addresses and their usual name.
fn is_this_machine(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => {
            host.is_empty() || host.starts_with('/') || host.eq_ignore_ascii_case("localhost")
        }
    }
}

/// Text with its percent-encoded bytes decoded. What is not UTF-8 after that becomes replacement characters.
#[must_use]
pub fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weak_connection_is_known_by_its_url() {
        for (url, expected) in [
            ("postgres://u:p@db/x", None),
            ("postgres://u:p@db/x?sslmode=verify-full", None),
            ("postgres://u:p@127.0.0.1/x?sslmode=disable", None),
            ("postgres://u:p@db/x?host=%2Frun&sslmode=disable", None),
            ("postgres://u:p@db/x?sslmode=disable", Some(Weakness::Clear)),
            ("postgres://u:p@db/x?sslmode=Allow", Some(Weakness::Clear)),
            (
                "postgres://u:p@[::1]/x?host=db&sslmode=prefer",
                Some(Weakness::Optional),
            ),
            (
                "postgres://u:p@db/x?sslmode=require",
                Some(Weakness::AnyCertificate),
            ),
            (
                "postgres://u:p/q@db/x?sslmode=require&sslrootcert=a",
                Some(Weakness::AnyName),
            ),
            (
                "postgres://u:p@db/x?sslmode=verify-ca",
                Some(Weakness::AnyName),
            ),
        ] {
            assert_eq!(Encryption::of(url).weakness(), Ok(expected), "{url}");
        }
        assert!(!Encryption::of("postgres://db/x?sslmode=verify_full").has_known_mode());
    }

    #[test]
    fn the_environment_counts_where_the_url_says_nothing() {
        fn said(url: &str, variables: &[(&str, &str)]) -> Encryption {
            Encryption::in_environment(url, &|name| {
                let value = variables.iter().find(|(known, _)| *known == name);
                value.map(|(_, value)| (*value).to_owned())
            })
        }
        fn weakness(url: &str, variables: &[(&str, &str)]) -> Result<Option<Weakness>, String> {
            said(url, variables).weakness()
        }
        let (db, local) = ("postgres://u:p@db/x", "postgres://u:p@localhost/x");
        let disable = ("PGSSLMODE", "disable");
        assert_eq!(weakness(db, &[disable]), Ok(Some(Weakness::Clear)));
        assert_eq!(weakness(local, &[disable]), Ok(None));
        let verified = "postgres://u:p@db/x?sslmode=verify-full";
        assert_eq!(weakness(verified, &[disable]), Ok(None));
        assert_eq!(weakness(db, &[("PGSSLMODE", "")]), Ok(None));
        let require = ("PGSSLMODE", "Require");
        assert_eq!(weakness(db, &[require]), Ok(Some(Weakness::AnyCertificate)));
        for (authority, expected) in [("ca.pem", Some(Weakness::AnyName)), ("system", None)] {
            let variables = [require, ("PGSSLROOTCERT", authority)];
            assert_eq!(weakness(db, &variables), Ok(expected), "{authority}");
        }
        let prefer = "postgres:///x?sslmode=prefer";
        assert_eq!(weakness(prefer, &[]), Ok(None));
        for variable in ["PGHOST", "PGHOSTADDR"] {
            let optional = Ok(Some(Weakness::Optional));
            assert_eq!(weakness(prefer, &[(variable, "192.0.2.1")]), optional);
        }
        let unknown = weakness(db, &[("PGSSLMODE", "verify\n")]).unwrap_err();
        assert!(unknown.starts_with("PGSSLMODE=verify\\n is unknown; use disable, "));
    }
}
