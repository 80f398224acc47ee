//! What proxies write: whatever a caller puts in front of it, what a trusted proxy appended is what counts.

#![no_main]

use std::net::IpAddr;
use std::sync::LazyLock;

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use tollgate_tower::identity::{
    Clients, Identity, IdentityConfig, ProxyHeader, forwarded_elements, parse_address,
};

fn identity(proxy_header: ProxyHeader) -> Identity {
    Identity::new(IdentityConfig {
        client: vec!["ip".parse().expect("a source")],
        trusted_proxies: vec!["10.0.0.0/8".parse().expect("a network")],
        proxy_header,
        ..IdentityConfig::default()
    })
    .expect("a configuration")
}

static BY_LIST: LazyLock<Identity> = LazyLock::new(|| identity(ProxyHeader::XForwardedFor));
static BY_ELEMENTS: LazyLock<Identity> = LazyLock::new(|| identity(ProxyHeader::Forwarded));

fuzz_target!(|text: &str| {
    if let Ok(address) = parse_address(text) {
        assert_eq!(parse_address(&address.to_string()), Ok(address));
    }
    for _ in forwarded_elements(text.as_bytes()) {}
    let proxy: IpAddr = [10, 0, 0, 1].into();
    let clients = Clients::default();
    let caller = |identity: &Identity, header: &'static str, lines: [&str; 2]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            match HeaderValue::from_str(line) {
                Ok(line) => headers.append(header, line),
                Err(_) => return,
            };
        }
        let caller = identity.caller(proxy, &headers, &clients).unwrap();
        assert_eq!(caller.client(), Some("ip:203.0.113.7"), "{lines:?}");
    };
    let appended = format!("{text}, 203.0.113.7");
    caller(&BY_LIST, "x-forwarded-for", [text, "203.0.113.7"]);
    caller(&BY_LIST, "x-forwarded-for", ["1.1.1.1", &appended]);
    caller(&BY_ELEMENTS, "forwarded", [text, "for=203.0.113.7"]);
});
