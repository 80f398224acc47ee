//! `make bench-audit`: the cost of a denial with the audit trail, alone and while another thread records a million
//! violations per second, with a running, a killed and a full database.
//!
//! Three phases alternate in one run: no load; the same load on a separate trail, which shows the cost of a second busy
//! core; and the load on the measured trail. The clock is read around every denial, which adds about 40 ns to each figure.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a program that measures and prints"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tollgate::{Decision, Dimension, LocalLimiter, Request, Rule};
use tollgate_config::AuditConfig;
use tollgate_server::audit::{Trail, TrailStats, Violation};
use tollgate_server::database::Database;
use tollgate_testing::SmallDisk;
use tollgate_testing::servers::PostgresServer;

const LOAD_PER_SECOND: u64 = 1_000_000;
/// Buckets of the load.
const LOAD_BUCKETS: usize = 10_000;
/// Clients whose denials are measured.
const CLIENTS: usize = 1_000;
const PHASE: Duration = Duration::from_millis(1_500);
const ROUNDS: usize = 3;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let limiter = limiter();
    let clients: Vec<String> = (0..CLIENTS).map(|n| format!("merchant_{n}")).collect();
    for client in &clients {
        let _ = limiter.decide(&request(client));
    }
    let alone = denials(&limiter, &clients, None);
    println!("a denial without a trail: {alone}");
    println!(
        "{ROUNDS} rounds in turns, {PHASE:?} each: alone; beside the same load on a stranger's trail; under it\n"
    );
    println!(
        "{:22} {:>10} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10} {:>12} {:>8}",
        "the database is",
        "mean ns",
        "p50 ns",
        "p99 ns",
        "mean ×",
        "p50 ×",
        "p99 ×",
        "stranger ×",
        "offered/s",
        "lost"
    );

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let separate_trail = {
        let database = runtime
            .block_on(Database::open(&file("separate.db")))
            .unwrap();
        let _guard = runtime.enter();
        Trail::start(database, AuditConfig::default())
    };
    let mut results = Vec::new();
    let mut measure = |name: &str, url: &str, damage: &mut dyn FnMut()| {
        let database = runtime.block_on(Database::open(url)).unwrap();
        let trail = {
            let _guard = runtime.enter();
            Trail::start(database, AuditConfig::default())
        };
        damage();
        let mut result = measure_phases(name, &limiter, &clients, &trail, &separate_trail);
        result.stats = runtime.block_on(trail.close(Duration::from_secs(10)));
        assert_eq!(
            result.stats.recorded,
            result.stats.written + result.stats.lost,
            "{:?}",
            result.stats
        );
        result.print();
        results.push(result);
    };
    measure("alive (SQLite)", &file("alive.db"), &mut || ());
    let mut server = PostgresServer::start();
    let url = server.url();
    measure("alive (PostgreSQL)", &url, &mut || ());
    measure("killed (PostgreSQL)", &url, &mut || server.kill());
    let disk = SmallDisk::of(4 << 20);
    let full = format!("sqlite:{}", disk.path().join("full.db").display());
    measure("full (SQLite)", &full, &mut || disk.fill_but(64 << 10));

    let worst = |baseline: fn(&Measured) -> &Latency| {
        let ratios = results.iter();
        ratios
            .map(|result| result.under_load.p99 / baseline(result).p99)
            .fold(0.0, f64::max)
    };
    let (before, beside) = (
        worst(|result| &result.without_load),
        worst(|result| &result.beside_load),
    );
    let lost = results[..2]
        .iter()
        .map(Measured::lost_share)
        .fold(0.0, f64::max);
    println!(
        "\nthe worst p99 of the four against that alone and that beside a stranger's load, and the share that is lost\n\
         while the database is alive:"
    );
    println!(
        "audit: during_vs_before={before:.2} during_vs_stranger={beside:.2} lost_share={lost:.4}"
    );
}

fn limiter() -> LocalLimiter {
    let rule = Rule::new("charges", "1 per 1d".parse().unwrap()).unwrap();
    let rules = [rule.per([Dimension::Client])];
    LocalLimiter::new().with_rules(rules).unwrap()
}

fn request(client: &str) -> Request<'_> {
    Request::new()
        .client(client)
        .route("/v1/charges/{*rest}")
        .method("POST")
}

fn record(trail: &Trail, client: &str, decision: &Decision) {
    trail.record(&Violation {
        rule: "charges",
        per: &[("client", client)],
        plan: Some("free"),
        client: Some(client),
        ip: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))),
        method: Some("POST"),
        route: Some("/v1/charges/{*rest}"),
        at: decision.at(),
        remaining: decision.remaining().unwrap_or(0),
        cost: 1,
        source: decision.source(),
        generation: 1,
    });
}

struct Latency {
    mean: f64,
    p50: f64,
    p99: f64,
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "mean {:.0} ns, p50 {:.0} ns, p99 {:.0} ns",
            self.mean, self.p50, self.p99
        )
    }
}

