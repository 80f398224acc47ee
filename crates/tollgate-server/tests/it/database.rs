//! Rules and clients in a database: the same promises on SQLite and on PostgreSQL.

mod audit;
mod tls;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate_server::database::{
    Changed, Database, DatabaseConfig, FieldChange, Import, MAX_RULES, ViolationFilter,
};

use crate::kit::database::{DatabaseExt as _, TestDatabase, block_on, on_both};

const SCOPE: &str = "default";

on_both!(
    stored_rules_come_back_in_order,
    a_limit_in_words_comes_back_in_figures,
    no_plan_is_a_plan_of_its_own,
    scopes_do_not_see_each_other,
    an_import_reports_its_changes_and_touches_nothing_else,
    a_dry_run_changes_nothing,
    fields_left_out_stay_and_null_removes_them,
    an_import_if_empty_changes_only_empty_scopes,
    an_api_key_that_stays_is_not_given_to_another_client,
    one_bad_document_and_nothing_is_imported,
    api_keys_can_change_hands_in_one_import,
    every_change_raises_the_generation_also_by_hand,
    inactive_rules_are_listed_and_not_loaded,
    text_of_any_kind_is_data_and_never_sql,
    programs_that_start_at_once_make_the_tables_once,
    columns_of_a_newer_program_do_no_harm,
    tables_of_a_newer_program_are_left_alone,
    readers_see_whole_imports_only,
    more_rules_than_a_scope_may_have_are_refused,
);

fn rule(id: &str, burst: u64) -> Value {
    json!({
        "id": id,
        "per": ["client"],
        "limit": { "algorithm": "token_bucket", "rate": "10/s", "burst": burst },
    })
}

fn client(id: &str) -> Value {
    json!({ "id": id, "plan": "pro" })
}

fn charges() -> Value {
    json!({
        "id": "charges",
        "plan": "free",
        "match": { "methods": ["POST"], "path": "/v1/charges/{*rest}", "header:x-region": ["eu"] },
        "per": ["client", "route"],
        "limit": { "algorithm": "sliding_counter", "limit": 600, "window": "1m" },
        "mode": "shadow",
        "on_store_failure": "closed",
        "description": "as agreed\nwith \"Ann\"",
    })
}

async fn stored_rules_come_back_in_order(test_database: TestDatabase) {
    let database = test_database.open().await;
    let queue =
        json!({ "id": "a", "limit": { "algorithm": "leaky_bucket", "rate": "5/s", "queue": 7 } });
    let rules = [rule("z", 50), charges(), queue];
    let hash = "0123456789abcdef".repeat(4);
    let clients = [
        json!({ "id": "m1", "plan": "pro", "api_key_sha256": hash }),
        json!({ "id": "m2" }),
    ];
    database.replace_all(SCOPE, &rules, &clients).await.unwrap();
    let loaded = test_database.open().await.load(SCOPE).await.unwrap();
    assert_eq!(loaded.rules, rules);
    assert_eq!(loaded.clients, clients);
}

async fn a_limit_in_words_comes_back_in_figures(test_database: TestDatabase) {
    let database = test_database.open().await;
    for (words, figures) in [
        (
            "10/s burst 50",
            json!({ "algorithm": "token_bucket", "rate": "10/s", "burst": 50 }),
        ),
        (
            "7/250ms queue 9",
            json!({ "algorithm": "leaky_bucket", "rate": "7/250ms", "queue": 9 }),
        ),
        (
            "600 per 2h sliding_log",
            json!({ "algorithm": "sliding_log", "limit": 600, "window": "2h" }),
        ),
    ] {
        database
            .set_rule(SCOPE, &json!({ "id": "x", "limit": words }))
            .await
            .unwrap();
        let loaded = database.load(SCOPE).await.unwrap();
        assert_eq!(
            loaded.rules,
            [json!({ "id": "x", "limit": figures })],
            "{words}"
        );
    }
    let error = database
        .set_rule(SCOPE, &json!({ "id": "x", "limit": "10/s burts 5" }))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("rule x: limit:") && error.to_string().contains("burst"),
        "{error}"
    );
}

