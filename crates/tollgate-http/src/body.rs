//! Request bodies: as they arrive, within limits, and drained when they were not read.
//!
//! When a response is ready and its request's body was not read to the end, a little more is read so that the connection
//! can be kept. If there may be more than that, the response needs `Connection: close`: hyper would close the
//! connection without it, and the client's next request on it would be lost.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::headers::{ReservedNames, filter_request_trailers};
use crate::timeout::RollingTimeout;

/// Maximum number of bytes that are drained, and how long they may take.
const MAX_DRAINED_BYTES: u64 = 64 * 1_024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The body of a request as it arrives; `None` if it is empty.
pub type IncomingBody = Option<Incoming>;

/// The result of polling a body for its next frame.
pub(crate) type FramePoll<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// Limits on a body.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Maximum number of bytes.
    pub max_bytes: u64,
    /// How long the client may send nothing while more is awaited.
    pub timeout: Duration,
}

/// Why a body could not be read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is longer than the limit.
    #[error("the request body is too long")]
    TooLong,
    /// Nothing arrived for too long.
    #[error("the client stopped sending the request body")]
    TooSlow,
    /// It is malformed, or the client has disconnected.
    #[error("the request body is incomplete or malformed")]
    Broken,
}

/// The body of a request within limits; empty by default. Most requests have none, so it is small.
#[derive(Default)]
pub struct LimitedBody(Option<Box<Limited>>);

struct Limited {
    progress: BodyProgress,
    remaining_bytes: u64,
    timeout: Duration,
    /// Runs only while the body is waited for; most bodies arrive with their head.
    waiting: RollingTimeout,
    is_waiting: bool,
    /// Names that no trailer may have.
    reserved: Option<ReservedNames>,
}

#[derive(Debug)]
struct Arriving {
    incoming: Incoming,
    stage: BodyStage,
    moved_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyStage {
    /// Not polled, or its last part was passed on.
    Taken,
    AwaitsClient,
    Ended,
    Failed(BodyError),
}

/// How far the body of a request has come.
#[derive(Clone, Debug)]
pub struct BodyProgress {
    arriving: Arc<Mutex<Arriving>>,
    is_http1: bool,
    /// The client waits for `100 Continue` before it sends the body.
    expects_continue: bool,
}

/// Applies limits to the body of a request. There is no progress if the body is empty.
pub fn limited(
    request: Request<IncomingBody>,
    limits: BodyLimits,
) -> (Request<LimitedBody>, Option<BodyProgress>) {
    let (parts, body) = request.into_parts();
    let Some(incoming) = body.filter(|incoming| !incoming.is_end_stream()) else {
        return (Request::from_parts(parts, LimitedBody::default()), None);
    };
    let progress = BodyProgress {
        arriving: Arc::new(Mutex::new(Arriving {
            incoming,
            stage: BodyStage::Taken,
            moved_at: Instant::now(),
        })),
        is_http1: parts.version <= Version::HTTP_11,
        expects_continue: parts.headers.contains_key(EXPECT),
    };
    let body = LimitedBody(Some(Box::new(Limited {
        progress: progress.clone(),
        remaining_bytes: limits.max_bytes,
        timeout: limits.timeout,
        waiting: RollingTimeout::default(),
        is_waiting: false,
        reserved: None,
    })));
    (Request::from_parts(parts, body), Some(progress))
}

impl BodyProgress {
    /// What is wrong with the body, if anything.
    #[must_use]
    pub fn error(&self) -> Option<BodyError> {
        match self.stage() {
            BodyStage::Failed(error) => Some(error),
            _ => None,
        }
    }

    pub(crate) fn stage(&self) -> BodyStage {
        self.arriving.lock().stage
    }

    /// When the last part was passed on.
    pub(crate) fn moved_at(&self) -> Instant {
        self.arriving.lock().moved_at
    }

    /// Reads the rest of a body that was dropped before its end. Returns whether the connection can be kept.
    pub async fn drain(self) -> bool {
        // A body that is still there is read by its owner. HTTP/2 streams end by themselves.
        let Some(arriving) = Arc::into_inner(self.arriving).filter(|_| self.is_http1) else {
            return true;
        };
        let arriving = arriving.into_inner();
        let (mut incoming, stage) = (arriving.incoming, arriving.stage);
        if stage == BodyStage::Ended || stage == BodyStage::Failed(BodyError::Broken) {
            return true;
        }
        if self.expects_continue || incoming.size_hint().lower() > MAX_DRAINED_BYTES {
            return false;
        }
        let mut read = 0;
        let drained = async {
            while let Some(frame) = incoming.frame().await {
                let Ok(frame) = frame else { return false };
                read += data_length(&frame);
                if read > MAX_DRAINED_BYTES {
                    return false;
                }
            }
            true
        };
        (tokio::time::timeout(DRAIN_TIMEOUT, drained).await).unwrap_or(false)
    }
}

impl LimitedBody {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Filters the trailers for an upstream.
    pub(crate) fn reserve(&mut self, names: impl Fn() -> ReservedNames) {
        if let Some(limited) = &mut self.0 {
            limited.reserved = Some(names());
        }
    }

    /// How far it has come; `None` if it is empty.
    pub(crate) fn progress(&self) -> Option<BodyProgress> {
        self.0.as_ref().map(|limited| limited.progress.clone())
    }
}

impl Limited {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> FramePoll<BodyError> {
        let mut arriving = self.progress.arriving.lock();
        let frame = match Pin::new(&mut arriving.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(mut frame))) => {
                if let (Some(trailers), Some(reserved)) = (frame.trailers_mut(), &self.reserved) {
                    filter_request_trailers(trailers, reserved);
                }
                let remaining = self.remaining_bytes.checked_sub(data_length(&frame));
                self.remaining_bytes = remaining.unwrap_or(0);
                Some(remaining.map(|_| frame).ok_or(BodyError::TooLong))
            }
            Poll::Ready(Some(Err(_))) => Some(Err(BodyError::Broken)),
            Poll::Ready(None) => None,
            Poll::Pending => {
                arriving.stage = BodyStage::AwaitsClient;
                if !std::mem::replace(&mut self.is_waiting, true) {
                    self.waiting.start(Instant::now(), Some(self.timeout));
                }
                if self.waiting.poll(context).is_pending() {
                    return Poll::Pending;
                }
                Some(Err(BodyError::TooSlow))
            }
        };
        self.is_waiting = false;
        arriving.moved_at = Instant::now();
        arriving.stage = match &frame {
            Some(Ok(_)) if !arriving.incoming.is_end_stream() => BodyStage::Taken,
            Some(Ok(_)) | None => BodyStage::Ended,
            Some(Err(error)) => BodyStage::Failed(*error),
        };
        Poll::Ready(frame)
    }
}

fn data_length(frame: &Frame<Bytes>) -> u64 {
    let length = frame.data_ref().map_or(0, Bytes::len);
    u64::try_from(length).unwrap_or(u64::MAX)
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> FramePoll<BodyError> {
        match &mut self.0 {
            Some(limited) => limited.poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let body = self.0.as_ref();
        body.is_none_or(|limited| limited.progress.arriving.lock().incoming.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Some(limited) => limited.progress.arriving.lock().incoming.size_hint(),
            None => SizeHint::with_exact(0),
        }
    }
}
