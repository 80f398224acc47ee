//! The layer in a real axum server, asked by a real client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::response::IntoResponse;
use axum::routing::{any, get};
use axum::{Extension, Router};
use http::{Response, StatusCode};
use serde_json::{Value, json};
use tollgate::{
    Decision, Dimension, ForwardedPath, Limiter, Match, MatchedRules, Mode, Name, PathRules, Rule,
    RuleSet,
};
use tollgate_tower::TollgateLayer;
use tollgate_tower::answer::HeaderFamilies;
use tollgate_tower::identity::{Client, Clients, Identity, IdentityConfig, api_key_sha256};
use tollgate_tower::layer::{Decided, Observer, PeerAddr};
use tollgate_tower::policy::Policy;
use tollgate_tower::policy::RequestAttributes;

use crate::served::{NOW, Server, fields, hand, layer, limiter, rule, serve};

fn client(limit: &str) -> Rule {
    rule("client", limit).per([Dimension::Client])
}

fn app(layer: TollgateLayer) -> Router {
    let hello = any(|| async { "hello" });
    Router::new()
        .route("/", hello.clone())
        .route("/{*rest}", hello)
        .layer(layer)
}

/// The statuses of so many requests.
async fn statuses(server: &Server, path: &str, times: u32) -> Vec<u16> {
    let mut heard = Vec::new();
    for _ in 0..times {
        heard.push(server.get(path).await.status().as_u16());
    }
    heard
}

