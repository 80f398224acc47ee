//! Tells the store that this process lives, and hears how many do.
//!
//! A task of its own, beside the requests. It neither asks the breaker nor tells it anything: it waits longer than a request may, so
//! its success says nothing about theirs, and one call every few seconds harms no store. It holds the store and the count,
//! never the limiter: when that is dropped, it takes this process off the list and ends.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::instances::Count;
use crate::store::RedisStore;

/// Who was not heard of for so many beats is taken for gone.
const BEATS_OF_LIFE: u32 = 3;
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
    /// The task hears when this is dropped.
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
    loop {
        match store.heartbeat(id, every * BEATS_OF_LIFE).await {
            Ok(living) => count.hear(living),
            // The last count stays. Requests say it louder if the store is gone.
            Err(error) => tracing::debug!(%error, "the store was not told that this process lives"),
        }
        // Nothing is ever sent: it ends early only if the limiter is gone.
        if tokio::time::timeout(every, limiter.changed()).await.is_ok() {
            break;
        }
    }
    // If this fails, the others notice after three beats.
    let _ = store.heartbeat(id, Duration::ZERO).await;
}

/// Says that there is no task any more, however it ended.
struct Beating(Arc<AtomicBool>);

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
