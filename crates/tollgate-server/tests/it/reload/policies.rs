//! The policy in force: what changes it, what does not, and what a start needs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderMap, Method, Uri};
use serde_json::json;
use tempfile::TempDir;
use tollgate::{Limiter, LocalLimiter};
use tollgate_server::database::{Database, Import};
use tollgate_server::decider::Decider;
use tollgate_server::live::{Live, LiveConfig, LiveStats};
use tollgate_tower::policy::Head;

use crate::kit;
use crate::kit::database::{DatabaseExt as _, TestDatabase, block_on, on_both};
use tollgate_testing::TIMEOUT;
use tollgate_testing::servers::PostgresServer;
use tollgate_testing::wait::until;

/// A configuration in a folder of its own.
struct Folder(TempDir);

impl Folder {
    fn new(text: &str) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::write(folder.file(), text).unwrap();
        folder
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("tollgate.yaml")
    }

    /// Replaces the file, as editors do.
    fn put(&self, text: &str) {
        let beside = self.0.path().join("tollgate.yaml.new");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.file()).unwrap();
    }

    /// Read only when the system notifies of changes; an unavailable database is tried again soon.
    fn live(&self) -> LiveConfig {
        LiveConfig {
            poll: Duration::from_secs(3_600),
            retry_after: Duration::from_millis(50),
            ..LiveConfig::of(self.file())
        }
    }

    async fn start(&self) -> Live {
        Live::start(self.live()).await.unwrap().0
    }
}

fn with_burst(burst: u64) -> String {
    format!("rules: [{{ id: everyone, per: [], limit: \"1/h burst {burst}\" }}]\n")
}

fn in_database(url: &str, cache: Option<&Path>) -> String {
    let cache = cache.map_or(String::new(), |cache| {
        format!(", cache: {:?}", cache.to_str().unwrap())
    });
    format!("database: {{ url: {url:?}, poll: 100ms{cache} }}\n")
}

async fn set_burst(database: &Database, burst: u64) {
    let rule = json!({ "id": "everyone", "per": [], "limit": format!("1/h burst {burst}") });
    database.set_rule("default", &rule).await.unwrap();
}

/// How much the rule in force allows.
fn burst(live: &Live) -> u64 {
    let policy = live.policy();
    let rule = policy
        .rules()
        .rules()
        .next()
        .map(|rule| rule.limit().capacity());
    rule.unwrap_or(0)
}

