//! What lies in deploy/, as far as it is about the program: names of metrics, and the limiter's own Redis.

use std::collections::HashSet;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use crate::metrics::OPEN_METRICS;
use crate::served::free_port;
use crate::serving::{Serving, ask, until};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(file: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{file}")).unwrap()
}

/// A redis-server by the files in deploy/redis.
struct OwnRedis {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

const PASSWORD: &str = "CHANGE-ME-redis-password";

impl OwnRedis {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display().to_string();
        let conf = read("deploy/redis/redis.conf").replace("/etc/redis", &place);
        std::fs::write(folder.path().join("redis.conf"), conf).unwrap();
        let users = read("deploy/redis/users.acl");
        std::fs::write(folder.path().join("users.acl"), users).unwrap();
        let port = free_port();
        let process = Command::new("redis-server")
            .arg("redis.conf")
            .args(["--port", &port.to_string()])
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server must be installed: `make test` sees to that");
        let redis = Self {
            process,
            port,
            _folder: folder,
        };
        until(
            "redis answers its probe",
            || redis.ask("probe", "", &["PING"]),
            |said| said.contains("PONG"),
        );
        redis
    }

    fn ask(&self, user: &str, password: &str, words: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string(), "--no-auth-warning"]);
        command
            .args(["--user", user, "--pass", password])
            .args(words);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for OwnRedis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// With everything that counts something.
fn serving_everything(redis: &OwnRedis) -> Serving {
    let port = redis.port;
    Serving::by(&format!(
        "gateway: {{ listen: \"127.0.0.1:0\", upstreams: [{{ path: /, to: [\"http://127.0.0.1:9\"] }}] }}\n\
         service: {{ listen: \"127.0.0.1:0\" }}\nadmin: {{ listen: \"127.0.0.1:0\" }}\nrules_from: file\n\
         database: {{ url: \"sqlite:tollgate.db\" }}\nlog: {{ format: json }}\n\
         traces: {{ endpoint: \"http://127.0.0.1:9\" }}\n\
         store: {{ redis: \"redis://tollgate:{PASSWORD}@127.0.0.1:{port}\", deadline: 20s, instances: counted }}\n\
         rules: [{{ id: address, per: [ip], limit: \"1/h burst 2\" }}]\n"
    ))
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

/// Every word of the text that begins like one of our metrics.
fn named(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    let words = words.filter(|word| word.starts_with("tollgate_"));
    words.map(str::to_owned).collect()
}

#[test]
fn the_deployed_redis_allows_only_what_the_program_needs() {
    let redis = OwnRedis::start();
    let serving = serving_everything(&redis);
    let statuses: Vec<u16> = (0..3)
        .map(|_| {
            ask(serving.address("gateway"), "GET", "/", &[])
                .unwrap()
                .status
        })
        .collect();
    assert_eq!(
        statuses,
        [502, 502, 429],
        "counted in Redis; nobody is behind"
    );
    let metrics = serving.get("admin", "/metrics", &[]).body;
    assert!(metrics.contains("source=\"fallback\"} 0"), "{metrics}");
    assert!(
        metrics.contains("tollgate_store_call_failures_total 0"),
        "{metrics}"
    );
    for (user, password) in [("default", ""), ("probe", ""), ("tollgate", "wrong")] {
        let said = redis.ask(user, password, &["GET", "tollgate:x"]);
        let refused = ["NOAUTH", "NOPERM", "WRONGPASS", "AUTH failed"];
        assert!(
            refused.iter().any(|word| said.contains(word)),
            "{user}: {said}"
        );
    }
    for words in [
        &["CONFIG", "GET", "*"][..],
        &["KEYS", "*"],
        &["FLUSHALL"],
        &["GET", "other"],
    ] {
        let said = redis.ask("tollgate", PASSWORD, words);
        assert!(said.contains("NOPERM"), "{words:?}: {said}");
    }
    let settings = redis.ask("tollgate", PASSWORD, &["INFO", "everything"]);
    for setting in [
        "maxmemory_policy:noeviction",
        "aof_enabled:0",
        "maxmemory:536870912",
    ] {
        assert!(settings.contains(setting), "{setting}");
    }
}

/// What `promtool check metrics` says of this page, and whether it finds it well.
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
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    let redis = OwnRedis::start();
    let serving = serving_everything(&redis);
    for _ in 0..3 {
        ask(serving.address("gateway"), "GET", "/", &[]).unwrap();
    }
    let in_memory = Serving::by(
        "admin: { listen: \"127.0.0.1:0\" }\nlog: { format: json }\nrules: [{ id: a, per: [], limit: 1/s }]\n",
    );
    for serving in [&serving, &in_memory] {
        let page = serving.get("admin", "/metrics", &[]);
        assert!(
            page.head
                .contains("content-type: text/plain; version=0.0.4"),
            "{}",
            page.head
        );
        assert_eq!(promtool(&page.body), (true, String::new()), "{}", page.body);
        let open = serving.get("admin", "/metrics", &[OPEN_METRICS]);
        let count = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(count(&page.body), count(&open.body));
        assert!(!promtool(&open.body).0, "it would have noticed");
    }
}

#[test]
fn dashboards_alerts_and_pages_name_metrics_that_exist() {
    let redis = OwnRedis::start();
    let serving = serving_everything(&redis);
    let mut known = series(&serving.get("admin", "/metrics", &[OPEN_METRICS]).body);
    // What only a store in memory counts.
    let in_memory = Serving::by(
        "admin: { listen: \"127.0.0.1:0\" }\nlog: { format: json }\nrules: [{ id: a, per: [], limit: 1/s }]\n",
    );
    known.extend(series(
        &in_memory.get("admin", "/metrics", &[OPEN_METRICS]).body,
    ));
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
        let names = named(&read(file));
        let unknown: Vec<_> = names
            .iter()
            .filter(|name| {
                let histogram = known.contains(&format!("{name}_bucket"));
                !known.contains(*name) && !histogram
            })
            .collect();
        assert!(
            unknown.is_empty(),
            "{file} names no such metrics: {unknown:?}"
        );
        used.extend(names);
    }
    assert!(used.len() > 40, "{}", used.len());
}
