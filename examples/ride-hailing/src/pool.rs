//! The pool of threads and the queue before it. Knows no HTTP.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::journal::Journal;

/// What the service is made for.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// So many requests are served at a time …
    pub workers: usize,
    /// … each for so long.
    pub service_time: Duration,
    /// So many more may wait.
    pub queue: usize,
}

/// Threads that serve one request after the other, for as long as the program runs.
#[derive(Clone, Debug)]
pub struct Pool {
    waiting: Arc<Waiting>,
    capacity: Capacity,
    journal: Arc<Journal>,
}

#[derive(Debug, Default)]
struct Waiting {
    callers: Mutex<VecDeque<oneshot::Sender<()>>>,
    one_came: Condvar,
}

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system has no threads left.
    pub fn start(capacity: Capacity, journal: Arc<Journal>) -> std::io::Result<Self> {
        let pool = Self {
            waiting: Arc::default(),
            capacity,
            journal,
        };
        for number in 0..capacity.workers {
            let pool = pool.clone();
            let thread = thread::Builder::new().name(format!("worker-{number}"));
            thread.spawn(move || pool.serve_forever())?;
        }
        Ok(pool)
    }

    /// Waits for a thread and for its work.
    ///
    /// # Errors
    /// If the queue is full.
    pub async fn serve(&self) -> Result<(), Full> {
        self.journal.arrived();
        let (caller, served) = oneshot::channel();
        {
            let mut callers = self.waiting.callers.lock();
            if callers.len() >= self.capacity.queue {
                self.journal.refused();
                return Err(Full);
            }
            callers.push_back(caller);
        }
        self.waiting.one_came.notify_one();
        // Threads never end before the program does, so every caller in the queue is answered.
        served.await.map_err(|_| Full)
    }

    /// How many wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.waiting.callers.lock().len()
    }

    fn serve_forever(&self) {
        loop {
            let caller = self.next_caller();
            thread::sleep(self.capacity.service_time);
            // Only now does a thread find out that its caller has gone: this is the weakness.
            match caller.send(()) {
                Ok(()) => self.journal.served(),
                Err(()) => self.journal.served_nobody(),
            }
        }
    }

    fn next_caller(&self) -> oneshot::Sender<()> {
        let mut callers = self.waiting.callers.lock();
        loop {
            match callers.pop_front() {
                Some(caller) => return caller,
                None => self.waiting.one_came.wait(&mut callers),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const SERVICE_TIME: Duration = Duration::from_millis(50);

    fn pool(workers: usize, queue: usize) -> (Pool, Arc<Journal>) {
        let journal = Arc::new(Journal::default());
        let capacity = Capacity {
            workers,
            service_time: SERVICE_TIME,
            queue,
        };
        (
            Pool::start(capacity, Arc::clone(&journal)).unwrap(),
            journal,
        )
    }

    async fn until(is_so: impl Fn() -> bool) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < patience, "waited in vain");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    #[tokio::test]
    async fn no_more_are_served_at_a_time_than_there_are_workers() {
        let (pool, journal) = pool(2, 100);
        let began = Instant::now();
        let callers: Vec<_> = (0..6)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move { pool.serve().await })
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.await.unwrap(), Ok(()));
        }
        assert!(began.elapsed() >= 3 * SERVICE_TIME);
        assert_eq!(journal.counts().arrived, 6);
        until(|| journal.counts().served == 6).await;
    }

    #[tokio::test]
    async fn who_has_gone_is_served_all_the_same() {
        let (pool, journal) = pool(1, 100);
        let leaving = {
            let pool = pool.clone();
            tokio::spawn(async move { pool.serve().await })
        };
        until(|| journal.counts().arrived == 1).await;
        leaving.abort();
        until(|| journal.counts().served_nobody == 1).await;
        assert_eq!(journal.counts().served, 0);
    }

    #[tokio::test]
    async fn a_full_queue_refuses() {
        // Nobody serves, so whoever comes stays.
        let (pool, journal) = pool(0, 1);
        let waiting = {
            let pool = pool.clone();
            tokio::spawn(async move { pool.serve().await })
        };
        until(|| pool.queued() == 1).await;
        assert_eq!(pool.serve().await, Err(Full));
        assert_eq!(journal.counts().refused, 1);
        waiting.abort();
    }
}
