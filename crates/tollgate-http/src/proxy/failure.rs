//! Why a request got no response from an upstream. What the client is told names no server; the log has the details.

use std::fmt;

use http::StatusCode;

/// Why a request got no response from an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
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
    CallerSlow,
    /// The request body is malformed.
    CallerBody,
    /// The request body is too large.
    CallerBodyTooLarge,
}

impl Failure {
    /// Those that can happen once an upstream is found, by their names in metrics.
    pub(super) const NAMED: [(Self, &'static str); 14] = [
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
        (Self::CallerSlow, "caller_slow"),
        (Self::CallerBody, "caller_body"),
        (Self::CallerBodyTooLarge, "caller_body_too_large"),
    ];

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
            Self::CallerSlow => StatusCode::REQUEST_TIMEOUT,
            Self::BadHost | Self::CallerBody => StatusCode::BAD_REQUEST,
            Self::CallerBodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    /// Whether it speaks against the server that was asked.
    pub(super) fn is_the_servers(self) -> bool {
        matches!(
            self,
            Self::Unreachable
                | Self::ConnectTimeout
                | Self::Tls
                | Self::Closed
                | Self::Garbled
                | Self::ResponseTimeout
        )
    }

    /// What to tell the client.
    #[must_use]
    pub fn detail(self) -> &'static str {
        match self {
            Self::NoUpstream => "nothing is served at this path",
            Self::Connect => "CONNECT is not forwarded",
            Self::BadHost => "the host of the request is none",
            Self::NoneHealthy => "no server for this path is well at the moment",
            Self::Busy => "all servers for this path have as many requests as they may",
            Self::NoDescriptors => "the gateway has too many connections at the moment",
            Self::Unreachable => "the server for this path could not be reached",
            Self::ConnectTimeout => "the server for this path could not be reached in time",
            Self::Tls => "no trusted connection to the server for this path could be made",
            Self::Closed => "the server for this path ended the connection before it answered",
            Self::Garbled => "what the server for this path answered is not HTTP",
            Self::LongHead => {
                "the server for this path answered with more than 256 header fields, or with too many bytes of them"
            }
            Self::ResponseTimeout => "the server for this path did not answer in time",
            Self::CallerSlow => "the body of the request did not come in time",
            Self::CallerBody => "the body of the request could not be read",
            Self::CallerBodyTooLarge => "the body of the request is too large",
        }
    }
}

/// For the log, behind the name of a server.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMED.iter().find(|(failure, _)| failure == self);
        f.write_str(name.map_or("not forwarded", |(_, name)| name))
    }
}
