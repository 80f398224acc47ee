//! Envoy's protocol: whatever a call says, it gets a decision and no error, since Envoy admits a request for which it gets an error.

#![no_main]

mod service;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use service::Service;
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate_server::service::protocol::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse,
};

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

static SERVICE: LazyLock<Service> = LazyLock::new(Service::start);

fuzz_target!(|message: &[u8]| {
    // Mostly a message in a frame; what begins with the mark of none is sent as it is.
    let body = match message {
        [0xf8, raw @ ..] => raw.to_vec(),
        message => {
            let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
            [&[0], length.as_slice(), message].concat()
        }
    };
    let response = SERVICE.ask(PATH, &body);
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key("grpc-status"), "an error");
    let trailers = response.body().trailers().expect("trailers");
    assert_eq!(trailers["grpc-status"], "0");
    let frame = response.into_body().to_bytes();
    let (prefix, answer) = frame.split_at(5);
    let length = u32::try_from(answer.len()).expect("a short message").to_be_bytes();
    assert_eq!(prefix, [&[0], length.as_slice()].concat());
    let answer = RateLimitResponse::decode(answer).expect("a response");
    let is_decided = |code: Code| matches!(code, Code::Ok | Code::OverLimit);
    assert!(is_decided(answer.overall_code()));
    assert!(answer.statuses.iter().all(|status| is_decided(status.code())));
    let denies = answer.statuses.iter().any(|status| status.code() == Code::OverLimit);
    assert!(!denies || answer.overall_code() == Code::OverLimit);
    if message.first() != Some(&0xf8) {
        match RateLimitRequest::decode(message) {
            Ok(asked) => assert_eq!(answer.statuses.len(), asked.descriptors.len()),
            Err(_) => assert_eq!(answer.overall_code(), Code::OverLimit),
        }
    }
});
