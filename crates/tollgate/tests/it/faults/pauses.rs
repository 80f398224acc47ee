//! A server that stands still for a moment, again and again, while three limiters with the default deadline ask it: no breaker opens,
//! and what is admitted beyond the limit is at most what was decided without the server.

use std::time::{Duration, Instant};

use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{BreakerConfig, Instances, Limiter, Request, Rule, RuleSet, SharedConfig, Source};

use super::scene::{SEVERAL, STORE, STORE_AND_LOCAL, Scene, Setup, is_alone, runtime};
use crate::proxy::{Proxy, Wire};
use crate::server::{Clustered, Server, send_signal};
use crate::support::{limit, one_instance, run};

const PAUSES: u32 = 5;

/// Pauses of this length, one every half a second.
fn through_pauses(pause: Duration) {
    let server = Server::start();
    let setup = Setup {
        deadline: RedisConfig::default().deadline,
        ..SEVERAL
    };
    let mut scene = Scene::before(&server, setup);
    scene.go_on_until_the_store_is_back();
    scene.goes_on_during(|| {
        for _ in 0..PAUSES {
            std::thread::sleep(Duration::from_millis(500));
            server.signal("-STOP");
            std::thread::sleep(pause);
            server.signal("-CONT");
        }
    });
    scene.go_on_until_the_store_is_back();
    let (locally, excess) = (scene.admitted_locally(), scene.excess(STORE));
    let without = scene.seen.iter().filter(|seen| !seen.is_by_store()).count();
    eprintln!(
        "{PAUSES} pauses of {pause:?}: {without} of {} decisions without the store, {locally} admitted so, {excess} beyond the limit",
        scene.seen.len(),
    );
    assert_eq!(scene.openings(), 0, "a pause is not a failure");
    assert!(excess <= locally, "{excess} beyond, {locally} locally");
    scene.admitted_no_more_than(STORE_AND_LOCAL);
    scene.nobody_waited();
    // Beside other tests, this machine itself may stand still for longer than the deadline.
    if is_alone() && pause < setup.deadline / 2 {
        assert_eq!((without, excess), (0, 0), "shorter than the deadline");
    }
}

#[test]
fn pauses_of_5_ms() {
    through_pauses(Duration::from_millis(5));
}

#[test]
fn pauses_of_30_ms() {
    through_pauses(Duration::from_millis(30));
}

#[test]
fn pauses_of_100_ms() {
    through_pauses(Duration::from_millis(100));
}

#[test]
fn pauses_of_300_ms() {
    through_pauses(Duration::from_millis(300));
}

/// A limiter that gives up after 30 ms and is one of many, so that its own share is a single token.
fn impatient(server: &Server) -> Limiter {
    let config = RedisConfig::default().deadline(Duration::from_millis(30));
    let store = RedisStore::open(&server.url(), config).unwrap();
    let config = SharedConfig::default().instances(Instances::Fixed(100));
    Limiter::builder(store).shared(config).build()
}

/// As a library user would: two workers, and one pause of 30 ms that is longer than their deadline.
#[test]
fn missed_deadlines_open_no_breaker() {
    let server = Server::start();
    let limiter = impatient(&server);
    let limit = limit("1/h burst 1000");
    let source = |key| run(limiter.check(key, &limit, 1)).source();
    until("the store decides", || source("key") == Source::Store);
    server.signal("-STOP");
    for _ in 0..8 {
        assert_eq!(source("key"), Source::Local);
    }
    server.signal("-CONT");
    until("the store decides again", || source("key") == Source::Store);
    let stats = limiter.shared_stats().unwrap();
    assert!(stats.missed_deadlines >= 8, "{stats:?}");
    assert_eq!((stats.breaker_opened, stats.breaker_is_open), (0, false));
}

