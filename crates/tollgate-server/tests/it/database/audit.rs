//! The audit trail: no request waits for it, and every violation is written or counted as lost.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use tollgate::Source;
use tollgate_config::AuditConfig;
use tollgate_server::audit::{Trail, TrailStats, Violation};
use tollgate_server::database::{Database, ViolationFilter, ViolationRow};
use tollgate_testing::wait::{eventually, until};
use tollgate_testing::{SmallDisk, TIMEOUT};

use crate::kit::database::{TestDatabase, block_on, on_both};

on_both!(
    violations_of_one_bucket_in_one_second_are_one_row,
    a_million_from_many_threads_are_all_accounted_for,
    violations_of_one_bucket_from_many_threads_are_one_row,
    a_shared_bucket_shows_that_others_were_denied_too,
    odd_text_is_stored_escaped_and_bounded,
    queries_find_matching_violations,
    only_violations_older_than_the_retention_are_removed,
    a_batch_that_is_sent_twice_counts_once,
    more_buckets_than_there_is_room_for_are_counted_as_lost,
    violations_after_the_end_are_counted_as_lost,
    a_refused_row_takes_no_others_along,
);

/// A moment in the past, so that its violations are written soon.
fn moment(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + second)
}

fn violation<'a>(per: &'a [(&'a str, &'a str)], at: SystemTime) -> Violation<'a> {
    Violation {
        rule: "charges",
        per,
        plan: Some("free"),
        client: per.first().map(|(_, value)| *value),
        ip: Some(IpAddr::from([192, 0, 2, 1])),
        method: Some("POST"),
        route: Some("/v1/charges/{*rest}"),
        at,
        remaining: 3,
        cost: 10,
        source: Source::Store,
        generation: 7,
    }
}

/// Without retention, because the moments of the tests are long ago.
fn config() -> AuditConfig {
    AuditConfig {
        collect_every: Duration::from_millis(20),
        retry_after: Duration::from_millis(50),
        retention: None,
        ..AuditConfig::default()
    }
}

/// The same, but violations are collected at the end only.
fn at_the_end() -> AuditConfig {
    AuditConfig {
        collect_every: Duration::from_secs(3_600),
        ..config()
    }
}

async fn all(database: &Database) -> Vec<ViolationRow> {
    let filter = ViolationFilter {
        limit: Some(10_000),
        ..ViolationFilter::default()
    };
    database.violations(&filter).await.unwrap()
}

/// Waits until the statistics of the trail are as expected.
async fn until_stats(trail: &Trail, what: &str, holds: impl Fn(TrailStats) -> bool) {
    eventually(what, async || holds(trail.stats())).await;
}

/// Checks that the statistics of the trail match the rows of the database.
async fn assert_adds_up(stats: TrailStats, database: &Database) {
    assert_eq!(stats.recorded, stats.written + stats.lost, "{stats:?}");
    assert_eq!((stats.held, stats.backlog), (0, 0), "{stats:?}");
    let stored = database.count_violations().await.unwrap();
    assert_eq!(stored.unsigned_abs(), stats.written, "{stats:?}");
}

async fn violations_of_one_bucket_in_one_second_are_one_row(test_database: TestDatabase) {
    let database = test_database.open().await;
    let trail = Trail::start(database.clone(), at_the_end());
    let per = [("client", "merchant_123"), ("route", "/v1/charges/{*rest}")];
    for n in 0..1_000 {
        let at = moment(5) + Duration::from_micros(250_000 + n);
        trail.record(&violation(&per, at));
    }
    trail.record(&violation(&per, moment(6)));
    trail.record(&violation(&[("client", "merchant_124")], moment(6)));
    let stats = trail.close(TIMEOUT).await;
    assert_eq!(
        (stats.recorded, stats.folded, stats.rows, stats.lost),
        (1_002, 999, 3, 0)
    );
    assert_adds_up(stats, &database).await;
    let rows = all(&database).await;
    let expected = ViolationRow {
        at_us: 1_800_000_005_250_000,
        scope: "default".into(),
        rule: "charges".into(),
        plan: Some("free".into()),
        bucket: "charges client=merchant_123 route=/v1/charges/{*rest}".into(),
        client: Some("merchant_123".into()),
        ip: Some("192.0.2.1".into()),
        endpoint: Some("POST /v1/charges/{*rest}".into()),
        remaining: 3,
        cost: 10,
        count: 1_000,
        source: "store".into(),
        generation: 7,
        ..ViolationRow::default()
    };
    assert_eq!(rows.last(), Some(&expected), "the newest is the first");
    assert_eq!(rows.len(), 3);
}

