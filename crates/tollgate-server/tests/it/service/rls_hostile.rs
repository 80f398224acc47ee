//! Envoy's protocol with anything that a client can put into a header, or a configuration into a call. Every call gets a
//! decision, since Envoy admits a request after an error.

use bytes::{BufMut as _, Bytes};
use http_body_util::{BodyExt as _, Full};
use prost::Message as _;
use tollgate_server::service::protocol::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_server::service::protocol::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use tollgate_server::service::protocol::envoy::r#type::v3::RateLimitUnit;
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
};
use tower::ServiceExt as _;

use super::rls::{
    RateLimitServiceClient, call_of, channel, codes, descriptor, passes, response_to, responses_to,
    standard_service,
};
use crate::kit;
use crate::kit::database::block_on;
use tollgate_testing::Running;
use tollgate_testing::servers::RedisServer;

/// How many of `count` such calls are admitted.
fn admitted(service: &Running, call: &RateLimitRequest, count: usize) -> usize {
    let responses = responses_to(service, (0..count).map(|_| call.clone()));
    let responses = responses.into_iter().map(Result::unwrap);
    responses.filter(passes).count()
}

fn count_of(service: &Running, outcome: &str) -> f64 {
    service.metric(&format!(
        "tollgate_service_requests_total{{endpoint=\"rls\",outcome=\"{outcome}\"}}"
    ))
}

#[test]
fn a_value_that_is_not_utf8_is_limited_like_any_other() {
    for value in [
        b"\xff".as_slice(),
        b"caf\xe9",
        b"a\xc3",
        b"\xed\xa0\x80",
        b"\0\x01\x7f",
        b"",
    ] {
        let service = standard_service("");
        let call = call_of([descriptor(&[("tenant", value)])]);
        assert_eq!(admitted(&service, &call, 5), 2, "{value:?}");
        let counts = ["allowed", "denied", "invalid"].map(|outcome| count_of(&service, outcome));
        assert_eq!(counts, [2.0, 3.0, 0.0], "{value:?}");
    }
}

const FORMS: [&str; 7] = ["V", " V", "V ", "\tV", "V\t", " \t V", "V \t "];

