//! The servers of one path, their settings, and which of them gets the next request.
//!
//! Of two that are picked at random, the one with fewer requests in flight. Servers that are set aside or fail their checks are left
//! out. If all are set aside, the one whose time is over first is tried all the same, because it may well be back; if all fail
//! their checks, none is.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::HeaderValue;
use http::uri::{Authority, Scheme};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::time::Instant;

use super::error::ProxyError;
use super::error::{ProxyMetrics, UpstreamMetrics};
use super::health::{FailureEffect, ServerHealth};
use super::slots::RequestSlots;
use crate::tls::client_config;

pub(super) struct Upstream {
    pub(super) config: Arc<UpstreamConfig>,
    pub(super) servers: Vec<Arc<Server>>,
    pub(super) metrics: UpstreamMetrics,
    /// How many servers are unhealthy. While there is none, they need not be looked at one by one.
    unhealthy: AtomicUsize,
}

/// One server: its address, its health, and its requests in flight.
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
    pub(super) health: ServerHealth,
    /// For requests in flight, each with a connection of its own over HTTP/1.1.
    pub(super) slots: Arc<RequestSlots>,
}

impl Server {
    fn new(
        name: &str,
        config: &Arc<UpstreamConfig>,
        tls: Option<&Arc<ClientConfig>>,
        fast_path: bool,
    ) -> Result<Self, ProxyError> {
        let malformed = || ProxyError::Address(name.to_owned());
        let (scheme, authority) = name.split_once("://").ok_or_else(malformed)?;
        let parsed: Authority = authority.parse().map_err(|_| malformed())?;
        let host = parsed.host().trim_matches(['[', ']']).to_owned();
        let (scheme, default_port, tls) = match (scheme, tls) {
            ("https", Some(tls)) => {
                let name = ServerName::try_from(host.clone()).map_err(|_| malformed())?;
                (Scheme::HTTPS, 443, Some((Arc::clone(tls), name)))
            }
            _ => (Scheme::HTTP, 80, None),
        };
        Ok(Self {
            name: name.to_owned(),
            port: parsed.port_u16().unwrap_or(default_port),
            host,
            scheme,
            authority: HeaderValue::from_str(authority).map_err(|_| malformed())?,
            tls,
            fast_path,
            health: ServerHealth::new(config),
            config: Arc::clone(config),
            slots: RequestSlots::new(config.max_connections),
        })
    }

    pub(super) fn wants_http2(&self) -> bool {
        self.config.protocol == Protocol::Http2
    }
}

impl Upstream {
    pub(super) fn new(
        config: &UpstreamConfig,
        metrics: &ProxyMetrics,
        fast_path: bool,
    ) -> Result<Self, ProxyError> {
        let config = Arc::new(config.clone());
        let wants_tls = (config.to.iter()).any(|server| server.starts_with("https://"));
        let with_http2 = config.protocol == Protocol::Http2;
        let tls = wants_tls.then(|| client_config(config.ca.as_deref(), with_http2));
        let tls = tls.transpose()?;
        let server = |name: &String| Server::new(name, &config, tls.as_ref(), fast_path);
        let servers = (config.to.iter())
            .map(|name| server(name).map(Arc::new))
            .collect::<Result<_, _>>()?;
        let upstream = Self {
            metrics: metrics.of(&config.path),
            config,
            servers,
            unhealthy: AtomicUsize::new(0),
        };
        upstream.count_unhealthy();
        Ok(upstream)
    }

    pub(super) fn is_contended(&self) -> bool {
        self.servers.iter().any(|server| server.slots.are_scarce())
    }

    /// The index of the server to try next. `tried` has a bit for each that was tried already.
    pub(super) fn choose(&self, tried: u64) -> Option<usize> {
        if tried == 0 && self.unhealthy.load(Relaxed) == 0 {
            return self.less_busy(self.servers.len(), |nth| nth);
        }
        let now = Instant::now();
        let is_candidate = |(nth, server): &(usize, &Arc<Server>)| {
            tried & (1 << nth) == 0 && server.health.passes_checks()
        };
        let candidates = self.servers.iter().enumerate().filter(is_candidate);
        let candidates: Vec<_> = candidates.collect();
        let probed = (candidates.iter()).find(|(_, server)| server.health.begin_probe(now));
        if let Some((nth, _)) = probed {
            return Some(*nth);
        }
        let aside = |(nth, server): &(usize, &Arc<Server>)| (server.health.aside_until(), *nth);
        let (healthy, aside): (Vec<_>, Vec<_>) =
            (candidates.iter().map(aside)).partition(|(until, _)| until.is_none());
        let healthy = self.less_busy(healthy.len(), |nth| {
            healthy.get(nth).map_or(0, |(_, nth)| *nth)
        });
        healthy.or_else(|| Some(aside.into_iter().min()?.1))
    }

    /// Of two among so many, the one with fewer requests in flight.
    fn less_busy(&self, count: usize, at: impl Fn(usize) -> usize) -> Option<usize> {
        if count < 2 {
            return (count == 1).then(|| at(0));
        }
        let one = fastrand::usize(..count);
        let other = (one + fastrand::usize(1..count)) % count;
        let busy = |nth: &usize| self.servers.get(*nth).map(|server| server.slots.in_use());
        [at(one), at(other)].into_iter().min_by_key(busy)
    }

