//! Other people's gateways in front of a small API, asking our service: nginx, Caddy and Envoy themselves, by the files in docs/gateways.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::metrics::{OPEN_METRICS, check_open_metrics};
use crate::served::{Reply, Served, Upstream, ask, ask_bytes, free_port, until};
use crate::serving::{self, Serving};
use tollgate_testing::servers::RedisServer;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// In the file for Envoy: how long it waits for a decision, and what it does without one.
const ENVOYS_TIMEOUT: &str = "timeout: 0.25s";
const ENVOY_ADMITS: &str = "failure_mode_deny: false";

/// A machine that is busy with other tests is slower than one that serves.
fn patient(text: &str) -> String {
    text.replace(ENVOYS_TIMEOUT, "timeout: 10s")
}

/// A gateway by its file in the documentation, with ports of our own.
struct Gateway {
    process: Child,
    address: SocketAddr,
    upstream: Upstream,
    folder: TempDir,
}

impl Gateway {
    fn start(file: &str, served: &Served, command: impl Fn(PathBuf) -> Command) -> Self {
        Self::asking(served.address, file, patient, command)
    }

    /// Asks the service there, by a file that is changed a little.
    fn asking(
        service: SocketAddr,
        file: &str,
        change: impl Fn(&str) -> String,
        command: impl Fn(PathBuf) -> Command,
    ) -> Self {
        let upstream = Upstream::start();
        let text = std::fs::read_to_string(format!("{ROOT}/docs/gateways/{file}")).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let ports = [
            ("8080", address.port()),
            ("8081", service.port()),
            ("3000", upstream.address.port()),
        ];
        let text = ports.iter().fold(change(&text), |text, (from, to)| {
            assert!(text.contains(from), "{file} has no port {from}");
            text.replace(from, &to.to_string())
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        std::fs::write(&path, text).unwrap();
        let mut command = command(path);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = command
            .env("HOME", folder.path())
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|e| panic!("{command:?}: {e}; `make needs` sees to that"));
        let gateway = Self {
            process,
            address,
            upstream,
            folder,
        };
        until(&format!("{file}: nobody listens"), || {
            std::net::TcpStream::connect(address).is_ok()
        });
        gateway
    }

    fn get(&self, path: &str, headers: &str) -> Reply {
        ask(self.address, "GET", path, headers, "")
    }

    /// What so many requests get.
    fn statuses(&self, path: &str, headers: &str, count: usize) -> Vec<u16> {
        (0..count).map(|_| self.get(path, headers).status).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Its workers end with nginx if it is asked to end, and not if it is killed.
        let id = self.process.id().to_string();
        let _ = Command::new("kill").arg(&id).status();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log"));
            let _ = writeln!(std::io::stderr(), "{}", log.unwrap_or_default());
        }
    }
}

fn nginx(path: PathBuf) -> Command {
    let mut command = Command::new("/usr/sbin/nginx");
    let folder = path.parent().unwrap().display().to_string();
    // In the foreground, and all it writes in a folder of its own.
    let settings = format!("daemon off; pid {folder}/pid; error_log stderr;");
    command
        .arg("-p")
        .arg(&folder)
        .arg("-c")
        .arg(path)
        .arg("-g")
        .arg(settings);
    command
}

fn caddy(path: PathBuf) -> Command {
    let mut command = Command::new("caddy");
    command
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(path);
    command
}

fn envoy(path: PathBuf) -> Command {
    let mut command = Command::new(format!("{ROOT}/target/servers/envoy"));
    // No hot restart, which would want shared memory of a fixed name.
    command
        .args([
            "--disable-hot-restart",
            "--concurrency",
            "1",
            "--log-level",
            "warn",
            "-c",
        ])
        .arg(path);
    command
}

