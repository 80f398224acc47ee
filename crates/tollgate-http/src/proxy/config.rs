//! The settings of a proxy and its upstreams.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::headers::ReservedNames;

/// What a proxy has to know of the listener in front of it.
#[derive(Clone)]
pub struct ProxySettings {
    /// Whether clients use TLS.
    pub is_tls: bool,
    /// Whether to add a `Via` header to requests.
    pub via: bool,
    /// Whether usual HTTP/1.1 exchanges take the [fast path](super::fast_path).
    pub fast_path: bool,
    /// Headers that mean something to the limiter: no trailer of a request may have such a name.
    pub reserved: ReservedNames,
}

impl Default for ProxySettings {
    fn default() -> Self {
        Self {
            is_tls: false,
            via: false,
            fast_path: true,
            reserved: Arc::new(|_| false),
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
