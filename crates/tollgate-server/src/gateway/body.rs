//! The body of a request on its way to the service behind: it may be only so long, and must not stop.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::rest::LentBody;
use crate::patience::Patience;

/// What a body may be like.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyLimits {
    /// The most bytes.
    pub(super) most: u64,
    /// How long a caller may send nothing of it while it is waited for.
    pub(super) timeout: Duration,
}

/// What went wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is longer than it may be.
    TooLong,
    /// The caller stopped sending it.
    TooSlow,
    /// It is not what its head said, or the caller has gone.
    Broken,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the request's body is longer than it may be",
            Self::TooSlow => "the caller stopped sending the request's body",
            Self::Broken => "the request's body is broken off or wrongly framed",
        })
    }
}

impl std::error::Error for BodyError {}

/// Where it is said what went wrong, for who answers the request.
#[derive(Debug, Default)]
pub(super) struct Fate(AtomicU8);

impl Fate {
    fn set(&self, error: BodyError) {
        let said = match error {
            BodyError::TooLong => 1,
            BodyError::TooSlow => 2,
            BodyError::Broken => 3,
        };
        self.0.store(said, Relaxed);
    }

    pub(super) fn get(&self) -> Option<BodyError> {
        match self.0.load(Relaxed) {
            1 => Some(BodyError::TooLong),
            2 => Some(BodyError::TooSlow),
            3 => Some(BodyError::Broken),
            _ => None,
        }
    }
}

/// The body of a request. Most have none, and are handed on from one to the next: so it is small.
#[derive(Debug)]
pub struct RequestBody(Option<Box<Expected>>);

/// What is to come.
#[derive(Debug)]
struct Expected {
    incoming: LentBody,
    /// How many bytes more it may have.
    room: u64,
    timeout: Duration,
    fate: Arc<Fate>,
    /// Begins when it is waited for; most bodies are there as a whole.
    patience: Patience,
    is_waiting: bool,
}

impl RequestBody {
    pub(super) fn new(incoming: LentBody, limits: BodyLimits) -> Self {
        let expected = |incoming| Expected {
            incoming,
            room: limits.most,
            timeout: limits.timeout,
            fate: Arc::default(),
            patience: Patience::default(),
            is_waiting: false,
        };
        let incoming = Some(incoming).filter(|incoming| !incoming.is_end_stream());
        Self(incoming.map(expected).map(Box::new))
    }

    /// Only if there is something to come.
    pub(super) fn fate(&self) -> Option<Arc<Fate>> {
        let expected = self.0.as_ref()?;
        Some(Arc::clone(&expected.fate))
    }
}

impl Expected {
    fn fails(&self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.fate.set(error);
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

impl Body for RequestBody {
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
