//! The reasons, and that they are those of the decision.

use http::HeaderMap;
use tollgate_tower::identity::{Clients, Explanation, IdentifiedBy, Outcome, ProxyHeader};

use crate::support::{PROXY, XFF, behind_proxies, client, clients, headers, ip, open_to_all};

const SOURCES: [&str; 4] = ["api_key:X-API-Key", "bearer", "header:X-User-Id", "ip"];

fn outcomes(explained: &Explanation) -> Vec<Outcome> {
    explained.client.iter().map(|step| step.outcome).collect()
}

#[test]
fn every_source_says_what_became_of_it() {
    use Outcome::{
        Ambiguous, Chosen, Empty, HasApiKey, KeyInOtherForm, Malformed, NotPresent, NotTried,
        OtherScheme, TooLong, UnknownApiKey, Unreadable,
    };
    let identity = open_to_all(&SOURCES);
    let long = "x".repeat(9_000);
    let long: &str = &long;
    for (lines, expected) in [
        (&[][..], [NotPresent, NotPresent, NotPresent, Chosen]),
        (
            &[("x-api-key", "the merchant's key")],
            [Chosen, NotTried, NotTried, NotTried],
        ),
        (
            &[
                ("x-api-key", "x"),
                ("authorization", "Bearer the merchant's key"),
            ],
            [UnknownApiKey, Chosen, NotTried, NotTried],
        ),
        (
            &[
                ("x-api-key", ""),
                ("authorization", "Basic x"),
                ("x-user-id", "7"),
            ],
            [Empty, OtherScheme, Chosen, NotTried],
        ),
        (
            &[
                ("x-api-key", "a"),
                ("x-api-key", "b"),
                ("authorization", "Bearer"),
                ("x-user-id", "a\tb"),
            ],
            [Ambiguous, Empty, Unreadable, Chosen],
        ),
        (
            &[
                ("x-api-key", "none, another-key"),
                ("authorization", "Bearer\tanother-key"),
            ],
            [KeyInOtherForm, Malformed, NotPresent, Chosen],
        ),
        (
            // Also those that are not asked any more.
            &[
                ("x-api-key", "another-key"),
                ("authorization", "Bearer=x"),
                ("x-user-id", "7"),
                ("x-user-id", "8"),
            ],
            [Chosen, Malformed, Ambiguous, NotTried],
        ),
        (
            &[("x-api-key", long), ("x-user-id", "merchant_123")],
            [TooLong, NotPresent, HasApiKey, Chosen],
        ),
        (
            &[("x-user-id", long)],
            [NotPresent, NotPresent, TooLong, Chosen],
        ),
    ] {
        let explained = identity.explain(ip("203.0.113.7"), &headers(lines), &clients());
        assert_eq!(outcomes(&explained), expected);
        let sources: Vec<_> = explained
            .client
            .iter()
            .map(|step| step.source.to_string())
            .collect();
        assert_eq!(
            sources,
            ["api_key:x-api-key", "bearer", "header:x-user-id", "ip"]
        );
        match identity.caller(ip("203.0.113.7"), &headers(lines), &clients()) {
            Ok(caller) => assert_eq!((explained.caller, explained.refused), (caller, None)),
            Err(error) => {
                let first = expected.into_iter().find(|outcome| outcome.is_refused());
                assert_eq!(Some(error.outcome()), first);
                assert_eq!(explained.refused, Some(error));
                assert_eq!(explained.caller.identified_by(), IdentifiedBy::Address);
            }
        }
    }
}

#[test]
fn what_is_not_believed_says_why() {
    let identity = behind_proxies(&SOURCES, ProxyHeader::XForwardedFor);
    let lines = headers(&[("x-user-id", "user_7"), ("x-plan", "gold")]);
    let explained = identity.explain(ip("203.0.113.7"), &lines, &clients());
    assert_eq!(outcomes(&explained)[2], Outcome::PeerNotTrusted);
    assert_eq!(explained.plan[0].outcome, Outcome::PeerNotTrusted);
    assert!(!explained.address.peer_is_trusted());

    let known = Clients::new([client("x-user-id:42", None, None)]).unwrap();
    let explained = identity.explain(ip(PROXY), &headers(&[("x-user-id", "42")]), &known);
    assert_eq!(outcomes(&explained)[2], Outcome::NameTaken);
    assert!(explained.address.peer_is_trusted());
}

#[test]
fn the_explanation_reads_as_a_few_lines() {
    let identity = behind_proxies(&SOURCES, ProxyHeader::XForwardedFor);
    let lines = headers(&[
        (XFF, "203.0.113.7, 192.168.7.1"),
        ("x-api-key", "nobody's"),
        ("x-plan", "gold"),
    ]);
    let shown = identity.explain(ip(PROXY), &lines, &clients()).to_string();
    let expected = "\
address: 203.0.113.7: the peer 10.0.0.1 is a trusted proxy; this is the first address from the right that is not trusted (hops read: 2)
client: ip:203.0.113.7, by its address
  api_key:x-api-key: unknown API key
  bearer: not present
  header:x-user-id: not present
  ip: chosen
plan: gold
  header:x-plan: chosen";
    assert_eq!(shown, expected);

    let merchant = headers(&[("x-api-key", "the merchant's key")]);
    let shown = identity
        .explain(ip("203.0.113.7"), &merchant, &clients())
        .to_string();
    let expected = "\
address: 203.0.113.7: the peer, which is not a trusted proxy
client: merchant_123, by its API key
  api_key:x-api-key: chosen
  bearer: not tried
  header:x-user-id: not tried
  ip: not tried
plan: enterprise, that of the known client
  header:x-plan: not tried";
    assert_eq!(shown, expected);

    let twice = headers(&[("x-api-key", "the merchant's key"), ("x-api-key", "x")]);
    let shown = open_to_all(&["api_key:X-API-Key", "ip"])
        .explain(ip("203.0.113.7"), &twice, &clients())
        .to_string();
    let expected = "\
refused: several x-api-key headers have different values
address: 203.0.113.7: the peer, which is not a trusted proxy
client: ip:203.0.113.7, by its address
  api_key:x-api-key: present more than once, with different values
  ip: chosen
plan: none";
    assert_eq!(shown, expected);

    let nobody = open_to_all(&["bearer"])
        .explain(ip("203.0.113.7"), &HeaderMap::new(), &clients())
        .to_string();
    assert_eq!(
        nobody,
        "address: 203.0.113.7: the peer, which is not a trusted proxy\nclient: none\n  bearer: not present\nplan: none"
    );
}
