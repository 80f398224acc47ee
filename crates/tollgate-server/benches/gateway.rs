//! `make bench-gateway`: Tollgate's gateway beside nginx with `limit_req`, in turns in front of the same upstream; what the limiter
//! adds to the gateway without rules; and decisions per second over HTTP and Envoy's protocol.
//!
//! wrk (64 connections) or h2load and the upstream share one core. The program under test has the other core to itself and one
//! worker. No two requests of a connection are alike: each has a path of its own. The nginx that rejects sends the same headers and
//! body as Tollgate. Read the ratios, and the processor time that each program spends on a request.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program that measures and prints"
)]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tollgate_testing::Process;

/// Many short rounds, because two halves of a minute differ more on a noisy machine than two programs do.
const ROUNDS: usize = 11;
const SECONDS: u32 = 2;
/// Rounds for differences that are smaller than those between rounds.
const FINE_ROUNDS: usize = 80;
const FINE_SECONDS: u32 = 1;
const CONNECTIONS: u32 = 64;
/// Requests per second that are admitted where nearly all are rejected. Both programs answer 50,000 to 100,000.
const FEW: u32 = 500;
/// More requests per second than arrive.
const ALL: u32 = 10_000_000;
/// The highest rate that nginx takes.
const ALL_FOR_NGINX: u32 = 1_000_000;

/// A run of wrk.
#[derive(Clone, Copy, Debug)]
struct Load {
    per_second: f64,
    mean_us: f64,
    p99_us: f64,
    /// Processor time of the program under test per request, in user mode and in the kernel.
    user_us: f64,
    kernel_us: f64,
    rejected: f64,
}

impl Load {
    fn cpu_us(&self) -> f64 {
        self.user_us + self.kernel_us
    }
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let upstream = free_port();
    let _upstream = nginx(at, "upstream", 1, &upstream_conf(upstream));
    wait_for(upstream);

    let nginx_all = Nginx::start(at, "all", |port| {
        proxy_conf(port, upstream, ALL_FOR_NGINX, "")
    });
    let nginx_few = Nginx::start(at, "few", |port| {
        proxy_conf(port, upstream, FEW, SAME_RESPONSE)
    });
    let rule =
        |rate: u32| format!("  - {{ id: address, per: [ip], limit: \"{rate}/s burst {rate}\" }}\n");
    let tollgate_all = Tollgate::start(at, "tollgate-all", upstream, &rule(ALL));
    let tollgate_few = Tollgate::start(at, "tollgate-few", upstream, &rule(FEW));
    let three = [
        "  - { id: address, per: [ip], limit: \"10000000/s\" }\n",
        "  - { id: endpoint, per: [ip, route], limit: \"10000000/s\" }\n",
        "  - { id: everyone, per: [], limit: \"10000000/s\" }\n",
    ];
    let tollgate_three = Tollgate::start(at, "tollgate-three", upstream, &three.concat());
    let without_rules = Tollgate::start(at, "tollgate-without-rules", upstream, "");

    println!(
        "{:34} {:>12} {:>10} {:>10} {:>14} {:>10}",
        "", "requests/s", "mean µs", "p99 µs", "CPU µs", "rejected"
    );
    let script = at.join("paths.lua");
    fs::write(&script, PATHS_LUA).unwrap();
    println!("{ROUNDS} rounds of {SECONDS} s each, in turns; medians");
    let [nginx_admits, admits, nginx_rejects, rejects] = in_turns(
        [
            ("nginx, all admitted", nginx_all.listener),
            ("Tollgate, all admitted", tollgate_all.gateway),
            ("nginx, 99 % rejected", nginx_few.listener),
            ("Tollgate, 99 % rejected", tollgate_few.gateway),
        ],
        &script,
        ROUNDS,
        SECONDS,
    );
    println!("{FINE_ROUNDS} rounds of {FINE_SECONDS} s each");
    let [bare, one, three] = in_turns(
        [
            ("Tollgate, no rules", without_rules.gateway),
            ("Tollgate, one tier", tollgate_all.gateway),
            ("Tollgate, three tiers", tollgate_three.gateway),
        ],
        &script,
        FINE_ROUNDS,
        FINE_SECONDS,
    );
    let service = tollgate_all.service;
    let checks = checks_per_second(at, service);
    show("POST /v1/check", checks);
    let rls = rls_per_second(at, service);
    println!("{:34} {rls:>12.0}", "Envoy's protocol (RLS)");