async fn a_shared_bucket_shows_that_others_were_denied_too(test_database: TestDatabase) {
    let database = test_database.open().await;
    let trail = Trail::start(database.clone(), at_the_end());
    let odd = "ann\nx\u{202e} ".repeat(40);
    let note = |second: u64, client: &str, ip: u8, route: &'static str| {
        trail.record(&Violation {
            client: Some(client),
            ip: Some(IpAddr::from([192, 0, 2, ip])),
            route: Some(route),
            ..violation(&[], moment(second) + Duration::from_micros(ip.into()))
        });
    };
    for (second, other) in [
        (1, ("ann", 1, "/a")),
        (2, ("bob", 1, "/a")),
        (3, ("ann", 2, "/a")),
        (4, ("ann", 1, "/b")),
    ] {
        note(second, "ann", 1, "/a");
        note(second, other.0, other.1, other.2);
        note(second, "ann", 1, "/a");
    }
    for _ in 0..3 {
        note(5, &odd, 1, "/a");
    }
    // Other threads have lanes of their own.
    std::thread::scope(|scope| {
        scope.spawn(|| note(1, "ann", 1, "/a"));
        scope.spawn(|| note(6, "ann", 1, "/a"));
        scope.spawn(|| note(6, "bob", 2, "/b"));
    });
    trail.close(TIMEOUT).await;
    let mut rows = all(&database).await;
    rows.sort_by_key(|row| row.at_us);
    let others: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row.count,
                [row.other_clients, row.other_ips, row.other_endpoints],
            )
        })
        .collect();
    assert_eq!(
        others,
        [
            (4, [false, false, false]),
            (3, [true, false, false]),
            (3, [false, true, false]),
            (3, [false, false, true]),
            (3, [false, false, false]),
            (2, [true, true, true]),
        ]
    );
    assert_eq!(rows[5].client.as_deref(), Some("ann"), "the first client");
}

async fn a_million_from_many_threads_are_all_accounted_for(test_database: TestDatabase) {
    let database = test_database.open().await;
    let trail = Trail::start(
        database.clone(),
        AuditConfig {
            // Too few for all of them.
            max_folds: 4_096,
            ..config()
        },
    );
    let clients: Vec<String> = (0..5_000).map(|n| format!("client-{n}")).collect();
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (trail, clients) = (&trail, &clients);
            scope.spawn(move || {
                for n in 0..250_000_usize {
                    let client = &clients[(n * 7 + thread) % clients.len()];
                    trail.record(&violation(&[("client", client)], SystemTime::now()));
                }
            });
        }
    });
    let stats = trail.close(TIMEOUT).await;
    assert_eq!(stats.recorded, 1_000_000);
    assert!(stats.written > 0 && stats.lost > 0, "{stats:?}");
    assert_adds_up(stats, &database).await;
}

async fn violations_of_one_bucket_from_many_threads_are_one_row(test_database: TestDatabase) {
    let database = test_database.open().await;
    let trail = Trail::start(database.clone(), at_the_end());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for us in 0..1_000 {
                    let at = moment(1) + Duration::from_micros(us);
                    trail.record(&violation(&[("client", "a")], at));
                }
            });
        }
    });
    let stats = trail.close(TIMEOUT).await;
    let rows = database
        .violations(&ViolationFilter::default())
        .await
        .unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].count, 8_000);
    assert_eq!(stats.folded, 7_999, "{stats:?}");
    assert_adds_up(stats, &database).await;
}