#[tokio::test]
async fn every_field_is_exact_and_who_waits_as_told_passes() {
    let hand = hand();
    let server = serve(app(layer(limiter(&hand, [client("30/m burst 2")])))).await;
    let first = server.get("/").await;
    assert_eq!(
        (first.status().as_u16(), &first.body()[..]),
        (200, &b"hello"[..])
    );
    assert_eq!(fields(first.headers(), "x-ratelimit-limit"), ["2"]);
    assert_eq!(fields(first.headers(), "x-ratelimit-remaining"), ["1"]);
    let reset = (NOW + 2).to_string();
    assert_eq!(fields(first.headers(), "x-ratelimit-reset"), [reset]);
    assert_eq!(
        fields(first.headers(), "ratelimit-policy"),
        [r#""client";q=2;w=4"#]
    );
    assert_eq!(
        fields(first.headers(), "ratelimit"),
        [r#""client";r=1;t=2"#]
    );
    assert!(!first.headers().contains_key("retry-after"));

    assert_eq!(server.get("/").await.status(), 200);
    hand.advance(Duration::from_millis(600));
    let denied = server.get("/").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(fields(denied.headers(), "retry-after"), ["2"]);
    assert_eq!(fields(denied.headers(), "x-ratelimit-remaining"), ["0"]);
    assert_eq!(
        fields(denied.headers(), "ratelimit"),
        [r#""client";r=0;t=4"#]
    );
    assert_eq!(
        fields(denied.headers(), "content-type"),
        ["application/problem+json"]
    );
    let problem: Value = serde_json::from_slice(denied.body()).unwrap();
    assert_eq!(
        problem,
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Too many requests",
            "status": 429,
            "detail": "A limit has no room for this request. Try again in 2 seconds.",
            "violated-policies": ["client"],
            "retry_after": 2,
            "retry_after_ms": 1400,
        })
    );

    // A millisecond too early, and then in time.
    hand.advance(Duration::from_millis(1_399));
    assert_eq!(server.get("/").await.status(), 429);
    hand.advance(Duration::from_millis(1));
    assert_eq!(server.get("/").await.status(), 200);
    assert_eq!(server.get("/").await.status(), 429);
}

#[tokio::test]
async fn head_hears_the_same_without_a_body() {
    let server = serve(app(layer(limiter(&hand(), [client("1/m burst 1")])))).await;
    assert_eq!(server.send("HEAD", "/", &[]).await.status(), 200);
    let denied = server.send("HEAD", "/", &[]).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(fields(denied.headers(), "retry-after"), ["60"]);
    assert!(denied.body().is_empty());
}

#[tokio::test]
async fn preflights_pass_uncharged_unless_they_are_to_be_charged() {
    let preflight = [
        ("origin", "https://example.com"),
        ("access-control-request-method", "POST"),
    ];
    for (charged, heard) in [(false, [200, 200, 200]), (true, [200, 429, 429])] {
        let layer = layer(limiter(&hand(), [client("1/m burst 1")])).charge_preflights(charged);
        let server = serve(app(layer)).await;
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let response = server.send("OPTIONS", "/", &preflight).await;
            statuses.push(response.status().as_u16());
            assert_eq!(response.headers().contains_key("ratelimit"), charged);
        }
        assert_eq!(statuses, heard, "charged: {charged}");
    }
    // Just OPTIONS is a request like any other.
    let server = serve(app(layer(limiter(&hand(), [client("1/m burst 1")])))).await;
    for status in [200, 429] {
        let lines = [("origin", "https://example.com")];
        assert_eq!(server.send("OPTIONS", "/", &lines).await.status(), status);
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_trusted_is_refused_and_costs_nothing() {
    let server = serve(app(layer(limiter(&hand(), [client("1/m burst 1")])))).await;
    let refused = server.get("/v1/..;/admin").await;
    assert_eq!(refused.status(), 400);
    assert_eq!(
        fields(refused.headers(), "content-type"),
        ["application/problem+json"]
    );
    let problem: Value = serde_json::from_slice(refused.body()).unwrap();
    assert_eq!(problem["status"], 400);
    assert_eq!(statuses(&server, "/", 2).await, [200, 429]);
}

#[tokio::test]
async fn callers_of_grpc_hear_a_status_in_trailers_only() {
    let server = serve(app(layer(limiter(&hand(), [client("1/m burst 1")])))).await;
    let grpc = [("content-type", "application/grpc+proto")];
    server.send("POST", "/", &grpc).await;
    let denied = server.send("POST", "/", &grpc).await;
    assert_eq!(denied.status(), 200);
    assert!(denied.body().is_empty());
    for (name, value) in [
        ("content-type", "application/grpc"),
        ("grpc-status", "8"),
        (
            "grpc-message",
            "A limit has no room for this request. Try again in 60 seconds.",
        ),
        ("grpc-retry-pushback-ms", "60000"),
        ("retry-after", "60"),
    ] {
        assert_eq!(fields(denied.headers(), name), [value], "{name}");
    }
}

#[tokio::test]
async fn a_denial_can_be_answered_in_ones_own_words() {
    let limits = limiter(&hand(), [client("1/m burst 1")]);
    let layer = layer(limits)
        .headers(HeaderFamilies::NONE)
        .answer_with(|denial| {
            let rules: Vec<_> = denial.violated().collect();
            let mut response = Response::new(format!("not now: {}", rules.join(" ")).into());
            *response.status_mut() = StatusCode::IM_A_TEAPOT;
            response
        });
    let server = serve(app(layer)).await;
    server.get("/").await;
    let denied = server.get("/").await;
    assert_eq!(denied.status(), 418);
    assert_eq!(&denied.body()[..], b"not now: client");
    assert_eq!(fields(denied.headers(), "retry-after"), ["60"]);
    assert!(!denied.headers().contains_key("ratelimit"));
    let head = server.send("HEAD", "/", &[]).await;
    assert_eq!((head.status().as_u16(), head.body().len()), (418, 0));
}

#[tokio::test]
async fn what_the_service_says_about_its_own_limits_is_not_loosened() {
    let upstream = |remaining: &'static str| async move {
        [
            ("x-ratelimit-limit", "100"),
            ("x-ratelimit-remaining", remaining),
            ("ratelimit", r#""theirs";r=3;t=9"#),
            ("retry-after", "120"),
        ]
        .into_response()
    };
    let app = Router::new()
        .route("/strict", get(move || upstream("3")))
        .route("/loose", get(move || upstream("99")))
        .layer(layer(limiter(&hand(), [client("10/s burst 50")])));
    let server = serve(app).await;
    let strict = server.get("/strict").await;
    assert_eq!(fields(strict.headers(), "x-ratelimit-remaining"), ["3"]);
    assert_eq!(fields(strict.headers(), "x-ratelimit-limit"), ["100"]);
    assert_eq!(
        fields(strict.headers(), "ratelimit"),
        [r#""theirs";r=3;t=9"#, r#""client";r=49;t=1"#]
    );
    assert_eq!(fields(strict.headers(), "retry-after"), ["120"]);
    let loose = server.get("/loose").await;
    assert_eq!(fields(loose.headers(), "x-ratelimit-remaining"), ["48"]);
    assert_eq!(fields(loose.headers(), "x-ratelimit-limit"), ["50"]);
}

#[tokio::test]
async fn layers_of_routes_and_of_everything_all_count_and_the_strictest_is_seen() {
    let hand = hand();
    let of_all = layer(limiter(&hand, [client("1/m burst 3")]));
    let of_one = layer(limiter(&hand, [rule("narrow", "1/m burst 1")]));
    let hello = get(|| async { "hello" });
    let app = Router::new()
        .route("/narrow", hello.clone().layer(of_one))
        .route("/wide", hello)
        .layer(of_all);
    let server = serve(app).await;
    let narrow = server.get("/narrow").await;
    assert_eq!(fields(narrow.headers(), "x-ratelimit-remaining"), ["0"]);
    assert_eq!(
        fields(narrow.headers(), "ratelimit"),
        [r#""narrow";r=0;t=60"#, r#""client";r=2;t=60"#]
    );
    let denied = server.get("/narrow").await;
    assert_eq!(denied.status(), 429);
    assert_eq!(fields(denied.headers(), "retry-after"), ["60"]);
    assert_eq!(statuses(&server, "/wide", 2).await, [200, 429]);
}

#[tokio::test]
async fn shadows_never_deny_and_handlers_always_see_them() {
    let rules = || {
        [
            client("10/s burst 50"),
            rule("strict", "1/m burst 1").mode(Mode::Shadow),
        ]
    };
    let would_deny = get(|Extension(decided): Extension<Decided>| async move {
        let shadows = decided.tiers().iter().filter(|tier| tier.is_shadow());
        shadows
            .filter(|tier| !tier.verdict().allowed())
            .count()
            .to_string()
    });
    for shown in [false, true] {
        let layer = layer(limiter(&hand(), rules())).show_shadows(shown);
        let server = serve(Router::new().route("/", would_deny.clone()).layer(layer)).await;
        assert_eq!(&server.get("/").await.body()[..], b"0");
        let second = server.get("/").await;
        assert_eq!(
            (second.status().as_u16(), &second.body()[..]),
            (200, &b"1"[..])
        );
        let seen = fields(second.headers(), "x-ratelimit-shadow");
        match shown {
            true => assert_eq!(seen, [r#""strict";r=0;t=60;deny"#]),
            false => assert!(seen.is_empty()),
        }
        assert_eq!(
            fields(second.headers(), "ratelimit"),
            [r#""client";r=48;t=1"#]
        );
    }
}

#[tokio::test]
async fn a_closure_says_who_asks_and_what_it_costs() {
    let region = Name::new("region").unwrap();
    let rules = [
        client("1/m burst 4"),
        rule("client", "1/m burst 9")
            .per([Dimension::Client])
            .plan("pro"),
        rule("here", "1/m burst 1").when(Match::new().attribute(region, ["here"])),
    ];
    let text = |parts: &http::request::Parts, name: &str| {
        let value = parts.headers.get(name)?.to_str().ok()?;
        Some(value.to_owned())
    };
    let layer = TollgateLayer::new(limiter(&hand(), rules))
        .request(move |parts| {
            let mut ask = RequestAttributes::new().client(text(parts, "x-who").unwrap_or_default());
            if let Some(plan) = text(parts, "x-plan") {
                ask = ask.plan(plan);
            }
            if let Some(value) = text(parts, "x-where") {
                ask = ask.attribute(region, value);
            }
            ask
        })
        .cost(|parts| parts.uri.query()?.parse().ok());
    let server = serve(app(layer)).await;
    let left = async |path: &str, lines: &[(&str, &str)]| {
        let response = server.send("GET", path, lines).await;
        fields(response.headers(), "x-ratelimit-remaining").join(" ")
    };
    assert_eq!(left("/", &[("x-who", "a")]).await, "3");
    assert_eq!(left("/?2", &[("x-who", "a")]).await, "1");
    assert_eq!(left("/", &[("x-who", "b")]).await, "3");
    assert_eq!(left("/?0", &[("x-who", "b")]).await, "3");
    assert_eq!(left("/", &[("x-who", "c"), ("x-plan", "pro")]).await, "8");
    assert_eq!(left("/", &[("x-who", "d"), ("x-where", "here")]).await, "0");
}

/// A closure may pass on headers of HTTP/2 as they came.
#[tokio::test]
async fn spaces_around_what_a_closure_says_are_ignored() {
    let tenant = Name::new("tenant").unwrap();
    let rules = [
        client("1/m burst 4"),
        rule("tenant", "1/m burst 3")
            .when(Match::new().methods(["POST"]).unwrap())
            .per([Dimension::Attribute(tenant)]),
    ];
    let layer = TollgateLayer::new(limiter(&hand(), rules)).request(move |parts| {
        let form = parts.uri.path().trim_start_matches('/');
        let form = form.replace('s', " ").replace('t', "\t");
        match parts.method == "GET" {
            true => RequestAttributes::new().client(form),
            false => RequestAttributes::new().client("b").attribute(tenant, form),
        }
    });
    let server = serve(app(layer)).await;
    for (method, expected) in [("GET", ["3", "2", "1"]), ("POST", ["2", "1", "0"])] {
        let mut left = Vec::new();
        for path in ["/a", "/sat", "/tsas"] {
            let response = server.send(method, path, &[]).await;
            left.push(fields(response.headers(), "x-ratelimit-remaining").join(" "));
        }
        assert_eq!(left, expected, "{method}");
    }
}

/// One rule by address, and clients behind a proxy that is trusted: nobody shares a bucket with all the others.
#[tokio::test]
async fn what_a_closure_leaves_out_is_found_by_the_peer_and_the_identity() {
    let rules = [
        rule("address", "1/m burst 2").per([Dimension::Ip]),
        rule("plan", "1/m burst 9")
            .per([Dimension::Client])
            .plan("pro"),
    ];
    let identity = Identity::new(IdentityConfig {
        client: vec!["header:X-User-Id".parse().unwrap(), "ip".parse().unwrap()],
        plan: vec!["header:X-Plan".parse().unwrap()],
        trusted_proxies: vec!["127.0.0.1/32".parse().unwrap()],
        ..IdentityConfig::default()
    })
    .unwrap();
    let known = Client {
        id: "known".to_owned(),
        plan: Some("pro".to_owned()),
        api_key_sha256: None,
    };
    let clients = Clients::new([known]).unwrap();
    let layer = TollgateLayer::new(limiter(&hand(), rules))
        .identity(identity, clients)
        .peer_from(|_| Some(SocketAddr::from(([127, 0, 0, 1], 7))))
        .request(|parts| {
            let text = |name: &str| Some(parts.headers.get(name)?.to_str().ok()?.to_owned());
            let ask = text("x-account").map_or(RequestAttributes::new(), |account| {
                RequestAttributes::new().client(account)
            });
            match text("x-address") {
                Some(address) => ask.ip(address.parse().unwrap()),
                None => ask,
            }
        });
    let server = serve(app(layer)).await;
    let left = async |lines: &[(&str, &str)]| {
        let response = server.send("GET", "/", lines).await;
        let left = fields(response.headers(), "ratelimit").join(" ");
        (response.status().as_u16(), left)
    };
    // One client that asks on and on denies nobody else.
    for status in [200, 200, 429, 429] {
        let greedy = [("x-account", "a"), ("x-forwarded-for", "203.0.113.1")];
        assert_eq!(left(&greedy).await.0, status);
    }
    for other in ["203.0.113.2", "2001:db8::1"] {
        let one = [("x-account", "a"), ("x-forwarded-for", other)];
        assert_eq!(left(&one).await, (200, r#""address";r=1;t=60"#.to_owned()));
    }
    // An address of the closure's own is counted as all others are: IPv6 by network.
    let own = [
        ("x-address", "2001:db8::2"),
        ("x-forwarded-for", "203.0.113.3"),
    ];
    assert_eq!(left(&own).await, (200, r#""address";r=0;t=120"#.to_owned()));
    assert_eq!(left(&own).await.0, 429);
    // The plan of a known client, or the one that the proxy says; and the client, if the closure knows none.
    for (nth, lines) in [
        [("x-account", "known"), ("x-plan", "gold")],
        [("x-account", "unknown"), ("x-plan", "pro")],
        [("x-user-id", "known"), ("x-plan", "gold")],
        [("x-user-id", "42"), ("x-plan", "pro")],
    ]
    .into_iter()
    .enumerate()
    {
        let from = format!("198.51.100.{nth}");
        let lines = [lines[0], lines[1], ("x-forwarded-for", &from)];
        let (status, said) = left(&lines).await;
        assert_eq!(status, 200);
        let left = if nth == 2 { 7 } else { 8 };
        assert!(
            said.contains(&format!(r#""plan";r={left}"#)),
            "{nth}: {said}"
        );
    }
    // What decides nothing is not judged; what does is.
    let twice = [
        ("x-user-id", "1"),
        ("x-user-id", "2"),
        ("x-forwarded-for", "198.51.100.9"),
    ];
    assert_eq!(left(&twice).await.0, 400);
    let named = [twice[0], twice[1], twice[2], ("x-account", "a")];
    assert_eq!(left(&named).await.0, 200);
}

/// Whoever resets a client by the policy's name for it finds what the closure's client used, and what its header's did.
#[tokio::test]
async fn a_closures_client_has_the_name_of_the_policy() {
    let identity = Identity::new(IdentityConfig {
        client: vec!["header:X-User-Id".parse().unwrap(), "ip".parse().unwrap()],
        trusted_proxies: vec!["127.0.0.1/32".parse().unwrap()],
        ..IdentityConfig::default()
    })
    .unwrap();
    let known = Client {
        id: "merchant_123".to_owned(),
        plan: None,
        api_key_sha256: None,
    };
    let rules = RuleSet::new([client("1/m burst 9")]).unwrap();
    let policy = Policy::new(rules, identity, Clients::new([known]).unwrap());
    let limiter = Arc::new(limiter(&hand(), []));
    let layer = TollgateLayer::new(Arc::clone(&limiter))
        .policy(policy.clone())
        .peer_from(|_| Some(SocketAddr::from(([127, 0, 0, 1], 7))))
        .request(|parts| match parts.headers.get("x-account") {
            Some(account) => RequestAttributes::new().client(account.to_str().unwrap().to_owned()),
            None => RequestAttributes::new(),
        });
    let server = serve(app(layer)).await;
    for (account, name, user) in [
        ("42", "x-user-id:42", "42"),
        ("x-user-id:7", "x-user-id:7", "7"),
        ("merchant_123", "merchant_123", "merchant_123"),
    ] {
        for line in [("x-account", account), ("x-user-id", user)] {
            assert_eq!(server.send("GET", "/", &[line]).await.status(), 200);
        }
        assert_eq!(policy.client_name(account), name);
        let by_name = tollgate::Request::new().client(name);
        let found = limiter
            .matched(&policy.rules().matching(&by_name))
            .reset()
            .await
            .unwrap();
        let used: Vec<_> = found.iter().map(tollgate::Usage::used).collect();
        assert_eq!(used, [Some(2)], "{account}");
        let response = server.send("GET", "/", &[("x-account", account)]).await;
        let left = fields(response.headers(), "x-ratelimit-remaining");
        assert_eq!(left, ["8"], "{account}");
    }
}

#[tokio::test]
async fn what_can_be_read_in_two_ways_is_refused_and_costs_nothing() {
    let rules = [
        client("1/m burst 1"),
        rule("tenant", "1/m burst 1")
            .per([Dimension::Attribute(Name::new("header:x-tenant").unwrap())]),
    ];
    let identity = Identity::new(IdentityConfig {
        client: vec!["bearer".parse().unwrap(), "ip".parse().unwrap()],
        ..IdentityConfig::default()
    });
    let layer = layer(limiter(&hand(), rules)).identity(identity.unwrap(), Clients::default());
    let server = serve(app(layer)).await;
    for (lines, detail) in [
        (
            &[("authorization", "Bearer a"), ("authorization", "Bearer b")][..],
            "several authorization headers have different values",
        ),
        (
            &[("authorization", "Bearer\ta")],
            "the authorization header is refused: malformed: Bearer is not followed by a space",
        ),
        (
            &[("x-tenant", "a"), ("x-tenant", "b")],
            "several x-tenant headers have different values",
        ),
    ] {
        let refused = server.send("GET", "/", lines).await;
        assert_eq!(refused.status(), 400, "{lines:?}");
        let problem: Value = serde_json::from_slice(refused.body()).unwrap();
        assert_eq!(problem["detail"], detail);
        let grpc = [lines, &[("content-type", "application/grpc")]].concat();
        let refused = server.send("POST", "/", &grpc).await;
        assert_eq!(fields(refused.headers(), "grpc-status"), ["3"]);
        assert_eq!(fields(refused.headers(), "grpc-message"), [detail]);
    }
    assert_eq!(statuses(&server, "/", 2).await, [200, 429]);
}

#[tokio::test]
async fn callers_are_known_by_their_keys_where_an_identity_says_so() {
    let identity = Identity::new(IdentityConfig {
        client: vec!["api_key:X-API-Key".parse().unwrap(), "ip".parse().unwrap()],
        ..IdentityConfig::default()
    })
    .unwrap();
    let clients = Clients::new([Client {
        id: "merchant_123".into(),
        plan: Some("pro".into()),
        api_key_sha256: Some(api_key_sha256(b"a long random key")),
    }])
    .unwrap();
    let rules = [client("1/m burst 1"), client("1/m burst 5").plan("pro")];
    let server = serve(app(
        layer(limiter(&hand(), rules)).identity(identity, clients)
    ))
    .await;
    let limit = async |lines: &[(&str, &str)]| {
        let response = server.send("GET", "/", lines).await;
        fields(response.headers(), "x-ratelimit-limit").join(" ")
    };
    assert_eq!(limit(&[("x-api-key", "a long random key")]).await, "5");
    assert_eq!(limit(&[("x-api-key", "guessed")]).await, "1");
}

#[tokio::test]
async fn who_has_no_address_is_counted_with_all_others_who_have_none() {
    let peers = Arc::new(AtomicU32::new(0));
    let put = axum::middleware::from_fn(
        move |mut request: axum::extract::Request, next: axum::middleware::Next| {
            let peers = Arc::clone(&peers);
            async move {
                let last = peers.fetch_add(1, Ordering::SeqCst);
                if request.uri().path() == "/put" {
                    let address = SocketAddr::from(([10, 0, 0, u8::try_from(last).unwrap()], 1));
                    request.extensions_mut().insert(PeerAddr(address));
                }
                next.run(request).await
            }
        },
    );
    let limits: Limiter = limiter(&hand(), [client("1/m burst 2")]);
    let server = serve(app(TollgateLayer::new(limits)).layer(put)).await;
    assert_eq!(statuses(&server, "/", 3).await, [200, 200, 429]);
    assert_eq!(statuses(&server, "/put", 3).await, [200, 200, 200]);
}

/// A limiter whose only rule is for paths, and whose paths go on in this form.
fn with_paths(forward: ForwardedPath) -> Limiter {
    let limiter = Limiter::in_memory();
    let rule = client("1/h burst 100").when(Match::new().path("/v1/charges".parse().unwrap()));
    let paths = PathRules::default().forward(forward);
    limiter.set_rules(RuleSet::new([rule]).unwrap().with_paths(paths));
    limiter
}

#[tokio::test]
async fn a_path_goes_on_as_it_came_or_in_its_normal_form() {
    let seen = any(|uri: http::Uri| async move { uri.to_string() });
    let app = |forward| {
        let layer = TollgateLayer::new(with_paths(forward));
        serve(Router::new().route("/{*rest}", seen.clone()).layer(layer))
    };
    let original = app(ForwardedPath::Original).await;
    let normalised = app(ForwardedPath::Normalised).await;
    for (came, normal) in [
        ("/v2/./users/%37?expand=%2e&b", "/v2/users/7?expand=%2e&b"),
        ("/a/../b", "/b"),
        ("/as/it//is?q", "/as/it/is?q"),
        ("/as/it/is", "/as/it/is"),
    ] {
        assert_eq!(original.get(came).await.body(), came.as_bytes(), "{came}");
        let body = normalised.get(came).await;
        assert_eq!(body.body(), normal.as_bytes(), "{came}");
    }
    // Where readings meet different rules, one form is refused, and the other has one reading.
    assert_eq!(original.get("/v1//charges").await.status(), 400);
    let body = normalised.get("/v1//charges").await;
    assert_eq!(body.body(), &b"/v1/charges"[..]);
}

#[tokio::test]
async fn a_path_that_grows_beyond_what_can_be_said_is_refused() {
    let app = Router::new()
        .fallback(any(|| async { "forwarded" }))
        .layer(TollgateLayer::new(with_paths(ForwardedPath::Normalised)));
    let server = serve(app).await;
    // Each of these is three bytes in its normal form.
    let path = format!("/{}?{}", "{".repeat(8_000), "q".repeat(50_000));
    assert_eq!(server.get(&path).await.status(), 400);
}

/// Counts what it hears.
#[derive(Clone, Default)]
struct Ears(Arc<std::sync::Mutex<Vec<String>>>);

impl Observer for Ears {
    fn decided(&self, met: &MatchedRules<'_>, decision: &Decision) {
        let (method, ip) = (met.method().unwrap(), met.ip().unwrap());
        let line = format!("{method} {ip} {:?} {}", met.route(), decision.allowed());
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test]
async fn an_observer_hears_of_every_decision_and_of_no_preflight() {
    let ears = Ears::default();
    let rule = client("1/h burst 1").when(Match::new().path("/a/{id}".parse().unwrap()));
    let layer = TollgateLayer::new(Limiter::in_memory().with_rules([rule]).unwrap());
    let server = serve(app(layer.observer(ears.clone()))).await;
    for path in ["/a/7", "/a/8", "/other", "/bad%2Fpath"] {
        server.get(path).await;
    }
    let heard = ears.0.lock().unwrap().clone();
    let a = r#"Some("/a/{id}")"#;
    assert_eq!(
        heard,
        [
            format!("GET 0.0.0.0 {a} true"),
            format!("GET 0.0.0.0 {a} false"),
            "GET 0.0.0.0 None true".to_owned(),
        ]
    );
}