async fn no_plan_is_a_plan_of_its_own(test_database: TestDatabase) {
    let database = test_database.open().await;
    let with_plan = |plan: &str, burst| {
        let mut rule = rule("client", burst);
        rule["plan"] = json!(plan);
        rule
    };
    for rule in [
        rule("client", 1),
        with_plan("free", 2),
        rule("client", 3),
        with_plan("free", 4),
    ] {
        database.set_rule(SCOPE, &rule).await.unwrap();
    }
    let loaded = database.load(SCOPE).await.unwrap();
    assert_eq!(loaded.rules, [rule("client", 3), with_plan("free", 4)]);
    assert!(database.remove_rule(SCOPE, "client", None).await.unwrap());
    assert!(!database.remove_rule(SCOPE, "client", None).await.unwrap());
    assert_eq!(
        database.load(SCOPE).await.unwrap().rules,
        [with_plan("free", 4)]
    );
}

async fn scopes_do_not_see_each_other(test_database: TestDatabase) {
    let database = test_database.open().await;
    database
        .replace_all("one", &[rule("a", 1)], &[client("m")])
        .await
        .unwrap();
    database
        .replace_all("two", &[rule("a", 2)], &[])
        .await
        .unwrap();
    let one = database.load("one").await.unwrap();
    assert_eq!(
        (one.rules, one.clients),
        (vec![rule("a", 1)], vec![client("m")])
    );
    assert_eq!(database.load("two").await.unwrap().rules, [rule("a", 2)]);
    assert!(database.load(SCOPE).await.unwrap().rules.is_empty());
    for scope in ["", "a\nb", &"x".repeat(65)] {
        assert!(
            database
                .set_rule(scope, &rule("a", 1))
                .await
                .unwrap_err()
                .is_bad_input()
        );
    }
}

async fn an_import_reports_its_changes_and_touches_nothing_else(test_database: TestDatabase) {
    let database = test_database.open().await;
    let before = [rule("kept", 1), rule("changed", 1), rule("gone", 1)];
    database
        .replace_all(SCOPE, &before, &[client("m1"), client("m2")])
        .await
        .unwrap();
    let unchanged = database.list(SCOPE).await.unwrap().0.remove(0);

    let after = [rule("new", 1), rule("changed", 2), rule("kept", 1)];
    let added = database
        .import(SCOPE, &after, &[client("m1")], Import::default())
        .await
        .unwrap();
    assert_eq!(
        (added.added, names(&added.changed)),
        (vec!["rule new".to_owned()], vec!["rule changed"])
    );
    assert_eq!(
        (added.removed, added.unchanged, added.moved),
        (vec![], 2, 1)
    );
    assert_eq!(database.load(SCOPE).await.unwrap().rules.len(), 4);

    let pruned = database
        .replace_all(SCOPE, &after, &[client("m1")])
        .await
        .unwrap();
    assert_eq!(pruned.removed, ["rule gone", "client m2"]);
    assert_eq!(database.load(SCOPE).await.unwrap().rules, after);
    let (rules, _) = database.list(SCOPE).await.unwrap();
    assert_eq!(rules[2], unchanged, "its times are unchanged");

    let number = database.generation_number().await.unwrap();
    database
        .replace_all(SCOPE, &after, &[client("m1")])
        .await
        .unwrap();
    assert_eq!(
        database.generation_number().await.unwrap(),
        number,
        "without a change, nothing has to be reloaded"
    );
}

async fn a_dry_run_changes_nothing(test_database: TestDatabase) {
    let database = test_database.open().await;
    database
        .replace_all(SCOPE, &[rule("a", 1)], &[])
        .await
        .unwrap();
    let before = database.load(SCOPE).await.unwrap();
    let how = Import {
        prune: true,
        dry_run: true,
        ..Import::default()
    };
    let would = database
        .import(SCOPE, &[rule("b", 1)], &[client("m")], how)
        .await
        .unwrap();
    assert_eq!(
        (would.added, would.removed),
        (
            vec!["rule b".into(), "client m".into()],
            vec!["rule a".into()]
        )
    );
    assert_eq!(database.load(SCOPE).await.unwrap(), before);
}

fn names(changed: &[Changed]) -> Vec<&str> {
    changed
        .iter()
        .map(|changed| changed.name.as_str())
        .collect()
}

