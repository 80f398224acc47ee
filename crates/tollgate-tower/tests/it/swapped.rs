//! Rules and policies that change while requests come: each request is decided by one of them as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use axum::Router;
use axum::routing::get;
use tollgate::{Limiter, RuleSet};
use tollgate_tower::TollgateLayer;
use tollgate_tower::identity::{Clients, Identity};
use tollgate_tower::policy::Policy;

use crate::served::{Server, fields, hand, limiter, rule, serve};

fn rules(even: bool, generation: u64) -> RuleSet {
    let rules = match even {
        true => [rule("even-a", "1000000/s"), rule("even-b", "1000000/s")],
        false => [rule("odd-a", "1000000/s"), rule("odd-b", "1000000/s")],
    };
    RuleSet::new(rules).unwrap().with_generation(generation)
}

fn policy(even: bool, generation: u64) -> Policy {
    Policy::new(
        rules(even, generation),
        Identity::default(),
        Clients::default(),
    )
}

fn app(layer: TollgateLayer) -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(layer)
}

/// Asks while `swap` is called again and again; how many were decided by each.
async fn asked_under(server: &Server, swap: impl Fn(bool, u64) + Send + 'static) -> [u32; 2] {
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let swapping = std::thread::spawn(move || {
        let mut generation = 0;
        while !stop.load(Ordering::SeqCst) {
            generation += 1;
            swap(generation % 2 == 0, generation);
            std::thread::yield_now();
        }
    });
    let mut heard = [0, 0];
    let mut asked = 0;
    while asked < 200 || heard.contains(&0) {
        asked += 1;
        assert!(asked < 20_000, "the same rules always: {heard:?}");
        let response = server.get("/").await;
        assert_eq!(response.status(), 200);
        let names: Vec<String> = (fields(response.headers(), "ratelimit").concat())
            .split(", ")
            .map(|item| item.split(';').next().unwrap().to_owned())
            .collect();
        match names.join(" ").as_str() {
            r#""even-a" "even-b""# => heard[0] += 1,
            r#""odd-a" "odd-b""# => heard[1] += 1,
            mixed => panic!("decided by {mixed}"),
        }
    }
    done.store(true, Ordering::SeqCst);
    swapping.join().unwrap();
    heard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_swapped_whole_under_load() {
    let current = Arc::new(ArcSwap::from_pointee(policy(true, 0)));
    let read = Arc::clone(&current);
    let layer = TollgateLayer::new(Limiter::in_memory()).policy_source(move || read.load_full());
    let server = serve(app(layer)).await;
    let heard = asked_under(&server, move |even, generation| {
        current.store(Arc::new(policy(even, generation)));
    });
    assert!(!heard.await.contains(&0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limiters_own_rules_are_swapped_whole_under_load() {
    let limiter = Arc::new(Limiter::in_memory());
    limiter.set_rules(rules(true, 0));
    let server = serve(app(TollgateLayer::new(Arc::clone(&limiter)))).await;
    let heard = asked_under(&server, move |even, generation| {
        limiter.set_rules(rules(even, generation));
    });
    assert!(!heard.await.contains(&0));
}

#[tokio::test]
async fn what_was_used_stays_used_when_a_policy_changes() {
    let policy = |limit: &str| {
        let rules = RuleSet::new([rule("all", limit)]).unwrap();
        Arc::new(Policy::new(rules, Identity::default(), Clients::default()))
    };
    let current = Arc::new(ArcSwap::new(policy("1/m burst 3")));
    let read = Arc::clone(&current);
    let limiter = limiter(&hand(), []);
    let layer = TollgateLayer::new(limiter).policy_source(move || read.load_full());
    let server = serve(app(layer)).await;
    let left = async || {
        let response = server.get("/").await;
        fields(response.headers(), "x-ratelimit-remaining").join(" ")
    };
    assert_eq!(left().await, "2");
    current.store(policy("1/m burst 10"));
    assert_eq!(left().await, "8");
    current.store(policy("1/m burst 2"));
    let denied = server.get("/").await;
    assert_eq!(denied.status(), 429);
}
