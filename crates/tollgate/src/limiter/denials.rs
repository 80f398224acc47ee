//! Denials that still hold, so that the store need not be asked again.
//!
//! A bucket that denied a cost until some time denies it until then, whatever other requests do: usage only grows until it drains. So the
//! answer is exact, and a client that keeps asking costs the store next to nothing. Refunds and resets by other processes are not known
//! here, which is why no denial is remembered for long.

use std::collections::HashMap;
use std::hash::RandomState;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::bucket::Bucket;
use crate::limit::Limit;
use crate::store::{Charge, Fit, Outcome, Taken};

const SHARDS: usize = 16;

#[derive(Debug)]
pub(super) struct Denials {
    shards: [Mutex<Shard>; SHARDS],
    /// The most in one shard.
    most: usize,
    /// The longest time for which a denial is remembered.
    longest: Duration,
    secret: RandomState,
}

#[derive(Debug, Default)]
struct Shard {
    known: HashMap<u64, Denial>,
    /// When something was forgotten last: what was sent before then may have been decided before a refund.
    forgot: Option<Instant>,
    /// When it was full and expired denials were removed.
    cleaned: Option<Instant>,
}

/// A full shard is cleaned no more often: in a flood, each denial would look at thousands.
const BETWEEN_CLEANINGS: Duration = Duration::from_millis(10);

/// What a bucket denied. It says nothing about another limit or a smaller cost.
#[derive(Clone, Copy, Debug)]
struct Denial {
    limit: Limit,
    cost: u64,
    outcome: Outcome,
    /// When it ends, by this process's clock, and never later than by the store's.
    ready: Instant,
    /// Until when it is remembered.
    until: Instant,
}

impl Denials {
    /// Remembers at most this many, none if 0, and each for at most this long.
    pub(super) fn new(most: usize, longest: Duration) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            most: most.div_ceil(SHARDS),
            longest,
            secret: RandomState::new(),
        }
    }

    /// The denial of one of these charges that still holds: which charge, and its outcome now.
    pub(super) fn recall(&self, charges: &[Charge<'_>], now: Instant) -> Option<(usize, Outcome)> {
        if self.most == 0 {
            return None;
        }
        let recall = |(i, charge): (usize, &Charge<'_>)| {
            let key = self.key(&charge.bucket);
            let shard = &mut *self.shard(key).lock();
            let known = *shard.known.get(&key)?;
            if known.limit != *charge.limit {
                // Under another limit it drains at another rate: the denial may not hold when this limit is back.
                shard.forget(key);
                return None;
            }
            // A cost that never fits is denied otherwise.
            let could_fit = charge.cost <= charge.limit.capacity();
            let holds = known.cost <= charge.cost && could_fit;
            let left = known.ready.saturating_duration_since(now);
            (holds && known.until > now).then(|| (i, known.outcome.with(left)))
        };
        (charges.iter().enumerate())
            .filter(|(_, charge)| !charge.shadow)
            .find_map(recall)
    }

    /// Remembers the denials of a request that was sent at this time: the store decided later, so they end no earlier than counted
    /// from here.
    pub(super) fn note(&self, charges: &[Charge<'_>], taken: &Taken, sent: Instant) {
        if self.most == 0 || taken.admitted {
            return;
        }
        for (charge, outcome) in charges.iter().zip(&taken.outcomes) {
            if !charge.shadow && matches!(outcome.fit, Fit::Later { .. }) {
                let key = self.key(&charge.bucket);
                self.note_one(key, charge.limit, charge.cost, outcome, sent);
            }
        }
    }

    /// Remembers the outcome of the bucket with this [key](Self::key), if it is a denial.
    pub(super) fn note_one(
        &self,
        key: u64,
        limit: &Limit,
        cost: u64,
        outcome: &Outcome,
        sent: Instant,
    ) {
        let Fit::Later { ready_at_us } = outcome.fit else {
            return;
        };
        let wait = Duration::from_micros(ready_at_us.saturating_sub(outcome.at_us));
        let shard = &mut *self.shard(key).lock();
        if self.most == 0 || shard.forgot.is_some_and(|forgot| forgot >= sent) {
            return;
        }
        let known = &mut shard.known;
        if known.len() >= self.most && !known.contains_key(&key) {
            let since = |cleaned| sent.saturating_duration_since(cleaned);
            if (shard.cleaned).is_some_and(|cleaned| since(cleaned) < BETWEEN_CLEANINGS) {
                return;
            }
            shard.cleaned = Some(sent);
            known.retain(|_, denial| denial.until > sent);
            if known.len() >= self.most {
                return;
            }
        }
        known.insert(
            key,
            Denial {
                limit: *limit,
                cost,
                outcome: *outcome,
                ready: sent + wait,
                until: sent + wait.min(self.longest),
            },
        );
    }

    /// Forgets a bucket's denial because it was given something back; also that of a request that was sent before and is not noted yet.
    pub(super) fn forget(&self, bucket: &Bucket<'_>) {
        self.forget_key(self.key(bucket));
    }

    /// The same for the bucket with this [key](Self::key).
    pub(super) fn forget_key(&self, key: u64) {
        self.shard(key).lock().forget(key);
    }

    /// Forgets everything, because other rules are in force, or it is not known which buckets were given something back; also the denials of
    /// requests that were sent before and are not noted yet.
    pub(super) fn forget_all(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.known.clear();
            shard.forgot = Some(Instant::now());
        }
    }

    /// The key of a bucket.
    pub(super) fn key(&self, bucket: &Bucket<'_>) -> u64 {
        bucket.keyed_hash(&self.secret)
    }

    fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[usize::try_from(key >> 32).unwrap_or(0) % SHARDS]
    }
}