/// The server charges two requests after their deadline has passed. The one that was admitted meanwhile stays charged, and
/// the one that was denied gets its charge back.
#[test]
fn denied_request_gets_back_what_a_late_reply_charged() {
    let server = Server::start();
    let limiter = impatient(&server);
    let hourly = limit("1/h burst 10");
    let check = |key, cost| run(limiter.check(key, &hourly, cost));
    until("the store decides", || {
        check("another", 0).source() == Source::Store
    });
    server.signal("-STOP");
    let (first, second) = (check("key", 1), check("key", 1));
    assert_eq!((first.allowed(), first.source()), (true, Source::Local));
    assert_eq!((second.allowed(), second.source()), (false, Source::Local));
    server.signal("-CONT");
    let patient = RedisStore::open(&server.url(), RedisConfig::default()).unwrap();
    let patient = Limiter::builder(patient).shared(one_instance()).build();
    let left = || {
        let_tasks_run();
        let looked = run(patient.check("key", &hourly, 0));
        (looked.source() == Source::Store).then(|| looked.remaining().unwrap())
    };
    until("one of the two charges is given back", || left() == Some(9));
}

/// A request that was only let into a queue may still be denied or leave it, so it keeps no charge that came too late.
#[test]
fn delayed_request_gets_back_what_a_late_reply_charged() {
    let server = Server::start();
    let config = RedisConfig::default().deadline(Duration::from_millis(30));
    let store = RedisStore::open(&server.url(), config).unwrap();
    let limiter = Limiter::builder(store).shared(one_instance()).build();
    let queue = limit("6/h queue 10");
    let check = |key, cost| run(limiter.check(key, &queue, cost));
    until("the store decides", || {
        check("another", 0).source() == Source::Store
    });
    server.signal("-STOP");
    let (first, second) = (check("key", 1), check("key", 1));
    assert!(first.allowed() && first.delay().is_zero());
    assert!(second.allowed() && !second.delay().is_zero());
    server.signal("-CONT");
    let patient = RedisStore::open(&server.url(), RedisConfig::default()).unwrap();
    let patient = Limiter::builder(patient).shared(one_instance()).build();
    until("only the first charge stays", || {
        let_tasks_run();
        let looked = run(patient.check("key", &queue, 0));
        looked.source() == Source::Store && looked.remaining() == Some(9)
    });
}

#[test]
fn late_denial_is_remembered() {
    let server = Server::start();
    let limiter = impatient(&server);
    let rules = RuleSet::new([Rule::new("everyone", limit("1/h burst 1")).unwrap()]).unwrap();
    let request = Request::new();
    let met = rules.matching(&request);
    until("the store decides", || {
        run(limiter.matched(&met).peek()).source() == Source::Store
    });
    let spender = RedisStore::open(&server.url(), RedisConfig::default()).unwrap();
    let spender = Limiter::builder(spender).shared(one_instance()).build();
    until("the token is spent", || {
        let spent = run(spender.matched(&met).decide());
        spent.source() == Source::Store && !spent.allowed()
    });
    let scripts = || figure(&server, "cmdstat_evalsha:calls=");
    let before = scripts();
    server.signal("-STOP");
    assert_eq!(run(limiter.matched(&met).decide()).source(), Source::Local);
    server.signal("-CONT");
    until("the late call is answered", || scripts() > before);
    // From here on a denial can only come from that answer.
    server.signal("-STOP");
    until("the late denial is known", || {
        let_tasks_run();
        run(limiter.matched(&met).decide()).source() == Source::Remembered
    });
}

/// The node that had the slot answers after the deadline that another one has it now.
#[test]
fn late_redirect_is_followed_by_the_next_check() {
    let clustered = Clustered::start();
    let slot = clustered.slot_of("tollgate:{key:key}");
    let config = RedisConfig::default().deadline(Duration::from_millis(30));
    let store = RedisStore::open(&clustered.url(), config).unwrap();
    let shared = one_instance()
        // Its probes would follow the redirect.
        .breaker(BreakerConfig::default().failures(u32::MAX));
    let limiter = Limiter::builder(store).shared(shared).build();
    let hourly = limit("1/h burst 1000");
    let source = || run(limiter.check("key", &hourly, 1)).source();
    until("the store decides", || source() == Source::Store);
    let before = clustered.owner_of(slot);
    clustered.move_slot(slot, || {});
    until("the new owner decides", || {
        send_signal(before, "-STOP");
        let source = source();
        send_signal(before, "-CONT");
        let_tasks_run();
        source == Source::Store
    });
}