/// Every optional field of rules and clients.
async fn fields_left_out_stay_and_null_removes_them(test_database: TestDatabase) {
    let database = test_database.open().await;
    let hash = "0123456789abcdef".repeat(4);
    let acme = json!({ "id": "acme", "plan": "pro", "api_key_sha256": hash });
    let stored = || async { database.load(SCOPE).await.unwrap() };
    let whole = [charges()];
    database
        .replace_all(SCOPE, &whole, std::slice::from_ref(&acme))
        .await
        .unwrap();

    let bare = [json!({ "id": "charges", "plan": "free" })];
    let imported = database
        .import(SCOPE, &bare, &[json!({ "id": "acme" })], Import::default())
        .await
        .unwrap();
    assert_eq!((imported.changed, imported.unchanged), (vec![], 2));
    assert_eq!(
        (stored().await.rules, stored().await.clients),
        (whole.to_vec(), vec![acme.clone()])
    );

    for field in [
        "match",
        "per",
        "limit",
        "mode",
        "on_store_failure",
        "description",
    ] {
        let mut nothing = bare[0].clone();
        nothing[field] = Value::Null;
        let imported = database
            .import(SCOPE, &[nothing], &[], Import::default())
            .await
            .unwrap();
        let before = Some(charges()[field].clone());
        let change = FieldChange {
            field,
            before,
            after: None,
        };
        assert_eq!(imported.changed[0].fields, [change]);
        assert!(stored().await.rules[0].get(field).is_none(), "{field}");
        // The others stay.
        database
            .import(
                SCOPE,
                &[json!({ "id": "charges", "plan": "free", field: charges()[field] })],
                &[],
                Import::default(),
            )
            .await
            .unwrap();
        assert_eq!(stored().await.rules, whole, "{field}");
    }
    for (field, before) in [("plan", "pro"), ("api_key_sha256", "***")] {
        let nothing = json!({ "id": "acme", field: null });
        let imported = database
            .import(SCOPE, &[], &[nothing], Import::default())
            .await
            .unwrap();
        let before = Some(json!(before));
        assert_eq!(
            imported.changed[0].fields,
            [FieldChange {
                field,
                before,
                after: None
            }]
        );
        assert!(stored().await.clients[0].get(field).is_none(), "{field}");
        database
            .import(SCOPE, &[], std::slice::from_ref(&acme), Import::default())
            .await
            .unwrap();
    }

    let inactive = json!({ "id": "charges", "plan": "free", "active": false });
    let asleep = json!({ "id": "acme", "active": false });
    database
        .import(SCOPE, &[inactive], &[asleep], Import::default())
        .await
        .unwrap();
    database
        .import(
            SCOPE,
            &bare,
            &[json!({ "id": "acme", "plan": "free" })],
            Import::default(),
        )
        .await
        .unwrap();
    let (rules, clients) = database.list(SCOPE).await.unwrap();
    assert!(
        !rules[0].active && !clients[0].active,
        "what is not active stays so"
    );
    assert_eq!(clients[0].document["api_key_sha256"], hash);

    let pruned = Import {
        prune: true,
        ..Import::default()
    };
    database
        .import(SCOPE, &bare, &[json!({ "id": "acme" })], pruned)
        .await
        .unwrap();
    assert_eq!(database.list(SCOPE).await.unwrap().1, clients);
    database
        .replace_all(SCOPE, &[], &[json!({ "id": "acme" })])
        .await
        .unwrap();
    assert_eq!(
        stored().await.clients,
        [json!({ "id": "acme" })],
        "exactly the given fields"
    );
}

async fn an_import_if_empty_changes_only_empty_scopes(test_database: TestDatabase) {
    let database = test_database.open().await;
    let how = Import {
        if_empty: true,
        ..Import::default()
    };
    let first = database
        .import(SCOPE, &[rule("a", 1)], &[], how)
        .await
        .unwrap();
    assert_eq!(
        (first.added, first.skipped),
        (vec!["rule a".to_owned()], false)
    );
    let second = database
        .import(SCOPE, &[rule("a", 2), rule("b", 1)], &[], how)
        .await
        .unwrap();
    assert_eq!((second.added, second.skipped), (vec![], true));
    assert_eq!(database.load(SCOPE).await.unwrap().rules, [rule("a", 1)]);
    let other = database
        .import("other", &[], &[client("m")], how)
        .await
        .unwrap();
    assert!(!other.skipped, "another scope is empty");
    let again = database
        .import("other", &[rule("a", 1)], &[], how)
        .await
        .unwrap();
    assert!(again.skipped, "it has a client");
}

