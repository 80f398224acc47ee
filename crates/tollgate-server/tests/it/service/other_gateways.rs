//! Other people's gateways between clients and an API: nginx, Caddy and Envoy, with the files in docs/gateways, ask the service.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use tollgate_testing::client::{request, send};
use tollgate_testing::ports::{closed_address, free_port};
use tollgate_testing::servers::RedisServer;
use tollgate_testing::wait::{until, until_value};
use tollgate_testing::{Response, Running, Upstream, http2};

use crate::kit;
use crate::kit::open_metrics::{OPEN_METRICS, check_open_metrics};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// In the file for Envoy: how long it waits for a decision, and what it does without one.
const ENVOY_TIMEOUT: &str = "timeout: 0.25s";
const ENVOY_ADMITS: &str = "failure_mode_deny: false";

/// A longer timeout, because a machine that is busy with other tests is slower than one that serves.
fn patient(config: &str) -> String {
    config.replace(ENVOY_TIMEOUT, "timeout: 10s")
}

/// A gateway of other people by its file in the documentation, with other ports, and an API behind it.
struct OtherGateway {
    process: Child,
    address: SocketAddr,
    upstream: Upstream,
    folder: TempDir,
}

impl OtherGateway {
    /// Asks this service, and waits long for decisions.
    fn start(file: &str, service: &Running, command: impl Fn(PathBuf) -> Command) -> Self {
        Self::asking(service.address("service"), file, patient, command)
    }

    /// Asks the service at this address. `change` changes the content of the file.
    fn asking(
        service: SocketAddr,
        file: &str,
        change: impl Fn(&str) -> String,
        command: impl Fn(PathBuf) -> Command,
    ) -> Self {
        let upstream = Upstream::named("reached");
        let config = std::fs::read_to_string(format!("{ROOT}/docs/gateways/{file}")).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let ports = [
            ("8080", address.port()),
            ("8081", service.port()),
            ("3000", upstream.address.port()),
        ];
        let config = ports.iter().fold(change(&config), |config, (from, to)| {
            assert!(config.contains(from), "{file} has no port {from}");
            config.replace(from, &to.to_string())
        });
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        std::fs::write(&path, config).unwrap();
        let mut command = command(path);
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = command
            .env("HOME", folder.path())
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{command:?}: {error}; `make needs` installs what is missing")
            });
        let gateway = Self {
            process,
            address,
            upstream,
            folder,
        };
        until(&format!("a listener of {file}"), || {
            std::net::TcpStream::connect(address).is_ok()
        });
        gateway
    }

    /// Envoy with its file. Ready when it asks the service; until then it admits requests.
    fn envoy(service: &Running, change: impl Fn(&str) -> String) -> Self {
        let gateway = Self::asking(service.address("service"), "envoy.yaml", change, envoy);
        until("envoy to ask the service", || {
            is_decided(&gateway.get("/", &[]))
        });
        gateway
    }

    /// The response to a GET. `headers` are whole lines.
    fn get(&self, path: &str, headers: &[&str]) -> Response {
        let headers = [&["Host: localhost"], headers].concat();
        request(self.address, "GET", path, &headers, "").unwrap()
    }

    /// The statuses of this many requests.
    fn statuses(&self, path: &str, headers: &[&str], count: usize) -> Vec<u16> {
        (0..count).map(|_| self.get(path, headers).status).collect()
    }
}

/// The value of a header; several values are joined, so that a duplicate is not overlooked. Empty if there is none.
fn header(response: &Response, name: &str) -> String {
    response.headers(name).join(", ")
}

/// Whether the service decided about this request.
fn is_decided(response: &Response) -> bool {
    !header(response, "x-ratelimit-limit").is_empty()
}