async fn odd_text_is_stored_escaped_and_bounded(test_database: TestDatabase) {
    let database = test_database.open().await;
    let trail = Trail::start(database.clone(), config());
    let long = "x".repeat(1_000_000);
    let cases = [
        (
            "'; DROP TABLE violations; --",
            "'; DROP TABLE violations; --",
        ),
        ("a\0b", "a\\u{0}b"),
        ("line\r\nbreak", "line\\r\\nbreak"),
        ("crème 🦀", "crème 🦀"),
        ("evil\u{202e}txt", "evil\\u{202e}txt"),
        ("\u{1b}[2J", "\\u{1b}[2J"),
        ("a route=/admin", "a route=/admin"),
        ("", ""),
        (&long, &format!("{}…", &long[..127])),
    ];
    for ((text, _), second) in cases.iter().zip(0..) {
        let mut violation = violation(&[], moment(second));
        let per = [("client", *text)];
        violation.per = &per;
        violation.client = Some(text);
        violation.plan = Some(text);
        violation.method = Some(text);
        violation.route = Some(text);
        trail.record(&violation);
    }
    assert_adds_up(trail.close(TIMEOUT).await, &database).await;
    let mut rows = all(&database).await;
    rows.reverse();
    assert_eq!(rows.len(), cases.len());
    for (row, (text, stored)) in rows.iter().zip(&cases) {
        assert_eq!(
            (row.client.as_deref(), row.plan.as_deref()),
            (Some(*stored), Some(*stored))
        );
        let whole = serde_json::to_string(row).unwrap();
        assert!(
            whole.len() < 2_000 && !whole.contains('\u{202e}'),
            "{} bytes",
            whole.len()
        );
        assert!(!row.bucket.contains(char::is_control), "{text:?}");
    }
    assert_eq!(
        rows[6].bucket, "charges client=a\\u{20}route\\u{3d}/admin",
        "no value can look like another part"
    );
}

async fn queries_find_matching_violations(test_database: TestDatabase) {
    let database = test_database.open().await;
    let trail = Trail::start(database.clone(), config());
    for second in 0..10 {
        for client in ["ann", "bob"] {
            let per = [("client", client)];
            let mut violation = violation(&per, moment(second));
            violation.ip = Some(match client {
                "ann" => "::ffff:10.0.0.1".parse().unwrap(),
                _ => "2001:db8::1".parse().unwrap(),
            });
            violation.rule = if second % 2 == 0 { "even" } else { "odd" };
            trail.record(&violation);
        }
    }
    trail.close(TIMEOUT).await;
    let query = async |filter: ViolationFilter| database.violations(&filter).await.unwrap();
    let none = ViolationFilter::default;
    assert_eq!(query(none()).await.len(), 20);
    let ann = query(ViolationFilter {
        client: Some("ann".into()),
        ..none()
    })
    .await;
    assert!(ann.len() == 10 && ann.iter().all(|row| row.ip.as_deref() == Some("10.0.0.1")));
    assert!(
        ann.windows(2).all(|pair| pair[0].at_us > pair[1].at_us),
        "the newest first"
    );
    let bobs = ViolationFilter {
        ip: Some("2001:db8::1".into()),
        rule: Some("odd".into()),
        since_us: Some(ann[3].at_us),
        ..none()
    };
    let bobs = query(bobs).await;
    assert!(
        bobs.len() == 2 && bobs.iter().all(|row| row.client.as_deref() == Some("bob")),
        "{bobs:?}"
    );
    assert_eq!(
        query(ViolationFilter {
            limit: Some(3),
            ..none()
        })
        .await
        .len(),
        3
    );
    assert!(
        query(ViolationFilter {
            client: Some("' OR 1=1 --".into()),
            ..none()
        })
        .await
        .is_empty()
    );
}

async fn only_violations_older_than_the_retention_are_removed(test_database: TestDatabase) {
    let database = test_database.open().await;
    let now = SystemTime::now();
    let row = |number: i64, age: Duration| {
        let at = (now - age).duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let row = ViolationRow {
            at_us: i64::try_from(at.as_micros()).unwrap(),
            count: 1,
            ..ViolationRow::default()
        };
        (number, row)
    };
    let hour = Duration::from_secs(3_600);
    let old: Vec<_> = (0..500)
        .map(|n| row(n, 2 * hour + Duration::from_secs(n.unsigned_abs())))
        .collect();
    let young: Vec<_> = (500..700).map(|n| row(n, hour / 2)).collect();
    database.write_violations(1, &old).await.unwrap();
    database.write_violations(1, &young).await.unwrap();
    assert_eq!(database.count_violations().await.unwrap(), 700);
    let trail = Trail::start(
        database.clone(),
        AuditConfig {
            retention: Some(hour),
            sweep_every: Duration::from_millis(20),
            max_sweep: 60,
            ..config()
        },
    );
    eventually("the old violations to be removed", async || {
        database.count_violations().await.unwrap() <= 200
    })
    .await;
    trail.close(TIMEOUT).await;
    let rows = all(&database).await;
    assert_eq!(rows.len(), 200);
    assert!(rows.iter().all(|kept| kept.at_us == young[0].1.at_us));
}

