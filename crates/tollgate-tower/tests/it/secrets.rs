//! An API key is never shown.

use http::HeaderMap;
use proptest::prelude::*;
use tollgate_tower::identity::{Client, Clients, ProxyHeader, api_key_sha256};
use tollgate_tower::policy::Refusal;

use crate::support::{PROXY, XFF, behind_proxies, client, headers, ip, open_to_all};

/// Like nothing else that could be shown.
const CANARY: &str = "zQ7-canary-Wv93xKp";

/// The key, a beginning or an end of it, or what its hash begins with.
fn tells(shown: &str, key: &str) -> Option<String> {
    let hash = api_key_sha256(key.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let list = format!("{:?}", &hash[..3]);
    let numbers = list.trim_matches(['[', ']']).to_owned();
    let base64_like = key[..6].to_owned();
    let parts = [
        key[..4].to_owned(),
        key[key.len() - 4..].to_owned(),
        base64_like,
        hex[..8].to_owned(),
        hex[..8].to_uppercase(),
        numbers,
    ];
    parts.into_iter().find(|part| shown.contains(part.as_str()))
}

/// All that can be shown of a request with these headers.
fn all_shown(map: &HeaderMap, clients: &Clients) -> String {
    use std::fmt::Write as _;
    let sources = [
        "api_key:X-API-Key",
        "bearer",
        "header:X-Auth-Token",
        "header:Authorization",
        "header:Cookie",
        "header:X-User-Id",
        "ip",
    ];
    let mut shown = String::new();
    for identity in [
        open_to_all(&sources),
        open_to_all(&sources[..5]),
        behind_proxies(&sources, ProxyHeader::XForwardedFor),
    ] {
        for peer in [PROXY, "203.0.113.7"] {
            let caller = identity.caller(ip(peer), map, clients);
            let explained = identity.explain(ip(peer), map, clients);
            write!(shown, "{identity:?} {caller:?} {caller:#?}").unwrap();
            match caller {
                Ok(caller) => write!(shown, "{} {:?}", caller.identified_by(), caller.request()),
                Err(error) => write!(shown, "{error} {}", Refusal::from(error.clone()).detail()),
            }
            .unwrap();
            write!(
                shown,
                "{explained:?} {explained:#?} {explained} {}",
                explained.address
            )
            .unwrap();
            for step in &explained.client {
                write!(shown, "{step} {step:?}").unwrap();
            }
        }
    }
    write!(shown, "{clients:?} {clients:#?}").unwrap();
    shown
}

fn ways_to_present(key: &str) -> Vec<HeaderMap> {
    vec![
        headers(&[("x-api-key", key)]),
        headers(&[("x-auth-token", key)]),
        headers(&[("authorization", key)]),
        headers(&[("authorization", &format!("Bearer {key}"))]),
        headers(&[("authorization", &format!("Basic {key}"))]),
        headers(&[("authorization", &format!("{key} {key}"))]),
        headers(&[("cookie", &format!("session={key}"))]),
        headers(&[("x-api-key", key), ("x-api-key", "other")]),
        headers(&[
            ("x-api-key", "other"),
            ("authorization", &format!("Bearer {key}")),
        ]),
        headers(&[("x-api-key", &key.repeat(400))]),
        headers(&[("x-api-key", format!("{key}\u{202e}\t").as_bytes())]),
        headers(&[("x-api-key", [key.as_bytes(), b"\xff"].concat())]),
        headers(&[
            ("x-api-key", key),
            ("x-user-id", "42"),
            (XFF, "198.51.100.9"),
            ("x-plan", "gold"),
        ]),
        headers(&[(XFF, key)]),
        headers(&[("forwarded", &format!("for=\"{key}\""))]),
    ]
}

#[test]
fn neither_a_known_nor_an_unknown_key_is_shown_by_anything() {
    let known = Clients::new([
        client("merchant_123", Some("enterprise"), Some(CANARY)),
        client("other", None, Some("other")),
    ])
    .unwrap();
    let unknown = Clients::new([client("other", None, Some("other"))]).unwrap();
    for clients in [known, unknown, Clients::default()] {
        for map in ways_to_present(CANARY) {
            let shown = all_shown(&map, &clients);
            assert_eq!(tells(&shown, CANARY), None, "{shown}");
        }
    }
}

#[test]
fn clients_and_their_errors_show_no_key_and_no_hash() {
    let one = client("a", Some("gold"), Some(CANARY));
    let same_key = Client {
        id: "b".into(),
        ..one.clone()
    };
    let reserved = Client {
        id: "ip:1.2.3.4".into(),
        ..one.clone()
    };
    let nameless = Client {
        id: String::new(),
        ..one.clone()
    };
    let bad_plan = Client {
        plan: Some("\n".into()),
        ..one.clone()
    };
    let mut shown = format!("{one:?} {one:#?}");
    for clients in [
        vec![one.clone(), one.clone()],
        vec![one.clone(), same_key],
        vec![reserved],
        vec![nameless],
        vec![bad_plan],
    ] {
        let error = Clients::new(clients).unwrap_err();
        shown += &format!("{error} {error:?}");
    }
    assert_eq!(tells(&shown, CANARY), None, "{shown}");
}

#[test]
fn the_search_for_the_canary_would_find_it() {
    assert!(tells(&format!("{:?}", headers(&[("x-api-key", CANARY)])), CANARY).is_some());
    assert!(tells(&format!("{:?}", api_key_sha256(CANARY.as_bytes())), CANARY).is_some());
    // An id is no secret, and is shown.
    let shown = all_shown(&headers(&[("x-user-id", CANARY)]), &Clients::default());
    assert!(tells(&shown, CANARY).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_key_is_shown_whatever_it_is(random in "[A-Za-z0-9+/=_.~-]{12,40}", known: bool) {
        // Letters that nothing else holds, so that a beginning of the key is found nowhere by chance.
        let key = format!("ZqXj{random}jXqZ");
        let clients = Clients::new(known.then(|| client("merchant_123", None, Some(&key)))).unwrap();
        for map in ways_to_present(&key) {
            let shown = all_shown(&map, &clients);
            prop_assert_eq!(tells(&shown, &key), None);
        }
    }
}
