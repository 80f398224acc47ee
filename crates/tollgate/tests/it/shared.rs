//! A limiter over a shared store: what it remembers, and what each rule does without the store.

use std::time::{Duration, Instant};

use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Decision, Dimension, Limiter, OnFailure, Request, Rule, Source, Verdict};

use crate::server::{Clustered, Server};
use crate::support::{limit, one_instance, run};

fn patient() -> RedisConfig {
    RedisConfig::default().deadline(Duration::from_secs(10))
}

fn over(server: &Server, remembered_denials: usize) -> Limiter {
    let store = RedisStore::open(&server.url(), patient()).unwrap();
    let config = one_instance().remembered_denials(remembered_denials);
    Limiter::builder(store).shared(config).build()
}

fn check(limiter: &Limiter, text: &str, cost: u64) -> Decision {
    run(limiter.check("key", &limit(text), cost))
}

#[test]
fn a_denial_is_remembered_until_its_time_and_no_longer() {
    let server = Server::start();
    let limiter = over(&server, 1_000);
    let text = "4/s burst 1";
    assert!(check(&limiter, text, 1).allowed());
    let first = check(&limiter, text, 1);
    assert_eq!((first.allowed(), first.source()), (false, Source::Store));
    let again = check(&limiter, text, 1);
    // A machine that stood still for a quarter of a second asks the store; it never does so too late.
    if again.source() == Source::Remembered {
        assert!(!again.allowed() && again.retry_after() <= first.retry_after());
    }
    std::thread::sleep(first.retry_after().unwrap());
    let after = check(&limiter, text, 1);
    assert_eq!((after.allowed(), after.source()), (true, Source::Store));
}

#[test]
fn another_question_is_asked_and_the_same_one_is_not() {
    let server = Server::start();
    let limiter = over(&server, 1_000);
    let text = "2/h burst 10";
    assert!(check(&limiter, text, 8).allowed());
    assert_eq!(check(&limiter, text, 5).source(), Source::Store);
    assert_eq!(check(&limiter, text, 5).source(), Source::Remembered);
    assert_eq!(check(&limiter, text, 6).source(), Source::Remembered);
    // What never fits is another answer, and so is what a smaller cost or another limit gets.
    assert_eq!(check(&limiter, text, 11).verdict(), Verdict::NeverFits);
    assert!(check(&limiter, text, 2).allowed());
    assert_eq!(check(&limiter, "2/h burst 20", 5).source(), Source::Store);
}

#[test]
fn a_reset_and_a_refund_forget_a_denial() {
    let server = Server::start();
    let limiter = over(&server, 1_000);
    let (text, hourly) = ("1/h burst 5", limit("1/h burst 5"));
    let all = check(&limiter, text, 5);
    assert!(!check(&limiter, text, 1).allowed());
    assert_eq!(check(&limiter, text, 1).source(), Source::Remembered);
    run(limiter.key("key", &hourly).refund(all));
    // What may have drained meanwhile is not given back: a little less than a token, until that has drained as well.
    assert!(check(&limiter, text, 4).allowed());
    while check(&limiter, text, 1).allowed() {}
    run(limiter.key("key", &hourly).reset()).unwrap();
    assert!(check(&limiter, text, 5).allowed());
}

/// In a cluster, what one slot took of a request that another slot denies is given back. Who is denied in that moment is not so until the
/// window ends, which may be a day.
#[test]
fn in_a_cluster_what_is_taken_in_passing_denies_in_passing() {
    let clustered = Clustered::start();
    let store = || RedisStore::open(&clustered.url(), patient()).unwrap();
    let rules = || {
        [
            Rule::new("client", limit("1/h burst 10"))
                .unwrap()
                .per([Dimension::Client]),
            Rule::new("everyone", limit("10 per 1d fixed_window")).unwrap(),
        ]
    };
    let limiter = Limiter::builder(store()).shared(one_instance()).build();
    let limiter = limiter.with_rules(rules()).unwrap();
    let elsewhere = Limiter::builder(store()).shared(one_instance()).build();
    let elsewhere = elsewhere.with_rules(rules()).unwrap();
    let (one, other) = (
        Request::new().client("one").cost(10),
        Request::new().client("other").cost(1),
    );
    // As it is between the two steps of a request that is denied.
    let taken = run(elsewhere.decide(&one));
    assert!(taken.allowed());
    let first = run(limiter.decide(&other));
    assert_eq!((first.allowed(), first.source()), (false, Source::Store));
    let again = run(limiter.decide(&other));
    // It says how long it would be if nothing were given back.
    let an_hour = Duration::from_secs(3_600).min(first.retry_after().unwrap() / 2);
    assert!(again.retry_after().unwrap() >= an_hour);
    run(elsewhere.request(&one).refund(taken));
    std::thread::sleep(Duration::from_millis(150));
    let after = run(limiter.decide(&other));
    assert_eq!((after.allowed(), after.source()), (true, Source::Store));
}

