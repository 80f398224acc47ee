//! `tollgate check-config` and `tollgate init`, as people run them.

use std::process::Output;

use serde_json::Value;
use tollgate_testing::Program;

use crate::kit::program;

/// A program with this configuration.
fn with(config: impl AsRef<[u8]>) -> Program {
    let program = program();
    std::fs::write(program.folder().join("tollgate.yaml"), config).unwrap();
    program
}

/// The exit code, stdout and stderr of a command.
fn run(program: &Program, args: &[&str]) -> (i32, String, String) {
    let mut command = program.command(args);
    command.env("REDIS_PASSWORD", "hunter2");
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

const GOOD: &str = "service: {}\nstore: { redis: \"redis://:${REDIS_PASSWORD}@127.0.0.1\" }\nrules: [{ id: a, per: [], limit: 1/s }]\n";
const WARNED: &str = "rules: [{ id: a, per: [], limit: 1/s }]\n";
const WRONG: &str = "rules: [{ id: a, per: [], limit: 1/s, moed: off }]\n";

#[test]
fn a_good_file_gets_a_summary() {
    let (code, out, err) = run(&with(GOOD), &["check-config"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(
        out,
        "tollgate.yaml is fine\n  rules:   1 rule, 0 clients, 0 costs\n  state:   in Redis at redis://***@127.0.0.1\n  \
         listens: service at 127.0.0.1:8081\n  audit:   not kept\n"
    );
}

#[test]
fn a_wrong_file_is_reported_on_stderr_with_exit_code_2() {
    let (code, out, err) = run(&with(WRONG), &["check-config"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("did you mean \"mode\"?"), "{err}");
    assert!(err.ends_with("tollgate.yaml has 1 error\n"), "{err}");
}

#[test]
fn warnings_fail_only_with_strict() {
    let program = with(WARNED);
    let (code, out, err) = run(&program, &["check-config"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("tollgate.yaml is fine, with 1 warning\n"),
        "{out}"
    );
    assert!(
        err.starts_with("warning: neither gateway nor service"),
        "{err}"
    );
    let (code, _, err) = run(&program, &["check-config", "--strict"]);
    assert_eq!(code, 2);
    assert!(
        err.ends_with("tollgate.yaml has 1 warning, and --strict allows none\n"),
        "{err}"
    );
}

#[test]
fn json_reports_problems_and_a_summary() {
    let (code, out, err) = run(&with(WRONG), &["check-config", "--json"]);
    assert_eq!((code, err.as_str()), (2, ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (report["ok"].as_bool(), report["errors"].as_u64()),
        (Some(false), Some(1))
    );
    let problem = &report["problems"][0];
    assert_eq!(problem["severity"], "error");
    assert_eq!(problem["file"], "tollgate.yaml");
    assert_eq!(
        (problem["line"].as_u64(), problem["column"].as_u64()),
        (Some(1), Some(39))
    );
    assert_eq!(problem["path"], "rules[0].moed");
    assert_eq!(problem["help"], "did you mean \"mode\"?");

    let (code, out, _) = run(&with(GOOD), &["check-config", "--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, report["ok"].as_bool()), (0, Some(true)));
    assert_eq!(report["summary"]["rules"], 1);
    assert!(!out.contains("hunter2"), "{out}");
}

#[test]
fn a_missing_file_is_reported_with_what_to_do() {
    let (code, _, err) = run(&program(), &["check-config"]);
    assert_eq!(code, 1);
    assert!(err.contains("cannot read tollgate.yaml"), "{err}");
    assert!(err.contains("`tollgate init` writes one"), "{err}");
}

#[test]
fn a_file_that_is_not_utf8_is_refused() {
    let (code, _, err) = run(&with(b"rules: \xff\xfe"), &["check-config"]);
    assert_eq!(code, 2);
    assert!(
        err.contains("not UTF-8") && err.contains("tollgate.yaml:1:8"),
        "{err}"
    );
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let (code, _, err) = run(&with(vec![b'#'; (16 << 20) + 1]), &["check-config"]);
    assert_eq!(code, 2);
    assert!(err.contains("larger than 16 MiB"), "{err}");
}

#[test]
fn init_writes_a_file_that_check_config_accepts() {
    let program = program();
    let (code, out, err) = run(&program, &["init"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(
        out.lines().last(),
        Some("next: tollgate check-config tollgate.yaml")
    );
    let (code, _, err) = run(&program, &["check-config", "--strict"]);
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn init_overwrites_only_with_force() {
    let program = with(GOOD);
    let (code, _, err) = run(&program, &["init"]);
    assert_eq!(code, 2);
    assert!(
        err.contains("tollgate.yaml exists already; --force overwrites it"),
        "{err}"
    );
    let file = program.folder().join("tollgate.yaml");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), GOOD);
    assert_eq!(run(&program, &["init", "--force"]).0, 0);
    assert_ne!(std::fs::read_to_string(&file).unwrap(), GOOD);
}

#[test]
fn every_line_that_init_comments_out_can_be_used() {
    let text = include_str!("../../../assets/tollgate.yaml");
    let uncommented: String = (text.lines())
        .map(|line| match line.trim_start().strip_prefix("# ") {
            // Fields, not prose: a key in small letters and a colon.
            Some(rest)
                if rest.trim_start().split(':').next().is_some_and(is_key)
                    && rest.contains(':') =>
            {
                let indent = line.len() - line.trim_start().len();
                format!("{}{rest}\n", " ".repeat(indent))
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let uncommented = uncommented
        .replace("  max_keys: 1_000_000\n", "")
        .replace("database:\n", "rules_from: file\ndatabase:\n")
        .replace("  # - { id: merchant_456", "  - { id: merchant_456");
    assert!(uncommented.contains("\n  redis: "), "{uncommented}");
    assert!(
        uncommented.contains("\nservice:\n  listen"),
        "{uncommented}"
    );
    assert!(uncommented.contains("\n  retention: 30d"), "{uncommented}");
    let env = |name: &str| match name {
        "MERCHANT_456_KEY_SHA256" => Some("ab".repeat(32)),
        _ => Some("0123456789abcdef0123".to_owned()),
    };
    if let Err(problems) = tollgate_config::parse(&uncommented, &env) {
        panic!("{}", problems.render("tollgate.yaml", &uncommented));
    }
}

fn is_key(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}
