//! A request on its way to a server.

use http::{Extensions, HeaderValue, Request};
use tollgate_tower::answer::Dialect;

use super::head::{self, Asker};
use super::upload::Upload;

pub(super) struct Outgoing {
    request: Request<Upload>,
    /// Whether its caller named a host.
    has_callers_host: bool,
}

impl Outgoing {
    pub(super) fn new(request: Request<Upload>) -> Self {
        Self {
            request,
            has_callers_host: false,
        }
    }

    /// A caller's request, which is made one that can be [sent on](head::forward). What its caller understands, and whether it asks for a
    /// WebSocket.
    pub(super) fn forward(&mut self, asker: &Asker<'_>) -> (Dialect, bool) {
        let forwarded = head::forward(&mut self.request, asker);
        self.has_callers_host = forwarded.has_host;
        (forwarded.dialect, forwarded.is_websocket)
    }

    pub(super) fn request(&self) -> &Request<Upload> {
        &self.request
    }

    pub(super) fn extensions_mut(&mut self) -> &mut Extensions {
        self.request.extensions_mut()
    }

    pub(super) fn has_callers_host(&self) -> bool {
        self.has_callers_host
    }

    pub(super) fn set_host(&mut self, host: &HeaderValue) {
        head::set_host(&mut self.request, host);
    }

    /// The form in which HTTP/1.1 wants it.
    pub(super) fn for_http1(&mut self) {
        head::for_http1(&mut self.request);
    }

    /// Back from the form of HTTP/2, if it was not sent.
    pub(super) fn leaves_http2(&mut self) {
        head::from_http2(&mut self.request);
    }

    pub(super) fn into_request(self) -> Request<Upload> {
        self.request
    }
}
