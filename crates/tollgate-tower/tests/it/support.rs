//! What the tests share: identities, clients and headers from a few words.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_tower::identity::{
    Client, Clients, Identity, IdentityConfig, ProxyHeader, api_key_sha256,
};

/// The trusted proxy of `behind_proxies`.
pub(crate) const PROXY: &str = "10.0.0.1";

pub(crate) const XFF: &str = "x-forwarded-for";

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn config(client: &[&str]) -> IdentityConfig {
    IdentityConfig {
        client: client
            .iter()
            .map(|source| source.parse().unwrap())
            .collect(),
        ..IdentityConfig::default()
    }
}

/// Nobody is trusted.
pub(crate) fn open_to_all(client: &[&str]) -> Identity {
    Identity::new(config(client)).unwrap()
}

/// `10.0.0.0/8`, `192.168.7.0/24` and `fd00::/8` are trusted.
pub(crate) fn behind_proxies(client: &[&str], proxy_header: ProxyHeader) -> Identity {
    let trusted = ["10.0.0.0/8", "192.168.7.0/24", "fd00::/8"];
    Identity::new(IdentityConfig {
        plan: vec!["header:X-Plan".parse().unwrap()],
        trusted_proxies: trusted.iter().map(|net| net.parse().unwrap()).collect(),
        proxy_header,
        ..config(client)
    })
    .unwrap()
}

/// Header lines in order; a name may occur more than once.
pub(crate) fn headers<V: AsRef<[u8]>>(lines: &[(&str, V)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, HeaderValue::from_bytes(value.as_ref()).unwrap());
    }
    map
}

pub(crate) fn client(id: &str, plan: Option<&str>, key: Option<&str>) -> Client {
    Client {
        id: id.into(),
        plan: plan.map(Into::into),
        api_key_sha256: key.map(|key| api_key_sha256(key.as_bytes())),
    }
}

/// A merchant with a key, a user without, one that has no plan, and another with a key of one word.
pub(crate) fn clients() -> Clients {
    Clients::new([
        client(
            "merchant_123",
            Some("enterprise"),
            Some("the merchant's key"),
        ),
        client("user_7", Some("pro"), None),
        client("user_8", None, None),
        client("another", None, Some("another-key")),
    ])
    .unwrap()
}
