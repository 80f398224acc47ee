//! `/v1/check` and `/v1/explain`: JSON in, decisions and explanations out.

use serde_json::{Value, json};

use super::standard_service;
use crate::kit;

#[test]
fn a_check_reports_the_decision_and_its_reason() {
    let service = standard_service();
    let first = service.check(&json!({ "client": "a" }));
    assert_eq!(first["allowed"], true);
    assert_eq!(
        (&first["status"], &first["rule"]),
        (&json!(200), &json!("client"))
    );
    assert_eq!(
        (&first["limit"], &first["remaining"]),
        (&json!(3), &json!(2))
    );
    assert_eq!(
        (&first["source"], &first["generation"]),
        (&json!("store"), &json!(1))
    );
    assert_eq!(first["headers"]["x-ratelimit-remaining"], "2");
    assert_eq!(
        (&first["retry_after"], &first["delay_ms"]),
        (&Value::Null, &json!(0))
    );
    let second = service.check(&json!({ "client": "a", "cost": 2 }));
    assert_eq!(second["allowed"], true, "a shadow changes nothing");
    let tier = &second["tiers"][1];
    assert_eq!(
        (&tier["rule"], &tier["shadow"]),
        (&json!("watched"), &json!(true))
    );
    assert_eq!(tier["verdict"], "never_fits");
    let denied = service.check(&json!({ "client": "a" }));
    assert_eq!(
        (&denied["allowed"], &denied["status"]),
        (&json!(false), &json!(429))
    );
    assert_eq!(
        (&denied["rule"], &denied["reason"]),
        (&json!("client"), &json!("quota_exceeded"))
    );
    let wait = denied["retry_after"].as_u64().unwrap();
    assert!((3_590..=3_600).contains(&wait), "{denied}");
    assert_eq!(denied["headers"]["retry-after"], wait.to_string());
    let look = service.check(&json!({ "client": "a", "cost": 0 }));
    assert_eq!(
        (&look["allowed"], &look["remaining"]),
        (&json!(true), &json!(0))
    );
    let denials = "tollgate_service_requests_total{endpoint=\"check\",outcome=\"denied\"}";
    assert_eq!(service.metric(denials), 1.0);
}

#[test]
fn checks_are_completed_with_what_the_policy_knows() {
    let service = standard_service();
    let known = service.check(&json!({ "client": "merchant_123" }));
    assert_eq!(known["limit"], 30, "the plan of a known client");
    let given = service.check(&json!({ "client": "merchant_123", "plan": "free" }));
    assert_eq!(given["limit"], 3, "the request may name another");
    for ip in ["2001:db8::1", "2001:db8::2"] {
        assert_eq!(service.check(&json!({ "ip": ip }))["allowed"], true);
    }
    let third = service.check(&json!({ "ip": "2001:db8::3", "cost": 2 }));
    assert_eq!(
        third["allowed"], false,
        "an unnamed client is its address, by /64: {third}"
    );
    let report =
        service.check(&json!({ "client": "b", "path": "/reports/7?x=1", "method": "GET" }));
    assert_eq!(report["reason"], "never_fits", "the cost of the path");
    let eu = json!({ "client": "merchant_123", "attributes": { "region": "eu", "unknown": "x" } });
    let allowed: Vec<Value> = (0..3)
        .map(|_| service.check(&eu)["allowed"].clone())
        .collect();
    assert_eq!(allowed, [json!(true), json!(true), json!(false)]);
}

