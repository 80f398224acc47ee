//! Requests that wait until they are admitted. In memory, limits and timers go by tokio's paused time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollgate::store::{MemoryConfig, MemoryStore};
use tollgate::{Clock, Dimension, Limit, Limiter, Mode, Request, Rule, RuleSet};

use crate::support::{NOON_US, limit, us};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// A limiter that goes by tokio's time.
fn limiter() -> Arc<Limiter> {
    let start = Instant::now();
    let clock = Clock::from_fn(move || us(NOON_US) + start.elapsed());
    let store = MemoryStore::with_config(MemoryConfig::default().clock(clock));
    Arc::new(Limiter::new(store))
}

/// Who was admitted, and after how many milliseconds, in this order.
#[derive(Clone)]
struct Admissions {
    limiter: Arc<Limiter>,
    start: Instant,
    seen: Arc<Mutex<Vec<(u32, u128)>>>,
}

impl Admissions {
    fn of(limiter: &Arc<Limiter>) -> Self {
        Self {
            limiter: Arc::clone(limiter),
            start: Instant::now(),
            seen: Arc::default(),
        }
    }

    /// Starts to wait, and lets the others run until this one waits as well.
    async fn wait(&self, id: u32, limit: Limit, cost: u64) -> JoinHandle<()> {
        let this = self.clone();
        let waits = tokio::spawn(async move {
            let check = this.limiter.key("key", &limit).cost(cost);
            let decision = check.until_ready(24 * HOUR).await.unwrap();
            assert!(decision.allowed());
            let after = this.start.elapsed().as_millis();
            this.seen.lock().unwrap().push((id, after));
        });
        tokio::task::yield_now().await;
        waits
    }

    fn seen(&self) -> Vec<(u32, u128)> {
        self.seen.lock().unwrap().clone()
    }
}

