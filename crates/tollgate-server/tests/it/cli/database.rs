//! `tollgate rules` and `tollgate violations`, as people run them.

use std::process::Output;
use std::time::SystemTime;

use serde_json::Value;
use tollgate_server::database::{Database, ViolationRow};
use tollgate_testing::Program;
use tollgate_testing::program::stderr;

use crate::kit::database::{TestDatabase, block_on};
use crate::kit::program;

/// The program in a folder of its own, with a database.
struct Operator {
    program: Program,
    database: TestDatabase,
}

const FILE: &str = r#"
rules:
  - id: client
    plan: free
    per: [client]
    limit: { algorithm: token_bucket, rate: 10/s, burst: 50 }
  - { id: client, per: [client], limit: "100/s burst 500" }
  - id: charges
    description: "as agreed: $${SO}"
    match: { methods: [POST], path: "/v1/charges/{*rest}" }
    per: [client, route]
    limit: { algorithm: sliding_counter, limit: 600, window: 1m }
    on_store_failure: closed
    mode: off
clients:
  - { id: merchant_123, plan: free, api_key_sha256: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" }
"#;

impl Operator {
    fn at(database: TestDatabase) -> Self {
        let program = program();
        program.write("rules.yaml", FILE);
        Self { program, database }
    }

    fn write(&self, name: &str, text: &str) {
        self.program.write(name, text);
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = self.program.command(args);
        command.env("TOLLGATE_DATABASE", &self.database.url);
        command.output().unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn failure(&self, exit_code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(exit_code), "{args:?}: {stderr}");
        stderr
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(args)).unwrap()
    }
}

#[test]
fn an_export_is_imported_unchanged() {
    for database in [TestDatabase::sqlite(), TestDatabase::postgres()] {
        let operator = Operator::at(database);
        let printed = operator.text(&["rules", "import", "rules.yaml"]);
        assert_eq!(
            printed,
            "added: rule client of plan free\nadded: rule client\nadded: rule charges\nadded: client merchant_123\n\
             0 unchanged\n"
        );
        for format in ["yaml", "json"] {
            let exported = operator.text(&["rules", "export", "--format", format]);
            operator.write("again", &exported);
            let printed = operator.text(&["rules", "import", "again", "--prune"]);
            assert_eq!(printed, "4 unchanged\n", "{exported}");
            operator.text(&["rules", "import", "again", "--prune", "--scope", "other"]);
            assert_eq!(
                operator.text(&["rules", "export", "--format", format, "--scope", "other"]),
                exported
            );
        }
    }
}

#[test]
fn a_dry_run_reports_what_the_import_then_changes() {
    let operator = Operator::at(TestDatabase::sqlite());
    operator.text(&["rules", "import", "rules.yaml"]);
    operator.write(
        "less.yaml",
        "rules: [{ id: client, per: [client], limit: 7/s }]",
    );
    let would = operator.text(&["rules", "import", "less.yaml", "--prune", "--dry-run"]);
    assert_eq!(
        would,
        "would be changed: rule client\n  limit: 100/s burst 500 → 7/s burst 7\nwould be removed: rule client of plan free\n\
         would be removed: rule charges\nwould be removed: client merchant_123\n0 unchanged\n"
    );
    let before = operator.text(&["rules", "export"]);
    assert!(before.contains("100/s"), "{before}");
    operator.text(&["rules", "import", "less.yaml", "--prune"]);
    let after = operator.json(&["rules", "list", "--json"]);
    assert_eq!(after.as_array().unwrap().len(), 1);
    assert_eq!(after[0]["rule"]["limit"]["burst"], 7);
}

