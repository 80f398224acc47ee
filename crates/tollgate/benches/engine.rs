//! `make bench-engine`: checks per second beside governor's keyed limiter, in one run.
//!
//! Every figure is a ratio of two measurements taken in turns, so that a noisy machine slows both. How it was
//! measured, what came out and what was tried: bench/README.md.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a program that measures and prints"
)]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::process::Command;
use std::sync::Barrier;
use std::time::Instant;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tollgate::store::{MemoryConfig, MemoryStore};
use tollgate::{Dimension, Limit, LocalLimiter, Request, Rule};

const THREADS: usize = 2;
/// Many short rounds rather than few long ones: a neighbour on the same host then slows both sides of a ratio, not one.
const CHECKS_PER_THREAD: usize = 250_000;
const ROUNDS: usize = 25;
/// Keys are made a few before they are checked, as a caller's key has been read before it is looked at. Made just then, its
/// bytes are still on their way to memory, and the check waits until they and all that was written before have arrived.
const KEYS_AT_ONCE: usize = 64;
/// Slow enough that every key stays live, and deep enough that traffic is admitted, as most traffic is.
const PER_SECOND: u32 = 1;
const BURST: u32 = 1_000_000;

type Key = [u8; 16];

fn main() {
    if let Ok(subject) = std::env::var("TOLLGATE_BENCH_BYTES") {
        println!("{}", bytes_per_key(&subject));
        return;
    }
    println!(
        "{THREADS} threads, {CHECKS_PER_THREAD} checks each, median of {ROUNDS} rounds in turns\n"
    );
    println!(
        "{:28} {:>14} {:>14} {:>8}",
        "one tier", "governor ns", "tollgate ns", "ratio"
    );
    let mut headline = 0.0;
    let mut costs = Vec::new();
    for (keys, skew) in [
        (1_000, Skew::Uniform),
        (100_000, Skew::Uniform),
        (100_000, Skew::Zipf),
        (1_000_000, Skew::Uniform),
        (1_000_000, Skew::Zipf),
        (10_000_000, Skew::Uniform),
    ] {
        let (theirs, ours) = against_governor(keys, skew);
        println!(
            "{:28} {theirs:14.1} {ours:14.1} {:8.2}",
            format!("{keys} keys, {skew:?}"),
            theirs / ours
        );
        if (keys, skew) == (100_000, Skew::Uniform) {
            headline = theirs / ours;
        }
        costs.push((keys, theirs, ours));
    }
    let (first, last) = (costs[0], costs[costs.len() - 1]);
    let (their_growth, our_growth) = (last.1 - first.1, last.2 - first.2);
    println!(
        "\nfrom {} to {} keys a check costs {their_growth:.0} ns more in governor, {our_growth:.0} ns more in tollgate",
        first.0, last.0
    );
    let growth = our_growth / their_growth;

    let (one, three) = tiers(100_000);
    println!("by rules, 100000 clients: one tier {one:.1} ns, three tiers {three:.1} ns");

    let (theirs, ours) = (spawn_bytes("governor"), spawn_bytes("tollgate"));
    println!("resident bytes per key, 1000000 keys: governor {theirs}, tollgate {ours}");
    println!(
        "engine: ratio_vs_governor={headline:.2} three_tier={:.2} growth={growth:.2} bytes_per_key={ours}",
        three / one
    );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Skew {
    Uniform,
    Zipf,
}

/// Both, on the same keys in the same order: nanoseconds per check and thread.
fn against_governor(keys: usize, skew: Skew) -> (f64, f64) {
    let order: Vec<Vec<u32>> = (0..THREADS as u64).map(|t| sample(keys, skew, t)).collect();
    let theirs = governor();
    let ours = limiter(keys);
    let limit = limit();
    in_turns(
        &order,
        |key| theirs.check_key(key).is_ok(),
        |key| ours.check(key, &limit, 1).allowed(),
        keys,
    )
}

/// Ours by rules, with one tier and with three: per client, per client and route, one for everybody.
fn tiers(keys: usize) -> (f64, f64) {
    let order: Vec<Vec<u32>> = (0..THREADS as u64)
        .map(|t| sample(keys, Skew::Uniform, t))
        .collect();
    let rule = |id| Rule::new(id, limit()).unwrap();
    let one = limiter(keys)
        .with_rules([rule("client").per([Dimension::Client])])
        .unwrap();
    let everyone = "10000000/s burst 100000000".parse().unwrap();
    let three = limiter(2 * keys)
        .with_rules([
            rule("client").per([Dimension::Client]),
            rule("client-route").per([Dimension::Client, Dimension::Route]),
            Rule::new("everyone", everyone).unwrap(),
        ])
        .unwrap();
    let decide = |limiter: &LocalLimiter, key: &Key| {
        let request = Request::new()
            .client(std::str::from_utf8(key).unwrap())
            .route("/v1/charges/{id}");
        limiter.decide(&request).allowed()
    };
    in_turns(
        &order,
        |key| decide(&one, key),
        |key| decide(&three, key),
        keys,
    )
}

fn in_turns(
    order: &[Vec<u32>],
    a: impl Fn(&Key) -> bool + Sync,
    b: impl Fn(&Key) -> bool + Sync,
    keys: usize,
) -> (f64, f64) {
    for key in (0..keys as u32).map(key) {
        black_box((a(&key), b(&key)));
    }
    let mut rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| (round(order, &a), round(order, &b)))
        .collect();
    rounds.sort_by(|x, y| (x.0 / x.1).total_cmp(&(y.0 / y.1)));
    rounds[ROUNDS / 2]
}

