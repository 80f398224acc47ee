//! The URL of a database: what it names, what messages may show of it, and how connections are encrypted, as [`Encryption`] demands.

use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, RootCertStore};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tollgate_config::encryption::{Encryption, SslMode, percent_decoded};
use tollgate_config::text::escaped;

use super::error::DatabaseError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// A valid URL. It is displayed without user, password and settings.
pub(super) struct Address {
    pub(super) kind: DatabaseKind,
    shown: String,
    /// SQLite's file.
    file: Option<PathBuf>,
    /// What no message may contain.
    secrets: Vec<String>,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, DatabaseError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            return Self::of_sqlite(path.strip_prefix("//").unwrap_or(path));
        }
        let postgres = url.strip_prefix("postgres://");
        match postgres.or_else(|| url.strip_prefix("postgresql://")) {
            Some(rest) => Ok(Self::of_postgres(rest)),
            None => {
                let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
                let is_scheme = scheme.chars().all(|c| c.is_ascii_alphanumeric());
                let shown = match is_scheme && !scheme.is_empty() {
                    true => format!("{scheme}:…"),
                    false => "the database's URL".to_owned(),
                };
                let expected = "expected sqlite:path or postgres://user:password@host/name";
                Err(DatabaseError::bad_input(shown, expected))
            }
        }
    }

    fn of_sqlite(path: &str) -> Result<Self, DatabaseError> {
        let file = path.split('?').next().unwrap_or_default();
        let shown = format!("sqlite:{}", escaped(file, 256));
        if file.is_empty() || file.contains(":memory:") || path.contains("mode=memory") {
            let expected = "expected the path of a file, as in sqlite:tollgate.db, because a database in memory is lost with the process";
            return Err(DatabaseError::bad_input(shown, expected));
        }
        Ok(Self {
            kind: DatabaseKind::Sqlite,
            shown,
            file: Some(percent_decoded(file).into()),
            secrets: Vec::new(),
        })
    }

    fn of_postgres(rest: &str) -> Self {
        let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
        // A password may contain an unescaped slash, so the last @ counts.
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let password = user.split_once(':').map_or("", |(_, password)| password);
        let mut secrets: Vec<String> = query
            .split('&')
            .filter_map(|pair| pair.strip_prefix("password="))
            .chain([password])
            .filter(|secret| !secret.is_empty())
            .flat_map(|secret| [secret.to_owned(), percent_decoded(secret)])
            .collect();
        // The longest first, because it may contain a shorter one.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self {
            kind: DatabaseKind::Postgres,
            shown: format!("postgres://{}", escaped(host, 256)),
            file: None,
            secrets,
        }
    }

    /// Whether it names a file that does not exist.
    pub(super) fn is_missing(&self) -> bool {
        self.file.as_ref().is_some_and(|file| !file.exists())
    }

    /// The error for a URL that the driver rejects.
    pub(super) fn rejected(&self, error: &impl ToString) -> DatabaseError {
        DatabaseError::bad_input(self, self.without_secrets(&error.to_string()))
    }

    /// The error for an action, such as "read the rules", that the driver reports as failed.
    pub(super) fn failed(&self, action: &str, error: &sqlx::Error) -> DatabaseError {
        let advice = tls_advice(error).unwrap_or_else(|| advice(error));
        let why = self.without_secrets(&error.to_string());
        let why = format!("cannot {action}: {why}{advice}");
        match is_about_data(error) {
            true => DatabaseError::bad_input(self, why),
            false => DatabaseError::failed(self, why),
        }
    }

    fn without_secrets(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), "***");
        }
        escaped(&text, 512)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// What to do where the database's own message does not say.
fn advice(error: &sqlx::Error) -> &'static str {
    match code(error).as_deref() {
        // SQLite: CANTOPEN, READONLY and NOTADB.
        Some("14") => "; its folder must exist and be writable for this user",
        Some("8") => "; the file and its folder must be writable for this user",
        Some("26") => "; name a file that does not exist yet, or one that Tollgate created",
        _ => "",
    }
}