#[test]
fn importing_a_client_without_its_key_keeps_the_key() {
    for database in [TestDatabase::sqlite(), TestDatabase::postgres()] {
        let operator = Operator::at(database);
        operator.text(&["rules", "import", "rules.yaml"]);
        let file = |text: &str| {
            operator.write("less.yaml", text);
            let would = operator.text(&["rules", "import", "less.yaml", "--dry-run"]);
            let printed = operator.text(&["rules", "import", "less.yaml"]);
            assert_eq!(would.replace("would be ", ""), printed, "{text}");
            (would, operator.text(&["rules", "export"]))
        };
        let (would, now) = file("clients: [{ id: merchant_123, plan: pro }]");
        assert_eq!(
            would,
            "would be changed: client merchant_123\n  plan: free → pro\n0 unchanged\n"
        );
        assert!(now.contains("api_key_sha256: \"0123456789abcdef"), "{now}");
        let another = format!(
            "clients: [{{ id: merchant_123, api_key_sha256: \"{}\" }}]",
            "ab".repeat(32)
        );
        let (would, now) = file(&another);
        assert!(
            would.contains("  api_key_sha256: *** → *** (another)\n"),
            "{would}"
        );
        assert!(
            now.contains(&"ab".repeat(32)) && !would.contains("abab"),
            "{now}{would}"
        );
        let (would, now) = file("clients: [{ id: merchant_123, api_key_sha256: null }]");
        assert!(would.contains("  api_key_sha256: *** → none\n"), "{would}");
        assert!(
            !now.contains("api_key_sha256") && now.contains("plan: \"pro\""),
            "{now}"
        );
        // Of a rule as well, and what is missing may be stored.
        let (would, now) = file("rules: [{ id: charges, limit: 7/s, description: ~ }]");
        assert!(
            would.contains("  limit: 600 per 1m sliding_counter → 7/s burst 7\n  description: as agreed: ${SO} → none\n"),
            "{would}"
        );
        assert!(
            now.contains("on_store_failure: \"closed\"") && now.contains("mode: \"off\""),
            "{now}"
        );
    }
}

#[test]
fn an_exact_import_makes_the_database_like_the_file() {
    let operator = Operator::at(TestDatabase::sqlite());
    operator.text(&["rules", "import", "rules.yaml"]);
    let all = operator.text(&["rules", "export", "--all"]);
    operator.write("all.yaml", &all);
    operator.write(
        "more.yaml",
        "rules: [{ id: client, per: [client], limit: 1/s, mode: shadow }, { id: more, per: [], limit: 1/s }]\n\
         clients: [{ id: merchant_123, plan: pro }, { id: other }]",
    );
    operator.text(&["rules", "import", "more.yaml"]);
    let would = operator.text(&["rules", "import", "all.yaml", "--exact", "--dry-run"]);
    for line in [
        "  limit: 1/s burst 1 → 100/s burst 500\n",
        "  mode: shadow → none\n",
        "  plan: pro → free\n",
        "would be removed: rule more\n",
        "would be removed: client other\n",
    ] {
        assert!(would.contains(line), "{line}: {would}");
    }
    operator.text(&["rules", "import", "all.yaml", "--exact"]);
    assert_eq!(operator.text(&["rules", "export", "--all"]), all);
}

#[test]
fn a_shared_bucket_without_the_header_is_warned_of() {
    let operator = Operator::at(TestDatabase::sqlite());
    let expected = "all requests without the header share one bucket";
    operator.write(
        "rules.yaml",
        "rules:\n- { id: tenant, per: [\"header:X-Tenant\"], limit: 1/s }\n",
    );
    let printed = operator.text(&["rules", "import", "rules.yaml"]);
    assert!(
        printed.contains(expected) && printed.contains("rules.yaml:2:"),
        "{printed}"
    );
    assert!(
        printed.ends_with("added: rule tenant\n0 unchanged\n"),
        "{printed}"
    );
    let printed = operator.text(&[
        "rules",
        "set",
        "region",
        "--limit",
        "1/s",
        "--per",
        "header:X-Region",
    ]);
    assert!(
        printed.contains(expected) && printed.contains("rule region"),
        "{printed}"
    );
    let printed = operator.text(&["rules", "set", "region", "--per", "header:X-Region,ip"]);
    assert_eq!(printed, "changed rule region\n");
}

#[test]
fn an_import_if_empty_reverts_no_change() {
    let operator = Operator::at(TestDatabase::sqlite());
    let import = ["rules", "import", "rules.yaml", "--if-empty"];
    assert!(operator.text(&import).contains("added: rule client\n"));
    operator.text(&["rules", "set", "client", "--limit", "20/s"]);
    let before = operator.text(&["rules", "export"]);
    assert_eq!(
        operator.text(&import),
        "nothing imported: the scope default has rules or clients already\n"
    );
    assert_eq!(operator.text(&["rules", "export"]), before);
    operator.failure(2, &[&import[..], &["--prune"]].concat());
}

