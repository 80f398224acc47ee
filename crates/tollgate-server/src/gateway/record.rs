//! The record of a request, from its head to the end of its response: what metrics, the access log and traces report.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use quanta::Instant;
use tollgate_http::proxy::Tunnel;
use tollgate_tower::gate::RequestContext;

use super::handler::HandlerState;
use super::log_line::{LogLine, LoggedRequest, Outcome};
use crate::traces::RequestSpan;

/// The record of a request. It is counted and logged when it is dropped, which is when all of the response has been sent, or the
/// client has disconnected.
#[derive(Debug)]
pub(super) struct RequestRecord {
    state: Arc<HandlerState>,
    pub(super) context: RequestContext,
    began: Instant,
    outcome: Outcome,
    is_counted: bool,
    /// Only if the request is logged or traced.
    request: Option<Box<LoggedRequest>>,
    span: Option<Box<RequestSpan>>,
    tunnel: Option<Tunnel>,
}

impl RequestRecord {
    /// Begins the record of a request. If it is traced, the trace goes on in its headers.
    pub(super) fn begin(
        state: &Arc<HandlerState>,
        mut context: RequestContext,
        request: &mut Parts,
        id: &HeaderValue,
    ) -> Self {
        let tracer = state.decider.tracer();
        let span = tracer.and_then(|tracer| tracer.sample("", &request.headers));
        if let Some(span) = &span {
            context.keep_route();
            span.propagate(&mut request.headers);
        }
        let is_kept = state.log.is_some() || span.is_some();
        let request = is_kept.then(|| LoggedRequest {
            at: SystemTime::now(),
            id: id.clone(),
            method: request.method.clone(),
            uri: request.uri.clone(),
            version: request.version,
        });
        Self {
            state: Arc::clone(state),
            context,
            began: Instant::now(),
            outcome: Outcome::default(),
            is_counted: false,
            request: request.map(Box::new),
            span: span.map(Box::new),
            tunnel: None,
        }
    }

    /// Records how long the upstream took to respond, and the upgraded connection.
    pub(super) fn forwarded(&mut self, took: Option<Duration>, tunnel: Option<Tunnel>) {
        (self.outcome.upstream, self.tunnel) = (took, tunnel);
    }

    /// Puts the record into the body of the response.
    pub(super) fn respond<B>(mut self, response: Response<B>) -> Response<RecordedBody<B>> {
        self.outcome.status = Some(response.status());
        let record = match self.tunnel.take() {
            Some(tunnel) => {
                self.move_into(&tunnel);
                None
            }
            None => Some(self),
        };
        response.map(|body| RecordedBody { body, record })
    }

    /// Moves into an upgraded connection, which may last for hours: the request is counted now, and logged when the connection has
    /// ended.
    fn move_into(mut self, tunnel: &Tunnel) {
        self.count();
        self.outcome.is_complete = true;
        tunnel.when_ended(move |end, bytes| {
            // The whole record moves in here, not only its outcome.
            let record = &mut self;
            (record.outcome.tunnel, record.outcome.bytes) = (Some(end), bytes);
        });
    }

    fn sent(&mut self, bytes: usize, is_last: bool) {
        self.outcome.bytes += u64::try_from(bytes).unwrap_or_default();
        self.outcome.is_complete = is_last;
    }

    fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            let took = self.began.elapsed().as_secs_f64();
            self.state.metrics.count(self.outcome.status, took);
        }
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        self.count();
        let Some(request) = &self.request else { return };
        let (context, outcome) = (&self.context, &self.outcome);
        if let Some(log) = &self.state.log {
            let client = (context.address(), context.client());
            let took = self.began.elapsed();
            log.write(&LogLine::new(
                request,
                client,
                context.decision(),
                outcome,
                took,
            ));
        }
        if let Some(span) = self.span.take() {
            let (route, decision) = (context.route(), context.decision());
            span.finish(&request.method, route, outcome.status, decision);
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
