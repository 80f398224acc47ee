//! Which rules a request meets: by method, host, path, plan and attributes; what it costs; what its endpoint is called.

use proptest::prelude::*;
use tollgate::{
    Applicability, Cost, Dimension, Limiter, LocalLimiter, Match, Name, Path, PathRules, Request,
    Rule, RuleSet, RuleSetError, parse_host,
};

use crate::support::{clock, limit, memory, run};

fn rule(id: &str, when: Match) -> Rule {
    Rule::new(id, limit("1/s burst 100")).unwrap().when(when)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn path(raw: &str) -> Path<'_> {
    PathRules::default().normalise(raw).unwrap()
}

fn under(pattern: &str) -> Match {
    Match::new().path(pattern.parse().unwrap())
}

fn ids<'a>(rules: &'a RuleSet, request: &'a Request<'_>) -> Vec<&'static str> {
    let met = rules.matching(request);
    met.rules().iter().map(|rule| rule.id().as_str()).collect()
}

/// One rule of each kind of condition, as a user would write them.
fn all_kinds() -> RuleSet {
    RuleSet::new([
        rule("all", Match::new()),
        rule("posts", Match::new().methods(["POST"]).unwrap()),
        rule("reads", Match::new().methods(["get"]).unwrap()),
        rule("api", Match::new().host("api.example.com").unwrap()),
        rule("below", Match::new().host("*.example.com").unwrap()),
        rule("charge", under("/v1/charges/{id}")),
        rule("charges", under("/v1/charges/{*rest}")),
        rule(
            "new-charge",
            under("/v1/charges").methods(["POST"]).unwrap(),
        ),
        rule("paying", Match::new().plans(["pro", "enterprise"])),
        rule(
            "eu",
            Match::new().attribute(name("header:x-region"), ["eu", "uk"]),
        ),
        rule(
            "traced",
            Match::new().attribute(name("header:x-trace"), ["*"]),
        ),
    ])
    .unwrap()
}

#[test]
fn every_rule_that_matches_applies_in_the_order_of_the_rules() {
    let rules = all_kinds();
    let met = |request: &Request<'_>| ids(&rules, request).join(" ");
    assert_eq!(met(&Request::new()), "all");
    assert_eq!(met(&Request::new().method("POST")), "all posts");
    // Who may GET may ask for the HEAD alone.
    assert_eq!(met(&Request::new().method("HEAD")), "all reads");
    for host in [
        "api.example.com",
        "API.Example.com:8443",
        "api.example.com.",
    ] {
        assert_eq!(met(&Request::new().host(host)), "all api below", "{host}");
    }
    for (host, expected) in [
        ("a.b.example.com", "all below"),
        ("example.com", "all"),
        (".example.com", "all"),
        ("badexample.com", "all"),
        ("api.example.com.evil.org", "all"),
        ("[2001:db8::1]:443", "all"),
    ] {
        assert_eq!(met(&Request::new().host(host)), expected, "{host}");
    }
    for (raw, expected) in [
        ("/v1/charges", "all charges"),
        ("/v1/charges/", "all charges"),
        ("/v1/charges/7", "all charge charges"),
        ("/v1/charges/7/refunds", "all charges"),
        ("/v1/refunds", "all"),
        ("/", "all"),
    ] {
        assert_eq!(met(&Request::new().path(&path(raw))), expected, "{raw}");
    }
    let path = path("/v1/charges");
    let request = Request::new().path(&path).method("POST");
    assert_eq!(met(&request), "all posts charges new-charge");
    assert_eq!(met(&Request::new().plan("pro")), "all paying");
    assert_eq!(met(&Request::new().plan("free")), "all");
    let eu = Request::new().attribute(name("header:x-region"), "uk");
    assert_eq!(
        met(&eu.attribute(name("header:x-trace"), "")),
        "all eu traced"
    );
    let us = Request::new().attribute(name("header:x-region"), "us");
    assert_eq!(met(&us), "all");
}

