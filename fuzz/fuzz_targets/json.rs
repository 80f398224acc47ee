//! What the decision service is asked in JSON: whatever a body says, the response is JSON, and no error of ours.

#![no_main]

mod service;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use service::Service;

static SERVICE: LazyLock<Service> = LazyLock::new(Service::start);

fuzz_target!(|input: &[u8]| {
    // The first byte says what is asked.
    let (path, body) = match input {
        [b'c', body @ ..] => ("/v1/check", body),
        [b'd', body @ ..] => ("/v1/check?status=decision", body),
        [b'e', body @ ..] => ("/v1/explain", body),
        [b'i', body @ ..] => ("/v1/inspect", body),
        [b'r', body @ ..] => ("/v1/reset", body),
        _ => return,
    };
    let response = SERVICE.ask(path, body);
    let status = response.status();
    assert!(!status.is_server_error(), "{path}: {status}");
    let answer: Value = serde_json::from_slice(&response.into_body().to_bytes()).expect("JSON");
    assert!(answer.is_object());
    if path != "/v1/check?status=decision" && !status.is_success() {
        assert_eq!(answer["status"], status.as_u16());
    }
});
