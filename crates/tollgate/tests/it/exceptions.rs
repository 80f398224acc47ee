//! Requests that a rule does not apply to.

use tollgate::{
    Applicability, LocalLimiter, Match, Name, PathError, PathRules, Request, Rule, RuleSet,
};

use crate::support::limit;

fn rule(id: &str) -> Rule {
    Rule::new(id, limit("1/h burst 1")).unwrap()
}

fn path(pattern: &str) -> Match {
    Match::new().path(pattern.parse().unwrap())
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

/// The ids of the rules that apply.
fn ids(rules: &RuleSet, request: &Request<'_>) -> Vec<&'static str> {
    let matched = rules.matching(request);
    let rules = matched.rules().iter();
    rules.map(|rule| rule.id().as_str()).collect()
}

#[test]
fn excepted_requests_are_not_charged() {
    let limiter = LocalLimiter::new()
        .with_rules([rule("all")
            .except(path("/health"))
            .except(Match::new().methods(["OPTIONS"]).unwrap())])
        .unwrap();
    let rules = limiter.rules();
    let (health, charges) = (
        rules.read_path("/health").unwrap(),
        rules.read_path("/charges").unwrap(),
    );
    for _ in 0..10 {
        assert!(limiter.decide(&Request::new().path(&health)).allowed());
        let options = Request::new().method("options").path(&charges);
        assert!(limiter.decide(&options).allowed());
    }
    assert!(limiter.decide(&Request::new().path(&charges)).allowed());
    assert!(!limiter.decide(&Request::new().path(&charges)).allowed());
    // A request without a path meets no condition on paths, and no exception by one.
    assert!(!limiter.decide(&Request::new()).allowed());
}

#[test]
fn every_condition_of_an_exception_must_be_met() {
    let probe = path("/v1/{*rest}")
        .methods(["GET"])
        .unwrap()
        .host("*.example.com")
        .unwrap()
        .plans(["internal"]);
    let rules = RuleSet::new([rule("all").except(probe)]).unwrap();
    let path = rules.read_path("/v1/x").unwrap();
    let request = Request::new()
        .path(&path)
        .method("GET")
        .host("api.example.com")
        .plan("internal");
    assert!(ids(&rules, &request).is_empty());
    assert!(ids(&rules, &request.clone().method("HEAD")).is_empty());
    for other in [
        request.clone().method("POST"),
        request.clone().host("example.com"),
        request.clone().plan("free"),
        Request::new(),
    ] {
        assert_eq!(ids(&rules, &other), ["all"], "{other:?}");
    }
}

/// A client must not get out of a limit by one value more.
#[test]
fn all_values_of_an_attribute_must_be_excepted() {
    let probe = name("header:x-probe");
    let by_value = Match::new().attribute(probe, ["internal", "canary"]);
    let rules = RuleSet::new([rule("all").except(by_value)]).unwrap();
    let request = |values: &[&'static str]| {
        (values.iter()).fold(Request::new(), |request, value| {
            request.attribute(probe, value)
        })
    };
    assert!(ids(&rules, &request(&["internal"])).is_empty());
    assert!(ids(&rules, &request(&["internal", "canary"])).is_empty());
    let ninth_differs = [["internal"; 8].as_slice(), &["x"]].concat();
    for values in [&[][..], &["x"], &["internal", "x"], &ninth_differs] {
        assert_eq!(ids(&rules, &request(values)), ["all"], "{values:?}");
    }
    // What conditions look at is what requests have to say.
    assert_eq!(rules.attribute_names(), [probe]);
    assert!(rules.names_value(probe, "canary") && !rules.names_value(probe, "x"));
}

#[test]
fn a_path_that_may_be_an_exception_is_refused() {
    let rules = RuleSet::new([rule("all").except(path("/public/{*rest}"))]).unwrap();
    for raw in [
        "/public/../admin",
        "/public/%2e%2e/admin",
        "/admin/../public/x",
        "//public/x",
        "/public;x/y",
        "/%70ublic/x",
    ] {
        let read = rules.read_path(raw);
        assert_eq!(read.map(drop), Err(PathError::Ambiguous), "{raw}");
    }
    for raw in ["/public/a//b", "/public/a/./b", "/admin/a//b", "/admin/%61"] {
        assert!(rules.read_path(raw).is_ok(), "{raw}");
    }
    // Without the exception it makes no difference.
    let rules = RuleSet::new([rule("all")]).unwrap();
    assert!(rules.read_path("/public/../admin").is_ok());
}

#[test]
fn exceptions_ignore_case_where_paths_do() {
    let rules = RuleSet::new([rule("all").except(path("/Health"))]).unwrap();
    let lower = |rules: &RuleSet| {
        let path = rules.read_path("/HEALTH").unwrap();
        ids(rules, &Request::new().path(&path)).len()
    };
    assert_eq!(lower(&rules), 1);
    let ignoring = rules.with_paths(PathRules::default().ignore_case(true));
    assert_eq!(lower(&ignoring), 0);
    // And are ambiguous as others are.
    assert!(ignoring.read_path("/x/../HEALTH").is_err());
}

#[test]
fn an_explanation_names_the_exception() {
    let rules = RuleSet::new([
        rule("all").except(path("/health")),
        rule("posts").when(Match::new().methods(["POST"]).unwrap()),
    ])
    .unwrap();
    let path = rules.read_path("/health").unwrap();
    let request = Request::new().path(&path).method("GET");
    let explanation = rules.explain(&request);
    assert!(matches!(explanation.rules[0].1, Applicability::Excepted(_)));
    let reasons: Vec<String> = (explanation.rules.iter())
        .map(|(id, applicability)| format!("{id}: {applicability}"))
        .collect();
    assert_eq!(
        reasons,
        [
            "all: excepted by path /health",
            "posts: the method is not POST"
        ]
    );
    // An exception names no endpoint.
    assert_eq!(explanation.route, None);
}

#[test]
fn an_exception_takes_part_among_many_rules() {
    let many = (0..1_000).map(|nth| {
        let pattern = format!("/v1/things-{nth}/{{*rest}}");
        let except = format!("/v1/things-{nth}/status");
        rule(&format!("r{nth}"))
            .when(path(&pattern))
            .except(path(&except))
    });
    let rules = RuleSet::new(many).unwrap();
    for nth in [0, 7, 999] {
        let (thing, status) = (
            format!("/v1/things-{nth}/a"),
            format!("/v1/things-{nth}/status"),
        );
        let (thing, status) = (
            rules.read_path(&thing).unwrap(),
            rules.read_path(&status).unwrap(),
        );
        let id = format!("r{nth}");
        assert_eq!(ids(&rules, &Request::new().path(&thing)), [id.as_str()]);
        assert!(ids(&rules, &Request::new().path(&status)).is_empty());
    }
}

#[test]
fn rules_of_one_id_have_the_same_exceptions() {
    let pro = rule("all").plan("pro");
    assert!(RuleSet::new([rule("all"), pro.clone().except(path("/health"))]).is_err());
    let (all, pro) = (
        rule("all").except(path("/health")),
        pro.except(path("/health")),
    );
    let rules = RuleSet::new([all, pro]).unwrap();
    let health = rules.read_path("/health").unwrap();
    assert!(ids(&rules, &Request::new().path(&health).plan("pro")).is_empty());
}
