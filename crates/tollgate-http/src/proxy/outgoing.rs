//! A request on its way to a server.

use http::{HeaderValue, Request};
use hyper::upgrade::OnUpgrade;

use super::request_body::RequestBody;
use super::request_head::{self, Forwarding};

pub(super) struct Outgoing {
    request: Request<RequestBody>,
    /// Whether the client sent a host.
    has_client_host: bool,
}

impl Outgoing {
    pub(super) fn new(request: Request<RequestBody>) -> Self {
        Self {
            request,
            has_client_host: false,
        }
    }

    /// [Prepares](request_head::prepare) a client's request. Returns whether it asks for a WebSocket.
    pub(super) fn prepare(&mut self, forwarding: &Forwarding<'_>) -> bool {
        let prepared = request_head::prepare(&mut self.request, forwarding);
        self.has_client_host = prepared.has_host;
        prepared.is_websocket
    }

    /// The client's side of the connection, for after an upgrade. Other extensions go no further.
    pub(super) fn take_upgrade(&mut self) -> Option<OnUpgrade> {
        let extensions = self.request.extensions_mut();
        let upgrade = extensions.remove();
        extensions.clear();
        upgrade
    }

    pub(super) fn request(&self) -> &Request<RequestBody> {
        &self.request
    }

    pub(super) fn has_client_host(&self) -> bool {
        self.has_client_host
    }

    pub(super) fn set_host(&mut self, host: &HeaderValue) {
        request_head::set_host(&mut self.request, host);
    }

    /// The form in which HTTP/1.1 wants it.
    pub(super) fn for_http1(&mut self) {
        request_head::for_http1(&mut self.request);
    }

    /// Back from the form of HTTP/2, if it was not sent.
    pub(super) fn leaves_http2(&mut self) {
        request_head::from_http2(&mut self.request);
    }

    pub(super) fn into_request(self) -> Request<RequestBody> {
        self.request
    }
}