async fn an_api_key_that_stays_is_not_given_to_another_client(test_database: TestDatabase) {
    let database = test_database.open().await;
    let with_key = |id: &str| json!({ "id": id, "api_key_sha256": "a".repeat(64) });
    database
        .replace_all(SCOPE, &[], &[with_key("acme")])
        .await
        .unwrap();
    for clients in [
        vec![with_key("other")],
        vec![with_key("other"), json!({ "id": "acme" })],
    ] {
        let error = database
            .import(SCOPE, &[], &clients, Import::default())
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("the API key of client"),
            "{error}"
        );
    }
    let moved = [
        with_key("other"),
        json!({ "id": "acme", "api_key_sha256": null }),
    ];
    database
        .import(SCOPE, &[], &moved, Import::default())
        .await
        .unwrap();
    assert_eq!(
        database.load(SCOPE).await.unwrap().clients,
        [json!({ "id": "acme" }), with_key("other")]
    );
}

async fn one_bad_document_and_nothing_is_imported(test_database: TestDatabase) {
    let database = test_database.open().await;
    database
        .replace_all(SCOPE, &[rule("a", 1)], &[])
        .await
        .unwrap();
    let before = database.load(SCOPE).await.unwrap();
    let with = |field: &str, value: Value| {
        let mut rule = rule("bad", 1);
        rule[field] = value;
        rule
    };
    for (bad, expected) in [
        (json!(5), "a rule: expected an object"),
        (json!({ "per": [] }), "rule ?: expected an id"),
        (
            with("burts", json!(1)),
            "rule bad: the database has no column for the field \"burts\"",
        ),
        (
            with("limit", json!({ "rates": 1 })),
            "rule bad: limit: the database has no column",
        ),
        (
            with("limit", json!({ "burst": -1 })),
            "burst: expected a whole number",
        ),
        (
            with("limit", json!({ "burst": "1,5" })),
            "burst: expected a whole number",
        ),
        (
            with("description", json!("x".repeat(4_097))),
            "at most 4096 characters",
        ),
        (
            with("description", json!("a\0b")),
            "description: expected a text",
        ),
        (with("mode", json!("enforec")), "mode"),
        (rule("b", 2), "rule b: is there twice"),
    ] {
        let rules = [rule("b", 1), bad.clone()];
        let error = database.replace_all(SCOPE, &rules, &[]).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{bad}: {error}");
        assert!(error.is_bad_input(), "{error}");
    }
    let twins = [
        json!({ "id": "m", "api_key_sha256": "A".repeat(64) }),
        json!({ "id": "n", "api_key_sha256": "a".repeat(64) }),
    ];
    let error = database.replace_all(SCOPE, &[], &twins).await.unwrap_err();
    assert!(
        error.to_string().contains("the API key of client n"),
        "{error}"
    );
    assert_eq!(database.load(SCOPE).await.unwrap(), before);
}

async fn api_keys_can_change_hands_in_one_import(test_database: TestDatabase) {
    let database = test_database.open().await;
    let with_key = |id: &str, digit: &str| json!({ "id": id, "api_key_sha256": digit.repeat(64) });
    for clients in [
        [with_key("a", "1"), with_key("b", "2")],
        [with_key("a", "2"), with_key("b", "1")],
        [with_key("b", "2"), with_key("c", "1")],
    ] {
        database.replace_all(SCOPE, &[], &clients).await.unwrap();
        assert_eq!(database.load(SCOPE).await.unwrap().clients, clients);
    }
}

async fn every_change_raises_the_generation_also_by_hand(test_database: TestDatabase) {
    let database = test_database.open().await;
    let mut last = database.generation_number().await.unwrap();
    for sql in [
        "INSERT INTO rules (id, algorithm, rate, burst) VALUES ('x', 'token_bucket', '10/s', 5)",
        "UPDATE rules SET burst = 6",
        "DELETE FROM rules",
        "INSERT INTO clients (id) VALUES ('m')",
        "UPDATE clients SET plan = 'pro'",
        "DELETE FROM clients",
    ] {
        test_database.execute(sql).await;
        let number = database.generation_number().await.unwrap();
        assert!(number > last, "{sql}");
        last = number;
    }
    database.set_rule(SCOPE, &rule("a", 1)).await.unwrap();
    set_active(&database, "a", false).await;
    database.remove_rule(SCOPE, "a", None).await.unwrap();
    assert!(database.generation_number().await.unwrap() >= last + 3);
}