async fn a_batch_that_is_sent_twice_counts_once(test_database: TestDatabase) {
    let database = test_database.open().await;
    let row = ViolationRow {
        count: 5,
        ..ViolationRow::default()
    };
    let batch: Vec<_> = (0..600).map(|number| (number, row.clone())).collect();
    for _ in 0..3 {
        database.write_violations(42, &batch).await.unwrap();
    }
    assert_eq!(database.count_violations().await.unwrap(), 3_000);
    database.write_violations(43, &batch).await.unwrap();
    assert_eq!(
        database.count_violations().await.unwrap(),
        6_000,
        "those of another writer are counted too"
    );
}

async fn more_buckets_than_there_is_room_for_are_counted_as_lost(test_database: TestDatabase) {
    let database = test_database.open().await;
    let small = AuditConfig {
        max_folds: 160,
        ..at_the_end()
    };
    let trail = Trail::start(database.clone(), small);
    for n in 0..10_000 {
        let client = n.to_string();
        trail.record(&violation(&[("client", &client)], moment(0)));
    }
    assert!(trail.stats().held <= 160, "{:?}", trail.stats());
    assert_eq!(trail.stats().lost + trail.stats().held as u64, 10_000);
    assert_adds_up(trail.close(TIMEOUT).await, &database).await;
}

/// As when the database has another encoding, or an operator added a condition to the table.
async fn a_refused_row_takes_no_others_along(test_database: TestDatabase) {
    let database = test_database.open().await;
    test_database
        .execute(match test_database.server {
            None => {
                "CREATE TRIGGER picky BEFORE INSERT ON violations WHEN NEW.client LIKE 'evil%'
                 BEGIN SELECT RAISE(ABORT, 'no'); END"
            }
            Some(_) => "ALTER TABLE violations ADD CHECK (client NOT LIKE 'evil%')",
        })
        .await;
    let trail = Trail::start(database.clone(), at_the_end());
    for i in 0..300 {
        let client = match i {
            70 | 200 => format!("evil{i}"),
            _ => format!("good{i}"),
        };
        trail.record(&violation(&[("client", &client)], moment(0)));
    }
    let stats = trail.close(TIMEOUT).await;
    assert_eq!((stats.written, stats.lost), (298, 2));
    assert_adds_up(stats, &database).await;
}

async fn violations_after_the_end_are_counted_as_lost(test_database: TestDatabase) {
    let database = test_database.open().await;
    let trail = Trail::start(database.clone(), config());
    let per = [("client", "late")];
    trail.record(&violation(&per, moment(0)));
    trail.close(TIMEOUT).await;
    trail.record(&violation(&per, moment(0)));
    let stats = trail.stats();
    assert_eq!((stats.recorded, stats.written, stats.lost), (2, 1, 1));
    assert_adds_up(stats, &database).await;
}