/// Django and others take `post` for POST, so no rule is dodged by small letters, and none is counted apart.
#[test]
fn a_method_is_the_same_in_small_letters() {
    let rules = all_kinds();
    let met = |request: &Request<'_>| ids(&rules, request).join(" ");
    for method in ["post", "Post", "pOST"] {
        assert_eq!(met(&Request::new().method(method)), "all posts", "{method}");
    }
    assert_eq!(met(&Request::new().method("head")), "all reads");
    let by_method = Rule::new("method", limit("1/h burst 4")).unwrap();
    let limiter = LocalLimiter::with_store(memory(&clock()))
        .with_rules([by_method.per([Dimension::Method])])
        .unwrap();
    let decide = |method| limiter.decide(&Request::new().method(method)).allowed();
    let admitted = ["POST", "post", "Post", "pOST", "PosT", "poST"].map(decide);
    assert_eq!(admitted, [true, true, true, true, false, false]);
}

#[test]
fn an_explanation_says_why_a_rule_does_not_apply() {
    let rules = RuleSet::new([
        rule(
            "charges",
            under("/v1/charges").methods(["POST", "PUT"]).unwrap(),
        ),
        rule("elsewhere", Match::new().host("*.example.com").unwrap()),
        rule("paying", Match::new().plans(["pro"])),
        rule(
            "traced",
            Match::new().attribute(name("header:x-trace"), ["*"]),
        ),
        rule(
            "eu",
            Match::new().attribute(name("header:x-region"), ["eu"]),
        ),
        rule("gold", Match::new()).plan("gold"),
        rule("off", Match::new()).mode(tollgate::Mode::Off),
        rule("all", Match::new()),
    ])
    .unwrap();
    let path = path("/v1/charges");
    let request = Request::new().path(&path).method("GET").plan("free");
    let explanation = rules.explain(&request);
    let said: Vec<String> = (explanation.rules.iter())
        .map(|(id, standing)| match standing {
            Applicability::Applies(rule) => format!("{id}: {}", rule.limit()),
            Applicability::Mismatch(why) => format!("{id}: {why}"),
            Applicability::OtherPlan => format!("{id}: not for this plan"),
            other => format!("{id}: {other:?}"),
        })
        .collect();
    assert_eq!(
        said,
        [
            "charges: the method is not POST or PUT",
            "elsewhere: the host is not *.example.com",
            "paying: the plan is not pro",
            "traced: there is no header:x-trace",
            "eu: header:x-region is not eu",
            "gold: not for this plan",
            "all: 1/s burst 100",
            "off: Off",
        ]
    );
    assert_eq!(explanation.route, Some("/v1/charges"));
}

#[test]
fn an_endpoint_is_called_by_the_pattern_that_says_most() {
    let rules = RuleSet::new([
        rule("a", under("/{*rest}")).per([Dimension::Route]),
        rule("b", under("/v1/{kind}/{id}")),
        rule("c", under("/v1/charges/{id}")),
        rule("d", under("/v1/charges/{*rest}")),
    ])
    .unwrap()
    .with_costs([Cost::new(under("/v1/charges/new"), 5)])
    .with_routes(["/v1/users/{id}/keys".parse().unwrap()]);
    for (raw, expected) in [
        ("/v1/charges/7", "/v1/charges/{id}"),
        ("/v1/charges/new", "/v1/charges/new"),
        ("/v1/charges", "/v1/charges/{*rest}"),
        ("/v1/charges/7/x", "/v1/charges/{*rest}"),
        ("/v1/refunds/7", "/v1/{kind}/{id}"),
        ("/v1/users/7/keys", "/v1/users/{id}/keys"),
        ("/v2", "/{*rest}"),
    ] {
        let path = path(raw);
        let request = Request::new().path(&path);
        assert_eq!(rules.explain(&request).route, Some(expected), "{raw}");
    }
    // What a framework says is believed.
    let path = path("/v1/charges/7");
    let said = Request::new().path(&path).route("/v1/{what}/{which}");
    assert_eq!(rules.explain(&said).route, Some("/v1/{what}/{which}"));
}

#[test]
fn buckets_are_named_by_the_pattern_and_not_by_the_path() {
    let limiter = LocalLimiter::with_store(memory(&clock()))
        .with_rules([Rule::new("route", limit("1/s burst 3"))
            .unwrap()
            .when(under("/v1/charges/{id}"))
            .per([Dimension::Client, Dimension::Route])])
        .unwrap();
    let asks = |raw: &str| {
        let path = path(raw);
        let request = Request::new().client("a").path(&path);
        limiter.decide(&request).allowed()
    };
    assert!(asks("/v1/charges/1") && asks("/v1//charges/2") && asks("/v1/%63harges/3/"));
    assert!(!asks("/v1/charges/4"));
    assert!(asks("/v1/refunds/4"), "no rule is for it");
}

