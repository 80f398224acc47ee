//! Servers spoken to over TLS: whose certificates are believed, and how to show our own.

use std::fmt;

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};

use super::connection::tcp;
use super::error::RedisError;

/// How to speak TLS with servers at `rediss://…`. Certificates are always verified, with the host's name.
///
/// ```
/// use tollgate::store::{RedisConfig, RedisIdentity, RedisTls};
///
/// # let [ca, certificate, key] = [String::new(), String::new(), String::new()];
/// let tls = RedisTls::default().ca(ca).identity(RedisIdentity::new(certificate, key));
/// let config = RedisConfig::default().tls(tls);
/// # let _ = config;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a configuration does nothing until a store has it"]
#[non_exhaustive]
pub struct RedisTls {
    /// The certificates (PEM) of whoever may vouch for a server. `None`: those the system believes.
    pub ca: Option<String>,
    /// What to show to servers that ask who we are.
    pub identity: Option<RedisIdentity>,
}

impl RedisTls {
    /// Sets [`ca`](Self::ca).
    pub fn ca(mut self, ca: impl Into<String>) -> Self {
        self.ca = Some(ca.into());
        self
    }

    /// Sets the [`identity`](Self::identity).
    pub fn identity(mut self, identity: RedisIdentity) -> Self {
        self.identity = Some(identity);
        self
    }
}

/// A certificate and its key, to show to servers that ask for one: see [`RedisTls`].
///
/// ```
/// use tollgate::store::RedisIdentity;
///
/// let identity = RedisIdentity::new("-----BEGIN CERTIFICATE-----…", "-----BEGIN PRIVATE KEY-----…");
/// assert_eq!(format!("{identity:?}"), "RedisIdentity { .. }");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisIdentity {
    /// The certificate (PEM), followed by those that lead to one the server knows.
    pub certificate: String,
    /// Its private key (PEM).
    pub key: String,
}

impl RedisIdentity {
    /// A certificate (PEM), followed by those that lead to one the server knows, and its private key (PEM).
    #[must_use]
    pub fn new(certificate: impl Into<String>, key: impl Into<String>) -> Self {
        Self {
            certificate: certificate.into(),
            key: key.into(),
        }
    }
}

impl fmt::Debug for RedisIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisIdentity").finish_non_exhaustive()
    }
}

#[cfg(not(feature = "tls"))]
const NOT_BUILT_IN: &str = "the address asks for TLS, which is not built in; enable the feature `tls` of the crate tollgate";

/// How servers of one address are spoken to: all of them in the same way.
#[derive(Clone)]
pub(super) enum Transport {
    Plain,
    #[cfg(feature = "tls")]
    Tls(redis::TlsCertificates),
}

impl Transport {
    /// What the address asks for by its scheme: TLS, if that ends in an `s`.
    pub(super) fn of(url: &str, tls: &RedisTls) -> Result<Self, RedisError> {
        let scheme = url.split_once(':').map_or(url, |(scheme, _)| scheme);
        let family = scheme.split_once('+').map_or(scheme, |(family, _)| family);
        match family {
            "rediss" | "valkeys" => Self::secured(url, tls),
            _ => Ok(Self::Plain),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn secured(_url: &str, _tls: &RedisTls) -> Result<Self, RedisError> {
        Err(RedisError::Config(NOT_BUILT_IN.to_owned()))
    }

    #[cfg(feature = "tls")]
    fn secured(url: &str, tls: &RedisTls) -> Result<Self, RedisError> {
        // The library would take `#insecure` if anybody in the program switched that on.
        if url.contains('#') {
            return Err(RedisError::Config(
                "the address has a part behind `#`; certificates are always verified, there is no switch for that".to_owned(),
            ));
        }
        checked::certificates(tls).map(Self::Tls)
    }

    pub(super) fn is_tls(&self) -> bool {
        !matches!(self, Self::Plain)
    }

    pub(super) fn scheme(&self) -> &'static str {
        if self.is_tls() { "rediss" } else { "redis" }
    }

    /// A client for an address in this scheme.
    pub(super) fn client(&self, info: ConnectionInfo) -> Result<Client, RedisError> {
        let info = info.set_tcp_settings(tcp());
        match self {
            Self::Plain => Ok(Client::open(info)?),
            #[cfg(feature = "tls")]
            Self::Tls(certificates) => Ok(Client::build_with_tls(info, certificates.clone())?),
        }
    }

    /// A client for a server that another one named.
    pub(super) fn client_of(
        &self,
        host: String,
        port: u16,
        login: &RedisConnectionInfo,
    ) -> Result<Client, RedisError> {
        let address = match self.is_tls() {
            false => ConnectionAddr::Tcp(host, port),
            true => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
        };
        let info = address.into_connection_info()?;
        self.client(info.set_redis_settings(login.clone()))
    }
}

#[cfg(feature = "tls")]
mod checked {
    use rustls::crypto::{CryptoProvider, aws_lc_rs};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::sign::CertifiedKey;

    use super::{RedisError, RedisIdentity, RedisTls};

    /// The certificates as the library takes them. What cannot be right is refused here, not at the first connection.
    pub(super) fn certificates(tls: &RedisTls) -> Result<redis::TlsCertificates, RedisError> {
        if let Some(ca) = &tls.ca {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in chain(ca, "tls.ca")? {
                let wrong = |error| wrong("tls.ca", &format!("holds one that is none: {error}"));
                roots.add(certificate).map_err(wrong)?;
            }
        }
        let provider = provider();
        if let Some(identity) = &tls.identity {
            let chain = chain(&identity.certificate, "tls.identity.certificate")?;
            // What the library says of a key that it cannot read may show some of it.
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())
                .map_err(|_| wrong("tls.identity.key", "is not a private key in PEM"))?;
            CertifiedKey::from_der(chain, key, &provider).map_err(|error| {
                let why = format!("does not go with its certificate: {error}");
                wrong("tls.identity.key", &why)
            })?;
        }
        let shown = |identity: &RedisIdentity| redis::ClientTlsConfig {
            client_cert: identity.certificate.clone().into_bytes(),
            client_key: identity.key.clone().into_bytes(),
        };
        Ok(redis::TlsCertificates {
            client_tls: tls.identity.as_ref().map(shown),
            root_cert: tls.ca.clone().map(String::into_bytes),
        })
    }

    fn chain(pem: &str, name: &str) -> Result<Vec<CertificateDer<'static>>, RedisError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(name, &format!("is not PEM: {error}")))?;
        match chain.is_empty() {
            true => Err(wrong(
                name,
                "holds no certificate; use PEM (-----BEGIN CERTIFICATE-----)",
            )),
            false => Ok(chain),
        }
    }

    fn wrong(name: &str, why: &str) -> RedisError {
        RedisError::Config(format!("{name} {why}"))
    }

    /// The one this program chose. If it did not, ours is from now on: with two in a program, whoever connects without a
    /// choice would panic.
    fn provider() -> std::sync::Arc<CryptoProvider> {
        if CryptoProvider::get_default().is_none() {
            // Another thread may have been faster, which is as good.
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let ours = || std::sync::Arc::new(aws_lc_rs::default_provider());
        CryptoProvider::get_default().cloned().unwrap_or_else(ours)
    }
}
