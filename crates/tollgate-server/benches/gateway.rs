//! `make bench-gateway`: Tollgate's gateway beside nginx with `limit_req`, in turns over the same upstream; what the limiter adds to the
//! bare gateway; and decisions a second over HTTP and Envoy's protocol.
//!
//! Load comes from wrk (64 connections) and h2load, on the core that the upstream has too; what is measured has the other core to
//! itself, one worker each. There wrk is at its end before those are that reject, so they are compared once more with wrk on both cores, where it
//! takes some of theirs. Read the ratios, and what each process spends on a request.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program that measures and prints"
)]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Many short rounds: two halves of a minute differ more on a machine with neighbours than two programs do.
const ROUNDS: usize = 11;
const SECONDS: u32 = 2;
/// For what is less than two rounds differ by: as many as show it.
const FINE_ROUNDS: usize = 80;
const FINE_SECONDS: u32 = 1;
const CONNECTIONS: u32 = 64;
/// What is admitted where most is to be rejected. Both answer some 50,000 to 100,000 a second.
const FEW: u32 = 500;
/// More than anybody asks for.
const ALL: u32 = 10_000_000;

/// Where wrk runs.
#[derive(Clone, Copy)]
enum WrkOn {
    /// On the core that what is measured has not.
    OneCore,
    /// On both, with two threads, as many as it starts if nobody says how many. It is not at its end, and what is measured shares its core.
    BothCores,
}

/// What wrk says of a run.
#[derive(Clone, Copy, Debug)]
struct Load {
    per_second: f64,
    mean_us: f64,
    p99_us: f64,
    /// Processor time of the process that answers, for a request: its own, and the system's for it.
    own_us: f64,
    system_us: f64,
    rejected: f64,
}

