//! What whoever runs the program reads in the log when something goes and when it comes back: each once, and nothing else.

use std::fs;
use std::future::Future;
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;
use tollgate::Source;
use tollgate_server::audit::{Trail, TrailConfig, Violation};
use tollgate_server::database::{
    Database, DatabaseConfig, ViolationFilter, ViolationRow, WatchConfig,
};
use tollgate_server::live::{Live, LiveConfig};
use tollgate_testing::log::Log;

use crate::database::Place;

const PATIENCE: Duration = Duration::from_secs(60);

/// Each so often, and nothing else from INFO on.
fn assert_says(log: &Log, said: &[(&str, usize)]) {
    let text = log.text();
    for (words, times) in said {
        assert_eq!(log.times(words), *times, "{words:?} in:\n{text}");
    }
    let lines = text.lines().filter(|line| line.contains("tollgate_server"));
    let expected: usize = said.iter().map(|(_, times)| times).sum();
    assert_eq!(lines.count(), expected, "{text}");
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < patience, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// On one thread, so that the log is this test's alone.
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

/// A database that is given up soon.
async fn open(place: &Place) -> Database {
    let config = DatabaseConfig {
        connect_within: Duration::from_millis(200),
        ..DatabaseConfig::default()
    };
    Database::open_with(&place.url, config).await.unwrap()
}

fn note(trail: &Trail) {
    note_of(trail, "everyone");
}

fn note_of(trail: &Trail, rule: &str) {
    trail.note(&Violation {
        rule,
        per: &[],
        plan: None,
        client: None,
        ip: None,
        method: None,
        route: None,
        // Over long ago, so that it is written at once.
        at: SystemTime::now() - Duration::from_secs(10),
        remaining: 0,
        cost: 1,
        source: Source::Store,
        generation: 1,
    });
}

fn trail_config() -> TrailConfig {
    TrailConfig {
        collect_every: Duration::from_millis(10),
        retry_after: Duration::from_millis(10),
        ..TrailConfig::default()
    }
}

#[test]
fn a_watch_says_once_that_the_database_went_and_once_that_it_is_back() {
    with_log(async |log| {
        let mut place = Place::postgres();
        let database = open(&place).await;
        let known = database.generation_number().await.unwrap();
        let poll = Some(Duration::from_millis(20));
        let watch = database.watch(known, WatchConfig { poll });
        wait_until("it watches", || watch.stats().looks >= 5).await;
        assert_says(&log, &[]);
        place.server.as_mut().unwrap().kill();
        wait_until("it asks again and again", || {
            watch.stats().failures >= 5 && watch.stats().deaf >= 3
        })
        .await;
        assert_says(
            &log,
            &[
                ("cannot look for changes of the rules", 1),
                ("does not tell of changes of the rules", 1),
            ],
        );
        place.server.as_mut().unwrap().start_again();
        log.wait_for("tells of changes of the rules again").await;
        log.wait_for("looking for changes of the rules again").await;
        let looks = watch.stats().looks;
        wait_until("it looks", || watch.stats().looks >= looks + 5).await;
        assert_says(
            &log,
            &[
                ("cannot look for changes of the rules", 1),
                ("does not tell of changes of the rules", 1),
                ("looking for changes of the rules again", 1),
                ("tells of changes of the rules again", 1),
            ],
        );
    });
}

#[test]
fn a_trail_says_once_that_it_cannot_be_written_and_once_that_it_is_again_and_what_was_lost() {
    with_log(async |log| {
        let mut place = Place::postgres();
        let config = TrailConfig {
            retention: None,
            most_backlog: 1,
            ..trail_config()
        };
        let trail = Trail::start(open(&place).await, config);
        note(&trail);
        wait_until("it is written", || trail.stats().written == 1).await;
        assert_says(&log, &[]);
        place.server.as_mut().unwrap().kill();
        note(&trail);
        wait_until("it is tried again and again", || {
            trail.stats().failures >= 5
        })
        .await;
        note(&trail);
        wait_until("there is no room", || trail.stats().lost == 1).await;
        assert_says(&log, &[("cannot write the audit trail", 1)]);
        place.server.as_mut().unwrap().start_again();
        wait_until("it is written", || trail.stats().written == 2).await;
        log.wait_for("is written again").await;
        note(&trail);
        wait_until("it goes on", || trail.stats().written == 3).await;
        assert_says(
            &log,
            &[
                ("cannot write the audit trail", 1),
                ("the audit trail is written again; lost so far: 1", 1),
            ],
        );
    });
}

#[test]
fn a_trail_says_once_that_old_rows_cannot_be_removed_and_once_that_they_are_again() {
    with_log(async |log| {
        let place = Place::postgres();
        let config = TrailConfig {
            sweep_every: Duration::from_millis(10),
            ..trail_config()
        };
        let trail = Trail::start(open(&place).await, config);
        place.tell("ALTER TABLE violations RENAME TO away").await;
        wait_until("it is tried again and again", || {
            trail.stats().failures >= 5
        })
        .await;
        assert_says(&log, &[("cannot remove old violations", 1)]);
        place.tell("ALTER TABLE away RENAME TO violations").await;
        log.wait_for("old violations are removed again").await;
        assert_says(
            &log,
            &[
                ("cannot remove old violations", 1),
                ("old violations are removed again", 1),
            ],
        );
    });
}

#[test]
fn what_the_database_will_never_take_is_lost_and_said_and_stops_nobody() {
    with_log(async |log| {
        let place = Place::postgres();
        let trail = Trail::start(open(&place).await, trail_config());
        place
            .tell("ALTER TABLE violations ADD CHECK (rule <> 'poison')")
            .await;
        note_of(&trail, "poison");
        wait_until("it is lost", || trail.stats().lost == 1).await;
        note(&trail);
        wait_until("the next is written", || trail.stats().written == 1).await;
        log.wait_for("is written again").await;
        assert_says(
            &log,
            &[
                ("these violations are lost", 1),
                ("the audit trail is written again; lost so far: 1", 1),
            ],
        );
    });
}

#[test]
fn a_sweep_goes_on_until_nothing_old_is_left() {
    with_log(async |_| {
        let place = Place::sqlite();
        let database = open(&place).await;
        let old = |number| (number, ViolationRow::default());
        let rows: Vec<_> = (0..35).map(old).collect();
        database.write_violations(1, &rows).await.unwrap();
        let config = TrailConfig {
            sweep_every: Duration::from_secs(3_600),
            sweep_at_most: 10,
            ..trail_config()
        };
        let trail = Trail::start(database.clone(), config);
        let patience = Instant::now() + PATIENCE;
        loop {
            let left = database.violations(&ViolationFilter::default()).await;
            if left.unwrap().is_empty() {
                break;
            }
            assert!(Instant::now() < patience, "{:?}", trail.stats());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

const IN_FORCE: &str = "a new generation of rules is in force";

#[test]
fn a_file_that_is_gone_is_said_once_and_once_that_it_is_back() {
    with_log(async |log| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = "service: {}\nrules: [{ id: everyone, per: [], limit: 10/s }]\n";
        fs::write(&file, text).unwrap();
        let live = LiveConfig {
            look_every: Duration::from_millis(5),
            ..LiveConfig::of(&file)
        };
        let live = Live::start(live).await.unwrap().0;
        fs::remove_file(&file).unwrap();
        log.wait_for("cannot read").await;
        // Many looks more, by its own clock.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_says(&log, &[(IN_FORCE, 1), ("cannot read", 1)]);
        assert_eq!(live.stats().failures, 1);
        let beside = folder.path().join("beside");
        fs::write(&beside, text).unwrap();
        fs::rename(&beside, &file).unwrap();
        log.wait_for("can be read again").await;
        assert_says(
            &log,
            &[
                (IN_FORCE, 1),
                ("cannot read", 1),
                ("tollgate.yaml can be read again", 1),
            ],
        );

        // What is wrong is said once as well, however often it is looked at.
        fs::write(&beside, text.replace("10/s", "10/x")).unwrap();
        fs::rename(&beside, &file).unwrap();
        log.wait_for("is refused").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((log.times("is refused"), live.stats().refused), (1, 1));
    });
}

#[test]
fn what_waits_for_the_next_start_is_named() {
    with_log(async |log| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = "service: {}\nrules: [{ id: everyone, per: [], limit: 10/s }]\n";
        fs::write(&file, text).unwrap();
        let live = Live::start(LiveConfig::of(&file)).await.unwrap().0;
        let changed = "service: { listen: \"127.0.0.1:9\" }\nstore: { redis: \"redis://127.0.0.1:9\" }\n\
                       rules: [{ id: everyone, per: [], limit: 20/s }]\n";
        fs::write(&file, changed).unwrap();
        wait_until("it is in force", || live.stats().generation == 2).await;
        log.wait_for("what changed in service, store counts at the next start only")
            .await;
        // The same store with another clock is another one.
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
            let said = log.times("what changed in store");
            fs::write(&file, clock(after)).unwrap();
            wait_until(after, || log.times("what changed in store") > said).await;
            drop(live);
        }
    });
}

#[test]
fn rules_that_cannot_be_read_are_said_once_and_once_that_they_can_and_the_scope_stays() {
    with_log(async |log| {
        let place = Place::postgres();
        let database = open(&place).await;
        let rule = |burst: u32| json!({ "id": "everyone", "per": [], "limit": format!("1/h burst {burst}") });
        database.set_rule("default", &rule(10)).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        let in_scope = |scope: &str| {
            format!(
                "database: {{ url: {:?}, poll: 20ms, scope: {scope} }}\nservice: {{}}\n",
                place.url
            )
        };
        fs::write(&file, in_scope("default")).unwrap();
        let live = LiveConfig {
            retry_after: Duration::from_millis(20),
            ..LiveConfig::of(&file)
        };
        let live = Live::start(live).await.unwrap().0;
        place
            .tell(
                "ALTER TABLE rules RENAME TO away; UPDATE rules_generation SET number = number + 1",
            )
            .await;
        wait_until("it is tried again and again", || live.stats().failures >= 5).await;
        // A folder in which something is written all the time puts nothing off.
        place.tell("ALTER TABLE away RENAME TO rules").await;
        let noise = folder.path().join("noise");
        wait_until("it is back", || {
            fs::write(&noise, "x").unwrap();
            log.times("can be read from the database again") == 1
        })
        .await;
        let once = [
            (IN_FORCE, 1),
            ("the rules have changed and cannot be read", 1),
            ("the rules can be read from the database again", 1),
        ];
        assert_says(&log, &once);

        // Another scope counts at the next start: until then nothing of it comes in force.
        database.set_rule("other", &rule(30)).await.unwrap();
        fs::write(&file, in_scope("other")).unwrap();
        log.wait_for("what changed in database, audit counts at the next start only")
            .await;
        database.set_rule("default", &rule(20)).await.unwrap();
        let capacity = || {
            live.policy()
                .rules()
                .rules()
                .next()
                .map(|rule| rule.limit().capacity())
        };
        wait_until("the scope that is followed", || capacity() == Some(20)).await;
        assert!(live.stats().watch.looks > 0 && live.stats().watch.changes >= 2);
    });
}

#[test]
fn a_database_that_takes_no_writes_still_has_rules_to_start_with() {
    with_log(async |log| {
        let place = Place::postgres();
        let database = open(&place).await;
        let rule = json!({ "id": "everyone", "per": [], "limit": "1/h burst 10" });
        database.set_rule("default", &rule).await.unwrap();
        database.close().await;
        place
            .tell("ALTER DATABASE postgres SET default_transaction_read_only = on")
            .await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        fs::write(&file, format!("database: {{ url: {:?} }}\n", place.url)).unwrap();
        let live = Live::start(LiveConfig::of(&file)).await.unwrap().0;
        assert_eq!(live.policy().rules().rules().count(), 1);
        assert_says(&log, &[(IN_FORCE, 1)]);
    });
}

#[test]
fn a_refusal_is_said_once_however_often_others_change_theirs() {
    with_log(async |log| {
        let place = Place::sqlite();
        let database = open(&place).await;
        let rule = |limit: &str| json!({ "id": "everyone", "per": ["planet"], "limit": limit });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tollgate.yaml");
        let text = format!("database: {{ url: {:?}, poll: 10ms }}\n", place.url);
        fs::write(&file, text).unwrap();
        let live = Live::start(LiveConfig::of(&file)).await.unwrap().0;
        database.set_rule("default", &rule("1/h")).await.unwrap();
        wait_until("it is refused", || live.stats().refused == 1).await;
        for burst in 1..=3 {
            let changes = live.stats().watch.changes;
            let limit = format!("1/h burst {burst}");
            database.set_rule("other", &rule(&limit)).await.unwrap();
            wait_until("it is heard of", || live.stats().watch.changes > changes).await;
            live.reload();
        }
        // The same number of looks more, each with time to say something.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((log.times("is refused"), live.stats().refused), (1, 1));
        database.set_rule("default", &rule("2/h")).await.unwrap();
        wait_until("another is refused", || live.stats().refused == 2).await;
    });
}
