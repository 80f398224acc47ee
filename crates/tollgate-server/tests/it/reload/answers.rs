//! Answers as they are configured: which fields, and the body of a denial, at every door and while it runs.

use crate::served::Upstream;
use crate::serving::{Answer, Serving, ask, until};

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
        "gateway: {{ listen: 127.0.0.1:0, workers: 1, upstreams: [{{ to: \"http://{}\" }}] }}
service: {{ listen: 127.0.0.1:0 }}
log: {{ format: json }}
answers:
  headers: {headers}
{denied}
rules:
  - {{ id: everyone, per: [], limit: \"1/h burst 2\" }}
",
        upstream.address
    )
}

fn has(answer: &Answer, field: &str) -> bool {
    answer.head.contains(&format!("\r\n{field}:"))
}

fn value<'a>(answer: &'a Answer, field: &str) -> &'a str {
    let mut lines = answer.head.lines();
    let line = lines.find_map(|line| line.strip_prefix(&format!("{field}: ")));
    line.unwrap_or_else(|| panic!("no {field} in {answer:?}"))
}

#[test]
fn fields_and_denials_are_as_configured_at_every_door() {
    let upstream = Upstream::start();
    let serving = Serving::by(&config(&upstream, "[x-ratelimit]", SLOW));
    let gateway = serving.address("gateway");
    let passed = serving.get("gateway", "/", &[]);
    assert_eq!((passed.status, passed.body.as_str()), (200, "reached"));
    assert_eq!(value(&passed, "x-ratelimit-remaining"), "1");
    assert!(!has(&passed, "ratelimit") && !has(&passed, "ratelimit-policy"));
    serving.get("gateway", "/", &[]);

    let denied = serving.get("gateway", "/", &[]);
    assert_eq!(denied.status, 429);
    assert_eq!(value(&denied, "content-type"), "application/json");
    assert!(has(&denied, "x-ratelimit-limit") && !has(&denied, "retry-after"));
    assert!(!has(&denied, "ratelimit"));
    let said = denied.json();
    assert_eq!(said["error"], "slow down");
    assert_eq!(said["rule"], "everyone");
    assert_eq!(said["note"], "everyone of 2");
    assert!(said["ms"].as_u64().unwrap() > 3_000_000, "{said}");
    assert_eq!(said["id"], value(&denied, "x-request-id"));

    let head = ask(gateway, "HEAD", "/", &[]).unwrap();
    assert_eq!((head.status, head.body.as_str()), (429, ""));
    let grpc = ask(gateway, "POST", "/", &["content-type: application/grpc"]).unwrap();
    assert_eq!((grpc.status, grpc.body.as_str()), (200, ""));
    assert_eq!(value(&grpc, "grpc-status"), "8");

    let asked = ["x-forwarded-method: GET", "x-forwarded-uri: /"];
    let auth = serving.get("service", "/v1/forward-auth", &asked);
    assert_eq!(
        (auth.status, &auth.json()["error"]),
        (429, &"slow down".into())
    );
    // Whoever asks has given the request no name.
    assert_eq!(auth.json()["id"], "");
    assert!(has(&auth, "x-ratelimit-limit") && !has(&auth, "retry-after"));
    let asked = ["x-original-method: GET", "x-original-uri: /"];
    let auth = serving.get("service", "/v1/auth-request", &asked);
    assert_eq!(
        (auth.status, value(&auth, "x-tollgate-status")),
        (403, "429")
    );
    assert_eq!(upstream.hits(), 2);
}

#[test]
fn answers_change_while_it_runs() {
    let upstream = Upstream::start();
    let serving = Serving::by(&config(&upstream, "[]", ""));
    let denied = || serving.get("gateway", "/", &[]);
    until("a denial", denied, |answer| answer.status == 429);
    assert!(!has(&denied(), "retry-after") && !has(&denied(), "x-ratelimit-limit"));
    assert_eq!(value(&denied(), "content-type"), "application/problem+json");

    let folder = serving.program.folder().to_owned();
    std::fs::write(folder.join("slow.txt"), "wait {retry_after} s").unwrap();
    let file = folder.join("slow.txt");
    let denied_by = format!(" {{ body_file: \"{}\" }}", file.display());
    let next = config(&upstream, "[retry-after, ratelimit]", &denied_by);
    serving.program.write("tollgate.yaml", &next);
    let now = until("the file's words", denied, |answer| {
        answer.body.starts_with("wait 3")
    });
    assert_eq!(now.body, format!("wait {} s", value(&now, "retry-after")));
    assert_eq!(value(&now, "content-type"), "text/plain; charset=utf-8");
    assert!(has(&now, "ratelimit") && !has(&now, "x-ratelimit-limit"));

    // A body that is wrong is refused, and the last one stays; one that is right counts.
    std::fs::write(&file, "{retry_aftr}").unwrap();
    serving.wait_for("did you mean {retry_after}?");
    assert!(denied().body.starts_with("wait 3"));
    std::fs::write(&file, "not now").unwrap();
    until("the new words", denied, |answer| answer.body == "not now");
    assert!(!serving.log().contains("counts at the next start only"));
}
