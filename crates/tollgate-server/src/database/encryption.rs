//! How a connection to PostgreSQL is encrypted, and whose certificate is accepted.
//!
//! The driver's own default, `sslmode=prefer`, sends the password in clear to a server that offers no TLS, and accepts any
//! certificate. Whoever stands between this machine and the database could read the password and replace the rules. So
//! the default for another machine is `verify-full` here.

use std::fmt;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::address::percent_decoded;

/// The values of `sslmode`, from the weakest to the strongest.
pub(crate) const SSL_MODES: [&str; 6] = [
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
pub(crate) struct Encryption {
    /// Empty: a socket file of this machine.
    host: String,
    mode: Option<String>,
    root_cert: Option<RootCert>,
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
pub(crate) enum Weakness {
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
    pub(crate) fn of(url: &str) -> Self {
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

    /// What the URL alone says.
    pub(crate) fn of_url(url: &str) -> Self {
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
    pub(crate) fn has_mode(&self) -> bool {
        self.mode.is_some()
    }

    /// Whether `sslmode` is one that exists.
    pub(crate) fn has_known_mode(&self) -> bool {
        let is_known = |mode: &String| {
            SSL_MODES
                .iter()
                .any(|known| mode.eq_ignore_ascii_case(known))
        };
        self.mode.as_ref().is_none_or(is_known)
    }

    /// The driver's mode.
    ///
    /// # Errors
    /// When the environment names a mode that does not exist: the driver would take it for `prefer`.
    fn driver_mode(&self) -> Result<PgSslMode, String> {
        let mode = match &self.mode {
            Some(mode) if !self.has_known_mode() => {
                let mode = crate::audit::escaped(mode, 100);
                let known = SSL_MODES.join(", ");
                return Err(format!("PGSSLMODE={mode} is unknown; use {known}"));
            }
            Some(mode) => mode.to_ascii_lowercase(),
            None if is_this_machine(&self.host) => "prefer".to_owned(),
            None => "verify-full".to_owned(),
        };
        Ok(match (mode.as_str(), self.root_cert) {
            ("disable" | "allow", _) => PgSslMode::Disable,
            ("prefer", _) => PgSslMode::Prefer,
            ("require", None) => PgSslMode::Require,
            // As libpq does: whoever names an authority wants it to count.
            ("require" | "verify-ca", Some(RootCert::File)) | ("verify-ca", None) => {
                PgSslMode::VerifyCa
            }
            _ => PgSslMode::VerifyFull,
        })
    }

    /// What is weak about it, if the database is on another machine.
    ///
    /// # Errors
    /// When the environment names a mode that does not exist.
    pub(crate) fn weakness(&self) -> Result<Option<Weakness>, String> {
        if is_this_machine(&self.host) {
            return Ok(None);
        }
        Ok(match self.driver_mode()? {
            PgSslMode::Disable | PgSslMode::Allow => Some(Weakness::Clear),
            PgSslMode::Prefer => Some(Weakness::Optional),
            PgSslMode::Require => Some(Weakness::AnyCertificate),
            PgSslMode::VerifyCa => Some(Weakness::AnyName),
            PgSslMode::VerifyFull => None,
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

/// Options of the driver for this URL, encrypted as it and the environment say, or as is safe if they say nothing.
pub(super) fn encrypted(options: PgConnectOptions, url: &str) -> Result<PgConnectOptions, String> {
    encrypted_by(options, Encryption::of(url))
}

fn encrypted_by(
    options: PgConnectOptions,
    mut said: Encryption,
) -> Result<PgConnectOptions, String> {
    let host = options.get_host().trim_matches(['[', ']']).to_owned();
    if options.get_socket().is_some() || host.starts_with('/') {
        // Nobody listens in on a socket file, and servers offer no TLS there.
        return Ok(options.ssl_mode(PgSslMode::Disable));
    }
    // Where the driver connects to is what counts.
    said.host.clone_from(&host);
    let mode = said.driver_mode()?;
    let is_verified = matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    // The name in a certificate has no brackets.
    let options = options.host(&host).ssl_mode(mode);
    Ok(
        match is_verified && said.root_cert != Some(RootCert::File) {
            true => options.ssl_root_cert_from_pem(system_roots()),
            false => options,
        },
    )
}

/// The authorities that this machine trusts, in PEM; the driver knows only a list of its own. One that cannot be used is left
/// out: the driver would refuse all because of it.
fn system_roots() -> Vec<u8> {
    let mut pem = String::new();
    for certificate in rustls_native_certs::load_native_certs().certs {
        if rustls::RootCertStore::empty()
            .add(certificate.clone())
            .is_err()
        {
            continue;
        }
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = STANDARD.encode(&certificate);
        for line in text.as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem.into_bytes()
}

/// What to do about a connection that TLS prevents, if it is that.
pub(super) fn remedy(error: &sqlx::Error) -> Option<&'static str> {
    let (text, cause) = match error {
        sqlx::Error::Tls(error) => (error.to_string(), error.downcast_ref::<rustls::Error>()),
        sqlx::Error::Io(error) => {
            let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
            (error.to_string(), cause)
        }
        _ => return None,
    };
    if text.contains("does not support TLS") {
        return Some(
            "; switch TLS on there (ssl = on), or accept that anybody on the way can read the password: sslmode=disable in \
             the URL",
        );
    }
    let rustls::Error::InvalidCertificate(why) = cause? else {
        return None;
    };
    Some(match why {
        rustls::CertificateError::NotValidForName
        | rustls::CertificateError::NotValidForNameContext { .. } => {
            "; connect by a name that the certificate is for"
        }
        rustls::CertificateError::UnknownIssuer => {
            "; no authority that this machine trusts has issued its certificate: name the one that has with \
             sslrootcert=FILE in the URL. sslmode=require would encrypt and accept any certificate"
        }
        _ if text.contains("CaUsedAsEndEntity") => {
            "; the server's certificate is one of an authority (CA:TRUE): issue one for the server with CA:FALSE. \
             sslmode=require would encrypt and accept any certificate"
        }
        _ => "",
    })
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;

    /// As the driver will connect; the environment of tests says nothing.
    fn mode(url: &str) -> String {
        let options = PgConnectOptions::from_str(url).unwrap();
        format!("{:?}", encrypted(options, url).unwrap().get_ssl_mode())
    }

    #[test]
    fn another_machine_is_verified_unless_the_url_says_otherwise() {
        for (url, expected) in [
            ("postgres://u:p@db.internal/x", "VerifyFull"),
            ("postgres://u:p@192.0.2.1/x", "VerifyFull"),
            ("postgres://u:p@0.0.0.0/x", "VerifyFull"),
            ("postgres://u:p@[2001:db8::1]:5433/x", "VerifyFull"),
            ("postgres://u:p@localhost.example/x", "VerifyFull"),
            ("postgres://u:p@localhost/x?host=db.internal", "VerifyFull"),
            (
                "postgres://u:p@localhost/x?hostaddr=192.0.2.1",
                "VerifyFull",
            ),
            ("postgres://u:p@db/x?sslmode=VERIFY-FULL", "VerifyFull"),
            ("postgres://u:p@db/x?sslmode=verify-ca", "VerifyCa"),
            ("postgres://u:p@db/x?ssl-mode=require", "Require"),
            (
                "postgres://u:p@db/x?sslmode=require&sslrootcert=ca.pem",
                "VerifyCa",
            ),
            ("postgres://u:p@db/x?sslrootcert=ca.pem", "VerifyFull"),
            (
                "postgres://u:p@db/x?sslmode=require&sslrootcert=system",
                "VerifyFull",
            ),
            ("postgres://u:p@db/x?sslmode=prefer", "Prefer"),
            ("postgres://u:p@db/x?sslmode=allow", "Disable"),
            ("postgres://u:p@db/x?sslmode=disable", "Disable"),
        ] {
            assert_eq!(mode(url), expected, "{url}");
        }
    }

    #[test]
    fn this_machine_needs_no_certificate() {
        for (url, expected) in [
            ("postgres://u:p@localhost/x", "Prefer"),
            ("postgres://u:p@127.0.0.1:5433/x", "Prefer"),
            ("postgres://u:p@[::1]/x", "Prefer"),
            ("postgres://u@localhost/x?host=/run/postgresql", "Disable"),
            ("postgres://u@%2Frun%2Fpostgresql/x", "Disable"),
            (
                "postgres://u:p@localhost/x?sslmode=verify-full",
                "VerifyFull",
            ),
        ] {
            assert_eq!(mode(url), expected, "{url}");
        }
    }

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
        // What is warned of is what the driver is told.
        let options = PgConnectOptions::from_str(db).unwrap();
        let options = encrypted_by(options, said(db, &[disable])).unwrap();
        assert!(matches!(options.get_ssl_mode(), PgSslMode::Disable));
    }

    #[test]
    fn a_url_leads_to_the_host_that_the_driver_finds() {
        for url in [
            "postgres://u:p@db.internal:5433/x",
            "postgres://u:p@127.0.0.1/x",
            "postgres://u:p@[2001:db8::1]:5433/x",
            "postgres://u:p@localhost/x?host=db.internal",
            "postgres://u:p@localhost/x?hostaddr=192.0.2.1&host=db",
            "postgres://u:p%40q@db/x",
        ] {
            let options = PgConnectOptions::from_str(url).unwrap();
            let host = options.get_host().trim_matches(['[', ']']);
            assert_eq!(Encryption::of_url(url).host, host, "{url}");
        }
    }

    #[test]
    fn authorities_of_this_machine_are_handed_on_as_the_driver_reads_them() {
        use rustls::pki_types::CertificateDer;
        use rustls::pki_types::pem::PemObject as _;
        let pem = system_roots();
        let read: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .unwrap();
        let usable = |certificate: &CertificateDer<'static>| {
            rustls::RootCertStore::empty()
                .add(certificate.clone())
                .is_ok()
        };
        let mut native = rustls_native_certs::load_native_certs().certs;
        native.retain(usable);
        assert_eq!(read, native);
    }
}
