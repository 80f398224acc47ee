//! Timeouts on others, in which the time that this process stood still does not count.
//!
//! A process that was stopped, frozen with its container or starved of CPU finds its timers expired when it goes on, while what it
//! waited for may long be in a socket. tokio runs expired timers before it looks at that socket, because the stop interrupts its wait
//! for events. So a deadline that expires is moved once, by as long as it expired late: there is time to look at the sockets, and the
//! other side, which may have stood still with the machine, gets what it was promised.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The least time by which a deadline is moved: enough to look at the sockets.
const MOMENT: Duration = Duration::from_millis(1);

/// A deadline that is moved with every request and hardly ever passes.
///
/// To set and clear a timer for each request would cost more than all else that a proxy does with it. So the timer stays where it
/// is while the deadline moves on; when it goes off, it is set to where the deadline is then.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    deadline: Option<Deadline>,
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Instant,
    time: Duration,
    is_moved: bool,
}

impl Patience {
    /// It begins now, and is over after this; never, if there is no such time.
    pub(crate) fn begin(&mut self, now: Instant, time: Option<Duration>) {
        self.deadline = time.and_then(|time| {
            Some(Deadline {
                at: now.checked_add(time)?,
                time,
                is_moved: false,
            })
        });
    }

    /// Whether it is over.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = &mut self.deadline else {
            return Poll::Pending;
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline.at)));
        if timer.deadline() > deadline.at {
            timer.as_mut().reset(deadline.at);
        }
        while timer.as_mut().poll(context).is_ready() {
            if timer.deadline() >= deadline.at && !deadline.moves(Instant::now()) {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline.at);
        }
        Poll::Pending
    }

    /// Waits until it is over.
    pub(crate) async fn over(&mut self) {
        poll_fn(|context| self.poll(context)).await;
    }
}

impl Deadline {
    /// Moves it if it has not been moved yet.
    fn moves(&mut self, now: Instant) -> bool {
        if self.is_moved {
            return false;
        }
        let late = now.saturating_duration_since(self.at);
        self.at = now + late.min(self.time).max(MOMENT);
        self.is_moved = true;
        true
    }
}

/// The output of a future; `None` if it takes longer than `within`.
pub async fn timeout<F: Future>(within: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut patience = Patience::default();
    patience.begin(Instant::now(), Some(within));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => patience.poll(context).map(|()| None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_deadline_is_moved_once_by_its_lateness_and_at_most_its_time() {
        let began = Instant::now();
        let moved = |late: Duration| {
            let mut deadline = Deadline {
                at: began,
                time: SECOND,
                is_moved: false,
            };
            assert!(deadline.moves(began + late));
            assert!(!deadline.moves(deadline.at + SECOND));
            deadline.at - (began + late)
        };
        assert_eq!(moved(Duration::ZERO), MOMENT);
        assert_eq!(moved(SECOND / 2), SECOND / 2);
        assert_eq!(moved(SECOND * 60), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_comes_is_given_up() {
        assert_eq!(timeout(SECOND, std::future::pending::<()>()).await, None);
        assert_eq!(timeout(SECOND, std::future::ready(1)).await, Some(1));
        let mut patience = Patience::default();
        patience.begin(Instant::now(), Some(SECOND));
        patience.over().await;
    }
}
