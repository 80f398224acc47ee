//! Waits until a request is admitted.
//!
//! A leaky bucket reserves: the store charges the request now, and says when it may go. One call per request is enough, and the first to
//! come is the first to go, whichever process it came to. The other algorithms admit what fits when they are asked. There, the requests
//! of this process stand in line; the first asks, sleeps for as long as it is denied, and asks again, and the others wait behind it.

use std::hash::RandomState;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::charge_target::{ChargeTarget, Charges, reserves};
use super::line::{Keys, LinePosition, Lines};
use super::reservation::Reservation;
use super::{Backend, Limiter};
use crate::decision::{Decision, Denied};
use crate::store::Charge;

/// Longer waits are the same to a timer.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// The requests that wait, and the secret for the hashes of their buckets.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    lines: Lines,
    secret: RandomState,
}

/// A request that waits.
struct Waiting<'a> {
    limiter: &'a Limiter,
    target: &'a ChargeTarget<'a>,
    charges: Charges<'a>,
    deadline: Instant,
}

pub(super) async fn until_ready(
    limiter: &Limiter,
    target: &ChargeTarget<'_>,
    max_wait: Duration,
) -> Result<Decision, Denied> {
    let waiting = Waiting {
        limiter,
        target,
        charges: target.charges(),
        deadline: Instant::now() + max_wait.min(LONGEST),
    };
    let mut position = waiting.join_before_asking();
    loop {
        if let Some(position) = &position
            && !waiting.has_its_turn(position).await
        {
            return waiting.denied_in_line(position).await;
        }
        let reservation = waiting.reserve().await;
        let decision = reservation.decision();
        if decision.allowed() {
            // The requests behind need not wait for the delay.
            drop(position);
            let (delay, left) = (decision.delay(), waiting.left());
            if delay > left {
                let charges = waiting.charges.iter();
                let costs = charges.map(|charge| charge.cost);
                return decision.clone().turned_away(left, costs).into_result();
            }
            if !delay.is_zero() {
                sleep(delay).await;
            }
            return Ok(reservation.keep());
        }
        let Some(wait) = decision
            .retry_after()
            .filter(|wait| *wait <= waiting.left())
        else {
            // It never fits, or not in time.
            return reservation.keep().into_result();
        };
        drop(reservation);
        let position = position.get_or_insert_with(|| waiting.join_all());
        position.asks_at(Instant::now() + wait);
        sleep(wait).await;
    }
}

impl<'a> Waiting<'a> {
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The charges that decide.
    fn deciding(&self) -> impl Iterator<Item = &Charge<'a>> {
        let charges = self.charges.iter();
        charges.filter(|charge| !charge.shadow && charge.cost > 0)
    }

    /// Joins the lines of buckets that cannot reserve, and of others for which a request waits already.
    fn join_before_asking(&self) -> Option<LinePosition<'a>> {
        let Waiters { lines, secret } = &self.limiter.waiters;
        let keys = self.deciding().filter_map(|charge| {
            let key = charge.bucket.keyed_hash(secret);
            let waits = !reserves(charge.limit) || lines.is_occupied(key);
            waits.then_some(key)
        });
        let keys: Keys = keys.collect();
        (!keys.is_empty()).then(|| lines.join(keys))
    }

    /// Joins the lines of all buckets that decide.
    fn join_all(&self) -> LinePosition<'a> {
        let Waiters { lines, secret } = &self.limiter.waiters;
        let keys = self
            .deciding()
            .map(|charge| charge.bucket.keyed_hash(secret));
        lines.join(keys.collect())
    }

    /// Waits for its turn in line. Returns whether that comes in time.
    async fn has_its_turn(&self, position: &LinePosition<'_>) -> bool {
        position.is_first()
            || position.wait_ahead() <= self.left()
                && timeout_at(self.deadline, position.turn()).await.is_ok()
    }

    /// Charges the request.
    async fn reserve(&self) -> Reservation<'a> {
        match &self.limiter.backend {
            Backend::Memory(local) => Reservation::in_memory(local, self.target),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => Reservation::shared(shared, self.target).await,
        }
    }

    /// The denial of a request whose turn in line comes too late.
    async fn denied_in_line(&self, position: &LinePosition<'_>) -> Result<Decision, Denied> {
        let decision = match &self.limiter.backend {
            Backend::Memory(local) => local.peek_at(self.target),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => shared.decide(self.target, false).await,
        };
        let wait = position.wait_ahead().max(Duration::from_micros(1));
        let is_in_line = |nth: usize| {
            let charge = self.charges.get(nth);
            charge.is_some_and(|charge| charge.cost > 0 && !reserves(charge.limit))
        };
        decision.denied_for(wait, is_in_line).into_result()
    }
}
