//! `make bench-audit`: what a denial costs with the audit trail, alone and while another thread offers a million
//! violations a second, with the database alive, killed and full.
//!
//! Read the ratios: both figures of one are taken in turns in the same run. The clock is read around every denial, so
//! some 40 ns of each figure are the clock's.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a program that measures and prints"
)]

#[expect(dead_code, reason = "tests do more with it")]
#[path = "../tests/it/postgres_server.rs"]
mod postgres_server;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use postgres_server::PostgresServer;
use tollgate::{Decision, Dimension, LocalLimiter, Request, Rule};
use tollgate_server::audit::{Trail, TrailConfig, TrailStats, Violation};
use tollgate_server::database::{Database, DatabaseConfig};

const OFFERED_PER_SECOND: u64 = 1_000_000;
/// Buckets that the other thread's violations fall into.
const OFFERED_BUCKETS: usize = 10_000;
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
    println!("{ROUNDS} rounds of {PHASE:?} alone and {PHASE:?} under load, in turns\n");
    println!(
        "{:22} {:>10} {:>10} {:>10} {:>8} {:>8} {:>8} {:>12} {:>8}",
        "the database is",
        "mean ns",
        "p50 ns",
        "p99 ns",
        "mean ×",
        "p50 ×",
        "p99 ×",
        "offered/s",
        "lost"
    );

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let mut results = Vec::new();
    let mut measure =
        |name: &str, url: &str, most_bytes: Option<u64>, server: Option<&mut PostgresServer>| {
            let config = DatabaseConfig {
                most_bytes,
                ..DatabaseConfig::default()
            };
            let database = runtime.block_on(Database::open_with(url, config)).unwrap();
            let trail = {
                let _inside = runtime.enter();
                Trail::start(database, TrailConfig::default())
            };
            if let Some(server) = server {
                server.kill();
            }
            let mut result = under(name, &limiter, &clients, &trail);
            result.stats = runtime.block_on(trail.close(Duration::from_secs(10)));
            assert_eq!(
                result.stats.noted,
                result.stats.written + result.stats.lost,
                "{:?}",
                result.stats
            );
            result.print();
            results.push(result);
        };
    measure("alive (SQLite)", &file("alive.db"), None, None);
    let mut server = PostgresServer::start();
    let url = server.url();
    measure("alive (PostgreSQL)", &url, None, None);
    measure("killed (PostgreSQL)", &url, None, Some(&mut server));
    measure("full (SQLite)", &file("full.db"), Some(1 << 20), None);

    let worst = results
        .iter()
        .map(|result| result.during.p99 / result.before.p99)
        .fold(0.0, f64::max);
    let lost = results[..2]
        .iter()
        .map(Measured::lost_share)
        .fold(0.0, f64::max);
    println!(
        "\nthe worst p99 of the four, and the share that is lost while the database is alive:"
    );
    println!("audit: during_vs_before={worst:.2} lost_share={lost:.4}");
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

fn note(trail: &Trail, client: &str, decision: &Decision) {
    trail.note(&Violation {
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

/// Denies for the length of a phase, one after the other.
fn denials(limiter: &LocalLimiter, clients: &[String], trail: Option<&Trail>) -> Latency {
    let mut ns: Vec<u32> = Vec::with_capacity(8_000_000);
    let begun = Instant::now();
    for client in clients.iter().cycle() {
        let before = Instant::now();
        let decision = limiter.decide(&request(client));
        assert!(!decision.allowed());
        if let Some(trail) = trail {
            note(trail, client, &decision);
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
    before: Latency,
    during: Latency,
    offered_per_second: f64,
    stats: TrailStats,
}

impl Measured {
    fn lost_share(&self) -> f64 {
        self.stats.lost as f64 / self.stats.noted as f64
    }

    fn print(&self) {
        println!(
            "{:22} {:10.0} {:10.0} {:10.0} {:8.2} {:8.2} {:8.2} {:12.0} {:8.4}   (before: {})",
            self.name,
            self.during.mean,
            self.during.p50,
            self.during.p99,
            self.during.mean / self.before.mean,
            self.during.p50 / self.before.p50,
            self.during.p99 / self.before.p99,
            self.offered_per_second,
            self.lost_share(),
            self.before,
        );
    }
}

/// Phases alone and under load, in turns; the medians of each.
fn under(name: &str, limiter: &LocalLimiter, clients: &[String], trail: &Trail) -> Measured {
    let (offering, ending, offered) = (
        AtomicBool::new(false),
        AtomicBool::new(false),
        AtomicU64::new(0),
    );
    let (mut before, mut during) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(|| offer(limiter, trail, &offering, &ending, &offered));
        for _ in 0..ROUNDS {
            before.push(denials(limiter, clients, Some(trail)));
            offering.store(true, Relaxed);
            during.push(denials(limiter, clients, Some(trail)));
            offering.store(false, Relaxed);
        }
        ending.store(true, Relaxed);
    });
    Measured {
        name: name.to_owned(),
        before: medians(&before),
        during: medians(&during),
        offered_per_second: offered.load(Relaxed) as f64 / (PHASE.as_secs_f64() * ROUNDS as f64),
        stats: TrailStats::default(),
    }
}

/// Offers what it should have offered by now, and sleeps a little.
fn offer(
    limiter: &LocalLimiter,
    trail: &Trail,
    offering: &AtomicBool,
    ending: &AtomicBool,
    offered: &AtomicU64,
) {
    let buckets: Vec<String> = (0..OFFERED_BUCKETS)
        .map(|n| format!("attacker_{n}"))
        .collect();
    let mut names = buckets.iter().cycle();
    let decision = {
        let _ = limiter.decide(&request("one"));
        limiter.decide(&request("one"))
    };
    while !ending.load(Relaxed) {
        let (begun, mut done) = (Instant::now(), 0);
        while offering.load(Relaxed) {
            let due = (begun.elapsed().as_secs_f64() * OFFERED_PER_SECOND as f64) as u64;
            // Not everything at once after a pause that was forced on us.
            for client in names
                .by_ref()
                .take(due.saturating_sub(done).min(5_000) as usize)
            {
                offer_one(trail, client, &decision);
                done += 1;
                offered.fetch_add(1, Relaxed);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn offer_one(trail: &Trail, client: &str, decision: &Decision) {
    trail.note(&Violation {
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
    let median = |of: fn(&Latency) -> f64| {
        let mut figures: Vec<f64> = all.iter().map(of).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    Latency {
        mean: median(|latency| latency.mean),
        p50: median(|latency| latency.p50),
        p99: median(|latency| latency.p99),
    }
}
