//! Whose certificates are believed behind the gateway. They are always verified, with the host's name.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::config::{Protocol, Upstream};

/// Why servers cannot be spoken to over TLS.
#[derive(Debug)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

/// How to speak TLS with the servers of an upstream; `None` if none of them wants it.
pub(super) fn of(upstream: &Upstream) -> Result<Option<Arc<ClientConfig>>, TlsError> {
    if !(upstream.to.iter()).any(|server| server.starts_with("https://")) {
        return Ok(None);
    }
    let roots = match &upstream.ca {
        Some(file) => roots_of_file(file)?,
        None => roots_of_system()?,
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = match upstream.protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    Ok(Some(Arc::new(config)))
}

fn roots_of_file(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // None is left out: each was tried.
    roots.add_parsable_certificates(vouching(file)?);
    Ok(roots)
}

/// The certificates in a file, each of which can vouch for servers.
pub(crate) fn vouching(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
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