    /// Notes that a server did not respond to a request that was sent at this time, or responded that it cannot.
    pub(super) fn note_failure(
        &self,
        server: &Server,
        sent_at: Instant,
        failure: &str,
        error: &str,
    ) {
        let effect = server.health.note_failure(sent_at, Instant::now());
        let (upstream, server) = (&*self.config.path, &*server.name);
        match effect {
            FailureEffect::First => {
                tracing::warn!(upstream, server, failure, error, "a server failed");
            }
            FailureEffect::SetAside(time) => {
                let seconds = time.as_secs_f64();
                tracing::warn!(
                    upstream,
                    server,
                    failure,
                    error,
                    seconds,
                    "set a server aside"
                );
                self.count_unhealthy();
            }
            FailureEffect::None => {
                tracing::debug!(upstream, server, failure, error, "a server failed");
            }
        }
    }

    pub(super) fn note_success(&self, server: &Server) {
        let Some(is_logged) = server.health.note_success() else {
            return;
        };
        self.count_unhealthy();
        if is_logged {
            let (upstream, server) = (&*self.config.path, &*server.name);
            tracing::info!(upstream, server, "a server has recovered");
        }
    }

    pub(super) fn count_unhealthy(&self) {
        let healthy = self
            .servers
            .iter()
            .filter(|server| server.health.is_healthy());
        let healthy = healthy.count();
        self.unhealthy.store(self.servers.len() - healthy, Relaxed);
        let healthy = i64::try_from(healthy).unwrap_or(i64::MAX);
        self.metrics.healthy.set(healthy);
    }
}

/// What a proxy has to know of the listener in front of it.
#[derive(Clone)]
pub struct ProxySettings {
    /// Whether clients use TLS.
    pub is_tls: bool,
    /// Whether to add a `Via` header to requests.
    pub via: bool,
    /// Whether usual HTTP/1.1 exchanges take the [fast path](super::fast_path).
    pub fast_path: bool,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            is_tls: false,
            via: false,
            fast_path: true,
        }
    }
}

/// The servers that answer requests for a part of the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamConfig {
    /// Prefix of the paths, by whole segments; `/` for all. The longest match counts.
    pub path: String,
    /// The servers, each `http://host[:port]` or `https://host[:port]`. At least one, at most 64.
    pub to: Vec<String>,
    /// The protocol to speak with them.
    pub protocol: Protocol,
    /// The `Host` that they receive.
    pub host: HostHeader,
    /// A PEM file with the authorities that verify their certificates; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// How long connecting may take, TLS included; and how long a request waits for a slot, if all are in use.
    pub connect_timeout: Duration,
    /// How long the head of a response may take, from the last byte of the request on; `None`: no limit.
    pub response_timeout: Option<Duration>,
    /// How long the next part of a response may take; `None`: no limit.
    pub idle_timeout: Option<Duration>,
    /// How long both sides of a WebSocket may be silent; `None`: no limit.
    pub tunnel_timeout: Option<Duration>,
    /// Number of other servers that are tried if a request never reached the first.
    pub retries: u32,
    /// Maximum number of idle connections to each server, for each thread.
    pub keepalive: usize,
    /// How long a connection may be idle.
    pub keepalive_timeout: Duration,
    /// Maximum number of concurrent requests to each server, which over HTTP/1.1 is the number of connections in use.
    pub max_connections: usize,
    /// Number of consecutive failures that set a server aside.
    pub failures: u32,
    /// How long it is set aside at first; twice as long each time it fails again, up to a minute.
    pub set_aside: Duration,
    /// How to check servers, if they are checked.
    pub health: Option<HealthCheck>,
}

/// The protocol to speak with servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: for `http://` without negotiation (h2c), for `https://` if the server agrees, else HTTP/1.1.
    Http2,
}

/// The `Host` that servers receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostHeader {
    /// The client's.
    #[default]
    Keep,
    /// Their own, from their address.
    Upstream,
}

/// How servers are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The path to request with `GET`. Any status from 200 to 399 is healthy.
    pub path: String,
    /// How often.
    pub every: Duration,
    /// How long the response may take.
    pub timeout: Duration,
}

impl UpstreamConfig {
    /// Servers for the paths that begin with `path`, with defaults for everything else.
    pub fn new(path: impl Into<String>, to: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            path: path.into(),
            to: to.into_iter().map(Into::into).collect(),
            protocol: Protocol::default(),
            host: HostHeader::default(),
            ca: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Some(Duration::from_secs(30)),
            idle_timeout: Some(Duration::from_secs(60)),
            tunnel_timeout: Some(Duration::from_secs(3_600)),
            retries: 1,
            keepalive: 256,
            keepalive_timeout: Duration::from_secs(60),
            max_connections: 1_024,
            failures: 3,
            set_aside: Duration::from_secs(1),
            health: None,
        }
    }
}
