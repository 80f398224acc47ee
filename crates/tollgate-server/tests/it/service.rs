//! The decision service over real HTTP and gRPC, and other people's gateways that ask it.

mod access;
mod check;
mod decider;
mod forward_auth;
mod openapi;
mod other_gateways;
mod rls;
mod rls_hostile;
mod stores;
mod streams;

use tollgate_testing::{Response, Running};

use crate::kit;

/// The rules of tests that need no others.
const RULES: &str = "
clients: [{ id: merchant_123, plan: pro }]
identity: { trusted_proxies: [127.0.0.1] }
costs: [{ match: { path: \"/reports/{id}\" }, cost: 5 }]
rules:
  - { id: client, per: [client], limit: \"1/h burst 3\" }
  - { id: client, plan: pro, per: [client], limit: \"1/h burst 30\" }
  - { id: region, match: { attributes: { region: eu } }, per: [\"attribute:region\"], limit: \"1/h burst 2\" }
  - { id: watched, per: [client], mode: shadow, limit: \"1/h burst 1\" }
  - { id: charges, match: { methods: [POST], path: /v1/charges }, per: [], limit: \"1/h burst 1\" }
";

/// A service with these rules.
fn standard_service() -> Running {
    kit::service("", RULES)
}

/// The response to a request of Traefik 3 with forwardAuth. By its source it sends the client's headers, and these.
fn traefik(
    service: &Running,
    client: &str,
    method: &str,
    uri: &str,
    client_headers: &[&str],
) -> Response {
    let forwarded = [
        "Host: 127.0.0.1".to_owned(),
        format!("X-Forwarded-For: {client}"),
        format!("X-Forwarded-Method: {method}"),
        format!("X-Forwarded-Uri: {uri}"),
        "X-Forwarded-Proto: https".to_owned(),
        "X-Forwarded-Host: api.example.com".to_owned(),
        "User-Agent: curl".to_owned(),
    ];
    let mut headers: Vec<&str> = forwarded.iter().map(String::as_str).collect();
    headers.extend(client_headers);
    service.get("service", "/v1/forward-auth", &headers)
}