#[test]
fn a_crash_under_load_loses_nothing_uncounted() {
    block_on(async {
        let mut test_database = TestDatabase::postgres();
        let database = test_database.open().await;
        let small = AuditConfig {
            batch: 100,
            ..config()
        };
        let (trail, is_over) = (
            Trail::start(database.clone(), small),
            AtomicBool::new(false),
        );
        std::thread::scope(|scope| {
            let offering = scope.spawn(|| {
                let mut second = 0;
                while !is_over.load(Relaxed) {
                    for n in 0..200 {
                        let client = n.to_string();
                        trail.record(&violation(&[("client", &client)], moment(second)));
                    }
                    second += 1;
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            let server = test_database.server.as_mut().unwrap();
            for _ in 0..2 {
                let written = trail.stats().written;
                until("more rows", || trail.stats().written > written);
                let failures = trail.stats().failures;
                server.kill();
                // It stays down until the trail notices, which may be waiting for a connection or have nothing to write just then.
                until("a failure", || trail.stats().failures > failures);
                server.restart();
            }
            is_over.store(true, Relaxed);
            offering.join().unwrap();
        });
        let stats = trail.close(TIMEOUT).await;
        assert!(stats.failures > 0 && stats.written > 0, "{stats:?}");
        assert_adds_up(stats, &database).await;
    });
}

#[test]
fn a_lasting_outage_costs_a_bounded_backlog() {
    block_on(async {
        let mut test_database = TestDatabase::postgres();
        let database = test_database.open().await;
        let small = AuditConfig {
            max_backlog: 500,
            ..config()
        };
        let trail = Trail::start(database.clone(), small);
        test_database.server.as_mut().unwrap().kill();
        for second in 0..50 {
            for n in 0..100 {
                let client = n.to_string();
                trail.record(&violation(&[("client", &client)], moment(second)));
            }
            until_stats(&trail, "the collection", |stats| {
                stats.held == 0 || stats.lost > 0
            })
            .await;
        }
        until_stats(&trail, "a full backlog", |stats| {
            stats.lost > 0 && stats.failures > 0
        })
        .await;
        assert!(trail.stats().backlog <= 500, "{:?}", trail.stats());
        let begun = Instant::now();
        let stats = trail.close(Duration::from_millis(300)).await;
        assert!(begun.elapsed() < Duration::from_secs(5));
        assert_eq!(
            (stats.recorded, stats.written, stats.lost),
            (5_000, 0, 5_000),
            "{stats:?}"
        );
    });
}

#[test]
fn a_full_disk_costs_counted_violations_and_no_delay() {
    block_on(async {
        let disk = SmallDisk::of(4 << 20);
        let url = format!("sqlite:{}", disk.path().join("tollgate.db").display());
        let database = Database::open(&url).await.unwrap();
        disk.fill_but(256 << 10);
        let small = AuditConfig {
            max_backlog: 2_000,
            batch: 100,
            ..config()
        };
        let trail = Trail::start(database.clone(), small);
        for second in 0..60 {
            for n in 0..100 {
                let client = n.to_string();
                trail.record(&violation(&[("client", &client)], moment(second)));
            }
            until_stats(&trail, "the collection", |stats| stats.held == 0).await;
        }
        until_stats(&trail, "a full disk", |stats| {
            stats.failures > 0 && stats.lost > 0
        })
        .await;
        assert!(trail.stats().written > 0, "{:?}", trail.stats());
        // With room again, the backlog is written, and so are new violations.
        let written = trail.stats().written;
        disk.make_room();
        until_stats(&trail, "more rows", |stats| {
            stats.written > written && stats.backlog == 0
        })
        .await;
        let stats = trail.close(Duration::from_secs(2)).await;
        assert_eq!(stats.recorded, 6_000);
        assert!(stats.lost > 0, "{stats:?}");
        assert_adds_up(stats, &database).await;
    });
}

#[test]
fn a_database_that_comes_later_gets_what_was_noted_before() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("not-mounted-yet");
        let url = format!("sqlite:{}", missing.join("tollgate.db").display());
        let trail = Trail::start_at(url.clone(), config());
        trail.record(&violation(&[("client", "a")], moment(1)));
        until_stats(&trail, "a failure", |stats| stats.failures > 0).await;
        std::fs::create_dir(&missing).unwrap();
        until_stats(&trail, "a row", |stats| stats.written == 1).await;
        trail.record(&violation(&[("client", "b")], moment(2)));
        let stats = trail.close(TIMEOUT).await;
        assert_eq!((stats.recorded, stats.written, stats.lost), (2, 2, 0));

        let never = Trail::start_at("sqlite:/nowhere/at/all/tollgate.db".to_owned(), config());
        never.record(&violation(&[("client", "a")], moment(1)));
        let stats = never.close(TIMEOUT).await;
        assert_eq!((stats.recorded, stats.written, stats.lost), (1, 0, 1));
    });
}