    let per_second = |load: &Load| load.per_second;
    let mean = |load: &Load| load.mean_us;
    let added = |tiers: &[Load], of: fn(&Load) -> f64| (ratio(tiers, &bare, of) - 1.0) * 100.0;
    println!("\nadded to the gateway without rules, in mean latency and in processor time:");
    for (name, tiers) in [("one tier", &one), ("three tiers", &three)] {
        let (latency, cpu) = (added(tiers, mean), added(tiers, Load::cpu_us));
        println!("  {name}: {latency:+.1} %, {cpu:+.1} %");
    }
    println!(
        "processor time of an admitted request, Tollgate / nginx: {:.2}",
        ratio(&admits, &nginx_admits, Load::cpu_us)
    );
    println!(
        "\ngateway: admitted={:.2} rejected={:.2} rejected_cpu={:.2} overhead={:.1} rls_per_s={rls:.0}",
        ratio(&admits, &nginx_admits, per_second),
        ratio(&rejects, &nginx_rejects, per_second),
        ratio(&rejects, &nginx_rejects, Load::cpu_us),
        added(&one, mean),
    );
}

/// Measures each case once per round, in alternating order, and shows the median run of each.
fn in_turns<const N: usize>(
    cases: [(&str, Listener); N],
    script: &Path,
    rounds: usize,
    seconds: u32,
) -> [Vec<Load>; N] {
    let mut runs = [const { Vec::new() }; N];
    for round in 0..rounds {
        let mut turns: Vec<_> = cases.iter().zip(&mut runs).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for ((_, listener), runs) in turns {
            runs.push(wrk(*listener, "/", script, seconds));
        }
    }
    for ((name, _), runs) in cases.iter().zip(&runs) {
        show(name, median(runs));
    }
    runs
}

fn checks_per_second(at: &Path, service: Listener) -> Load {
    let script = at.join("check.lua");
    fs::write(&script, CHECK_LUA).unwrap();
    let run = |_| wrk(service, "/v1/check", &script, SECONDS);
    let runs: Vec<Load> = (0..ROUNDS).map(run).collect();
    median(&runs)
}

fn rls_per_second(at: &Path, service: Listener) -> f64 {
    let mut rates: Vec<f64> = (0..ROUNDS).map(|_| h2load(at, service.port)).collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}

/// Tollgate's denial in nginx's configuration: the same headers and body, with figures that do not change.
const SAME_RESPONSE: &str = r#"error_page 429 @denied; }
location @denied { default_type application/problem+json; add_header X-Request-Id $request_id always;
  add_header X-RateLimit-Limit 500 always; add_header X-RateLimit-Remaining 0 always; add_header X-RateLimit-Reset 1794859490 always;
  add_header RateLimit-Policy '"address";q=500;w=1' always; add_header RateLimit '"address";r=0;t=1' always; add_header Retry-After 1 always;
  return 429 '{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"detail":"A limit has no room for this request. Try again in 1 second.","violated-policies":["address"],"retry_after":1,"retry_after_ms":1}';
"#;

/// Each request has a path of its own.
const PATHS_LUA: &str = r#"
local nth = 0
request = function()
  nth = nth + 1
  return wrk.format("GET", "/hello/" .. nth)
end
"#;

const CHECK_LUA: &str = r#"
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"ip":"203.0.113.7","method":"GET","path":"/hello"}'
"#;

