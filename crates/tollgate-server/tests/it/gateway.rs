//! Requests through the gateway: the program before an upstream, with clients that send exactly what a test says.

mod crowd;
mod denials;
mod forwarding;
mod headers;
mod identity;
mod log;
mod malformed;
mod names;
mod requests;
mod wire;