impl Drop for OtherGateway {
    fn drop(&mut self) {
        // The workers of nginx end with it if it is terminated, but not if it is killed.
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
    // It runs in the foreground, and writes in its folder only.
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
    // Without hot restart, which needs shared memory with a fixed name.
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

/// For Envoy, which sends a descriptor with the tenant of requests that name one.
const TENANTS: &str = "  - { id: tenant, per: [\"attribute:tenant\"], limit: \"1/h burst 3\" }\n";

const FORGED: &[&str] = &["X-Forwarded-For: 198.51.100.7"];

/// A service with the [`RULES`].
fn service() -> Running {
    kit::service("", RULES)
}

/// A service over a Redis, which can be killed.
fn service_over_redis() -> (Running, RedisServer) {
    let redis = RedisServer::start();
    let config = format!(
        "store: {{ redis: \"{}\", deadline: 2s, instances: 1 }}
identity: {{ trusted_proxies: [127.0.0.1] }}
rules: [{{ id: address, per: [ip], limit: \"1/h burst 100\" }}]",
        redis.url()
    );
    (kit::service("", &config), redis)
}

/// Ends Redis between requests: every request is answered, and the limit remains, as a conservative share.
fn check_limit_without_redis(gateway: &OtherGateway, redis: RedisServer) {
    assert_eq!(gateway.statuses("/", &[], 20), [200; 20]);
    drop(redis);
    let statuses = gateway.statuses("/", &[], 100);
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    let denied = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!(admitted + denied, 100, "{statuses:?}");
    assert_eq!(admitted, 80, "a conservative share of the limit");
}

#[test]
fn nginx_enforces_the_decisions_of_the_service() {
    let service = service();
    let gateway = OtherGateway::start("nginx.conf", &service, nginx);
    let first = gateway.get("/v1/charges?a=1", &[]);
    assert_eq!((first.status, &*first.text()), (200, "reached"));
    assert_eq!(header(&first, "x-ratelimit-remaining"), "1");
    assert_eq!(gateway.get("/v1/charges", FORGED).status, 200);
    let hits = gateway.upstream.hits();
    let denied = gateway.get("/v1/charges", FORGED);
    assert_eq!(denied.status, 429, "a forged address is not another client");
    assert_eq!(header(&denied, "content-type"), "application/problem+json");
    let wait: u64 = header(&denied, "retry-after").parse().unwrap();
    assert!((3_500..=3_600).contains(&wait), "{wait}");
    assert_eq!(header(&denied, "x-ratelimit-limit"), "2");
    assert_eq!(gateway.get("/%61%2fb", &[]).status, 400, "an odd path");
    assert_eq!(
        gateway.upstream.hits(),
        hits,
        "denied requests do not reach the API"
    );
    let left = gateway.statuses("/", &["X-Original-URI: /free", "X-Original-Method: PUT"], 9);
    assert_eq!(left, [200, 200, 200, 200, 200, 200, 200, 200, 429]);
}

#[test]
fn nginx_keeps_to_the_limit_while_redis_is_down() {
    let (service, redis) = service_over_redis();
    let gateway = OtherGateway::start("nginx.conf", &service, nginx);
    check_limit_without_redis(&gateway, redis);
}

#[test]
fn caddy_enforces_the_decisions_of_the_service() {
    let service = service();
    let gateway = OtherGateway::start("Caddyfile", &service, caddy);
    assert_eq!(gateway.get("/v1/charges?a=1", &[]).text(), "reached");
    assert_eq!(gateway.get("/v1/charges", FORGED).text(), "reached");
    let hits = gateway.upstream.hits();
    let denied = gateway.get("/v1/charges", FORGED);
    assert_eq!(denied.status, 429, "a forged address is not another client");
    assert_eq!(header(&denied, "content-type"), "application/problem+json");
    assert_eq!(header(&denied, "x-ratelimit-remaining"), "0");
    assert!(
        (denied.text()).contains("\"violated-policies\":[\"charges\"]"),
        "{denied:?}"
    );
    assert_eq!(
        gateway.upstream.hits(),
        hits,
        "denied requests do not reach the API"
    );
}

#[test]
fn underscores_do_not_hide_a_client_behind_caddy() {
    let service = kit::service(
        "",
        "
identity: { client: [\"header:X-User-Id\", ip], trusted_proxies: [127.0.0.1] }
rules: [{ id: client, per: [client], limit: \"1/h burst 3\" }]
",
    );
    let gateway = OtherGateway::start("Caddyfile", &service, caddy);
    let statuses = gateway.statuses("/", &["X_User_Id: 42", "X_Other: 1"], 4);
    assert_eq!(statuses, [200, 200, 200, 429], "they are dropped");
    for request in gateway.upstream.requests() {
        let mut names = request.headers.keys();
        assert!(
            !names.any(|name| name.as_str().contains('_')),
            "{request:?}"
        );
    }
    // Without that line, the service refuses what servers may take for the header of a client.
    let passing = |config: &str| {
        let line = "request_header -*_*";
        assert!(config.contains(line));
        patient(config).replace(line, "")
    };
    let gateway = OtherGateway::asking(service.address("service"), "Caddyfile", passing, caddy);
    let statuses = gateway.statuses("/", &["X_User_Id: 42"], 2);
    assert_eq!(statuses, [400, 400]);
    assert_eq!(gateway.upstream.hits(), 0);
}

#[test]
fn envoy_enforces_the_decisions_of_the_service() {
    let service = service();
    let gateway = OtherGateway::envoy(&service, patient);
    let first = gateway.get("/v1/charges?a=1", &[]);
    assert_eq!((first.status, &*first.text()), (200, "reached"));
    assert_eq!(header(&first, "x-ratelimit-remaining"), "1");
    assert!(
        header(&first, "ratelimit-policy").contains("\"charges\";q=2"),
        "{first:?}"
    );
    assert_eq!(gateway.get("/v1/charges", FORGED).status, 200);
    let hits = gateway.upstream.hits();
    let denied = gateway.get("/v1/charges", FORGED);
    assert_eq!(denied.status, 429, "a forged address is not another client");
    assert_eq!(header(&denied, "x-envoy-ratelimited"), "true");
    assert_eq!(header(&denied, "content-type"), "application/problem+json");
    assert!(!header(&denied, "retry-after").is_empty());
    assert!(
        (denied.text()).contains("\"violated-policies\":[\"charges\"]"),
        "{denied:?}"
    );
    assert_eq!(
        gateway.upstream.hits(),
        hits,
        "denied requests do not reach the API"
    );
    assert_eq!(
        gateway.get("/a%2fb", &[]).status,
        429,
        "an odd path does not slip through"
    );
}

#[test]
fn all_descriptors_of_envoy_are_charged_or_none_and_shadow_rules_deny_nothing() {
    let service = kit::service("", &format!("{RULES}{TENANTS}"));
    let gateway = OtherGateway::envoy(&service, patient);
    let shadow_denials = || {
        let page = service.get("admin", "/metrics", &[OPEN_METRICS]).text();
        let samples = check_open_metrics(&page);
        // The series begins with the first denial.
        let count = samples.get("tollgate_shadow_denials_total{rule=\"watched\"}");
        count.copied().unwrap_or_default()
    };
    assert_eq!(shadow_denials(), 0.0, "its burst is one");
    let tenant = gateway.statuses("/", &["X-Tenant: a"], 4);
    assert_eq!(tenant, [200, 200, 200, 429], "a descriptor with a header");
    assert_eq!(shadow_denials(), 4.0, "also for the three admitted");
    let limit = header(&gateway.get("/", &[]), "ratelimit");
    assert!(
        limit.contains("\"address\";r=5"),
        "one before, three admitted, and the denied one did not charge the address: {limit}"
    );
}

#[test]
fn envoy_limits_requests_whose_headers_are_not_utf8() {
    let service = kit::service("", &format!("{RULES}{TENANTS}"));
    let gateway = OtherGateway::envoy(&service, patient);
    let status = |tenant: &[u8]| {
        let start = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Tenant: ";
        let request = [start.as_slice(), tenant, b"\r\n\r\n"].concat();
        send(gateway.address, &request).status
    };
    // The tenant's limit denies, and then that of the address.
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

#[tokio::test(flavor = "multi_thread")]
async fn spaces_in_http_2_do_not_evade_a_limit_behind_envoy() {
    let service = kit::service("", &format!("{RULES}{TENANTS}"));
    let gateway = OtherGateway::envoy(&service, patient);
    let mut statuses = Vec::new();
    for form in ["acme", " acme", "acme ", "\tacme", "acme\t", " acme\t"] {
        let mut sender = http2::connect(gateway.address).await;
        let mut request = http2::get("/");
        let value = http::HeaderValue::from_static(form);
        request.headers_mut().insert("x-tenant", value);
        let response = sender.send_request(request).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429, 429, 429]);
}

/// An action of Envoy reads the first line of a header. An API may read the last, or a header whose name has underscores.
#[test]
fn no_second_tenant_header_evades_its_limit_behind_envoy() {
    let rules = "rules:\n  - { id: address, per: [ip], limit: \"1/h burst 1000\" }";
    let service = kit::service("", &format!("{rules}\n{TENANTS}"));
    let gateway = OtherGateway::envoy(&service, patient);
    let forms: [&[&str]; 8] = [
        &["X-Tenant: junkN", "X-Tenant: TENANT"],
        &["X-Tenant: TENANT", "X-Tenant: junkN"],
        &["X-Tenant: junkN", "Accept: a", "x-tenant: TENANT"],
        &["X-Tenant:", "X-Tenant: TENANT"],
        &["X-Tenant: TENANT", "X-Tenant:"],
        &["X-Tenant: junkN", "X-Tenant: TENANT", "X-Tenant: junkN"],
        &["X_Tenant: TENANT"],
        &["X_Tenant: TENANT", "X-Tenant: junkN"],
    ];
    for (nth, form) in forms.iter().enumerate() {
        let tenant = format!("tenant-{nth}");
        for attempt in 0..8 {
            let number = format!("{nth}-{attempt}");
            let fill_in = |line: &&str| line.replace("TENANT", &tenant).replace('N', &number);
            let lines: Vec<String> = form.iter().map(fill_in).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            gateway.get("/", &lines);
        }
        let requests = gateway.upstream.requests();
        let of_tenant = (requests.iter()).filter(|it| format!("{it:?}").contains(&tenant));
        let count = of_tenant.count();
        assert!(count <= 3, "{count} of {form:?}");
    }
    for request in gateway.upstream.requests() {
        let names = (request.headers.iter()).map(|(name, _)| name.as_str().replace('_', "-"));
        let count = names.filter(|name| name == "x-tenant").count();
        assert!(count <= 1, "{request:?}");
    }
    assert_eq!(
        gateway.statuses("/", &["X-Tenant: last"], 4),
        [200, 200, 200, 429]
    );
}

#[test]
fn envoy_keeps_to_the_limit_while_redis_is_down_and_afterwards() {
    let (service, mut redis) = service_over_redis();
    let gateway = OtherGateway::envoy(&service, patient);
    redis.kill();
    let responses: Vec<Response> = (0..120).map(|_| gateway.get("/", &[])).collect();
    let decided = responses.iter().filter(|response| is_decided(response));
    assert_eq!(decided.count(), 120, "each was decided");
    let admitted = responses.iter().filter(|response| response.status == 200);
    assert_eq!(admitted.count(), 80, "a conservative share of the limit");
    redis.restart();
    // The share in the process is used up, and in Redis nothing is used.
    let first = until_value(
        "a decision of Redis",
        || gateway.get("/", &[]),
        |response| response.status == 200,
    );
    assert_eq!(header(&first, "x-ratelimit-remaining"), "99", "{first:?}");
    let second = gateway.get("/", &[]);
    assert_eq!(header(&second, "x-ratelimit-remaining"), "98", "{second:?}");
    assert!(redis.everything().contains("tollgate:"));
}

/// Checks decisions over a Redis that fails in this way, behind an Envoy that waits as long as it does by default, 20 ms, and takes
/// later decisions for errors. A few may be late, as the machine may be busy with other work; on one that is not, none is. If
/// decisions waited for Redis, all would be late.
fn check_decisions_within_20_ms(breaker: &str, fail: impl FnOnce(&mut RedisServer)) {
    const REQUESTS: usize = 300;
    const MAX_LATE: usize = REQUESTS / 4;
    let mut redis = RedisServer::start();
    // The deadline of the store is the default.
    let service = kit::serve(&format!(
        "
service: {{ listen: 127.0.0.1:0 }}
store: {{ redis: \"{}\", instances: 1{breaker} }}
log: {{ format: json }}
rules: [{{ id: address, per: [ip], limit: \"1/h burst 100\" }}]
",
        redis.url()
    ));
    let strict = |config: &str| {
        assert!(config.contains(ENVOY_TIMEOUT) && config.contains(ENVOY_ADMITS));
        // Without a timeout in the file, Envoy waits 20 ms.
        config
            .replace(ENVOY_TIMEOUT, "")
            .replace(ENVOY_ADMITS, "failure_mode_deny: true")
    };
    let gateway = OtherGateway::envoy(&service, strict);
    fail(&mut redis);
    let responses: Vec<Response> = (0..REQUESTS).map(|_| gateway.get("/", &[])).collect();
    let with_status = |status| (responses.iter()).filter(move |response| response.status == status);
    let decided = responses.iter().filter(|response| is_decided(response));
    let (decided, late) = (decided.count(), with_status(500).count());
    let _ = writeln!(
        std::io::stderr(),
        "{decided} decided in time, {late} too late"
    );
    assert_eq!(decided + late, responses.len());
    assert!(late <= MAX_LATE, "{late} were too late");
    // The limit remains in this process, as a conservative share. Requests whose decisions were late were counted as well.
    let admitted = with_status(200).count();
    assert!((80 - late..=80).contains(&admitted), "{admitted} admitted");
}

/// The breaker never opens, so that every decision waits for Redis, up to its deadline.
const ALL_WAIT: &str = ", breaker: { failures: 1000, within: 1ms }";

#[test]
fn decisions_come_within_envoys_default_time_while_redis_is_stuck() {
    check_decisions_within_20_ms("", |redis| redis.pause());
    check_decisions_within_20_ms(ALL_WAIT, |redis| redis.pause());
}

#[test]
fn decisions_come_within_envoys_default_time_while_redis_is_gone() {
    check_decisions_within_20_ms("", RedisServer::kill);
    check_decisions_within_20_ms(ALL_WAIT, RedisServer::kill);
}

/// As long as a throttled container pauses, or a process waits on a busy machine.
const STALL: Duration = Duration::from_millis(100);

/// The statuses of several requests that arrive while the service is paused for a moment. `None` if that moment became longer than the
/// gateway waits for a decision, as it may on a machine that is busy with other tests.
fn statuses_across_a_stall(
    gateway: &OtherGateway,
    service: &Running,
    timeout: Duration,
) -> Option<Vec<u16>> {
    service.signal("STOP");
    let began = Instant::now();
    let statuses = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| gateway.get("/", &[]).status))
            .collect();
        std::thread::sleep(STALL);
        service.signal("CONT");
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect()
    });
    (began.elapsed() < timeout).then_some(statuses)
}

/// Checks that requests beyond the limit are denied also while the service is paused for less than the gateway waits for a decision.
fn check_limit_across_a_stall(file: &str, timeout: Duration, command: impl Fn(PathBuf) -> Command) {
    const TRIES: usize = 20;
    let service = kit::serve(
        "
service: { listen: 127.0.0.1:0 }
log: { format: json }
identity: { trusted_proxies: [127.0.0.1] }
rules: [{ id: address, per: [ip], limit: \"1/h burst 5\" }]
",
    );
    let as_shipped = str::to_owned;
    let gateway = OtherGateway::asking(service.address("service"), file, as_shipped, command);
    until("a denial", || gateway.get("/", &[]).status == 429);
    let mut rounds = (0..TRIES).map(|_| statuses_across_a_stall(&gateway, &service, timeout));
    let statuses = rounds.find_map(|statuses| statuses);
    let statuses = statuses.expect("a stall shorter than the timeout of the gateway");
    assert_eq!(
        statuses, [429; 8],
        "a stall neither admits requests nor fails them"
    );
}

#[test]
fn envoy_admits_no_denied_request_while_the_service_stalls() {
    check_limit_across_a_stall("envoy.yaml", Duration::from_millis(250), envoy);
}

#[test]
fn nginx_responds_as_usual_after_the_service_stalled() {
    check_limit_across_a_stall("nginx.conf", Duration::from_secs(2), nginx);
}

#[test]
fn caddy_responds_as_usual_after_the_service_stalled() {
    check_limit_across_a_stall("Caddyfile", Duration::from_secs(2), caddy);
}

/// Counts the statuses of `count` requests while the service is down.
fn statuses_without_a_service(
    file: &str,
    count: usize,
    command: impl Fn(PathBuf) -> Command,
) -> BTreeMap<u16, usize> {
    let gateway = OtherGateway::asking(closed_address(), file, str::to_owned, command);
    let mut counts = BTreeMap::new();
    for status in gateway.statuses("/", &[], count) {
        *counts.entry(status).or_default() += 1;
    }
    counts
}

#[test]
fn envoy_admits_no_more_than_its_local_limit_without_the_service() {
    // A bucket of ten instead of the shipped one, and hardly another token in the time of a test.
    let small = |config: &str| {
        let shipped = "{ max_tokens: 1000, tokens_per_fill: 100, fill_interval: 0.1s }";
        assert!(config.contains(shipped));
        config.replace(
            shipped,
            "{ max_tokens: 10, tokens_per_fill: 1, fill_interval: 3600s }",
        )
    };
    let gateway = OtherGateway::asking(closed_address(), "envoy.yaml", small, envoy);
    let statuses = gateway.statuses("/", &[], 15);
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
fn the_documentation_links_to_the_tested_files() {
    let text = std::fs::read_to_string(format!("{ROOT}/docs/decision-service.md")).unwrap();
    for file in ["nginx.conf", "Caddyfile", "envoy.yaml", "traefik.yaml"] {
        assert!(
            text.contains(&format!("(gateways/{file})")),
            "{file} is not linked"
        );
    }
}
