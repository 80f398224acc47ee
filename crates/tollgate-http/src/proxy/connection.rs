//! An HTTP/1.1 connection to a server. It is not a task of its own: the request that waits for its response polls it.
//!
//! So a request passes from the client's connection to the server's and back without a change of tasks, and a client that
//! disconnects drops the connection with it. Usual exchanges take the [fast path](super::fast_path). For others
//! [hyper](super::hyper_connection) takes over, and keeps the connection for some exchanges after that, because to take over
//! costs something, too.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::failure::Failure;
use super::fast_path::{Answer, FastConnection};
use super::hyper_connection::HyperConnection;
use super::outgoing::Outgoing;
use super::request_body::{Progress, RequestBody};
use super::stream::Stream;
use crate::patience::Patience;

/// A connection, busy with one request or idle.
pub(super) struct Connection {
    speaker: Speaker,
    turns: Turns,
    /// Whether it may take the fast path.
    fast_path: bool,
    pub(super) patience: Patience,
    pub(super) idle_since: Instant,
}

/// Who reads and writes on a connection.
enum Speaker {
    FastPath(FastConnection),
    Hyper(Box<HyperConnection>),
    /// It has ended.
    None,
}

/// For how many exchanges hyper keeps the connection: twice as many each time that it takes over, up to a maximum, until the
/// fast path was taken again.
struct Turns {
    left: u8,
    next: u8,
}

const MIN_TURNS: u8 = 1;
const MAX_TURNS: u8 = 64;

/// The body of a response.
pub(super) enum Received {
    Whole(Bytes),
    Coming(Incoming),
}

/// A request without a response.
pub(super) struct Lost {
    pub(super) failure: Failure,
    /// For the log.
    pub(super) error: String,
    /// The request, if it is still there.
    pub(super) request: Option<Box<Outgoing>>,
    /// Whether anything of it was sent.
    pub(super) was_sent: bool,
    /// Whether the server said anything.
    pub(super) heard: bool,
}

impl Lost {
    pub(super) fn by(failure: Failure) -> Self {
        Self {
            failure,
            error: String::new(),
            request: None,
            was_sent: true,
            heard: true,
        }
    }

    /// A connection that ended before a response had come.
    fn closed(request: Box<Outgoing>, error: &io::Error) -> Self {
        Self {
            failure: Failure::Closed,
            error: error.to_string(),
            request: Some(request),
            was_sent: true,
            heard: false,
        }
    }

    fn of(
        mut error: TrySendError<Request<RequestBody>>,
        progress: Option<&Progress>,
        heard: bool,
    ) -> Self {
        let request = error.take_message().map(Outgoing::new).map(Box::new);
        let error = error.into_error();
        let failure = match progress.and_then(Progress::failure) {
            Some(failure) => failure,
            None if error.is_parse_too_large() => Failure::LongHead,
            None if error.is_parse() => Failure::Garbled,
            None => Failure::Closed,
        };
        Self {
            failure,
            error: error.to_string(),
            was_sent: request.is_none(),
            request,
            heard,
        }
    }
}

impl Connection {
    pub(super) fn over(stream: Stream, fast_path: bool) -> Self {
        Self {
            speaker: Speaker::FastPath(FastConnection::over(stream)),
            turns: Turns {
                left: 0,
                next: MIN_TURNS,
            },
            fast_path,
            patience: Patience::default(),
            idle_since: Instant::now(),
        }
    }

    /// Sends a request and waits for the head of its response, for so long after the last part of the request.
    pub(super) async fn send(
        &mut self,
        request: Box<Outgoing>,
        within: Option<Duration>,
        now: Instant,
    ) -> Result<Response<Received>, Lost> {
        self.patience.begin(now, within);
        let mut read = None;
        if let Speaker::FastPath(fast) = &mut self.speaker
            && self.fast_path
            && fast.accepts(&request)
        {
            let patience = &mut self.patience;
            let heard = poll_fn(|context| match fast.poll_exchange(context) {
                Poll::Ready(heard) => Poll::Ready(Some(heard)),
                Poll::Pending => patience.poll(context).map(|()| None),
            });
            let heard = match heard.await {
                Some(Ok(heard)) => heard,
                Some(Err(error)) => return Err(Lost::closed(request, &error)),
                None => return Err(Lost::by(Failure::ResponseTimeout)),
            };
            match fast.answer(heard) {
                Answer::Response(response) => {
                    self.turns.next = MIN_TURNS;
                    return Ok(response.map(Received::Whole));
                }
                Answer::Other(bytes) => read = Some(bytes),
            }
        }
        // Large, and not the usual.
        Box::pin(self.send_by_hyper(request.into_request(), within, read)).await
    }