async fn all(waits: Vec<JoinHandle<()>>) {
    for wait in waits {
        wait.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_go_in_order_as_soon_as_there_is_room() {
    for (text, expected) in [
        ("2/s burst 2", [0, 0, 500, 1_000, 1_500, 2_000]),
        ("2/s queue 6", [0, 500, 1_000, 1_500, 2_000, 2_500]),
        ("2 per 1s sliding_log", [0, 0, 1_000, 1_000, 2_000, 2_000]),
        // Half past a window's start.
        ("2 per 1s fixed_window", [0, 0, 500, 500, 1_500, 1_500]),
    ] {
        let admissions = Admissions::of(&limiter());
        let mut waits = Vec::new();
        for id in 0..6 {
            waits.push(admissions.wait(id, limit(text), 1).await);
        }
        all(waits).await;
        let seen = admissions.seen();
        let ids: Vec<u32> = seen.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5], "{text}");
        for ((id, after), expected) in seen.iter().zip(expected) {
            // Timers fire at whole milliseconds, and none too early.
            let late = after.checked_sub(expected);
            assert!(late.is_some_and(|ms| ms <= 5), "{text}: {id} after {after}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_high_cost_is_not_overtaken_by_low_ones() {
    for text in ["100/s burst 100", "100 per 1s sliding_log"] {
        let admissions = Admissions::of(&limiter());
        let mut waits = vec![admissions.wait(0, limit(text), 50).await];
        waits.push(admissions.wait(1, limit(text), 100).await);
        for id in 2..20 {
            waits.push(admissions.wait(id, limit(text), 1).await);
        }
        all(waits).await;
        let ids: Vec<u32> = admissions.seen().iter().map(|(id, _)| *id).collect();
        assert_eq!(ids[..2], [0, 1], "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_denied_at_once() {
    for text in ["1/h burst 1", "1/h queue 5", "1 per 1h sliding_log"] {
        let (limiter, limit) = (limiter(), limit(text));
        let check = limiter.key("key", &limit);
        let first = check.until_ready(Duration::ZERO).await.unwrap();
        assert!(first.allowed(), "{text}");
        let left = check.peek().await.remaining();
        let start = Instant::now();
        let denied = check.until_ready(HOUR / 2).await.unwrap_err();
        assert_eq!(start.elapsed(), Duration::ZERO, "{text}");
        let wait = denied.retry_after().unwrap();
        assert!(wait > HOUR / 2 && wait <= HOUR, "{text}: {wait:?}");
        assert_eq!(check.peek().await.remaining(), left, "{text}");
        // It tells when the request passes without waiting.
        tokio::time::sleep(wait - SECOND).await;
        assert!(check.until_ready(Duration::ZERO).await.is_err(), "{text}");
        tokio::time::sleep(SECOND).await;
        assert!(check.until_ready(Duration::ZERO).await.is_ok(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_never_fits_is_denied_at_once() {
    let (limiter, limit) = (limiter(), limit("1/s burst 5"));
    let start = Instant::now();
    let check = limiter.key("key", &limit).cost(6);
    let denied = check.until_ready(HOUR).await.unwrap_err();
    assert!(denied.never_fits() && start.elapsed().is_zero());
}

#[tokio::test(start_paused = true)]
async fn a_request_behind_a_long_wait_is_denied_at_once() {
    let (limiter, limit) = (limiter(), limit("10 per 1h sliding_log"));
    let admissions = Admissions::of(&limiter);
    let first = admissions.wait(0, limit, 5).await;
    tokio::time::sleep(HOUR / 4).await;
    let large = admissions.wait(1, limit, 10).await;
    // There is room for it, but a request that came before it has none.
    let start = Instant::now();
    let small = limiter.key("key", &limit);
    let denied = small.until_ready(HOUR / 2).await.unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO);
    let wait = denied.retry_after().unwrap();
    assert!(wait > HOUR / 2 && wait <= HOUR, "{wait:?}");
    assert!(small.peek().await.allowed());
    all(vec![first, large]).await;
}

#[tokio::test(start_paused = true)]
async fn patience_ends_in_line() {
    let (limiter, limit) = (limiter(), limit("1 per 1h sliding_log"));
    let admissions = Admissions::of(&limiter);
    let mut waits = Vec::new();
    for id in 0..3 {
        waits.push(admissions.wait(id, limit, 1).await);
    }
    // The one before it is admitted in an hour, and this one an hour later.
    let start = Instant::now();
    let denied = limiter.key("key", &limit).until_ready(HOUR + SECOND).await;
    let waited = start.elapsed();
    assert!(waited <= HOUR + SECOND, "{waited:?}");
    assert!(denied.unwrap_err().retry_after().is_some());
    all(waits).await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_gives_back_and_lets_the_next_go() {
    for text in ["1/s burst 10", "1/s queue 20", "10 per 10s sliding_log"] {
        let (limiter, limit) = (limiter(), limit(text));
        let check = limiter.key("key", &limit);
        let _ = check.cost(10).until_ready(Duration::ZERO).await.unwrap();
        let before = check.peek().await;
        {
            let waits = check.cost(10).until_ready(HOUR);
            let waited = tokio::time::timeout(SECOND / 2, waits).await;
            assert!(waited.is_err(), "{text}");
        }
        let after = check.peek().await;
        assert!(after.remaining() >= before.remaining(), "{text}");
        // Nobody is in line any more.
        let start = Instant::now();
        let _ = check.until_ready(HOUR).await.unwrap();
        assert!(start.elapsed() <= 11 * SECOND, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_latest_of_its_tiers() {
    let rule = |id: &str, text: &str| Rule::new(id, limit(text)).unwrap();
    let limiter = limiter();
    let rules = RuleSet::new([
        rule("tokens", "1/s burst 2").per([Dimension::Client]),
        rule("log", "2 per 10s sliding_log").per([Dimension::Client]),
        rule("watched", "1/h burst 1").mode(Mode::Shadow),
    ]);
    limiter.set_rules(rules.unwrap());
    let request = Request::new().client("a");
    let start = Instant::now();
    for expected in [0, 0, 10, 10, 20] {
        let _ = limiter.request(&request).until_ready(HOUR).await.unwrap();
        let waited = start.elapsed().as_secs();
        assert!((expected..=expected + 1).contains(&waited), "{waited}");
    }
    // By rules that are kept elsewhere as well.
    let (rules, other) = (limiter.rules(), Request::new().client("b"));
    let matched = rules.matching(&other);
    let decision = limiter.matched(&matched).until_ready(Duration::ZERO).await;
    assert_eq!(decision.unwrap().tiers().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_in_two_lines_waits_for_both() {
    let rule = |id: &str, dimension| {
        let rule = Rule::new(id, limit("1 per 1s sliding_log")).unwrap();
        rule.per([dimension])
    };
    let limiter = limiter();
    let rules = [
        rule("client", Dimension::Client),
        rule("route", Dimension::Route),
    ];
    limiter.set_rules(RuleSet::new(rules).unwrap());
    let seen: Arc<Mutex<Vec<&str>>> = Arc::default();
    let mut waits = Vec::new();
    for (client, route) in [("a", "x"), ("b", "x"), ("a", "y"), ("b", "y"), ("a", "x")] {
        let (limiter, seen) = (Arc::clone(&limiter), Arc::clone(&seen));
        waits.push(tokio::spawn(async move {
            let request = Request::new().client(client).route(route);
            let _ = limiter.request(&request).until_ready(HOUR).await.unwrap();
            seen.lock().unwrap().push(client);
        }));
        tokio::task::yield_now().await;
    }
    all(waits).await;
    assert_eq!(seen.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn a_wait_can_be_spawned() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let (limiter, limit) = (Limiter::in_memory(), limit("1/s"));
    let waits = is_send(limiter.key("key", &limit).until_ready(SECOND));
    assert!(waits.await.is_ok());
}