#[test]
fn failed_and_dry_runs_create_no_database() {
    let operator = Operator::at(TestDatabase::sqlite());
    let file = operator.database.url.strip_prefix("sqlite:").unwrap();
    let would = operator.text(&["rules", "import", "rules.yaml", "--dry-run"]);
    assert!(
        would.starts_with("would be added: rule client of plan free\n"),
        "{would}"
    );
    operator.write("bad.yaml", "rules: [{ id: a, per: [client] }]");
    operator.failure(2, &["rules", "import", "bad.yaml"]);
    operator.failure(1, &["rules", "set", "client", "--mode", "off"]);
    assert!(!std::path::Path::new(file).exists());
}

#[test]
fn an_empty_field_removes_nothing() {
    let operator = Operator::at(TestDatabase::sqlite());
    operator.text(&["rules", "import", "rules.yaml"]);
    operator.write(
        "blank.yaml",
        "clients:\n  - id: merchant_123\n    api_key_sha256:\n",
    );
    let error = operator.failure(2, &["rules", "import", "blank.yaml"]);
    assert!(
        error.contains("blank.yaml:3") && error.contains("this is empty"),
        "{error}"
    );
    assert!(
        operator
            .text(&["rules", "export"])
            .contains("api_key_sha256")
    );
}

#[test]
fn invalid_documents_are_refused_and_change_nothing() {
    let operator = Operator::at(TestDatabase::sqlite());
    operator.text(&["rules", "import", "rules.yaml"]);
    let before = operator.text(&["rules", "list"]);
    for (text, expected) in [
        (
            "rules:\n  - { id: a, per: [client], limit: 10/fortnight }",
            "fortnight",
        ),
        (
            "rules:\n  - { id: a, per: [clint], limit: 10/s }",
            "bad.yaml:2",
        ),
        (
            "rules:\n  - { id: a, per: [client], limit: 10/s, burts: 5 }",
            "burts",
        ),
        ("rules: 5", "expected a list"),
        ("{}", "neither `rules` nor `clients`"),
        // Right in itself, and not beside what is there.
        (
            "rules: [{ id: client, plan: pro, per: [ip], limit: 10/s }]",
            "count by",
        ),
    ] {
        operator.write("bad.yaml", text);
        let error = operator.failure(2, &["rules", "import", "bad.yaml"]);
        assert!(error.contains(expected), "{text}: {error}");
    }
    assert_eq!(operator.text(&["rules", "list"]), before);
}

#[test]
fn a_rule_is_added_changed_deactivated_and_removed() {
    let operator = Operator::at(TestDatabase::postgres());
    let error = operator.failure(2, &["rules", "set", "new"]);
    assert!(error.contains("a new one needs a limit"), "{error}");
    let set = [
        "rules",
        "set",
        "new",
        "--plan",
        "pro",
        "--limit",
        "10/s burst 50",
        "--per",
        "client,route",
    ];
    assert_eq!(operator.text(&set), "added rule new of plan pro\n");
    let change = [
        "rules",
        "set",
        "new",
        "--plan",
        "pro",
        "--mode",
        "shadow",
        "--description",
        "try",
        "--active",
        "false",
    ];
    assert_eq!(operator.text(&change), "changed rule new of plan pro\n");
    let rule = &operator.json(&["rules", "list", "--json"])[0];
    assert_eq!(
        (rule["active"].as_bool(), rule["rule"]["mode"].as_str()),
        (Some(false), Some("shadow"))
    );
    assert_eq!(rule["rule"]["limit"]["burst"], 50);
    assert_eq!(operator.text(&["rules", "export"]), "");
    let all = operator.text(&["rules", "export", "--all"]);
    assert!(all.contains("active: false"), "{all}");
    operator.write("all.yaml", &all);
    assert_eq!(
        operator.text(&["rules", "import", "all.yaml"]),
        "1 unchanged\n"
    );
    let table = operator.text(&["rules", "list"]);
    assert!(
        table.contains("10/s burst 50  client, route  inactive  2"),
        "{table}"
    );

    let error = operator.failure(
        2,
        &["rules", "set", "new", "--plan", "pro", "--mode", "enforec"],
    );
    assert!(error.contains("enforce"), "{error}");
    let error = operator.failure(2, &["rules", "remove", "new"]);
    assert!(error.contains("there is no rule new"), "{error}");
    assert_eq!(
        operator.text(&["rules", "remove", "new", "--plan", "pro"]),
        "removed rule new of plan pro\n"
    );
    assert_eq!(
        operator.text(&["rules", "list"]),
        "no rules in the scope default\n"
    );
}

