//! A level that drains at a constant rate: what token and leaky bucket have in common.
//!
//! The level is kept in microtokens, with the time it was true. Draining goes in whole steps of the rate's
//! fraction (10/s: 10 microtokens every microsecond; 7/day: 7 every 86.4 ms), so that the level stays a whole
//! number without any rounding; the part of a step that has passed since is computed when it is asked for.
//! The mark therefore lies at or a fraction of a step before the last charge.

use crate::rate::{Rate, UTOK};

/// What was used, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// When the level was this high.
    pub(crate) at_us: u64,
    /// How high it was, in microtokens.
    pub(crate) used_utok: u64,
}

/// A level as it stands at some time.
#[derive(Clone, Copy)]
pub(super) struct Standing {
    /// Drained by whole steps.
    pub(super) level: Level,
    /// What the step under way has drained so far.
    pub(super) part_utok: u64,
}

impl Level {
    /// `used` whole tokens at a time.
    pub(super) fn holding(used: u64, at_us: u64) -> Self {
        Self {
            at_us,
            used_utok: used.saturating_mul(UTOK),
        }
    }

    /// Whole tokens used, rounded up.
    pub(super) fn used(&self) -> u64 {
        self.used_utok.div_ceil(UTOK)
    }

    /// The level as far as it counts: no higher than a full bucket. A limit that was lowered denies until one token has
    /// drained, not until the old burst has. (Full at the time of a charge can be up to a part of a step more at the mark
    /// before it.)
    #[inline]
    pub(super) fn capped(&self, full_utok: u64) -> Self {
        Self {
            at_us: self.at_us,
            used_utok: self.used_utok.min(full_utok),
        }
    }

    /// The level at `now_us`.
    #[inline(always)]
    pub(super) fn standing(&self, rate: &Rate, now_us: u64) -> Standing {
        let used_utok = self.used_utok;
        let elapsed_us = now_us.saturating_sub(self.at_us);
        let (steps, part_utok) = match rate.drain_us() {
            // Whole rates per second are the usual case, and need no division.
            1 => (elapsed_us, 0),
            step_us => (
                elapsed_us / step_us,
                elapsed_us % step_us * rate.drain_utok() / step_us,
            ),
        };
        let drained_utok = steps.saturating_mul(rate.drain_utok());
        if used_utok <= drained_utok.saturating_add(part_utok) {
            return Standing {
                level: Self {
                    at_us: self.at_us.max(now_us),
                    used_utok: 0,
                },
                part_utok: 0,
            };
        }
        Standing {
            level: Self {
                at_us: self.at_us + steps * rate.drain_us(),
                used_utok: used_utok - drained_utok,
            },
            part_utok,
        }
    }

    /// When the level has drained to `utok` microtokens.
    pub(super) fn falls_to_at_us(&self, rate: &Rate, utok: u64) -> u64 {
        self.at_us + rate.us_to_drain(self.used_utok.saturating_sub(utok))
    }

    /// Takes back what is left of a cost charged at `charged_at_us`: at most what cannot have drained since, so
    /// that nothing is given back that somebody else has used.
    pub(super) fn refund(&mut self, rate: &Rate, now_us: u64, charged_at_us: u64, cost: u64) {
        let elapsed_us = u128::from(now_us.max(self.at_us).saturating_sub(charged_at_us));
        let drained_utok =
            (elapsed_us * u128::from(rate.drain_utok())).div_ceil(u128::from(rate.drain_us()));
        let drained_utok = u64::try_from(drained_utok).unwrap_or(u64::MAX);
        let left_utok = cost.saturating_mul(UTOK).saturating_sub(drained_utok);
        self.used_utok = self.used_utok.saturating_sub(left_utok);
    }
}

impl Standing {
    /// Whole tokens that fit under `capacity`.
    pub(super) fn remaining(&self, capacity: u64) -> u64 {
        (capacity * UTOK + self.part_utok).saturating_sub(self.level.used_utok) / UTOK
    }

    /// The level with `cost` more.
    pub(super) fn charged(&self, cost: u64) -> Level {
        Level {
            at_us: self.level.at_us,
            used_utok: self.level.used_utok + cost * UTOK,
        }
    }

    /// When `cost` fits under `capacity`.
    pub(super) fn ready_at_us(&self, rate: &Rate, capacity: u64, cost: u64) -> u64 {
        self.level.falls_to_at_us(rate, (capacity - cost) * UTOK)
    }
}
