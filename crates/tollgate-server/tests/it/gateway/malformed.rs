//! Requests that servers may read in different ways: the response to each, and how many requests reach the upstream.

use std::time::Duration;

use serde_json::Value;
use tollgate_testing::gateway::PLENTY;
pub(super) use tollgate_testing::malformed::cases;

use crate::kit;

#[tokio::test]
async fn ambiguous_requests_are_refused_and_all_others_decided() {
    let fields = "access_log: json, access_log_file: FOLDER/access.log";
    let gateway = kit::gateway(fields, PLENTY);
    let cases = cases();
    assert!(cases.len() >= 40, "{}", cases.len());
    let mut wrong = Vec::new();
    let mut sent: Vec<u64> = Vec::new();
    for (name, bytes, expected, admitted) in cases {
        let (hits, decisions) = (gateway.upstream.hits(), gateway.decisions());
        let exchange = tokio::time::timeout(Duration::from_secs(20), gateway.exchange(&bytes));
        let Ok(responses) = exchange.await else {
            wrong.push(format!("{name}: the connection does not end"));
            continue;
        };
        let statuses: Vec<u16> = responses.iter().map(|response| response.status).collect();
        sent.extend(statuses.iter().map(|status| u64::from(*status)));
        let decided = gateway.decisions() - decisions;
        if statuses != expected || decided != admitted as u64 {
            wrong.push(format!(
                "{name}: {statuses:?} and {decided} decided, expected {expected:?} and {admitted}"
            ));
        }
        // A request with a malformed body may reach the upstream in part, and later than the response. Those cases are the last.
        let complete = expected.iter().filter(|status| **status == 200).count();
        let hits = gateway.upstream.hits() - hits;
        if complete == admitted && hits != admitted {
            wrong.push(format!(
                "{name}: {hits} at the upstream, expected {admitted}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let requests = gateway.upstream.requests();
    for request in &requests {
        assert_ne!(request.uri.path(), "/smuggled", "{requests:?}");
        let has = |name: &str| request.headers.contains_key(name);
        let has_both = has("content-length") && has("transfer-encoding");
        assert!(!has_both && !has("upgrade"), "{request:?}");
    }
    // Refused requests were not even counted.
    assert!(requests.len() as u64 <= gateway.decisions());
    let refused = |reason| {
        gateway.count(&format!(
            "tollgate_gateway_heads_refused_total{{reason=\"{reason}\"}}"
        ))
    };
    let (malformed, too_long) = (refused("malformed"), refused("too_long"));
    // Every response has a line in the log, also those that hyper sends.
    let log = gateway.stop().read("access.log");
    let log: Vec<Value> = (log.lines())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let statuses = log.iter().filter_map(|line| line["status"].as_u64());
    let mut logged: Vec<u64> = statuses.collect();
    logged.sort_unstable();
    sent.sort_unstable();
    assert_eq!(logged, sent);
    for (reason, status, count) in [("malformed", 400, malformed), ("too_long", 431, too_long)] {
        let lines = log.iter().filter(|line| line["refused"] == reason);
        let lines: Vec<&Value> = lines.collect();
        assert_eq!(lines.len() as u64, count, "{reason}");
        assert!(count > 2, "{reason}");
        for line in lines {
            assert_eq!(
                (&line["ip"], &line["status"]),
                (&"127.0.0.1".into(), &status.into())
            );
        }
    }
}

#[tokio::test]
async fn a_target_that_is_too_long_for_any_server_is_logged() {
    let fields = "max_head: 1MiB, access_log: text, access_log_file: FOLDER/access.log";
    let gateway = kit::gateway(fields, PLENTY);
    let target = "a".repeat(70_000);
    let request = format!("GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(gateway.exchange(request).await[0].status, 414);
    let log = gateway.stop().read("access.log");
    let end = " 127.0.0.1 - \"- - HTTP/1.1\" 414 0 0.000000 - refused=too_long\n";
    assert!(log.ends_with(end) && log.lines().count() == 1, "{log}");
}
