//! Checks on their way to Redis, many in one call.
//!
//! A check that finds fewer than three calls in flight is sent at once, with all that arrive in the same moment. The others gather and
//! go with the next call. So no check waits while the server is idle, and the busier it is, the more checks share a call.
//!
//! A check waits until its deadline; a call outlives it. While the reply to a call is overdue, the server is in doubt: one check at a
//! time is sent, so that little piles up in front of a server that is stopped, and all others are sent as soon as a reply arrives.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::deadline::{Deadline, LAST_LOOK, STALL, Times, in_time};
use super::endpoint::Endpoint;
use super::error::RedisError;
use super::parcel::Parcel;
use crate::store::Taken;

/// Calls in flight: enough that few checks wait under low load, few enough that calls are full under high load.
const MAX_CALLS: usize = 3;
/// Checks in one call.
const MAX_CHECKS: usize = 64;
/// Checks for another script that are passed over while a batch is filled.
const MAX_PASSED_OVER: usize = 4 * MAX_CHECKS;
/// A check is sent only while at least one in this many parts of its time is left.
const PARTS_OF_TIME: u32 = 10;

/// Collects checks for one endpoint and sends them in batches.
#[derive(Debug)]
pub(super) struct Batcher {
    endpoint: Endpoint,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Calls whose checks still wait for the reply.
    in_flight: usize,
    /// Calls whose checks have all been decided without the reply.
    overdue: usize,
}

/// A check that waits for its reply.
#[derive(Debug)]
struct Waiting {
    parcel: Parcel,
    deadline: Deadline,
    reply: oneshot::Sender<Result<Taken, RedisError>>,
    /// Whether the check has been decided without its reply.
    gave_up: Arc<AtomicBool>,
    /// Whether it must be sent without others.
    alone: bool,
}

/// A reply that did not arrive in time, and may still do so.
pub(crate) type LateReply = oneshot::Receiver<Result<Taken, RedisError>>;

/// Why a check was not decided by the server.
#[derive(Debug)]
pub(super) enum Missed {
    /// The deadline has passed.
    Late(LateReply, RedisError),
    Failed(RedisError),
}

impl Batcher {
    pub(super) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            queue: Mutex::default(),
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends a check with the next call, and waits for its reply until the deadline.
    pub(super) async fn send(
        self: Arc<Self>,
        parcel: Parcel,
        budget: Duration,
    ) -> Result<Taken, Missed> {
        let deadline = Deadline::after(budget);
        let (reply, mut replied) = oneshot::channel();
        let gave_up = Arc::new(AtomicBool::new(false));
        self.queue.lock().waiting.push_back(Waiting {
            parcel,
            deadline,
            reply,
            gave_up: Arc::clone(&gave_up),
            alone: false,
        });
        self.start_call();
        let stalls = &self.endpoint.monitor.stalls;
        match in_time(pin!(&mut replied), &deadline, stalls).await {
            Some(Ok(result)) => result.map_err(Missed::Failed),
            Some(Err(_)) => Err(Missed::Failed(RedisError::Unreachable(
                "the call was lost".into(),
            ))),
            None => {
                gave_up.store(true, Ordering::Relaxed);
                // The reason why there is no connection says more than that there is none.
                let failure = self.endpoint.destination.failure();
                Err(Missed::Late(
                    replied,
                    failure.unwrap_or(RedisError::TooLate),
                ))
            }
        }
    }

    /// Starts a call for the checks that wait, if another may be in flight.
    fn start_call(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() || queue.in_flight >= queue.max_calls() {
            return;
        }
        queue.in_flight += 1;
        drop(queue);
        // A task of its own: a caller may go away while the others in its batch wait.
        let caller = Caller {
            batcher: Arc::clone(self),
            state: CallerState::InFlight,
        };
        tokio::spawn(caller.run());
    }

    /// Waits for a connection until the first check gives up. The batch is chosen afterwards: a check that gives up meanwhile is never
    /// sent.
    async fn ready(&self) -> Readiness {
        let first = {
            let queue = self.queue.lock();
            queue.waiting.front().map(|first| first.deadline.at)
        };
        let Some(first) = first else {
            return Readiness::Known;
        };
        // A check that a stall held up has got more time than its deadline says.
        let until = first.max(Instant::now() + LAST_LOOK);
        match self.endpoint.destination.ready(until).await {
            true => Readiness::Known,
            false if Instant::now() < until => Readiness::Known,
            false => Readiness::Pending,
        }
    }

