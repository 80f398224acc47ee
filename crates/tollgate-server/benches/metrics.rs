//! What it costs to count a decision: one through the door, which counts, beside one by the limiter alone, in one run.

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
use tollgate_server::config;
use tollgate_server::door::Door;
use tollgate_server::live::Live;

const CHECKS: u32 = 2_000_000;
const RULES: &str = "rules:
  - { id: client, per: [client], limit: \"1000000/s burst 100000000\" }
  - { id: everyone, per: [], limit: \"1000000/s burst 100000000\" }
";

fn main() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let _within = runtime.enter();
    let config = config::parse(RULES, &|_| None).unwrap();
    let live = Live::fixed(config.policy.policy());
    let door = Door::new(live, Limiter::in_memory(), None);
    for threads in [1, 2] {
        let mut best = [f64::MAX; 2];
        for _ in 0..5 {
            let alone = on(threads, || {
                let policy = door.policy();
                let request = Request::new().client("client-7");
                let met = policy.rules().meet(&request);
                at_once(door.limiter().decide_on(&met))
            });
            let counted = on(threads, || {
                let policy = door.policy();
                at_once(door.decide_on(&policy, &Request::new().client("client-7")))
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

/// Nanoseconds for one of these, on so many threads at once.
fn on<T>(threads: u32, decide: impl Fn() -> T + Sync) -> f64 {
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

/// Memory answers at the first poll.
fn at_once<T>(answer: impl Future<Output = T>) -> T {
    match pin!(answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("memory answers at once"),
    }
}
