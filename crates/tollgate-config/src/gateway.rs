//! The gateway: what its clients may do, and its upstreams: which servers get the requests of which paths.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::{Pattern, parse_host};
use tollgate_http::headers::{OverrideHeaders, Underscores};
use tollgate_http::proxy::{HealthCheck, HostHeader, Protocol, UpstreamConfig};
use tollgate_http::tls::TlsFiles;

use super::listeners::{ConnectionLimits, WaitingLimits, listen};
use super::values::{DAY, HOUR, MILLISECOND, MINUTE, SECOND, file};
use crate::document::Location;
use crate::document::reading::{
    Fields, Input, boolean, choice, duration, map, number, or_word, size, text,
};

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
    /// Handling of headers with other characters than letters, digits and hyphens in their names.
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

/// Maximum number of servers of an upstream. The proxy notes which it has tried in the bits of one number.
const MAX_SERVERS: usize = 64;

pub(super) fn upstreams(input: &Input<'_>) -> Option<Vec<UpstreamConfig>> {
    let items = input.items("upstreams")?;
    if items.is_empty() {
        input
            .error("a gateway without upstreams cannot forward requests")
            .help("add one: - { path: /, to: [\"http://127.0.0.1:3000\"] }");
    }
    let mut known: HashMap<String, Location> = HashMap::new();
    let mut upstreams = Vec::new();
    for item in items {
        let Some(upstream) = map(upstream)(&item) else {
            continue;
        };
        if let Some(first) = known.get(&upstream.path) {
            item.error("a second upstream for the same path")
                .help("put all its servers into one `to` list")
                .related(first.span, "the first is here");
        } else {
            known.insert(upstream.path.clone(), item.location());
            upstreams.push(upstream);
        }
    }
    Some(upstreams)
}

fn upstream(fields: &Fields<'_>) -> Option<UpstreamConfig> {
    let mut path = "/".to_owned();
    fields.set("path", &mut path, prefix);
    let to = fields.required("to", "to: [\"http://127.0.0.1:3000\"]", servers);
    let mut upstream = UpstreamConfig::new(path, to.clone().unwrap_or_default());
    let words = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    fields.set("protocol", &mut upstream.protocol, choice(&words));
    let words = [
        ("keep", HostHeader::Keep),
        ("upstream", HostHeader::Upstream),
    ];
    fields.set("host", &mut upstream.host, choice(&words));
    upstream.ca = fields.read("ca", file("the path of a file"));
    let is_tls = |server: &String| server.starts_with("https://");
    if upstream.ca.is_some() && !upstream.to.is_empty() && !upstream.to.iter().any(is_tls) {
        fields
            .error_at("ca", "none of the servers uses TLS")
            .help("write https:// in `to`, or remove `ca`");
    }
    let short = duration(MILLISECOND..=MINUTE);
    let or_none = or_word("none", None, |input| {
        duration(MILLISECOND..=DAY)(input).map(Some)
    });
    fields.set("connect_timeout", &mut upstream.connect_timeout, &short);
    fields.set("response_timeout", &mut upstream.response_timeout, &or_none);
    fields.set("idle_timeout", &mut upstream.idle_timeout, &or_none);
    fields.set("tunnel_timeout", &mut upstream.tunnel_timeout, &or_none);
    fields.set("retries", &mut upstream.retries, number(0..=10));
    fields.set("keepalive", &mut upstream.keepalive, number(0..=10_000));
    let long = duration(SECOND..=DAY);
    fields.set("keepalive_timeout", &mut upstream.keepalive_timeout, long);
    let count = number(1..=1_000_000);
    fields.set("max_connections", &mut upstream.max_connections, count);
    fields.set("failures", &mut upstream.failures, number(1..=1_000));
    fields.set("set_aside", &mut upstream.set_aside, &short);
    upstream.health = fields.read("health", map(health));
    to.map(|_| upstream)
}

fn health(fields: &Fields<'_>) -> Option<HealthCheck> {
    let path = fields.required("path", "path: /healthz", |input| {
        let expected = "a path such as /healthz";
        text(1_024, expected)(input)?;
        input.parse(expected, |path| {
            let is_plain = path.chars().all(|c| c.is_ascii_graphic() && c != '#');
            (path.starts_with('/') && is_plain).then(|| path.to_owned())
        })
    });
    let mut check = HealthCheck {
        path: path.clone().unwrap_or_default(),
        every: Duration::from_secs(5),
        timeout: SECOND,
    };
    let time = duration(Duration::from_millis(10)..=HOUR);
    fields.set("every", &mut check.every, &time);
    fields.set("timeout", &mut check.timeout, &time);
    path.map(|_| check)
}

fn prefix(input: &Input<'_>) -> Option<String> {
    let path = text(1_024, "a path such as /v1")(input)?;
    let is_plain = |c: char| c.is_ascii_graphic() && !"{}?#*".contains(c);
    if !path.starts_with('/') || !path.chars().all(is_plain) || path.contains("//") {
        let help = "it includes all paths below, so no {…} or * is needed";
        return input.reject_value("the beginning of a path such as / or /v1", help);
    }
    // "/v1/" and "/v1" are the same prefix.
    let trimmed = path.trim_end_matches('/');
    Some(if trimmed.is_empty() { "/" } else { trimmed }.to_owned())
}

fn servers(input: &Input<'_>) -> Option<Vec<String>> {
    let expected = "addresses such as \"http://127.0.0.1:3000\"";
    let items = input.items(expected)?;
    if items.is_empty() {
        input.error(format!("this list is empty; expected {expected}"));
    }
    if items.len() > MAX_SERVERS {
        let count = items.len();
        input.error(format!(
            "an upstream has at most {MAX_SERVERS} servers, not {count}"
        ));
    }
    Some(items.iter().filter_map(server).collect())
}

/// `http://host[:port]`.
fn server(input: &Input<'_>) -> Option<String> {
    let expected = "an address such as http://127.0.0.1:3000";
    let text = &*input.scalar(expected)?.text;
    let help = match text.split_once("://") {
        Some(("http" | "https", rest)) => {
            let host = rest.strip_suffix('/').unwrap_or(rest);
            if host.contains('@') {
                "an upstream has no user and password; remove them"
            } else if host.contains(['/', '?', '#']) {
                "only scheme, host and port: requests keep their own path"
            } else if parse_host(host).is_ok() && !host.trim_end_matches('0').ends_with(':') {
                return Some(text.trim_end_matches('/').to_owned());
            } else {
                "write a host and a port: http://api.internal:3000"
            }
        }
        Some(_) => "only http:// and https:// are supported",
        None => "begin it with http:// or https://",
    };
    input.reject_value(expected, help)
}
