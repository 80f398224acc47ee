//! Why there is no proxy, or no response from an upstream. The response names no server; the log has the details.

use http::StatusCode;

use crate::tls::TlsError;

/// Why there can be no proxy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// This is not the address of a server.
    #[error("{0:?} is not the address of a server; expected http://host:port")]
    Address(String),
    /// Certificates that cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a request got no response from an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardError {
    /// No upstream serves the path.
    NoUpstream,
    /// `CONNECT` is not forwarded.
    Connect,
    /// The host is malformed.
    BadHost,
    /// All servers fail their checks.
    NoneHealthy,
    /// All slots of the servers are in use.
    Busy,
    /// This process has no file descriptors left.
    NoDescriptors,
    /// No connection could be made.
    Unreachable,
    /// No connection could be made in time.
    ConnectTimeout,
    /// The server has no certificate that can be verified.
    Tls,
    /// The connection ended before a response came.
    Closed,
    /// The response is not HTTP.
    Garbled,
    /// The head of the response has too many headers or bytes.
    LongHead,
    /// No response came in time.
    ResponseTimeout,
    /// The client stopped sending the request body.
    ClientBodySlow,
    /// The request body is malformed.
    ClientBody,
    /// The request body is too large.
    ClientBodyTooLarge,
}

impl ForwardError {
    /// Those that can happen once an upstream is found, by their labels in metrics and logs.
    pub(super) const LABELS: [(Self, &'static str); 14] = [
        (Self::BadHost, "bad_host"),
        (Self::NoneHealthy, "none_healthy"),
        (Self::Busy, "busy"),
        (Self::NoDescriptors, "no_descriptors"),
        (Self::Unreachable, "unreachable"),
        (Self::ConnectTimeout, "connect_timeout"),
        (Self::Tls, "tls"),
        (Self::Closed, "closed"),
        (Self::Garbled, "garbled"),
        (Self::LongHead, "long_head"),
        (Self::ResponseTimeout, "response_timeout"),
        (Self::ClientBodySlow, "caller_slow"),
        (Self::ClientBody, "caller_body"),
        (Self::ClientBodyTooLarge, "caller_body_too_large"),
    ];

    pub(super) fn label(self) -> &'static str {
        let label = Self::LABELS.iter().find(|(error, _)| *error == self);
        label.map_or("", |(_, label)| label)
    }

    /// The status to respond with.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::NoUpstream => StatusCode::NOT_FOUND,
            Self::Connect => StatusCode::NOT_IMPLEMENTED,
            Self::NoneHealthy | Self::Busy | Self::NoDescriptors => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreachable | Self::Tls | Self::Closed | Self::Garbled | Self::LongHead => {
                StatusCode::BAD_GATEWAY
            }
            Self::ConnectTimeout | Self::ResponseTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::ClientBodySlow => StatusCode::REQUEST_TIMEOUT,
            Self::BadHost | Self::ClientBody => StatusCode::BAD_REQUEST,
            Self::ClientBodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    /// Whether it counts as a failure of the server.
    pub(super) fn is_of_server(self) -> bool {
        let is_bad_or_late = matches!(self.status().as_u16(), 502 | 504);
        is_bad_or_late && self != Self::LongHead
    }

    /// The detail of the response.
    #[must_use]
    pub fn detail(self) -> &'static str {
        match self {
            Self::NoUpstream => "nothing is served at this path",
            Self::Connect => "CONNECT is not forwarded",
            Self::BadHost => "the request has no valid host",
            Self::NoneHealthy => "no server for this path is healthy",
            Self::Busy => "all servers for this path have reached their maximum of requests",
            Self::NoDescriptors => "the gateway has too many connections",
            Self::Unreachable => "the server for this path could not be reached",
            Self::ConnectTimeout => "the server for this path could not be reached in time",
            Self::Tls => "no trusted connection to the server for this path could be made",
            Self::Closed => "the server for this path closed the connection without a response",
            Self::Garbled => "the response of the server for this path is not HTTP",
            Self::LongHead => "the response has more than 256 headers, or too many bytes of them",
            Self::ResponseTimeout => "the server for this path did not respond in time",
            Self::ClientBodySlow => "the request body did not arrive in time",
            Self::ClientBody => "the request body could not be read",
            Self::ClientBodyTooLarge => "the request body is too large",
        }
    }
}