/// Whether the database will always refuse this data: SQLSTATE class 22 (data) or 23 (constraint); SQLite's 19 (constraint) and 20
/// (mismatch), in the low byte of its codes.
fn is_about_data(error: &sqlx::Error) -> bool {
    let Some(code) = code(error) else {
        return false;
    };
    match code.len() {
        5 => code.starts_with("22") || code.starts_with("23"),
        _ => (code.parse::<u32>()).is_ok_and(|code| matches!(code & 0xff, 19 | 20)),
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    let code = error.as_database_error()?.code()?;
    Some(code.into_owned())
}

/// The driver's options for this URL, encrypted as the URL and the environment demand, or safely if they demand nothing.
pub(super) fn encrypted(options: PgConnectOptions, url: &str) -> Result<PgConnectOptions, String> {
    let host = options.get_host().trim_matches(['[', ']']).to_owned();
    if options.get_socket().is_some() || host.starts_with('/') {
        // A Unix socket cannot be intercepted, and servers offer no TLS there.
        return Ok(options.ssl_mode(PgSslMode::Disable));
    }
    // The host that the driver connects to counts.
    let encryption = Encryption::of(url).at(&host);
    let mode = match encryption.mode()? {
        SslMode::Disable => PgSslMode::Disable,
        SslMode::Prefer => PgSslMode::Prefer,
        SslMode::Require => PgSslMode::Require,
        SslMode::VerifyCa => PgSslMode::VerifyCa,
        SslMode::VerifyFull => PgSslMode::VerifyFull,
    };
    let is_verified = matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    // The name in a certificate has no brackets.
    let options = options.host(&host).ssl_mode(mode);
    Ok(match is_verified && !encryption.has_root_cert_file() {
        true => options.ssl_root_cert_from_pem(system_roots()),
        false => options,
    })
}

/// The certificates of the authorities that this machine trusts, in PEM, because the driver has only a list of its own. Unusable ones are
/// left out: the driver would reject all of them.
fn system_roots() -> Vec<u8> {
    let mut certificates = rustls_native_certs::load_native_certs().certs;
    certificates.retain(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
    let pem = |certificate: &CertificateDer<'_>| {
        let text = STANDARD.encode(certificate);
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    };
    certificates.iter().map(pem).collect::<String>().into()
}

/// What to do about a connection that failed because of TLS.
fn tls_advice(error: &sqlx::Error) -> Option<&'static str> {
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
            "; enable TLS in the server (ssl = on), or accept that others on the network can read the password: sslmode=disable in \
             the URL",
        );
    }
    let rustls::Error::InvalidCertificate(why) = cause? else {
        return None;
    };
    Some(match why {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "; connect by a name that the certificate is for"
        }
        CertificateError::UnknownIssuer => {
            "; its certificate was issued by an authority that this machine does not trust: name the authority's certificate with \
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
    use super::*;

    #[test]
    fn an_address_is_shown_without_user_password_and_settings() {
        let url = "postgres://me:s3c%2Fret@db.example:5432/limits?password=other&sslmode=require";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.to_string(), "postgres://db.example:5432/limits");
        let shown = address.without_secrets("no: s3c/ret, s3c%2Fret and other");
        assert_eq!(shown, "no: ***, *** and ***");
    }

    #[test]
    fn an_unknown_url_is_rejected_without_repeating_it() {
        for url in ["mysql://me:secret@host/x", "secret", "", "se cret://x"] {
            let Err(error) = Address::parse(url) else {
                panic!("{url} was accepted")
            };
            assert!(!error.to_string().contains("secret"), "{error}");
            assert!(
                error.to_string().contains("expected sqlite:path"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_database_in_memory_is_rejected() {
        for url in ["sqlite::memory:", "sqlite:", "sqlite://x?mode=memory"] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
        let relative = Address::parse("sqlite:a.db").unwrap();
        assert_eq!(relative.to_string(), "sqlite:a.db");
        let absolute = Address::parse("sqlite:///tmp/a.db").unwrap();
        assert_eq!(absolute.kind, DatabaseKind::Sqlite);
    }

    use std::str::FromStr as _;

    /// How the driver will connect. The environment of tests demands nothing.
    fn mode(url: &str) -> String {
        let options = PgConnectOptions::from_str(url).unwrap();
        format!("{:?}", encrypted(options, url).unwrap().get_ssl_mode())
    }

    #[test]
    fn a_remote_server_is_verified_unless_the_url_forbids_it() {
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
    fn a_database_on_this_machine_needs_no_certificate() {
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
    fn the_driver_uses_the_mode_of_the_url() {
        let url = "postgres://u:p@db/x?sslmode=disable";
        let options = PgConnectOptions::from_str("postgres://u:p@db/x").unwrap();
        let options = encrypted(options, url).unwrap();
        assert!(matches!(options.get_ssl_mode(), PgSslMode::Disable));
    }

    #[test]
    fn the_driver_connects_to_the_host_of_the_url() {
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
            assert_eq!(Encryption::of_url(url).host(), host, "{url}");
        }
    }

    #[test]
    fn the_driver_reads_the_authorities_of_this_machine() {
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
