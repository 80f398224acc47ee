//! Envoy's protocol, spoken by a real gRPC client.

use std::time::{Duration, Instant};

use tollgate_server::service::protocol::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_server::service::protocol::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use tollgate_server::service::protocol::envoy::r#type::v3::RateLimitUnit;
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::database::block_on;
use crate::served::Served;
use tollgate_testing::servers::RedisServer;

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

pub(crate) fn served(service: &str) -> Served {
    Served::start(&format!("service: {service}\n{RULES}"))
}

pub(crate) async fn channel(served: &Served) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", served.address)).unwrap();
    endpoint.connect().await.unwrap()
}

pub(crate) fn descriptor(entries: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> RateLimitDescriptor {
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

pub(crate) fn asked(
    descriptors: impl IntoIterator<Item = RateLimitDescriptor>,
) -> RateLimitRequest {
    RateLimitRequest {
        domain: b"envoy".to_vec(),
        descriptors: descriptors.into_iter().collect(),
        hits_addend: 0,
    }
}

/// Asks one after the other on one connection.
pub(crate) fn answers(
    served: &Served,
    requests: impl IntoIterator<Item = RateLimitRequest>,
) -> Vec<Result<RateLimitResponse, Status>> {
    block_on(async {
        let mut client = RateLimitServiceClient::new(channel(served).await);
        let mut answers = Vec::new();
        for request in requests {
            let answer = client.should_rate_limit(request).await;
            answers.push(answer.map(tonic::Response::into_inner));
        }
        answers
    })
}

pub(crate) fn answer(served: &Served, request: RateLimitRequest) -> RateLimitResponse {
    answers(served, [request]).remove(0).unwrap()
}

pub(crate) fn passes(response: &RateLimitResponse) -> bool {
    response.overall_code() == Code::Ok
}

pub(crate) fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response
        .statuses
        .iter()
        .map(DescriptorStatus::code)
        .collect()
}

/// What the metadata says under a name.
fn metadata(response: &RateLimitResponse, name: &str) -> String {
    let metadata = response.dynamic_metadata.as_ref().unwrap();
    format!("{:?}", metadata.fields[name])
}

#[test]
fn each_descriptor_has_a_status_with_its_figures() {
    let served = served("{}");
    let client = descriptor(&[("client", "a")]);
    let address = descriptor(&[("remote_address", "203.0.113.7")]);
    let nothing = descriptor(&[("unknown", "x")]);
    let response = answer(&served, asked([client, address, nothing]));
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
        "of each the one with the least left; one call is charged once"
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
    let served = served("{}");
    let both = || {
        asked([
            descriptor(&[("client", "a")]),
            descriptor(&[("tenant", "t")]),
        ])
    };
    let responses: Vec<_> = answers(&served, (0..3).map(|_| both()))
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
        "seen, and changes nothing"
    );
    assert!(String::from_utf8_lossy(&responses[2].raw_body).contains("quota-exceeded"));
    let left = answer(&served, asked([descriptor(&[("client", "a")])]));
    assert!(passes(&left), "the denied call charged no client");
}

#[test]
fn entries_are_what_rules_look_at() {
    let served = served("{}");
    let charge = |path: &str| asked([descriptor(&[("method", "POST"), ("path", path)])]);
    let responses: Vec<bool> = answers(
        &served,
        [charge("/v1/charges/7?x=1"), charge("/v1/charges/8/")],
    )
    .into_iter()
    .map(|response| passes(&response.unwrap()))
    .collect();
    assert_eq!(responses, [true, false], "the path in its normal form");
    let known = answer(&served, asked([descriptor(&[("client", "merchant_123")])]));
    let limit = known.statuses[0].current_limit.clone().unwrap();
    assert_eq!(
        (limit.requests_per_unit, known.statuses[0].limit_remaining),
        (1, 29),
        "its plan"
    );
    // Odd paths and addresses must not slip through as errors, which Envoy lets pass.
    for odd in [
        ("path", "/a%2fb"),
        ("path", "/v1//charges/9"),
        ("path", "/v1/x/../charges/9"),
        ("ip", "somewhere"),
    ] {
        let refused = answer(&served, asked([descriptor(&[odd])]));
        assert!(!passes(&refused));
        assert_eq!(codes(&refused), [Code::OverLimit]);
    }
}