async fn wait_until(live: &Live, what: &str, holds: impl Fn(LiveStats, u64) -> bool) -> Duration {
    let begun = Instant::now();
    while !holds(live.stats(), burst(live)) {
        let stats = live.stats();
        assert!(
            begun.elapsed() < TIMEOUT,
            "{what}: {stats:?}, burst {}",
            burst(live)
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    begun.elapsed()
}

/// The first half is valid too, but has only one of the rules; and what was written at first is no YAML.
#[test]
fn a_file_that_is_written_in_steps_is_read_when_it_is_complete() {
    block_on(async {
        let folder = Folder::new(&with_burst(10));
        let mut live = folder.live();
        // Polls read it in between as well.
        live.poll = Duration::from_millis(10);
        let live = Live::start(live).await.unwrap().0;
        let rule = |id: &str| format!("  - {{ id: {id}, per: [], limit: \"1/h burst 20\" }}\n");
        let steps = [
            "rules: [".to_owned(),
            format!("rules:\n{}", rule("one")),
            format!("rules:\n{}{}", rule("one"), rule("two")),
        ];
        for step in steps {
            fs::write(folder.file(), step).unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        wait_until(&live, "the last step", |stats, _| stats.generation > 1).await;
        assert_eq!(live.policy().rules().rules().count(), 2);
        let stats = live.stats();
        assert_eq!((stats.generation, stats.refused, stats.failures), (2, 0, 0));
    });
}

#[test]
fn a_changed_file_takes_effect_at_once_and_a_wrong_one_never() {
    block_on(async {
        let folder = Folder::new(&with_burst(10));
        let live = folder.start().await;
        assert_eq!((live.stats().generation, burst(&live)), (1, 10));

        folder.put(&with_burst(20));
        wait_until(&live, "renamed into place", |stats, burst| {
            (stats.generation, burst) == (2, 20)
        })
        .await;
        fs::write(folder.file(), with_burst(30)).unwrap();
        wait_until(&live, "written in place", |_, burst| burst == 30).await;

        folder.put("rules: [{ id: everyone, limit: \"1/h burts 40\" }]\n");
        wait_until(&live, "refused", |stats, _| stats.refused == 1).await;
        let before = live.stats();
        assert_eq!(burst(&live), 30, "the last good one stays");
        fs::remove_file(folder.file()).unwrap();
        wait_until(&live, "gone", |stats, _| stats.failures == 1).await;
        assert_eq!(
            (burst(&live), live.stats().generation),
            (30, before.generation)
        );

        folder.put(&with_burst(50));
        wait_until(&live, "back", |_, burst| burst == 50).await;
        assert_eq!(live.stats().refused, 1);
    });
}

#[test]
fn a_missing_database_file_is_reported_and_not_created() {
    block_on(async {
        let test_database = TestDatabase::sqlite();
        let folder = Folder::new(&in_database(&test_database.url, None));
        let error = Live::start(folder.live()).await.unwrap_err().to_string();
        assert!(error.contains("there is no such file"), "{error}");
        assert!(!sqlite_file(&test_database).exists());
    });
}

#[test]
fn the_source_of_rules_changes_at_the_next_start_only() {
    block_on(async {
        let test_database = TestDatabase::sqlite();
        let folder = Folder::new(&with_burst(10));
        let live = folder.start().await;
        folder.put(&in_database(&test_database.url, None));
        wait_until(&live, "refused", |stats, _| stats.refused == 1).await;
        assert_eq!((burst(&live), live.stats().generation), (10, 1));
    });
}

#[cfg(unix)]
#[test]
fn a_file_that_is_a_link_into_another_folder_is_followed() {
    use std::os::unix::fs::symlink;
    block_on(async {
        // As Kubernetes mounts a ConfigMap: the file is a link through a link that is swapped.
        let folder = Folder::new("");
        let root = folder.0.path();
        for (version, burst) in [("one", 10), ("two", 20)] {
            fs::create_dir(root.join(version)).unwrap();
            fs::write(root.join(version).join("tollgate.yaml"), with_burst(burst)).unwrap();
        }
        fs::remove_file(folder.file()).unwrap();
        symlink("one", root.join("..data")).unwrap();
        symlink("..data/tollgate.yaml", folder.file()).unwrap();
        let live = folder.start().await;
        assert_eq!(burst(&live), 10);
        symlink("two", root.join("..new")).unwrap();
        fs::rename(root.join("..new"), root.join("..data")).unwrap();
        wait_until(&live, "the other version", |_, burst| burst == 20).await;
    });
}

#[test]
fn without_notifications_the_file_is_read_periodically() {
    block_on(async {
        let real = Folder::new(&with_burst(10));
        let folder = Folder::new("");
        fs::remove_file(folder.file()).unwrap();
        // A watch on the folder of the link is not notified of changes to the file.
        #[cfg(unix)]
        std::os::unix::fs::symlink(real.file(), folder.file()).unwrap();
        let live = LiveConfig {
            poll: Duration::from_millis(50),
            ..folder.live()
        };
        let live = Live::start(live).await.unwrap().0;
        fs::write(real.file(), with_burst(20)).unwrap();
        wait_until(&live, "looked at", |_, burst| burst == 20).await;
    });
}

#[test]
fn usage_stays_when_the_file_changes() {
    block_on(async {
        let folder = Folder::new(&with_burst(10));
        let decider = Decider::new(folder.start().await, Limiter::in_memory(), None);
        let left = async || {
            let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
            let head = Head {
                method: &Method::GET,
                uri: &uri,
                headers: &headers,
            };
            let decision = kit::decide(&decider, &head).await;
            (decision.generation(), decision.remaining().unwrap())
        };
        assert_eq!(left().await, (1, 9));
        assert_eq!(left().await, (1, 8));
        folder.put(&with_burst(20));
        wait_until(decider.live(), "changed", |_, burst| burst == 20).await;
        assert_eq!(left().await, (2, 17));
    });
}

/// Makes a database unavailable.
fn take_away(test_database: &mut TestDatabase) {
    match &mut test_database.server {
        Some(server) => server.kill(),
        None => {
            let file = sqlite_file(test_database);
            // The last connection removes the log when it closes.
            until("the end of all connections", || {
                !file.with_extension("db-wal").exists()
            });
            fs::rename(&file, file.with_extension("away")).unwrap();
            fs::create_dir(file).unwrap();
        }
    }
}

fn bring_back(test_database: &mut TestDatabase) {
    match &mut test_database.server {
        Some(server) => server.restart(),
        None => {
            let file = sqlite_file(test_database);
            fs::remove_dir(&file).unwrap();
            fs::rename(file.with_extension("away"), file).unwrap();
        }
    }
}

fn sqlite_file(test_database: &TestDatabase) -> PathBuf {
    PathBuf::from(test_database.url.strip_prefix("sqlite:").unwrap())
}

on_both!(
    a_change_in_the_database_takes_effect_within_a_second,
    a_wrong_rule_in_the_database_is_refused,
    file_and_database_take_effect_once_they_fit_together,
    another_scope_takes_effect_at_the_next_start,
    a_start_without_the_database_uses_the_cache,
    a_start_with_wrong_rules_in_the_database_uses_the_cache,
    a_change_of_clients_alone_takes_effect,
);

async fn a_start_with_wrong_rules_in_the_database_uses_the_cache(test_database: TestDatabase) {
    let database = test_database.open().await;
    set_burst(&database, 10).await;
    let folder = Folder::new("");
    let cache = folder.0.path().join("rules.cache");
    folder.put(&in_database(&test_database.url, Some(&cache)));
    drop(folder.start().await);
    let wrong = json!({ "id": "wrong", "per": ["planet"], "limit": "1/h burst 5" });
    database.set_rule("default", &wrong).await.unwrap();
    let live = folder.start().await;
    assert_eq!((live.stats().from_cache, burst(&live)), (true, 10));
    wait_until(&live, "refused", |stats, _| stats.refused == 1).await;
    let removed = database.remove_rule("default", "wrong", None).await;
    removed.unwrap();
    wait_until(&live, "right again", |stats, _| !stats.from_cache).await;
}

async fn a_change_of_clients_alone_takes_effect(test_database: TestDatabase) {
    let database = test_database.open().await;
    set_burst(&database, 10).await;
    let folder = Folder::new(&in_database(&test_database.url, None));
    let live = folder.start().await;
    let clients = [json!({ "id": "merchant_123", "plan": "pro" })];
    let imported = database.import("default", &[], &clients, Import::default());
    imported.await.unwrap();
    wait_until(&live, "the client", |stats, _| stats.generation == 2).await;
    assert_eq!(live.policy().clients().len(), 1);
}

async fn a_change_in_the_database_takes_effect_within_a_second(test_database: TestDatabase) {
    let database = test_database.open().await;
    set_burst(&database, 10).await;
    let folder = Folder::new(&in_database(&test_database.url, None));
    let live = folder.start().await;
    assert_eq!(burst(&live), 10);
    for wanted in [20, 30, 40] {
        set_burst(&database, wanted).await;
        let took = wait_until(&live, "changed", |_, burst| burst == wanted).await;
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    // Other sections of the file take effect too, and the rules stay those of the database.
    folder.put(&format!(
        "{}paths: {{ ignore_case: true }}\n",
        in_database(&test_database.url, None)
    ));
    wait_until(&live, "the file", |stats, _| stats.generation == 5).await;
    assert!(live.policy().rules().paths().ignore_case);
    assert_eq!(burst(&live), 40);
}

async fn a_wrong_rule_in_the_database_is_refused(test_database: TestDatabase) {
    let database = test_database.open().await;
    set_burst(&database, 10).await;
    let folder = Folder::new(&in_database(&test_database.url, None));
    let live = folder.start().await;
    let wrong = json!({ "id": "wrong", "per": ["planet"], "limit": "1/h burst 5" });
    database.set_rule("default", &wrong).await.unwrap();
    wait_until(&live, "refused", |stats, _| stats.refused == 1).await;
    assert_eq!((burst(&live), live.stats().generation), (10, 1));
    assert_eq!(live.policy().rules().rules().count(), 1);
    // A generation takes effect as a whole or not at all, so a good rule beside a wrong one does not.
    set_burst(&database, 20).await;
    wait_until(&live, "refused again", |stats, _| stats.refused == 2).await;
    assert_eq!(burst(&live), 10);
    database
        .remove_rule("default", "wrong", None)
        .await
        .unwrap();
    wait_until(&live, "good again", |_, burst| burst == 20).await;
}

/// A file that identifies clients by this header.
fn naming_by(header: &str, url: &str) -> String {
    format!(
        "{}identity: {{ client: [\"header:{header}\", ip], trusted_proxies: [127.0.0.0/8] }}\n",
        in_database(url, None)
    )
}

async fn set_client(database: &Database, id: &str) {
    let rule = json!({ "id": "everyone", "per": [], "limit": "1/h burst 10" });
    let client = json!({ "id": id });
    database
        .replace_all("default", &[rule], &[client])
        .await
        .unwrap();
}

async fn file_and_database_take_effect_once_they_fit_together(test_database: TestDatabase) {
    let has = |live: &Live, id: &str| live.policy().clients().contains(id);
    let database = test_database.open().await;
    set_client(&database, "b:1").await;
    let folder = Folder::new(&naming_by("A", &test_database.url));
    let live = folder.start().await;
    assert!(has(&live, "b:1"));

    // A client whose id looks as if the header had named it; then the header is removed.
    set_client(&database, "a:1").await;
    wait_until(&live, "refused", |stats, _| stats.refused == 1).await;
    assert!(!has(&live, "a:1"));
    folder.put(&naming_by("C", &test_database.url));
    wait_until(&live, "the file helps", |stats, _| stats.generation == 2).await;
    assert!(has(&live, "a:1"));

    // The other way round: the header is configured before the client is removed.
    folder.put(&naming_by("A", &test_database.url));
    wait_until(&live, "refused", |stats, _| stats.refused == 2).await;
    set_client(&database, "d:1").await;
    wait_until(&live, "the database helps", |stats, _| {
        stats.generation == 3
    })
    .await;
    assert!(has(&live, "d:1"));
    let named_by = live.policy().identity().explain(
        [127, 0, 0, 1].into(),
        &HeaderMap::from_iter([(
            http::HeaderName::from_static("a"),
            http::HeaderValue::from_static("7"),
        )]),
        live.policy().clients(),
    );
    assert_eq!(named_by.caller.client(), Some("a:7"));
}

async fn another_scope_takes_effect_at_the_next_start(test_database: TestDatabase) {
    let database = test_database.open().await;
    set_burst(&database, 10).await;
    let folder = Folder::new(&in_database(&test_database.url, None));
    let live = folder.start().await;
    let other = in_database(&test_database.url, None).replace("poll", "scope: other, poll");
    folder.put(&other);
    wait_until(&live, "the file", |stats, _| stats.generation == 2).await;
    // Later changes are still read from the first scope.
    set_burst(&database, 20).await;
    wait_until(&live, "changed", |_, burst| burst == 20).await;
}

async fn a_start_without_the_database_uses_the_cache(mut test_database: TestDatabase) {
    let folder = Folder::new("");
    let cache = folder.0.path().join("rules.cache");
    let with_cache = in_database(&test_database.url, Some(&cache));
    folder.put(&with_cache);
    {
        let database = test_database.open().await;
        set_burst(&database, 5).await;
        let live = folder.start().await;
        // Later generations are cached as well.
        set_burst(&database, 10).await;
        wait_until(&live, "the cache is of now", |_, burst| {
            let kept = fs::read_to_string(&cache).unwrap();
            burst == 10 && kept.contains("\"burst\":10")
        })
        .await;
        database.close().await;
    }
    take_away(&mut test_database);

    folder.put(&in_database(&test_database.url, None));
    let error = Live::start(folder.live()).await.unwrap_err();
    assert!(error.to_string().contains("cache: FILE"), "{error}");

    folder.put(&in_database(
        &test_database.url,
        Some(&folder.0.path().join("none")),
    ));
    let error = Live::start(folder.live()).await.unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");

    folder.put(&with_cache);
    let live = folder.start().await;
    assert!(live.stats().from_cache);
    assert_eq!(burst(&live), 10);
    // The rules are read from it as soon as it is available.
    bring_back(&mut test_database);
    let database = test_database.open().await;
    set_burst(&database, 20).await;
    wait_until(&live, "back", |stats, burst| {
        burst == 20 && !stats.from_cache
    })
    .await;
}

#[test]
fn a_database_killed_under_load_changes_nothing_until_it_is_back() {
    block_on(async {
        let mut server = PostgresServer::start();
        let database = Database::open(&server.url()).await.unwrap();
        set_burst(&database, 100_000).await;
        let folder = Folder::new(&in_database(&server.url(), None));
        let live = Arc::new(folder.start().await);
        let limiter = Arc::new(LocalLimiter::new());
        let (is_over, decided) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (live, limiter) = (Arc::clone(&live), Arc::clone(&limiter));
                let (is_over, decided) = (Arc::clone(&is_over), Arc::clone(&decided));
                std::thread::spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let policy = live.policy();
                        let request = tollgate::Request::new();
                        let decision = limiter.matched(&policy.rules().matching(&request)).decide();
                        assert_eq!(decision.tiers().len(), 1);
                        assert_eq!(decision.generation(), policy.generation());
                        decided.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let decisions = async |more: u64| {
            let until = decided.load(Ordering::Relaxed) + more;
            while decided.load(Ordering::Relaxed) < until {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        decisions(1_000).await;
        server.kill();
        live.reload();
        wait_until(&live, "a failure", |stats, _| stats.failures >= 1).await;
        decisions(1_000).await;
        assert_eq!((live.stats().generation, burst(&live)), (1, 100_000));
        server.restart();
        set_burst(&database, 200_000).await;
        wait_until(&live, "back", |_, burst| burst == 200_000).await;
        decisions(1_000).await;
        is_over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(live.stats().refused, 0);
    });
}

#[test]
fn a_database_is_tried_again_although_the_folder_is_never_quiet() {
    block_on(async {
        let mut server = PostgresServer::start();
        let database = Database::open(&server.url()).await.unwrap();
        set_burst(&database, 10).await;
        let folder = Folder::new("");
        let cache = folder.0.path().join("rules.cache");
        folder.put(&in_database(&server.url(), Some(&cache)));
        drop(folder.start().await);
        server.kill();
        let retry_after = Duration::from_millis(500);
        let live = LiveConfig {
            retry_after,
            ..folder.live()
        };
        let live = Live::start(live).await.unwrap().0;
        assert!(live.stats().from_cache);
        server.restart();
        // Like a log beside the file.
        let log = folder.0.path().join("log");
        let noise = tokio::spawn(async move {
            loop {
                fs::write(&log, "line").unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        wait_until(&live, "back", |stats, _| !stats.from_cache).await;
        noise.abort();
    });
}
