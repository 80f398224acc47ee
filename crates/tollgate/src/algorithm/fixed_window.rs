//! Fixed window: a count per window, windows aligned to the clock.
//!
//! Promise: at most `limit` inside each aligned window. Its known flaw, and no other: across a boundary up to
//! twice the limit can pass within less than one window's length.

use super::Arithmetic;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FixedWindow {
    limit: u64,
    window_us: u64,
}

/// What was used in the window in which `at_us` lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) at_us: u64,
    pub(crate) used: u64,
}

impl FixedWindow {
    pub(crate) const fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn window_us(&self) -> u64 {
        self.window_us
    }

    fn start_us(&self, at_us: u64) -> u64 {
        at_us - at_us % self.window_us
    }

    /// The window at `now_us`, with what was used in it.
    fn standing(&self, window: &Window, now_us: u64) -> Window {
        let at_us = now_us.max(window.at_us);
        let used = match window.at_us < self.start_us(at_us) {
            true => 0,
            false => window.used,
        };
        Window { at_us, used }
    }
}

impl Arithmetic for FixedWindow {
    type State = Window;

    fn ready_at_us(&self, window: &Window, now_us: u64, _cost: u64) -> u64 {
        self.start_us(now_us.max(window.at_us)) + self.window_us
    }

    fn charge(&self, window: &mut Window, now_us: u64, cost: u64) {
        *window = self.standing(window, now_us);
        window.used += cost;
    }

    fn refund(&self, window: &mut Window, now_us: u64, charged_at_us: u64, cost: u64) {
        let standing = self.standing(window, now_us);
        if self.start_us(charged_at_us) == self.start_us(standing.at_us) {
            window.used = window.used.saturating_sub(cost);
        }
    }

    fn remaining(&self, window: &Window, now_us: u64) -> u64 {
        self.limit
            .saturating_sub(self.standing(window, now_us).used)
    }

    fn empty_at_us(&self, window: &Window) -> u64 {
        match window.used {
            0 => 0,
            _ => self.start_us(window.at_us) + self.window_us,
        }
    }
}
