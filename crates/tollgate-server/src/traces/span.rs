//! The span of a request. It has no path, query, header or client, only what operators wrote, and figures.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use opentelemetry_proto::tonic::trace::v1::{Span, Status};
use tollgate::Decision;

use super::Tracer;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The ids of a span and its trace, as the W3C's `traceparent` header carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpanContext {
    trace: u128,
    span: u64,
}

impl SpanContext {
    /// The span of the client, unless the header is invalid or there are several.
    fn parse(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(TRACEPARENT).iter();
        let value = values.next()?.to_str().ok()?;
        if values.next().is_some() {
            return None;
        }
        let mut parts = value.split('-');
        let mut number = |digits| parts.next().and_then(|text| parse_hex(text, digits));
        let (version, trace, span, _flags) = (number(2)?, number(32)?, number(16)?, number(2)?);
        // Later versions may have more fields; 255 is invalid.
        let is_complete = version < 255 && (version > 0 || parts.next().is_none());
        let span = u64::try_from(span).ok()?;
        (is_complete && trace != 0 && span != 0).then_some(Self { trace, span })
    }

    /// The header that names this span as the parent of a sampled one.
    fn header(self) -> HeaderValue {
        let value = format!("00-{:032x}-{:016x}-01", self.trace, self.span);
        // Digits and hyphens are valid in a header.
        HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static("00"))
    }
}

/// Parses lower-case digits, the only ones that the standard allows.
fn parse_hex(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == digits && text.bytes().all(is_digit))
        .then(|| u128::from_str_radix(text, 16).ok())?
}

/// The span of a sampled request. It is exported when it is dropped.
#[derive(Debug)]
pub(crate) struct RequestSpan {
    tracer: Tracer,
    context: SpanContext,
    began: Instant,
    span: Span,
}

impl RequestSpan {
    pub(super) fn start(tracer: Tracer, name: &'static str, headers: &HeaderMap) -> Self {
        let parent = SpanContext::parse(headers);
        // Ids must not be 0.
        let context = SpanContext {
            trace: parent.map_or_else(|| rand::random::<u128>().max(1), |parent| parent.trace),
            span: rand::random::<u64>().max(1),
        };
        let began = SystemTime::now().duration_since(UNIX_EPOCH);
        let span = Span {
            trace_id: context.trace.to_be_bytes().to_vec(),
            span_id: context.span.to_be_bytes().to_vec(),
            parent_span_id: parent.map_or_else(Vec::new, |it| it.span.to_be_bytes().to_vec()),
            name: name.to_owned(),
            kind: SpanKind::Server.into(),
            start_time_unix_nano: nanos(began.unwrap_or_default()),
            attributes: Vec::with_capacity(8),
            ..Span::default()
        };
        Self {
            tracer,
            context,
            began: Instant::now(),
            span,
        }
    }

    /// Makes this span the parent of those that the upstream starts.
    pub(crate) fn propagate(&self, headers: &mut HeaderMap) {
        headers.insert(TRACEPARENT, self.context.header());
        if self.span.parent_span_id.is_empty() {
            // It belongs to a trace that was invalid.
            headers.remove(TRACESTATE);
        }
    }

    /// Completes the span of an HTTP request.
    pub(crate) fn finish(
        mut self,
        method: &Method,
        route: Option<&str>,
        status: Option<StatusCode>,
        decision: Option<&Decision>,
    ) {
        self.add_request(method, route);
        if let Some(status) = status {
            self.add_status(status);
        }
        if let Some(decision) = decision {
            self.add_decision(decision);
        }
    }

    /// Adds the method, and the pattern of the path if a rule, cost or route has one.
    pub(crate) fn add_request(&mut self, method: &Method, route: Option<&str>) {
        let method = known_method(method);
        if self.span.name.is_empty() {
            self.span.name = route.map_or(method.to_owned(), |route| format!("{method} {route}"));
        }
        self.add("http.request.method", text(method));
        if let Some(route) = route {
            self.add("http.route", text(route));
        }
    }

    pub(crate) fn add_status(&mut self, status: StatusCode) {
        let code = Value::IntValue(status.as_u16().into());
        self.add("http.response.status_code", code);
        self.span.status = status.is_server_error().then(|| Status {
            code: SpanStatus::Error.into(),
            ..Status::default()
        });
    }

    pub(crate) fn add_decision(&mut self, decision: &Decision) {
        if let Some(tier) = decision.tier() {
            self.add("tollgate.rule", text(tier.rule().as_str()));
        }
        let outcome = match (decision.allowed(), decision.delay()) {
            (false, _) => "denied",
            (true, Duration::ZERO) => "allowed",
            (true, _) => "queued",
        };
        self.add("tollgate.outcome", text(outcome));
        self.add("tollgate.source", text(decision.source().as_str()));
        let generation = i64::try_from(decision.generation()).unwrap_or(i64::MAX);
        self.add("tollgate.generation", Value::IntValue(generation));
    }

    fn add(&mut self, key: &str, value: Value) {
        self.span.attributes.push(attribute(key, value));
    }
}

impl Drop for RequestSpan {
    fn drop(&mut self) {
        let mut span = std::mem::take(&mut self.span);
        let took = nanos(self.began.elapsed());
        span.end_time_unix_nano = span.start_time_unix_nano.saturating_add(took);
        self.tracer.queue(span);
    }
}

pub(super) fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

pub(super) fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Clients can make up methods, so others are named as OpenTelemetry demands.
fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 8] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE",
    ];
    let mut known = KNOWN.into_iter();
    known.find(|known| method == known).unwrap_or("_OTHER")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(values: &[&str]) -> Option<SpanContext> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_str(value).unwrap());
        }
        SpanContext::parse(&headers)
    }

    #[test]
    fn only_a_valid_traceparent_names_a_parent() {
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let parent = parse(&[valid]).unwrap();
        assert_eq!(parent.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(parent.span, 0x00f0_67aa_0ba9_02b7);
        let header = valid.replace("-00", "-01").replacen("-01", "-00", 1);
        assert_eq!(parent.header(), header);
        assert_eq!(parse(&[&format!("cc{}-what", &valid[2..])]), Some(parent));
        for invalid in [
            "",
            "00",
            &valid[..54],
            &valid.to_uppercase(),
            &format!("{valid}-what"),
            &format!("ff{}", &valid[2..]),
            &valid.replace("00f067aa0ba902b7", "0000000000000000"),
            &valid.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &valid.replace('4', "g"),
            &valid.replace("4bf", "+bf"),
        ] {
            assert_eq!(parse(&[invalid]), None, "{invalid}");
        }
        assert_eq!(parse(&[valid, valid]), None);
        assert_eq!(parse(&[]), None);
    }
}