/// What can never pass takes nothing, not even for a moment.
#[test]
fn in_a_cluster_what_never_fits_stands_in_nobodys_way() {
    let clustered = Clustered::start();
    let store = RedisStore::open(&clustered.url(), patient()).unwrap();
    let limiter = Limiter::builder(store).shared(one_instance()).build();
    let limiter = limiter.with_rules([
        Rule::new("client", limit("1/h burst 10"))
            .unwrap()
            .per([Dimension::Client]),
        Rule::new("everyone", limit("1000 per 1d fixed_window")).unwrap(),
    ]);
    let limiter = limiter.unwrap();
    let too_much = run(limiter.decide(&Request::new().client("one").cost(1_000)));
    assert_eq!(too_much.verdict(), Verdict::NeverFits);
    assert!(!clustered.was_written());
    assert!(run(limiter.decide(&Request::new().client("one"))).allowed());
    assert!(clustered.was_written());
}

#[test]
fn a_request_that_meets_no_rule_waits_for_nobody() {
    let server = Server::start();
    server.signal("-STOP");
    let limiter = over(&server, 0);
    let rules = [Rule::new("pro", limit("1/s")).unwrap().plan("pro")];
    let limiter = limiter.with_rules(rules).unwrap();
    let began = Instant::now();
    let decision = run(limiter.decide(&Request::new().client("a")));
    assert!(decision.allowed() && decision.tier().is_none());
    assert!(began.elapsed() < Duration::from_secs(5));
    let stats = limiter.shared_stats().unwrap();
    assert_eq!((stats.by_store, stats.by_fallback), (0, 0));
}

#[test]
fn nothing_is_remembered_if_that_is_switched_off() {
    let server = Server::start();
    let limiter = over(&server, 0);
    assert!(check(&limiter, "1/h burst 1", 1).allowed());
    for _ in 0..3 {
        assert_eq!(check(&limiter, "1/h burst 1", 1).source(), Source::Store);
    }
}

/// A limiter whose server is gone, with one rule of each policy that is named.
fn without_store(policies: &[OnFailure]) -> Limiter {
    let mut server = Server::start();
    let limiter = over(&server, 0);
    server.kill();
    let rule = |policy: &OnFailure| {
        let rule = Rule::new(&policy.to_string(), limit("1/h burst 10")).unwrap();
        rule.per([Dimension::Client]).on_failure(*policy)
    };
    limiter.with_rules(policies.iter().map(rule)).unwrap()
}

fn allowed_of_twenty(limiter: &Limiter) -> (usize, Source) {
    let request = Request::new().client("merchant_123");
    let decisions: Vec<Decision> = (0..20).map(|_| run(limiter.decide(&request))).collect();
    let source = decisions[0].source();
    assert!(decisions.iter().all(|decision| decision.source() == source));
    (
        decisions
            .iter()
            .filter(|decision| decision.allowed())
            .count(),
        source,
    )
}

#[test]
fn local_goes_on_with_its_share_and_gives_back_to_it() {
    let limiter = without_store(&[OnFailure::Local]);
    assert_eq!(allowed_of_twenty(&limiter), (8, Source::Local));
    let limiter = without_store(&[OnFailure::Local]);
    let request = Request::new().client("merchant_123").cost(8);
    let decision = run(limiter.decide(&request));
    assert!(decision.allowed());
    run(limiter.request(&request).refund(decision));
    assert!(run(limiter.decide(&request.cost(7))).allowed());
}

#[test]
fn open_lets_pass_what_local_does() {
    assert_eq!(
        allowed_of_twenty(&without_store(&[OnFailure::Open])),
        (20, Source::Local)
    );
    let both = without_store(&[OnFailure::Open, OnFailure::Local]);
    assert_eq!(allowed_of_twenty(&both), (8, Source::Local));
}

#[test]
fn closed_lets_nothing_pass_and_charges_nobody() {
    let limiter = without_store(&[OnFailure::Local, OnFailure::Closed]);
    assert_eq!(allowed_of_twenty(&limiter), (0, Source::Closed));
    let request = Request::new().client("merchant_123");
    let decision = run(limiter.decide(&request));
    assert!(decision.retry_after().is_some());
    assert_eq!(decision.tiers()[0].remaining(), 8);
}

#[test]
fn a_reset_that_does_not_reach_the_store_says_so() {
    let limiter = without_store(&[OnFailure::Local]);
    let error = run(limiter.key("key", &limit("1/h")).reset())
        .unwrap_err()
        .to_string();
    assert!(error.contains("redis cannot be reached"), "{error}");
}