/// The store would be waited for much longer.
#[test]
fn a_request_may_have_a_shorter_deadline_than_the_store() {
    let server = Server::start();
    let config = RedisConfig::default().deadline(Duration::from_secs(3_600));
    let store = RedisStore::open(&server.url(), config).unwrap();
    let rules = [Rule::new("everyone", limit("1/h burst 10")).unwrap()];
    let limiter = Limiter::builder(store).shared(one_instance()).build();
    let limiter = limiter.with_rules(rules).unwrap();
    assert_eq!(run(limiter.decide(&Request::new())).source(), Source::Store);
    server.signal("-STOP");
    let request = Request::new().deadline(Duration::from_millis(20));
    assert_eq!(run(limiter.decide(&request)).source(), Source::Local);
    let met = limiter.rules();
    let met = [met.matching(&request)];
    let joint = run(limiter.all_of(&met).unwrap().decide());
    assert_eq!(joint.whole.source(), Source::Local);
    server.signal("-CONT");
}

/// Replies take 40 ms, which is fine for the store's own deadline: calls of Envoys, which wait for 10 ms, do not open its breaker.
#[test]
fn short_deadlines_of_requests_do_not_judge_the_store() {
    let (wires, server) = (runtime(), Server::start());
    let proxy = wires.block_on(Proxy::before(server.socket()));
    let config = RedisConfig::default().deadline(Duration::from_secs(10));
    let store = RedisStore::open(&proxy.url(), config).unwrap();
    let rules = [Rule::new("everyone", limit("1/h burst 1000")).unwrap()];
    let limiter = Limiter::builder(store).shared(one_instance()).build();
    let limiter = limiter.with_rules(rules).unwrap();
    let decide = |request: &Request<'_>| wires.block_on(limiter.decide(request)).source();
    assert_eq!(decide(&Request::new()), Source::Store);
    proxy.becomes(Wire::Slow(Duration::from_millis(40)));
    let hasty = Request::new().deadline(Duration::from_millis(10));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(1) {
        assert_eq!(decide(&hasty), Source::Local);
    }
    assert_eq!(decide(&Request::new()), Source::Store);
    assert_eq!(limiter.shared_stats().unwrap().breaker_opened, 0);
}

/// Checks that arrive while the server stands still are not piled up in front of it: once it goes on, few were charged for nothing.
#[test]
fn little_is_sent_to_a_server_that_stands_still() {
    let server = Server::start();
    let mut scene = Scene::before(
        &server,
        Setup {
            deadline: Duration::from_millis(30),
            ..SEVERAL
        },
    );
    scene.go_on_until_the_store_is_back();
    let calls = || figure(&server, "cmdstat_evalsha:calls=");
    let before = calls();
    scene.goes_on_during(|| {
        server.signal("-STOP");
        std::thread::sleep(Duration::from_millis(300));
    });
    server.signal("-CONT");
    let sent = calls() - before;
    // Three calls of each limiter before it was in doubt, one per deadline afterwards, and one probe or two.
    assert!(sent < 3 * (3 + 300 / 30 + 2), "{sent} calls");
}

/// In this test's runtime they run only while something is awaited.
fn let_tasks_run() {
    run(async { tokio::time::sleep(Duration::from_millis(5)).await });
}

fn figure(server: &Server, words: &str) -> u64 {
    let said: String = server.ask("INFO commandstats");
    let figure = said.split_once(words).map_or("0", |(_, rest)| rest);
    let digits = figure.split(|c: char| !c.is_ascii_digit()).next();
    digits.unwrap().parse().unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < patience, "never: {what}");
    }
}