    /// Sends each check by itself. While their slot is being moved, a call whose keys are partly here and partly there is refused;
    /// each alone is served.
    fn split(&self, batch: Vec<Waiting>) {
        let mut queue = self.queue.lock();
        for one in batch.into_iter().rev() {
            queue.waiting.push_front(Waiting { alone: true, ..one });
        }
    }
}

/// Whether checks can be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readiness {
    /// There is a connection, or a call will find out at once why there is none.
    Known,
    /// It is still being made, and a check has waited for it in vain.
    Pending,
}

impl Queue {
    fn max_calls(&self) -> usize {
        if self.overdue > 0 { 1 } else { MAX_CALLS }
    }

    fn batch_size(&self) -> usize {
        if self.overdue > 0 { 1 } else { MAX_CHECKS }
    }
}

impl Waiting {
    /// Whether it is not to be sent any more: it could not be answered in time. A check that still waits long after its deadline was
    /// held up by a stall of this process, and has got more time.
    fn is_expired(&self, now: Instant) -> bool {
        let late_by = now.saturating_duration_since(self.deadline.at);
        let is_near_end = self.deadline.at <= now + self.deadline.budget / PARTS_OF_TIME;
        self.gave_up.load(Ordering::Relaxed) || is_near_end && late_by < STALL
    }

    /// Whether both can be in one call.
    fn goes_with(&self, other: &Self) -> bool {
        !self.alone && !other.alone && self.parcel.way == other.parcel.way
    }
}

/// A task that makes one call after the other while checks wait. It is counted for as long as it exists, even if it ends in a panic,
/// or its runtime ends first.
struct Caller {
    batcher: Arc<Batcher>,
    state: CallerState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallerState {
    InFlight,
    Overdue,
    Done,
}

impl Caller {
    async fn run(mut self) {
        // Checks that are about to arrive come along. This does not wait for the clock: it ends when this thread has nothing else to
        // do, or has done 61 other things (tokio's `event_interval`).
        tokio::task::yield_now().await;
        while self.state == CallerState::InFlight {
            match self.batcher.ready().await {
                Readiness::Known => {
                    let batch = self.next_batch();
                    if !batch.is_empty() {
                        self.call(batch).await;
                    }
                }
                Readiness::Pending => self.expire(),
            }
        }
    }

    /// The checks for the next call: the first that waits, and others for the same script. Empty if none waits; then this task ends.
    fn next_batch(&mut self) -> Vec<Waiting> {
        let mut queue = self.batcher.queue.lock();
        let (now, size) = (Instant::now(), queue.batch_size());
        let mut batch: Vec<Waiting> = Vec::with_capacity(size.min(queue.waiting.len()));
        let mut passed_over = Vec::new();
        while batch.len() < size
            && passed_over.len() < MAX_PASSED_OVER
            && let Some(next) = queue.waiting.pop_front()
        {
            if next.reply.is_closed() {
                continue;
            }
            if next.is_expired(now) {
                let _ = next.reply.send(Err(RedisError::TooLate));
            } else if batch.first().is_none_or(|first| first.goes_with(&next)) {
                batch.push(next);
            } else {
                passed_over.push(next);
            }
        }
        for next in passed_over.into_iter().rev() {
            queue.waiting.push_front(next);
        }
        if batch.is_empty() {
            // Under the same lock: a check that arrives now starts another call.
            queue.in_flight -= 1;
            self.state = CallerState::Done;
        }
        batch
    }

    /// Removes the checks that waited for a connection in vain, and reports them as one failed call. If no other waits, this task ends.
    fn expire(&mut self) {
        let mut since: Option<Instant> = None;
        {
            let mut queue = self.batcher.queue.lock();
            let now = Instant::now();
            for next in std::mem::take(&mut queue.waiting) {
                if next.is_expired(now) {
                    let began = next.deadline.began();
                    since = Some(since.map_or(began, |since| since.min(began)));
                    let _ = next.reply.send(Err(RedisError::TooLate));
                } else if !next.reply.is_closed() {
                    queue.waiting.push_back(next);
                }
            }
            if queue.waiting.is_empty() {
                queue.in_flight -= 1;
                self.state = CallerState::Done;
            }
        }
        if let Some(since) = since {
            let endpoint = &self.batcher.endpoint;
            let failure = endpoint.destination.failure();
            let error = failure.unwrap_or(RedisError::TooLate);
            (endpoint.monitor).overdue(error, since, endpoint.destination.slot());
        }
    }