fn show(name: &str, load: Load) {
    println!(
        "{name:34} {:>12.0} {:>10.0} {:>10.0} {:>14} {:>9.1}%",
        load.per_second,
        load.mean_us,
        load.p99_us,
        format!("{:.1} + {:.1}", load.user_us, load.kernel_us),
        load.rejected * 100.0
    );
}

/// The median of the rounds' ratios.
fn ratio(one: &[Load], other: &[Load], of: fn(&Load) -> f64) -> f64 {
    let mut ratios: Vec<f64> = (one.iter().zip(other))
        .map(|(one, other)| of(one) / of(other))
        .collect();
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}

/// The run with the median rate.
fn median(runs: &[Load]) -> Load {
    let mut runs = runs.to_vec();
    runs.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
    runs[runs.len() / 2]
}

/// A program on one core.
fn on_core(core: usize, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("taskset");
    let core = core.to_string();
    command.args(["--cpu-list", &core]).arg(program.as_ref());
    command
}

/// Where a process listens.
#[derive(Clone, Copy)]
struct Listener {
    port: u16,
    process: u32,
}

impl Listener {
    fn of(process: &Process, port: u16) -> Self {
        wait_for(port);
        let process = process.id();
        Self { port, process }
    }

    /// Processor time of the process so far, in user mode and in the kernel, in hundredths of a second.
    fn cpu_time(self) -> [f64; 2] {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap();
        // The 12th and the 13th field after the name, which is in brackets and may contain anything.
        let (_, behind_name) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = behind_name.split_whitespace().collect();
        [11, 12].map(|nth| fields[nth].parse().unwrap())
    }
}

/// An nginx under test.
struct Nginx {
    listener: Listener,
    _process: Process,
}

impl Nginx {
    fn start(at: &Path, name: &str, http: impl Fn(u16) -> String) -> Self {
        let port = free_port();
        let process = nginx(at, name, 0, &http(port));
        Self {
            listener: Listener::of(&process, port),
            _process: process,
        }
    }
}

struct Tollgate {
    gateway: Listener,
    service: Listener,
    _process: Process,
}

impl Tollgate {
    fn start(at: &Path, name: &str, upstream: u16, rules: &str) -> Self {
        let (gateway, service) = (free_port(), free_port());
        let file = at.join(format!("{name}.yaml"));
        let rules = match rules {
            "" => "rules: []\n".to_owned(),
            rules => format!("rules:\n{rules}"),
        };
        let text = format!(
            "gateway:\n  listen: 127.0.0.1:{gateway}\n  workers: 1\n  upstreams: [{{ path: /, to: [\"http://127.0.0.1:{upstream}\"] }}]\n\
             service: {{ listen: 127.0.0.1:{service} }}\nlog: {{ level: error }}\n{rules}"
        );
        fs::write(&file, text).unwrap();
        let mut command = on_core(0, env!("CARGO_BIN_EXE_tollgate"));
        command.args(["serve", "-c"]).arg(&file);
        let process = Process::spawn(command.stdout(Stdio::null())).unwrap();
        Self {
            gateway: Listener::of(&process, gateway),
            service: Listener::of(&process, service),
            _process: process,
        }
    }
}

fn nginx(at: &Path, name: &str, core: usize, http: &str) -> Process {
    let folder = at.join(name);
    fs::create_dir(&folder).unwrap();
    let file = folder.join("nginx.conf");
    // Started by root, nginx would become a user that may not enter the folder.
    let text = format!(
        "daemon off; master_process off; worker_processes 1; pid {0}/pid; error_log {0}/error.log; user root;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n{http}}}\n",
        folder.display()
    );
    fs::write(&file, text).unwrap();
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"];
    let program = program.iter().map(PathBuf::from).find(|p| p.exists());
    let program = program.expect("nginx must be installed: `make bench-gateway` sees to that");
    let mut command = on_core(core, program);
    Process::spawn(command.arg("-c").arg(&file).stderr(Stdio::null())).unwrap()
}

