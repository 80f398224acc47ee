//! Who may use the endpoints, and the answers to requests for others.

use serde_json::json;

use super::{RULES, standard_service};
use crate::kit;
use tollgate_testing::client::request;

const FORWARDED: [&str; 2] = ["X-Forwarded-Method: GET", "X-Forwarded-Uri: /"];

#[test]
fn unknown_paths_and_wrong_methods_are_explained() {
    let service = standard_service();
    let missing = service.get("service", "/v2/check", &[]);
    assert_eq!(missing.status, 404);
    let detail = missing.json()["detail"].to_string();
    for (_, path, _) in tollgate_server::service::ENDPOINTS {
        assert!(detail.contains(path), "{detail}");
    }
    let wrong = service.get("service", "/v1/check", &[]);
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("POST")));
    assert_eq!(
        wrong.json()["detail"],
        "the method of /v1/check is POST, not GET"
    );
}

#[test]
fn endpoints_that_trust_their_client_require_the_token() {
    let service = kit::service("token: \"0123456789abcdef\"", RULES);
    let described = json!({ "request": { "method": "GET", "path": "/", "ip": "203.0.113.7" } });
    for (path, body) in [
        ("/v1/check", &described),
        ("/v1/explain", &described),
        ("/v1/inspect", &json!({ "client": "a" })),
        ("/v1/reset", &json!({ "client": "a" })),
    ] {
        let body = body.to_string();
        let wrong = [
            "Authorization: Bearer 0123456789abcdeX",
            "Authorization: Bearer 0123456789abcde",
            "Authorization: Basic 0123456789abcdef",
        ];
        for headers in [&[][..], &wrong[..1], &wrong[1..2], &wrong[2..]] {
            let response = service.post(path, headers, &body);
            let challenge = response.header("www-authenticate");
            assert_eq!((response.status, challenge), (401, Some("Bearer")));
        }
        let right = ["Authorization: bearer 0123456789abcdef"];
        assert_eq!(service.post(path, &right, &body).status, 200);
    }
    let response = service.get("service", "/v1/forward-auth", &FORWARDED);
    assert_eq!(
        response.status, 200,
        "its answer has no more than a gateway's"
    );
}

/// A page can send requests to other sites if it does not need the response, or have its own name resolve to this machine.
#[test]
fn without_a_token_requests_of_pages_in_browsers_are_refused() {
    let service = standard_service();
    let described = json!({ "request": { "method": "GET", "path": "/", "ip": "203.0.113.7" } });
    for (path, body) in [
        ("/v1/check", &described),
        ("/v1/explain", &described),
        ("/v1/inspect", &json!({ "client": "a" })),
    ] {
        let body = body.to_string();
        let rebound = ["Host: rebound.example"];
        let cross_site = [
            "Host: 127.0.0.1",
            "Origin: https://elsewhere.example",
            "Sec-Fetch-Site: cross-site",
        ];
        for page in [&rebound[..], &cross_site] {
            let refused = service.post(path, page, &body);
            assert_eq!(refused.status, 403, "{refused:?}");
            assert!(refused.text().contains("service.token"), "{refused:?}");
        }
        assert_eq!(service.post(path, &["Host: localhost"], &body).status, 200);
    }
    let address = service.address("service");
    let headers = [&["Host: tollgate"][..], &FORWARDED].concat();
    let response = request(address, "GET", "/v1/forward-auth", &headers, "").unwrap();
    assert_eq!(
        response.status, 200,
        "its answer has no more than a gateway's"
    );
}
