//! A request as a policy sees it: its path, host and headers, and who it is from.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tollgate::{Dimension, LocalLimiter, Match, Name, Rule, RuleSet};
use tollgate_tower::identity::{Clients, Identity, IdentityConfig};
use tollgate_tower::policy::{Head, Policy, Refusal};

fn rule(id: &str) -> Rule {
    Rule::new(id, "1/s burst 3".parse().unwrap()).unwrap()
}

fn region() -> Name {
    Name::new("header:x-region").unwrap()
}

fn policy() -> Policy {
    let rules = RuleSet::new([
        rule("charges")
            .when(Match::new().path("/v1/charges/{id}".parse().unwrap()))
            .per([Dimension::Client, Dimension::Route]),
        rule("eu").when(Match::new().attribute(region(), ["eu"])),
        rule("cookie").when(Match::new().attribute(Name::new("header:cookie").unwrap(), ["*"])),
        rule("host").when(Match::new().host("api.example.com").unwrap()),
    ])
    .unwrap();
    let identity = Identity::new(IdentityConfig::default()).unwrap();
    Policy::new(rules, identity, Clients::default())
}

/// The rules that a request meets.
fn met(uri: &str, lines: &[(&'static str, &[u8])]) -> Result<String, Refusal> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let value = HeaderValue::from_bytes(value).unwrap();
        headers.append(HeaderName::from_static(name), value);
    }
    let (policy, uri): (Policy, Uri) = (policy(), uri.parse().unwrap());
    let head = Head {
        method: &Method::GET,
        uri: &uri,
        headers: &headers,
    };
    let view = policy.view(&head, [203, 0, 113, 7].into())?;
    let request = view.request();
    let met = policy.rules().matching(&request);
    let ids: Vec<&str> = met.rules().iter().map(|rule| rule.id().as_str()).collect();
    Ok(ids.join(" "))
}

#[test]
fn headers_that_rules_look_at_are_seen_and_a_list_is_a_list() {
    assert_eq!(met("/", &[("x-region", b"eu")]).unwrap(), "eu");
    assert_eq!(met("/", &[]).unwrap(), "");
    // Servers take the first, the last or both of them.
    for lines in [["eu", "us"], ["us", "eu"], ["eu", "eu"], ["x", "eu"]] {
        let lines = lines.map(|line| ("x-region", line.as_bytes()));
        assert_eq!(met("/", &lines).unwrap(), "eu", "{lines:?}");
    }
    let joined = met("/", &[("x-region", b"us"), ("x-region", b"x")]);
    assert_eq!(joined.unwrap(), "");
    // What joins lines, and who splits lists, makes no difference.
    let long = [&[b'a'; 5_000][..], b",eu"].concat();
    for list in [
        &b"eu,us"[..],
        b"us,eu",
        b"us,\t eu ",
        b",eu,",
        b"\xff,eu",
        &long,
    ] {
        assert_eq!(met("/", &[("x-region", list)]).unwrap(), "eu", "{list:?}");
        let lines = [("x-region", list), ("x-region", b"x")];
        assert_eq!(met("/", &lines).unwrap(), "eu", "{list:?}");
    }
    assert_eq!(met("/", &[("x-region", b"us;eu, e u")]).unwrap(), "");
    // Values that no rule names are no reason to miss or to refuse one that a rule does.
    let many: Vec<(&str, Vec<u8>)> = (0..20)
        .map(|nth| ("x-region", format!("r{nth}").into_bytes()))
        .chain([("x-region", b"eu".to_vec())])
        .collect();
    let many: Vec<(&'static str, &[u8])> = many.iter().map(|(name, v)| (*name, &v[..])).collect();
    assert_eq!(met("/", &many).unwrap(), "eu");
    assert_eq!(met("/", &[("x-region", b"\xff")]).unwrap(), "");
    assert_eq!(met("/", &[("x-region", &[b'a'; 5_000])]).unwrap(), "");
    assert_eq!(met("/", &[("x_region", b"eu")]).unwrap(), "");
}

#[test]
fn a_header_with_too_many_named_values_is_refused() {
    let regions: Vec<String> = (0..8).map(|nth| format!("r{nth}")).collect();
    let rules = (regions.iter())
        .map(|region| rule(region).when(Match::new().attribute(self::region(), [region.as_str()])));
    let rules = RuleSet::new(rules).unwrap();
    let policy = Policy::new(rules, Identity::default(), Clients::default());
    let met = |list: &str| {
        let mut headers = HeaderMap::new();
        headers.append("x-region", list.parse().unwrap());
        let (method, uri) = (Method::GET, Uri::from_static("/"));
        let head = Head {
            method: &method,
            uri: &uri,
            headers: &headers,
        };
        let view = policy.view(&head, [203, 0, 113, 7].into())?;
        Ok(policy.rules().matching(&view.request()).rules().len())
    };
    assert_eq!(met(&regions[..7].join(",")), Ok(7));
    assert_eq!(met("r1,r2,r1,r2,r3,r4,x,r5,r6,r7,r7"), Ok(7));
    let refused = Refusal::HeaderList("x-region".into());
    assert_eq!(met(&regions.join(",")), Err(refused.clone()));
    assert_eq!(refused.as_str(), "header_refused");
    let name = region();
    assert_eq!(policy.header_values(name, "r1, x"), Ok(vec!["r1"]));
    assert_eq!(policy.header_values(name, &regions.join(",")), Err(refused));
}

/// A rule for all who send a header is not dodged by a value that is odd.
#[test]
fn a_header_is_there_whatever_it_says() {
    for value in [&b"a=1"[..], b"", b"a=\xff", &[b'a'; 5_000]] {
        assert_eq!(met("/", &[("cookie", value)]).unwrap(), "cookie");
        let twice: [(&str, &[u8]); 2] = [("cookie", b"a=1"), ("cookie", value)];
        assert_eq!(met("/", &twice).unwrap(), "cookie");
    }
}

#[test]
fn the_targets_host_comes_before_the_headers() {
    assert_eq!(
        met("/", &[("host", b"API.example.com:80")]).unwrap(),
        "host"
    );
    assert_eq!(
        met("http://api.example.com/", &[("host", b"x")]).unwrap(),
        "host"
    );
    assert_eq!(
        met("http://x/", &[("host", b"api.example.com")]).unwrap(),
        ""
    );
    assert_eq!(met("/", &[("host", b"")]).unwrap(), "");
}

/// A rule for a host is not evaded by another form of it.
#[test]
fn a_host_that_is_none_is_refused() {
    for host in [
        "api.example.com:x",
        "api.example.com:80:80",
        "api.example.com..",
        "[api.example.com]",
        "user@api.example.com",
        "api.example.com, x",
        "api.example.com/x",
    ] {
        let refused = met("/", &[("host", host.as_bytes())]).unwrap_err();
        assert_eq!(refused.as_str(), "host_refused", "{host}: {refused}");
    }
    let refused = met("http://user@api.example.com/", &[]).unwrap_err();
    assert_eq!(refused.as_str(), "host_refused");
    let twice: [(&str, &[u8]); 2] = [("host", b"api.example.com"), ("host", b"x")];
    assert_eq!(met("/", &twice), Err(Refusal::SeveralHosts));
    let twice: [(&str, &[u8]); 2] = [("host", b"api.example.com"), ("host", b"api.example.com")];
    assert_eq!(met("/", &twice).unwrap(), "host");
}

/// Who sheds a bucket by a second value would be counted in another one each time.
#[test]
fn a_header_that_rules_count_by_has_one_value() {
    let tenant = Name::new("header:x-tenant").unwrap();
    let rules = RuleSet::new([rule("tenant").per([Dimension::Attribute(tenant)])]).unwrap();
    let policy = Policy::new(rules, Identity::default(), Clients::default());
    let seen = |lines: &[&str]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-tenant", line.parse().unwrap());
        }
        let (method, uri) = (Method::GET, Uri::from_static("/"));
        let head = Head {
            method: &method,
            uri: &uri,
            headers: &headers,
        };
        policy.view(&head, [203, 0, 113, 7].into()).map(|_| ())
    };
    assert_eq!(seen(&["a"]), Ok(()));
    assert_eq!(seen(&["a", "a"]), Ok(()));
    let refused = Err(Refusal::Header("x-tenant".into()));
    assert_eq!(seen(&["a", "b"]), refused);
    assert_eq!(seen(&["a", ""]), refused);
}

