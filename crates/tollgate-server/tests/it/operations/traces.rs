//! Traces, as a collector of OpenTelemetry hears them: over gRPC and over HTTP, with OpenTelemetry's own messages.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::metrics::{OPEN_METRICS, check_open_metrics};
use crate::served::free_port;
use crate::serving::{Serving, ask, until};

const PARENT: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
const SECRET: &str = "sk_live_51H8canary";

/// A collector, and all it heard. Its threads end with the test's process.
struct Collector {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<ExportTraceServiceRequest>>>,
}

#[derive(Clone)]
struct Hears(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

#[tonic::async_trait]
impl TraceService for Hears {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    fn grpc() -> Self {
        let heard = Arc::default();
        let hears = TraceServiceServer::new(Hears(Arc::clone(&heard)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let app = axum::Router::new().route_service(
                    "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                    hears,
                );
                let stop = tokio_util::sync::CancellationToken::new();
                let config = tollgate_server::listen::ListenConfig::default();
                tollgate_server::listen::serve(listener, config, stop, app).await;
            });
        });
        Self { address, heard }
    }

    fn http() -> Self {
        let heard: Arc<Mutex<Vec<_>>> = Arc::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let hears = Arc::clone(&heard);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (head, body) = read(&mut stream);
                assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
                assert!(head.contains("application/x-protobuf"), "{head}");
                let request = ExportTraceServiceRequest::decode(&body[..]).unwrap();
                hears.lock().unwrap().push(request);
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Self { address, heard }
    }

    fn spans(&self) -> Vec<Span> {
        let heard = self.heard.lock().unwrap();
        let scopes = (heard.iter())
            .flat_map(|request| &request.resource_spans)
            .flat_map(|resource| &resource.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }

    fn wait_for(&self, count: usize) -> Vec<Span> {
        until("spans", || self.spans(), |spans| spans.len() >= count)
    }
}

/// A message with its length said.
fn read(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            break;
        }
        said.push(byte[0]);
    }
    let head = String::from_utf8(said).unwrap().to_ascii_lowercase();
    let length = (head.lines()).find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    (
        head.replacen("post", "POST", 1)
            .replacen("http/1.1", "HTTP/1.1", 1),
        body,
    )
}

/// A server behind the gateway that keeps the heads it sees.
fn upstream() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&heads);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (head, _) = read(&mut stream);
            if head.is_empty() {
                continue;
            }
            seen.lock().unwrap().push(head);
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, heads)
}