#[test]
fn the_cost_that_says_most_counts_and_of_equal_ones_the_first() {
    let post = |m: Match| m.methods(["POST"]).unwrap();
    let rules = RuleSet::new([rule("all", Match::new())])
        .unwrap()
        .with_costs([
            Cost::new(post(Match::new()), 2),
            Cost::new(under("/reports/{*rest}"), 3),
            Cost::new(under("/reports/{id}"), 4),
            Cost::new(post(under("/reports/generate")), 10),
            Cost::new(post(under("/reports/generate")), 11),
            Cost::new(
                under("/reports/generate")
                    .plans(["free"])
                    .methods(["POST"])
                    .unwrap(),
                20,
            ),
            Cost::new(under("/health"), 0),
        ]);
    for (method, raw, plan, expected) in [
        ("GET", "/x", "", 1),
        ("POST", "/x", "", 2),
        ("GET", "/reports/a/b", "", 3),
        ("POST", "/reports/a/b", "", 3),
        ("GET", "/reports/generate", "", 4),
        ("POST", "/reports/generate", "", 10),
        ("POST", "/reports/generate", "free", 20),
        ("GET", "/health", "", 0),
    ] {
        let path = path(raw);
        let request = Request::new().method(method).path(&path).plan(plan);
        assert_eq!(
            rules.explain(&request).cost,
            expected,
            "{method} {raw} {plan}"
        );
        assert_eq!(rules.explain(&request.cost(7)).cost, 7);
    }
    let limiter = Limiter::new(memory(&clock()));
    limiter.set_rules(rules);
    let path = path("/reports/generate");
    let request = Request::new().method("POST").path(&path);
    let decision = run(limiter.decide(&request));
    assert_eq!(decision.remaining(), Some(90));
    // What it cost by the rules is what comes back.
    run(limiter.request(&request).refund(decision));
    assert_eq!(
        run(limiter.request(&request.cost(0)).peek()).remaining(),
        Some(100)
    );
}

#[test]
fn case_is_ignored_where_the_server_ignores_it() {
    let rules = || RuleSet::new([rule("c", under("/V1/Charges/{id}"))]).unwrap();
    let paths = PathRules::default().ignore_case(true);
    for (rules, paths, expected) in [
        (rules(), PathRules::default(), 0),
        (rules().with_paths(paths), paths, 1),
    ] {
        for raw in ["/v1/charges/7", "/v1/CHARGES/7;x", "/%561/cHARGES/7"] {
            let path = paths.normalise(raw).unwrap();
            let request = Request::new().path(&path);
            assert_eq!(rules.matching(&request).rules().len(), expected, "{raw}");
        }
    }
}

#[test]
fn rules_of_one_id_are_for_the_same_requests() {
    let differ = RuleSet::new([
        rule("a", under("/x")).plan("free"),
        rule("a", under("/y")).plan("pro"),
    ]);
    assert_eq!(
        differ.unwrap_err(),
        RuleSetError::MatchDiffers { id: name("a") }
    );
    let many_plans = (0..5_000).map(|i| rule("a", under("/x")).plan(&format!("plan-{i}")));
    let rules = RuleSet::new(many_plans).unwrap();
    let path = path("/x");
    for i in [0, 77, 4_999] {
        let plan = format!("plan-{i}");
        let request = Request::new().path(&path).plan(&plan);
        let met = rules.matching(&request);
        let plans: Vec<_> = met.rules().iter().map(|rule| rule.plan_name()).collect();
        assert_eq!(plans, [Some(&*plan)]);
    }
}

