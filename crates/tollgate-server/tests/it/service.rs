//! The decision service over real HTTP: JSON, forward-auth, and what is refused.

use serde_json::{Value, json};

use crate::served::{Served, ask};
use tollgate_testing::servers::RedisServer;

const RULES: &str = "
clients: [{ id: merchant_123, plan: pro }]
identity: { trusted_proxies: [127.0.0.1] }
costs: [{ match: { path: \"/reports/{id}\" }, cost: 5 }]
rules:
  - { id: client, per: [client], limit: \"1/h burst 3\" }
  - { id: client, plan: pro, per: [client], limit: \"1/h burst 30\" }
  - { id: region, match: { attributes: { region: eu } }, per: [\"attribute:region\"], limit: \"1/h burst 2\" }
  - { id: watched, per: [client], mode: shadow, limit: \"1/h burst 1\" }
  - { id: charges, match: { methods: [POST], path: /v1/charges }, per: [], limit: \"1/h burst 1\" }
";

fn served() -> Served {
    Served::start(&format!("service: {{}}\n{RULES}"))
}

#[test]
fn a_check_says_what_was_decided_and_why() {
    let served = served();
    let first = served.check(&json!({ "client": "a" }));
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
    let second = served.check(&json!({ "client": "a", "cost": 2 }));
    assert_eq!(second["allowed"], true, "a shadow changes nothing");
    let tier = &second["tiers"][1];
    assert_eq!(
        (&tier["rule"], &tier["shadow"]),
        (&json!("watched"), &json!(true))
    );
    assert_eq!(tier["verdict"], "never_fits");
    let denied = served.check(&json!({ "client": "a" }));
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
    let look = served.check(&json!({ "client": "a", "cost": 0 }));
    assert_eq!(
        (&look["allowed"], &look["remaining"]),
        (&json!(true), &json!(0))
    );
    let metrics = served.metrics();
    let line = "tollgate_service_requests_total{endpoint=\"check\",outcome=\"denied\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn facts_are_completed_by_what_the_policy_knows() {
    let served = served();
    let known = served.check(&json!({ "client": "merchant_123" }));
    assert_eq!(known["limit"], 30, "the plan of a known client");
    let told = served.check(&json!({ "client": "merchant_123", "plan": "free" }));
    assert_eq!(told["limit"], 3, "who is believed may say another");
    for ip in ["2001:db8::1", "2001:db8::2"] {
        served.check(&json!({ "ip": ip }));
    }
    let third = served.check(&json!({ "ip": "2001:db8::3", "cost": 2 }));
    assert_eq!(
        third["allowed"], false,
        "nobody's name is its address, by /64: {third}"
    );
    let report = served.check(&json!({ "client": "b", "path": "/reports/7?x=1", "method": "GET" }));
    assert_eq!(report["reason"], "never_fits", "the cost of the path");
    let eu = json!({ "client": "merchant_123", "attributes": { "region": "eu", "unknown": "x" } });
    let allowed: Vec<Value> = (0..3)
        .map(|_| served.check(&eu)["allowed"].clone())
        .collect();
    assert_eq!(allowed, [json!(true), json!(true), json!(false)]);
}

#[test]
fn a_described_request_is_seen_as_a_gateway_would_see_it() {
    let served = served();
    let described = |ip: &str, forwarded: &str| {
        json!({ "request": {
            "method": "post", "path": "/v1/charges/?a=1", "host": "api.example.com", "ip": ip,
            "headers": { "X-Forwarded-For": forwarded, "Accept": ["a", "b"] },
        }, "cost": 0 })
    };
    let by_proxy = served.check(&described("127.0.0.1", "203.0.113.7"));
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
        let told = json!({ "client": "a", "method": "POST", "path": path });
        for refused in [served.check(&ambiguous), served.check(&told)] {
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
        assert_eq!(served.check(&direct)["allowed"], true);
    }
    let mut direct = described("203.0.113.9", "198.51.100.9");
    direct["cost"] = json!(1);
    assert_eq!(
        served.check(&direct)["rule"],
        "client",
        "a forged header changes nothing"
    );
    assert_eq!(served.check(&direct)["allowed"], false);
}

/// Neither by its port nor by other signs, and a header by none of its lines.
#[test]
fn no_other_form_of_a_host_or_header_evades_its_rule() {
    let served = Served::start(
        "service: {}
identity: { trusted_proxies: [127.0.0.1] }
rules:
  - { id: host, match: { host: lim.example.com }, per: [], limit: \"1/h burst 1\" }
  - { id: region, match: { headers: { X-Region: eu } }, per: [], limit: \"1/h burst 1\" }
",
    );
    let forward = |host: &str| {
        let headers = format!(
            "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\nX-Forwarded-Host: {host}\r\nX-Forwarded-For: 203.0.113.7\r\n"
        );
        ask(served.address, "GET", "/v1/forward-auth", &headers, "").status
    };
    assert_eq!(forward("lim.example.com"), 200);
    for host in ["lim.example.com", "LIM.example.com.:443"] {
        assert_eq!(forward(host), 429, "{host}");
        let told = served.check(&json!({ "host": host }));
        assert_eq!(told["status"], 429, "{host}");
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
            let answer = served.check(&body);
            let said = (&answer["allowed"], &answer["status"], &answer["reason"]);
            assert_eq!(
                said,
                (&json!(false), &json!(400), &json!("host_refused")),
                "{body}"
            );
        }
        let reply = served.post("/v1/inspect", "", &json!({ "host": host }).to_string());
        assert_eq!(reply.status, 404);
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.starts_with("host: this is refused: the "),
            "{detail}"
        );
    }
    let region = |value: &str| {
        let said = json!({ "attributes": { "header:x-region": value } });
        served.check(&said)["status"].clone()
    };
    let described = |value: &str| {
        let said = json!({ "method": "GET", "path": "/", "headers": { "X-Region": value }, "ip": "203.0.113.7" });
        served.check(&json!({ "request": said }))["status"].clone()
    };
    let asked = |kind: &str, names: &str, value: &str| {
        let headers = format!(
            "{names}X-Forwarded-For: 203.0.113.7\r\nX-Region: {value}\r\nConnection: close\r\n"
        );
        ask(served.address, "GET", kind, &headers, "").status
    };
    let forwarded = |value: &str| {
        let names = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n";
        asked("/v1/forward-auth", names, value)
    };
    let original = |value: &str| {
        let names = "X-Original-Method: GET\r\nX-Original-URI: /\r\n";
        asked("/v1/auth-request", names, value)
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
    let served = served();
    let dear = json!({ "client": "a", "cost": 4 });
    let cheap = json!({ "client": "b", "cost": 3 });
    let answer = served.check(&json!({ "checks": [dear, cheap, { "path": "/a%2Fb" }] }));
    let allowed: Vec<&Value> = answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| &a["allowed"])
        .collect();
    assert_eq!(allowed, [false, true, false]);
    let refused = &answer["results"][2];
    assert_eq!(
        (&refused["status"], &refused["reason"]),
        (&json!(400), &json!("path_refused"))
    );
    let body = json!({ "checks": [{ "client": "c", "cost": 3 }, { "clinet": "d" }] });
    let reply = served.post("/v1/check", "", &body.to_string());
    assert_eq!(reply.status, 400);
    assert_eq!(
        reply.json()["detail"],
        "checks[1]: there is no field \"clinet\" here; did you mean \"client\"?"
    );
    assert_eq!(
        served.check(&json!({ "client": "c", "cost": 3 }))["allowed"],
        true
    );
    assert_eq!(
        served.check(&json!({ "checks": [] })),
        json!({ "results": [] })
    );
}

#[test]
fn a_check_that_one_tier_denies_charges_no_other() {
    let redis = RedisServer::start();
    let over_redis = format!("store: {{ redis: {:?}, deadline: 20s }}\n", redis.url());
    for store in ["", &over_redis] {
        let served = Served::start(&format!("service: {{}}\n{store}{RULES}"));
        let charge = |cost: u32| {
            served.check(&json!({
                "client": "merchant_123", "method": "POST", "path": "/v1/charges",
                "attributes": { "region": "eu" }, "cost": cost,
            }))
        };
        let left = |answer: &Value| -> Vec<(String, u64)> {
            let tiers = answer["tiers"].as_array().unwrap().iter();
            tiers
                .map(|tier| {
                    let rule = tier["rule"].as_str().unwrap().to_owned();
                    (rule, tier["remaining"].as_u64().unwrap())
                })
                .collect()
        };
        let first = charge(1);
        assert_eq!(first["allowed"], true, "{first}");
        for _ in 0..3 {
            let denied = charge(1);
            assert_eq!(
                (&denied["allowed"], &denied["rule"]),
                (&json!(false), &json!("charges")),
                "{denied}"
            );
        }
        let look = charge(0);
        assert_eq!(look["source"], "store", "{look}");
        assert_eq!(left(&look), left(&first), "{look}");
        let expected = [
            ("client", 29),
            ("region", 1),
            ("watched", 0),
            ("charges", 0),
        ];
        assert_eq!(
            left(&look),
            expected.map(|(rule, left)| (rule.to_owned(), left))
        );
    }
}

#[test]
fn what_is_no_question_is_refused_with_what_would_be_right() {
    let served = served();
    let many = format!("{{\"checks\":[{}{{}}]}}", "{},".repeat(100));
    let request = |inner: &str| format!("{{\"request\":{{{inner}}}}}");
    for (body, says) in [
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
        let reply = served.post("/v1/check", "", body);
        assert_eq!(reply.status, 400, "{body}");
        assert_eq!(reply.header("content-type"), "application/problem+json");
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.starts_with(says), "{body}: {detail}");
        assert!(!detail.contains("hunter2"));
    }
    let large = format!("{{\"client\":\"{}\"}}", "x".repeat(300_000));
    assert_eq!(served.post("/v1/check", "", &large).status, 413);
    assert_eq!(served.post("/v1/check?stat=1", "", "{}").status, 400);
}

#[test]
fn the_status_is_the_decisions_if_that_is_asked_for() {
    let served = served();
    let body = json!({ "client": "a", "cost": 3 }).to_string();
    let statuses = [0, 1].map(|_| served.post("/v1/check?status=decision", "", &body).status);
    assert_eq!(statuses, [200, 429]);
    let many = |checks: Value| {
        let body = json!({ "checks": checks }).to_string();
        served.post("/v1/check?status=decision", "", &body).status
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
fn what_is_not_there_and_what_is_asked_wrongly_is_said() {
    let served = served();
    let missing = ask(served.address, "GET", "/v2/check", "", "");
    assert_eq!(missing.status, 404);
    let detail = missing.json()["detail"].to_string();
    for (_, path, _) in tollgate_server::service::ENDPOINTS {
        assert!(detail.contains(path), "{detail}");
    }
    let wrong = ask(served.address, "GET", "/v1/check", "", "");
    assert_eq!((wrong.status, wrong.header("allow")), (405, "POST"));
    assert_eq!(
        wrong.json()["detail"],
        "/v1/check is asked for with POST, not with GET"
    );
}

#[test]
fn the_token_is_asked_for_where_somebody_is_believed() {
    let config = format!("service: {{ token: \"0123456789abcdef\" }}\n{RULES}");
    let served = Served::start(&config);
    let described = json!({ "request": { "method": "GET", "path": "/", "ip": "203.0.113.7" } });
    for (path, body) in [
        ("/v1/check", &described),
        ("/v1/explain", &described),
        ("/v1/inspect", &json!({ "client": "a" })),
        ("/v1/reset", &json!({ "client": "a" })),
    ] {
        for wrong in [
            "",
            "Authorization: Bearer 0123456789abcdeX\r\n",
            "Authorization: Bearer 0123456789abcde\r\n",
            "Authorization: Basic 0123456789abcdef\r\n",
        ] {
            let reply = served.post(path, wrong, &body.to_string());
            assert_eq!(
                (reply.status, reply.header("www-authenticate")),
                (401, "Bearer")
            );
        }
        let right = "Authorization: bearer 0123456789abcdef\r\n";
        assert_eq!(served.post(path, right, &body.to_string()).status, 200);
    }
    let forwarded = "X-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n";
    let reply = ask(served.address, "GET", "/v1/forward-auth", forwarded, "");
    assert_eq!(reply.status, 200, "it says no more than a gateway would");
}

/// A page can ask from elsewhere, if it need not hear the answer; or have the name that it was loaded from lead to this machine.
#[test]
fn without_a_token_a_page_in_a_browser_is_not_believed() {
    let served = served();
    let described = json!({ "request": { "method": "GET", "path": "/", "ip": "203.0.113.7" } });
    for (path, body) in [
        ("/v1/check", &described),
        ("/v1/explain", &described),
        ("/v1/inspect", &json!({ "client": "a" })),
    ] {
        for page in [
            "Host: rebound.example\r\n",
            "Host: 127.0.0.1\r\nOrigin: https://elsewhere.example\r\nSec-Fetch-Site: cross-site\r\n",
        ] {
            let refused = served.post(path, page, &body.to_string());
            assert_eq!(refused.status, 403, "{}", refused.body);
            assert!(refused.body.contains("service.token"), "{}", refused.body);
        }
        assert_eq!(served.post(path, "", &body.to_string()).status, 200);
    }
    let forwarded = "Host: tollgate\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Uri: /\r\n";
    let reply = ask(served.address, "GET", "/v1/forward-auth", forwarded, "");
    assert_eq!(reply.status, 200, "it says no more than a gateway would");
}

#[test]
fn an_explanation_charges_nothing_and_says_what_the_command_says() {
    let served = served();
    let body = json!({ "request": {
        "method": "POST", "path": "/v1/charges", "ip": "203.0.113.7",
    } });
    let explained = served.post("/v1/explain", "", &body.to_string());
    assert_eq!(explained.status, 200, "{}", explained.body);
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
    assert_eq!(served.check(&body)["allowed"], true, "it was still there");
}

/// What Traefik 3 sends with forwardAuth, by its source: the caller's headers, and these.
fn traefik(client: &str, method: &str, uri: &str) -> String {
    format!(
        "Host: 127.0.0.1\r\nX-Forwarded-For: {client}\r\nX-Forwarded-Method: {method}\r\nX-Forwarded-Uri: {uri}\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: api.example.com\r\nUser-Agent: curl\r\n"
    )
}

#[test]
fn traefik_gets_200_with_headers_to_copy_or_the_answer_to_give() {
    let served = served();
    let asked = |client: &str, uri: &str| {
        let headers = traefik(client, "GET", uri);
        ask(served.address, "GET", "/v1/forward-auth", &headers, "")
    };
    let replies: Vec<_> = (0..4)
        .map(|_| asked("203.0.113.7", "/v1/users?x=1"))
        .collect();
    let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(replies[0].header("x-ratelimit-remaining"), "2");
    assert_eq!(
        replies[3].header("content-type"),
        "application/problem+json"
    );
    assert_eq!(replies[3].json()["violated-policies"], json!(["client"]));
    assert!(!replies[3].header("retry-after").is_empty());
    assert_eq!(asked("203.0.113.8", "/").status, 200, "others are others");
    assert_eq!(
        asked("203.0.113.8", "/a%2fb").status,
        400,
        "an odd path is refused"
    );
    // A left element is somebody's claim.
    assert_eq!(asked("203.0.113.8, 203.0.113.7", "/").status, 429);
}

/// Such a gateway passes them on to the API like every other request.
#[test]
fn preflights_of_a_gateway_that_asks_are_limited() {
    let served = served();
    let headers = traefik("203.0.113.7", "OPTIONS", "/v1/users")
        + "Origin: https://example.com\r\nAccess-Control-Request-Method: POST\r\n";
    let statuses =
        [0; 4].map(|_| ask(served.address, "GET", "/v1/forward-auth", &headers, "").status);
    assert_eq!(statuses, [200, 200, 200, 429]);
}

/// It is the gateway in front that forwards, and that forwards what came.
#[test]
fn where_others_forward_paths_are_judged_as_they_came() {
    let rules = format!("service: {{}}\npaths: {{ forward: normalised }}\n{RULES}");
    let served = Served::start(&rules);
    for path in ["/x/../v1/charges", "//x/v1/charges", "/v1//charges"] {
        let headers = traefik("203.0.113.7", "POST", path);
        let reply = ask(served.address, "GET", "/v1/forward-auth", &headers, "");
        assert_eq!(reply.status, 400, "{path}");
        let told = json!({ "client": "a", "method": "POST", "path": path });
        let described =
            json!({ "request": { "method": "POST", "path": path, "ip": "203.0.113.7" } });
        for check in [told, described] {
            assert_eq!(served.check(&check)["status"], json!(400), "{path}");
        }
    }
}

#[test]
fn a_denied_grpc_call_is_no_yes_for_a_gateway() {
    let served = served();
    let headers = format!(
        "{}Content-Type: application/grpc\r\n",
        traefik("203.0.113.7", "POST", "/v1/charges")
    );
    let statuses =
        [0, 1].map(|_| ask(served.address, "GET", "/v1/forward-auth", &headers, "").status);
    assert_eq!(statuses, [200, 429]);
}

#[test]
fn nginx_hears_403_with_what_to_answer_and_mistakes_of_its_setup_are_400() {
    let served = served();
    let asked = |headers: &str| ask(served.address, "GET", "/v1/auth-request", headers, "");
    let right = "X-Original-Method: POST\r\nX-Original-URI: /v1/charges\r\nX-Forwarded-For: 203.0.113.7\r\n";
    assert_eq!(asked(right).status, 200);
    let denied = asked(right);
    assert_eq!(
        (denied.status, denied.header("x-tollgate-status")),
        (403, "429")
    );
    assert_eq!(denied.header("x-ratelimit-remaining"), "0");
    assert!(!denied.header("retry-after").is_empty());
    let odd = asked("X-Original-Method: GET\r\nX-Original-URI: /a%00b\r\n");
    assert_eq!((odd.status, odd.header("x-tollgate-status")), (403, "400"));
    for (headers, says) in [
        (
            "X-Original-Method: GET\r\n",
            "the header x-original-uri is missing",
        ),
        (
            "X-Original-URI: /\r\n",
            "the header x-original-method is missing",
        ),
        (
            "X-Original-Method: GET\r\nX-Original-URI: /\r\nX-Original-URI: /free\r\n",
            "the header x-original-uri is there more than once",
        ),
    ] {
        let reply = asked(headers);
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(reply.status == 400 && detail.starts_with(says), "{detail}");
    }
}

#[test]
fn a_peer_that_is_not_trusted_speaks_for_itself_alone() {
    let served = Served::start(
        "service: {}\nrules: [{ id: client, per: [client], limit: \"1/h burst 2\" }]",
    );
    let statuses = [7, 8, 9].map(|nth| {
        let headers = traefik(&format!("203.0.113.{nth}"), "GET", "/");
        ask(served.address, "GET", "/v1/forward-auth", &headers, "").status
    });
    assert_eq!(
        statuses,
        [200, 200, 429],
        "a forged address is no other caller"
    );
}

#[test]
fn a_request_in_a_queue_waits_here_and_a_check_says_how_long() {
    let served = Served::start(
        "service: {}\nrules: [{ id: slow, per: [], limit: \"20/s queue 9 leaky_bucket\" }]",
    );
    let delays: Vec<u64> = (0..2)
        .map(|_| served.check(&json!({}))["delay_ms"].as_u64().unwrap())
        .collect();
    assert!(delays[1] > 0, "{delays:?}");
    let headers = traefik("203.0.113.7", "GET", "/");
    let reply = ask(served.address, "GET", "/v1/forward-auth", &headers, "");
    assert_eq!(reply.status, 200);
}

#[test]
fn a_request_that_is_too_late_reports_the_figures_after_its_refund() {
    let redis = RedisServer::start();
    let over_redis = format!(
        "store: {{ redis: {:?}, deadline: 10s, instances: 1 }}",
        redis.url()
    );
    for store in ["", over_redis.as_str()] {
        // The second turn comes later than anybody waits.
        let served = Served::start(&format!(
            "service: {{}}\n{store}\nrules: [{{ id: slow, per: [], limit: \"1/min queue 5\" }}]",
        ));
        let headers = traefik("203.0.113.7", "GET", "/");
        let asked = || ask(served.address, "GET", "/v1/forward-auth", &headers, "");
        assert_eq!(asked().status, 200);
        for _ in 0..4 {
            let denied = asked();
            assert_eq!(denied.status, 429);
            assert_eq!(denied.header("x-ratelimit-remaining"), "4");
            assert!(denied.header("ratelimit").contains(";r=4;"));
        }
    }
}

#[test]
fn whose_clock_counts_in_redis_is_what_the_configuration_says() {
    let redis = RedisServer::start();
    let _ = redis.ask(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    // The tolerance, in microseconds, stands behind the caller's time.
    for (said, tolerance) in [
        ("", None),
        (", clock: store", None),
        (", clock: caller", Some("100000")),
        (", clock: caller, clock_tolerance: 250ms", Some("250000")),
    ] {
        let _ = redis.ask(&["SLOWLOG", "RESET"]);
        let served = Served::start(&format!(
            "service: {{}}\nstore: {{ redis: {:?}, deadline: 20s{said} }}\nrules: [{{ id: client, per: [client], limit: \"1/h burst 10\" }}]\n",
            redis.url()
        ));
        let answer = served.check(&json!({ "client": "a" }));
        assert_eq!(answer["source"], "store", "{answer}");
        let calls = redis.ask(&["SLOWLOG", "GET", "-1"]);
        assert!(calls.contains("EVAL"), "{calls}");
        for known in ["100000", "250000"] {
            let is_sent = calls.lines().any(|line| line.trim() == known);
            assert_eq!(is_sent, tolerance == Some(known), "{said:?}: {calls}");
        }
    }
}

#[test]
fn without_redis_decisions_go_on_and_a_closed_rule_says_503() {
    let redis = RedisServer::start();
    let config = format!(
        "service: {{}}\nstore: {{ redis: \"{}\", deadline: 5s, instances: 1, remembered_denials: 0 }}
rules:
  - {{ id: client, per: [client], limit: \"1/h burst 10\" }}
  - {{ id: pay, match: {{ path: /pay }}, per: [], on_store_failure: closed, limit: \"1/h burst 10\" }}
",
        redis.url()
    );
    let served = Served::start(&config);
    let first = served.check(&json!({ "client": "a", "path": "/pay" }));
    assert_eq!(
        (&first["allowed"], &first["source"]),
        (&json!(true), &json!("store"))
    );
    drop(redis);
    let allowed = (0..12).filter(|_| {
        let answer = served.check(&json!({ "client": "a" }));
        assert_eq!(answer["source"], "local", "{answer}");
        answer["allowed"] == true
    });
    assert_eq!(allowed.count(), 8, "a careful share");
    let closed = served.check(&json!({ "client": "b", "path": "/pay" }));
    assert_eq!(
        (&closed["status"], &closed["reason"]),
        (&json!(503), &json!("closed"))
    );
    let headers = traefik("203.0.113.7", "GET", "/pay");
    let reply = ask(served.address, "GET", "/v1/forward-auth", &headers, "");
    assert_eq!(reply.status, 503);
}
