//! The program, run as people run it: the real binary in a folder of its own, with real servers and clients.
//!
//! | tests of | are in |
//! |---|---|
//! | commands | `cli` |
//! | rules, clients and the audit trail in a database | `database` |
//! | requests through the gateway | `gateway` |
//! | the decision service, and other people's gateways that ask it | `service` |
//! | what is loaded again while the program runs | `reload` |
//! | starting, stopping, health, metrics, traces, deployment | `operations` |
//! | what the documentation shows | `documented` |
//!
//! The proxy and the listeners have tests of their own in `tollgate-http`, the configuration in `tollgate-config`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "all of this is test code, helpers included"
)]

mod cli;
mod database;
mod documented;
mod examples;
mod gateway;
mod kit;
mod operations;
mod reload;
mod service;
