//! What is noted of a request from its head to the end of its answer.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Request, Response, StatusCode};
use quanta::Instant;
use tollgate_tower::layer::Decided;

use super::UpstreamTime;
use super::access_log::{Asked, Told};
use super::front::Desk;
use super::tunnel::{Tunnel, TunnelEnd};
use crate::traces::Span;

/// What is noted of a request; counted and logged when it is dropped, which is when all of the response has been sent, or the client has left.
#[derive(Debug)]
pub(super) struct Account {
    desk: Arc<Desk>,
    began: Instant,
    status: Option<StatusCode>,
    bytes: u64,
    is_whole: bool,
    is_counted: bool,
    /// Only if there is a log.
    logged: Option<Box<Logged>>,
    /// Only if it is traced.
    pub(super) span: Option<Box<Span>>,
}

#[derive(Debug)]
struct Logged {
    asked: Asked,
    decided: Option<Decided>,
    upstream: Option<Duration>,
    tunnel: Option<TunnelEnd>,
}

impl Account {
    pub(super) fn open<B>(desk: &Arc<Desk>, request: &Request<B>, id: &HeaderValue) -> Self {
        let asked = desk.log.as_ref().map(|_| desk.asked(request, id));
        Self {
            began: Instant::now(),
            status: None,
            bytes: 0,
            is_whole: false,
            is_counted: false,
            logged: asked.map(Logged::of),
            span: None,
            desk: Arc::clone(desk),
        }
    }

    pub(super) fn answered<B>(&mut self, response: &Response<B>) {
        self.status = Some(response.status());
        if let Some(span) = &mut self.span {
            span.answered(response.status());
            if let Some(decided) = response.extensions().get::<Decided>() {
                span.decided(decided);
            }
        }
        if let Some(logged) = &mut self.logged {
            let extensions = response.extensions();
            logged.decided = extensions.get::<Decided>().cloned();
            logged.upstream = extensions.get::<UpstreamTime>().map(|time| time.0);
        }
    }

    /// So many bytes more of the answer's body have gone out; the last, maybe.
    pub(super) fn sent(&mut self, bytes: usize, is_last: bool) {
        self.bytes += u64::try_from(bytes).unwrap_or_default();
        self.is_whole = is_last;
    }

    fn count(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            let took = self.began.elapsed().as_secs_f64();
            self.desk.metrics.count(self.status, took);
        }
    }

    /// The answer is out, and a connection goes on that may last for hours: it is counted now, and logged when that has ended.
    pub(super) fn goes_on_in(mut self, tunnel: &Tunnel) {
        self.count();
        self.is_whole = true;
        tunnel.when_ended(move |end, bytes| self.tunnel_ended(end, bytes));
    }

    fn tunnel_ended(mut self, end: TunnelEnd, bytes: u64) {
        self.bytes = bytes;
        if let Some(logged) = &mut self.logged {
            logged.tunnel = Some(end);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.count();
        if let (Some(log), Some(logged)) = (&self.desk.log, self.logged.take()) {
            let told = Told {
                status: self.status,
                bytes: self.bytes,
                took: self.began.elapsed(),
                is_whole: self.is_whole,
                decided: logged.decided.as_deref(),
                upstream: logged.upstream,
                tunnel: logged.tunnel,
            };
            log.note(&logged.asked, &told);
        }
    }
}

impl Logged {
    fn of(asked: Asked) -> Box<Self> {
        Box::new(Self {
            asked,
            decided: None,
            upstream: None,
            tunnel: None,
        })
    }
}