async fn set_active(database: &Database, id: &str, active: bool) {
    let rule = json!({ "id": id, "active": active });
    let rules = [rule];
    let imported = database.import(SCOPE, &rules, &[], Import::default());
    assert_eq!(imported.await.unwrap().changed.len(), 1);
}

async fn inactive_rules_are_listed_and_not_loaded(test_database: TestDatabase) {
    let database = test_database.open().await;
    let asleep = json!({ "id": "asleep", "active": false });
    database
        .replace_all(SCOPE, &[rule("a", 1)], &[client("m"), asleep])
        .await
        .unwrap();
    set_active(&database, "a", false).await;
    let loaded = database.load(SCOPE).await.unwrap();
    assert_eq!((loaded.rules, loaded.clients), (vec![], vec![client("m")]));
    let (rules, clients) = database.list(SCOPE).await.unwrap();
    assert_eq!(
        (rules[0].active, clients[0].active, clients[1].active),
        (false, false, true)
    );
    assert!(rules[0].updated_us > rules[0].created_us);
    set_active(&database, "a", true).await;
    assert_eq!(database.load(SCOPE).await.unwrap().rules, [rule("a", 1)]);
}

async fn text_of_any_kind_is_data_and_never_sql(test_database: TestDatabase) {
    let database = test_database.open().await;
    let odd = [
        "'; DROP TABLE rules; --",
        "\"$1\" ?1 %s",
        "crème 🦀 漢字",
        "evil\u{202e}txt",
        "\\'\\\\",
    ];
    let rules: Vec<Value> = odd
        .iter()
        .map(|text| json!({ "id": text, "match": { "path": text }, "description": text }))
        .collect();
    database.replace_all(SCOPE, &rules, &[]).await.unwrap();
    assert_eq!(database.load(SCOPE).await.unwrap().rules, rules);
    for id in ["a\nb", "a\0b", "", &"x".repeat(257)] {
        assert!(
            database
                .set_rule(SCOPE, &json!({ "id": id }))
                .await
                .is_err(),
            "{id:?}"
        );
    }
}

async fn programs_that_start_at_once_make_the_tables_once(test_database: TestDatabase) {
    let url = Arc::new(test_database.url.clone());
    let programs: Vec<_> = (0..8)
        .map(|_| {
            let url = Arc::clone(&url);
            tokio::spawn(async move { Database::open(&url).await.map(drop) })
        })
        .collect();
    for program in programs {
        program.await.unwrap().unwrap();
    }
    let database = test_database.open().await;
    assert_eq!(database.generation_number().await.unwrap(), 1);
    database.set_rule(SCOPE, &rule("a", 1)).await.unwrap();
}

async fn columns_of_a_newer_program_do_no_harm(test_database: TestDatabase) {
    let database = test_database.open().await;
    database
        .replace_all(SCOPE, &[rule("a", 1)], &[client("m")])
        .await
        .unwrap();
    let before = database.load(SCOPE).await.unwrap();
    test_database
        .execute(
            "ALTER TABLE rules ADD COLUMN later TEXT; ALTER TABLE clients ADD COLUMN later TEXT;
             ALTER TABLE violations ADD COLUMN later TEXT",
        )
        .await;
    let after = database.load(SCOPE).await.unwrap();
    assert_eq!((after.rules, after.clients), (before.rules, before.clients));
    assert_eq!(
        database
            .violations(&ViolationFilter::default())
            .await
            .unwrap(),
        []
    );
    database
        .import(SCOPE, &[rule("b", 1)], &[], Import::default())
        .await
        .unwrap();
}

async fn tables_of_a_newer_program_are_left_alone(test_database: TestDatabase) {
    test_database.open().await.close().await;
    test_database
        .execute("INSERT INTO tollgate_schema (version) VALUES (99)")
        .await;
    let error = Database::open(&test_database.url)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("version 99") && error.contains("use a newer tollgate"),
        "{error}"
    );
}

