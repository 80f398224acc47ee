//! Every change of the rules is noticed, whatever happens to the database meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tollgate_config::WatchConfig;
use tollgate_server::database::{Database, Watch};
use tollgate_testing::TIMEOUT;
use tollgate_testing::wait::eventually;

use crate::kit::database::{TestDatabase, block_on, on_both};

on_both!(
    a_change_is_noticed_within_a_second,
    a_change_before_the_watch_is_noticed,
    no_change_is_no_signal,
);

const SCOPE: &str = "default";

async fn change(database: &Database, burst: u64) -> i64 {
    let rule = json!({ "id": "x", "limit": format!("10/s burst {burst}") });
    database.set_rule(SCOPE, &rule).await.unwrap();
    database.generation_number().await.unwrap()
}

/// The generation of the next change.
async fn next_change(watch: &mut Watch) -> i64 {
    let changed = tokio::time::timeout(TIMEOUT, watch.changed()).await;
    changed.unwrap_or_else(|_| panic!("no change was noticed: {:?}", watch.stats()))
}

/// Waits until the watch has read the generation this often.
async fn until_polls(watch: &Watch, count: u64) {
    eventually("the watch", async || watch.stats().polls >= count).await;
}

/// With the default settings, PostgreSQL would be polled after 30 s only.
async fn a_change_is_noticed_within_a_second(test_database: TestDatabase) {
    let (database, other) = (test_database.open().await, test_database.open().await);
    let known = database.load(SCOPE).await.unwrap().generation_number;
    let mut watch = database.watch(known, WatchConfig::default(), Arc::default());
    // Two on PostgreSQL: the first, and the one when it began to listen.
    let polls = if test_database.server.is_some() { 2 } else { 1 };
    until_polls(&watch, polls).await;
    for burst in 1..=3 {
        let begun = Instant::now();
        let number = change(&other, burst).await;
        assert_eq!(next_change(&mut watch).await, number);
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
    }
    assert_eq!(watch.stats().failures, 0);
}

async fn a_change_before_the_watch_is_noticed(test_database: TestDatabase) {
    let database = test_database.open().await;
    let known = database.load(SCOPE).await.unwrap().generation_number;
    let number = change(&database, 1).await;
    let mut watch = database.watch(known, WatchConfig::default(), Arc::default());
    assert_eq!(next_change(&mut watch).await, number);
}

/// Reading is not a change.
async fn no_change_is_no_signal(test_database: TestDatabase) {
    let database = test_database.open().await;
    let known = change(&database, 1).await;
    let poll = Some(Duration::from_millis(10));
    let mut watch = database.watch(known, WatchConfig { poll }, Arc::default());
    for _ in 0..20 {
        database.load(SCOPE).await.unwrap();
    }
    let quiet = tokio::time::timeout(Duration::from_millis(300), watch.changed()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    assert!(
        watch.stats().polls > 3 && watch.stats().changes == 0,
        "{:?}",
        watch.stats()
    );
}

#[test]
fn a_listener_that_was_cut_off_misses_nothing() {
    block_on(async {
        let test_database = TestDatabase::postgres();
        let database = test_database.open().await;
        let known = database.generation_number().await.unwrap();
        let poll = Some(Duration::from_millis(200));
        let mut watch = database.watch(known, WatchConfig { poll }, Arc::default());
        for burst in 1..=5 {
            let polls = watch.stats().polls;
            until_polls(&watch, polls + 2).await;
            let disconnects = watch.stats().disconnects;
            test_database
                .execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
                .await;
            let number = change(&database, burst).await;
            assert_eq!(next_change(&mut watch).await, number);
            eventually("the watch to notice", async || {
                watch.stats().disconnects > disconnects
            })
            .await;
        }
    });
}

#[test]
fn a_stall_of_the_database_fails_no_poll() {
    block_on(async {
        let test_database = TestDatabase::postgres();
        let database = test_database.open().await;
        let known = database.generation_number().await.unwrap();
        let every = Duration::from_millis(10);
        let config = WatchConfig { poll: Some(every) };
        let mut watch = database.watch(known, config, Arc::default());
        let server = test_database.server.as_ref().unwrap();
        for burst in 1..=3 {
            let polls = watch.stats().polls;
            until_polls(&watch, polls + 2).await;
            server.pause();
            tokio::time::sleep(5 * every).await;
            server.resume();
            let number = change(&database, burst).await;
            assert_eq!(next_change(&mut watch).await, number);
        }
        assert_eq!(watch.stats().failures, 0);
    });
}

#[test]
fn a_database_is_watched_again_after_an_outage() {
    block_on(async {
        let mut test_database = TestDatabase::postgres();
        let database = test_database.open().await;
        let known = database.generation_number().await.unwrap();
        let poll = Some(Duration::from_millis(50));
        let mut watch = database.watch(known, WatchConfig { poll }, Arc::default());
        until_polls(&watch, 2).await;
        test_database.server.as_mut().unwrap().kill();
        eventually("the watch to notice", async || watch.stats().failures > 0).await;
        test_database.server.as_mut().unwrap().restart();
        let number = change(&test_database.open().await, 1).await;
        assert_eq!(next_change(&mut watch).await, number);
    });
}
