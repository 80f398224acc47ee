//! The test kit of all crates. Not published.
//!
//! - [`program`]: the built program in a folder of its own, run once or serving;
//! - [`gateway`]: the program as a gateway with an [`Upstream`] behind it;
//! - [`upstream`]: servers for a proxy to talk to, in words of HTTP or in bytes;
//! - [`client`]: HTTP clients, blocking and asynchronous, that send exactly what a test says;
//! - [`http2`]: HTTP/2 clients and frames;
//! - [`Process`]: a child process that ends with its owner;
//! - [`ports`]: free ports that no other test takes;
//! - [`servers`]: real Redis and PostgreSQL servers;
//! - [`SmallDisk`]: a disk that is soon full;
//! - [`wait`]: waiting for events with a timeout;
//! - [`log`]: a log in memory;
//! - [`malformed`]: requests that servers may read in different ways.
//!
//! Everything listens on loopback, on free ports or on sockets in temporary folders, and ends with the test.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a test whose parts fail must stop at once"
)]

pub mod client;
pub mod gateway;
pub mod http2;
pub mod log;
pub mod malformed;
pub mod ports;
pub mod process;
pub mod program;
pub mod servers;
pub mod small_disk;
pub mod upstream;
pub mod wait;

pub use client::{Connection, Response};
pub use gateway::Gateway;
pub use process::Process;
pub use program::{Program, Running};
pub use small_disk::SmallDisk;
pub use upstream::Upstream;
pub use wait::TIMEOUT;
