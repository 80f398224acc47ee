//! HTTP for Tollgate's gateway: listeners, HTTP/1 and HTTP/2, TLS, and a reverse proxy. It knows nothing of limits.
//!
//! A [`server`] reads requests and passes them to a [`Handler`](server::Handler); a [`Proxy`](proxy::Proxy) forwards requests
//! to upstreams. What happens between the two is up to the program.

pub mod body;
mod descriptors;
pub mod file_watch;
pub mod headers;
pub mod proxy;
pub mod server;
pub mod timeout;
pub mod tls;
