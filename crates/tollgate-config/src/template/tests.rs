//! Valid and invalid templates.

use tollgate::{LocalLimiter, Request, Rule};

use super::*;

fn denied(body: &str, is_json: bool, cost: u64) -> String {
    let rule = Rule::new("client", "1/m burst 1".parse().unwrap()).unwrap();
    let limiter = LocalLimiter::new().with_rules([rule]).unwrap();
    let _ = limiter.decide(&Request::new());
    let decision = limiter.decide(&Request::new().cost(cost));
    let mut headers = http::HeaderMap::new();
    headers.insert("x-request-id", "7f9c".parse().unwrap());
    let denial = Denial::of(&decision)
        .unwrap()
        .with_request_headers(&headers);
    Template::parse(body, is_json).unwrap().write(&denial)
}

#[test]
fn placeholders_are_replaced_by_values() {
    let body = "{status} {rule} {limit} {retry_after} {request_id}: {detail}";
    assert_eq!(
        denied(body, false, 1),
        "429 client 1 60 7f9c: A limit has no room for this request. Try again in 60 seconds."
    );
    // Where waiting does not help, there is no value.
    assert_eq!(denied("wait {retry_after}.", false, 2), "wait .");
    let css = "<style>p{margin:0} q {} {A}</style>{retry_after}{";
    assert_eq!(
        denied(css, false, 1),
        "<style>p{margin:0} q {} {A}</style>60{"
    );
}

#[test]
fn a_filled_json_template_is_json() {
    let body =
        r#"{"rule":{rule},"text":"\"{rule}\": {retry_after} s","wait":{"ms":{retry_after_ms}}}"#;
    assert_eq!(
        denied(body, true, 2),
        r#"{"rule":"client","text":"\"client\":  s","wait":{"ms":null}}"#
    );
    let hostile = Template::parse(r#"{"a":"{rule}","b":{rule}}"#, true).unwrap();
    let filled = hostile.filled(|_| Json::from("\"},\n\\\""));
    let read: serde_json::Value = serde_json::from_str(&filled).unwrap();
    assert_eq!(read["a"], "\"},\n\\\"");
    assert_eq!(read["a"], read["b"]);
}

#[test]
fn errors_name_the_position_and_a_similar_placeholder() {
    let error = Template::parse("one\ntwo {retry_aftr}", false).unwrap_err();
    assert_eq!(
        error.message,
        "there is no placeholder {retry_aftr}, at line 2, column 5 of the body"
    );
    assert_eq!(error.help, "did you mean {retry_after}?");
    for (body, is_json, expected) in [
        ("", false, "the body is empty"),
        ("{rule", true, "content_type is JSON"),
        (r#"{"a":{retry_after}0}"#, true, "content_type is JSON"),
        ("a\u{7}", false, "at line 1, column 2"),
        (&"x".repeat(MAX_BYTES + 1), false, "longer than 16 KiB"),
        (&"{rule}".repeat(33), false, "more than 32 placeholders"),
    ] {
        let error = Template::parse(body, is_json).unwrap_err();
        assert!(error.message.contains(expected), "{error:?}");
    }
    assert!(Template::parse(&"{rule}".repeat(32), false).is_ok());
}
