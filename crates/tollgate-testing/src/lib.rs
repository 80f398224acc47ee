//! What the tests of several crates share. Not published.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test without its server is to stop at once"
)]

pub mod log;
pub mod redis_server;
