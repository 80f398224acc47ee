//! Where the program listens, and what stands behind the gateway.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tollgate::Pattern;
use tollgate_http::proxy::UpstreamConfig;

use super::connections::{ConnectionLimits, WaitingLimits};
use super::gateway::{Front, front};
use super::secret::Secret;
use super::upstreams::upstreams;
use crate::document::reading::{Fields, Place, duration, shown, text, truth};
use crate::document::{Problems, Spot};

pub(super) const GATEWAY: &[&str] = &[
    "listen",
    "upstreams",
    "workers",
    "tls",
    "max_connections",
    "connections_per_address",
    "max_waiting",
    "waiting_per_address",
    "head_timeout",
    "idle_timeout",
    "body_timeout",
    "send_timeout",
    "max_head",
    "max_body",
    "max_streams",
    "max_age",
    "max_delay",
    "preflights",
    "underscores",
    "override_headers",
    "via",
    "fast_path",
    "drain",
    "access_log",
    "access_log_file",
];
pub(super) const SERVICE: &[&str] = &[
    "listen",
    "token",
    "max_connections",
    "connections_per_address",
    "max_waiting",
    "waiting_per_address",
    "rls",
];
pub(super) const RLS: &[&str] = &["domains", "overrides", "deadline"];
pub(super) const ADMIN: &[&str] = &[
    "listen",
    "token",
    "max_connections",
    "connections_per_address",
];

const SERVICE_CONNECTIONS: ConnectionLimits = ConnectionLimits {
    max_connections: 10_000,
    per_address: 1_000,
};
const SERVICE_WAITING: WaitingLimits = WaitingLimits {
    max_waiting: None,
    per_address: 100,
};
/// Operators need few connections.
const ADMIN_CONNECTIONS: ConnectionLimits = ConnectionLimits {
    max_connections: 256,
    per_address: 64,
};

/// The reverse proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What callers may do.
    pub front: Front,
    /// Where requests go, by the beginning of their path. At least one.
    pub upstreams: Vec<UpstreamConfig>,
}

impl Gateway {
    /// The same with at most this many connections.
    #[must_use]
    pub fn within(&self, max_connections: usize) -> Self {
        Self {
            front: self.front.within(max_connections),
            ..self.clone()
        }
    }

    /// The paths at which the upstream changes.
    pub(super) fn boundaries(&self) -> impl Iterator<Item = Pattern> {
        let paths = self.upstreams.iter().map(|upstream| &*upstream.path);
        let below = paths.filter(|path| *path != "/");
        // What is no pattern is a path that no request has in its normal form.
        below.filter_map(|path| format!("{path}/{{*rest}}").parse().ok())
    }
}

/// The decision service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who has it may say who is calling; `None` only where no other machine can connect.
    pub token: Option<Secret>,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
    /// How many requests of forward-auth may wait in queues.
    pub waiting: WaitingLimits,
    /// What Envoys may say.
    pub rls: Rls,
}

impl Service {
    /// The same with at most this many connections.
    #[must_use]
    pub fn within(&self, max_connections: usize) -> Self {
        Self {
            connections: self.connections.within(max_connections),
            ..self.clone()
        }
    }
}

/// How calls in Envoy's protocol are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rls {
    /// The domains that are limited here; all if none is named.
    pub domains: Vec<String>,
    /// Whether the limit that a descriptor brings takes the place of the rules'.
    pub overrides: bool,
    /// How long a call may wait for Redis.
    pub deadline: Duration,
}

impl Default for Rls {
    fn default() -> Self {
        Self {
            domains: Vec::new(),
            overrides: false,
            // Envoy waits 20 ms unless it is configured, and needs some of that for the way there and back.
            deadline: Duration::from_millis(15),
        }
    }
}

/// Dashboard, API and metrics for the operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who has it may do everything; `None` only where no other machine can connect.
    pub token: Option<Secret>,
    /// How many connections there may be.
    pub connections: ConnectionLimits,
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

pub(super) fn service(place: &Place<'_>, problems: &mut Problems) -> Option<Service> {
    let fields = Fields::of(place, SERVICE, problems)?;
    let listen = fields.or("listen", ([127, 0, 0, 1], 8081).into(), problems, listen);
    let token = fields.optional("token", problems, token);
    let connections = ConnectionLimits::read(&fields, SERVICE_CONNECTIONS, problems);
    let waiting = WaitingLimits::read(&fields, SERVICE_WAITING, problems);
    let rls = fields.or("rls", Rls::default(), problems, rls);
    if !fields.has("token") && !is_loopback(listen.ip()) {
        problems
            .error(
                fields.spot_of("listen"),
                "other machines can connect here, and the decision service has no token",
            )
            .help("add token: \"${TOLLGATE_SERVICE_TOKEN}\", or listen on 127.0.0.1");
    }
    Some(Service {
        listen,
        token,
        connections,
        waiting,
        rls,
    })
}

fn rls(place: &Place<'_>, problems: &mut Problems) -> Option<Rls> {
    let fields = Fields::of(place, RLS, problems)?;
    let domains = fields.or("domains", Vec::new(), problems, |place, problems| {
        let items = place.items("domains such as envoy", problems)?;
        if items.is_empty() {
            place
                .error(problems, "no domain is limited, so nothing is")
                .help("name the domain of your Envoys, or leave the field out for all");
        }
        let read = text(255, "a domain such as envoy");
        Some(
            (items.iter())
                .filter_map(|item| read(item, problems))
                .collect(),
        )
    });
    let default = Rls::default();
    let time = duration(Duration::from_millis(1)..=Duration::from_secs(60));
    Some(Rls {
        domains,
        overrides: fields.or("overrides", default.overrides, problems, truth),
        deadline: fields.or("deadline", default.deadline, problems, time),
    })
}

pub(super) fn admin(place: &Place<'_>, problems: &mut Problems) -> Option<Admin> {
    let fields = Fields::of(place, ADMIN, problems)?;
    let listen = fields.or("listen", ([127, 0, 0, 1], 8082).into(), problems, listen);
    let token = fields.optional("token", problems, token);
    let connections = ConnectionLimits::read(&fields, ADMIN_CONNECTIONS, problems);
    if !fields.has("token") && !is_loopback(listen.ip()) {
        problems
            .error(
                fields.spot_of("listen"),
                "other machines can connect here, and the admin interface has no token",
            )
            .help("add token: \"${TOLLGATE_ADMIN_TOKEN}\", or listen on 127.0.0.1");
    }
    Some(Admin {
        listen,
        token,
        connections,
    })
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
        return Some(Secret::configured(
            token.clone(),
            !scalar.is_from_environment(),
        ));
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