/// A header that is sent twice is two values, and servers differ in which of them they take.
#[test]
fn one_of_several_values_of_an_attribute_is_enough() {
    let region = name("region");
    let rules = RuleSet::new([
        rule("eu", Match::new().attribute(region, ["eu"])),
        rule("either", Match::new().attribute(region, ["eu", "us"])),
        rule("any", Match::new().attribute(region, ["*"])),
    ])
    .unwrap();
    for (values, expected) in [
        (&["eu", "us"][..], "eu either any"),
        (&["us", "eu"], "eu either any"),
        (&["us", "x"], "either any"),
        (&["x", "y"], "any"),
        (&["1", "2", "3", "4", "5", "6", "7", "eu"], "eu either any"),
        // No more are looked at.
        (&["1", "2", "3", "4", "5", "6", "7", "8", "eu"], "any"),
    ] {
        let said = values.iter().fold(Request::new(), |request, value| {
            request.attribute(region, value)
        });
        assert_eq!(ids(&rules, &said).join(" "), expected, "{values:?}");
    }
    assert!(rules.names_value(region, "eu") && rules.names_value(region, "us"));
    assert!(!rules.names_value(region, "x") && !rules.names_value(region, "*"));
    let counted = rule("by-region", Match::new()).per([Dimension::Attribute(region)]);
    let rules = RuleSet::new([counted]).unwrap();
    assert_eq!(rules.counted_attributes(), [region]);
    let request = Request::new()
        .attribute(region, "us")
        .attribute(region, "eu");
    let met = rules.matching(&request);
    let bucket = met.bucket(met.rules()[0]);
    let values: Vec<_> = bucket.parts().map(|part| part.value).collect();
    assert_eq!(values, [Some(&b"us"[..])], "it counts by the first");
}

#[test]
fn text_that_is_no_host_meets_no_condition_on_hosts() {
    let rules = RuleSet::new([
        rule("lim", Match::new().host("lim.example.com").unwrap()),
        rule("v6", Match::new().host("[2001:DB8:0::1]").unwrap()),
    ])
    .unwrap();
    let met = |host: &str| ids(&rules, &Request::new().host(host)).join(" ");
    for host in ["lim.example.com", "LIM.example.com:443", "lim.example.com."] {
        assert_eq!(met(host), "lim", "{host}");
    }
    assert_eq!(met("[2001:db8::0:1]:80"), "v6");
    for host in [
        "lim.example.com:x",
        "lim.example.com:80:80",
        "lim.example.com..",
        "[lim.example.com]",
        "user@lim.example.com",
    ] {
        assert_eq!(met(host), "", "{host}");
        assert!(parse_host(host).is_err(), "it is to be refused: {host}");
        assert!(Match::new().host(host).is_err(), "{host}");
    }
}

#[test]
fn no_request_meets_more_rules_than_it_can() {
    let everywhere = |count: usize| (0..count).map(|i| rule(&format!("r{i}"), Match::new()));
    assert!(RuleSet::new(everywhere(255)).is_ok());
    let error = RuleSet::new(everywhere(256)).unwrap_err();
    assert_eq!(error, RuleSetError::TooMany { most: 256 });
    // Those that never meet do not add up.
    let apart = (0..2_000).map(|i| rule(&format!("r{i}"), under(&format!("/r{i}/{{id}}"))));
    let hosts = (0..2_000).map(|i| {
        let host = format!("*.h{i}.example.com");
        rule(&format!("h{i}"), Match::new().host(&host).unwrap())
    });
    let tenants = (0..2_000).map(|i| {
        let tenant = Match::new().attribute(name("tenant"), [format!("t{i}")]);
        rule(&format!("t{i}"), tenant)
    });
    assert!(RuleSet::new(apart.chain(hosts).chain(tenants)).is_ok());
    // Several values of one attribute may be said at a time.
    let of_values = |each: usize| {
        (0..100 * each).map(move |i| {
            let value = format!("t{}", i / each);
            rule(
                &format!("r{i}"),
                Match::new().attribute(name("tenant"), [value]),
            )
        })
    };
    assert!(RuleSet::new(of_values(31)).is_ok());
    assert_eq!(
        RuleSet::new(of_values(32)).unwrap_err(),
        RuleSetError::TooMany { most: 256 }
    );
    let same = (0..200).map(|i| {
        let either = Match::new().attribute(name("tenant"), ["a", "b", "c"]);
        rule(&format!("r{i}"), either)
    });
    assert!(RuleSet::new(same).is_ok());
    // Along one path they do.
    let along = (0..60).flat_map(|depth| {
        let pattern = format!("{}/{{*rest}}", "/a".repeat(depth));
        (0..5).map(move |i| rule(&format!("r{depth}-{i}"), under(&pattern)))
    });
    assert_eq!(
        RuleSet::new(along).unwrap_err(),
        RuleSetError::TooMany { most: 300 }
    );
}

