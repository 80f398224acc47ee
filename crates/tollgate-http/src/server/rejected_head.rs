//! Heads that are rejected while they are read: no handler sees them, so they are counted and logged here.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;

/// Why a head was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectedHead {
    /// It is not a head of HTTP/1.
    Malformed,
    /// It has too many bytes or headers.
    TooLong,
    /// Its target is too long.
    TargetTooLong,
}

impl RejectedHead {
    /// `None` if the connection ended for something else.
    pub(super) fn of(error: &hyper::Error) -> Option<Self> {
        match (error.is_parse(), error.is_parse_too_large()) {
            (false, _) => None,
            (true, false) => Some(Self::Malformed),
            // hyper distinguishes the two by text alone.
            (true, true) if error.to_string().contains("URI") => Some(Self::TargetTooLong),
            (true, true) => Some(Self::TooLong),
        }
    }

    /// The status that it is answered with.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::TooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
        }
    }

    /// The reason as a label: `malformed` or `too_long`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLong | Self::TargetTooLong => "too_long",
        }
    }
}

/// Called for heads that are rejected. Nothing by default.
#[derive(Clone, Default)]
pub struct OnRejectedHead(Option<Arc<Callback>>);

type Callback = dyn Fn(SocketAddr, RejectedHead) + Send + Sync;

impl OnRejectedHead {
    /// Calls this with the peer's address.
    pub fn new(callback: impl Fn(SocketAddr, RejectedHead) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(callback)))
    }

    pub(super) fn call(&self, peer: SocketAddr, head: RejectedHead) {
        if let Some(callback) = &self.0 {
            callback(peer, head);
        }
    }
}

impl fmt::Debug for OnRejectedHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnRejectedHead")
            .field(&self.0.is_some())
            .finish()
    }
}
