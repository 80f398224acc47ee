//! A request on its way to a server.

use http::{Extensions, HeaderValue, Request};
use tollgate_tower::answer::Dialect;

use super::head::{self, Asker};
use super::told::Told;
use super::upload::Upload;

/// A request, and what the server is told beside its fields.
pub(super) struct Outgoing {
    request: Request<Upload>,
    /// Until it stands among the fields.
    told: Option<Told>,
    /// Whether its caller named a host.
    has_callers_host: bool,
    takes_lines: bool,
}

impl Outgoing {
    /// With nothing but its own fields.
    pub(super) fn new(request: Request<Upload>) -> Self {
        Self {
            request,
            told: None,
            has_callers_host: false,
            takes_lines: false,
        }
    }

    /// A caller's request, which is made one that can be [sent on](head::forward). What its caller understands, and whether it asks for a
    /// WebSocket.
    pub(super) fn forward(&mut self, asker: &Asker<'_>) -> (Dialect, bool) {
        let forwarded = head::forward(&mut self.request, asker);
        self.told = Some(forwarded.told);
        self.has_callers_host = forwarded.has_host;
        (forwarded.dialect, forwarded.is_websocket)
    }

    /// Whether its caller hears what a server says as [lines](crate::http1::ReadLines).
    pub(super) fn takes_lines(&self) -> bool {
        self.takes_lines
    }

    pub(super) fn set_takes_lines(&mut self, takes_lines: bool) {
        self.takes_lines = takes_lines;
    }

    pub(super) fn request(&self) -> &Request<Upload> {
        &self.request
    }

    pub(super) fn extensions_mut(&mut self) -> &mut Extensions {
        self.request.extensions_mut()
    }

    pub(super) fn told(&self) -> Option<&Told> {
        self.told.as_ref()
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

    /// With all that the server is told among its fields.
    pub(super) fn into_request(mut self) -> Request<Upload> {
        if let Some(told) = self.told {
            told.put_into(self.request.headers_mut());
        }
        self.request
    }
}
