//! Bugs that no script can have, as they lie in how the store is asked: our store, with one bad habit.

use tollgate::store::RedisError;
use tollgate::store::contract::{Charge, Fit, Refund, StoreOperations as Store, Taken};
use tollgate::{Algorithm, Bucket, Clock, Limit, ManualClock};

use crate::server::OwnRedis;
use crate::support::clock;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    /// Reads and decides in one call, and writes in another.
    WritesInAnotherCall,
    /// Joins the parts of a bucket's name with `_`, and escapes nothing.
    JoinsNames,
    /// Says waits in whole seconds, cut off.
    CutsWaits,
}

pub(crate) struct Naive {
    store: OwnRedis,
    habit: Habit,
}

impl Naive {
    /// One on a server of its own, and the hand that turns its clock.
    pub(crate) fn start(habit: Habit) -> (Self, ManualClock) {
        let hand = clock();
        let store = OwnRedis::start(Clock::from(&hand));
        (Self { store, habit }, hand)
    }

    async fn take_in_two_calls(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        let mut read = self.store.peek(charges).await?;
        if read.admitted {
            // What is used stays used under another limit: so this adds to it, whatever came in between.
            let limits: Vec<Limit> = charges.iter().map(|charge| wider(charge.limit)).collect();
            let added = charges.iter().zip(&limits);
            let added: Vec<Charge<'_>> = added
                .map(|(charge, limit)| Charge { limit, ..*charge })
                .collect();
            self.store.take(&added).await?;
            for (outcome, charge) in read.outcomes.iter_mut().zip(charges) {
                (outcome.charged, outcome.remaining) = (true, outcome.remaining - charge.cost);
            }
        }
        Ok(read)
    }
}

/// A token bucket at the same rate that everything fits into.
fn wider(limit: &Limit) -> Limit {
    match (limit.algorithm(), limit.rate()) {
        (Algorithm::TokenBucket, Some(rate)) => Limit::token_bucket(rate, 1_000_000).unwrap(),
        _ => *limit,
    }
}

fn joined(bucket: &Bucket<'_>) -> String {
    let mut name = bucket.rule().to_string();
    for part in bucket.parts() {
        name += &format!("_{}", part.dimension);
        if let Some(value) = part.value {
            name += &format!("_{}", value.escape_ascii());
        }
    }
    name
}

fn cut_waits(taken: &mut Taken) {
    for outcome in &mut taken.outcomes {
        if let Fit::Later { ready_at_us } = &mut outcome.fit {
            *ready_at_us -= (*ready_at_us - taken.at_us) % 1_000_000;
        }
    }
}

impl Store for Naive {
    type Error = RedisError;

    async fn take(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        match self.habit {
            Habit::WritesInAnotherCall => self.take_in_two_calls(charges).await,
            Habit::JoinsNames => {
                let names: Vec<String> = charges.iter().map(|c| joined(&c.bucket)).collect();
                let renamed = charges.iter().zip(&names).map(|(charge, name)| Charge {
                    bucket: Bucket::of_key(name.as_bytes()),
                    ..*charge
                });
                self.store.take(&renamed.collect::<Vec<_>>()).await
            }
            Habit::CutsWaits => {
                let mut taken = self.store.take(charges).await?;
                cut_waits(&mut taken);
                Ok(taken)
            }
        }
    }

    async fn peek(&self, charges: &[Charge<'_>]) -> Result<Taken, RedisError> {
        self.store.peek(charges).await
    }

    async fn refund(&self, refunds: &[Refund<'_>]) -> Result<(), RedisError> {
        self.store.refund(refunds).await
    }

    async fn reset(&self, buckets: &[Bucket<'_>]) -> Result<(), RedisError> {
        self.store.reset(buckets).await
    }
}