#[test]
fn a_described_request_is_seen_as_a_gateway_would_see_it() {
    let service = standard_service();
    let described = |ip: &str, forwarded: &str| {
        json!({ "request": {
            "method": "post", "path": "/v1/charges/?a=1", "host": "api.example.com", "ip": ip,
            "headers": { "X-Forwarded-For": forwarded, "Accept": ["a", "b"] },
        }, "cost": 0 })
    };
    let by_proxy = service.check(&described("127.0.0.1", "203.0.113.7"));
    let rules: Vec<&Value> = by_proxy["tiers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| &t["rule"])
        .collect();
    assert_eq!(
        rules,
        ["client", "watched", "charges"],
        "the path in its normal form"
    );
    for path in ["/v1//charges", "/v1/%63harges", "/x/../v1/charges"] {
        let mut ambiguous = described("127.0.0.1", "203.0.113.7");
        ambiguous["request"]["path"] = json!(path);
        let direct = json!({ "client": "a", "method": "POST", "path": path });
        for refused in [service.check(&ambiguous), service.check(&direct)] {
            assert_eq!(
                (&refused["allowed"], &refused["status"]),
                (&json!(false), &json!(400)),
                "{path}: {refused}"
            );
        }
    }
    for nth in 0..3 {
        let forged = format!("198.51.100.{nth}");
        let mut direct = described("203.0.113.9", &forged);
        direct["request"]["path"] = json!("/");
        direct["cost"] = json!(1);
        assert_eq!(service.check(&direct)["allowed"], true);
    }
    let mut direct = described("203.0.113.9", "198.51.100.9");
    direct["cost"] = json!(1);
    assert_eq!(
        service.check(&direct)["rule"],
        "client",
        "a forged header changes nothing"
    );
    assert_eq!(service.check(&direct)["allowed"], false);
}

/// Not by a port or other signs in a host, and not by any of several lines of a header.
#[test]
fn no_other_form_of_a_host_or_header_evades_its_rule() {
    let service = kit::service(
        "",
        "identity: { trusted_proxies: [127.0.0.1] }
rules:
  - { id: host, match: { host: lim.example.com }, per: [], limit: \"1/h burst 1\" }
  - { id: region, match: { headers: { X-Region: eu } }, per: [], limit: \"1/h burst 1\" }
",
    );
    let forward = |host: &str| {
        let headers = [
            "X-Forwarded-Method: GET",
            "X-Forwarded-Uri: /",
            &format!("X-Forwarded-Host: {host}"),
            "X-Forwarded-For: 203.0.113.7",
        ];
        service.get("service", "/v1/forward-auth", &headers).status
    };
    assert_eq!(forward("lim.example.com"), 200);
    for host in ["lim.example.com", "LIM.example.com.:443"] {
        assert_eq!(forward(host), 429, "{host}");
        let check = service.check(&json!({ "host": host }));
        assert_eq!(check["status"], 429, "{host}");
    }
    for host in [
        "lim.example.com:x",
        "lim.example.com:80:80",
        "lim.example.com..",
        "[lim.example.com]",
        "user@lim.example.com",
    ] {
        assert_eq!(forward(host), 400, "{host}");
        let request = json!({ "method": "GET", "path": "/", "host": host, "ip": "203.0.113.7" });
        for body in [json!({ "host": host }), json!({ "request": request })] {
            let result = service.check(&body);
            let outcome = (&result["allowed"], &result["status"], &result["reason"]);
            let expected = (&json!(false), &json!(400), &json!("host_refused"));
            assert_eq!(outcome, expected, "{body}");
        }
        let response = service.post("/v1/inspect", &[], &json!({ "host": host }).to_string());
        assert_eq!(response.status, 404);
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.starts_with("host: this is refused: the "),
            "{detail}"
        );
    }
    let region = |value: &str| {
        let check = json!({ "attributes": { "header:x-region": value } });
        service.check(&check)["status"].clone()
    };
    let described = |value: &str| {
        let headers = json!({ "X-Region": value });
        let request =
            json!({ "method": "GET", "path": "/", "headers": headers, "ip": "203.0.113.7" });
        service.check(&json!({ "request": request }))["status"].clone()
    };
    let with_region = |path: &str, target: [&str; 2], value: &str| {
        let region = format!("X-Region: {value}");
        let headers = [
            target[0],
            target[1],
            "X-Forwarded-For: 203.0.113.7",
            &region,
        ];
        service.get("service", path, &headers).status
    };
    let forwarded = |value: &str| {
        let target = ["X-Forwarded-Method: GET", "X-Forwarded-Uri: /"];
        with_region("/v1/forward-auth", target, value)
    };
    let original = |value: &str| {
        let target = ["X-Original-Method: GET", "X-Original-URI: /"];
        with_region("/v1/auth-request", target, value)
    };
    assert_eq!(region("eu"), 200);
    for list in [
        "eu",
        "eu,us",
        "us, eu",
        "1,2,3,4,5,6,7,8,9,eu",
        "eu,1,2,3,4,5,6,7,8,9",
        "1,2,3,4,5,6,7,8,eu,9",
    ] {
        assert_eq!(region(list), 429, "{list}");
        assert_eq!(described(list), 429, "{list}");
        assert_eq!(forwarded(list), 429, "{list}");
        assert_eq!(original(list), 403, "{list}");
    }
    for list in ["us,asia", "us;eu", "e u"] {
        assert_eq!(region(list), 200, "{list}");
        assert_eq!(described(list), 200, "{list}");
        assert_eq!(forwarded(list), 200, "{list}");
        assert_eq!(original(list), 200, "{list}");
    }
}

#[test]
fn many_checks_are_independent_and_one_mistake_charges_none() {
    let service = standard_service();
    let expensive = json!({ "client": "a", "cost": 4 });
    let cheap = json!({ "client": "b", "cost": 3 });
    let results = service.check(&json!({ "checks": [expensive, cheap, { "path": "/a%2Fb" }] }));
    let allowed: Vec<&Value> = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| &a["allowed"])
        .collect();
    assert_eq!(allowed, [false, true, false]);
    let refused = &results["results"][2];
    assert_eq!(
        (&refused["status"], &refused["reason"]),
        (&json!(400), &json!("path_refused"))
    );
    let body = json!({ "checks": [{ "client": "c", "cost": 3 }, { "clinet": "d" }] });
    let response = service.post("/v1/check", &[], &body.to_string());
    assert_eq!(response.status, 400);
    assert_eq!(
        response.json()["detail"],
        "checks[1]: there is no field \"clinet\" here; did you mean \"client\"?"
    );
    assert_eq!(
        service.check(&json!({ "client": "c", "cost": 3 }))["allowed"],
        true
    );
    assert_eq!(
        service.check(&json!({ "checks": [] })),
        json!({ "results": [] })
    );
}

#[test]
fn malformed_checks_are_refused_with_what_would_be_right() {
    let service = standard_service();
    let many = format!("{{\"checks\":[{}{{}}]}}", "{},".repeat(100));
    let request = |inner: &str| format!("{{\"request\":{{{inner}}}}}");
    for (body, problem) in [
        ("", "not JSON"),
        ("[]", "the body: expected an object with request, client"),
        (
            "{\"cost\":-1}",
            "cost: expected a whole number from 0 to 9007199254740991, got a number",
        ),
        ("{\"client\":7}", "client: expected text, got a number"),
        ("{\"client\":\"\"}", "client: this is empty"),
        ("{\"ip\":\"1.2.3\"}", "ip: \"1.2.3\" is not an address"),
        ("{\"attributes\":{\"a\":1}}", "attributes: \"a\" needs text"),
        (
            "{\"checks\":{}}",
            "checks: expected a list of checks, got an object",
        ),
        (
            "{\"checks\":[],\"client\":\"a\"}",
            "there is no field \"client\" here",
        ),
        (&many, "checks: 101 checks are more than 100"),
        (
            "{\"request\":{},\"client\":\"a\"}",
            "there is no field \"client\" here",
        ),
        (&request(""), "request: the field \"method\" is missing"),
        (
            &request("\"method\":\"GET\",\"path\":\"/\""),
            "request: the field \"ip\" is missing",
        ),
        (
            &request("\"method\":\"GET\",\"path\":\"x\",\"ip\":\"::1\""),
            "request.path: this is not a path",
        ),
        (
            &request(
                "\"method\":\"GET\",\"path\":\"/\",\"ip\":\"::1\",\"headers\":{\"a b\":\"hunter2\"}",
            ),
            "request.headers: \"a b\" is not a header",
        ),
    ] {
        let response = service.post("/v1/check", &[], body);
        assert_eq!(response.status, 400, "{body}");
        assert_eq!(
            response.header("content-type"),
            Some("application/problem+json")
        );
        let detail = response.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with(problem), "{body}: {detail}");
        assert!(!detail.contains("hunter2"));
    }
    let large = format!("{{\"client\":\"{}\"}}", "x".repeat(300_000));
    assert_eq!(service.post("/v1/check", &[], &large).status, 413);
    assert_eq!(service.post("/v1/check?stat=1", &[], "{}").status, 400);
}

