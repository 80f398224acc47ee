//! Leaky bucket: a queue that drains at a constant rate.
//!
//! A request is let in while the queue has room, and told when to go: when everything before it has drained.
//! Promise: what goes out never exceeds the rate, and at most `queue` is inside at any time. When the queue is made
//! smaller, those inside keep their times, and nobody is let in before there is room again.

use super::{Arithmetic, Level};
use crate::rate::Rate;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeakyBucket {
    rate: Rate,
    queue: u64,
}

impl LeakyBucket {
    pub(crate) const fn new(rate: Rate, queue: u64) -> Self {
        Self { rate, queue }
    }

    pub(crate) fn rate(&self) -> &Rate {
        &self.rate
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.queue
    }
}

impl Arithmetic for LeakyBucket {
    type State = Level;

    fn ready_at_us(&self, level: &Level, now_us: u64, cost: u64) -> u64 {
        level
            .standing(&self.rate, now_us)
            .ready_at_us(&self.rate, self.queue, cost)
    }

    /// When everything before it has drained.
    fn go_at_us(&self, level: &Level, now_us: u64) -> Option<u64> {
        let level = level.standing(&self.rate, now_us).level;
        (level.used_utok > 0).then(|| level.falls_to_at_us(&self.rate, 0))
    }

    fn charge(&self, level: &mut Level, now_us: u64, cost: u64) {
        *level = level.standing(&self.rate, now_us).charged(cost);
    }

    fn refund(&self, level: &mut Level, now_us: u64, charged_at_us: u64, cost: u64) {
        level.refund(&self.rate, now_us, charged_at_us, cost);
    }

    fn remaining(&self, level: &Level, now_us: u64) -> u64 {
        level.standing(&self.rate, now_us).remaining(self.queue)
    }

    fn empty_at_us(&self, level: &Level) -> u64 {
        level.falls_to_at_us(&self.rate, 0)
    }
}
