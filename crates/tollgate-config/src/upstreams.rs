//! What stands behind the gateway: which servers answer which paths, and how patient we are with them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use tollgate_http::proxy::{HealthCheck, HostField, Protocol, UpstreamConfig};

use crate::document::reading::{Fields, Place, choice, duration, number, shown, text};
use crate::document::{Problems, Spot};

pub(super) const UPSTREAM: &[&str] = &[
    "path",
    "to",
    "protocol",
    "host",
    "ca",
    "connect_timeout",
    "response_timeout",
    "idle_timeout",
    "tunnel_timeout",
    "retries",
    "keepalive",
    "keepalive_timeout",
    "max_connections",
    "failures",
    "set_aside",
    "health",
];
pub(super) const HEALTH: &[&str] = &["path", "every", "timeout"];

/// More servers than anybody lists by hand; the proxy notes which it has tried in the bits of one number.
const MOST_SERVERS: usize = 64;

const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn upstreams(place: &Place<'_>, problems: &mut Problems) -> Option<Vec<UpstreamConfig>> {
    let items = place.items("upstreams", problems)?;
    if items.is_empty() {
        place
            .error(
                problems,
                "a gateway without upstreams has nowhere to send requests",
            )
            .help("add one: - { path: /, to: [\"http://127.0.0.1:3000\"] }");
    }
    let mut known: HashMap<String, Spot> = HashMap::new();
    let mut upstreams = Vec::new();
    for item in items {
        let Some(upstream) = upstream(&item, problems) else {
            continue;
        };
        match known.get(&upstream.path) {
            Some(first) => {
                item.error(problems, "a second upstream for the same path")
                    .help("put all its servers into one `to` list")
                    .also(first.at, "the first is here");
            }
            None => {
                known.insert(upstream.path.clone(), item.spot());
                upstreams.push(upstream);
            }
        }
    }
    Some(upstreams)
}

fn upstream(place: &Place<'_>, problems: &mut Problems) -> Option<UpstreamConfig> {
    let fields = Fields::of(place, UPSTREAM, problems)?;
    let path = fields.or("path", "/".to_owned(), problems, prefix);
    let example = "to: [\"http://127.0.0.1:3000\"]";
    // All fields are looked at, also if this one is wrong.
    let to = fields.required("to", example, problems, servers);
    let mut upstream = UpstreamConfig::new(path, to.clone().unwrap_or_default());
    spoken(&fields, &mut upstream, problems);
    waited_for(&fields, &mut upstream, problems);
    counted(&fields, &mut upstream, problems);
    upstream.health = fields.optional("health", problems, health);
    to.map(|_| upstream)
}

/// What is said to the servers, and how.
fn spoken(fields: &Fields<'_>, upstream: &mut UpstreamConfig, problems: &mut Problems) {
    let protocols = [("http1", Protocol::Http1), ("http2", Protocol::Http2)];
    upstream.protocol = fields.or("protocol", upstream.protocol, problems, choice(&protocols));
    let hosts = [("keep", HostField::Keep), ("upstream", HostField::Upstream)];
    upstream.host = fields.or("host", upstream.host, problems, choice(&hosts));
    let ca = fields.optional("ca", problems, text(4_096, "the name of a file"));
    upstream.ca = ca.map(PathBuf::from);
    let is_tls = |server: &String| server.starts_with("https://");
    if upstream.ca.is_some() && !upstream.to.is_empty() && !upstream.to.iter().any(is_tls) {
        problems
            .error(
                fields.spot_of("ca"),
                "none of the servers is spoken to over TLS",
            )
            .help("write https:// in `to`, or leave `ca` out");
    }
}

fn waited_for(fields: &Fields<'_>, upstream: &mut UpstreamConfig, problems: &mut Problems) {
    let short = || duration(Duration::from_millis(1)..=Duration::from_secs(60));
    let long = || duration(Duration::from_secs(1)..=DAY);
    upstream.connect_timeout = fields.or(
        "connect_timeout",
        upstream.connect_timeout,
        problems,
        short(),
    );
    upstream.response_timeout = fields.or(
        "response_timeout",
        upstream.response_timeout,
        problems,
        patience,
    );
    upstream.idle_timeout = fields.or("idle_timeout", upstream.idle_timeout, problems, patience);
    upstream.tunnel_timeout = fields.or(
        "tunnel_timeout",
        upstream.tunnel_timeout,
        problems,
        patience,
    );
    upstream.keepalive_timeout = fields.or(
        "keepalive_timeout",
        upstream.keepalive_timeout,
        problems,
        long(),
    );
    upstream.set_aside = fields.or("set_aside", upstream.set_aside, problems, short());
}

