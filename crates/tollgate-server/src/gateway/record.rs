//! The record of a request, from its head to the end of its response: what metrics, the access log and traces report.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use quanta::Instant;
use tollgate_http::proxy::{Tunnel, TunnelEnd};
use tollgate_tower::gate::RequestContext;

use super::access_log::{Entry, LoggedRequest};
use super::handler::Shared;
use crate::traces::RequestSpan;

/// The record of a request. It is counted and logged when it is dropped, which is when all of the response has been sent, or the
/// client has disconnected.
#[derive(Debug)]
pub(super) struct RequestRecord {
    shared: Arc<Shared>,
    pub(super) context: RequestContext,
    began: Instant,
    status: Option<StatusCode>,
    bytes: u64,
    is_complete: bool,
    is_counted: bool,
    /// Only if there is an access log.
    logged: Option<Box<LoggedRequest>>,
    /// Only if the request is traced.
    span: Option<Box<(RequestSpan, Method)>>,
    upstream: Option<Duration>,
    tunnel: Option<Tunnel>,
    tunnel_end: Option<TunnelEnd>,
}

impl RequestRecord {
    /// Begins the record of a request. If it is traced, the trace goes on in its headers.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        mut context: RequestContext,
        request: &mut Parts,
        id: &HeaderValue,
    ) -> Self {
        let logged = shared.log.as_ref().map(|_| {
            Box::new(LoggedRequest {
                at: SystemTime::now(),
                id: id.clone(),
                method: request.method.clone(),
                uri: request.uri.clone(),
                version: request.version,
            })
        });
        let tracer = shared.decider.tracer();
        let span = tracer.and_then(|tracer| tracer.sample("", &request.headers));
        let span = span.map(|span| {
            context.keep_route();
            span.propagate(&mut request.headers);
            Box::new((span, request.method.clone()))
        });
        Self {
            shared: Arc::clone(shared),
            context,
            began: Instant::now(),
            status: None,
            bytes: 0,
            is_complete: false,
            is_counted: false,
            logged,
            span,
            upstream: None,
            tunnel: None,
            tunnel_end: None,
        }
    }

    /// The request was forwarded: how long the response took, and the connection that it upgraded.
    pub(super) fn forwarded(&mut self, took: Option<Duration>, tunnel: Option<Tunnel>) {
        (self.upstream, self.tunnel) = (took, tunnel);
    }

    /// The response to the request. Its body carries the record.
    pub(super) fn respond<B>(mut self, response: Response<B>) -> Response<RecordedBody<B>> {
        self.status = Some(response.status());
        let record = match self.tunnel.take() {
            Some(tunnel) => {
                self.goes_on_in(&tunnel);
                None
            }
            None => Some(self),
        };
        response.map(|body| RecordedBody { body, record })
    }

    /// The response is complete, and the connection goes on, perhaps for hours: the request is counted now, and logged when that has
    /// ended.
    fn goes_on_in(mut self, tunnel: &Tunnel) {
        self.count();
        self.is_complete = true;
        tunnel.when_ended(move |end, bytes| {
            // All of the record moves in here, not only the fields that are set.
            let record = &mut self;
            (record.tunnel_end, record.bytes) = (Some(end), bytes);
        });
    }

    fn sent(&mut self, bytes: usize, is_last: bool) {
        self.bytes += u64::try_from(bytes).unwrap_or_default();
        self.is_complete = is_last;
    }

    fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            let took = self.began.elapsed().as_secs_f64();
            self.shared.metrics.count(self.status, took);
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.count();
        if let (Some(log), Some(request)) = (&self.shared.log, self.logged.take()) {
            log.write(&Entry {
                request: &request,
                ip: self.context.address(),
                client: self.context.client(),
                decision: self.context.decision(),
                status: self.status,
                bytes: self.bytes,
                took: self.began.elapsed(),
                is_complete: self.is_complete,
                upstream: self.upstream,
                tunnel: self.tunnel_end,
            });
        }
        if let Some(traced) = self.span.take() {
            let (mut span, method) = *traced;
            span.add_request(&method, self.context.route());
            if let Some(status) = self.status {
                span.add_status(status);
            }
            if let Some(decision) = self.context.decision() {
                span.add_decision(decision);
            }
        }
    }
}

pin_project! {
    /// The body of a response, with the record of its request.
    pub(super) struct RecordedBody<B> {
        #[pin]
        body: B,
        // `None` if the connection was upgraded.
        record: Option<RequestRecord>,
    }
}

impl<B> Body for RecordedBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(context));
        if let Some(record) = this.record {
            match &frame {
                Some(Ok(frame)) => {
                    let length = frame.data_ref().map_or(0, Bytes::len);
                    record.sent(length, frame.is_trailers() || this.body.is_end_stream());
                }
                Some(Err(_)) => {}
                None => record.sent(0, true),
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