fn upstream_conf(port: u16) -> String {
    format!(
        "server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"hello, world\\n\"; }} }}\n"
    )
}

/// A proxy with a limit. `more` is added to its location.
fn proxy_conf(port: u16, upstream: u16, rate: u32, more: &str) -> String {
    format!(
        "limit_req_zone $binary_remote_addr zone=address:10m rate={rate}r/s;\n\
         upstream behind {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ limit_req zone=address burst={burst} nodelay; limit_req_status 429; limit_req_log_level info;\n\
           proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
           proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header Host $host;\n{more} }} }}\n",
        burst = rate.min(100_000)
    )
}

fn wrk(listener: Listener, path: &str, script: &Path, seconds: u32) -> Load {
    let mut command = on_core(1, "wrk");
    command.args([
        "-t1",
        &format!("-c{CONNECTIONS}"),
        &format!("-d{seconds}s"),
        "--latency",
        "-s",
    ]);
    command.arg(script);
    let before = listener.cpu_time();
    let url = format!("http://127.0.0.1:{}{path}", listener.port);
    let output = command.arg(url).output().unwrap();
    let after = listener.cpu_time();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |start: &str| {
        text.lines()
            .map(str::trim)
            .find(|line| line.starts_with(start))
    };
    let word =
        |start: &str, nth: usize| line(start).and_then(|line| line.split_whitespace().nth(nth));
    let total: f64 = (text.lines())
        .find(|line| line.contains("requests in"))
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_else(|| panic_with(&text));
    let rejected: f64 = word("Non-2xx", 4).map_or(0.0, |count| count.parse().unwrap());
    let [user_us, kernel_us] = [0, 1].map(|nth| (after[nth] - before[nth]) * 10_000.0 / total);
    Load {
        per_second: word("Requests/sec:", 1).unwrap().parse().unwrap(),
        mean_us: micros(word("Latency", 1).unwrap()),
        p99_us: micros(word("99%", 1).unwrap()),
        user_us,
        kernel_us,
        rejected: rejected / total,
    }
}

#[expect(
    clippy::panic,
    reason = "the output of the load generator is what there is to show"
)]
fn panic_with(text: &str) -> f64 {
    panic!("the load generator printed:\n{text}")
}

/// `1.23ms` and the like.
fn micros(text: &str) -> f64 {
    for (unit, micros) in [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 6e7)] {
        if let Some(number) = text.strip_suffix(unit) {
            return number.parse::<f64>().unwrap() * micros;
        }
    }
    f64::NAN
}

/// Calls per second over gRPC.
fn h2load(at: &Path, port: u16) -> f64 {
    let body = at.join("should_rate_limit.grpc");
    fs::write(&body, should_rate_limit()).unwrap();
    let url = format!(
        "http://127.0.0.1:{port}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
    );
    let output = on_core(1, "h2load")
        .args(["--threads=1", "--clients=8", "--max-concurrent-streams=32"])
        .arg(format!("--duration={SECONDS}"))
        .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
        .arg("-d")
        .arg(&body)
        .arg(url)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("finished in"));
    let rate = line.and_then(|line| {
        line.split(", ")
            .nth(1)?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    assert!(
        text.contains(" 0 failed, 0 errored"),
        "h2load printed:\n{text}"
    );
    rate.unwrap_or_else(|| panic_with(&text))
}

/// A message of gRPC with a request: domain "bench", one descriptor, `remote_address` = "203.0.113.7".
fn should_rate_limit() -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length], bytes].concat()
    };
    let entry = [field(1, b"remote_address"), field(2, b"203.0.113.7")].concat();
    let descriptor = field(1, &entry);
    let message = [field(1, b"bench"), field(2, &descriptor)].concat();
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), &message].concat()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn wait_for(port: u16) {
    let timeout = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < timeout, "nothing listens on port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