/// A process that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let upstream = free_port();
    let _upstream = nginx(at, "upstream", 1, &upstream_conf(upstream));
    wait_for(upstream);

    let nginx_all = Nginx::start(at, "all", |port| {
        proxy_conf(port, upstream, ALL.min(1_000_000), "")
    });
    let nginx_few = Nginx::start(at, "few", |port| proxy_conf(port, upstream, FEW, ""));
    let nginx_same = Nginx::start(at, "same", |port| {
        proxy_conf(port, upstream, FEW, SAME_ANSWER)
    });
    let rule =
        |rate: u32| format!("  - {{ id: address, per: [ip], limit: \"{rate}/s burst {rate}\" }}\n");
    let ours_all = Tollgate::start(at, "ours-all", upstream, &rule(ALL));
    let ours_few = Tollgate::start(at, "ours-few", upstream, &rule(FEW));
    let three = [
        "  - { id: address, per: [ip], limit: \"10000000/s\" }\n",
        "  - { id: endpoint, per: [ip, route], limit: \"10000000/s\" }\n",
        "  - { id: everyone, per: [], limit: \"10000000/s\" }\n",
    ];
    let ours_three = Tollgate::start(at, "ours-three", upstream, &three.concat());
    let bare = Tollgate::start(at, "bare", upstream, "");

    println!("{ROUNDS} rounds of {SECONDS} s each, in turns; medians\n");
    println!(
        "{:34} {:>12} {:>10} {:>10} {:>14} {:>10}",
        "", "requests/s", "mean µs", "p99 µs", "CPU µs", "rejected"
    );
    let others_lua = at.join("others.lua");
    fs::write(&others_lua, OTHERS_LUA).unwrap();
    let others = Some(&*others_lua);
    let cases = [
        ("nginx, all admitted", nginx_all.door, None),
        ("tollgate, all admitted", ours_all.gateway, None),
        ("nginx, 99 % rejected", nginx_few.door, None),
        ("tollgate, 99 % rejected", ours_few.gateway, None),
        ("nginx, the same answer", nginx_same.door, None),
        ("nginx, other paths", nginx_few.door, others),
        ("tollgate, other paths", ours_few.gateway, others),
        (
            "nginx, the same answer, other paths",
            nginx_same.door,
            others,
        ),
    ];
    let runs = in_turns(&cases, ROUNDS, SECONDS, WrkOn::OneCore);
    println!("\n{ROUNDS} rounds of {SECONDS} s each, wrk on both cores");
    let rejecting = [
        ("nginx, 99 % rejected", nginx_few.door, None),
        ("tollgate, 99 % rejected", ours_few.gateway, None),
    ];
    let rejecting = in_turns(&rejecting, ROUNDS, SECONDS, WrkOn::BothCores);
    let fine = [
        ("tollgate without rules", bare.gateway, None),
        ("tollgate, one tier", ours_all.gateway, None),
        ("tollgate, three tiers", ours_three.gateway, None),
    ];
    println!("\n{FINE_ROUNDS} rounds of {FINE_SECONDS} s each");
    let fine = in_turns(&fine, FINE_ROUNDS, FINE_SECONDS, WrkOn::OneCore);
    let [bare, one, three] = &fine[..] else {
        unreachable!("as many as there are cases")
    };
    let [nginx_rejecting, rejecting] = &rejecting[..] else {
        unreachable!("as many as there are cases")
    };
    let [
        nginx_all,
        all,
        nginx_few,
        few,
        nginx_same,
        nginx_others,
        others,
        nginx_same_others,
    ] = &runs[..]
    else {
        unreachable!("as many as there are cases")
    };
    let per_second = |one: &[Load], other: &[Load]| ratio(one, other, |load| load.per_second);
    let added =
        |one: &[Load], other: &[Load]| (ratio(one, other, |load| load.mean_us) - 1.0) * 100.0;
    let admitted = per_second(all, nginx_all);
    let rejected = per_second(few, nginx_few);
    let (overhead, overhead_three) = (added(one, bare), added(three, bare));
    println!(
        "\nmean latency beside the gateway without rules: one tier {overhead:+.1} %, three tiers {overhead_three:+.1} %"
    );
    println!("rejections beside nginx: requests a second, and processor time");
    for (what, ours, nginx) in [
        ("that answers what we answer", few, nginx_same),
        (
            "that answers so, nobody asks the same twice",
            others,
            nginx_same_others,
        ),
        ("with its own page, which says nothing", few, nginx_few),
        (
            "with its own page, and wrk on both cores",
            rejecting,
            nginx_rejecting,
        ),
        (
            "with its own page, nobody asks the same twice",
            others,
            nginx_others,
        ),
    ] {
        let spent = ratio(ours, nginx, |load| load.own_us + load.system_us);
        println!("  {:.2}  {spent:.2}  {what}", per_second(ours, nginx));
    }
    println!();

    let service = &ours_all;
    let script = at.join("check.lua");
    fs::write(&script, CHECK_LUA).unwrap();
    let checks: Vec<Load> = (0..ROUNDS)
        .map(|_| {
            let (service, path) = (service.service, "/v1/check");
            wrk(service, path, Some(&script), SECONDS, WrkOn::OneCore)
        })
        .collect();
    let checks = median(&checks, |load| load.per_second);
    show("POST /v1/check", checks);
    let mut rls: Vec<f64> = (0..ROUNDS)
        .map(|_| h2load(at, service.service.port))
        .collect();
    rls.sort_by(f64::total_cmp);
    let rls = rls[ROUNDS / 2];
    println!("{:34} {rls:>12.0}", "Envoy's protocol (RLS)");
    println!(
        "\ngateway: admitted={admitted:.2} rejected={rejected:.2} overhead={overhead:.1} rls_per_s={rls:.0}"
    );
}

/// What is measured: its name, where it listens, and what wrk is to ask, if not always the same.
type Case<'a> = (&'a str, Door, Option<&'a Path>);

