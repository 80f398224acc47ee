//! The body of a request on its way to a server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::Instant;

use super::ReservedNames;
use super::failure::Failure;
use crate::body::BodyError;
use crate::headers::filter_request_trailers;
use crate::server::BoxError;

/// The body of a request; most have none, and nothing is allocated for those.
pub(super) enum RequestBody {
    Nothing,
    Streaming {
        body: UnsyncBoxBody<Bytes, BoxError>,
        progress: Arc<Progress>,
        reserved: ReservedNames,
    },
}

impl RequestBody {
    /// Names that are reserved go in no trailer.
    pub(super) fn of<B>(body: B, reserved: &ReservedNames) -> Self
    where
        B: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        if body.is_end_stream() {
            return Self::Nothing;
        }
        Self::Streaming {
            body: body.map_err(Into::into).boxed_unsync(),
            progress: Arc::new(Progress::new()),
            reserved: Arc::clone(reserved),
        }
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }

    pub(super) fn progress(&self) -> Option<Arc<Progress>> {
        match self {
            Self::Nothing => None,
            Self::Streaming { progress, .. } => Some(Arc::clone(progress)),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self::Streaming {
            body,
            progress,
            reserved,
        } = self.get_mut()
        else {
            return Poll::Ready(None);
        };
        progress.becomes(State::WaitsForCaller);
        let mut frame = ready!(Pin::new(&mut *body).poll_frame(context));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            filter_request_trailers(trailers, reserved);
        }
        progress.moved();
        progress.becomes(match &frame {
            Some(Ok(_)) if body.is_end_stream() => State::Ended,
            Some(Ok(_)) => State::WaitsForServer,
            Some(Err(error)) => match error.downcast_ref() {
                Some(BodyError::TooLong) => State::TooLarge,
                Some(BodyError::TooSlow) => State::TooSlow,
                Some(BodyError::Broken) | None => State::Failed,
            },
            None => State::Ended,
        });
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Streaming { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Nothing => SizeHint::with_exact(0),
            Self::Streaming { body, .. } => body.size_hint(),
        }
    }
}

/// How far a body has got, for whoever waits for the response.
#[derive(Debug)]
pub(super) struct Progress {
    state: AtomicU8,
    began: Instant,
    /// When something moved last, in milliseconds from the beginning.
    moved_at: AtomicU64,
}

#[derive(Clone, Copy)]
#[repr(u8)]
enum State {
    Untouched = 0,
    WaitsForCaller,
    WaitsForServer,
    Ended,
    Failed,
    TooLarge,
    TooSlow,
}

impl Progress {
    fn new() -> Self {
        Self {
            state: AtomicU8::new(State::Untouched as u8),
            began: Instant::now(),
            moved_at: AtomicU64::new(0),
        }
    }

    fn becomes(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    fn is(&self, state: State) -> bool {
        self.state.load(Ordering::Relaxed) == state as u8
    }

    fn moved(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_at.store(ms, Ordering::Relaxed);
    }

    /// When a part of it went last.
    pub(super) fn moved_at(&self) -> Instant {
        self.began + Duration::from_millis(self.moved_at.load(Ordering::Relaxed))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.is(State::Ended)
    }

    /// Whether it is the caller's turn to send.
    pub(super) fn waits_for_caller(&self) -> bool {
        self.is(State::WaitsForCaller)
    }

    /// What was wrong with the body, if that is why there is no response.
    pub(super) fn failure(&self) -> Option<Failure> {
        let failures = [
            (State::Failed, Failure::CallerBody),
            (State::TooLarge, Failure::CallerBodyTooLarge),
            (State::TooSlow, Failure::CallerSlow),
        ];
        let failure = failures.into_iter().find(|(state, _)| self.is(*state));
        failure.map(|(_, failure)| failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::StreamBody;

    #[tokio::test]
    async fn failed_body_is_the_clients_failure() {
        for (error, expected) in [
            (BodyError::TooLong, Failure::CallerBodyTooLarge),
            (BodyError::TooSlow, Failure::CallerSlow),
            (BodyError::Broken, Failure::CallerBody),
        ] {
            let frames = futures_util::stream::iter([Err::<Frame<Bytes>, _>(error)]);
            let reserved: ReservedNames = Arc::new(|_| false);
            let mut body = RequestBody::of(StreamBody::new(frames), &reserved);
            let progress = body.progress().unwrap();
            assert_eq!(progress.failure(), None);
            assert!(body.frame().await.unwrap().is_err());
            assert_eq!(progress.failure(), Some(expected));
        }
    }
}
