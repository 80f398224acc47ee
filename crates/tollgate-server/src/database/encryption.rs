//! The encryption of connections to PostgreSQL, as [`Encryption`] demands it of the driver.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tollgate_config::encryption::{Encryption, SslMode};

fn driver_mode(mode: SslMode) -> PgSslMode {
    match mode {
        SslMode::Disable => PgSslMode::Disable,
        SslMode::Prefer => PgSslMode::Prefer,
        SslMode::Require => PgSslMode::Require,
        SslMode::VerifyCa => PgSslMode::VerifyCa,
        SslMode::VerifyFull => PgSslMode::VerifyFull,
    }
}

/// Options of the driver for this URL, encrypted as it and the environment say, or as is safe if they say nothing.
pub(super) fn encrypted(options: PgConnectOptions, url: &str) -> Result<PgConnectOptions, String> {
    encrypted_by(options, Encryption::of(url))
}

fn encrypted_by(options: PgConnectOptions, said: Encryption) -> Result<PgConnectOptions, String> {
    let host = options.get_host().trim_matches(['[', ']']).to_owned();
    if options.get_socket().is_some() || host.starts_with('/') {
        // Nobody listens in on a socket file, and servers offer no TLS there.
        return Ok(options.ssl_mode(PgSslMode::Disable));
    }
    // Where the driver connects to is what counts.
    let said = said.at(&host);
    let mode = driver_mode(said.mode()?);
    let is_verified = matches!(mode, PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    // The name in a certificate has no brackets.
    let options = options.host(&host).ssl_mode(mode);
    Ok(match is_verified && !said.has_root_cert_file() {
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
    fn the_driver_uses_the_mode_that_was_warned_of() {
        let url = "postgres://u:p@db/x?sslmode=disable";
        let options = PgConnectOptions::from_str("postgres://u:p@db/x").unwrap();
        let options = encrypted_by(options, Encryption::of(url)).unwrap();
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
            assert_eq!(Encryption::of_url(url).host(), host, "{url}");
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