/// Measures all of them so often, one after the other, there and back, and shows the median of each.
fn in_turns(cases: &[Case<'_>], rounds: usize, seconds: u32, wrk_on: WrkOn) -> Vec<Vec<Load>> {
    let mut runs: Vec<Vec<Load>> = vec![Vec::new(); cases.len()];
    for round in 0..rounds {
        let mut turns: Vec<_> = cases.iter().zip(&mut runs).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for ((_, door, script), runs) in turns {
            runs.push(wrk(*door, "/hello", *script, seconds, wrk_on));
        }
    }
    for ((name, ..), runs) in cases.iter().zip(&runs) {
        show(name, median(runs, |load| load.per_second));
    }
    runs
}

/// What Tollgate says to those it rejects, in nginx's words: a page of its own, and figures that do not change. For a comparison of the same
/// work; the last line compares with nginx as it comes.
const SAME_ANSWER: &str = r#"error_page 429 @denied; }
location @denied { default_type application/problem+json; add_header X-Request-Id $request_id always;
  add_header X-RateLimit-Limit 500 always; add_header X-RateLimit-Remaining 0 always; add_header X-RateLimit-Reset 1794859490 always;
  add_header RateLimit-Policy '"address";q=500;w=1' always; add_header RateLimit '"address";r=0;t=1' always; add_header Retry-After 1 always;
  return 429 '{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Too many requests","status":429,"detail":"A limit has no room for this request. Try again in 1 second.","violated-policies":["address"],"retry_after":1,"retry_after_ms":1}';
"#;

/// Nobody asks for the same twice.
const OTHERS_LUA: &str = r#"
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
        format!("{:.1} + {:.1}", load.own_us, load.system_us),
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

fn median(runs: &[Load], by: fn(&Load) -> f64) -> Load {
    let mut runs = runs.to_vec();
    runs.sort_by(|one, other| by(one).total_cmp(&by(other)));
    runs[runs.len() / 2]
}

/// A program on one core.
fn on_core(core: usize, program: impl AsRef<Path>) -> Command {
    on_cores(&core.to_string(), program)
}

fn on_cores(cores: &str, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", cores]).arg(program.as_ref());
    command
}

/// Where a process listens, and which one.
#[derive(Clone, Copy)]
struct Door {
    port: u16,
    process: u32,
}

impl Door {
    fn of(process: &Running, port: u16) -> Self {
        wait_for(port);
        let process = process.0.id();
        Self { port, process }
    }

    /// Processor time that the process has taken, of its own and in the system, in hundredths of a second.
    fn spent(self) -> [f64; 2] {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap();
        // Behind the program's name, which may be anything in brackets, these are the 12th and the 13th.
        let (_, behind_name) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = behind_name.split_whitespace().collect();
        [11, 12].map(|nth| fields[nth].parse().unwrap())
    }
}

/// An nginx that is measured.
struct Nginx {
    door: Door,
    _process: Running,
}

impl Nginx {
    fn start(at: &Path, name: &str, http: impl Fn(u16) -> String) -> Self {
        let port = free_port();
        let process = nginx(at, name, 0, &http(port));
        Self {
            door: Door::of(&process, port),
            _process: process,
        }
    }
}

struct Tollgate {
    gateway: Door,
    service: Door,
    _process: Running,
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
        let process = command
            .args(["serve", "-c"])
            .arg(&file)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = Running(process);
        Self {
            gateway: Door::of(&process, gateway),
            service: Door::of(&process, service),
            _process: process,
        }
    }
}

fn nginx(at: &Path, name: &str, core: usize, http: &str) -> Running {
    let folder = at.join(name);
    fs::create_dir(&folder).unwrap();
    let file = folder.join("nginx.conf");
    // One that is started by root would look for a user that may not enter the folder.
    let text = format!(
        "daemon off; master_process off; worker_processes 1; pid {0}/pid; error_log {0}/error.log; user root;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n{http}}}\n",
        folder.display()
    );
    fs::write(&file, text).unwrap();
    let program = ["/usr/sbin/nginx", "/usr/bin/nginx"];
    let program = program.iter().map(PathBuf::from).find(|p| p.exists());
    let process = on_core(
        core,
        program.expect("nginx must be installed: `make bench-gateway` sees to that"),
    )
    .arg("-c")
    .arg(&file)
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    Running(process)
}

fn upstream_conf(port: u16) -> String {
    format!(
        "server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"hello, world\\n\"; }} }}\n"
    )
}

/// `more` goes behind the limit, in its location.
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

fn wrk(door: Door, path: &str, script: Option<&Path>, seconds: u32, wrk_on: WrkOn) -> Load {
    let (cores, threads) = match wrk_on {
        WrkOn::OneCore => ("1", "-t1"),
        WrkOn::BothCores => ("0,1", "-t2"),
    };
    let mut command = on_cores(cores, "wrk");
    command.args([
        threads,
        &format!("-c{CONNECTIONS}"),
        &format!("-d{seconds}s"),
        "--latency",
    ]);
    if let Some(script) = script {
        command.arg("-s").arg(script);
    }
    let before = door.spent();
    let url = format!("http://127.0.0.1:{}{path}", door.port);
    let output = command.arg(url).output().unwrap();
    let after = door.spent();
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
    let [own_us, system_us] = [0, 1].map(|nth| (after[nth] - before[nth]) * 10_000.0 / total);
    Load {
        per_second: word("Requests/sec:", 1).unwrap().parse().unwrap(),
        mean_us: micros(word("Latency", 1).unwrap()),
        p99_us: micros(word("99%", 1).unwrap()),
        own_us,
        system_us,
        rejected: rejected / total,
    }
}

#[expect(clippy::panic, reason = "what wrk said is what there is to show")]
fn panic_with(text: &str) -> f64 {
    panic!("wrk said:\n{text}")
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

/// Checks a second over gRPC.
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
        "h2load said:\n{text}"
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
    let patience = Instant::now() + Duration::from_secs(30);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < patience, "nobody listens at {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