impl Shard {
    fn forget(&mut self, key: u64) {
        self.known.remove(&key);
        self.forgot = Some(Instant::now());
    }
}

impl Outcome {
    /// The same denial with only this much of its wait left.
    fn with(self, left: Duration) -> Self {
        let left_us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        match self.fit {
            Fit::Later { ready_at_us } => Self {
                at_us: ready_at_us.saturating_sub(left_us.max(1)),
                ..self
            },
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The store's reply to a request that is denied for an hour.
    fn denied() -> Taken {
        let fit = Fit::Later {
            ready_at_us: 3_600_000_000,
        };
        let outcome = Outcome {
            fit,
            ..Outcome::NONE
        };
        Taken {
            admitted: false,
            at_us: 0,
            outcomes: smallvec::smallvec![outcome],
        }
    }

    fn charge<'a>(key: &'a [u8], limit: &'a Limit) -> [Charge<'a>; 1] {
        [Charge {
            bucket: Bucket::of_key(key),
            limit,
            cost: 1,
            shadow: false,
        }]
    }

    #[test]
    fn an_answer_that_is_older_than_a_reset_is_not_remembered() {
        let denials = Denials::new(100, Duration::MAX);
        let limit = "1/h burst 1".parse().unwrap();
        let charges = charge(b"key", &limit);
        let recalls = || denials.recall(&charges, Instant::now()).is_some();
        let sent = Instant::now();
        denials.note(&charges, &denied(), sent);
        assert!(recalls());
        denials.forget(&charges[0].bucket);
        assert!(!recalls());
        // Its answer was on the way.
        denials.note(&charges, &denied(), sent);
        assert!(!recalls());
        std::thread::sleep(Duration::from_millis(1));
        denials.note(&charges, &denied(), Instant::now());
        assert!(recalls());
    }

    #[test]
    fn a_limit_that_comes_back_is_asked_anew() {
        let denials = Denials::new(100, Duration::MAX);
        let (slow, fast) = ("1/h burst 1".parse().unwrap(), "9/s".parse().unwrap());
        let recalls = |limit| {
            let charges = charge(b"key", limit);
            denials.recall(&charges, Instant::now()).is_some()
        };
        denials.note(&charge(b"key", &slow), &denied(), Instant::now());
        assert!(recalls(&slow) && !recalls(&fast));
        // Meanwhile it has drained at the other's rate.
        assert!(!recalls(&slow));
        std::thread::sleep(Duration::from_millis(1));
        denials.note(&charge(b"key", &slow), &denied(), Instant::now());
        denials.forget_all();
        assert!(!recalls(&slow));
    }

    #[test]
    fn a_flood_is_bounded_and_what_is_over_makes_room() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let denials = Denials::new(1_600, Duration::MAX);
        let limit = "1/h burst 1".parse().unwrap();
        let from = Instant::now();
        let flood = |at: Instant, keys: std::ops::Range<u32>| {
            for key in keys.clone() {
                denials.note(&charge(&key.to_le_bytes(), &limit), &denied(), at);
            }
            let is_known = |key: &u32| {
                let key = key.to_le_bytes();
                denials.recall(&charge(&key, &limit), at).is_some()
            };
            keys.filter(is_known).count()
        };
        assert_eq!(flood(from, 0..10_000), 1_600);
        // Nothing is over yet, and then everything is.
        assert_eq!(flood(from + HOUR / 2, 10_000..20_000), 0);
        assert_eq!(flood(from + HOUR, 20_000..30_000), 1_600);
    }
}
