//! The upstreams of the gateway: which servers get the requests of which paths.

use std::collections::HashMap;
use std::time::Duration;

use tollgate::parse_host;
use tollgate_http::proxy::{HealthCheck, HostHeader, Protocol, UpstreamConfig};

use super::values::{DAY, HOUR, MILLISECOND, MINUTE, SECOND, file};
use crate::document::Location;
use crate::document::reading::{Fields, Input, choice, duration, map, number, or_word, text};

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
