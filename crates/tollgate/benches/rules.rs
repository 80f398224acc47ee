//! `make bench-rules`: what a decision costs with ten rules and with ten thousand, in one run.
//!
//! Whatever the rules are told apart by, each request meets the same number of them. Both sets are asked in turns, so that a noisy
//! machine slows both.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a program that measures and prints"
)]

use std::hint::black_box;
use std::time::Instant;

use tollgate::{Cost, Dimension, LocalLimiter, Match, Name, PathRules, Request, Rule, RuleSet};

const FEW: usize = 10;
const MANY: usize = 10_000;
const DECISIONS: usize = 200_000;
const ROUNDS: usize = 11;

/// What tells the rules apart.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Path,
    PathWithCosts,
    Placeholder,
    Host,
    Plan,
    Attribute,
    PlanOfOneId,
}

fn main() {
    println!("{DECISIONS} decisions, median of {ROUNDS} rounds in turns\n");
    println!(
        "{:16} {:>12} {:>12} {:>8}",
        "told apart by", "10 rules ns", "10,000 ns", "ratio"
    );
    let mut worst: f64 = 0.0;
    for by in [
        By::Path,
        By::PathWithCosts,
        By::Placeholder,
        By::Host,
        By::Plan,
        By::Attribute,
        By::PlanOfOneId,
    ] {
        let (few, many) = (Subject::new(by, FEW), Subject::new(by, MANY));
        let (mut few_ns, mut many_ns) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            few_ns.push(few.measure());
            many_ns.push(many.measure());
        }
        let (few, many) = (median(few_ns), median(many_ns));
        println!(
            "{:16} {few:12.1} {many:12.1} {:8.2}",
            format!("{by:?}"),
            many / few
        );
        worst = worst.max(many / few);
    }
    println!("\nrules: worst_10000_vs_10={worst:.2}");
}

struct Subject {
    by: By,
    limiter: LocalLimiter,
    /// What requests say, and who they are from: as many clients with few rules as with many, as the store's part is the same then.
    requests: Vec<(String, String)>,
}

impl Subject {
    fn new(by: By, count: usize) -> Self {
        let limit = "1000000/s burst 1000000".parse().unwrap();
        let rule = |id: String, when| {
            let rule = Rule::new(&id, limit).unwrap().when(when);
            rule.per([Dimension::Client])
        };
        let everybody = rule("everybody".into(), Match::new());
        let rules = (1..count).map(|i| match by {
            By::Path | By::PathWithCosts => {
                let pattern = format!("/v1/things-{i}/{{id}}");
                rule(format!("r{i}"), Match::new().path(pattern.parse().unwrap()))
            }
            By::Placeholder => {
                let pattern = format!("/{{tenant}}/things-{i}/{{*rest}}");
                rule(format!("r{i}"), Match::new().path(pattern.parse().unwrap()))
            }
            By::Host => {
                let host = format!("h{i}.example.com");
                rule(format!("r{i}"), Match::new().host(&host).unwrap())
            }
            By::Plan => rule(format!("r{i}"), Match::new().plans([format!("plan-{i}")])),
            By::Attribute => {
                let when = Match::new().attribute(tenant(), [format!("tenant-{i}")]);
                rule(format!("r{i}"), when)
            }
            By::PlanOfOneId => rule("plans".into(), Match::new()).plan(&format!("plan-{i}")),
        });
        let mut rules = RuleSet::new(std::iter::once(everybody).chain(rules)).unwrap();
        if by == By::PathWithCosts {
            let costs = (1..count).map(|i| {
                let pattern = format!("/v1/things-{i}/{{id}}");
                Cost::new(Match::new().path(pattern.parse().unwrap()), 3)
            });
            rules = rules.with_costs(costs);
        }
        let limiter = LocalLimiter::new();
        limiter.set_rules(rules);
        let requests = (0..1_024).map(|n| {
            let i = n * 7_919 % (count - 1) + 1;
            let said = match by {
                By::Path | By::PathWithCosts => format!("/v1/things-{i}/ch_12345"),
                By::Placeholder => format!("/acme/things-{i}/a/b"),
                By::Host => format!("h{i}.example.com"),
                By::Plan | By::PlanOfOneId => format!("plan-{i}"),
                By::Attribute => format!("tenant-{i}"),
            };
            (format!("merchant_{n}"), said)
        });
        Self {
            by,
            limiter,
            requests: requests.collect(),
        }
    }

    fn measure(&self) -> f64 {
        let paths = PathRules::default();
        let tenant = tenant();
        let start = Instant::now();
        for n in 0..DECISIONS {
            let (client, said) = &self.requests[n % self.requests.len()];
            let request = Request::new().client(client).method("POST");
            let decision = match self.by {
                By::Path | By::PathWithCosts | By::Placeholder => {
                    let path = paths.normalise(said).unwrap();
                    self.limiter.decide(&request.path(&path))
                }
                By::Host => self.limiter.decide(&request.host(said)),
                By::Plan | By::PlanOfOneId => self.limiter.decide(&request.plan(said)),
                By::Attribute => self.limiter.decide(&request.attribute(tenant, said)),
            };
            assert_eq!(black_box(decision).tiers().len(), 2);
        }
        start.elapsed().as_nanos() as f64 / DECISIONS as f64
    }
}

fn tenant() -> Name {
    Name::new("tenant").unwrap()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