/// Spaces around a header's value, which HTTP/2 carries.
#[test]
fn spaces_around_a_value_do_not_evade_its_limit() {
    let service = kit::service(
        "",
        "
clients: [{ id: merchant_123, plan: pro }]
rules:
  - { id: client, per: [client], limit: \"1/h burst 2\" }
  - { id: client, plan: pro, per: [client], limit: \"1/h burst 3\" }
  - { id: tenant, per: [\"attribute:tenant\"], limit: \"1/h burst 2\" }
  - { id: header, per: [\"header:x-tenant\"], limit: \"1/h burst 2\" }
  - { id: region, match: { attributes: { region: eu } }, per: [], limit: \"1/h burst 2\" }
  - { id: charges, match: { methods: [POST], path: /v1/charges, host: shop.example.com }, per: [], limit: \"1/h burst 2\" }
",
    );
    let cases: [(&[&str], &str, usize); 9] = [
        (&["tenant"], "acme", 2),
        (&["header:x-tenant"], "acme", 2),
        (&["region"], "eu", 2),
        (&["client"], "new", 2),
        (&["client"], "merchant_123", 3),
        (&["plan", "client=gold"], "pro", 3),
        (
            &["method", "path=/v1/charges", "host=shop.example.com"],
            "POST",
            2,
        ),
        (&["path", "method=GET", "client=1"], "/v1/charges", 2),
        (&["host", "method=GET", "client=2"], "shop.example.com", 2),
    ];
    for (keys, value, limit) in cases {
        let call = |form: &str| {
            let value = form.replace('V', value);
            let entry = |key: &&str| {
                let (key, given) = key.split_once('=').unwrap_or((key, value.as_str()));
                (key.to_owned(), given.to_owned())
            };
            call_of([descriptor(&keys.iter().map(entry).collect::<Vec<_>>())])
        };
        let calls = FORMS.iter().map(|form| call(form));
        let responses = responses_to(&service, calls)
            .into_iter()
            .map(Result::unwrap);
        assert_eq!(responses.filter(passes).count(), limit, "{keys:?} {value}");
    }
}

#[test]
fn a_client_that_the_gateway_refuses_is_denied() {
    let service = standard_service("");
    let long = "x".repeat(257);
    for value in [&long, "4\u{200b}2", "42\u{202e}", "4\n2"] {
        for key in ["client", "plan"] {
            let response = response_to(&service, call_of([descriptor(&[(key, value)])]));
            assert_eq!(codes(&response), [Code::OverLimit], "{key} {value:?}");
        }
    }
    assert_eq!(count_of(&service, "invalid"), 8.0);
    let longest = call_of([descriptor(&[("client", format!(" {} ", "x".repeat(256)))])]);
    assert!(passes(&response_to(&service, longest)));
}

#[test]
fn long_values_with_the_same_beginning_share_a_bucket() {
    let service = standard_service("");
    let long = |last: &str| {
        let value = "é".repeat(800) + last;
        call_of([descriptor(&[("tenant", value)])])
    };
    let passed: Vec<bool> = ["a", "b", "c"]
        .map(|last| passes(&response_to(&service, long(last))))
        .to_vec();
    assert_eq!(passed, [true, true, false]);
}

#[test]
fn an_identity_host_path_or_method_that_is_not_text_is_denied() {
    let service = standard_service("");
    let keys = [
        "client",
        "plan",
        "method",
        "host",
        "authority",
        "route",
        "path",
        "ip",
        "remote_address",
    ];
    for key in keys {
        for value in [b"/\xff".as_slice(), b"caf\xe9"] {
            let response = response_to(&service, call_of([descriptor(&[(key, value)])]));
            assert_eq!(codes(&response), [Code::OverLimit], "{key}");
            let body = String::from_utf8(response.raw_body).unwrap();
            assert!(body.contains("\"status\":400"), "{key}: {body}");
        }
    }
    for (key, value) in [
        ("path", "/a%2fb"),
        ("path", "nowhere"),
        ("ip", "somewhere"),
        ("remote_address", ""),
        ("method", ""),
        ("method", "GET /"),
        ("host", "shop.example.com:x"),
        ("authority", "user@shop.example.com"),
        ("host", "shop.example.com:80:80"),
    ] {
        let response = response_to(&service, call_of([descriptor(&[(key, value)])]));
        assert_eq!(codes(&response), [Code::OverLimit], "{key} {value}");
    }
    assert_eq!(count_of(&service, "invalid"), f64::from(9 * 2 + 9));
    assert_eq!(count_of(&service, "allowed"), 0.0);
}

#[test]
fn no_other_form_of_a_host_or_header_evades_its_rule() {
    let service = kit::service(
        "",
        "rules:
  - { id: shop, match: { host: shop.example.com }, per: [], limit: \"1/h burst 1\" }
  - { id: region, match: { headers: { X-Region: eu } }, per: [], limit: \"1/h burst 1\" }
",
    );
    let is_denied = |key: &str, value: String| {
        let call = call_of([descriptor(&[(key, value)])]);
        !passes(&response_to(&service, call))
    };
    assert!(!is_denied("host", "shop.example.com".to_owned()));
    for host in [
        "SHOP.example.com.",
        "shop.example.com:443",
        "[shop.example.com]",
        "..",
    ] {
        assert!(is_denied("host", host.to_owned()), "{host}");
    }
    let region = |value: String| is_denied("header:x-region", value);
    assert!(!region("eu".to_owned()));
    // A list, or several lines that a server has joined.
    let junk = "x".repeat(2_000);
    for value in [
        "us,eu",
        "eu, us",
        "1,2,3,4,5,6,7,8,eu,9",
        &format!("{junk},eu"),
        &format!("eu,{junk}"),
    ] {
        assert!(region(value.to_owned()), "{value}");
    }
    assert!(!region(junk));
}

#[test]
fn a_header_with_too_many_named_values_is_denied() {
    let regions: Vec<String> = (0..8).map(|nth| format!("r{nth}")).collect();
    let rule = |region: &String| {
        format!(
            "  - {{ id: {region}, match: {{ headers: {{ X-Region: {region} }} }}, per: [], limit: \"9/h burst 9\" }}\n"
        )
    };
    let rules: String = regions.iter().map(rule).collect();
    let service = kit::service("", &format!("rules:\n{rules}"));
    let call = |value: String| call_of([descriptor(&[("header:x-region", value)])]);
    assert!(passes(&response_to(&service, call(regions[..7].join(",")))));
    let response = response_to(&service, call(regions.join(",")));
    assert_eq!(codes(&response), [Code::OverLimit]);
    assert_eq!(count_of(&service, "invalid"), 1.0);
    let attributes = serde_json::json!({ "header:x-region": regions.join(",") });
    let check = service.check(&serde_json::json!({ "attributes": attributes }));
    assert_eq!(check["reason"], "header_refused");
}

#[test]
fn keys_that_no_rule_can_name_are_ignored() {
    let service = standard_service("");
    let call = call_of([descriptor(&[
        (b"\xff\xfe".as_slice(), b"x".as_slice()),
        (b"tenant", b"t"),
    ])]);
    assert_eq!(admitted(&service, &call, 3), 2);
}

fn with_limit(requests_per_unit: u32, unit: i32) -> RateLimitRequest {
    let mut call = call_of([descriptor(&[("tenant", "t")])]);
    call.descriptors[0].limit = Some(RateLimitOverride {
        requests_per_unit,
        unit,
    });
    call
}

#[test]
fn an_impossible_limit_of_a_descriptor_leaves_that_of_the_rule() {
    let cases = [
        (10_000_001, RateLimitUnit::Second.into()),
        (u32::MAX, RateLimitUnit::Second.into()),
        (u32::MAX, RateLimitUnit::Year.into()),
        (5, RateLimitUnit::Unknown.into()),
        (0, RateLimitUnit::Unknown.into()),
        (5, 99),
        (5, i32::MIN),
    ];
    for (count, unit) in cases {
        let service = standard_service("rls: { overrides: true }");
        let call = with_limit(count, unit);
        assert_eq!(admitted(&service, &call, 4), 2, "{count} per {unit}");
        let ignored = service.metric("tollgate_service_ignored_overrides_total");
        assert_eq!(ignored, 4.0, "{count} per {unit}");
    }
}

#[test]
fn a_limit_of_0_of_a_descriptor_admits_nothing() {
    let service = standard_service("rls: { overrides: true }");
    let call = with_limit(0, RateLimitUnit::Hour.into());
    let response = response_to(&service, call.clone());
    assert_eq!(codes(&response), [Code::OverLimit]);
    let body = String::from_utf8(response.raw_body).unwrap();
    assert!(body.contains("\"status\":429"), "{body}");
    assert_eq!(count_of(&service, "denied"), 1.0);
    let strict = standard_service("");
    assert_eq!(admitted(&strict, &call, 4), 2, "without overrides");
}

#[test]
fn hits_that_no_limit_holds_are_denied_and_charge_nothing() {
    let redis = RedisServer::start();
    let over_redis = format!(
        "store: {{ redis: {:?}, deadline: 10s, instances: 1 }}",
        redis.url()
    );
    for store in ["", over_redis.as_str()] {
        let rules = "rules: [{ id: tenant, per: [\"attribute:tenant\"], limit: \"1/h burst 2\" }]";
        let service = kit::service("rls: { deadline: 10s }", &format!("{store}\n{rules}"));
        let plain = call_of([descriptor(&[("tenant", "t")])]);
        for hits in [3, 1 << 32, 1 << 53, (1 << 53) + 1, u64::MAX - 1, u64::MAX] {
            let mut call = plain.clone();
            call.descriptors[0].hits_addend = Some(hits);
            assert!(!passes(&response_to(&service, call)), "{hits}");
        }
        let mut call = plain.clone();
        call.hits_addend = u32::MAX;
        assert!(!passes(&response_to(&service, call)));
        assert_eq!(admitted(&service, &plain, 3), 2, "{store}");
    }
}

#[test]
fn calls_that_only_configuration_can_cause_are_denied() {
    let service = standard_service("");
    let tenant = || descriptor(&[("tenant", "t")]);
    let mut negative = call_of([tenant()]);
    negative.descriptors[0].is_negative_hits = true;
    let calls = [
        ("no descriptors", call_of([])),
        ("65 descriptors", call_of((0..65).map(|_| tenant()))),
        (
            "no entries",
            call_of([tenant(), RateLimitDescriptor::default()]),
        ),
        ("no key", call_of([descriptor(&[("", "x")])])),
        ("negative hits", negative),
    ];
    let count = f64::from(u32::try_from(calls.len()).unwrap());
    for (what, call) in calls {
        let (descriptors, response) = (call.descriptors.len(), response_to(&service, call));
        assert_eq!(response.overall_code(), Code::OverLimit, "{what}");
        assert_eq!(
            codes(&response),
            vec![Code::OverLimit; descriptors],
            "{what}"
        );
    }
    assert_eq!(count_of(&service, "invalid"), count);
    assert_eq!(
        admitted(&service, &call_of([tenant()]), 3),
        2,
        "none was charged"
    );
}

#[test]
fn a_call_that_meets_too_many_buckets_is_denied() {
    let rules: String = (0..5)
        .map(|nth| format!("  - {{ id: r{nth}, per: [client], limit: \"1/h burst 2\" }}\n"))
        .collect();
    let service = kit::service("", &format!("rules:\n{rules}"));
    let clients = |count: usize| {
        call_of((0..count).map(|nth| descriptor(&[("client", format!("client-{nth}"))])))
    };
    assert_eq!(admitted(&service, &clients(52), 1), 0);
    assert_eq!(count_of(&service, "invalid"), 1.0);
    assert_eq!(admitted(&service, &clients(51), 3), 2);
}

/// The response to a body that is sent as it is: the status of gRPC and the message.
fn raw(service: &Running, body: Vec<u8>) -> (String, RateLimitResponse) {
    block_on(async {
        let request = http::Request::post(format!(
            "http://{}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            service.address("service")
        ))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(Full::new(Bytes::from(body))))
        .unwrap();
        let response = channel(service).await.oneshot(request).await.unwrap();
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let body = response.into_body().collect().await.unwrap();
        let trailers = body.trailers().cloned().unwrap_or_default();
        let status = trailers["grpc-status"].to_str().unwrap().to_owned();
        let frame = body.to_bytes();
        let message = frame.get(5..).unwrap_or_default();
        (status, RateLimitResponse::decode(message).unwrap())
    })
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut body = vec![flag];
    body.put_u32(u32::try_from(message.len()).unwrap());
    body.extend_from_slice(message);
    body
}

#[test]
fn a_message_that_cannot_be_read_is_denied() {
    let service = standard_service("");
    let right = call_of([descriptor(&[("tenant", "t")])]).encode_to_vec();
    let cut = right.len() - 1;
    let bodies = [
        Vec::new(),
        vec![0, 0],
        framed(0, b"\xff\xff\xff"),
        framed(0, &right[..cut]),
        framed(0, &right)[..cut].to_vec(),
        [framed(0, &right), framed(0, &right)].concat(),
        framed(1, &right),
        framed(7, &right),
    ];
    let count = f64::from(u32::try_from(bodies.len()).unwrap());
    for body in bodies {
        let (status, response) = raw(&service, body.clone());
        assert_eq!(
            (status.as_str(), response.overall_code()),
            ("0", Code::OverLimit),
            "{body:?}"
        );
    }
    assert_eq!(count_of(&service, "invalid"), count);
    let (status, response) = raw(&service, framed(0, &right));
    assert_eq!((status.as_str(), passes(&response)), ("0", true));
}

#[test]
fn calls_with_long_headers_are_decided_however_large() {
    let service = standard_service("");
    let header = "x".repeat(60 * 1_024);
    // All that Envoy accepts by default, in eight descriptors.
    let large = call_of((0..8).map(|_| {
        descriptor(&[
            ("tenant", header.as_str()),
            ("unknown", header.as_str()),
            ("path", "/"),
        ])
    }));
    assert_eq!(admitted(&service, &large, 3), 2);
    let mut too_large = call_of([descriptor(&[("tenant", "t")])]);
    too_large.descriptors[0].entries[0].value = vec![b'x'; 5 << 20];
    assert!(!passes(&response_to(&service, too_large)));
    assert_eq!(count_of(&service, "invalid"), 1.0);
}

const TOKEN: &str = "0123456789abcdef";

/// A service with a token and a rule for tenants.
fn service_with_token() -> Running {
    kit::service(
        &format!("token: {TOKEN}"),
        "rules: [{ id: tenant, per: [\"attribute:tenant\"], limit: \"1/h burst 2\" }]",
    )
}

/// The responses to these calls with the token.
fn with_token(
    service: &Running,
    calls: impl IntoIterator<Item = tonic::Request<RateLimitRequest>>,
) -> Vec<RateLimitResponse> {
    block_on(async {
        let mut client = RateLimitServiceClient::new(channel(service).await);
        let mut responses = Vec::new();
        for mut call in calls {
            let token = format!("Bearer {TOKEN}").parse().unwrap();
            call.metadata_mut().insert("authorization", token);
            let response = client.should_rate_limit(call).await.unwrap();
            responses.push(response.into_inner());
        }
        responses
    })
}

#[test]
fn long_metadata_of_a_call_is_no_error() {
    let service = service_with_token();
    let call = || {
        let mut call = tonic::Request::new(call_of([descriptor(&[("tenant", "t")])]));
        // The state of a client's trace, which Envoy forwards.
        let state = format!("a={}", "x".repeat(58 * 1_024)).parse().unwrap();
        call.metadata_mut().insert("tracestate", state);
        call
    };
    let responses = with_token(&service, (0..3).map(|_| call()));
    let passed: Vec<bool> = responses.iter().map(passes).collect();
    assert_eq!(passed, [true, true, false]);
}

#[test]
fn denied_calls_are_logged_with_advice_and_without_forged_lines() {
    let service = service_with_token();
    let odd = call_of([descriptor(&[
        ("client", "mallory\n{\"level\":\"ERROR\"}\u{202e}"),
        ("path", "/a"),
    ])]);
    let without_a_key = call_of([descriptor(&[("", "x")])]);
    let all = std::iter::repeat_n(odd, 50).chain(std::iter::repeat_n(without_a_key, 5));
    let responses = with_token(&service, all.map(tonic::Request::new));
    assert!(responses.iter().all(|response| !passes(response)));
    service.wait_for_log("give every action in Envoy's rate_limits a descriptor_key");
    let log = service.log();
    let lines = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    let denied = lines("denied a call of Envoy's protocol");
    assert!((1..10).contains(&denied), "at most one a second: {log}");
    assert_eq!(lines("descriptor_key"), 1, "once: {log}");
    assert!(log.contains("the client is not readable text"), "{log}");
    assert!(log.contains("client mallory"), "{log}");
    assert!(!log.contains('\u{202e}'), "{log}");
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_ne!(line["level"], "ERROR", "{line}");
    }
}