fn config(upstream: SocketAddr, traces: &str) -> String {
    format!(
        "gateway: {{ listen: 127.0.0.1:0, workers: 1, upstreams: [{{ to: \"http://{upstream}\" }}] }}
service: {{ listen: 127.0.0.1:0 }}
admin: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
traces: {{ {traces} }}
identity: {{ client: [\"header:X-User-Id\", ip] }}
rules:
  - {{ id: users, per: [client, route], match: {{ path: \"/v1/users/{{id}}\" }}, limit: \"1/h burst 1\" }}
"
    )
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

/// Everything that holds for both protocols.
fn is_told(collector: &Collector, protocol: &str) {
    let (address, heads) = upstream();
    let traces = format!(
        "endpoint: \"http://{}\", protocol: {protocol}, sample: 1, service_name: edge",
        collector.address
    );
    let serving = Serving::by(&config(address, &traces));
    let secret = [
        &format!("x-api-key: {SECRET}"),
        &format!("authorization: Bearer {SECRET}"),
        &format!("x-user-id: {SECRET}"),
        PARENT,
    ];
    let path = format!("/v1/users/{SECRET}?token={SECRET}");
    assert_eq!(serving.get("gateway", &path, &secret).status, 200);
    assert_eq!(serving.get("gateway", &path, &secret).status, 429);
    let spans = collector.wait_for(2);
    let passed = spans
        .iter()
        .find(|span| attribute(span, "tollgate.outcome") == "allowed");
    let passed = passed.unwrap_or_else(|| panic!("{spans:?}"));
    let denied = spans
        .iter()
        .find(|span| attribute(span, "tollgate.outcome") == "denied");
    let denied = denied.unwrap_or_else(|| panic!("{spans:?}"));
    for (span, status) in [(passed, "200"), (denied, "429")] {
        assert_eq!(hex(&span.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(hex(&span.parent_span_id), "00f067aa0ba902b7");
        assert_eq!(span.span_id.len(), 8);
        assert_eq!(span.name, "GET /v1/users/{id}");
        assert_eq!(span.kind, 2, "a server's");
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
    assert_ne!(passed.span_id, denied.span_id);
    // The server behind was asked by our span.
    let heads = heads.lock().unwrap().clone();
    let said = format!(
        "\r\ntraceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01\r\n",
        hex(&passed.span_id)
    );
    assert!(
        heads.len() == 1 && heads[0].contains(&said),
        "{said} {heads:?}"
    );
    assert_eq!(heads[0].matches("traceparent").count(), 1, "{heads:?}");
    for request in &*collector.heard.lock().unwrap() {
        assert!(!format!("{request:?}").contains(SECRET), "{request:?}");
        let resource = request.resource_spans[0].resource.clone().unwrap();
        let name = resource.attributes.iter().find(|a| a.key == "service.name");
        let name = name.unwrap().value.clone().unwrap().value;
        assert_eq!(name, Some(Value::StringValue("edge".to_owned())));
    }
}

#[test]
fn requests_are_exported_over_grpc() {
    is_told(&Collector::grpc(), "grpc");
}

#[test]
fn requests_are_exported_over_http() {
    is_told(&Collector::http(), "http");
}

#[test]
fn checks_are_exported_and_the_shutdown_sends_the_last() {
    let collector = Collector::http();
    let (address, _) = upstream();
    let traces = format!(
        "endpoint: \"http://{}\", protocol: http, sample: 1",
        collector.address
    );
    let mut serving = Serving::by(&config(address, &traces));
    let service = serving.address("service");
    let auth = [
        "x-forwarded-method: GET",
        "x-forwarded-uri: /v1/users/7",
        PARENT,
    ];
    assert_eq!(
        ask(service, "GET", "/v1/forward-auth", &auth)
            .unwrap()
            .status,
        200
    );
    let auth = [
        "x-original-method: GET",
        "x-original-uri: /other",
        "traceparent: what",
    ];
    assert_eq!(
        ask(service, "GET", "/v1/auth-request", &auth)
            .unwrap()
            .status,
        200
    );
    let body = r#"{"checks":[{"request":{"method":"GET","path":"/v1/users/9","ip":"10.0.0.1"}},{"client":"a"}]}"#;
    let reply = crate::served::ask(service, "POST", "/v1/check", "", body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    // At once, before they would be sent by themselves.
    serving.signal("TERM");
    assert!(serving.ended().success());
    let spans = collector.spans();
    let mut names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["auth-request", "check", "check", "forward-auth"]);
    let named = |name| spans.iter().find(move |span| span.name == name).unwrap();
    let auth = named("forward-auth");
    assert_eq!(hex(&auth.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(attribute(auth, "http.route"), "/v1/users/{id}");
    assert_eq!(attribute(auth, "tollgate.outcome"), "allowed");
    // What cannot be read is no parent.
    let fresh = named("auth-request");
    assert!(fresh.parent_span_id.is_empty());
    assert!(fresh.trace_id.len() == 16 && fresh.trace_id != auth.trace_id);
}

#[test]
fn unsampled_requests_pass_unchanged() {
    let collector = Collector::http();
    let (address, heads) = upstream();
    let traces = format!(
        "endpoint: \"http://{}\", protocol: http, sample: 0",
        collector.address
    );
    let mut serving = Serving::by(&config(address, &traces));
    assert_eq!(serving.get("gateway", "/", &[PARENT]).status, 200);
    serving.signal("TERM");
    assert!(serving.ended().success());
    assert!(collector.spans().is_empty());
    let heads = heads.lock().unwrap().clone();
    assert!(heads[0].contains(&format!("\r\n{PARENT}\r\n")), "{heads:?}");
}

#[test]
fn an_unreachable_collector_costs_spans_and_no_request() {
    for protocol in ["grpc", "http"] {
        let (address, _) = upstream();
        let port = free_port();
        let traces =
            format!("endpoint: \"http://127.0.0.1:{port}\", protocol: {protocol}, sample: 1");
        let mut serving = Serving::by(&config(address, &traces));
        for _ in 0..20 {
            assert_eq!(serving.get("gateway", "/", &[]).status, 200);
        }
        serving.wait_for("the collector takes no traces");
        let lost = || {
            let page = serving.get("admin", "/metrics", &[]).body;
            let line = page
                .lines()
                .find_map(|line| line.strip_prefix("tollgate_traces_spans_lost_total "));
            line.map_or(0, |count| count.parse::<u64>().unwrap())
        };
        until("all of them are counted", lost, |lost| *lost == 20);
        let page = serving.get("admin", "/metrics", &[OPEN_METRICS]);
        check_open_metrics(&page.body);
        assert_eq!(
            serving
                .log()
                .matches("the collector takes no traces")
                .count(),
            1
        );
        serving.signal("TERM");
        assert!(serving.ended().success());
    }
}
