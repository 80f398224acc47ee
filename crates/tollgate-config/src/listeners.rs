//! The listeners of the decision service and of operators, and what all listeners have in common.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::secret::Secret;
use super::values::{MILLISECOND, MINUTE};
use crate::document::reading::{Fields, Input, boolean, duration, number, text};

/// Maximum numbers of connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all.
    pub max_connections: usize,
    /// Of one address that is not a trusted proxy; 0 for any number.
    pub per_address: usize,
}

/// Maximum numbers of requests that wait in the queues of leaky buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingLimits {
    /// In all; `None` for half of the maximum number of connections.
    pub max_waiting: Option<usize>,
    /// Of one address; 0 for any number.
    pub per_address: usize,
}

/// The decision service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Required to name a client; `None` only if no other machine can connect.
    pub token: Option<Secret>,
    /// Maximum numbers of connections.
    pub connections: ConnectionLimits,
    /// Maximum numbers of forward-auth requests in queues.
    pub waiting: WaitingLimits,
    /// Envoy's protocol.
    pub rls: Rls,
}

/// Answers to calls in Envoy's protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rls {
    /// The domains that are limited; all if empty.
    pub domains: Vec<String>,
    /// Whether the limit in a descriptor replaces those of the rules.
    pub overrides: bool,
    /// Maximum time that a call waits for Redis.
    pub deadline: Duration,
}

/// Dashboard, API and metrics for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Required for everything; `None` only if no other machine can connect.
    pub token: Option<Secret>,
    /// Maximum numbers of connections.
    pub connections: ConnectionLimits,
}

impl ConnectionLimits {
    /// Reads `max_connections` and `connections_per_address`.
    pub(super) fn read(&mut self, fields: &Fields<'_>) {
        let count = number(10..=10_000_000);
        fields.set("max_connections", &mut self.max_connections, count);
        let count = number(0..=10_000_000);
        fields.set("connections_per_address", &mut self.per_address, count);
    }

    /// The same limits with at most this many connections. The share of one address stays the same.
    #[must_use]
    pub fn within(self, max_connections: usize) -> Self {
        if max_connections >= self.max_connections {
            return self;
        }
        let share = self.per_address.saturating_mul(max_connections) / self.max_connections.max(1);
        Self {
            max_connections,
            // 0 would be any number.
            per_address: share.max(usize::from(self.per_address > 0)),
        }
    }
}

impl WaitingLimits {
    /// Reads `max_waiting` and `waiting_per_address`.
    pub(super) fn read(&mut self, fields: &Fields<'_>) {
        self.max_waiting = fields.read("max_waiting", number(1..=10_000_000));
        let count = number(0..=10_000_000);
        fields.set("waiting_per_address", &mut self.per_address, count);
    }

    /// Maximum number of waiting requests at a listener with this many connections.
    #[must_use]
    pub fn max_waiting_with(self, max_connections: usize) -> usize {
        self.max_waiting.unwrap_or(max_connections / 2)
    }
}

impl Service {
    /// The same service with at most this many connections.
    #[must_use]
    pub fn within(&self, max_connections: usize) -> Self {
        Self {
            connections: self.connections.within(max_connections),
            ..self.clone()
        }
    }
}

pub(super) fn service(fields: &Fields<'_>) -> Option<Service> {
    let variable = "TOLLGATE_SERVICE_TOKEN";
    let (listen, token) = protected(fields, 8081, "the decision service", variable);
    let mut service = Service {
        listen,
        token,
        connections: ConnectionLimits {
            max_connections: 10_000,
            per_address: 1_000,
        },
        waiting: WaitingLimits {
            max_waiting: None,
            per_address: 100,
        },
        rls: Rls {
            domains: Vec::new(),
            overrides: false,
            // Envoy waits 20 ms by default, and needs some of that for the way there and back.
            deadline: Duration::from_millis(15),
        },
    };
    service.connections.read(fields);
    service.waiting.read(fields);
    fields.section("rls", |fields| {
        let (rls, time) = (&mut service.rls, duration(MILLISECOND..=MINUTE));
        fields.set("domains", &mut rls.domains, domains);
        fields.set("overrides", &mut rls.overrides, boolean);
        fields.set("deadline", &mut rls.deadline, time);
    });
    Some(service)
}

pub(super) fn admin(fields: &Fields<'_>) -> Option<Admin> {
    let (listen, token) = protected(fields, 8082, "the admin interface", "TOLLGATE_ADMIN_TOKEN");
    let mut admin = Admin {
        listen,
        token,
        // Operators need few connections.
        connections: ConnectionLimits {
            max_connections: 256,
            per_address: 64,
        },
    };
    admin.connections.read(fields);
    Some(admin)
}

fn domains(input: &Input<'_>) -> Option<Vec<String>> {
    let domains = input.items("domains such as envoy")?;
    if domains.is_empty() {
        input
            .error("an empty list limits no domain")
            .help("name the domain of your Envoys, or remove the field to limit all");
    }
    let domain = text(255, "a domain such as envoy");
    Some(domains.iter().filter_map(domain).collect())
}

/// The address and the token of a listener that needs a token where other machines can connect.
fn protected(
    fields: &Fields<'_>,
    port: u16,
    name: &str,
    variable: &str,
) -> (SocketAddr, Option<Secret>) {
    let mut address = ([127, 0, 0, 1], port).into();
    fields.set("listen", &mut address, listen);
    let token = fields.read("token", token);
    if !fields.has("token") && !address.ip().to_canonical().is_loopback() {
        let message = format!("other machines can connect here, but {name} has no token");
        fields.error_at("listen", message).help(format!(
            "add token: \"${{{variable}}}\", or listen on 127.0.0.1"
        ));
    }
    (address, token)
}

/// Shorter tokens can be guessed.
const MIN_TOKEN: usize = 16;

fn token(input: &Input<'_>) -> Option<Secret> {
    let scalar = input.scalar("a token")?;
    let length = scalar.text.chars().count();
    let wrong = if length < MIN_TOKEN {
        format!("the token has {length} characters; it needs at least {MIN_TOKEN}")
    } else if length > 1_024 || !scalar.text.chars().all(|c| c.is_ascii_graphic()) {
        "the token must be at most 1,024 letters, digits and punctuation marks, without spaces"
            .to_owned()
    } else {
        return Some(Secret::configured(scalar));
    };
    input.reject(wrong, "make one with: openssl rand -hex 32")
}

pub(super) fn listen(input: &Input<'_>) -> Option<SocketAddr> {
    let expected = "an address and a port such as 127.0.0.1:8080";
    if let Ok(address) = input.scalar(expected)?.text.parse() {
        return Some(address);
    }
    let text = input.visible_text();
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    let help = if let Ok(port) = port {
        format!("127.0.0.1:{port} for this machine only, 0.0.0.0:{port} for all machines")
    } else if let Some(port) = text.strip_prefix("localhost:") {
        format!("write 127.0.0.1:{}", port.escape_debug())
    } else if text.parse::<IpAddr>().is_ok() {
        "add the port".to_owned()
    } else {
        String::new()
    };
    input.reject_value(expected, &help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_connections_leave_an_address_the_same_share() {
        let limits = ConnectionLimits {
            max_connections: 10_000,
            per_address: 1_000,
        };
        assert_eq!(limits.within(20_000), limits);
        assert_eq!(limits.within(500).per_address, 50);
        assert_eq!(limits.within(5).per_address, 1);
        let unbounded = ConnectionLimits {
            per_address: 0,
            ..limits
        };
        assert_eq!(unbounded.within(500).per_address, 0);
    }
}
