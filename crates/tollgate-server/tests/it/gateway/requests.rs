//! The way of a request: what the upstream receives of it, and what the client receives in return.

use tollgate_testing::client::request;
use tollgate_testing::gateway::PLENTY;
use tollgate_testing::ports::closed_address;
use tollgate_testing::{Connection, Running};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::kit;

#[tokio::test]
async fn a_response_carries_the_limits_and_a_request_id() {
    check_usual_exchanges("").await;
}

#[tokio::test]
async fn without_the_fast_path_exchanges_are_the_same() {
    check_usual_exchanges("fast_path: false").await;
}

/// Requests with a body and without, each kind on a connection of its own. `fields` are those of the gateway.
async fn check_usual_exchanges(fields: &str) {
    let gateway = kit::gateway(fields, PLENTY);
    let mut client = Connection::open(gateway.address).await;
    for nth in 1..=3_u64 {
        let request = "POST /echo?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nworld";
        client.send(request).await;
        let response = client.response().await.unwrap();
        assert_eq!((response.status, &*response.text()), (200, "world"));
        let remaining = (800_000 - nth).to_string();
        assert_eq!(response.header("x-ratelimit-remaining"), Some(&*remaining));
        assert_eq!(response.header("x-request-id").map(str::len), Some(32));
    }
    let mut plain = Connection::open(gateway.address).await;
    for _ in 0..2 {
        let response = plain.request("GET /a HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!((response.status, &*response.text()), (200, "hello"));
        assert!(response.header("date").is_some());
    }
    drop((client, plain));
    let first = gateway.upstream.requests().remove(0);
    assert_eq!(
        (first.uri.path(), first.uri.query()),
        ("/echo", Some("a=b"))
    );
    assert_eq!(first.headers["x-request-id"].len(), 32);
    gateway
        .until_metric("tollgate_gateway_connections_open", |open| open == 0.0)
        .await;
    assert_eq!(
        gateway.count("tollgate_gateway_connections_accepted_total"),
        2
    );
    assert_eq!(
        gateway.count("tollgate_gateway_requests_total{status=\"2xx\"}"),
        5
    );
    assert_eq!(
        gateway.count("tollgate_gateway_request_duration_seconds_count"),
        5
    );
    gateway.stop();
}

#[tokio::test]
async fn a_path_is_forwarded_as_it_came_or_normalised() {
    for (paths, forwarded) in [
        ("", "/a//b/../%7euser?q=%2F"),
        ("paths: { forward: original }", "/a//b/../%7euser?q=%2F"),
        ("paths: { forward: normalised }", "/a/~user?q=%2F"),
    ] {
        let gateway = kit::gateway("", &format!("{PLENTY}\n{paths}"));
        assert_eq!(gateway.get("/a//b/../%7euser?q=%2F").await.status, 200);
        let uri = gateway.upstream.requests()[0].uri.to_string();
        assert_eq!(uri, forwarded, "{paths}");
    }
}

#[tokio::test]
async fn a_path_that_may_meet_other_rules_upstream_is_refused() {
    let rules =
        "rules: [{ id: admin, match: { path: /admin }, per: [], limit: \"1/h burst 800000\" }]";
    let gateway = kit::gateway("", rules);
    for path in ["//admin", "/%61dmin", "/x/../admin", "/admin;a"] {
        let response = gateway.get(path).await;
        assert_eq!(response.status, 400, "{path}");
        let problem = response.json();
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("meet different rules"), "{path}: {detail}");
    }
    assert_eq!(gateway.upstream.hits(), 0);
    for path in ["/admin", "/admin/", "/x//y", "/%61dmin/x", "/x/../y"] {
        assert_eq!(gateway.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_denied_request_never_reaches_the_upstream() {
    let rules = "rules: [{ id: address, per: [ip], limit: \"1/h burst 3\" }]";
    let gateway = kit::gateway("", rules);
    let mut statuses = Vec::new();
    for _ in 0..10 {
        let response = gateway.get("/").await;
        assert!(response.header("x-request-id").is_some());
        statuses.push(response.status);
    }
    assert_eq!(statuses[..3], [200; 3]);
    assert_eq!(statuses[3..], [429; 7]);
    assert_eq!(gateway.upstream.hits(), 3);
    gateway
        .until_metric("tollgate_gateway_requests_total{status=\"4xx\"}", |count| {
            count == 7.0
        })
        .await;
    gateway.stop();
}

/// A gateway whose only upstream is unreachable. `upstream` are more fields of the upstream.
fn gateway_without_upstream(upstream: &str) -> Running {
    let to = closed_address();
    kit::serve(&format!(
        "gateway: {{ listen: 127.0.0.1:0, upstreams: [{{ to: \"http://{to}\", {upstream} }}] }}
log: {{ format: json }}
{PLENTY}
"
    ))
}

#[test]
fn a_request_that_cannot_be_forwarded_gets_a_problem_document() {
    let running = gateway_without_upstream("path: /v1");
    for (path, status, expected) in [
        ("/v2", 404, "nothing is served at this path"),
        ("/v1", 502, "the server for this path could not be reached"),
    ] {
        let response = running.get("gateway", path, &[]);
        assert_eq!(response.status, status, "{response:?}");
        let content_type = response.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"));
        let problem = response.json();
        assert_eq!(
            (&problem["status"], &problem["detail"]),
            (&status.into(), &expected.into())
        );
    }
}

#[tokio::test]
async fn a_grpc_call_that_cannot_be_forwarded_gets_a_grpc_status() {
    let running = gateway_without_upstream("path: /v1");
    for (path, status) in [("/v2", "12"), ("/v1", "14")] {
        let grpc = ["content-type: application/grpc"];
        let response = request(running.address("gateway"), "POST", path, &grpc, "").unwrap();
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(response.header("grpc-status"), Some(status), "{response:?}");
        assert!(response.body.is_empty(), "{response:?}");
    }
    // A real client reads it.
    let running = gateway_without_upstream("protocol: http2");
    let endpoint = Endpoint::from_shared(format!("http://{}", running.address("gateway")));
    let mut client = HealthClient::new(endpoint.unwrap().connect().await.unwrap());
    let error = client
        .check(HealthCheckRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert!(error.message().contains("could not be reached"), "{error}");
}
