//! `make bench-metrics`: the cost of counting a decision. Compares, in one run, the decider, which counts, with the limiter alone.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tollgate::{Limiter, Request};
use tollgate_server::decider::Decider;
use tollgate_server::live::Live;

const CHECKS: u32 = 2_000_000;
const RULES: &str = "rules:
  - { id: client, per: [client], limit: \"1000000/s burst 100000000\" }
  - { id: everyone, per: [], limit: \"1000000/s burst 100000000\" }
";

fn main() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let _guard = runtime.enter();
    let config = tollgate_config::parse(RULES, &|_| None).unwrap();
    let live = Live::fixed(config.policy.policy());
    let decider = Decider::new(live, Limiter::in_memory(), None);
    for threads in [1, 2] {
        let mut best = [f64::MAX; 2];
        for _ in 0..5 {
            let alone = time(threads, || {
                let policy = decider.policy();
                let request = Request::new().client("client-7");
                let met = policy.rules().matching(&request);
                poll_once(decider.limiter().matched(&met).decide())
            });
            let counted = time(threads, || {
                let policy = decider.policy();
                let request = Request::new().client("client-7");
                poll_once(decider.decide_on(&policy.rules().matching(&request)))
            });
            best = [best[0].min(alone), best[1].min(counted)];
        }
        let [alone, counted] = best;
        println!(
            "{threads} threads: {alone:.0} ns a decision, {counted:.0} ns counted: {:.1} ns to count",
            counted - alone
        );
    }
}

/// Nanoseconds per decision, on this many threads at once.
fn time<T>(threads: u32, decide: impl Fn() -> T + Sync) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for _ in 0..CHECKS {
                    black_box(decide());
                }
            });
        }
    });
    begun.elapsed().as_nanos() as f64 / f64::from(CHECKS)
}

/// The result of the first poll: a store in memory never waits.
fn poll_once<T>(decision: impl Future<Output = T>) -> T {
    match pin!(decision).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(decision) => decision,
        Poll::Pending => unreachable!("a store in memory never waits"),
    }
}
