//! Traces, as an OpenTelemetry collector receives them: over gRPC and over HTTP, with OpenTelemetry's own messages.

use std::io;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message as _;
use serde_json::json;
use tollgate_testing::ports::closed_address;
use tollgate_testing::upstream::{Reply, reply};
use tollgate_testing::wait::until_value;
use tollgate_testing::{Gateway, Upstream};
use tower::ServiceExt as _;

use crate::kit;
use crate::kit::open_metrics::{OPEN_METRICS, check_open_metrics};

const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_SPAN_ID: &str = "00f067aa0ba902b7";
const PARENT: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
const SECRET: &str = "sk_live_51H8canary";

/// The requests that a collector received.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.lock().push(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// A collector.
struct Collector {
    received: Received,
    server: Upstream,
}

impl Collector {
    fn grpc() -> Self {
        let received = Received::default();
        let service = TraceServiceServer::new(received.clone());
        let server = Upstream::answering(move |request| receive_grpc(request, service.clone()));
        Self { received, server }
    }

    fn http() -> Self {
        let received = Received::default();
        let receiver = received.clone();
        let server = Upstream::answering(move |request| receive_http(request, receiver.clone()));
        Self { received, server }
    }

    /// The section `traces` of a program that exports to it.
    fn section(&self, fields: &str) -> String {
        format!("endpoint: {:?}, {fields}", self.server.url())
    }

