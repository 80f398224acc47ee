//! `cargo bench --package tollgate-tower`: what it costs to know who is calling, per request.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a program that measures and prints"
)]

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use http::{HeaderMap, HeaderName};
use tollgate_tower::identity::{
    Client, Clients, Identity, IdentityConfig, ProxyHeader, api_key_sha256,
};

const CALLS: u32 = 200_000;
const ROUNDS: usize = 7;

/// What it is, who is asked, the peer, and the headers beside the usual ones.
type Case<'a> = (&'a str, &'a Identity, [u8; 4], &'a [(&'a str, &'a str)]);

fn main() {
    let clients = Clients::new((0..100_000).map(|i| Client {
        id: format!("merchant_{i}"),
        plan: Some("enterprise".into()),
        api_key_sha256: Some(api_key_sha256(
            format!("key of merchant {i}, long enough").as_bytes(),
        )),
    }))
    .unwrap();
    let usual: &[(&str, &str)] = &[
        ("host", "api.example.com"),
        ("user-agent", "curl/8.5.0"),
        ("accept", "*/*"),
        ("accept-encoding", "gzip, br"),
        ("content-type", "application/json"),
    ];
    let identity = |proxy_header| {
        let sources = ["api_key:X-API-Key", "header:X-User-Id", "ip"];
        let config = IdentityConfig {
            client: sources
                .iter()
                .map(|source| source.parse().unwrap())
                .collect(),
            plan: vec!["header:X-Plan".parse().unwrap()],
            trusted_proxies: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            proxy_header,
            ..IdentityConfig::default()
        };
        Identity::new(config).unwrap()
    };
    let (xff, forwarded) = (
        identity(ProxyHeader::XForwardedFor),
        identity(ProxyHeader::Forwarded),
    );
    let flood = vec!["10.0.0.9"; 10_000].join(", ");
    let key = ("x-api-key", "key of merchant 777, long enough");
    let cases: &[Case<'_>] = &[
        ("address of the peer", &xff, [203, 0, 113, 7], &[]),
        (
            "address behind two proxies",
            &xff,
            [10, 0, 0, 1],
            &[("x-forwarded-for", "203.0.113.7, 10.0.0.2")],
        ),
        (
            "the same in Forwarded",
            &forwarded,
            [10, 0, 0, 1],
            &[("forwarded", "for=203.0.113.7;proto=https, for=10.0.0.2")],
        ),
        (
            "IPv6 address behind a proxy",
            &xff,
            [10, 0, 0, 1],
            &[("x-forwarded-for", "2001:db8:1234:5678::9")],
        ),
        (
            "id in a header, and a plan",
            &xff,
            [10, 0, 0, 1],
            &[("x-user-id", "user_4711"), ("x-plan", "pro")],
        ),
        ("API key of one of 100,000", &xff, [203, 0, 113, 7], &[key]),
        (
            "API key that nobody knows",
            &xff,
            [203, 0, 113, 7],
            &[("x-api-key", "key of nobody, long enough")],
        ),
        (
            "10,000 forged addresses",
            &xff,
            [10, 0, 0, 1],
            &[("x-forwarded-for", &flood)],
        ),
    ];
    println!(
        "nanoseconds per request, the least of {ROUNDS} rounds of {CALLS}: to know who calls, and to explain it"
    );
    for (what, identity, peer, lines) in cases {
        let mut headers = HeaderMap::new();
        for (name, value) in usual.iter().chain(*lines) {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let peer = IpAddr::from(*peer);
        let (mut known, mut explained) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            known = known.min(measured(|| {
                identity.caller(black_box(peer), &headers, &clients)
            }));
            explained = explained.min(measured(|| {
                identity.explain(black_box(peer), &headers, &clients)
            }));
        }
        println!("{what:32} {known:8.0} {explained:8.0}");
    }
}

fn measured<T>(call: impl Fn() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}
