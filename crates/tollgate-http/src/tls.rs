//! TLS: the certificate of a listener, read from files and reloaded when they change, and the authorities that upstreams are
//! verified by.

mod client;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};

pub use client::authorities;
pub(crate) use client::client_config;

use crate::file_watch::FileWatch;

/// How often the files are looked at where the system does not tell of changes.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What cannot be used as a certificate and its key, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsError(String);

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TlsError {}

/// A certificate and its key, as files in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that lead to one that callers know.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// The certificate of the moment.
#[derive(Debug)]
pub struct Certificate {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    /// What the files held when they were last read, right or wrong.
    seen: parking_lot::Mutex<Seen>,
    current: ArcSwap<CertifiedKey>,
}

/// What the two files hold; `None` for what cannot be read.
type Seen = [Option<Vec<u8>>; 2];

impl Certificate {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be read, hold something else, or do not belong together.
    pub fn read(files: TlsFiles) -> Result<Arc<Self>, TlsError> {
        let provider = provider();
        let seen = contents(&files);
        let current = certified(&files, &provider)?;
        Ok(Arc::new(Self {
            files,
            provider,
            seen: parking_lot::Mutex::new(seen),
            current: ArcSwap::from_pointee(current),
        }))
    }

    /// How to speak TLS with it: HTTP/2 for those who can, or HTTP/1.1.
    ///
    /// # Errors
    /// When the provider of cryptography knows no version of TLS that is safe.
    pub fn server_config(self: &Arc<Self>) -> Result<Arc<ServerConfig>, TlsError> {
        let config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(error.to_string()))?;
        let mut config = config
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// Follows the files for as long as it is polled. What is wrong is logged, and the last good one stays.
    pub async fn follow(&self) {
        let files = [&self.files.cert, &self.files.key].map(|file| FileWatch::of(file));
        loop {
            self.look();
            let [cert, key] = &files;
            tokio::select! {
                () = cert.changed.notified() => {}
                () = key.changed.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    fn look(&self) {
        let now = contents(&self.files);
        if std::mem::replace(&mut *self.seen.lock(), now.clone()) == now {
            return;
        }
        match certified(&self.files, &self.provider) {
            Ok(certified) => {
                self.current.store(Arc::new(certified));
                tracing::info!(file = ?self.files.cert, "the certificate has changed and is in use");
            }
            Err(error) => {
                tracing::error!(%error, "the certificate has changed and cannot be used: the last one stays");
            }
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

/// The provider that the program has chosen; if it has not, it has now, as rustls panics when there are two and none is chosen.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    if let Some(chosen) = CryptoProvider::get_default() {
        return Arc::clone(chosen);
    }
    let ours = rustls::crypto::aws_lc_rs::default_provider();
    // Somebody else may have been faster, which is as good.
    let _ = ours.clone().install_default();
    CryptoProvider::get_default().map_or_else(|| Arc::new(ours), Arc::clone)
}

fn contents(files: &TlsFiles) -> Seen {
    [fs::read(&files.cert).ok(), fs::read(&files.key).ok()]
}

fn certified(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = certificates(&files.cert)?;
    let key = private_key(&files.key, provider)?;
    together(files, chain, key)
}

/// The private key in a file.
pub fn private_key(
    file: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<dyn SigningKey>, TlsError> {
    let key = PrivateKeyDer::from_pem_slice(&read(file)?).map_err(|error| {
        let what = match error {
            rustls::pki_types::pem::Error::NoItemsFound => "holds no private key".to_owned(),
            // Not the error's own words, as they may show what stands in the file.
            _ => "is not a private key in PEM form".to_owned(),
        };
        wrong(file, &what)
    })?;
    (provider.key_provider.load_private_key(key))
        .map_err(|_| wrong(file, "holds a private key of a kind that is not known"))
}

/// A certificate with its key, if it is its key.
pub fn together(
    files: &TlsFiles,
    chain: Vec<CertificateDer<'static>>,
    key: Arc<dyn SigningKey>,
) -> Result<CertifiedKey, TlsError> {
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // That it cannot be told is not wrong.
        Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {
            Ok(certified)
        }
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError(format!(
            "the key in {:?} is not that of the certificate in {:?}",
            files.key, files.cert
        ))),
        Err(error) => Err(wrong(
            &files.cert,
            &format!("does not begin with a certificate that can be used: {error}"),
        )),
    }
}

/// The certificates in a file.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(wrong(file, "holds no certificate in PEM form")),
        Err(_) => Err(wrong(file, "is not a certificate in PEM form")),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|error| TlsError(format!("{file:?} cannot be read: {error}")))
}

fn wrong(file: &Path, what: &str) -> TlsError {
    TlsError(format!("{file:?} {what}"))
}
