//! A place in a queue, which is given up when a request leaves early.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::runtime::Handle;
use tollgate::{Decision, OwnedCheck};

use super::Gate;

/// Held while a request waits for its turn. What the request was charged is refunded when it is dropped.
pub(super) struct Place {
    gate: Arc<Gate>,
    /// What was charged; `None` once the turn has come.
    charged: Option<(Arc<OwnedCheck>, Decision)>,
}

impl Place {
    pub(super) fn take(gate: Arc<Gate>, check: Arc<OwnedCheck>, decision: Decision) -> Self {
        Self {
            gate,
            charged: Some((check, decision)),
        }
    }

    /// Refunds a request that cannot wait. Returns the decision with the figures after that, if they are known within this time; a refund
    /// that takes longer goes on by itself.
    pub(super) async fn turn_away(mut self, within: Duration) -> Option<Decision> {
        let (check, decision) = self.charged.take()?;
        let limiter = &self.gate.limiter;
        let refunded = async {
            check.refund(limiter, decision.clone()).await;
            check.peek(limiter).await
        };
        let after = match self.gate.answers_at_once {
            true => at_once(refunded),
            false => tokio::time::timeout(within, refunded).await.ok(),
        };
        Some(decision.after_refund(&after?))
    }

    /// The turn has come: nothing is refunded.
    pub(super) fn leave(mut self) {
        self.charged = None;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((check, decision)) = self.charged.take() else {
            return;
        };
        let gate = Arc::clone(&self.gate);
        let answers_at_once = gate.answers_at_once;
        let refund = async move { check.refund(&gate.limiter, decision).await };
        if answers_at_once {
            at_once(refund);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(refund);
        }
    }
}

/// The output of a future that waits for nothing.
pub(crate) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