    /// Has hyper send a request, or hear what was read already in answer to it.
    async fn send_by_hyper(
        &mut self,
        request: Request<RequestBody>,
        within: Option<Duration>,
        read: Option<Bytes>,
    ) -> Result<Response<Received>, Lost> {
        let was_sent = read.is_some();
        if let Speaker::FastPath(_) = &self.speaker
            && let Speaker::FastPath(fast) = std::mem::replace(&mut self.speaker, Speaker::None)
        {
            let mut stream = fast.into_stream();
            if let Some(read) = read {
                stream.replay(read);
            }
            if let Ok(by_hyper) = HyperConnection::over(stream).await {
                self.speaker = Speaker::Hyper(Box::new(by_hyper));
            }
            self.turns.left = self.turns.next;
            self.turns.next = self.turns.next.saturating_mul(2).min(MAX_TURNS);
        }
        let Speaker::Hyper(by_hyper) = &mut self.speaker else {
            return Err(Lost::by(Failure::Closed));
        };
        let sent = by_hyper.send(request, within, &mut self.patience, was_sent);
        Ok(sent.await?.map(Received::Coming))
    }

    pub(super) fn has_ended(&self) -> bool {
        match &self.speaker {
            Speaker::FastPath(_) => false,
            Speaker::Hyper(by_hyper) => by_hyper.has_ended(),
            Speaker::None => true,
        }
    }

    /// Moves the connection on as far as it goes.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) {
        if let Speaker::Hyper(by_hyper) = &mut self.speaker {
            by_hyper.drive(context);
        }
    }

    /// Whether it can take a request, as far as can be known: its server may just be closing it.
    pub(super) fn is_usable(&mut self) -> bool {
        match &mut self.speaker {
            Speaker::FastPath(fast) => fast.is_quiet(),
            Speaker::Hyper(by_hyper) => by_hyper.is_usable(),
            Speaker::None => false,
        }
    }

    /// Makes it ready to be kept for another request; whether it may be. It is asked again before it is used, so what is known without looking is
    /// enough.
    pub(super) fn rest(&mut self) -> bool {
        if let Speaker::FastPath(_) = &self.speaker {
            return true;
        }
        if !self.is_usable() {
            return false;
        }
        if self.turns.left > 0 || !self.fast_path {
            // It stays with hyper.
            self.turns.left = self.turns.left.saturating_sub(1);
            return true;
        }
        if let Speaker::Hyper(by_hyper) = std::mem::replace(&mut self.speaker, Speaker::None)
            && let Some(stream) = by_hyper.into_idle_stream()
        {
            self.speaker = Speaker::FastPath(FastConnection::over(stream));
        }
        !self.has_ended()
    }

    /// Lets the connection go on by itself, to its end.
    pub(super) fn detach(self) {
        if let Speaker::Hyper(by_hyper) = self.speaker {
            by_hyper.detach();
        }
    }

    /// The bare connection, after its server has agreed to something else than HTTP; and what was read of that.
    pub(super) async fn into_stream(self) -> Option<(Stream, Bytes)> {
        match self.speaker {
            Speaker::FastPath(fast) => Some((fast.into_stream(), Bytes::new())),
            Speaker::Hyper(by_hyper) => Some(by_hyper.into_stream().await),
            Speaker::None => None,
        }
    }
}

/// Why no response came.
pub(super) enum Silence {
    Error(Box<TrySendError<Request<RequestBody>>>),
    /// The connection has ended, and nobody said anything.
    Ended,
    Late,
}

impl Silence {
    /// With what is known of the request's body, and whether the server said anything.
    pub(super) fn lost(self, progress: Option<&Progress>, heard: bool) -> Lost {
        match self {
            Self::Error(error) => Lost::of(*error, progress, heard),
            Self::Ended => Lost::by(Failure::Closed),
            Self::Late => Lost::by(late(progress)),
        }
    }
}

/// Whether patience is over. The time counts from the last part of the request's body on.
pub(super) fn poll_patience(
    patience: &mut Patience,
    context: &mut Context<'_>,
    within: Option<Duration>,
    progress: Option<&Progress>,
) -> Poll<()> {
    while patience.poll(context).is_ready() {
        let (Some(progress), Some(within)) = (progress, within) else {
            return Poll::Ready(());
        };
        let moved_at = progress.moved_at();
        if moved_at + within <= Instant::now() {
            return Poll::Ready(());
        }
        patience.begin(moved_at, Some(within));
    }
    Poll::Pending
}

/// Who was it that took too long?
fn late(progress: Option<&Progress>) -> Failure {
    match progress {
        Some(progress) if progress.waits_for_caller() => Failure::CallerSlow,
        _ => Failure::ResponseTimeout,
    }
}