#[test]
fn a_plan_a_host_and_a_route_are_what_rules_mean_by_these_words() {
    let served = Served::start(
        "
service: {}
clients: [{ id: merchant_123, plan: pro }]
rules:
  - { id: client, per: [client], limit: \"1/h burst 3\" }
  - { id: client, plan: pro, per: [client], limit: \"1/h burst 30\" }
  - { id: shop, match: { host: shop.example.com }, per: [], limit: \"1/h burst 2\" }
  - { id: hosts, match: { host: \"*.example.org\" }, per: [], limit: \"1/h burst 4\" }
  - { id: routes, per: [route], limit: \"1/h burst 5\" }
",
    );
    let bound = |entries: &[(&str, &str)]| {
        let response = answer(&served, asked([descriptor(entries)]));
        let status = &response.statuses[0];
        let limit = status.current_limit.as_ref();
        let rule = limit.map_or("none", |limit| limit.name.as_str());
        (rule.to_owned(), status.limit_remaining, passes(&response))
    };
    let is = |rule: &str, left: u32, passes: bool| (rule.to_owned(), left, passes);
    let client = |plan| [("client", "a"), ("plan", plan)];
    assert_eq!(bound(&client("pro")), is("client", 29, true));
    assert_eq!(bound(&client("none of ours")), is("client", 1, true));
    let told = [("client", "merchant_123"), ("plan", "free")];
    assert_eq!(bound(&told), is("client", 2, true), "rather than its own");

    assert_eq!(bound(&[("host", "shop.example.com")]), is("shop", 1, true));
    // As Envoy calls it, and as callers may write it.
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
fn hits_are_what_is_charged_and_0_of_a_descriptor_looks() {
    let served = served("{}");
    let mut dear = asked([descriptor(&[("tenant", "t")])]);
    dear.hits_addend = 2;
    let mut look = dear.clone();
    look.descriptors[0].hits_addend = Some(0);
    let mut one = dear.clone();
    one.descriptors[0].hits_addend = Some(1);
    let left: Vec<_> = answers(&served, [look.clone(), one.clone(), dear, one, look])
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
fn a_limit_that_a_descriptor_brings_counts_only_where_it_may() {
    let mut brought = asked([descriptor(&[("tenant", "t")])]);
    brought.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit: 5,
        unit: RateLimitUnit::Hour.into(),
    });
    let passed = |served: &Served| {
        let all = answers(served, (0..7).map(|_| brought.clone())).into_iter();
        all.filter(|response| passes(response.as_ref().unwrap()))
            .count()
    };
    let strict = served("{}");
    assert_eq!(passed(&strict), 2);
    let metrics = strict.metrics();
    assert!(
        metrics.contains("tollgate_service_ignored_overrides_total 7"),
        "{metrics}"
    );
    assert_eq!(passed(&served("{ rls: { overrides: true } }")), 5);
}

#[test]
fn what_cannot_wait_is_denied_and_takes_no_place() {
    let served = served("{}");
    let slow = || asked([descriptor(&[("slow", "yes")])]);
    let responses: Vec<_> = answers(&served, (0..20).map(|_| slow()))
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(passes(&responses[0]));
    let denied = responses.iter().find(|response| !passes(response)).unwrap();
    let mut headers = denied.response_headers_to_add.iter();
    assert!(headers.any(|header| header.key == "retry-after" && header.value == "1"));
    std::thread::sleep(Duration::from_millis(150));
    assert!(
        passes(&answer(&served, slow())),
        "nobody stood in the queue"
    );
}

/// What a call reports of two descriptors, one of which is that of a queue.
fn figures(response: &RateLimitResponse) -> Vec<(String, Code, u32)> {
    let figures = |status: &DescriptorStatus| {
        let limit = status.current_limit.as_ref().unwrap();
        (limit.name.clone(), status.code(), status.limit_remaining)
    };
    response.statuses.iter().map(figures).collect()
}

#[test]
fn a_denied_call_of_a_queue_reports_the_figures_after_its_refund() {
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
        let served = Served::start(&format!(
            "service: {{ rls: {{ deadline: 10s }} }}\n{store}\n{rules}"
        ));
        let call = || {
            asked([
                descriptor(&[("client", "a")]),
                descriptor(&[("slow", "yes")]),
            ])
        };
        let responses: Vec<_> = answers(&served, (0..4).map(|_| call()))
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
fn only_the_domains_that_are_ours_are_limited() {
    let served = served("{ rls: { domains: [ours] } }");
    let call = |domain: &str| RateLimitRequest {
        domain: domain.into(),
        ..asked([
            descriptor(&[("tenant", "t")]),
            descriptor(&[("client", "a")]),
        ])
    };
    let foreign = answers(&served, (0..5).map(|_| call("theirs")));
    assert!(
        foreign
            .into_iter()
            .all(|response| codes(&response.unwrap()) == [Code::Ok; 2])
    );
    let ours = answers(&served, (0..3).map(|_| call("ours")));
    let passed: Vec<bool> = ours
        .into_iter()
        .map(|response| passes(&response.unwrap()))
        .collect();
    assert_eq!(passed, [true, true, false]);
    let without = answer(&served, call(""));
    assert_eq!(codes(&without), [Code::OverLimit; 2]);
}

#[test]
fn the_token_is_asked_for() {
    let served = served("{ token: \"0123456789abcdef\" }");
    let bare = answers(&served, [asked([descriptor(&[("tenant", "t")])])]).remove(0);
    assert_eq!(bare.unwrap_err().code(), tonic::Code::Unauthenticated);
    block_on(async {
        let mut client = RateLimitServiceClient::new(channel(&served).await);
        let mut request = Request::new(asked([descriptor(&[("tenant", "t")])]));
        let token = "Bearer 0123456789abcdef".parse().unwrap();
        request.metadata_mut().insert("authorization", token);
        assert!(passes(
            client.should_rate_limit(request).await.unwrap().get_ref()
        ));
    });
}

#[test]
fn health_is_told_for_all_and_for_the_service() {
    let served = served("{}");
    block_on(async {
        let mut client = HealthClient::new(channel(&served).await);
        for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
            let service = service.to_owned();
            let answer = client.check(HealthCheckRequest { service }).await.unwrap();
            assert_eq!(answer.get_ref().status(), ServingStatus::Serving);
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
fn without_redis_every_call_is_answered_and_limits_go_on_here() {
    let redis = RedisServer::start();
    let config = format!(
        "service: {{}}\nstore: {{ redis: \"{}\", instances: 1 }}
rules:
  - {{ id: client, per: [client], limit: \"1/h burst 100\" }}
  - {{ id: pay, match: {{ path: /pay }}, per: [], on_store_failure: closed, limit: \"1/h burst 100\" }}
",
        redis.url()
    );
    let served = Served::start(&config);
    drop(redis);
    let client = || asked([descriptor(&[("client", "a")])]);
    let responses: Vec<_> = answers(&served, (0..100).map(|_| client()))
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let passed = responses.iter().filter(|response| passes(response)).count();
    assert_eq!(passed, 80, "a careful share");
    assert!(metadata(&responses[99], "source").contains("local"));
    let closed = answer(&served, asked([descriptor(&[("path", "/pay")])]));
    assert!(!passes(&closed));
    assert!(metadata(&closed, "source").contains("closed"));
    let metrics = served.metrics();
    let line = "tollgate_service_requests_total{endpoint=\"rls\",outcome=\"closed\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn a_redis_that_hangs_holds_up_nobody_and_limits_go_on_here() {
    let redis = RedisServer::start();
    let config = format!(
        "service: {{}}\nstore: {{ redis: \"{}\", deadline: 10ms, instances: 1 }}\nrules: [{{ id: client, per: [client], limit: \"1/h burst 100\" }}]",
        redis.url()
    );
    let served = Served::start(&config);
    assert_eq!(redis.ask(&["CLIENT", "PAUSE", "600000"]), "OK");
    let client = || asked([descriptor(&[("client", "a")])]);
    let responses: Vec<_> = answers(&served, (0..100).map(|_| client()))
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
fn calls_of_envoys_have_a_deadline_of_their_own() {
    let redis = RedisServer::start();
    let served = Served::start(&format!(
        "service: {{ rls: {{ deadline: 30ms }} }}\nstore: {{ redis: {:?}, deadline: 1m }}\nrules: [{{ id: client, per: [client], limit: \"1/h burst 100\" }}]",
        redis.url()
    ));
    redis.pause();
    let decided = answer(&served, asked([descriptor(&[("client", "a")])]));
    assert!(metadata(&decided, "source").contains("local"));
}

/// The part of them that took no longer, in hundredths.
fn percentile(times: &[Duration], hundredths: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() * hundredths / 100]
}

/// After each call over a Redis that is stuck, one in memory that waits as long as the deadline first: what a decision takes that waits so long and no longer, on
/// this machine, at this time. Where even that is late, the machine is busy with others, and it shows in both.
#[test]
fn while_redis_is_stuck_nine_of_ten_calls_are_answered_in_the_time_that_envoy_waits() {
    const CALLS: usize = 200;
    const DEADLINE: Duration = Duration::from_millis(15);
    const ENVOY_WAITS: Duration = Duration::from_millis(20);
    const RULES: &str = "rules: [{ id: client, per: [client], limit: \"1/h burst 1000\" }]";
    let redis = RedisServer::start();
    // The deadline is the default; the breaker never opens, so that every decision waits for all of it.
    let stuck = Served::start(&format!(
        "service: {{}}\nstore: {{ redis: {:?}, breaker: {{ failures: 1000, within: 1ms }} }}\n{RULES}",
        redis.url()
    ));
    let in_memory = Served::start(&format!("service: {{}}\n{RULES}"));
    redis.pause();
    let (waited, usual) = block_on(async {
        let mut stuck = RateLimitServiceClient::new(channel(&stuck).await);
        let mut in_memory = RateLimitServiceClient::new(channel(&in_memory).await);
        let (mut waited, mut usual) = (Vec::new(), Vec::new());
        for nth in 0..=CALLS {
            let call = || asked([descriptor(&[("client", "a")])]);
            let began = Instant::now();
            let response = stuck.should_rate_limit(call()).await.unwrap().into_inner();
            waited.push(began.elapsed());
            assert!(metadata(&response, "source").contains("local"), "{nth}");
            let began = Instant::now();
            tokio::time::sleep(DEADLINE).await;
            in_memory.should_rate_limit(call()).await.unwrap();
            usual.push(began.elapsed());
        }
        // The first has to connect as well.
        (waited.split_off(1), usual.split_off(1))
    });
    for hundredths in [50, 90] {
        let (waited, usual) = (
            percentile(&waited, hundredths),
            percentile(&usual, hundredths),
        );
        // Two of these are alike, whatever they are; a decision that waits for more than its deadline is not.
        assert!(
            waited < ENVOY_WAITS.max(usual * 3 / 2),
            "of a hundred, {hundredths} within {waited:?}; by itself a wait takes {usual:?}"
        );
    }
}
