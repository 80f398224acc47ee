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

/// What the URL of a PostgreSQL says about encryption.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Encryption {
    /// Empty: a socket file of this machine, or what `PGHOST` says.
    host: String,
    mode: Option<String>,
    root_cert: Option<RootCert>,
}

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
    pub(crate) fn of(url: &str) -> Self {
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

    /// Whether `sslmode` is one that exists.
    pub(crate) fn has_known_mode(&self) -> bool {
        let is_known = |mode: &String| {
            SSL_MODES
                .iter()
                .any(|known| mode.eq_ignore_ascii_case(known))
        };
        self.mode.as_ref().is_none_or(is_known)
    }

    /// What is weak about it, if the database is on another machine.
    pub(crate) fn weakness(&self) -> Option<Weakness> {
        let mode = self.mode.as_deref()?.to_ascii_lowercase();
        match is_this_machine(&self.host) {
            true => None,
            false => weakness(&mode, self.root_cert),
        }
    }
}

fn root_cert(value: &str) -> RootCert {
    match value {
        "system" => RootCert::System,
        _ => RootCert::File,
    }
}

fn weakness(mode: &str, root_cert: Option<RootCert>) -> Option<Weakness> {
    match mode {
        "disable" | "allow" => Some(Weakness::Clear),
        "prefer" => Some(Weakness::Optional),
        "require" if root_cert.is_none() => Some(Weakness::AnyCertificate),
        "require" | "verify-ca" => Some(Weakness::AnyName),
        _ => None,
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

/// Options of the driver for this URL, encrypted as it says, or as is safe if it says nothing. What the environment says
/// (`PGSSLMODE`, `PGSSLROOTCERT`, `PGHOST`) counts as well, as in every client of PostgreSQL.
pub(super) fn encrypted(options: PgConnectOptions, url: &str) -> Result<PgConnectOptions, String> {
    let said = Encryption::of(url);
    let host = options.get_host().trim_matches(['[', ']']).to_owned();
    if options.get_socket().is_some() || host.starts_with('/') {
        // Nobody listens in on a socket file, and servers offer no TLS there.
        return Ok(options.ssl_mode(PgSslMode::Disable));
    }
    let of_environment = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mode = match said.mode {
        Some(mode) => Some(mode),
        None => of_environment("PGSSLMODE")
            .map(|mode| {
                match SSL_MODES
                    .iter()
                    .any(|known| mode.eq_ignore_ascii_case(known))
                {
                    true => Ok(mode),
                    // The driver would take it for `prefer`.
                    false => Err(format!(
                        "PGSSLMODE={mode} is unknown; use {}",
                        SSL_MODES.join(", ")
                    )),
                }
            })
            .transpose()?,
    };
    // The name in a certificate has no brackets.
    let options = options.host(&host);
    let root_cert = said
        .root_cert
        .or_else(|| of_environment("PGSSLROOTCERT").map(|value| root_cert(&value)));
    let mode = match mode {
        Some(mode) => mode.to_ascii_lowercase(),
        None if is_this_machine(&host) => "prefer".to_owned(),
        None => "verify-full".to_owned(),
    };
    let mode = match (mode.as_str(), root_cert) {
        ("disable" | "allow", _) => PgSslMode::Disable,
        ("prefer", _) => PgSslMode::Prefer,
        ("require", None) => PgSslMode::Require,
        // As libpq does: whoever names an authority wants it to count.
        ("require" | "verify-ca", Some(RootCert::File)) | ("verify-ca", None) => {
            PgSslMode::VerifyCa
        }
        _ => PgSslMode::VerifyFull,
    };
    let is_verified = matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    let options = options.ssl_mode(mode);
    Ok(match is_verified && root_cert != Some(RootCert::File) {
        true => options.ssl_root_cert_from_pem(system_roots()),
        false => options,
    })
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
            assert_eq!(Encryption::of(url).weakness(), expected, "{url}");
        }
        assert!(!Encryption::of("postgres://db/x?sslmode=verify_full").has_known_mode());
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
