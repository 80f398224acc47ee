//! Envoy's rate limit protocol, with a real gRPC client.

use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use serde_json::json;
use tollgate_server::service::protocol::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_server::service::protocol::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use tollgate_server::service::protocol::envoy::r#type::v3::RateLimitUnit;
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{IntoRequest, Request, Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::kit;
use crate::kit::database::block_on;
use tollgate_testing::Running;
use tollgate_testing::servers::{RedisServer, RedisWire};
use tollgate_testing::wait::until_value;

const RULES: &str = "
clients: [{ id: merchant_123, plan: pro }]
rules:
  - { id: client, per: [client], limit: \"10/s burst 3\" }
  - { id: client, plan: pro, per: [client], limit: \"1/h burst 30\" }
  - { id: address, per: [ip], limit: \"600 per 10m sliding_counter\" }
  - { id: tenant, per: [\"attribute:tenant\"], limit: \"1/h burst 2\" }
  - { id: charges, match: { methods: [POST], path: \"/v1/charges/{id}\" }, per: [], limit: \"1/h burst 1\" }
  - { id: watched, per: [\"attribute:tenant\"], mode: shadow, limit: \"1/h burst 1\" }
  - { id: everyone, per: [], limit: \"1/h burst 100\" }
  - { id: queue, match: { attributes: { slow: yes } }, per: [\"attribute:slow\"], limit: \"10/s queue 5 leaky_bucket\" }
";

/// A service with these fields and [`RULES`].
pub(super) fn standard_service(fields: &str) -> Running {
    kit::service(fields, RULES)
}

/// A client of Envoy's rate limit service.
pub(super) struct RateLimitServiceClient(Grpc<Channel>);

impl RateLimitServiceClient {
    pub(super) fn new(channel: Channel) -> Self {
        Self(Grpc::new(channel))
    }

    pub(super) async fn should_rate_limit(
        &mut self,
        request: impl IntoRequest<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let ready = self.0.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = PathAndQuery::from_static(
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        );
        let codec = tonic_prost::ProstCodec::default();
        self.0.unary(request.into_request(), path, codec).await
    }
}

pub(super) async fn channel(service: &Running) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", service.address("service"))).unwrap();
    endpoint.connect().await.unwrap()
}

pub(super) fn descriptor(entries: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(_, _)| entry(key, value);
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

fn entry(key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Entry {
    Entry {
        key: key.as_ref().to_vec(),
        value: value.as_ref().to_vec(),
    }
}

pub(super) fn call_of(
    descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
) -> RateLimitRequest {
    RateLimitRequest {
        domain: b"envoy".to_vec(),
        descriptors: descriptors.into_iter().collect(),
        hits_addend: 0,
    }
}

/// The responses to these calls, one after the other on one connection.
pub(super) fn responses_to(
    service: &Running,
    requests: impl IntoIterator<Item = RateLimitRequest>,
) -> Vec<Result<RateLimitResponse, Status>> {
    block_on(async {
        let mut client = RateLimitServiceClient::new(channel(service).await);
        let mut responses = Vec::new();
        for request in requests {
            let response = client.should_rate_limit(request).await;
            responses.push(response.map(Response::into_inner));
        }
        responses
    })
}

pub(super) fn response_to(service: &Running, request: RateLimitRequest) -> RateLimitResponse {
    responses_to(service, [request]).remove(0).unwrap()
}

pub(super) fn passes(response: &RateLimitResponse) -> bool {
    response.overall_code() == Code::Ok
}

pub(super) fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response
        .statuses
        .iter()
        .map(DescriptorStatus::code)
        .collect()
}

/// The field of the metadata with this name.
fn metadata(response: &RateLimitResponse, name: &str) -> String {
    let metadata = response.dynamic_metadata.as_ref().unwrap();
    format!("{:?}", metadata.fields[name])
}

#[test]
fn each_descriptor_has_a_status_with_its_figures() {
    let service = standard_service("");
    let client = descriptor(&[("client", "a")]);
    let address = descriptor(&[("remote_address", "203.0.113.7")]);
    let nothing = descriptor(&[("unknown", "x")]);
    let response = response_to(&service, call_of([client, address, nothing]));
    assert!(passes(&response));
    assert_eq!(codes(&response), [Code::Ok; 3]);
    let limits: Vec<_> = (response.statuses.iter())
        .map(|status| {
            let limit = status.current_limit.as_ref().unwrap();
            (
                limit.name.as_str(),
                limit.requests_per_unit,
                limit.unit(),
                status.limit_remaining,
            )
        })
        .collect();
    assert_eq!(
        limits,
        [
            ("client", 10, Unit::Second, 2),
            ("everyone", 1, Unit::Hour, 99),
            ("everyone", 1, Unit::Hour, 99)
        ],
        "of each descriptor the limit with the least left; one call is charged once"
    );
    let reset = response.statuses[0].duration_until_reset.unwrap();
    assert_eq!((reset.seconds, reset.nanos), (0, 100_000_000));
    let header = |name: &str| {
        let mut headers = response.response_headers_to_add.iter();
        headers
            .find(|header| header.key == name)
            .unwrap()
            .value
            .clone()
    };
    assert_eq!(header("x-ratelimit-remaining"), "2");
    assert_eq!(
        header("ratelimit-policy").matches("\"everyone\"").count(),
        1
    );
    assert!(metadata(&response, "rule").contains("client"));
}

#[test]
fn descriptors_are_charged_together_or_not_at_all() {
    let service = standard_service("");
    let both = || {
        call_of([
            descriptor(&[("client", "a")]),
            descriptor(&[("tenant", "t")]),
        ])
    };
    let responses: Vec<_> = responses_to(&service, (0..3).map(|_| both()))
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        responses.iter().map(passes).collect::<Vec<_>>(),
        [true, true, false]
    );
    assert_eq!(codes(&responses[2]), [Code::Ok, Code::OverLimit]);
    assert!(metadata(&responses[2], "violated").contains("tenant"));
    assert!(
        metadata(&responses[1], "shadow_denied").contains("watched"),
        "reported, without effect"
    );
    assert!(String::from_utf8_lossy(&responses[2].raw_body).contains("quota-exceeded"));
    let left = response_to(&service, call_of([descriptor(&[("client", "a")])]));
    assert!(passes(&left), "the denied call charged no client");
}

#[test]
fn entries_are_matched_by_rules() {
    let service = standard_service("");
    let charge = |path: &str| call_of([descriptor(&[("method", "POST"), ("path", path)])]);
    let responses: Vec<bool> = responses_to(
        &service,
        [charge("/v1/charges/7?x=1"), charge("/v1/charges/8/")],
    )
    .into_iter()
    .map(|response| passes(&response.unwrap()))
    .collect();
    assert_eq!(responses, [true, false], "the path in its normal form");
    let known = response_to(
        &service,
        call_of([descriptor(&[("client", "merchant_123")])]),
    );
    let limit = known.statuses[0].current_limit.clone().unwrap();
    assert_eq!(
        (limit.requests_per_unit, known.statuses[0].limit_remaining),
        (1, 29),
        "its plan"
    );
    // Odd paths and addresses must not be errors, since Envoy admits a request after an error.
    for odd in [
        ("path", "/a%2fb"),
        ("path", "/v1//charges/9"),
        ("path", "/v1/x/../charges/9"),
        ("ip", "somewhere"),
    ] {
        let refused = response_to(&service, call_of([descriptor(&[odd])]));
        assert!(!passes(&refused));
        assert_eq!(codes(&refused), [Code::OverLimit]);
    }
}

#[test]
fn a_plan_a_host_and_a_route_are_those_of_the_rules() {
    let service = kit::service(
        "",
        "clients: [{ id: merchant_123, plan: pro }]
rules:
  - { id: client, per: [client], limit: \"1/h burst 3\" }
  - { id: client, plan: pro, per: [client], limit: \"1/h burst 30\" }
  - { id: shop, match: { host: shop.example.com }, per: [], limit: \"1/h burst 2\" }
  - { id: hosts, match: { host: \"*.example.org\" }, per: [], limit: \"1/h burst 4\" }
  - { id: routes, per: [route], limit: \"1/h burst 5\" }
",
    );
    let bound = |entries: &[(&str, &str)]| {
        let response = response_to(&service, call_of([descriptor(entries)]));
        let status = &response.statuses[0];
        let limit = status.current_limit.as_ref();
        let rule = limit.map_or("none", |limit| limit.name.as_str());
        (rule.to_owned(), status.limit_remaining, passes(&response))
    };
    let is = |rule: &str, left: u32, passes: bool| (rule.to_owned(), left, passes);
    let client = |plan| [("client", "a"), ("plan", plan)];
    assert_eq!(bound(&client("pro")), is("client", 29, true));
    assert_eq!(bound(&client("none of ours")), is("client", 1, true));
    let other_plan = [("client", "merchant_123"), ("plan", "free")];
    let other = bound(&other_plan);
    assert_eq!(other, is("client", 2, true), "rather than its own");

    assert_eq!(bound(&[("host", "shop.example.com")]), is("shop", 1, true));
    // Envoy's name for it, and other forms of the same host.
    assert_eq!(
        bound(&[("authority", "SHOP.example.com:443")]),
        is("shop", 0, true)
    );
    assert_eq!(bound(&[("host", "shop.example.com")]), is("shop", 0, false));
    for (host, left) in [("a.example.org", 3), ("b.example.org", 2)] {
        assert_eq!(bound(&[("host", host)]), is("hosts", left, true), "{host}");
    }
    assert_eq!(bound(&[("host", "example.net")]), is("none", 0, true));

    for route in ["/v1/charges/{id}", "/v1/users/{id}"] {
        let left: Vec<_> = (0..6).map(|_| bound(&[("route", route)])).collect();
        assert_eq!(left[0], is("routes", 4, true), "{route}");
        assert_eq!(left[5], is("routes", 0, false), "{route}");
    }
}

#[test]
fn hits_are_charged_and_0_of_a_descriptor_charges_nothing() {
    let service = standard_service("");
    let mut dear = call_of([descriptor(&[("tenant", "t")])]);
    dear.hits_addend = 2;
    let mut look = dear.clone();
    look.descriptors[0].hits_addend = Some(0);
    let mut one = dear.clone();
    one.descriptors[0].hits_addend = Some(1);
    let left: Vec<_> = responses_to(&service, [look.clone(), one.clone(), dear, one, look])
        .into_iter()
        .map(|response| {
            let response = response.unwrap();
            (passes(&response), response.statuses[0].limit_remaining)
        })
        .collect();
    assert_eq!(
        left,
        [(true, 2), (true, 1), (false, 1), (true, 0), (true, 0)]
    );
}

#[test]
fn the_limit_of_a_descriptor_counts_only_where_it_may() {
    let mut brought = call_of([descriptor(&[("tenant", "t")])]);
    brought.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit: 5,
        unit: RateLimitUnit::Hour.into(),
    });
    let passed = |service: &Running| {
        let all = responses_to(service, (0..7).map(|_| brought.clone())).into_iter();
        all.filter(|response| passes(response.as_ref().unwrap()))
            .count()
    };
    let strict = standard_service("");
    assert_eq!(passed(&strict), 2);
    let ignored = strict.metric("tollgate_service_ignored_overrides_total");
    assert_eq!(ignored, 7.0);
    let lenient = standard_service("rls: { overrides: true }");
    assert_eq!(passed(&lenient), 5);
}

#[test]
fn a_call_that_cannot_wait_is_denied_and_takes_no_place() {
    let service = standard_service("");
    let slow = || call_of([descriptor(&[("slow", "yes")])]);
    let responses: Vec<_> = responses_to(&service, (0..20).map(|_| slow()))
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(passes(&responses[0]));
    let denied = responses.iter().find(|response| !passes(response)).unwrap();
    let mut headers = denied.response_headers_to_add.iter();
    assert!(headers.any(|header| header.key == "retry-after" && header.value == "1"));
    std::thread::sleep(Duration::from_millis(150));
    assert!(passes(&response_to(&service, slow())), "the queue is empty");
}

/// The figures of a response: for each descriptor its limit, its code and how many are left.
fn figures(response: &RateLimitResponse) -> Vec<(String, Code, u32)> {
    let figures = |status: &DescriptorStatus| {
        let limit = status.current_limit.as_ref().unwrap();
        (limit.name.clone(), status.code(), status.limit_remaining)
    };
    response.statuses.iter().map(figures).collect()
}

#[test]
fn a_denied_queued_call_reports_the_figures_after_its_refund() {
    let rules = "
rules:
  - { id: client, per: [client], limit: \"6/m burst 20\" }
  - { id: queue, per: [\"attribute:slow\"], limit: \"6/m queue 5 leaky_bucket\" }
";
    let redis = RedisServer::start();
    let over_redis = format!(
        "store: {{ redis: {:?}, deadline: 10s, instances: 1 }}",
        redis.url()
    );
    for store in ["", over_redis.as_str()] {
        let service = kit::service("rls: { deadline: 10s }", &format!("{store}\n{rules}"));
        let call = || {
            call_of([
                descriptor(&[("client", "a")]),
                descriptor(&[("slow", "yes")]),
            ])
        };
        let responses: Vec<_> = responses_to(&service, (0..4).map(|_| call()))
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert!(passes(&responses[0]));
        let reports = |client, code, queue| {
            vec![
                ("client".to_owned(), Code::Ok, client),
                ("queue".to_owned(), code, queue),
            ]
        };
        assert_eq!(figures(&responses[0]), reports(19, Code::Ok, 4));
        for denied in &responses[1..] {
            assert!(!passes(denied));
            assert_eq!(
                figures(denied),
                reports(19, Code::OverLimit, 4),
                "no figure of a denied call counts it"
            );
            let header = |name: &str| {
                let mut headers = denied.response_headers_to_add.iter();
                let header = headers.find(|header| header.key == name);
                header.map(|header| header.value.clone()).unwrap()
            };
            assert_eq!(
                header("x-ratelimit-limit"),
                "5",
                "of the queue, which denied it"
            );
            assert_eq!(header("x-ratelimit-remaining"), "4");
            let reset = denied.statuses[1].duration_until_reset.unwrap();
            assert!(reset.seconds <= 10, "of one place, not of two: {reset:?}");
        }
    }
}

#[test]
fn only_configured_domains_are_limited() {
    let service = standard_service("rls: { domains: [ours] }");
    let call = |domain: &str| RateLimitRequest {
        domain: domain.into(),
        ..call_of([
            descriptor(&[("tenant", "t")]),
            descriptor(&[("client", "a")]),
        ])
    };
    let foreign = responses_to(&service, (0..5).map(|_| call("theirs")));
    assert!(
        foreign
            .into_iter()
            .all(|response| codes(&response.unwrap()) == [Code::Ok; 2])
    );
    let ours = responses_to(&service, (0..3).map(|_| call("ours")));
    let passed: Vec<bool> = ours
        .into_iter()
        .map(|response| passes(&response.unwrap()))
        .collect();
    assert_eq!(passed, [true, true, false]);
    let without = response_to(&service, call(""));
    assert_eq!(codes(&without), [Code::OverLimit; 2]);
}

#[test]
fn the_token_is_required() {
    let service = standard_service("token: \"0123456789abcdef\"");
    let bare = responses_to(&service, [call_of([descriptor(&[("tenant", "t")])])]).remove(0);
    assert_eq!(bare.unwrap_err().code(), tonic::Code::Unauthenticated);
    block_on(async {
        let mut client = RateLimitServiceClient::new(channel(&service).await);
        let mut request = Request::new(call_of([descriptor(&[("tenant", "t")])]));
        let token = "Bearer 0123456789abcdef".parse().unwrap();
        request.metadata_mut().insert("authorization", token);
        assert!(passes(
            client.should_rate_limit(request).await.unwrap().get_ref()
        ));
    });
}

#[test]
fn health_is_reported_for_all_and_for_the_service() {
    let service = standard_service("");
    block_on(async {
        let mut client = HealthClient::new(channel(&service).await);
        for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
            let service = service.to_owned();
            let response = client.check(HealthCheckRequest { service }).await.unwrap();
            assert_eq!(response.get_ref().status(), ServingStatus::Serving);
        }
        let service = "other".to_owned();
        let unknown = client
            .check(HealthCheckRequest { service })
            .await
            .unwrap_err();
        assert_eq!(unknown.code(), tonic::Code::NotFound);
    });
}

#[test]
fn without_redis_every_call_is_answered_and_limits_go_on() {
    let redis = RedisServer::start();
    let config = format!(
        "store: {{ redis: \"{}\", instances: 1 }}
rules:
  - {{ id: client, per: [client], limit: \"1/h burst 100\" }}
  - {{ id: pay, match: {{ path: /pay }}, per: [], on_store_failure: closed, limit: \"1/h burst 100\" }}
",
        redis.url()
    );
    let service = kit::service("", &config);
    drop(redis);
    let client = || call_of([descriptor(&[("client", "a")])]);
    let responses: Vec<_> = responses_to(&service, (0..100).map(|_| client()))
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let passed = responses.iter().filter(|response| passes(response)).count();
    assert_eq!(passed, 80, "a careful share");
    assert!(metadata(&responses[99], "source").contains("local"));
    let closed = response_to(&service, call_of([descriptor(&[("path", "/pay")])]));
    assert!(!passes(&closed));
    assert!(metadata(&closed, "source").contains("closed"));
    let closed = "tollgate_service_requests_total{endpoint=\"rls\",outcome=\"closed\"}";
    assert_eq!(service.metric(closed), 1.0);
}

#[test]
fn a_redis_that_hangs_delays_no_call_and_limits_go_on() {
    let redis = RedisServer::start();
    let config = format!(
        "store: {{ redis: \"{}\", deadline: 10ms, instances: 1 }}\nrules: [{{ id: client, per: [client], limit: \"1/h burst 100\" }}]",
        redis.url()
    );
    let service = kit::service("", &config);
    assert_eq!(redis.command(&["CLIENT", "PAUSE", "600000"]), "OK");
    let client = || call_of([descriptor(&[("client", "a")])]);
    let responses: Vec<_> = responses_to(&service, (0..100).map(|_| client()))
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let sources: Vec<String> = (responses.iter())
        .map(|response| metadata(response, "source"))
        .collect();
    assert!(
        sources.iter().all(|source| source.contains("local")),
        "{sources:?}"
    );
    let passed = responses.iter().filter(|response| passes(response));
    assert_eq!(passed.count(), 80, "a careful share");
}

/// Requests over HTTP would wait for a minute.
#[test]
fn calls_of_envoy_have_a_deadline_of_their_own() {
    let redis = RedisServer::start();
    let store = format!("store: {{ redis: {:?}, deadline: 1m }}", redis.url());
    let rules = "rules: [{ id: client, per: [client], limit: \"1/h burst 100\" }]";
    let service = kit::service("rls: { deadline: 30ms }", &format!("{store}\n{rules}"));
    redis.pause();
    let decided = response_to(&service, call_of([descriptor(&[("client", "a")])]));
    assert!(metadata(&decided, "source").contains("local"));
}

/// Redis is stuck between the charge of a call, which would have to wait, and its refund. Requests over HTTP would wait for a minute.
#[test]
fn a_stuck_refund_delays_no_answer_to_envoy() {
    const STORE_DEADLINE: Duration = Duration::from_secs(60);
    const RULES: &str = "
rules:
  - { id: client, per: [client], limit: \"1/h queue 5\" }
  - { id: tenant, per: [\"attribute:tenant\"], limit: \"1/h queue 5\" }
  - { id: everyone, per: [], limit: \"1/h queue 5\" }
";
    let redis = RedisServer::start();
    let wire = RedisWire::to(&redis);
    let store = |url: &str| format!("store: {{ redis: {url:?}, deadline: 60s, instances: 1 }}");
    let config = format!("{}\n{RULES}", store(&wire.url()));
    let service = kit::service("rls: { deadline: 5s }", &config);
    let call = || call_of([descriptor(&[("client", "a"), ("tenant", "t")])]);
    assert!(passes(&response_to(&service, call())));
    wire.stop_after(1);
    let began = Instant::now();
    assert!(!passes(&response_to(&service, call())));
    let took = began.elapsed();
    assert!(took < STORE_DEADLINE / 3, "{took:?}");
    wire.go_on();
    let other = kit::service("", &format!("{}\n{RULES}", store(&redis.url())));
    let look = json!({ "client": "a", "attributes": { "tenant": "t" }, "cost": 0 });
    let left = || -> Vec<u64> {
        let tiers = other.check(&look)["tiers"].as_array().unwrap().clone();
        let left = tiers.iter().map(|tier| tier["remaining"].as_u64().unwrap());
        left.collect()
    };
    until_value("the refund of all tiers", left, |left| *left == [4, 4, 4]);
}

/// The duration that this many hundredths of them did not exceed.
fn percentile(times: &[Duration], hundredths: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() * hundredths / 100]
}

/// Each call over a paused Redis is followed by one in memory after a sleep as long as the deadline. That is how long a
/// decision takes that waits for the deadline and no longer, on this machine, at this time. On a busy machine both are late.
#[test]
fn while_redis_is_stuck_nine_of_ten_calls_are_answered_in_time() {
    const CALLS: usize = 200;
    const DEADLINE: Duration = Duration::from_millis(15);
    const ENVOY_WAITS: Duration = Duration::from_millis(20);
    const RULES: &str = "rules: [{ id: client, per: [client], limit: \"1/h burst 1000\" }]";
    let redis = RedisServer::start();
    // The deadline is the default; the breaker never opens, so that every decision waits for all of it.
    let store = format!(
        "store: {{ redis: {:?}, breaker: {{ failures: 1000, within: 1ms }} }}",
        redis.url()
    );
    let stuck = kit::service("", &format!("{store}\n{RULES}"));
    let in_memory = kit::service("", RULES);
    redis.pause();
    let (waited, usual) = block_on(async {
        let mut stuck = RateLimitServiceClient::new(channel(&stuck).await);
        let mut in_memory = RateLimitServiceClient::new(channel(&in_memory).await);
        let (mut waited, mut usual) = (Vec::new(), Vec::new());
        for nth in 0..=CALLS {
            let call = || call_of([descriptor(&[("client", "a")])]);
            let began = Instant::now();
            let response = stuck.should_rate_limit(call()).await.unwrap().into_inner();
            waited.push(began.elapsed());
            assert!(metadata(&response, "source").contains("local"), "{nth}");
            let began = Instant::now();
            tokio::time::sleep(DEADLINE).await;
            in_memory.should_rate_limit(call()).await.unwrap();
            usual.push(began.elapsed());
        }
        // The first call connects as well.
        (waited.split_off(1), usual.split_off(1))
    });
    for hundredths in [50, 90] {
        let (waited, usual) = (
            percentile(&waited, hundredths),
            percentile(&usual, hundredths),
        );
        // Both are alike, however busy the machine is; a decision that waits for more than its deadline takes longer.
        assert!(
            waited < ENVOY_WAITS.max(usual * 3 / 2),
            "{hundredths} of 100 within {waited:?}; the sleep alone takes {usual:?}"
        );
    }
}
