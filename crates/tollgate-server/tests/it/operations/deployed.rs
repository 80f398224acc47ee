//! The files in deploy/: names of metrics in dashboards and alerts, and the Redis of the limiter.

use std::collections::HashSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use tollgate_testing::Running;
use tollgate_testing::ports::free_port;
use tollgate_testing::servers::{RedisAddress, RedisServer};

use crate::kit;
use crate::kit::open_metrics::OPEN_METRICS;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(file: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{file}")).unwrap()
}

/// A redis-server with the files in deploy/redis.
struct DeployedRedis(RedisServer);

const PASSWORD: &str = "CHANGE-ME-redis-password";

impl DeployedRedis {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().display().to_string();
        let conf = read("deploy/redis/redis.conf").replace("/etc/redis", &here);
        std::fs::write(folder.path().join("redis.conf"), conf).unwrap();
        let users = read("deploy/redis/users.acl");
        std::fs::write(folder.path().join("users.acl"), users).unwrap();
        let address = RedisAddress::Port(free_port());
        Self(RedisServer::start_with(
            "redis-server",
            &["redis.conf"],
            address,
            folder,
        ))
    }

    /// Runs a command with redis-cli as this user.
    fn command(&self, user: &str, password: &str, words: &[&str]) -> String {
        let login = ["--no-auth-warning", "--user", user, "--pass", password];
        self.0.command(&[&login, words].concat())
    }
}

/// The program with everything that has metrics.
fn serve_everything(redis: &DeployedRedis) -> Running {
    let port = redis.0.socket_addr().port();
    kit::serve(&format!(
        "gateway: {{ listen: \"127.0.0.1:0\", upstreams: [{{ path: /, to: [\"http://127.0.0.1:9\"] }}] }}\n\
         service: {{ listen: \"127.0.0.1:0\" }}\nadmin: {{ listen: \"127.0.0.1:0\" }}\nrules_from: file\n\
         database: {{ url: \"sqlite:tollgate.db\" }}\nlog: {{ format: json }}\n\
         traces: {{ endpoint: \"http://127.0.0.1:9\" }}\n\
         store: {{ redis: \"redis://tollgate:{PASSWORD}@127.0.0.1:{port}\", deadline: 20s, instances: counted }}\n\
         rules: [{{ id: address, per: [ip], limit: \"1/h burst 2\" }}]\n"
    ))
}

/// The program with a store in memory, which has metrics of its own.
fn serve_in_memory() -> Running {
    kit::serve(
        "admin: { listen: \"127.0.0.1:0\" }\nlog: { format: json }\nrules: [{ id: a, per: [], limit: 1/s }]\n",
    )
}

/// Names of series in OpenMetrics text, with those of counters and histograms in full.
fn series(text: &str) -> HashSet<String> {
    let mut names = HashSet::new();
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            let endings: &[&str] = match kind {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                "info" => &["_info"],
                _ => &[""],
            };
            names.extend(endings.iter().map(|ending| format!("{name}{ending}")));
        }
    }
    names
}

/// All words of a text that begin like metrics of the program.
fn metric_names(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    let words = words.filter(|word| word.starts_with("tollgate_"));
    words.map(str::to_owned).collect()
}

#[test]
fn the_deployed_redis_allows_only_what_the_program_needs() {
    let redis = DeployedRedis::start();
    let running = serve_everything(&redis);
    let get = |_| running.get("gateway", "/", &[]).status;
    let statuses: Vec<u16> = (0..3).map(get).collect();
    assert_eq!(
        statuses,
        [502, 502, 429],
        "counted in Redis; there is no upstream"
    );
    let metrics = running.metrics();
    assert!(metrics.contains("source=\"fallback\"} 0"), "{metrics}");
    assert!(
        metrics.contains("tollgate_store_call_failures_total 0"),
        "{metrics}"
    );
    for (user, password) in [("default", ""), ("probe", ""), ("tollgate", "wrong")] {
        let response = redis.command(user, password, &["GET", "tollgate:x"]);
        let refused = ["NOAUTH", "NOPERM", "WRONGPASS", "AUTH failed"];
        assert!(
            refused.iter().any(|word| response.contains(word)),
            "{user}: {response}"
        );
    }
    for words in [
        &["CONFIG", "GET", "*"][..],
        &["KEYS", "*"],
        &["FLUSHALL"],
        &["GET", "other"],
    ] {
        let response = redis.command("tollgate", PASSWORD, words);
        assert!(response.contains("NOPERM"), "{words:?}: {response}");
    }
    let settings = redis.command("tollgate", PASSWORD, &["INFO", "everything"]);
    for setting in [
        "maxmemory_policy:noeviction",
        "aof_enabled:0",
        "maxmemory:536870912",
    ] {
        assert!(settings.contains(setting), "{setting}");
    }
}

/// Whether `promtool check metrics` accepts this page, and what it reports.
fn promtool(page: &str) -> (bool, String) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("prometheus must be installed: `make test` sees to that");
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let report = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&report).into_owned(),
    )
}

#[test]
fn promtool_accepts_the_metrics() {
    let redis = DeployedRedis::start();
    let running = serve_everything(&redis);
    for _ in 0..3 {
        assert!(running.get("gateway", "/", &[]).status >= 400);
    }
    for running in [running, serve_in_memory()] {
        let page = running.get("admin", "/metrics", &[]);
        let content_type = page.header("content-type").unwrap();
        assert!(
            content_type.starts_with("text/plain; version=0.0.4"),
            "{content_type}"
        );
        let page = page.text();
        assert_eq!(promtool(&page), (true, String::new()), "{page}");
        let open_metrics = running.get("admin", "/metrics", &[OPEN_METRICS]).text();
        let count = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(count(&page), count(&open_metrics));
        assert!(!promtool(&open_metrics).0, "promtool notices mistakes");
    }
}

#[test]
fn dashboards_alerts_and_documentation_name_metrics_that_exist() {
    let redis = DeployedRedis::start();
    let mut known = HashSet::new();
    for running in [serve_everything(&redis), serve_in_memory()] {
        let page = running.get("admin", "/metrics", &[OPEN_METRICS]);
        known.extend(series(&page.text()));
    }
    let mut used = HashSet::new();
    for file in [
        "deploy/grafana/tollgate.json",
        "deploy/prometheus/alerts.yaml",
        "deploy/prometheus/alerts.test.yaml",
        "docs/operating.md",
        "docs/decision-service.md",
        "docs/faq.md",
        "docs/security.md",
    ] {
        let names = metric_names(&read(file));
        let unknown: Vec<_> = names
            .iter()
            .filter(|name| {
                let histogram = known.contains(&format!("{name}_bucket"));
                !known.contains(*name) && !histogram
            })
            .collect();
        assert!(
            unknown.is_empty(),
            "{file} names unknown metrics: {unknown:?}"
        );
        used.extend(names);
    }
    assert!(used.len() > 40, "{}", used.len());
}