    fn spans(&self) -> Vec<Span> {
        let received = self.received.0.lock();
        let scopes = (received.iter())
            .flat_map(|request| &request.resource_spans)
            .flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    fn wait_for(&self, count: usize) -> Vec<Span> {
        until_value("spans", || self.spans(), |spans| spans.len() >= count)
    }
}

async fn receive_grpc(
    request: http::Request<Incoming>,
    service: TraceServiceServer<Received>,
) -> Reply {
    let response = service.oneshot(request).await.unwrap();
    response.map(|body| body.map_err(io::Error::other).boxed_unsync())
}

async fn receive_http(request: http::Request<Incoming>, received: Received) -> Reply {
    assert_eq!(request.version(), http::Version::HTTP_11);
    assert_eq!(request.method(), http::Method::POST);
    assert_eq!(request.uri(), "/v1/traces");
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let message = ExportTraceServiceRequest::decode(body).unwrap();
    received.0.lock().push(message);
    reply(200, "")
}

/// A gateway and a decision service that export traces. `traces` are the fields of the section.
fn tracing_gateway(traces: &str) -> Gateway {
    kit::gateway(
        "",
        &format!(
            "
service: {{ listen: 127.0.0.1:0 }}
traces: {{ {traces} }}
identity: {{ client: [\"header:X-User-Id\", ip] }}
rules:
  - {{ id: users, per: [client, route], match: {{ path: \"/v1/users/{{id}}\" }}, limit: \"1/h burst 1\" }}
"
        ),
    )
}

/// The `traceparent` headers of the requests that reached the upstream.
fn forwarded_parents(gateway: &Gateway) -> Vec<Vec<String>> {
    let requests = gateway.upstream.requests();
    let parents = |headers: &http::HeaderMap| {
        let values = headers.get_all("traceparent").iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    };
    requests
        .iter()
        .map(|request| parents(&request.headers))
        .collect()
}

fn attribute(span: &Span, key: &str) -> String {
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == key);
    match found.and_then(|found| found.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{key} is {other:?} in {span:?}"),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What holds for both protocols.
fn assert_requests_are_exported(collector: &Collector, protocol: &str) {
    let fields = format!("protocol: {protocol}, sample: 1, service_name: edge");
    let gateway = tracing_gateway(&collector.section(&fields));
    let headers = [
        &format!("x-api-key: {SECRET}"),
        &format!("authorization: Bearer {SECRET}"),
        &format!("x-user-id: {SECRET}"),
        PARENT,
    ];
    let path = format!("/v1/users/{SECRET}?token={SECRET}");
    let get = || gateway.running.get("gateway", &path, &headers).status;
    assert_eq!((get(), get()), (200, 429));
    let spans = collector.wait_for(2);
    let with_outcome = |outcome| {
        let mut spans = spans.iter();
        spans.find(|span| attribute(span, "tollgate.outcome") == outcome)
    };
    let allowed = with_outcome("allowed").unwrap_or_else(|| panic!("{spans:?}"));
    let denied = with_outcome("denied").unwrap_or_else(|| panic!("{spans:?}"));
    for (span, status) in [(allowed, "200"), (denied, "429")] {
        assert_eq!(hex(&span.trace_id), TRACE_ID);
        assert_eq!(hex(&span.parent_span_id), PARENT_SPAN_ID);
        assert_eq!(span.span_id.len(), 8);
        assert_eq!(span.name, "GET /v1/users/{id}");
        assert_eq!(span.kind, 2, "a span of a server");
        assert!(span.start_time_unix_nano > 1_700_000_000_000_000_000);
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        for (key, value) in [
            ("http.request.method", "GET"),
            ("http.route", "/v1/users/{id}"),
            ("http.response.status_code", status),
            ("tollgate.rule", "users"),
            ("tollgate.source", "store"),
            ("tollgate.generation", "1"),
        ] {
            assert_eq!(attribute(span, key), value, "{key}");
        }
    }
    assert_ne!(allowed.span_id, denied.span_id);
    // The upstream's parent is the gateway's span.
    let parent = format!("00-{TRACE_ID}-{}-01", hex(&allowed.span_id));
    assert_eq!(forwarded_parents(&gateway), [[parent]]);
    for request in &*collector.received.0.lock() {
        assert!(!format!("{request:?}").contains(SECRET), "{request:?}");
        let resource = request.resource_spans[0].resource.clone().unwrap();
        let name = resource.attributes.iter().find(|a| a.key == "service.name");
        let name = name.unwrap().value.clone().unwrap().value;
        assert_eq!(name, Some(Value::StringValue("edge".to_owned())));
    }
}

#[test]
fn requests_are_exported_over_grpc() {
    assert_requests_are_exported(&Collector::grpc(), "grpc");
}

#[test]
fn requests_are_exported_over_http() {
    assert_requests_are_exported(&Collector::http(), "http");
}

#[test]
fn checks_are_exported_and_a_shutdown_sends_the_last() {
    let collector = Collector::http();
    let mut gateway = tracing_gateway(&collector.section("protocol: http, sample: 1"));
    let forward_auth = [
        "x-forwarded-method: GET",
        "x-forwarded-uri: /v1/users/7",
        PARENT,
    ];
    let response = gateway
        .running
        .get("service", "/v1/forward-auth", &forward_auth);
    assert_eq!(response.status, 200, "{response:?}");
    let auth_request = [
        "x-original-method: GET",
        "x-original-uri: /other",
        "traceparent: what",
    ];
    let response = gateway
        .running
        .get("service", "/v1/auth-request", &auth_request);
    assert_eq!(response.status, 200, "{response:?}");
    let checks = gateway.check(&json!({ "checks": [
        { "request": { "method": "GET", "path": "/v1/users/9", "ip": "10.0.0.1" } },
        { "client": "a" },
    ] }));
    assert_eq!(checks["results"].as_array().unwrap().len(), 2, "{checks}");
    // At once, before they would be exported anyway.
    gateway.running.stop();
    let spans = collector.spans();
    let mut names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["auth-request", "check", "check", "forward-auth"]);
    let named = |name| spans.iter().find(move |span| span.name == name).unwrap();
    let child = named("forward-auth");
    assert_eq!(hex(&child.parent_span_id), PARENT_SPAN_ID);
    assert_eq!(attribute(child, "http.route"), "/v1/users/{id}");
    assert_eq!(attribute(child, "tollgate.outcome"), "allowed");
    // An invalid header names no parent.
    let root = named("auth-request");
    assert!(root.parent_span_id.is_empty());
    assert!(root.trace_id.len() == 16 && root.trace_id != child.trace_id);
}

#[test]
fn unsampled_requests_pass_unchanged() {
    let collector = Collector::http();
    let mut gateway = tracing_gateway(&collector.section("protocol: http, sample: 0"));
    let response = gateway.running.get("gateway", "/", &[PARENT]);
    assert_eq!(response.status, 200, "{response:?}");
    gateway.running.stop();
    assert!(collector.spans().is_empty());
    let parent = PARENT.strip_prefix("traceparent: ").unwrap();
    assert_eq!(forwarded_parents(&gateway), [[parent]]);
}

#[test]
fn an_unreachable_collector_costs_spans_and_no_request() {
    for protocol in ["grpc", "http"] {
        let endpoint = closed_address();
        let traces = format!("endpoint: \"http://{endpoint}\", protocol: {protocol}, sample: 1");
        let mut gateway = tracing_gateway(&traces);
        for _ in 0..20 {
            assert_eq!(gateway.running.get("gateway", "/", &[]).status, 200);
        }
        let warning = "failed to export traces";
        gateway.wait_for_log(warning);
        let lost = "tollgate_traces_spans_lost_total";
        gateway.running.until_metric(lost, |count| count == 20.0);
        let page = gateway.running.get("admin", "/metrics", &[OPEN_METRICS]);
        check_open_metrics(&page.text());
        assert_eq!(gateway.log().matches(warning).count(), 1);
        gateway.running.stop();
    }
}