/// Latency of denials during one phase, one after the other.
fn denials(limiter: &LocalLimiter, clients: &[String], trail: Option<&Trail>) -> Latency {
    let mut ns: Vec<u32> = Vec::with_capacity(8_000_000);
    let begun = Instant::now();
    for client in clients.iter().cycle() {
        let before = Instant::now();
        let decision = limiter.decide(&request(client));
        assert!(!decision.allowed());
        if let Some(trail) = trail {
            record(trail, client, &decision);
        }
        let took = before.elapsed();
        ns.push(took.as_nanos() as u32);
        if begun.elapsed() > PHASE {
            break;
        }
    }
    let mean = ns.iter().map(|ns| u64::from(*ns)).sum::<u64>() as f64 / ns.len() as f64;
    ns.sort_unstable();
    let at = |share: f64| f64::from(ns[(ns.len() as f64 * share) as usize]);
    Latency {
        mean,
        p50: at(0.50),
        p99: at(0.99),
    }
}

struct Measured {
    name: String,
    without_load: Latency,
    beside_load: Latency,
    under_load: Latency,
    load_per_second: f64,
    stats: TrailStats,
}

impl Measured {
    fn lost_share(&self) -> f64 {
        self.stats.lost as f64 / self.stats.recorded as f64
    }

    fn print(&self) {
        println!(
            "{:22} {:10.0} {:10.0} {:10.0} {:8.2} {:8.2} {:8.2} {:10.2} {:12.0} {:8.4}   (before: {})",
            self.name,
            self.under_load.mean,
            self.under_load.p50,
            self.under_load.p99,
            self.under_load.mean / self.without_load.mean,
            self.under_load.p50 / self.without_load.p50,
            self.under_load.p99 / self.without_load.p99,
            self.beside_load.p99 / self.without_load.p99,
            self.load_per_second,
            self.lost_share(),
            self.without_load,
        );
    }
}

/// Where the other thread records its load.
const NOWHERE: u8 = 0;
const SEPARATE_TRAIL: u8 = 1;
const MEASURED_TRAIL: u8 = 2;
const END: u8 = 3;

/// Alternates the three phases. Returns the medians of each.
fn measure_phases(
    name: &str,
    limiter: &LocalLimiter,
    clients: &[String],
    trail: &Trail,
    separate_trail: &Trail,
) -> Measured {
    let (target, recorded) = (AtomicU8::new(NOWHERE), AtomicU64::new(0));
    let mut phases = [Vec::new(), Vec::new(), Vec::new()];
    std::thread::scope(|scope| {
        scope.spawn(|| load(limiter, trail, separate_trail, &target, &recorded));
        for _ in 0..ROUNDS {
            let targets = [NOWHERE, SEPARATE_TRAIL, MEASURED_TRAIL];
            for (phase_target, phase) in targets.into_iter().zip(&mut phases) {
                target.store(phase_target, Relaxed);
                phase.push(denials(limiter, clients, Some(trail)));
            }
        }
        target.store(END, Relaxed);
    });
    let [without_load, beside_load, under_load] = phases.map(|phase| medians(&phase));
    Measured {
        name: name.to_owned(),
        without_load,
        beside_load,
        under_load,
        load_per_second: recorded.load(Relaxed) as f64 / (PHASE.as_secs_f64() * ROUNDS as f64),
        stats: TrailStats::default(),
    }
}

/// Records the violations that are due, and sleeps a little, until the end. Counts those on the measured trail.
fn load(
    limiter: &LocalLimiter,
    trail: &Trail,
    separate_trail: &Trail,
    target: &AtomicU8,
    recorded: &AtomicU64,
) {
    let buckets: Vec<String> = (0..LOAD_BUCKETS).map(|n| format!("attacker_{n}")).collect();
    let mut names = buckets.iter().cycle();
    let decision = {
        let _ = limiter.decide(&request("one"));
        limiter.decide(&request("one"))
    };
    loop {
        let phase_target = target.load(Relaxed);
        let trail = match phase_target {
            SEPARATE_TRAIL => separate_trail,
            MEASURED_TRAIL => trail,
            END => break,
            _ => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        let (begun, mut done) = (Instant::now(), 0);
        while target.load(Relaxed) == phase_target {
            let due = (begun.elapsed().as_secs_f64() * LOAD_PER_SECOND as f64) as u64;
            // At most 5,000 at once, so that a pause of this thread is not followed by a burst.
            for client in names
                .by_ref()
                .take(due.saturating_sub(done).min(5_000) as usize)
            {
                record_load(trail, client, &decision);
                done += 1;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        if phase_target == MEASURED_TRAIL {
            recorded.fetch_add(done, Relaxed);
        }
    }
}

fn record_load(trail: &Trail, client: &str, decision: &Decision) {
    trail.record(&Violation {
        rule: "charges",
        per: &[("client", client)],
        plan: None,
        client: Some(client),
        ip: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))),
        method: Some("POST"),
        route: Some("/v1/charges/{*rest}"),
        at: std::time::SystemTime::now(),
        remaining: 0,
        cost: 1,
        source: decision.source(),
        generation: 1,
    });
}

fn medians(all: &[Latency]) -> Latency {
    let median = |figure: fn(&Latency) -> f64| {
        let mut figures: Vec<f64> = all.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    Latency {
        mean: median(|latency| latency.mean),
        p50: median(|latency| latency.p50),
        p99: median(|latency| latency.p99),
    }
}
