//! Headers on their way through a gateway: which of them go on, and which are for this hop alone.

mod connection;
mod filter;
mod names;
mod request_id;
mod seen;

use std::sync::Arc;

use http::HeaderName;

pub use connection::drop_named_by_connection;
pub(crate) use filter::{
    CLAIMS, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO, filter_request_trailers,
    filter_response_trailers, remove_hop_by_hop, remove_seen_hop_by_hop, tokens,
};
pub use names::{HeaderNames, OVERRIDES, OverrideHeaders, Underscores};
pub use request_id::request_id;
pub(crate) use seen::Seen;

/// The header with a request's id, in requests and responses.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Whether a header of this name means something to the limiter, so that no trailer of a request may have it.
pub type ReservedNames = Arc<dyn Fn(&HeaderName) -> bool + Send + Sync>;
