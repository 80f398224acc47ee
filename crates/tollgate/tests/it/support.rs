//! What the tests share.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use tollgate::store::{MemoryConfig, MemoryStore};
use tollgate::{Clock, Limit, Limiter, ManualClock};

/// A time with nothing special about it, in the middle of every window.
pub(crate) const NOON_US: u64 = 1_700_000_029_500_000;

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// Runs all of them side by side: each has begun before one ends, if it has to wait at all.
pub(crate) fn run_together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    run(std::future::poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        match outputs.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }));
    outputs.into_iter().flatten().collect()
}

pub(crate) fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

pub(crate) fn limit(text: &str) -> Limit {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

pub(crate) fn clock() -> ManualClock {
    ManualClock::at(us(NOON_US))
}

pub(crate) fn config(clock: &ManualClock) -> MemoryConfig {
    MemoryConfig::default().clock(Clock::from(clock))
}

pub(crate) fn memory(clock: &ManualClock) -> MemoryStore {
    MemoryStore::with_config(config(clock))
}

pub(crate) fn limiter(clock: &ManualClock) -> Limiter {
    Limiter::new(MemoryStore::with_config(config(clock)))
}

/// One limit of each algorithm, each with room for ten and back within seconds.
pub(crate) fn one_of_each() -> [Limit; 5] {
    [
        limit("5/s burst 10"),
        limit("5/s queue 10"),
        limit("10 per 2s fixed_window"),
        limit("10 per 2s sliding_log"),
        limit("10 per 2s sliding_counter"),
    ]
}

/// A store on a server of its own, with its time turned by hand.
#[cfg(feature = "redis")]
pub(crate) fn redis(clock: &ManualClock) -> crate::server::OwnRedis {
    crate::server::OwnRedis::start(Clock::from(clock))
}

/// For a limiter whose share without the store is known: it is the only instance.
#[cfg(feature = "redis")]
pub(crate) fn one_instance() -> tollgate::SharedConfig {
    tollgate::SharedConfig::default().instances(tollgate::Instances::Fixed(1))
}