#[test]
fn conditions_that_cannot_be_met_are_refused() {
    let no_method: [&str; 0] = [];
    let error = Match::new().methods(no_method).unwrap_err().to_string();
    assert!(error.contains("leave it out"), "{error}");
    let error = Match::new().methods(["GE T"]).unwrap_err().to_string();
    assert!(error.contains("is not a method"), "{error}");
    for host in ["", "*.", "a b", "exämple.com", "*", "a/b", "https://a"] {
        let error = Match::new().host(host).unwrap_err().to_string();
        assert!(error.contains("is not a host"), "{host}: {error}");
    }
}

fn some_match() -> impl Strategy<Value = Match> {
    let segment = prop::sample::select(vec!["a", "b", "{x}"]);
    let pattern = (prop::collection::vec(segment, 0..4), any::<bool>());
    let pattern = pattern.prop_map(|(segments, rest)| {
        let rest = if rest { "/{*rest}" } else { "" };
        format!("/{}{rest}", segments.join("/")).replace("//", "/")
    });
    let methods = prop::sample::subsequence(vec!["GET", "POST"], 1..=2);
    let hosts = vec!["h.io", "a.h.io", "*.h.io", "*.io"];
    let plans = prop::sample::subsequence(vec!["free", "pro"], 1..=2);
    let values = prop::sample::subsequence(vec!["1", "2", "*"], 1..=2);
    (
        prop::option::of(pattern),
        prop::option::of(methods),
        prop::option::of(prop::sample::select(hosts)),
        prop::option::of(plans),
        prop::option::of(values.clone()),
        prop::option::of(values),
    )
        .prop_map(|(pattern, methods, host, plans, x, y)| {
            let mut when = Match::new();
            if let Some(pattern) = pattern {
                when = when.path(pattern.parse().unwrap());
            }
            if let Some(methods) = methods {
                when = when.methods(methods).unwrap();
            }
            if let Some(host) = host {
                when = when.host(host).unwrap();
            }
            when = when.plans(plans.unwrap_or_default());
            for (attribute, values) in [("x", x), ("y", y)] {
                if let Some(values) = values {
                    when = when.attribute(name(attribute), values);
                }
            }
            when
        })
}

proptest! {
    /// What is found quickly is what looking at every rule would find.
    #[test]
    fn the_index_finds_what_a_look_at_every_rule_finds(
        matches in prop::collection::vec(some_match(), 0..40),
        raw in "(/[abc]){0,4}",
        method in prop::option::of(prop::sample::select(vec!["GET", "HEAD", "POST", "PUT"])),
        host in prop::option::of(prop::sample::select(vec!["h.io", "a.h.io", "b.a.h.io:80", "IO", "x.y"])),
        plan in prop::option::of(prop::sample::select(vec!["free", "pro", "gold"])),
        x in prop::option::of(prop::sample::select(vec!["1", "2", "3"])),
        y in prop::option::of(prop::sample::select(vec!["1", "2", "3"])),
    ) {
        let all: Vec<Rule> = (matches.iter().enumerate())
            .map(|(i, when)| rule(&format!("r{i}"), when.clone()))
            .collect();
        let rules = RuleSet::new(all.clone()).unwrap();
        let path = path(&raw);
        let mut request = Request::new().path(&path);
        if let Some(method) = method { request = request.method(method); }
        if let Some(host) = host { request = request.host(host); }
        if let Some(plan) = plan { request = request.plan(plan); }
        if let Some(x) = x { request = request.attribute(name("x"), x); }
        if let Some(y) = y { request = request.attribute(name("y"), y); }
        let slowly: Vec<&str> = (all.iter())
            .filter(|rule| rule.conditions().mismatch(&request).is_none())
            .map(|rule| rule.id().as_str())
            .collect();
        prop_assert_eq!(ids(&rules, &request), slowly);
        // And the name of the endpoint is one of the patterns that match.
        let patterns: Vec<&str> = (all.iter())
            .filter_map(|rule| rule.conditions().pattern())
            .filter(|pattern| pattern.matches(&path))
            .map(tollgate::Pattern::as_str)
            .collect();
        let route = rules.explain(&request).route;
        prop_assert_eq!(route.is_some(), !patterns.is_empty());
        prop_assert!(route.is_none_or(|route| patterns.contains(&route)));
    }
}