async fn readers_see_whole_imports_only(test_database: TestDatabase) {
    let database = test_database.open().await;
    let set = |burst| {
        (0..20)
            .map(|n| rule(&format!("r{n:02}"), burst))
            .collect::<Vec<_>>()
    };
    database.replace_all(SCOPE, &set(0), &[]).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (database, done) = (database.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let mut seen: HashMap<i64, Value> = HashMap::new();
                while !done.load(Relaxed) {
                    let loaded = database.load(SCOPE).await.unwrap();
                    let bursts: Vec<&Value> = loaded
                        .rules
                        .iter()
                        .map(|rule| &rule["limit"]["burst"])
                        .collect();
                    assert_eq!(bursts.len(), 20);
                    assert!(bursts.iter().all(|burst| *burst == bursts[0]), "{bursts:?}");
                    let known = seen
                        .entry(loaded.generation_number)
                        .or_insert_with(|| bursts[0].clone());
                    assert_eq!(known, bursts[0], "one number, one content");
                }
                seen.len()
            })
        })
        .collect();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let (database, sets) = (database.clone(), [set(2 * writer + 1), set(2 * writer + 2)]);
            tokio::spawn(async move {
                for n in 0..30 {
                    database
                        .replace_all(SCOPE, &sets[n % 2], &[])
                        .await
                        .unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Relaxed);
    for reader in readers {
        assert!(
            reader.await.unwrap() > 1,
            "changes were seen while they were made"
        );
    }
}

async fn more_rules_than_a_scope_may_have_are_refused(test_database: TestDatabase) {
    let database = test_database.open().await;
    let rules: Vec<Value> = (0..=MAX_RULES)
        .map(|n| json!({ "id": format!("r{n}") }))
        .collect();
    let error = database.replace_all(SCOPE, &rules, &[]).await.unwrap_err();
    assert!(error.to_string().contains("at most 10000"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_sqlite_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    // Also with a blank in its name, which URLs escape.
    let url = format!("sqlite:{}/the%20rules.db", folder.path().display());
    block_on(async {
        let database = Database::open(&url).await.unwrap();
        database.set_rule(SCOPE, &rule("a", 1)).await.unwrap();
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            files.push((entry.file_name().into_string().unwrap(), mode));
        }
        files.sort();
        let expected = ["the rules.db", "the rules.db-shm", "the rules.db-wal"];
        assert_eq!(files, expected.map(|name| (name.to_owned(), 0o600)));
    });
}

#[test]
fn a_database_of_the_version_before_is_brought_up_to_date() {
    for test_database in [TestDatabase::sqlite(), TestDatabase::postgres()] {
        block_on(async {
            test_database.open().await.close().await;
            test_database
                .execute(
                    "ALTER TABLE violations DROP COLUMN other_clients;
                     ALTER TABLE violations DROP COLUMN other_ips;
                     ALTER TABLE violations DROP COLUMN other_endpoints;
                     DELETE FROM tollgate_schema WHERE version > 1;
                     INSERT INTO violations (writer, number, at_us, scope, rule, bucket, remaining, cost, count, source, generation)
                     VALUES (1, 1, 1, 'default', 'a', 'a', 0, 1, 3, 'store', 1)",
                )
                .await;
            let rows = test_database
                .open()
                .await
                .violations(&ViolationFilter::default())
                .await
                .unwrap();
            assert_eq!(
                (rows.len(), rows[0].count, rows[0].other_clients),
                (1, 3, false)
            );
        });
    }
}

#[test]
fn a_password_shows_in_no_error_and_no_debug() {
    let test_database = TestDatabase::postgres();
    let url = test_database.url.replace("postgres@", "postgres:s3cr3t@");
    block_on(async {
        let database = Database::open(&url).await.unwrap();
        assert!(!format!("{database:?}").contains("s3cr3t"), "{database:?}");
        drop(test_database);
        let error = database.load(SCOPE).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
    });
    for url in [
        "postgres://me:s3cr3t@localhost:1/x",
        "postgres://me:s3cr3t@[/x",
        "mysql://me:s3cr3t@h/x",
    ] {
        let error = block_on(Database::open(url)).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
    }
}

#[test]
fn a_silent_database_is_given_up_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://me@{}/x", silent.local_addr().unwrap());
    let config = DatabaseConfig {
        connect_timeout: Duration::from_millis(300),
        timeout: Duration::from_millis(600),
        ..DatabaseConfig::default()
    };
    let begun = Instant::now();
    let error = block_on(Database::open_with(&url, config)).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "{error}");
    assert!(!error.is_bad_input(), "{error}");
}
