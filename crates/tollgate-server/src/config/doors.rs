//! Where the program listens, and what stands behind the gateway.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::gateway::{Front, front};
use super::secret::Secret;
use crate::document::reading::{Fields, Place, shown, text};
use crate::document::{Problems, Spot};

pub(super) const GATEWAY: &[&str] = &[
    "listen",
    "upstreams",
    "workers",
    "tls",
    "max_connections",
    "connections_per_address",
    "head_timeout",
    "idle_timeout",
    "body_timeout",
    "send_timeout",
    "max_head",
    "max_body",
    "max_streams",
    "drain",
    "access_log",
    "access_log_file",
];
pub(super) const UPSTREAM: &[&str] = &["path", "to"];
pub(super) const SERVICE: &[&str] = &["listen"];
pub(super) const ADMIN: &[&str] = &["listen", "token"];

/// The reverse proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What callers may do.
    pub front: Front,
    /// Where requests go, by the beginning of their path. At least one.
    pub upstreams: Vec<Upstream>,
}

/// Servers that answer the requests of a part of the paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// What paths begin with; `/` for all. The longest that fits counts.
    pub path: String,
    /// The servers, each `http://host[:port]` or `https://host[:port]`. At least one.
    pub to: Vec<String>,
}

/// The decision service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Where it listens.
    pub listen: SocketAddr,
}

/// Dashboard, API and metrics for the operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who has it may do everything; `None` only where no other machine can connect.
    pub token: Option<Secret>,
}

pub(super) fn gateway(place: &Place<'_>, problems: &mut Problems) -> Option<Gateway> {
    let fields = Fields::of(place, GATEWAY, problems)?;
    let listen = fields.or("listen", ([127, 0, 0, 1], 8080).into(), problems, listen);
    let front = front(&fields, problems);
    let upstreams = fields.required(
        "upstreams",
        "upstreams: [{ path: /, to: [\"http://127.0.0.1:3000\"] }]",
        problems,
        upstreams,
    )?;
    Some(Gateway {
        listen,
        front,
        upstreams,
    })
}

fn upstreams(place: &Place<'_>, problems: &mut Problems) -> Option<Vec<Upstream>> {
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

fn upstream(place: &Place<'_>, problems: &mut Problems) -> Option<Upstream> {
    let fields = Fields::of(place, UPSTREAM, problems)?;
    let path = fields.or("path", "/".to_owned(), problems, |place, problems| {
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
    });
    let to = fields.required("to", "to: [\"http://127.0.0.1:3000\"]", problems, |place, problems| {
        let items = place.items("addresses such as \"http://127.0.0.1:3000\"", problems)?;
        if items.is_empty() {
            place.error(problems, "this list is empty; expected at least one address such as \"http://127.0.0.1:3000\"");
        }
        Some(items.iter().filter_map(|item| server(item, problems)).collect())
    })?;
    Some(Upstream { path, to })
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

pub(super) fn service(place: &Place<'_>, problems: &mut Problems) -> Option<Service> {
    let fields = Fields::of(place, SERVICE, problems)?;
    let listen = fields.or("listen", ([127, 0, 0, 1], 8081).into(), problems, listen);
    Some(Service { listen })
}

pub(super) fn admin(place: &Place<'_>, problems: &mut Problems) -> Option<Admin> {
    let fields = Fields::of(place, ADMIN, problems)?;
    let listen = fields.or("listen", ([127, 0, 0, 1], 8082).into(), problems, listen);
    let token = fields.optional("token", problems, token);
    if !fields.has("token") && !is_loopback(listen.ip()) {
        problems
            .error(
                fields.spot_of("listen"),
                "other machines can connect here, and the admin interface has no token",
            )
            .help("add token: \"${TOLLGATE_ADMIN_TOKEN}\", or listen on 127.0.0.1");
    }
    Some(Admin { listen, token })
}

/// Shorter ones can be guessed.
const SHORTEST_TOKEN: usize = 16;

fn token(place: &Place<'_>, problems: &mut Problems) -> Option<Secret> {
    let scalar = place.scalar("a token", problems)?;
    let token = &scalar.text;
    let length = token.chars().count();
    let wrong = if length < SHORTEST_TOKEN {
        format!("the token has {length} characters; it needs at least {SHORTEST_TOKEN}")
    } else if length > 1_024 || !token.chars().all(|c| c.is_ascii_graphic()) {
        "the token has to be at most 1,024 letters, digits and signs, without spaces".to_owned()
    } else {
        return Some(Secret::new(token.clone(), !scalar.is_from_environment()));
    };
    place
        .error(problems, wrong)
        .help("make one with: openssl rand -hex 32");
    None
}

fn listen(place: &Place<'_>, problems: &mut Problems) -> Option<SocketAddr> {
    let expected = "an address and a port such as 127.0.0.1:8080";
    let scalar = place.scalar(expected, problems)?;
    if let Ok(address) = scalar.text.parse::<SocketAddr>() {
        return Some(address);
    }
    let got = shown(scalar);
    let problem = place.error(problems, format!("{got} is not {expected}"));
    if scalar.is_from_environment() {
        return None;
    }
    let bare = scalar.text.strip_prefix(':').unwrap_or(&scalar.text);
    if let Ok(port) = bare.parse::<u16>() {
        problem.help(format!(
            "127.0.0.1:{port} for this machine alone, 0.0.0.0:{port} for everybody"
        ));
    } else if let Some(port) = scalar.text.strip_prefix("localhost:") {
        problem.help(format!("write 127.0.0.1:{}", port.escape_debug()));
    } else if scalar.text.parse::<IpAddr>().is_ok() {
        problem.help("say the port as well");
    }
    None
}

/// Two that listen at one address; only the first could.
pub(super) fn same_address(doors: &[(&str, Option<SocketAddr>, Spot)], problems: &mut Problems) {
    for (nth, (_, listen, spot)) in doors.iter().enumerate() {
        let Some(listen) = listen.filter(|listen| listen.port() > 0) else {
            continue;
        };
        let earlier = doors.get(..nth).unwrap_or_default();
        let first = earlier.iter().find(|(_, other, _)| *other == Some(listen));
        if let Some((name, _, first)) = first {
            problems
                .error(
                    spot.clone(),
                    format!("{name} listens at this address already"),
                )
                .help("give each a port of its own")
                .also(first.at, "the first is here");
        }
    }
}

pub(super) fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}
