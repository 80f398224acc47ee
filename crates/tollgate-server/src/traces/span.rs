//! What is told of one request. No path, no query, no header and no caller: only what operators wrote, and figures.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::header::HeaderMap;
use http::{Method, StatusCode};
use tollgate::Decision;

use super::context::{self, Parent, TRACEPARENT, TRACESTATE};
use super::otlp::{self, KeyValue, SpanKind};
use super::{Tracer, draw};

/// A request that is traced, on its way. Told to the collector when it is dropped.
#[derive(Debug)]
pub struct Span {
    tracer: Tracer,
    /// What is done: the method at the gateway, the endpoint in the service.
    name: &'static str,
    trace: u128,
    id: u64,
    parent: Option<Parent>,
    began_at: SystemTime,
    began: Instant,
    method: Option<&'static str>,
    route: Option<String>,
    status: Option<StatusCode>,
    decided: Option<Decided>,
}

#[derive(Debug)]
struct Decided {
    rule: Option<&'static str>,
    outcome: &'static str,
    source: &'static str,
    generation: u64,
}

impl Tracer {
    /// A span of a request that was drawn.
    #[must_use]
    pub fn span(&self, name: &'static str, parent: Option<Parent>) -> Span {
        // Ids have to be unlike each other, and no secret depends on them; 0 is none.
        let trace = || (u128::from(draw()) << 64 | u128::from(draw())).max(1);
        Span {
            tracer: self.clone(),
            name,
            trace: parent.map_or_else(trace, |parent| parent.trace),
            id: draw().max(1),
            parent,
            began_at: SystemTime::now(),
            began: Instant::now(),
            method: None,
            route: None,
            status: None,
            decided: None,
        }
    }
}

impl Span {
    /// Says to whoever is asked next that it is asked by this span.
    pub(crate) fn pass_on(&self, headers: &mut HeaderMap) {
        headers.insert(TRACEPARENT, context::line(self.trace, self.id));
        if self.parent.is_none() {
            // It belongs to a trace that there is not.
            headers.remove(TRACESTATE);
        }
    }

    /// What was asked for: a method, and the pattern of the path if a rule, cost or route has one.
    pub(crate) fn asked(&mut self, method: &Method, route: Option<&str>) {
        self.method = Some(known(method));
        self.route = route.map(str::to_owned);
    }

    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
    }

    pub(crate) fn decided(&mut self, decision: &Decision) {
        self.decided = Some(Decided {
            rule: decision.tier().map(|tier| tier.rule().as_str()),
            outcome: match (decision.allowed(), decision.delay()) {
                (false, _) => "denied",
                (true, Duration::ZERO) => "allowed",
                (true, _) => "queued",
            },
            source: decision.source().as_str(),
            generation: decision.generation(),
        });
    }

    fn told(&mut self) -> otlp::Span {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let start = nanos(self.began_at.duration_since(UNIX_EPOCH).unwrap_or_default());
        let name = match (self.method, &self.route) {
            (Some(method), Some(route)) if self.name.is_empty() => format!("{method} {route}"),
            (Some(method), None) if self.name.is_empty() => method.to_owned(),
            _ => self.name.to_owned(),
        };
        let is_error = self.status.is_some_and(|status| status.is_server_error());
        otlp::Span {
            trace_id: self.trace.to_be_bytes().to_vec(),
            span_id: self.id.to_be_bytes().to_vec(),
            parent_span_id: (self.parent)
                .map_or(Vec::new(), |parent| parent.span.to_be_bytes().to_vec()),
            name,
            kind: SpanKind::Server.into(),
            start_time_unix_nano: start,
            end_time_unix_nano: start.saturating_add(nanos(self.began.elapsed())),
            attributes: self.attributes(),
            status: is_error.then(|| otlp::Status {
                code: otlp::StatusCode::Error.into(),
            }),
        }
    }

    /// Named as OpenTelemetry names them, where it does.
    fn attributes(&mut self) -> Vec<KeyValue> {
        let mut all = Vec::with_capacity(8);
        if let Some(method) = self.method {
            all.push(KeyValue::text("http.request.method", method));
        }
        if let Some(route) = self.route.take() {
            all.push(KeyValue::text("http.route", route));
        }
        if let Some(status) = self.status {
            let status = status.as_u16().into();
            all.push(KeyValue::number("http.response.status_code", status));
        }
        if let Some(decided) = &self.decided {
            if let Some(rule) = decided.rule {
                all.push(KeyValue::text("tollgate.rule", rule));
            }
            all.push(KeyValue::text("tollgate.outcome", decided.outcome));
            all.push(KeyValue::text("tollgate.source", decided.source));
            all.push(KeyValue::number("tollgate.generation", decided.generation));
        }
        all
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let told = self.told();
        self.tracer.send(told);
    }
}

/// Anybody can make up a method, so only those that everybody knows are told.
fn known(method: &Method) -> &'static str {
    const KNOWN: [&str; 8] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE",
    ];
    let mut known = KNOWN.into_iter();
    known.find(|known| method == known).unwrap_or("_OTHER")
}
