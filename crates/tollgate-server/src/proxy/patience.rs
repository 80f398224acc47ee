//! A deadline that is moved with every request and hardly ever passes.
//!
//! To set and clear a timer for each request would cost more than all else that a proxy does with it. So the timer stays where it
//! is while the deadline moves on; when it goes off, it is set to where the deadline is then.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Debug, Default)]
pub(super) struct Patience {
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// It begins now, and is over after this; never, if there is no such time.
    pub(super) fn begin(&mut self, now: Instant, time: Option<Duration>) {
        self.deadline = time.and_then(|time| now.checked_add(time));
    }

    pub(super) fn until(&mut self, deadline: Instant) {
        self.deadline = Some(deadline);
    }

    /// Whether it is over.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else {
            return Poll::Pending;
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
        }
        while timer.as_mut().poll(context).is_ready() {
            if timer.deadline() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}