fn counted(fields: &Fields<'_>, upstream: &mut UpstreamConfig, problems: &mut Problems) {
    let mut count = |name, default: usize, range| {
        let said = fields.optional(name, problems, number(range));
        said.map_or(default, |n| usize::try_from(n).unwrap_or(default))
    };
    upstream.keepalive = count("keepalive", upstream.keepalive, 0..=10_000);
    upstream.max_connections = count("max_connections", upstream.max_connections, 1..=1_000_000);
    let mut few = |name, default: u32, range| {
        let said = fields.optional(name, problems, number(range));
        said.map_or(default, |n| u32::try_from(n).unwrap_or(default))
    };
    upstream.retries = few("retries", upstream.retries, 0..=10);
    upstream.failures = few("failures", upstream.failures, 1..=1_000);
}

fn health(place: &Place<'_>, problems: &mut Problems) -> Option<HealthCheck> {
    let fields = Fields::of(place, HEALTH, problems)?;
    let time = || duration(Duration::from_millis(10)..=Duration::from_secs(3_600));
    let path = fields.required("path", "path: /healthz", problems, |place, problems| {
        let path = text(1_024, "a path such as /healthz")(place, problems)?;
        let is_path = path.starts_with('/') && path.chars().all(|c| c.is_ascii_graphic());
        if !is_path || path.contains('#') {
            let got = place.peek().map(shown).unwrap_or_default();
            place.error(problems, format!("{got} is not a path such as /healthz"));
            return None;
        }
        Some(path)
    });
    let every = fields.or("every", Duration::from_secs(5), problems, time());
    let timeout = fields.or("timeout", Duration::from_secs(1), problems, time());
    Some(HealthCheck {
        path: path?,
        every,
        timeout,
    })
}

/// A time, or none.
fn patience(place: &Place<'_>, problems: &mut Problems) -> Option<Option<Duration>> {
    match place.peek() {
        Some(scalar) if scalar.text == "none" => Some(None),
        _ => duration(Duration::from_millis(1)..=DAY)(place, problems).map(Some),
    }
}

fn prefix(place: &Place<'_>, problems: &mut Problems) -> Option<String> {
    let path = text(1_024, "a path such as /v1")(place, problems)?;
    let is_plain = |c: char| c.is_ascii_graphic() && !"{}?#*".contains(c);
    if !path.starts_with('/') || !path.chars().all(is_plain) || path.contains("//") {
        let got = place.peek().map(shown).unwrap_or_default();
        place
            .error(
                problems,
                format!("{got} is not the beginning of a path; expected / or /v1"),
            )
            .help("all paths that begin with it are meant, so no {…} or * is needed");
        return None;
    }
    // "/v1/" and "/v1" are the same beginning.
    let trimmed = path.trim_end_matches('/');
    Some(if trimmed.is_empty() { "/" } else { trimmed }.to_owned())
}

fn servers(place: &Place<'_>, problems: &mut Problems) -> Option<Vec<String>> {
    let items = place.items("addresses such as \"http://127.0.0.1:3000\"", problems)?;
    if items.is_empty() {
        place.error(
            problems,
            "this list is empty; expected at least one address such as \"http://127.0.0.1:3000\"",
        );
    }
    if items.len() > MOST_SERVERS {
        let message = format!(
            "these are {} servers; at most {MOST_SERVERS} can stand behind a path",
            items.len()
        );
        place.error(problems, message);
    }
    Some(
        items
            .iter()
            .filter_map(|item| server(item, problems))
            .collect(),
    )
}

/// `http://host[:port]`.
fn server(place: &Place<'_>, problems: &mut Problems) -> Option<String> {
    let expected = "an address such as http://127.0.0.1:3000";
    let scalar = place.scalar(expected, problems)?;
    let url = scalar.text.as_str();
    let got = shown(scalar);
    let help = match url.split_once("://") {
        Some(("http" | "https", rest)) => {
            let host = rest.strip_suffix('/').unwrap_or(rest);
            if host.contains('@') {
                "an upstream has no user and password; leave them out"
            } else if host.contains(['/', '?', '#']) {
                "only scheme, host and port: requests keep their own path"
            } else if is_host_and_port(host) {
                return Some(url.trim_end_matches('/').to_owned());
            } else {
                "write a host and, if need be, a port: http://api.internal:3000"
            }
        }
        Some(_) => "only http:// and https:// can be forwarded to",
        None => "begin it with http:// or https://",
    };
    place
        .error(problems, format!("{got} is not {expected}"))
        .help(help);
    None
}

fn is_host_and_port(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let v6 = host.strip_prefix('[').and_then(|v6| v6.strip_suffix(']'));
    let is_host = match v6 {
        Some(v6) => v6.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
            !host.is_empty() && host.len() <= 253 && host.chars().all(allowed)
        }
    };
    is_host && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}
