//! The log when something becomes unavailable and when it is available again: each is logged once, and nothing else.

use std::fs;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use tollgate::Source;
use tollgate_config::{AuditConfig, WatchConfig};
use tollgate_server::audit::{Trail, Violation};
use tollgate_server::database::{Database, DatabaseConfig, ViolationFilter, ViolationRow};
use tollgate_server::live::{Live, LiveConfig};
use tollgate_testing::log::Log;
use tollgate_testing::wait::eventually;

use crate::kit::database::TestDatabase;

/// Checks that the log has each of these texts so many times, and no other line of ours from INFO on.
fn assert_logged(log: &Log, expected: &[(&str, usize)]) {
    let text = log.text();
    for (words, times) in expected {
        assert_eq!(log.times(words), *times, "{words:?} in:\n{text}");
    }
    // A target follows the level.
    let ours = ["INFO tollgate", "WARN tollgate", "ERROR tollgate"];
    let is_ours = |line: &&str| ours.iter().any(|start| line.contains(start));
    let lines = text.lines().filter(is_ours);
    let count: usize = expected.iter().map(|(_, times)| times).sum();
    assert_eq!(lines.count(), count, "{text}");
}

async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    eventually(what, async || holds()).await;
}

/// Works on one thread, so that no other test writes to the log.
fn with_log<F: Future<Output = ()>>(work: impl FnOnce(Log) -> F) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_all()
        .build()
        .unwrap()
        .block_on(work(log.clone()));
}

/// Opens a database with a short timeout.
async fn open(test_database: &TestDatabase) -> Database {
    let config = DatabaseConfig {
        connect_timeout: Duration::from_millis(200),
        ..DatabaseConfig::default()
    };
    Database::open_with(&test_database.url, config)
        .await
        .unwrap()
}

fn record(trail: &Trail) {
    record_of(trail, "everyone");
}

fn record_of(trail: &Trail, rule: &str) {
    trail.record(&Violation {
        rule,
        per: &[],
        plan: None,
        client: None,
        ip: None,
        method: None,
        route: None,
        // In a second that is over, so that it is written at once.
        at: SystemTime::now() - Duration::from_secs(10),
        remaining: 0,
        cost: 1,
        source: Source::Store,
        generation: 1,
    });
}

fn trail_config() -> AuditConfig {
    AuditConfig {
        collect_every: Duration::from_millis(10),
        retry_after: Duration::from_millis(10),
        ..AuditConfig::default()
    }
}

#[test]
fn a_watch_logs_an_unavailable_database_once_and_its_return_once() {
    with_log(async |log| {
        let mut test_database = TestDatabase::postgres();
        let database = open(&test_database).await;
        let known = database.generation_number().await.unwrap();
        let poll = Some(Duration::from_millis(20));
        let watch = database.watch(known, WatchConfig { poll }, Arc::default());
        wait_until("looks at the database", || watch.stats().polls >= 5).await;
        assert_logged(&log, &[]);
        test_database.server.as_mut().unwrap().kill();
        wait_until("failed looks", || {
            watch.stats().failures >= 5 && watch.stats().disconnects >= 3
        })
        .await;
        assert_logged(
            &log,
            &[
                ("cannot look for changes of the rules", 1),
                ("does not notify of changes of the rules", 1),
            ],
        );
        test_database.server.as_mut().unwrap().restart();
        log.wait_for("notifies of changes of the rules again").await;
        log.wait_for("looking for changes of the rules again").await;
        let polls = watch.stats().polls;
        wait_until("looks after the restart", || {
            watch.stats().polls >= polls + 5
        })
        .await;
        assert_logged(
            &log,
            &[
                ("cannot look for changes of the rules", 1),
                ("does not notify of changes of the rules", 1),
                ("looking for changes of the rules again", 1),
                ("notifies of changes of the rules again", 1),
            ],
        );
    });
}

#[test]
fn a_trail_logs_a_failure_once_and_recovery_with_the_loss_once() {
    with_log(async |log| {
        let mut test_database = TestDatabase::postgres();
        let config = AuditConfig {
            retention: None,
            max_backlog: 1,
            ..trail_config()
        };
        let trail = Trail::start(open(&test_database).await, config);
        record(&trail);
        wait_until("a written record", || trail.stats().written == 1).await;
        assert_logged(&log, &[]);
        test_database.server.as_mut().unwrap().kill();
        record(&trail);
        wait_until("failures", || trail.stats().failures >= 5).await;
        record(&trail);
        wait_until("a lost record", || trail.stats().lost == 1).await;
        assert_logged(&log, &[("cannot write the audit trail", 1)]);
        test_database.server.as_mut().unwrap().restart();
        wait_until("a written record", || trail.stats().written == 2).await;
        log.wait_for("writing the audit trail again").await;
        record(&trail);
        wait_until("another written record", || trail.stats().written == 3).await;
        assert_logged(
            &log,
            &[
                ("cannot write the audit trail", 1),
                ("writing the audit trail again; lost so far: 1", 1),
            ],
        );
    });
}

