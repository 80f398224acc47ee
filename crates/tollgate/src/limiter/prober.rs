//! Watches the calls to the store, opens the breaker when they fail, and probes the store in the background until it closes again.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::breaker::{Breaker, BreakerConfig, Failure, NextProbe};
use super::instances::Count;
use crate::store::{CallFailure, CallObserver, ProbeReply, RedisStore};

/// A probe that is late by this much does not get to run.
const STARVED_AFTER: Duration = Duration::from_millis(50);

/// The task of a probe that is late by this much, beside the time to connect, will never run again.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// The breaker of a store, and the task that probes the store while it is open.
#[derive(Debug)]
pub(super) struct Prober {
    breaker: Breaker,
    store: RedisStore,
    /// For the log: the size of this process's share.
    instances: Arc<Count>,
    /// The number of the task that probes, or 0. A runtime that ends takes the task along; then the next check starts another.
    task: Arc<AtomicU64>,
    tasks_started: AtomicU64,
    /// Ends a pause early.
    wake: Arc<Notify>,
    this: Weak<Self>,
}

impl Prober {
    pub(super) fn new(
        store: RedisStore,
        instances: Arc<Count>,
        config: BreakerConfig,
    ) -> Arc<Self> {
        let prober = Arc::new_cyclic(|this| Self {
            breaker: Breaker::new(config),
            store,
            instances,
            task: Arc::default(),
            tasks_started: AtomicU64::new(0),
            wake: Arc::default(),
            this: Weak::clone(this),
        });
        let observer: Weak<dyn CallObserver> = Weak::<Self>::clone(&prober.this);
        prober.store.observe(observer);
        prober
    }

    pub(super) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Whether the store may be asked. If not, makes sure that it is probed.
    pub(super) async fn may_ask(&self, now: Instant) -> bool {
        if !self.breaker.is_open() {
            return true;
        }
        let late_by = self.breaker.probe_is_late_by(now);
        // Connecting is tried twice.
        if late_by > LOST_AFTER + 2 * self.store.connect_timeout()
            && self.breaker.retry_lost_probe(now, late_by)
        {
            // The runtime of the task exists but does not run any more.
            self.task.store(0, Ordering::Relaxed);
        }
        self.start();
        if late_by > STARVED_AFTER {
            // Not a wait: it lets the other tasks of this thread have their turn.
            tokio::task::yield_now().await;
        }
        false
    }

    /// Starts to probe, unless that is being done or there is no runtime.
    fn start(&self) {
        if self.task.load(Ordering::Relaxed) != 0 {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let number = 1 + self.tasks_started.fetch_add(1, Ordering::Relaxed);
        let claim = (self.task).compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_err() {
            return;
        }
        let task = ProbeTask {
            number,
            current: Arc::clone(&self.task),
        };
        runtime.spawn(probe_until_closed(Weak::clone(&self.this), task));
    }

    /// Probes the store once, and closes the breaker if it replies in time.
    async fn probe(&self, slot: Option<u16>) -> ProbeOutcome {
        match self.store.probe(slot).await {
            Ok(ProbeReply::InTime) => {
                if let Some(open_for) = self.breaker.close(Instant::now()) {
                    tracing::info!(
                        open_for_ms = open_for.as_millis(),
                        "Redis answers again: limits are shared between all instances again"
                    );
                }
                ProbeOutcome::Closed
            }
            Ok(ProbeReply::Late) => {
                tracing::debug!("Redis answers a probe, but after the deadline");
                ProbeOutcome::Late
            }
            Err(error) => {
                tracing::debug!(%error, "Redis still does not answer as it should");
                ProbeOutcome::Failed
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeOutcome {
    Closed,
    Late,
    Failed,
}

async fn probe_until_closed(prober: Weak<Prober>, task: ProbeTask) {
    let jitter = random();
    let mut replies = false;
    while task.is_current()
        && let Some((next, wake)) = next_probe(&prober, replies, jitter)
    {
        match next.may_be_early {
            // Whichever comes first.
            true => drop(tokio::time::timeout(next.pause, wake.notified()).await),
            false => tokio::time::sleep(next.pause).await,
        }
        let Some(prober) = prober.upgrade() else {
            break;
        };
        match prober.probe(next.slot).await {
            ProbeOutcome::Closed => break,
            outcome => replies = outcome == ProbeOutcome::Late,
        }
    }
    drop(task);
    // It may have opened again before it was known that this task ends.
    if let Some(prober) = prober.upgrade()
        && prober.breaker.is_open()
    {
        prober.start();
    }
}

/// When to probe next, and what ends the pause early. The prober is not held during the pause: it goes with its limiter.
fn next_probe(
    prober: &Weak<Prober>,
    replies: bool,
    jitter: f64,
) -> Option<(NextProbe, Arc<Notify>)> {
    let prober = prober.upgrade()?;
    let next = (prober.breaker).next_probe(Instant::now(), replies, jitter)?;
    Some((next, Arc::clone(&prober.wake)))
}

/// Between 0 and 1.
fn random() -> f64 {
    let bits = RandomState::new().hash_one(Instant::now());
    f64::from(u32::try_from(bits >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

impl CallObserver for Prober {
    fn answered(&self) {
        self.breaker.answered();
    }

    fn answered_late(&self) {
        match self.breaker.is_open() {
            true => self.wake.notify_one(),
            false => self.breaker.answered_late(),
        }
    }

    fn failed(&self, call: &CallFailure) {
        let failure = Failure {
            since: call.since,
            timed_out: call.timed_out,
            slot: call.slot,
        };
        if self.breaker.failed(failure, Instant::now()) {
            tracing::warn!(
                error = %call.error,
                instances = self.instances.now(),
                instances_assumed = self.instances.is_assumed(),
                "Redis fails: deciding without it, by each rule's on_store_failure, until it answers again"
            );
            self.start();
        }
    }
}

/// A task that probes. Another may have taken its place while its runtime stood still.
#[derive(Debug)]
struct ProbeTask {
    number: u64,
    current: Arc<AtomicU64>,
}

impl ProbeTask {
    fn is_current(&self) -> bool {
        self.current.load(Ordering::Relaxed) == self.number
    }
}

impl Drop for ProbeTask {
    /// Makes room for the next task, however this one ends.
    fn drop(&mut self) {
        let _ =
            (self.current).compare_exchange(self.number, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}
