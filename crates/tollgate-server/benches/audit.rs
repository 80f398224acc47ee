//! `make bench-audit`: what a denial costs with the audit trail, alone and while another thread offers a million
//! violations a second, with the database alive, killed and full.
//!
//! Three phases in turns, in the same run: alone; beside the same load on a trail that shares nothing with ours, which is
//! what a second busy core costs by itself; and under the load. The clock is read around every denial, so some 40 ns of
//! each figure are the clock's.

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

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tollgate::{Decision, Dimension, LocalLimiter, Request, Rule};
use tollgate_server::audit::{Trail, TrailConfig, TrailStats, Violation};
use tollgate_server::database::Database;
use tollgate_testing::SmallDisk;
use tollgate_testing::servers::PostgresServer;

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
    let strangers = {
        let database = runtime
            .block_on(Database::open(&file("stranger.db")))
            .unwrap();
        let _inside = runtime.enter();
        Trail::start(database, TrailConfig::default())
    };
    let mut results = Vec::new();
    let mut measure = |name: &str, url: &str, then: &mut dyn FnMut()| {
        let database = runtime.block_on(Database::open(url)).unwrap();
        let trail = {
            let _inside = runtime.enter();
            Trail::start(database, TrailConfig::default())
        };
        then();
        let mut result = under(name, &limiter, &clients, &trail, &strangers);
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
    measure("alive (SQLite)", &file("alive.db"), &mut || ());
    let mut server = PostgresServer::start();
    let url = server.url();
    measure("alive (PostgreSQL)", &url, &mut || ());
    measure("killed (PostgreSQL)", &url, &mut || server.kill());
    let disk = SmallDisk::of(4 << 20);
    let full = format!("sqlite:{}", disk.path().join("full.db").display());
    measure("full (SQLite)", &full, &mut || disk.fill_but(64 << 10));

    let worst = |of: fn(&Measured) -> &Latency| {
        let ratios = results.iter();
        ratios
            .map(|result| result.during.p99 / of(result).p99)
            .fold(0.0, f64::max)
    };
    let (before, beside) = (
        worst(|result| &result.before),
        worst(|result| &result.beside),
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
    beside: Latency,
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
            "{:22} {:10.0} {:10.0} {:10.0} {:8.2} {:8.2} {:8.2} {:10.2} {:12.0} {:8.4}   (before: {})",
            self.name,
            self.during.mean,
            self.during.p50,
            self.during.p99,
            self.during.mean / self.before.mean,
            self.during.p50 / self.before.p50,
            self.during.p99 / self.before.p99,
            self.beside.p99 / self.before.p99,
            self.offered_per_second,
            self.lost_share(),
            self.before,
        );
    }
}

/// Whom the other thread offers violations to.
const NOBODY: u8 = 0;
const STRANGER: u8 = 1;
const OURS: u8 = 2;
const END: u8 = 3;

/// The three phases in turns; the medians of each.
fn under(
    name: &str,
    limiter: &LocalLimiter,
    clients: &[String],
    trail: &Trail,
    strangers: &Trail,
) -> Measured {
    let (target, offered) = (AtomicU8::new(NOBODY), AtomicU64::new(0));
    let mut phases = [Vec::new(), Vec::new(), Vec::new()];
    std::thread::scope(|scope| {
        scope.spawn(|| offer(limiter, trail, strangers, &target, &offered));
        for _ in 0..ROUNDS {
            for (whom, phase) in [NOBODY, STRANGER, OURS].into_iter().zip(&mut phases) {
                target.store(whom, Relaxed);
                phase.push(denials(limiter, clients, Some(trail)));
            }
        }
        target.store(END, Relaxed);
    });
    let [before, beside, during] = phases.map(|phase| medians(&phase));
    Measured {
        name: name.to_owned(),
        before,
        beside,
        during,
        offered_per_second: offered.load(Relaxed) as f64 / (PHASE.as_secs_f64() * ROUNDS as f64),
        stats: TrailStats::default(),
    }
}

/// Offers what it should have offered by now, and sleeps a little.
fn offer(
    limiter: &LocalLimiter,
    trail: &Trail,
    strangers: &Trail,
    target: &AtomicU8,
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
    loop {
        let whom = target.load(Relaxed);
        let trail = match whom {
            STRANGER => strangers,
            OURS => trail,
            END => break,
            _ => {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
        };
        let (begun, mut done) = (Instant::now(), 0);
        while target.load(Relaxed) == whom {
            let due = (begun.elapsed().as_secs_f64() * OFFERED_PER_SECOND as f64) as u64;
            // Not everything at once after a pause that was forced on us.
            for client in names
                .by_ref()
                .take(due.saturating_sub(done).min(5_000) as usize)
            {
                offer_one(trail, client, &decision);
                done += 1;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        if whom == OURS {
            offered.fetch_add(done, Relaxed);
        }
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
