//! The gateway: what its clients may do. Its upstreams are in `upstreams`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::Pattern;
use tollgate_http::headers::{OverrideHeaders, Underscores};
use tollgate_http::proxy::UpstreamConfig;
use tollgate_http::tls::TlsFiles;

use super::listeners::{ConnectionLimits, WaitingLimits, listen};
use super::upstreams::upstreams;
use super::values::{DAY, file};
use crate::document::reading::{Fields, boolean, choice, duration, map, number, size};

/// The reverse proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// What clients may do.
    pub front: Front,
    /// Where requests go, by the prefix of their path. At least one.
    pub upstreams: Vec<UpstreamConfig>,
}

/// What clients of the gateway may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    /// Number of threads; `None` for one per processor.
    pub workers: Option<NonZeroUsize>,
    /// The certificate; `None` for plain HTTP.
    pub tls: Option<TlsFiles>,
    /// Maximum numbers of connections.
    pub connections: ConnectionLimits,
    /// Maximum numbers of requests in queues.
    pub waiting: WaitingLimits,
    /// Maximum time for the TLS handshake and the head of a request.
    pub head_timeout: Duration,
    /// Maximum time between requests on a connection.
    pub idle_timeout: Duration,
    /// Maximum pause within the body of a request.
    pub body_timeout: Duration,
    /// Maximum pause in which a client reads nothing of a response.
    pub send_timeout: Duration,
    /// Maximum size of a request's head in bytes.
    pub max_head: usize,
    /// Maximum size of a request's body in bytes; 0 for any size.
    pub max_body: u64,
    /// Maximum number of concurrent requests on an HTTP/2 connection.
    pub max_streams: u32,
    /// Maximum age of an HTTP/2 connection.
    pub max_age: Duration,
    /// Maximum time that a request waits in a queue.
    pub max_delay: Duration,
    /// Handling of CORS preflights.
    pub preflights: Preflights,
    /// Handling of headers with underscores in their names.
    pub underscores: Underscores,
    /// Handling of headers that replace the method, path or host in some frameworks.
    pub override_headers: OverrideHeaders,
    /// Whether to send upstreams a `Via` header.
    pub via: bool,
    /// Whether ordinary HTTP/1.1 messages take the fast path instead of hyper.
    pub fast_path: bool,
    /// Maximum time for requests in flight at shutdown.
    pub drain: Duration,
    /// Format of the access log.
    pub access_log: AccessLogFormat,
    /// File of the access log; `None` for stdout.
    pub access_log_file: Option<PathBuf>,
}

/// Handling of CORS preflights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preflights {
    /// They are limited like all other requests.
    #[default]
    Charge,
    /// They are forwarded without a limit.
    Pass,
}

/// Format of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// No access log.
    #[default]
    Off,
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Gateway {
    /// The same gateway with at most this many connections.
    #[must_use]
    pub fn within(&self, max_connections: usize) -> Self {
        let mut gateway = self.clone();
        gateway.front.connections = gateway.front.connections.within(max_connections);
        gateway
    }

    /// The paths at which the upstream changes.
    pub(super) fn boundaries(&self) -> impl Iterator<Item = Pattern> {
        let paths = self.upstreams.iter().map(|upstream| &*upstream.path);
        let below_root = paths.filter(|path| *path != "/");
        // A path that is no pattern has no normal form, so no request has it.
        below_root.filter_map(|path| format!("{path}/{{*rest}}").parse().ok())
    }
}

impl Default for Front {
    fn default() -> Self {
        Self {
            workers: None,
            tls: None,
            connections: ConnectionLimits {
                max_connections: 10_000,
                per_address: 1_000,
            },
            waiting: WaitingLimits {
                max_waiting: None,
                per_address: 1_000,
            },
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_secs(60),
            max_head: 32 << 10,
            max_body: 100 << 20,
            max_streams: 100,
            max_age: Duration::from_secs(3_600),
            max_delay: Duration::from_secs(30),
            preflights: Preflights::default(),
            underscores: Underscores::default(),
            override_headers: OverrideHeaders::default(),
            via: false,
            fast_path: true,
            drain: Duration::from_secs(30),
            access_log: AccessLogFormat::Off,
            access_log_file: None,
        }
    }
}

pub(super) fn gateway(fields: &Fields<'_>) -> Option<Gateway> {
    let mut address = ([127, 0, 0, 1], 8080).into();
    fields.set("listen", &mut address, listen);
    let example = "upstreams: [{ path: /, to: [\"http://127.0.0.1:3000\"] }]";
    let upstreams = fields.required("upstreams", example, upstreams);
    Some(Gateway {
        listen: address,
        front: front(fields),
        upstreams: upstreams?,
    })
}

fn front(fields: &Fields<'_>) -> Front {
    let mut front = Front::default();
    let time = duration(Duration::from_millis(10)..=DAY);
    let workers = fields.read("workers", number(1..=1_024));
    front.workers = workers.and_then(NonZeroUsize::new);
    front.tls = fields.read("tls", map(tls));
    front.connections.read(fields);
    front.waiting.read(fields);
    fields.set("head_timeout", &mut front.head_timeout, &time);
    fields.set("idle_timeout", &mut front.idle_timeout, &time);
    fields.set("body_timeout", &mut front.body_timeout, &time);
    fields.set("send_timeout", &mut front.send_timeout, &time);
    fields.set("max_head", &mut front.max_head, size(1 << 10..=1 << 20));
    fields.set("max_body", &mut front.max_body, size(0..=1 << 50));
    fields.set("max_streams", &mut front.max_streams, number(1..=10_000));
    fields.set("max_age", &mut front.max_age, &time);
    fields.set("max_delay", &mut front.max_delay, &time);
    let words = [("charge", Preflights::Charge), ("pass", Preflights::Pass)];
    fields.set("preflights", &mut front.preflights, choice(&words));
    let words = [
        ("drop", Underscores::Drop),
        ("pass", Underscores::Pass),
        ("reject", Underscores::Reject),
    ];
    fields.set("underscores", &mut front.underscores, choice(&words));
    let words = [
        ("pass", OverrideHeaders::Pass),
        ("drop", OverrideHeaders::Drop),
    ];
    let overrides = &mut front.override_headers;
    fields.set("override_headers", overrides, choice(&words));
    fields.set("via", &mut front.via, boolean);
    fields.set("fast_path", &mut front.fast_path, boolean);
    fields.set("drain", &mut front.drain, &time);
    let words = [
        ("off", AccessLogFormat::Off),
        ("text", AccessLogFormat::Text),
        ("json", AccessLogFormat::Json),
    ];
    fields.set("access_log", &mut front.access_log, choice(&words));
    front.access_log_file = fields.read("access_log_file", file("the path of a file"));
    front
}

/// The files are opened when they are used.
fn tls(fields: &Fields<'_>) -> Option<TlsFiles> {
    let cert = file("the path of a certificate in PEM form");
    let cert = fields.required("cert", "cert: /etc/tollgate/cert.pem", cert);
    let key = file("the path of a private key in PEM form");
    let key = fields.required("key", "key: /etc/tollgate/key.pem", key);
    Some(TlsFiles {
        cert: cert?,
        key: key?,
    })
}
