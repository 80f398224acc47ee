//! Registers this process in the store, and reads how many are registered.
//!
//! A task of its own, beside the requests. It knows nothing of the breaker: it waits longer than a request may, so its success says
//! nothing about theirs, and one call every few seconds harms no store. It holds the store and the count, never the limiter: when
//! that is dropped, it removes this process from the list and ends.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::instances::Count;
use crate::store::{RedisError, RedisStore};

/// A process that has missed this many beats is no longer counted.
const BEATS_OF_LIFE: u32 = 3;
/// However often a process registers, it stays counted for this long: a stall of 50 ms is no reason to leave it out.
const MIN_LIFE: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
pub(super) struct Heartbeat {
    store: RedisStore,
    count: Arc<Count>,
    id: u64,
    every: Duration,
    /// Whether there is a task. A runtime that ends takes it along; then the next request starts another.
    is_beating: Arc<AtomicBool>,
    /// Notifies the task when this is dropped.
    limiter: watch::Sender<()>,
}

impl Heartbeat {
    pub(super) fn new(store: RedisStore, count: Arc<Count>, every: Duration) -> Self {
        // The system's randomness, and what tells apart processes that were forked with the same.
        let id = RandomState::new().hash_one((std::process::id(), Instant::now()));
        Self {
            store,
            count,
            id,
            every: every.clamp(SHORTEST, LONGEST),
            is_beating: Arc::default(),
            limiter: watch::Sender::new(()),
        }
    }

    /// Starts beating, unless it does or there is no runtime yet.
    pub(super) fn start(&self) {
        if self.is_beating.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.is_beating.swap(true, Ordering::Relaxed) {
            return;
        }
        let beating = Beating(Arc::clone(&self.is_beating));
        let (store, count) = (self.store.clone(), Arc::clone(&self.count));
        let (id, every, limiter) = (self.id, self.every, self.limiter.subscribe());
        runtime.spawn(async move {
            let _beating = beating;
            beat_until_dropped(&store, &count, id, every, limiter).await;
        });
    }
}

async fn beat_until_dropped(
    store: &RedisStore,
    count: &Count,
    id: u64,
    every: Duration,
    mut limiter: watch::Receiver<()>,
) {
    let life = MIN_LIFE.max(every * BEATS_OF_LIFE);
    let mut failed = 0;
    loop {
        match store.heartbeat(id, life).await {
            Ok(living) => {
                if failed >= WARN_AFTER {
                    tracing::info!("registered in Redis again: the other instances count this one");
                }
                failed = 0;
                report(count, living);
            }
            // The last count stays.
            Err(error) => {
                failed += 1;
                warn_of_failures(failed, &error, count);
            }
        }
        // The sooner a fleet that starts has counted itself, the shorter each process has to assume a number. A beat that failed is
        // repeated long before the others leave this process out.
        let pause = match count.is_assumed() || failed > 0 {
            true => every / 5,
            false => every,
        };
        // Nothing is ever sent: it ends early only if the limiter is gone.
        if tokio::time::timeout(pause, limiter.changed()).await.is_ok() {
            break;
        }
    }
    // If this fails, the others notice after three beats.
    let _ = store.heartbeat(id, Duration::ZERO).await;
}

/// With an instance that has counted, this many failed beats mean that the others will leave it out soon.
const WARN_AFTER: u32 = 10;

/// Logs that this process cannot be counted. Checks report a store that is gone; this may have another reason.
fn warn_of_failures(failed: u32, error: &RedisError, count: &Count) {
    let instances = count.now();
    if count.is_assumed() {
        if failed == 1 {
            tracing::warn!(
                %error,
                instances,
                "could not register in Redis: assuming this many instances; if Redis is up, check that its user may \
                 run ZADD, ZREM, ZCARD, ZREMRANGEBYSCORE and ZREVRANGE (deploy/redis/users.acl)"
            );
        }
    } else if failed == WARN_AFTER {
        tracing::warn!(
            %error,
            instances,
            "could not register in Redis {failed} times in a row: the other instances may no longer count this one, and this one \
             keeps its last count; if Redis is up, check the rights of its user (deploy/redis/users.acl)"
        );
    }
}

/// Takes a count, and logs the first that can be relied on.
fn report(count: &Count, living: u32) {
    let was_assumed = count.is_assumed();
    count.read(living);
    if was_assumed && !count.is_assumed() {
        let instances = count.now();
        match instances {
            1 => tracing::info!(
                instances,
                "no other instance shares this Redis: without it, this one would enforce 0.8 of every limit"
            ),
            _ => tracing::info!(
                instances,
                "counted the instances that share this Redis: without it, each would enforce 0.8 / instances of every limit"
            ),
        }
    }
}

/// Marks the task as ended, however it ended.
struct Beating(Arc<AtomicBool>);

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
