//! One server behind a path: where it is, how it does, and how much it has to do. All threads share it.

use std::sync::Arc;

use http::HeaderValue;
use http::uri::{Authority, Scheme};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::ProxyError;
use super::config::{Protocol, UpstreamConfig};
use super::health::Health;
use super::slots::Slots;

pub(super) struct Server {
    /// As it was configured, for the log.
    pub(super) name: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) scheme: Scheme,
    pub(super) authority: HeaderValue,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub(super) config: Arc<UpstreamConfig>,
    /// Whether usual exchanges take the fast path.
    pub(super) fast_path: bool,
    pub(super) health: Health,
    /// For requests under way, each with a connection of its own over HTTP/1.1.
    pub(super) slots: Arc<Slots>,
}

impl Server {
    pub(super) fn new(
        name: &str,
        config: &Arc<UpstreamConfig>,
        tls: Option<&Arc<ClientConfig>>,
        fast_path: bool,
    ) -> Result<Self, ProxyError> {
        let wrong = || ProxyError::Address(name.to_owned());
        let (scheme, authority) = name.split_once("://").ok_or_else(wrong)?;
        let parsed: Authority = authority.parse().map_err(|_| wrong())?;
        let host = parsed.host().trim_matches(['[', ']']).to_owned();
        let is_tls = scheme == "https";
        let tls = match (is_tls, tls) {
            (true, Some(tls)) => {
                let name = ServerName::try_from(host.clone()).map_err(|_| wrong())?;
                Some((Arc::clone(tls), name))
            }
            _ => None,
        };
        Ok(Self {
            name: name.to_owned(),
            port: parsed.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            host,
            scheme: if is_tls { Scheme::HTTPS } else { Scheme::HTTP },
            authority: HeaderValue::from_str(authority).map_err(|_| wrong())?,
            tls,
            fast_path,
            health: Health::new(config),
            config: Arc::clone(config),
            slots: Slots::new(config.max_connections),
        })
    }

    pub(super) fn wants_http2(&self) -> bool {
        self.config.protocol == Protocol::Http2
    }
}