#[test]
fn the_database_of_a_configuration_is_used_with_its_scope() {
    let operator = Operator::at(TestDatabase::sqlite());
    let config = format!(
        "database: {{ url: {:?}, scope: eu }}\nrules_from: database\n",
        operator.database.url
    );
    operator.write("tollgate.yaml", &config);
    let import = ["rules", "import", "rules.yaml", "-c", "tollgate.yaml"];
    let mut command = operator.program.command(&import);
    command.env_remove("TOLLGATE_DATABASE");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        operator
            .json(&["rules", "list", "--json", "--scope", "eu"])
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert_eq!(
        operator.text(&["rules", "list"]),
        "no rules in the scope default\n"
    );
}

#[test]
fn an_unreachable_database_is_reported_without_its_password() {
    let operator = Operator::at(TestDatabase::sqlite());
    let error = operator.failure(
        1,
        &[
            "rules",
            "list",
            "--database",
            "postgres://me:s3cr3t@127.0.0.1:1/x",
        ],
    );
    assert!(
        error.contains("postgres://127.0.0.1:1/x: cannot"),
        "{error}"
    );
    let error = operator.failure(2, &["violations", "--database", "mysql://me:s3cr3t@h/x"]);
    assert!(
        error.contains("expected sqlite:path") && !error.contains("s3cr3t"),
        "{error}"
    );
}

#[test]
fn violations_are_shown_as_a_table_and_as_json() {
    let operator = Operator::at(TestDatabase::sqlite());
    let error = operator.failure(1, &["violations"]);
    assert!(error.contains("there is no such file"), "{error}");
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let row = |at_us: i64, client: &str| ViolationRow {
        at_us,
        scope: "default".into(),
        rule: "charges".into(),
        client: Some(client.into()),
        ip: Some("192.0.2.1".into()),
        endpoint: Some("POST /v1/charges/{*rest}".into()),
        count: 1_000,
        source: "store".into(),
        bucket: format!("charges client={client}"),
        ..ViolationRow::default()
    };
    let now_us = i64::try_from(now.as_micros()).unwrap();
    let rows = [
        (1, row(now_us - 60_000_000, "ann")),
        (2, row(1_800_000_000_000_250, "bob")),
        (
            3,
            ViolationRow {
                other_clients: true,
                other_endpoints: true,
                ..row(0, "old")
            },
        ),
        (
            4,
            ViolationRow {
                scope: "eu".into(),
                ..row(now_us, "eve")
            },
        ),
    ];
    block_on(async {
        let database = Database::open(&operator.database.url).await.unwrap();
        database.write_violations(1, &rows).await.unwrap();
    });
    let table = operator.text(&["violations", "--client", "bob"]);
    assert!(table.starts_with("first (UTC)  "), "{table}");
    assert!(
        table.contains(
            "2027-01-15 08:00:00  1000   charges  bob     192.0.2.1  POST /v1/charges/{*rest}"
        ),
        "{table}"
    );
    let shared = operator.text(&["violations", "--client", "old"]);
    assert!(
        shared.contains("old +others  192.0.2.1  POST /v1/charges/{*rest} +others"),
        "{shared}"
    );
    let json = operator.json(&["violations", "--json", "--client", "old"]);
    assert_eq!(
        (&json["other_clients"], &json["other_ips"]),
        (&true.into(), &false.into())
    );
    let lines = |args: &[&str]| operator.text(args).lines().count();
    assert_eq!(lines(&["violations", "--json"]), 3);
    assert_eq!(lines(&["violations", "--json", "--scope", "eu"]), 1);
    let widest = table.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(100), "{table}");
    assert_eq!(lines(&["violations", "--json", "--since", "1h"]), 2);
    assert_eq!(
        lines(&[
            "violations",
            "--json",
            "--ip",
            "::ffff:192.0.2.1",
            "--limit",
            "1"
        ]),
        1
    );
    assert_eq!(
        operator.json(&["violations", "--json", "--client", "ann"])["count"],
        1_000
    );
    assert_eq!(
        operator.text(&["violations", "--rule", "other"]),
        "no violations\n"
    );
    let error = operator.failure(2, &["violations", "--since", "yesterday"]);
    assert!(error.contains("90s, 15m, 1h"), "{error}");
}