fn round(order: &[Vec<u32>], check: &(impl Fn(&Key) -> bool + Sync)) -> f64 {
    let barrier = Barrier::new(order.len());
    let times: Vec<f64> = std::thread::scope(|scope| {
        let run = |keys: &Vec<u32>| {
            barrier.wait();
            let start = Instant::now();
            for some in keys.chunks(KEYS_AT_ONCE) {
                let mut made = [Key::default(); KEYS_AT_ONCE];
                (made.iter_mut().zip(some)).for_each(|(made, k)| *made = key(*k));
                let allowed = black_box(&made[..some.len()])
                    .iter()
                    .filter(|key| check(key));
                black_box(allowed.count());
            }
            start.elapsed().as_secs_f64() * 1e9 / keys.len() as f64
        };
        let threads: Vec<_> = order
            .iter()
            .map(|keys| scope.spawn(move || run(keys)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    times.iter().sum::<f64>() / times.len() as f64
}

fn governor() -> DefaultKeyedRateLimiter<Key> {
    let quota = Quota::per_second(NonZeroU32::new(PER_SECOND).unwrap());
    RateLimiter::keyed(quota.allow_burst(NonZeroU32::new(BURST).unwrap()))
}

fn limiter(keys: usize) -> LocalLimiter {
    LocalLimiter::with_store(MemoryStore::with_config(
        MemoryConfig::default().max_keys(keys.max(1_000_000)),
    ))
}

fn limit() -> Limit {
    format!("{PER_SECOND}/s burst {BURST}").parse().unwrap()
}

/// What an identifier looks like: 16 bytes of text, made from the number so that it costs no memory access.
fn key(mut k: u32) -> Key {
    let mut key = *b"merchant_aaaaaaa";
    for byte in key[9..].iter_mut().rev() {
        *byte += (k & 15) as u8;
        k >>= 4;
    }
    key
}

fn sample(keys: usize, skew: Skew, seed: u64) -> Vec<u32> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed + 1);
    let mut uniform = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    // Zipf with exponent 1 by inversion of the harmonic sum: rank ≈ keys^u. Ranks are scattered over the keys.
    let scatter = |rank: u64| rank * 0x9E37_79B1 % keys as u64;
    (0..CHECKS_PER_THREAD)
        .map(|_| match skew {
            Skew::Uniform => (uniform() * keys as f64) as u32,
            Skew::Zipf => scatter((keys as f64).powf(uniform()) as u64) as u32,
        })
        .collect()
}

/// Memory is measured in a process of its own, as the system sees it.
fn spawn_bytes(subject: &str) -> u64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .env("TOLLGATE_BENCH_BYTES", subject)
        .output()
        .unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

fn bytes_per_key(subject: &str) -> u64 {
    const KEYS: u32 = 1_000_000;
    let before = resident_bytes();
    if subject == "governor" {
        let limiter = governor();
        (0..KEYS).for_each(|k| drop(limiter.check_key(&key(k))));
        let after = resident_bytes();
        drop(limiter);
        (after - before) / u64::from(KEYS)
    } else {
        let (limiter, limit) = (limiter(KEYS as usize), limit());
        (0..KEYS).for_each(|k| drop(limiter.check(key(k), &limit, 1)));
        let after = resident_bytes();
        drop(limiter);
        (after - before) / u64::from(KEYS)
    }
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