    async fn call(&mut self, batch: Vec<Waiting>) {
        let batcher = Arc::clone(&self.batcher);
        let endpoint = &batcher.endpoint;
        let Some(deadline) = batch
            .iter()
            .map(|one| one.deadline)
            .max_by_key(|one| one.at)
        else {
            return;
        };
        let began = Instant::now();
        // Checks may have shorter deadlines of their own. The server is judged by one measure for all.
        let due = Deadline {
            at: deadline.at.max(began + endpoint.deadline),
            budget: deadline.budget.max(endpoint.deadline),
        };
        let times = Times {
            send_by: deadline.at,
            ..Times::of_checks(&due)
        };
        let result = {
            let parcels: Vec<&Parcel> = batch.iter().map(|one| &one.parcel).collect();
            let mut call = pin!(endpoint.exchange(&parcels, times));
            match in_time(call.as_mut(), &due, &endpoint.monitor.stalls).await {
                Some(result) => result,
                None => {
                    self.becomes_overdue(began);
                    call.await
                }
            }
        };
        let is_overdue = self.state == CallerState::Overdue;
        let (took, size) = (began.elapsed(), batch.len());
        let must_split = result.as_ref().is_err_and(RedisError::is_of_several_keys);
        if must_split && size > 1 && !is_overdue {
            batcher.split(batch);
            return;
        }
        let meter = &endpoint.monitor.meter;
        meter.called(size, took, result.is_ok() && !is_overdue);
        match (&result, is_overdue) {
            (_, false) => (endpoint.monitor).ended(&result, began, endpoint.destination.slot()),
            (Ok(_), true) => endpoint.monitor.answered_late(),
            // It has already been reported.
            (Err(_), true) => {}
        }
        deliver(batch, result);
        if is_overdue {
            self.leave();
            batcher.start_call();
        }
    }

    /// All checks of the call have been decided without its reply.
    fn becomes_overdue(&mut self, sent: Instant) {
        {
            let mut queue = self.batcher.queue.lock();
            queue.in_flight -= 1;
            queue.overdue += 1;
        }
        self.state = CallerState::Overdue;
        let endpoint = &self.batcher.endpoint;
        let slot = endpoint.destination.slot();
        (endpoint.monitor).overdue(RedisError::TooLate, sent, slot);
        self.batcher.start_call();
    }

    /// Is not counted any more.
    fn leave(&mut self) {
        let mut queue = self.batcher.queue.lock();
        match std::mem::replace(&mut self.state, CallerState::Done) {
            CallerState::InFlight => queue.in_flight -= 1,
            CallerState::Overdue => queue.overdue -= 1,
            CallerState::Done => {}
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Gives each check its reply. Nobody may be waiting for it any more.
fn deliver(batch: Vec<Waiting>, result: Result<Vec<Option<Taken>>, RedisError>) {
    match result {
        Ok(replies) => {
            for (one, reply) in batch.into_iter().zip(replies) {
                let _ = one.reply.send(reply.ok_or(RedisError::Garbage));
            }
        }
        Err(error) => {
            for one in batch {
                let _ = one.reply.send(Err(error.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::parcel::Way;

    fn waiting(deadline: Deadline) -> Waiting {
        Waiting {
            parcel: Parcel {
                charges: Vec::new(),
                way: Way::Look,
            },
            deadline,
            reply: oneshot::channel().0,
            gave_up: Arc::default(),
            alone: false,
        }
    }

    #[test]
    fn a_check_is_not_sent_near_or_after_its_deadline_unless_a_stall_held_it_up() {
        let ms = Duration::from_millis;
        let deadline = Deadline::after(ms(50));
        let check = waiting(deadline);
        assert!(!check.is_expired(deadline.at - ms(6)));
        assert!(check.is_expired(deadline.at - ms(5)));
        assert!(check.is_expired(deadline.at + ms(1)));
        // Its own timer should have fired long ago.
        assert!(!check.is_expired(deadline.at + ms(30)));
        check.gave_up.store(true, Ordering::Relaxed);
        assert!(check.is_expired(deadline.at + ms(30)));
    }
}
