//! Deadlines of checks and calls, and stalls of this process that make timers fire late.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

/// A timer that fires this much late means that this process did not run: the machine is busy, the container is throttled, or the
/// process was stopped.
pub(super) const STALL: Duration = Duration::from_millis(5);

/// How long a reply that may already be in the socket gets to be read once a timer has fired.
pub(super) const LAST_LOOK: Duration = Duration::from_millis(1);

/// How long the reply to a call is waited for, also after its checks were decided without it. Then its connection is given up.
pub(super) const LATE_REPLY: Duration = Duration::from_millis(500);

/// The least of that time which is left after the deadline, for deadlines of hundreds of milliseconds.
const MIN_AFTER_DEADLINE: Duration = Duration::from_millis(250);

/// When a check must be decided, and how much time it had for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    pub(super) at: Instant,
    pub(super) budget: Duration,
}

impl Deadline {
    pub(super) fn after(budget: Duration) -> Self {
        Self {
            at: Instant::now() + budget,
            budget,
        }
    }

    /// When the budget began.
    pub(super) fn began(&self) -> Instant {
        self.at.checked_sub(self.budget).unwrap_or(self.at)
    }
}

/// The two times that bound a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Nothing is sent after this.
    pub(super) send_by: Instant,
    /// A reply that has not arrived by this time costs the connection.
    pub(super) reply_by: Instant,
}

impl Times {
    /// For a call whose caller waits until then.
    pub(super) fn until(at: Instant) -> Self {
        Self {
            send_by: at,
            reply_by: at,
        }
    }

    /// For checks that stop waiting at the deadline, although their reply is still of use.
    pub(super) fn of_checks(deadline: &Deadline) -> Self {
        Self {
            send_by: deadline.at,
            reply_by: (deadline.at + MIN_AFTER_DEADLINE).max(Instant::now() + LATE_REPLY),
        }
    }
}

/// Waits for a reply until the deadline; `None` if it does not arrive in time.
///
/// A timer that fires late shows that this process was stalled. The time it lost is not the store's fault, so the reply gets it back,
/// up to one more budget. Otherwise the last moment before the deadline is left to read what has already arrived.
pub(super) async fn in_time<F: Future>(
    mut reply: Pin<&mut F>,
    deadline: &Deadline,
    stalls: &Stalls,
) -> Option<F::Output> {
    let last_look = LAST_LOOK.min(deadline.budget / 10);
    let due = deadline.at.checked_sub(last_look).unwrap_or(deadline.at);
    if let Ok(reply) = timeout_at(due, reply.as_mut()).await {
        return Some(reply);
    }
    let late_by = due.elapsed();
    let extension = match late_by >= STALL {
        true => {
            stalls.record(due, late_by);
            late_by.min(deadline.budget)
        }
        false => last_look,
    };
    timeout_at(Instant::now() + extension, reply).await.ok()
}

/// Waits for a reply until its connection is given up; `None` if it does not arrive. A timer that fires late is moved once, so that
/// what arrived during a stall of this process can be read: the connection is not to blame.
pub(super) async fn until_given_up<F: Future>(reply: F, at: Instant) -> Option<F::Output> {
    let mut reply = pin!(reply);
    if let Ok(reply) = timeout_at(at, reply.as_mut()).await {
        return Some(reply);
    }
    let late_by = at.elapsed();
    if late_by < STALL {
        return None;
    }
    let extension = late_by.min(LATE_REPLY);
    timeout_at(Instant::now() + extension, reply).await.ok()
}

/// Stalls of this process, each counted once however many timers noticed it.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    count: AtomicU64,
    longest_us: AtomicU64,
    /// When the last one ended.
    ended: Mutex<Option<Instant>>,
}

impl Stalls {
    /// A timer that was due at this time fired so much later.
    fn record(&self, due: Instant, late_by: Duration) {
        let mut ended = self.ended.lock();
        if ended.is_some_and(|ended| due <= ended) {
            return;
        }
        *ended = Some(due + late_by);
        self.count.fetch_add(1, Relaxed);
        let late_us = u64::try_from(late_by.as_micros()).unwrap_or(u64::MAX);
        self.longest_us.fetch_max(late_us, Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    pub(super) fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    }

    #[test]
    fn one_stall_seen_by_many_timers_counts_once() {
        let (stalls, due) = (Stalls::default(), Instant::now());
        let ms = Duration::from_millis;
        stalls.record(due, ms(30));
        stalls.record(due + ms(10), ms(20));
        stalls.record(due + ms(30), ms(7));
        assert_eq!(stalls.count(), 1);
        stalls.record(due + ms(100), ms(8));
        assert_eq!((stalls.count(), stalls.longest()), (2, ms(30)));
    }

    /// The thread sleeps across the deadline, as a process does that is not scheduled, and the reply is there only afterwards.
    #[test]
    fn time_lost_to_a_stall_is_given_back() {
        let (stalls, budget) = (Stalls::default(), Duration::from_millis(200));
        let reply = runtime().block_on(async {
            let deadline = Deadline::after(budget);
            let (answer, answered) = oneshot::channel();
            let stall = tokio::spawn(async move {
                std::thread::sleep(3 * budget);
                tokio::time::sleep(budget / 10).await;
                let _ = answer.send(7);
            });
            let reply = in_time(pin!(answered), &deadline, &stalls).await;
            stall.await.unwrap();
            reply
        });
        assert_eq!(reply, Some(Ok(7)));
        assert_eq!(stalls.count(), 1);
    }

    #[test]
    fn connection_is_not_given_up_for_a_stall() {
        let patience = Duration::from_millis(20);
        let reply = runtime().block_on(async {
            let at = Instant::now() + patience;
            let (answer, answered) = oneshot::channel();
            tokio::spawn(async move {
                std::thread::sleep(20 * patience);
                tokio::time::sleep(patience).await;
                let _ = answer.send(7);
            });
            until_given_up(answered, at).await
        });
        assert_eq!(reply, Some(Ok(7)));
    }

    #[test]
    fn late_replies_are_waited_for_whatever_the_deadline() {
        for budget in [15, 50, 500, 10_000].map(Duration::from_millis) {
            let deadline = Deadline::after(budget);
            let times = Times::of_checks(&deadline);
            assert!(times.reply_by >= deadline.at + MIN_AFTER_DEADLINE);
            assert!(times.reply_by >= deadline.began() + LATE_REPLY);
        }
    }

    #[test]
    fn without_a_stall_the_deadline_holds() {
        let stalls = Stalls::default();
        let reply = runtime().block_on(async {
            let deadline = Deadline::after(Duration::from_millis(20));
            let never = std::future::pending::<()>();
            in_time(pin!(never), &deadline, &stalls).await
        });
        assert_eq!(reply, None);
    }
}
