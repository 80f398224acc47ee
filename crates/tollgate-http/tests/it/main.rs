//! Listeners and the proxy on real sockets, between clients and upstreams that behave as a test defines.
//!
//! | tests of | are in |
//! |---|---|
//! | routes, headers, bodies and connections through the proxy | `forwarding` |
//! | upstreams that close, stall, send garbage or are unreachable | `faults` |
//! | which server of several gets a request | `health` |
//! | interim responses (1xx) | `interim` |
//! | HTTP/2, gRPC, WebSocket and TLS | `protocols` |
//! | slots for concurrent requests, shared between clients | `shares` |
//! | both fast paths beside hyper, message by message | `generated`, `differential` |
//! | turns between the proxy's fast path and hyper | `fast_path` |
//! | turns between the server's fast path and hyper | `server_fast_path` |
//! | turns between the connections of one thread | `turns` |
//!
//! What the gateway makes of a [`ForwardError`](tollgate_http::proxy::ForwardError) is tested in `tollgate-server`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is test code, helpers included"
)]

mod differential;
mod fast_path;
mod faults;
mod forwarding;
mod generated;
mod health;
mod interim;
mod protocols;
mod proxy;
mod server_fast_path;
mod shares;
mod turns;
