//! TLS: the certificate of a listener, reloaded when its files change, and the authorities that verify upstreams.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};

use crate::file_watch::{FileWatch, read_again, read_settled};

/// How often the files are read where the system does not report changes.
const POLL_EVERY: Duration = Duration::from_secs(5);

/// Why a certificate or a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl TlsError {
    fn of(file: &Path, what: impl Display) -> Self {
        Self(format!("{file:?} {what}"))
    }
}

/// A certificate and its key, as files in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate ones.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// The contents of both files; `None` for what cannot be read.
    fn contents(&self) -> [Option<Vec<u8>>; 2] {
        [fs::read(&self.cert).ok(), fs::read(&self.key).ok()]
    }

    fn certified_key(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let chain = certificates(&self.cert)?;
        certified_key(self, chain, private_key(&self.key, provider)?)
    }
}

/// The certificate of a listener, which follows its files.
#[derive(Debug)]
pub struct Certificate {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    /// What was read last, whether it could be used or not.
    last_read: Mutex<[Option<Vec<u8>>; 2]>,
    current: ArcSwap<CertifiedKey>,
}

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be read, hold something else, or do not belong together.
    pub fn read(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let provider = provider();
        let last_read = Mutex::new(files.contents());
        let current = ArcSwap::from_pointee(files.certified_key(&provider)?);
        Ok(Arc::new(Self {
            files,
            provider,
            last_read,
            current,
        }))
    }

    /// A configuration that always serves the current certificate, over HTTP/2 or HTTP/1.1.
    ///
    /// # Errors
    /// When the cryptography provider supports no safe version of TLS.
    pub fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(format!("TLS cannot be set up: {error}")))?;
        let resolver = Arc::clone(self) as Arc<dyn ResolvesServerCert>;
        let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Follows the files for as long as it is polled. Errors are logged, and the last good certificate stays in use.
    pub async fn follow(&self) {
        let [cert, key] = [&self.files.cert, &self.files.key].map(|file| FileWatch::of(file));
        loop {
            self.reload_if_changed().await;
            tokio::select! {
                () = cert.changed.notified() => {}
                () = key.changed.notified() => {}
                () = tokio::time::sleep(POLL_EVERY) => {}
            }
        }
    }

    async fn reload_if_changed(&self) {
        let read = || self.files.contents();
        let first = read();
        if *self.last_read.lock() == first {
            return;
        }
        // Certificate and key are written one after the other.
        let mut contents = read_settled(first, read).await;
        let mut reloaded = self.files.certified_key(&self.provider);
        if reloaded.is_err()
            && let Some(next) = read_again(&contents, read).await
        {
            contents = next;
            reloaded = self.files.certified_key(&self.provider);
        }
        *self.last_read.lock() = contents;
        let file = &self.files.cert;
        match reloaded {
            Ok(certified) => {
                self.current.store(Arc::new(certified));
                tracing::info!(?file, "reloaded the certificate");
            }
            Err(error) => {
                tracing::error!(?file, %error, "failed to reload the certificate; keeping the last one");
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

/// The cryptography provider of the process. Chooses one if the program has not: rustls panics if several are linked and none
/// is chosen.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    let chosen = CryptoProvider::get_default().cloned();
    chosen.unwrap_or_else(|| {
        let default = rustls::crypto::aws_lc_rs::default_provider();
        // This fails only if another thread has just chosen one, which is as good.
        let _ = default.clone().install_default();
        Arc::new(default)
    })
}

/// The private key in a file.
pub fn private_key(
    file: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<dyn SigningKey>, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::of(file, "holds no private key"),
        // The error itself may quote the file.
        _ => TlsError::of(file, "is not a private key in PEM form"),
    })?;
    (provider.key_provider.load_private_key(key))
        .map_err(|_| TlsError::of(file, "holds a private key of a kind that is not known"))
}

/// A certificate with its key, if they belong together.
pub fn certified_key(
    files: &TlsFiles,
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
) -> Result<CertifiedKey, TlsError> {
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // Some kinds of keys cannot be compared.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError(format!(
            "the key in {:?} is not that of the certificate in {:?}",
            files.key, files.cert
        ))),
        Err(error) => {
            let what = format!("does not begin with a certificate that can be used: {error}");
            Err(TlsError::of(&files.cert, what))
        }
    }
}

/// The certificates in a file.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let what = match chain {
        Ok(chain) if !chain.is_empty() => return Ok(chain),
        Ok(_) => "holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)",
        Err(_) => "is not a certificate in PEM form (-----BEGIN CERTIFICATE-----)",
    };
    Err(TlsError::of(file, what))
}

/// The certificates in a file, each of which can verify servers.
pub fn authorities(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let of_ca = |error: TlsError| TlsError(format!("`ca`: {error}"));
    let certificates = certificates(file).map_err(of_ca)?;
    for certificate in &certificates {
        let added = RootCertStore::empty().add(certificate.clone());
        added.map_err(|error| {
            let what = format!("holds a certificate that cannot be used: {error}");
            of_ca(TlsError::of(file, what))
        })?;
    }
    Ok(certificates)
}

/// A configuration for upstreams whose certificates are verified by the authorities in `ca`, or by those of the system.
pub(crate) fn client_config(
    ca: Option<&Path>,
    with_http2: bool,
) -> Result<Arc<ClientConfig>, TlsError> {
    let certificates = match ca {
        Some(file) => authorities(file)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(certificates).0 == 0 {
        let missing = "the system has no certificate authorities; install the package ca-certificates, or name a file in `ca`";
        return Err(TlsError(missing.to_owned()));
    }
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if with_http2 {
        config.alpn_protocols.insert(0, b"h2".to_vec());
    }
    Ok(Arc::new(config))
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|error| TlsError::of(file, format!("cannot be read: {error}")))
}