const RULES: &str = "
identity: { trusted_proxies: [127.0.0.1] }
rules:
  - { id: address, per: [ip], limit: \"1/h burst 10\" }
  - { id: charges, match: { path: /v1/charges }, per: [ip], limit: \"1/h burst 2\" }
  - { id: watched, per: [ip], mode: shadow, limit: \"1/h burst 1\" }
";

/// For Envoy, whose descriptors say of some requests which tenant's they are.
const TENANTS: &str = "  - { id: tenant, per: [\"attribute:tenant\"], limit: \"1/h burst 3\" }\n";

const FORGED: &str = "X-Forwarded-For: 198.51.100.7\r\n";

fn served() -> Served {
    Served::start(&format!("service: {{}}\n{RULES}"))
}

/// The same over a Redis, which may be stopped.
fn served_over_redis() -> (Served, RedisServer) {
    let redis = RedisServer::start();
    let config = format!(
        "service: {{}}\nstore: {{ redis: \"{}\", deadline: 2s, instances: 1 }}\nidentity: {{ trusted_proxies: [127.0.0.1] }}
rules: [{{ id: address, per: [ip], limit: \"1/h burst 100\" }}]",
        redis.url()
    );
    (Served::start(&config), redis)
}

/// Stops Redis in between: every request is answered, and the limit goes on, as a careful share.
fn goes_on_without_redis(gateway: &Gateway, redis: RedisServer) {
    assert_eq!(gateway.statuses("/", "", 20), [200; 20]);
    drop(redis);
    let statuses = gateway.statuses("/", "", 100);
    let passed = statuses.iter().filter(|status| **status == 200).count();
    let limited = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!(passed + limited, 100, "{statuses:?}");
    assert_eq!(passed, 80, "a careful share of what is allowed");
}

#[test]
fn nginx_limits_by_what_the_service_says() {
    let served = served();
    let gateway = Gateway::start("nginx.conf", &served, nginx);
    let first = gateway.get("/v1/charges?a=1", "");
    assert_eq!((first.status, first.body.as_str()), (200, "reached"));
    assert_eq!(first.header("x-ratelimit-remaining"), "1");
    assert_eq!(gateway.get("/v1/charges", FORGED).status, 200);
    let hits = gateway.upstream.hits();
    let denied = gateway.get("/v1/charges", FORGED);
    assert_eq!(denied.status, 429, "a forged address is no other caller");
    assert_eq!(denied.header("content-type"), "application/problem+json");
    let wait: u64 = denied.header("retry-after").parse().unwrap();
    assert!((3_500..=3_600).contains(&wait), "{wait}");
    assert_eq!(denied.header("x-ratelimit-limit"), "2");
    assert_eq!(gateway.get("/%61%2fb", "").status, 400, "an odd path");
    assert_eq!(
        gateway.upstream.hits(),
        hits,
        "what is denied reaches nobody"
    );
    let left = gateway.statuses(
        "/",
        "X-Original-URI: /free\r\nX-Original-Method: PUT\r\n",
        9,
    );
    assert_eq!(left, [200, 200, 200, 200, 200, 200, 200, 200, 429]);
}

#[test]
fn nginx_goes_on_while_redis_is_away() {
    let (served, redis) = served_over_redis();
    goes_on_without_redis(&Gateway::start("nginx.conf", &served, nginx), redis);
}

#[test]
fn caddy_limits_by_what_the_service_says() {
    let served = served();
    let gateway = Gateway::start("Caddyfile", &served, caddy);
    assert_eq!(gateway.get("/v1/charges?a=1", "").body, "reached");
    assert_eq!(gateway.get("/v1/charges", FORGED).body, "reached");
    let hits = gateway.upstream.hits();
    let denied = gateway.get("/v1/charges", FORGED);
    assert_eq!(denied.status, 429, "a forged address is no other caller");
    assert_eq!(denied.header("content-type"), "application/problem+json");
    assert_eq!(denied.header("x-ratelimit-remaining"), "0");
    assert!(
        denied.body.contains("\"violated-policies\":[\"charges\"]"),
        "{}",
        denied.body
    );
    assert_eq!(
        gateway.upstream.hits(),
        hits,
        "what is denied reaches nobody"
    );
}

#[test]
fn envoy_limits_by_what_the_service_says() {
    let served = served();
    let gateway = Gateway::start("envoy.yaml", &served, envoy);
    // Envoy lets requests pass until it has found us.
    until("envoy does not ask", || {
        !gateway.get("/", "").header("x-ratelimit-limit").is_empty()
    });
    let first = gateway.get("/v1/charges?a=1", "");
    assert_eq!((first.status, first.body.as_str()), (200, "reached"));
    assert_eq!(first.header("x-ratelimit-remaining"), "1");
    assert!(
        first.header("ratelimit-policy").contains("\"charges\";q=2"),
        "{first:?}"
    );
    assert_eq!(gateway.get("/v1/charges", FORGED).status, 200);
    let hits = gateway.upstream.hits();
    let denied = gateway.get("/v1/charges", FORGED);
    assert_eq!(denied.status, 429, "a forged address is no other caller");
    assert_eq!(denied.header("x-envoy-ratelimited"), "true");
    assert_eq!(denied.header("content-type"), "application/problem+json");
    assert!(!denied.header("retry-after").is_empty());
    assert!(
        denied.body.contains("\"violated-policies\":[\"charges\"]"),
        "{}",
        denied.body
    );
    assert_eq!(
        gateway.upstream.hits(),
        hits,
        "what is denied reaches nobody"
    );
    assert_eq!(
        gateway.get("/a%2fb", "").status,
        429,
        "an odd path does not slip through"
    );
}

#[test]
fn envoys_descriptors_are_charged_together_and_shadows_change_nothing() {
    let serving = Serving::by(&format!(
        "service: {{ listen: 127.0.0.1:0 }}\nadmin: {{ listen: 127.0.0.1:0 }}\nlog: {{ format: json }}\n{RULES}{TENANTS}"
    ));
    let gateway = Gateway::asking(serving.address("service"), "envoy.yaml", patient, envoy);
    let would_deny = || {
        let metrics = serving.get("admin", "/metrics", &[OPEN_METRICS]).body;
        let samples = check_open_metrics(&metrics);
        // It is not there until there is something to count.
        let watched = samples.get("tollgate_shadow_denials_total{rule=\"watched\"}");
        watched.copied().unwrap_or_default()
    };
    until("envoy does not ask", || {
        !gateway.get("/", "").header("x-ratelimit-limit").is_empty()
    });
    assert_eq!(would_deny(), 0.0, "it has room for one");
    let tenant = gateway.statuses("/", "X-Tenant: a\r\n", 4);
    assert_eq!(tenant, [200, 200, 200, 429], "a descriptor for a header");
    assert_eq!(would_deny(), 4.0, "three that passed among them");
    let left = gateway.get("/", "").header("ratelimit").to_owned();
    assert!(
        left.contains("\"address\";r=5"),
        "one asked, three passed, and the denied one charged no address: {left}"
    );
}

#[test]
fn envoy_limits_requests_whose_headers_are_not_utf8() {
    let served = Served::start(&format!("service: {{}}\n{RULES}{TENANTS}"));
    let gateway = Gateway::start("envoy.yaml", &served, envoy);
    until("envoy does not ask", || {
        !gateway.get("/", "").header("x-ratelimit-limit").is_empty()
    });
    let status = |tenant: &[u8]| {
        let start = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Tenant: ";
        let request = [start.as_slice(), tenant, b"\r\n\r\n"].concat();
        ask_bytes(gateway.address, &request).status
    };
    // By the limit of a tenant, and then by that of the address.
    let tenant: Vec<u16> = (0..4).map(|_| status(b"caf\xe9")).collect();
    assert_eq!(tenant, [200, 200, 200, 429]);
    let other: Vec<u16> = (0..4).map(|_| status(b"\xff")).collect();
    assert_eq!(other, [200, 200, 200, 429]);
    let hits = gateway.upstream.hits();
    let rest: Vec<u16> = (0..20).map(|nth| status(&[0xff, 0x80 + nth])).collect();
    assert!(
        rest.iter().filter(|status| **status == 200).count() <= 3,
        "{rest:?}"
    );
    assert!(
        rest.ends_with(&[429; 10]),
        "no spelling evades the address: {rest:?}"
    );
    assert!(gateway.upstream.hits() <= hits + 3);
}

/// An action of Envoy reads the first line of a header, and an API may read the last, or one whose name has underscores.
#[test]
fn no_second_tenant_header_evades_its_limit_behind_envoy() {
    let served = Served::start(&format!(
        "service: {{}}\nrules:\n  - {{ id: address, per: [ip], limit: \"1/h burst 1000\" }}\n{TENANTS}"
    ));
    let gateway = Gateway::start("envoy.yaml", &served, envoy);
    until("envoy does not ask", || {
        !gateway.get("/", "").header("x-ratelimit-limit").is_empty()
    });
    let forms = [
        "X-Tenant: junkN\r\nX-Tenant: TENANT\r\n",
        "X-Tenant: TENANT\r\nX-Tenant: junkN\r\n",
        "X-Tenant: junkN\r\nAccept: a\r\nx-tenant: TENANT\r\n",
        "X-Tenant:\r\nX-Tenant: TENANT\r\n",
        "X-Tenant: TENANT\r\nX-Tenant:\r\n",
        "X-Tenant: junkN\r\nX-Tenant: TENANT\r\nX-Tenant: junkN\r\n",
        "X_Tenant: TENANT\r\n",
        "X_Tenant: TENANT\r\nX-Tenant: junkN\r\n",
    ];
    for (nth, form) in forms.iter().enumerate() {
        let tenant = format!("tenant-{nth}");
        for attempt in 0..8 {
            let form = form.replace("TENANT", &tenant);
            gateway.get("/", &form.replace('N', &format!("{nth}-{attempt}")));
        }
        let heads = gateway.upstream.heads();
        let named = heads.iter().filter(|head| head.contains(&tenant));
        let count = named.count();
        assert!(count <= 3, "{count} of {form:?}");
    }
    for head in gateway.upstream.heads() {
        let head = head.to_ascii_lowercase().replace('_', "-");
        assert!(head.matches("\r\nx-tenant:").count() <= 1, "{head:?}");
    }
    assert_eq!(
        gateway.statuses("/", "X-Tenant: last\r\n", 4),
        [200, 200, 200, 429]
    );
}

#[test]
fn envoy_goes_on_while_redis_is_away_and_by_redis_when_it_is_back() {
    let (served, mut redis) = served_over_redis();
    let gateway = Gateway::start("envoy.yaml", &served, envoy);
    until("envoy does not ask", || {
        let look = gateway.get("/", "");
        !look.header("x-ratelimit-limit").is_empty()
    });
    redis.stop();
    let replies: Vec<Reply> = (0..120).map(|_| gateway.get("/", "")).collect();
    let decided = replies
        .iter()
        .filter(|reply| !reply.header("x-ratelimit-limit").is_empty());
    assert_eq!(decided.count(), 120, "every one was decided");
    let passed = replies.iter().filter(|reply| reply.status == 200).count();
    assert_eq!(passed, 80, "a careful share of what is allowed");
    redis.start_again();
    // Here nothing is left, and there nothing was used.
    let look = || gateway.get("/", "");
    let first = serving::until("redis to be asked", look, |reply| reply.status == 200);
    assert_eq!(first.header("x-ratelimit-remaining"), "99", "{first:?}");
    let second = gateway.get("/", "");
    assert_eq!(second.header("x-ratelimit-remaining"), "98", "{second:?}");
    assert!(redis.everything().contains("tollgate:"));
}

/// Over a Redis that fails in this way, behind an Envoy that waits as long as it does by default, 20 ms, and takes what comes later for an error. A
/// few may be late, as the machine, or its host, may be busy with others; on one that is not, none is. If decisions waited for Redis, all would be.
fn decides_within_envoys_time(breaker: &str, redis_fails: impl FnOnce(&mut RedisServer)) {
    const DECISIONS: usize = 300;
    const MOST_LATE: usize = DECISIONS / 4;
    let mut redis = RedisServer::start();
    // The deadline to the store is the default.
    let serving = Serving::by(&format!(
        "
service: {{ listen: 127.0.0.1:0 }}
store: {{ redis: \"{}\", instances: 1{breaker} }}
log: {{ format: json }}
rules: [{{ id: address, per: [ip], limit: \"1/h burst 100\" }}]
",
        redis.url()
    ));
    let strict = |text: &str| {
        assert!(text.contains(ENVOYS_TIMEOUT) && text.contains(ENVOY_ADMITS));
        // Without a timeout of its own, Envoy waits 20 ms.
        text.replace(ENVOYS_TIMEOUT, "")
            .replace(ENVOY_ADMITS, "failure_mode_deny: true")
    };
    let gateway = Gateway::asking(serving.address("service"), "envoy.yaml", strict, envoy);
    until("envoy does not ask", || {
        let look = gateway.get("/", "");
        !look.header("x-ratelimit-limit").is_empty()
    });
    redis_fails(&mut redis);
    let replies: Vec<Reply> = (0..DECISIONS).map(|_| gateway.get("/", "")).collect();
    let count = |is: &dyn Fn(&Reply) -> bool| replies.iter().filter(|reply| is(reply)).count();
    let decided = count(&|reply| !reply.header("x-ratelimit-limit").is_empty());
    let late = count(&|reply| reply.status == 500);
    let _ = writeln!(
        std::io::stderr(),
        "{decided} decided in time, {late} too late"
    );
    assert_eq!(decided + late, replies.len());
    assert!(late <= MOST_LATE, "{late} came too late");
    // The limit goes on in this process, as a careful share. Who hears too late was counted all the same.
    let passed = count(&|reply| reply.status == 200);
    assert!((80 - late..=80).contains(&passed), "{passed} passed");
}

/// The breaker never opens, so that every single decision waits for Redis in vain, for as long as it may.
const ALL_WAIT: &str = ", breaker: { failures: 1000, within: 1ms }";

#[test]
fn decisions_come_within_envoys_default_time_while_redis_is_stuck() {
    decides_within_envoys_time("", |redis| redis.pause());
    decides_within_envoys_time(ALL_WAIT, |redis| redis.pause());
}

#[test]
fn decisions_come_within_envoys_default_time_while_redis_is_gone() {
    decides_within_envoys_time("", RedisServer::stop);
    decides_within_envoys_time(ALL_WAIT, RedisServer::stop);
}

/// As long as a throttled container stands still, or a busy machine lets a process wait.
const STALL: Duration = Duration::from_millis(100);

/// What several requests get that come while the service stands still for a moment. `None` if that moment became longer than a gateway
/// waits for a decision, as it may on a machine that is busy with other tests.
fn statuses_across_a_stall(
    gateway: &Gateway,
    service: &Serving,
    waits: Duration,
) -> Option<Vec<u16>> {
    service.signal("STOP");
    let began = Instant::now();
    let statuses = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| gateway.get("/", "").status))
            .collect();
        std::thread::sleep(STALL);
        service.signal("CONT");
        asking
            .into_iter()
            .map(|asked| asked.join().unwrap())
            .collect()
    });
    (began.elapsed() < waits).then_some(statuses)
}

/// Uses up the limit, and then has the service stand still while requests come.
fn limits_across_a_stall(file: &str, waits: Duration, command: impl Fn(PathBuf) -> Command) {
    const TRIES: usize = 20;
    let service = Serving::by(
        "
service: { listen: 127.0.0.1:0 }
log: { format: json }
identity: { trusted_proxies: [127.0.0.1] }
rules: [{ id: address, per: [ip], limit: \"1/h burst 5\" }]
",
    );
    let as_shipped = str::to_owned;
    let gateway = Gateway::asking(service.address("service"), file, as_shipped, command);
    until("the limit is not used up", || {
        gateway.get("/", "").status == 429
    });
    let mut rounds = (0..TRIES).map(|_| statuses_across_a_stall(&gateway, &service, waits));
    let statuses = rounds.find_map(|statuses| statuses);
    let statuses = statuses.expect("no stall was shorter than the gateway waits");
    assert_eq!(
        statuses, [429; 8],
        "a stall is no reason to admit or to fail"
    );
}

#[test]
fn envoy_admits_no_request_while_the_service_stalls() {
    limits_across_a_stall("envoy.yaml", Duration::from_millis(250), envoy);
}

#[test]
fn nginx_answers_as_usual_after_the_service_stalled() {
    limits_across_a_stall("nginx.conf", Duration::from_secs(2), nginx);
}

#[test]
fn caddy_answers_as_usual_after_the_service_stalled() {
    limits_across_a_stall("Caddyfile", Duration::from_secs(2), caddy);
}

/// Counts the statuses of `count` requests while the service is down.
fn statuses_without_a_service(
    file: &str,
    count: usize,
    command: impl Fn(PathBuf) -> Command,
) -> BTreeMap<u16, usize> {
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let gateway = Gateway::asking(nobody, file, str::to_owned, command);
    let mut counts = BTreeMap::new();
    for status in gateway.statuses("/", "", count) {
        *counts.entry(status).or_default() += 1;
    }
    counts
}

#[test]
fn envoy_admits_no_more_than_its_local_limit_without_the_service() {
    // A bucket of ten in the place of the one that is shipped, and hardly a token more in the time of a test.
    let small = |text: &str| {
        let shipped = "{ max_tokens: 1000, tokens_per_fill: 100, fill_interval: 0.1s }";
        assert!(text.contains(shipped));
        text.replace(
            shipped,
            "{ max_tokens: 10, tokens_per_fill: 1, fill_interval: 3600s }",
        )
    };
    let nobody = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let gateway = Gateway::asking(nobody, "envoy.yaml", small, envoy);
    let statuses = gateway.statuses("/", "", 15);
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 5]].concat());
    assert_eq!(gateway.upstream.hits(), 10);
}

#[test]
fn nginx_and_caddy_reject_requests_without_the_service() {
    let of = |status, count| BTreeMap::from([(status, count)]);
    assert_eq!(
        statuses_without_a_service("nginx.conf", 3, nginx),
        of(500, 3)
    );
    assert_eq!(
        statuses_without_a_service("Caddyfile", 3, caddy),
        of(502, 3)
    );
}

#[test]
fn the_documentation_shows_the_files_that_are_tested() {
    let text = std::fs::read_to_string(format!("{ROOT}/docs/decision-service.md")).unwrap();
    for file in ["nginx.conf", "Caddyfile", "envoy.yaml", "traefik.yaml"] {
        assert!(
            text.contains(&format!("(gateways/{file})")),
            "{file} is not linked"
        );
    }
}