#[test]
fn a_path_that_cannot_be_trusted_is_refused_before_anything_is_counted() {
    assert_eq!(met("/v1/charges/%37?x", &[]).unwrap(), "charges");
    assert!(met("/v1//charges/7?x", &[]).is_err());
    assert!(met("/v1/charges%2f7", &[]).is_err());
    assert!(met("/v1/..;/charges/7", &[]).is_err());
}

#[test]
fn a_caller_is_counted_by_its_endpoint_and_nothing_it_writes() {
    let (policy, limiter) = (policy(), LocalLimiter::new());
    let mut admitted = 0;
    for i in 0..10 {
        let uri: Uri = format!("/v1/charges/{i}?nonce={i}").parse().unwrap();
        let mut headers = HeaderMap::new();
        let forged = format!("198.51.100.{i}");
        headers.insert("x-forwarded-for", forged.parse().unwrap());
        headers.insert("x-api-key", forged.parse().unwrap());
        let head = Head {
            method: &Method::GET,
            uri: &uri,
            headers: &headers,
        };
        let view = policy.view(&head, [203, 0, 113, 7].into()).unwrap();
        let decision = limiter
            .matched(&policy.rules().matching(&view.request()))
            .decide();
        admitted += u32::from(decision.allowed());
    }
    assert_eq!(admitted, 3);
}
