//! Denials that still hold, so that asking the store again would be for nothing.
//!
//! A bucket that the store denied a cost until some time denies it until then, whatever others do: usage only grows until it
//! drains. So the answer is exact, and a caller who goes on and on costs the store nothing. (But for refunds elsewhere, of which this
//! process does not hear.)

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
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
    /// No denial is believed for longer.
    longest: Duration,
    secret: RandomState,
}

#[derive(Debug, Default)]
struct Shard {
    known: HashMap<u64, Denial>,
    /// When something was forgotten last: what was asked before then may have been answered before it was given back.
    forgot: Option<Instant>,
}

/// What a bucket denied. Another limit, or a smaller cost, is another question.
#[derive(Clone, Copy, Debug)]
struct Denial {
    limit: Limit,
    cost: u64,
    outcome: Outcome,
    /// When it ends, by this process's clock, and never later than by the store's.
    ready: Instant,
    /// Until when it is believed.
    until: Instant,
}

impl Denials {
    /// Remembers so many at the most, none if 0, and each for so long at the most.
    pub(super) fn new(most: usize, longest: Duration) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            most: most.div_ceil(SHARDS),
            longest,
            secret: RandomState::new(),
        }
    }

    /// What one of these charges was denied, and still would be: which, and what would be said now.
    pub(super) fn recall(&self, charges: &[Charge<'_>], now: Instant) -> Option<(usize, Outcome)> {
        if self.most == 0 {
            return None;
        }
        let recall = |(i, charge): (usize, &Charge<'_>)| {
            let key = self.key(&charge.bucket);
            let known = *self.shard(key).lock().known.get(&key)?;
            // What never fits is another answer.
            let could_fit = charge.cost <= charge.limit.capacity();
            let holds = known.limit == *charge.limit && known.cost <= charge.cost && could_fit;
            let left = known.ready.saturating_duration_since(now);
            (holds && known.until > now).then(|| (i, known.outcome.with(left)))
        };
        (charges.iter().enumerate())
            .filter(|(_, charge)| !charge.shadow)
            .find_map(recall)
    }

    /// Remembers what was denied to a request that was sent at this time: the store looked later, so its times come no
    /// earlier than counted from here.
    pub(super) fn note(&self, charges: &[Charge<'_>], taken: &Taken, sent: Instant) {
        if self.most == 0 || taken.admitted {
            return;
        }
        for (charge, outcome) in charges.iter().zip(&taken.outcomes) {
            let (Fit::Later { ready_at_us }, false) = (outcome.fit, charge.shadow) else {
                continue;
            };
            let wait = Duration::from_micros(ready_at_us.saturating_sub(outcome.at_us));
            let key = self.key(&charge.bucket);
            let shard = &mut *self.shard(key).lock();
            if shard.forgot.is_some_and(|forgot| forgot >= sent) {
                continue;
            }
            let known = &mut shard.known;
            if known.len() >= self.most && !known.contains_key(&key) {
                known.retain(|_, denial| denial.until > sent);
                if known.len() >= self.most {
                    continue;
                }
            }
            known.insert(
                key,
                Denial {
                    limit: *charge.limit,
                    cost: charge.cost,
                    outcome: *outcome,
                    ready: sent + wait,
                    until: sent + wait.min(self.longest),
                },
            );
        }
    }

    /// Forgets what is known of a bucket, as it was given something back; also what was asked before and is not noted yet.
    pub(super) fn forget(&self, bucket: &Bucket<'_>) {
        let key = self.key(bucket);
        let mut shard = self.shard(key).lock();
        shard.known.remove(&key);
        shard.forgot = Some(Instant::now());
    }

    fn key(&self, bucket: &Bucket<'_>) -> u64 {
        let mut hasher = self.secret.build_hasher();
        bucket.rule().hash(&mut hasher);
        for part in bucket.parts() {
            part.shape().hash(&mut hasher);
            hasher.write(part.value.unwrap_or_default());
        }
        hasher.finish()
    }

    fn shard(&self, key: u64) -> &Mutex<Shard> {
        &self.shards[usize::try_from(key >> 32).unwrap_or(0) % SHARDS]
    }
}

impl Outcome {
    /// The same denial, when only this much of its wait is left.
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

    #[test]
    fn an_answer_that_is_older_than_a_reset_is_not_remembered() {
        let denials = Denials::new(100, Duration::MAX);
        let (limit, bucket) = ("1/h burst 1".parse().unwrap(), Bucket::of_key(b"key"));
        let charges = [Charge {
            bucket,
            limit: &limit,
            cost: 1,
            shadow: false,
        }];
        let fit = Fit::Later {
            ready_at_us: 3_600_000_000,
        };
        let outcome = Outcome {
            fit,
            ..Outcome::NONE
        };
        let taken = Taken {
            admitted: false,
            at_us: 0,
            outcomes: smallvec::smallvec![outcome],
        };
        let recalls = || denials.recall(&charges, Instant::now()).is_some();
        let sent = Instant::now();
        denials.note(&charges, &taken, sent);
        assert!(recalls());
        denials.forget(&bucket);
        assert!(!recalls());
        // Its answer was on the way.
        denials.note(&charges, &taken, sent);
        assert!(!recalls());
        std::thread::sleep(Duration::from_millis(1));
        denials.note(&charges, &taken, Instant::now());
        assert!(recalls());
    }
}
