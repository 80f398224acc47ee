//! The body of a request within limits: on its length, and on how long the client may stop sending.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::drain::DrainedBody;
use crate::patience::Patience;

/// Limits on a body.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Maximum number of bytes.
    pub max_bytes: u64,
    /// How long the client may send nothing while more is awaited.
    pub timeout: Duration,
}

/// What went wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is too long.
    TooLong,
    /// The client stopped sending it.
    TooSlow,
    /// It is malformed, or the client has disconnected.
    Broken,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the request body is too long",
            Self::TooSlow => "the client stopped sending the request body",
            Self::Broken => "the request body is incomplete or malformed",
        })
    }
}

impl std::error::Error for BodyError {}

/// What went wrong with a body, for the response to its request.
#[derive(Debug, Default)]
pub struct Outcome(AtomicU8);

impl Outcome {
    fn set(&self, error: BodyError) {
        let said = match error {
            BodyError::TooLong => 1,
            BodyError::TooSlow => 2,
            BodyError::Broken => 3,
        };
        self.0.store(said, Relaxed);
    }

    /// What went wrong, if anything.
    #[must_use]
    pub fn error(&self) -> Option<BodyError> {
        match self.0.load(Relaxed) {
            1 => Some(BodyError::TooLong),
            2 => Some(BodyError::TooSlow),
            3 => Some(BodyError::Broken),
            _ => None,
        }
    }
}

/// The body of a request within limits. Most requests have none, so it is small.
#[derive(Debug)]
pub struct LimitedBody(Option<Box<Expected>>);

/// What is yet to arrive.
#[derive(Debug)]
struct Expected {
    incoming: DrainedBody,
    /// How many more bytes it may have.
    room: u64,
    timeout: Duration,
    outcome: Arc<Outcome>,
    /// Begins when it is waited for; most bodies arrive with their head.
    patience: Patience,
    is_waiting: bool,
}

impl LimitedBody {
    /// A body within these limits.
    #[must_use]
    pub fn new(incoming: DrainedBody, limits: BodyLimits) -> Self {
        let expected = |incoming| Expected {
            incoming,
            room: limits.max_bytes,
            timeout: limits.timeout,
            outcome: Arc::default(),
            patience: Patience::default(),
            is_waiting: false,
        };
        let incoming = Some(incoming).filter(|incoming| !incoming.is_end_stream());
        Self(incoming.map(expected).map(Box::new))
    }

    /// What will have gone wrong with it; `None` if it is empty.
    #[must_use]
    pub fn outcome(&self) -> Option<Arc<Outcome>> {
        let expected = self.0.as_ref()?;
        Some(Arc::clone(&expected.outcome))
    }
}

impl Expected {
    fn fails(&self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.outcome.set(error);
        Poll::Ready(Some(Err(error)))
    }

    fn is_out_of_patience(&mut self, context: &mut Context<'_>) -> bool {
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.patience.begin(Instant::now(), Some(self.timeout));
        }
        self.patience.poll(context).is_ready()
    }

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                self.is_waiting = false;
                let length = frame.data_ref().map_or(0, Bytes::len);
                match self
                    .room
                    .checked_sub(u64::try_from(length).unwrap_or(u64::MAX))
                {
                    Some(room) => self.room = room,
                    None => return self.fails(BodyError::TooLong),
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(_))) => self.fails(BodyError::Broken),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending if self.is_out_of_patience(context) => self.fails(BodyError::TooSlow),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Some(expected) => expected.poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        (self.0.as_ref()).is_none_or(|expected| expected.incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(expected) => expected.incoming.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