#[test]
fn a_trail_logs_failed_and_resumed_removal_of_old_rows_once() {
    with_log(async |log| {
        let test_database = TestDatabase::postgres();
        let config = AuditConfig {
            sweep_every: Duration::from_millis(10),
            ..trail_config()
        };
        let trail = Trail::start(open(&test_database).await, config);
        test_database
            .execute("ALTER TABLE violations RENAME TO away")
            .await;
        wait_until("failures", || trail.stats().failures >= 5).await;
        assert_logged(&log, &[("cannot remove old violations", 1)]);
        test_database
            .execute("ALTER TABLE away RENAME TO violations")
            .await;
        log.wait_for("removing old violations again").await;
        assert_logged(
            &log,
            &[
                ("cannot remove old violations", 1),
                ("removing old violations again", 1),
            ],
        );
    });
}

#[test]
fn a_record_that_the_database_rejects_is_dropped_and_logged() {
    with_log(async |log| {
        let test_database = TestDatabase::postgres();
        let trail = Trail::start(open(&test_database).await, trail_config());
        test_database
            .execute("ALTER TABLE violations ADD CHECK (rule <> 'poison')")
            .await;
        record_of(&trail, "poison");
        wait_until("a lost record", || trail.stats().lost == 1).await;
        record(&trail);
        wait_until("the next written record", || trail.stats().written == 1).await;
        log.wait_for("writing the audit trail again").await;
        assert_logged(
            &log,
            &[
                ("failed to write audit records", 1),
                ("writing the audit trail again; lost so far: 1", 1),
            ],
        );
    });
}

#[test]
fn a_sweep_goes_on_until_nothing_old_is_left() {
    with_log(async |_| {
        let test_database = TestDatabase::sqlite();
        let database = open(&test_database).await;
        let old = |number| (number, ViolationRow::default());
        let rows: Vec<_> = (0..35).map(old).collect();
        database.write_violations(1, &rows).await.unwrap();
        let config = AuditConfig {
            sweep_every: Duration::from_secs(3_600),
            max_sweep: 10,
            ..trail_config()
        };
        let trail = Trail::start(database.clone(), config);
        eventually("an empty table", async || {
            let rows = database.violations(&ViolationFilter::default()).await;
            rows.unwrap().is_empty()
        })
        .await;
        drop(trail);
    });
}

const IN_FORCE: &str = "a new generation of rules is in force";

#[test]
fn a_missing_file_is_logged_once_and_its_return_once() {
    with_log(async |log| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = "service: {}\nrules: [{ id: everyone, per: [], limit: 10/s }]\n";
        fs::write(&file, text).unwrap();
        let live = LiveConfig {
            poll: Duration::from_millis(5),
            ..LiveConfig::of(&file)
        };
        let live = Live::start(live).await.unwrap().0;
        fs::remove_file(&file).unwrap();
        log.wait_for("cannot read").await;
        // Many more looks, by its own clock.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_logged(&log, &[(IN_FORCE, 1), ("cannot read", 1)]);
        assert_eq!(live.stats().failures, 1);
        let beside = folder.path().join("beside");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, &file).unwrap();
        log.wait_for("can be read again").await;
        assert_logged(
            &log,
            &[
                (IN_FORCE, 1),
                ("cannot read", 1),
                ("tollgate.yaml can be read again", 1),
            ],
        );

        // A wrong file is logged once as well, however often it is read.
        fs::write(&beside, text.replace("10/s", "10/x")).unwrap();
        fs::rename(&beside, &file).unwrap();
        log.wait_for("is refused").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((log.times("is refused"), live.stats().refused), (1, 1));
    });
}

#[test]
fn changes_that_need_a_restart_are_named() {
    with_log(async |log| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = "service: {}\nrules: [{ id: everyone, per: [], limit: 10/s }]\n";
        fs::write(&file, text).unwrap();
        let live = Live::start(LiveConfig::of(&file)).await.unwrap().0;
        let changed = "service: { listen: \"127.0.0.1:9\" }\nstore: { redis: \"redis://127.0.0.1:9\" }\n\
                       rules: [{ id: everyone, per: [], limit: 20/s }]\n";
        fs::write(&file, changed).unwrap();
        wait_until("the new generation", || live.stats().generation == 2).await;
        log.wait_for("changes in service, store take effect only after a restart")
            .await;
        // The same store with another clock is another store.
        drop(live);
        let clock = |clock: &str| {
            format!(
                "service: {{}}\nstore: {{ redis: \"redis://127.0.0.1:9\", {clock} }}\nrules: []\n"
            )
        };
        for (before, after) in [
            ("clock: store", "clock: caller"),
            ("clock: caller", "clock: caller, clock_tolerance: 50ms"),
        ] {
            fs::write(&file, clock(before)).unwrap();
            let live = Live::start(LiveConfig::of(&file)).await.unwrap().0;
            let count = log.times("changes in store");
            fs::write(&file, clock(after)).unwrap();
            wait_until(after, || log.times("changes in store") > count).await;
            drop(live);
        }
    });
}

