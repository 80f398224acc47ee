//! Timeouts that ignore the time for which this process itself stood still.
//!
//! A process that was stopped, frozen with its container or starved of CPU finds its timers expired when it continues, while
//! what it waited for may long be in a socket. tokio runs expired timers before it looks at that socket. So a deadline that
//! has passed is moved once, by as long as the timer was late: there is time to look at the sockets, and the other side, which
//! may have stood still with the machine, gets the time that it was promised.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Minimum time by which a deadline is moved: enough to look at the sockets.
const MIN_EXTENSION: Duration = Duration::from_millis(1);

/// A timeout that starts again with every request and hardly ever expires. Setting a timer for each would cost more than everything
/// else that a proxy does with it. So the timer stays where it is while the deadline moves on, and is set again when it goes off.
#[derive(Debug, Default)]
pub(crate) struct RollingTimeout {
    deadline: Option<Deadline>,
    timer: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
struct Deadline {
    at: Instant,
    duration: Duration,
    is_extended: bool,
}

impl RollingTimeout {
    /// Starts it again; without a duration it never expires.
    pub(crate) fn start(&mut self, now: Instant, duration: Option<Duration>) {
        self.deadline = duration.and_then(|duration| {
            Some(Deadline {
                at: now.checked_add(duration)?,
                duration,
                is_extended: false,
            })
        });
    }

    /// Ready once it has expired.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = &mut self.deadline else {
            return Poll::Pending;
        };
        let timer = (self.timer).get_or_insert_with(|| Box::pin(sleep_until(deadline.at)));
        if timer.deadline() > deadline.at {
            timer.as_mut().reset(deadline.at);
        }
        while timer.as_mut().poll(context).is_ready() {
            if timer.deadline() >= deadline.at && !deadline.extend(Instant::now()) {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline.at);
        }
        Poll::Pending
    }
}

impl Deadline {
    /// Moves it, unless it has been moved already.
    fn extend(&mut self, now: Instant) -> bool {
        if self.is_extended {
            return false;
        }
        let late = now.saturating_duration_since(self.at);
        self.at = now + late.min(self.duration).max(MIN_EXTENSION);
        self.is_extended = true;
        true
    }
}

/// The output of a future; `None` if it takes longer than `within`.
pub async fn timeout<F: Future>(within: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut timeout = RollingTimeout::default();
    timeout.start(Instant::now(), Some(within));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => timeout.poll(context).map(|()| None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn deadline_is_extended_once_and_at_most_by_its_duration() {
        let began = Instant::now();
        let extension = |late: Duration| {
            let mut deadline = Deadline {
                at: began,
                duration: SECOND,
                is_extended: false,
            };
            assert!(deadline.extend(began + late));
            assert!(!deadline.extend(deadline.at + SECOND));
            deadline.at - (began + late)
        };
        assert_eq!(extension(Duration::ZERO), MIN_EXTENSION);
        assert_eq!(extension(SECOND / 2), SECOND / 2);
        assert_eq!(extension(SECOND * 60), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn timeout_ends_the_wait_for_a_future() {
        assert_eq!(timeout(SECOND, std::future::pending::<()>()).await, None);
        assert_eq!(timeout(SECOND, std::future::ready(1)).await, Some(1));
        let mut rolling = RollingTimeout::default();
        rolling.start(Instant::now(), Some(SECOND));
        poll_fn(|context| rolling.poll(context)).await;
    }
}
