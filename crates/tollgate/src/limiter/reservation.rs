//! What was charged for a request that may still have to wait, and is given back if it is dropped first.

use super::LocalLimiter;
use super::charge_target::ChargeTarget;
use crate::decision::Decision;
use crate::store::Charge;

#[cfg(feature = "redis")]
use {
    super::owned::OwnedTarget, super::shared::SharedLimiter, crate::decision::Tier, std::sync::Arc,
    std::time::Instant, tokio::runtime::Handle, tokio::sync::oneshot,
};

/// A charge that is given back when it is dropped, unless it is [kept](Self::keep).
pub(super) struct Reservation<'a> {
    decision: Decision,
    /// `None` once it is kept.
    charged: Option<Charged<'a>>,
}

enum Charged<'a> {
    /// Given back at once.
    Memory(&'a LocalLimiter, Vec<Charge<'a>>),
    /// Given back by a task.
    #[cfg(feature = "redis")]
    Shared(Arc<SharedLimiter>, Arc<OwnedTarget>),
}

impl<'a> Reservation<'a> {
    /// Charges a request in memory.
    pub(super) fn in_memory(local: &'a LocalLimiter, target: &ChargeTarget<'a>) -> Self {
        let charges = target.charges();
        Self {
            decision: local.decide_charges(&charges, target),
            charged: Some(Charged::Memory(local, charges.into_vec())),
        }
    }

    pub(super) fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns the decision; the charge stays.
    pub(super) fn keep(mut self) -> Decision {
        self.charged = None;
        self.decision.clone()
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        match self.charged.take() {
            Some(Charged::Memory(local, charges)) => local.give_back(&charges, &self.decision),
            #[cfg(feature = "redis")]
            Some(Charged::Shared(shared, target)) => {
                let is_charged = self.decision.tiers().iter().any(Tier::gives_back);
                if is_charged && let Ok(runtime) = Handle::try_current() {
                    let decision = self.decision.clone();
                    runtime.spawn(async move {
                        let request = target.request.borrowed();
                        shared.refund(&target.charges(&request), &decision).await;
                    });
                }
            }
            None => {}
        }
    }
}

#[cfg(feature = "redis")]
impl Reservation<'static> {
    /// Charges a request in a shared store.
    ///
    /// A task of its own waits for the store: if this future is dropped meanwhile, the reservation is dropped with the reply, and given
    /// back.
    pub(super) async fn shared(shared: &Arc<SharedLimiter>, target: &ChargeTarget<'_>) -> Self {
        let owned = Arc::new(OwnedTarget::of(target));
        let (reply, reserved) = oneshot::channel();
        let task = reserve(Arc::clone(shared), Arc::clone(&owned));
        tokio::spawn(async move { drop(reply.send(task.await)) });
        match reserved.await {
            Ok(reservation) => reservation,
            // The task was lost with its runtime.
            Err(_) => reserve(Arc::clone(shared), owned).await,
        }
    }
}

#[cfg(feature = "redis")]
async fn reserve(shared: Arc<SharedLimiter>, target: Arc<OwnedTarget>) -> Reservation<'static> {
    let decision = {
        let request = target.request.borrowed();
        let charges = target.charges(&request);
        let (policies, deadline) = (&target.policies, target.deadline);
        let decision = shared.ask(&charges, policies, true, Instant::now(), deadline);
        decision.await.by(target.generation, target.cost)
    };
    shared.count(&decision);
    Reservation {
        decision,
        charged: Some(Charged::Shared(shared, target)),
    }
}