#[test]
fn unreadable_rules_are_logged_once_and_the_scope_stays() {
    with_log(async |log| {
        let test_database = TestDatabase::postgres();
        let database = open(&test_database).await;
        let rule = |burst: u32| json!({ "id": "everyone", "per": [], "limit": format!("1/h burst {burst}") });
        database.set_rule("default", &rule(10)).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        let in_scope = |scope: &str| {
            format!(
                "database: {{ url: {:?}, poll: 20ms, scope: {scope} }}\nservice: {{}}\n",
                test_database.url
            )
        };
        fs::write(&file, in_scope("default")).unwrap();
        let live = LiveConfig {
            retry_after: Duration::from_millis(20),
            ..LiveConfig::of(&file)
        };
        let live = Live::start(live).await.unwrap().0;
        test_database
            .execute(
                "ALTER TABLE rules RENAME TO away; UPDATE rules_generation SET number = number + 1",
            )
            .await;
        wait_until("failures", || live.stats().failures >= 5).await;
        // Constant writes to the folder do not delay the reload.
        test_database
            .execute("ALTER TABLE away RENAME TO rules")
            .await;
        let noise = folder.path().join("noise");
        wait_until("the rules again", || {
            fs::write(&noise, "x").unwrap();
            log.times("can be read from the database again") == 1
        })
        .await;
        let once = [
            (IN_FORCE, 1),
            ("the rules have changed and cannot be read", 1),
            ("the rules can be read from the database again", 1),
        ];
        assert_logged(&log, &once);

        // Another scope takes effect at the next start: until then nothing of it is in force.
        database.set_rule("other", &rule(30)).await.unwrap();
        fs::write(&file, in_scope("other")).unwrap();
        log.wait_for("changes in database, audit take effect only after a restart")
            .await;
        database.set_rule("default", &rule(20)).await.unwrap();
        let capacity = || {
            live.policy()
                .rules()
                .rules()
                .next()
                .map(|rule| rule.limit().capacity())
        };
        wait_until("the rules of the first scope", || capacity() == Some(20)).await;
        assert!(live.stats().watch.polls > 0 && live.stats().watch.changes >= 2);
    });
}

#[test]
fn a_database_that_takes_no_writes_still_has_rules_to_start_with() {
    with_log(async |log| {
        let test_database = TestDatabase::postgres();
        let database = open(&test_database).await;
        let rule = json!({ "id": "everyone", "per": [], "limit": "1/h burst 10" });
        database.set_rule("default", &rule).await.unwrap();
        database.close().await;
        test_database
            .execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
            .await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        fs::write(
            &file,
            format!("database: {{ url: {:?} }}\n", test_database.url),
        )
        .unwrap();
        let live = Live::start(LiveConfig::of(&file)).await.unwrap().0;
        assert_eq!(live.policy().rules().rules().count(), 1);
        assert_logged(&log, &[(IN_FORCE, 1)]);
    });
}

#[test]
fn a_refusal_is_logged_once_however_often_others_change_theirs() {
    with_log(async |log| {
        let test_database = TestDatabase::sqlite();
        let database = open(&test_database).await;
        let rule = |limit: &str| json!({ "id": "everyone", "per": ["planet"], "limit": limit });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = format!("database: {{ url: {:?}, poll: 10ms }}\n", test_database.url);
        fs::write(&file, text).unwrap();
        let live = Live::start(LiveConfig::of(&file)).await.unwrap().0;
        database.set_rule("default", &rule("1/h")).await.unwrap();
        wait_until("a refusal", || live.stats().refused == 1).await;
        for burst in 1..=3 {
            let changes = live.stats().watch.changes;
            let limit = format!("1/h burst {burst}");
            database.set_rule("other", &rule(&limit)).await.unwrap();
            wait_until("a change of the other scope", || {
                live.stats().watch.changes > changes
            })
            .await;
            live.reload();
        }
        // As many looks again, with time for each to log.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((log.times("is refused"), live.stats().refused), (1, 1));
        database.set_rule("default", &rule("2/h")).await.unwrap();
        wait_until("another refusal", || live.stats().refused == 2).await;
    });
}