#[test]
fn status_decision_returns_the_status_of_the_decision() {
    let service = standard_service();
    let body = json!({ "client": "a", "cost": 3 }).to_string();
    let statuses = [0, 1].map(|_| service.post("/v1/check?status=decision", &[], &body).status);
    assert_eq!(statuses, [200, 429]);
    let many = |checks: Value| {
        let body = json!({ "checks": checks }).to_string();
        service.post("/v1/check?status=decision", &[], &body).status
    };
    let look = json!({ "client": "a", "cost": 0 });
    let one = json!({ "client": "a" });
    let odd = json!({ "path": "/a%2fb" });
    assert_eq!(many(json!([])), 200);
    assert_eq!(many(json!([look, look])), 200);
    assert_eq!(many(json!([look, one, odd])), 429, "the first denial's");
    assert_eq!(
        many(json!([look, odd, one])),
        403,
        "not what a mistake of ours is"
    );
}

#[test]
fn an_explanation_names_each_rule_and_charges_nothing() {
    let service = standard_service();
    let body = json!({ "request": {
        "method": "POST", "path": "/v1/charges", "ip": "203.0.113.7",
    } });
    let explained = service.post("/v1/explain", &[], &body.to_string());
    assert_eq!(explained.status, 200, "{explained:?}");
    let explained = explained.json();
    assert_eq!(explained["caller"]["client"], "ip:203.0.113.7");
    assert_eq!(explained["request"]["endpoint"], "/v1/charges");
    assert_eq!(explained["decision"]["allowed"], true);
    let rules = explained["rules"].as_array().unwrap();
    let charges = rules.iter().find(|rule| rule["id"] == "charges").unwrap();
    assert_eq!(
        (&charges["applies"], &charges["remaining"]),
        (&json!(true), &json!(1))
    );
    let region = rules.iter().find(|rule| rule["id"] == "region").unwrap();
    assert_eq!(region["applies"], false);
    assert_eq!(service.check(&body)["allowed"], true, "nothing was charged");
}
