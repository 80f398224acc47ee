//! Heads of requests that hyper refuses and answers by itself: no service sees them, so whoever keeps count is told here.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;

/// Why a head was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedHead {
    /// It is no head of HTTP/1.
    Malformed,
    /// It has more bytes or fields than it may have.
    TooLong,
    /// Its target alone is longer than any may be.
    TargetTooLong,
}

impl RefusedHead {
    /// `None` if the connection ended for something else.
    pub(super) fn of(error: &hyper::Error) -> Option<Self> {
        match (error.is_parse(), error.is_parse_too_large()) {
            (false, _) => None,
            (true, false) => Some(Self::Malformed),
            // hyper tells the two apart in words alone.
            (true, true) if error.to_string().contains("URI") => Some(Self::TargetTooLong),
            (true, true) => Some(Self::TooLong),
        }
    }

    /// What hyper answers.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::TooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::TooLong | Self::TargetTooLong => "too_long",
        }
    }
}

/// Whoever wants to hear of heads that were refused. Nobody by default.
#[derive(Clone, Default)]
pub struct OnRefusedHead(Option<Arc<Told>>);

type Told = dyn Fn(SocketAddr, RefusedHead) + Send + Sync;

impl OnRefusedHead {
    /// Tells this, with the peer's address.
    pub fn tell(told: impl Fn(SocketAddr, RefusedHead) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(told)))
    }

    pub(super) fn is(&self, peer: SocketAddr, head: RefusedHead) {
        if let Some(told) = &self.0 {
            told(peer, head);
        }
    }
}

impl fmt::Debug for OnRefusedHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnRefusedHead")
            .field(&self.0.is_some())
            .finish()
    }
}
