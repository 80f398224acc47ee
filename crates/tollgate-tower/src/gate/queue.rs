//! A place in a queue, given back by whoever leaves it early.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::request::Parts;
use tokio::runtime::Handle;

use super::gate::{Charged, Gate};

/// Held while a request waits for its turn.
pub(super) struct Place {
    gate: Arc<Gate>,
    /// Until its turn has come.
    held: Option<(Parts, Box<Charged>)>,
}

impl Place {
    pub(super) fn take(gate: Arc<Gate>, parts: Parts, charged: Box<Charged>) -> Self {
        Self {
            gate,
            held: Some((parts, charged)),
        }
    }

    /// It cannot wait for so long. What it took is given back before it is told so, and the decision has the figures after that.
    pub(super) async fn turn_away(mut self) -> Option<(Parts, Box<Charged>)> {
        let (parts, mut charged) = self.held.take()?;
        let gate = Arc::clone(&self.gate);
        let turned_away = async move {
            gate.turn_away(&parts, &mut charged).await;
            (parts, charged)
        };
        match self.gate.answers_at_once {
            true => Some(turned_away.await),
            // In a task of its own: it is also given back if the client goes away meanwhile.
            false => tokio::spawn(turned_away).await.ok(),
        }
    }

    /// Its turn has come: nothing is given back any more.
    pub(super) fn leave(mut self) -> Option<(Parts, Box<Charged>)> {
        self.held.take()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((parts, charged)) = self.held.take() else {
            return;
        };
        let gate = Arc::clone(&self.gate);
        let answers_at_once = gate.answers_at_once;
        let refund = async move { gate.refund(&parts, charged).await };
        if answers_at_once {
            at_once(refund);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(refund);
        }
    }
}

/// What comes of a future that waits for nothing.
pub(super) fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
