//! A place in a queue, which is given back when a request leaves early.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::request::Parts;
use tokio::runtime::Handle;

use super::{Gate, RequestContext};

/// Held while a request waits for its turn. What the request took is given back when it is dropped.
pub(super) struct Place {
    gate: Arc<Gate>,
    /// `None` once the turn has come.
    held: Option<(Parts, RequestContext)>,
}

impl Place {
    pub(super) fn take(gate: Arc<Gate>, request: Parts, context: RequestContext) -> Self {
        Self {
            gate,
            held: Some((request, context)),
        }
    }

    /// Gives back what the request took, because it cannot wait. Its decision gets the figures after that.
    pub(super) async fn turn_away(mut self) -> Option<(Parts, RequestContext)> {
        let (request, mut context) = self.held.take()?;
        let gate = Arc::clone(&self.gate);
        let turned_away = async move {
            gate.give_back(&request, &mut context, true).await;
            (request, context)
        };
        match self.gate.answers_at_once {
            true => Some(turned_away.await),
            // In a task of its own, so that it ends even if the client disconnects.
            false => tokio::spawn(turned_away).await.ok(),
        }
    }

    /// The turn has come: nothing is given back any more.
    pub(super) fn leave(mut self) -> Option<Parts> {
        self.held.take().map(|(request, _)| request)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((request, mut context)) = self.held.take() else {
            return;
        };
        let gate = Arc::clone(&self.gate);
        let answers_at_once = gate.answers_at_once;
        let refund = async move { gate.give_back(&request, &mut context, false).await };
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
