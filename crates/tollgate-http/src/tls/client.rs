//! TLS to upstreams. Their certificates are always verified, with the host's name.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::TlsError;

/// How to speak TLS with upstreams that the authorities in `ca` vouch for, or those of the system.
pub(crate) fn client_config(
    ca: Option<&Path>,
    with_http2: bool,
) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match ca {
        Some(file) => roots_of_file(file)?,
        None => roots_of_system()?,
    };
    let mut config = ClientConfig::builder_with_provider(super::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = match with_http2 {
        false => vec![b"http/1.1".to_vec()],
        true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok(Arc::new(config))
}

fn roots_of_file(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // Each was tried, so none is left out.
    roots.add_parsable_certificates(authorities(file)?);
    Ok(roots)
}

/// The certificates in a file, each of which can vouch for servers.
///
/// # Errors
/// When the file cannot be read or holds something else.
pub fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let name = file.display();
    let certificates: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|error| TlsError(format!("`ca`: {name} cannot be read as PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(TlsError(format!(
            "`ca`: {name} holds no certificate; expected PEM (-----BEGIN CERTIFICATE-----)"
        )));
    }
    for certificate in &certificates {
        (RootCertStore::empty().add(certificate.clone()))
            .map_err(|error| TlsError(format!("`ca`: {name} holds one that is none: {error}")))?;
    }
    Ok(certificates)
}

fn roots_of_system() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (known, _) = roots.add_parsable_certificates(found.certs);
    match known {
        0 => Err(TlsError(
            "the system knows no certificates (package ca-certificates); install them, or name a file in `ca`".to_owned(),
        )),
        _ => Ok(roots),
    }
}
