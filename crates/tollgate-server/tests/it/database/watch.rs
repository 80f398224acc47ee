//! Changes of the rules reach whoever watches, whatever happens to the database in between.

use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_server::database::{Database, Watch, WatchConfig};

use crate::database::{Place, block_on, on_both};

on_both!(
    a_change_is_noticed_within_a_second,
    a_change_before_the_watch_is_noticed,
    no_change_is_no_signal,
);

const SCOPE: &str = "default";
const PATIENCE: Duration = Duration::from_secs(30);

async fn change(database: &Database, burst: u64) -> i64 {
    let rule = json!({ "id": "x", "limit": format!("10/s burst {burst}") });
    database.set_rule(SCOPE, &rule).await.unwrap();
    database.generation_number().await.unwrap()
}

async fn number_within(watch: &mut Watch, patience: Duration) -> i64 {
    let changed = tokio::time::timeout(patience, watch.changed()).await;
    changed.unwrap_or_else(|_| panic!("nothing was heard: {:?}", watch.stats()))
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < patience, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// With the usual settings: PostgreSQL would be looked at after 30 s only.
async fn a_change_is_noticed_within_a_second(place: Place) {
    let (database, other) = (place.open().await, place.open().await);
    let known = database.load(SCOPE).await.unwrap().generation_number;
    let mut watch = database.watch(known, WatchConfig::default());
    // Two looks on PostgreSQL: the first, and the one when it began to listen.
    let looks = if place.server.is_some() { 2 } else { 1 };
    wait_until("it watches", || watch.stats().looks >= looks).await;
    for burst in 1..=3 {
        let begun = Instant::now();
        let number = change(&other, burst).await;
        assert_eq!(number_within(&mut watch, PATIENCE).await, number);
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
    }
    assert_eq!(watch.stats().failures, 0);
}

async fn a_change_before_the_watch_is_noticed(place: Place) {
    let database = place.open().await;
    let known = database.load(SCOPE).await.unwrap().generation_number;
    let number = change(&database, 1).await;
    let mut watch = database.watch(known, WatchConfig::default());
    assert_eq!(number_within(&mut watch, PATIENCE).await, number);
}

/// Reading is none.
async fn no_change_is_no_signal(place: Place) {
    let database = place.open().await;
    let known = change(&database, 1).await;
    let poll = Some(Duration::from_millis(10));
    let mut watch = database.watch(known, WatchConfig { poll });
    for _ in 0..20 {
        database.load(SCOPE).await.unwrap();
    }
    let quiet = tokio::time::timeout(Duration::from_millis(300), watch.changed()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    assert!(
        watch.stats().looks > 3 && watch.stats().changes == 0,
        "{:?}",
        watch.stats()
    );
}

#[test]
fn a_listener_that_was_cut_off_misses_nothing() {
    block_on(async {
        let place = Place::postgres();
        let database = place.open().await;
        let known = database.generation_number().await.unwrap();
        let poll = Some(Duration::from_millis(200));
        let mut watch = database.watch(known, WatchConfig { poll });
        for burst in 1..=5 {
            let looks = watch.stats().looks;
            wait_until("it listens", || watch.stats().looks >= looks + 2).await;
            let deaf = watch.stats().deaf;
            place
                .tell("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
                .await;
            let number = change(&database, burst).await;
            assert_eq!(number_within(&mut watch, PATIENCE).await, number);
            wait_until("it noticed", || watch.stats().deaf > deaf).await;
        }
    });
}

#[test]
fn a_database_is_watched_again_after_an_outage() {
    block_on(async {
        let mut place = Place::postgres();
        let database = place.open().await;
        let known = database.generation_number().await.unwrap();
        let poll = Some(Duration::from_millis(50));
        let mut watch = database.watch(known, WatchConfig { poll });
        wait_until("it watches", || watch.stats().looks >= 2).await;
        place.server.as_mut().unwrap().kill();
        wait_until("it noticed", || watch.stats().failures > 0).await;
        place.server.as_mut().unwrap().start_again();
        let number = change(&place.open().await, 1).await;
        assert_eq!(number_within(&mut watch, PATIENCE).await, number);
    });
}
