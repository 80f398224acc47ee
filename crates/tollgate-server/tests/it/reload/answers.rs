//! The section `answers`: headers of limits and the body of denials, on every listener and while the program runs.

use crate::kit;
use tollgate_testing::client::request;
use tollgate_testing::wait::until_value;
use tollgate_testing::{Response, Upstream};

const SLOW: &str = r#"
    content_type: application/json
    body: '{"error":"slow down","rule":{rule},"note":"{rule} of {limit}","ms":{retry_after_ms},"id":"{request_id}"}'
"#;

fn config(upstream: &Upstream, headers: &str, denied: &str) -> String {
    let denied = match denied {
        "" => String::new(),
        fields => format!("  denied:{fields}"),
    };
    format!(
        "gateway: {{ listen: 127.0.0.1:0, workers: 1, upstreams: [{{ to: \"{}\" }}] }}
service: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
answers:
  headers: {headers}
{denied}
rules:
  - {{ id: everyone, per: [], limit: \"1/h burst 2\" }}
",
        upstream.url()
    )
}

fn has(response: &Response, header: &str) -> bool {
    response.header(header).is_some()
}

fn value<'a>(response: &'a Response, header: &str) -> &'a str {
    let value = response.header(header);
    value.unwrap_or_else(|| panic!("no {header} in {response:?}"))
}

#[test]
fn headers_and_denials_are_as_configured_on_every_listener() {
    let upstream = Upstream::start();
    let running = kit::serve(&config(&upstream, "[x-ratelimit]", SLOW));
    let gateway = running.address("gateway");
    let passed = running.get("gateway", "/", &[]);
    assert_eq!((passed.status, &*passed.text()), (200, "hello"));
    assert_eq!(value(&passed, "x-ratelimit-remaining"), "1");
    assert!(!has(&passed, "ratelimit") && !has(&passed, "ratelimit-policy"));
    assert_eq!(running.get("gateway", "/", &[]).status, 200);

    let denied = running.get("gateway", "/", &[]);
    assert_eq!(denied.status, 429);
    assert_eq!(value(&denied, "content-type"), "application/json");
    assert!(has(&denied, "x-ratelimit-limit") && !has(&denied, "retry-after"));
    assert!(!has(&denied, "ratelimit"));
    let body = denied.json();
    assert_eq!(body["error"], "slow down");
    assert_eq!(body["rule"], "everyone");
    assert_eq!(body["note"], "everyone of 2");
    assert!(body["ms"].as_u64().unwrap() > 3_000_000, "{body}");
    assert_eq!(body["id"], value(&denied, "x-request-id"));

    let head = request(gateway, "HEAD", "/", &[], "").unwrap();
    assert_eq!((head.status, &*head.text()), (429, ""));
    let grpc = ["content-type: application/grpc"];
    let grpc = request(gateway, "POST", "/", &grpc, "").unwrap();
    assert_eq!((grpc.status, &*grpc.text()), (200, ""));
    assert_eq!(value(&grpc, "grpc-status"), "8");

    let target = ["x-forwarded-method: GET", "x-forwarded-uri: /"];
    let auth = running.get("service", "/v1/forward-auth", &target);
    assert_eq!(
        (auth.status, &auth.json()["error"]),
        (429, &"slow down".into())
    );
    // The other gateway has given the request no id.
    assert_eq!(auth.json()["id"], "");
    assert!(has(&auth, "x-ratelimit-limit") && !has(&auth, "retry-after"));
    let target = ["x-original-method: GET", "x-original-uri: /"];
    let auth = running.get("service", "/v1/auth-request", &target);
    assert_eq!(
        (auth.status, value(&auth, "x-tollgate-status")),
        (403, "429")
    );
    assert_eq!(upstream.hits(), 2);
}

#[test]
fn answers_change_while_the_program_runs() {
    let upstream = Upstream::start();
    let running = kit::serve(&config(&upstream, "[]", ""));
    let denied = || running.get("gateway", "/", &[]);
    until_value("a denial", denied, |response| response.status == 429);
    assert!(!has(&denied(), "retry-after") && !has(&denied(), "x-ratelimit-limit"));
    assert_eq!(value(&denied(), "content-type"), "application/problem+json");

    let folder = running.program.folder().to_owned();
    std::fs::write(folder.join("slow.txt"), "wait {retry_after} s").unwrap();
    let file = folder.join("slow.txt");
    let denied_by = format!(" {{ body_file: \"{}\" }}", file.display());
    let next = config(&upstream, "[retry-after, ratelimit]", &denied_by);
    running.program.write("tollgate.yaml", &next);
    let now = until_value("the text of the file", denied, |response| {
        response.text().starts_with("wait 3")
    });
    assert_eq!(now.text(), format!("wait {} s", value(&now, "retry-after")));
    assert_eq!(value(&now, "content-type"), "text/plain; charset=utf-8");
    assert!(has(&now, "ratelimit") && !has(&now, "x-ratelimit-limit"));

    // A wrong body is refused and the last one stays; a right one takes effect.
    std::fs::write(&file, "{retry_aftr}").unwrap();
    running.wait_for_log("did you mean {retry_after}?");
    assert!(denied().text().starts_with("wait 3"));
    std::fs::write(&file, "not now").unwrap();
    until_value("the new text", denied, |response| {
        response.text() == "not now"
    });
    assert!(!running.log().contains("take effect only after a restart"));
}
