//! Requests through the gateway: the program before an upstream, with clients that send exactly what a test says.

mod clients;
mod crowd;
mod denials;
mod forwarding;
mod headers;
mod http2;
mod identity;
mod lifecycle;
mod log;
mod malformed;
mod names;
mod preflights;
mod queue;
mod requests;
mod rotation;
mod slow;
mod stop;
mod store;
mod tls;
mod tunnels;
mod wire;

use tollgate_testing::Gateway;

/// A decision service beside the gateway, which shows and resets what was used.
const SERVICE: &str = "service: { listen: 127.0.0.1:0, token: a-token-of-the-test }";
const AUTHORIZATION: &str = "authorization: Bearer a-token-of-the-test";

/// Resets the limits of 127.0.0.1 through the [`SERVICE`].
fn reset(gateway: &Gateway) {
    let response = gateway.post("/v1/reset", &[AUTHORIZATION], "{\"ip\":\"127.0.0.1\"}");
    assert_eq!(response.status, 200, "{response:?}");
}
