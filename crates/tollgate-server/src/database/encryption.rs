//! The encryption of connections to PostgreSQL, set in the driver as [`Encryption`] demands.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, RootCertStore};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tollgate_config::encryption::{Encryption, SslMode};

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
pub(super) fn advice(error: &sqlx::Error) -> Option<&'static str> {
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
    use std::str::FromStr as _;

    use super::*;

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
