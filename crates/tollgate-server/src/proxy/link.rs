//! A connection of HTTP/1.1 to a server. It is no task of its own: whoever waits for its response moves it on.
//!
//! So a request passes from the caller's connection to the server's and back without a change of tasks, and who leaves takes the
//! connection along. As long as what is said on it is [plain](super::plain), nobody else is needed. Where it is not, [hyper](super::by_hyper)
//! speaks, and for some exchanges after that: to begin and to end that costs something, too.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::Instant;

use super::by_hyper::ByHyper;
use super::failure::Failure;
use super::outgoing::Outgoing;
use super::plain::{Answered, Plain};
use super::stream::Stream;
use super::upload::{Progress, Upload};
use crate::patience::Patience;

/// A connection, busy with one request or idle.
pub(super) struct Link {
    voice: Voice,
    turns: Turns,
    pub(super) patience: Patience,
    pub(super) idle_since: Instant,
}

/// Who speaks on a connection.
enum Voice {
    Plain(Plain),
    Hyper(Box<ByHyper>),
    /// Nobody any more.
    None,
}

/// For how many exchanges hyper goes on speaking: twice as many each time that it has to, up to a bound, until something plain was
/// said.
struct Turns {
    left: u8,
    next: u8,
}

const FEWEST_TURNS: u8 = 1;
const MOST_TURNS: u8 = 64;

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
        mut error: TrySendError<Request<Upload>>,
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

impl Link {
    pub(super) fn over(stream: Stream) -> Self {
        Self {
            voice: Voice::Plain(Plain::over(stream)),
            turns: Turns {
                left: 0,
                next: FEWEST_TURNS,
            },
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
        if let Voice::Plain(plain) = &mut self.voice
            && plain.takes(&request)
        {
            let patience = &mut self.patience;
            let heard = poll_fn(|context| match plain.poll_heard(context) {
                Poll::Ready(heard) => Poll::Ready(Some(heard)),
                Poll::Pending => patience.poll(context).map(|()| None),
            });
            let heard = match heard.await {
                Some(Ok(heard)) => heard,
                Some(Err(error)) => return Err(Lost::closed(request, &error)),
                None => return Err(Lost::by(Failure::ResponseTimeout)),
            };
            match plain.answer(heard) {
                Answered::Plainly(response) => {
                    self.turns.next = FEWEST_TURNS;
                    return Ok(response.map(Received::Whole));
                }
                Answered::Otherwise(bytes) => read = Some(bytes),
            }
        }
        // Large, and not the usual.
        Box::pin(self.send_by_hyper(request.into_request(), within, read)).await
    }

    /// Has hyper send a request, or hear what was read already in answer to it.
    async fn send_by_hyper(
        &mut self,
        request: Request<Upload>,
        within: Option<Duration>,
        read: Option<Bytes>,
    ) -> Result<Response<Received>, Lost> {
        let was_sent = read.is_some();
        if let Voice::Plain(_) = &self.voice
            && let Voice::Plain(plain) = std::mem::replace(&mut self.voice, Voice::None)
        {
            let mut stream = plain.into_stream();
            if let Some(read) = read {
                stream.repeat(read);
            }
            if let Ok(by_hyper) = ByHyper::over(stream).await {
                self.voice = Voice::Hyper(Box::new(by_hyper));
            }
            self.turns.left = self.turns.next;
            self.turns.next = self.turns.next.saturating_mul(2).min(MOST_TURNS);
        }
        let Voice::Hyper(by_hyper) = &mut self.voice else {
            return Err(Lost::by(Failure::Closed));
        };
        let sent = by_hyper.send(request, within, &mut self.patience, was_sent);
        Ok(sent.await?.map(Received::Coming))
    }

    pub(super) fn has_ended(&self) -> bool {
        match &self.voice {
            Voice::Plain(_) => false,
            Voice::Hyper(by_hyper) => by_hyper.has_ended(),
            Voice::None => true,
        }
    }

    /// Moves the connection on as far as it goes.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) {
        if let Voice::Hyper(by_hyper) = &mut self.voice {
            by_hyper.drive(context);
        }
    }

    /// Whether it can take a request, as far as can be known: its server may just be closing it.
    pub(super) fn is_usable(&mut self) -> bool {
        match &mut self.voice {
            Voice::Plain(plain) => plain.is_quiet(),
            Voice::Hyper(by_hyper) => by_hyper.is_usable(),
            Voice::None => false,
        }
    }

    /// Makes it ready to be kept for another request; whether it may be. It is asked again before it is used, so what is known without looking is
    /// enough.
    pub(super) fn rest(&mut self) -> bool {
        if let Voice::Plain(_) = &self.voice {
            return true;
        }
        if !self.is_usable() {
            return false;
        }
        if self.turns.left > 0 {
            self.turns.left -= 1;
            return true;
        }
        if let Voice::Hyper(by_hyper) = std::mem::replace(&mut self.voice, Voice::None)
            && let Some(stream) = by_hyper.into_idle_stream()
        {
            self.voice = Voice::Plain(Plain::over(stream));
        }
        !self.has_ended()
    }

    /// Lets the connection go on by itself, to its end.
    pub(super) fn detach(self) {
        if let Voice::Hyper(by_hyper) = self.voice {
            by_hyper.detach();
        }
    }

    /// The bare connection, after its server has agreed to something else than HTTP; and what was read of that.
    pub(super) async fn into_stream(self) -> Option<(Stream, Bytes)> {
        match self.voice {
            Voice::Plain(plain) => Some((plain.into_stream(), Bytes::new())),
            Voice::Hyper(by_hyper) => Some(by_hyper.into_stream().await),
            Voice::None => None,
        }
    }
}

/// Why no response came.
pub(super) enum Silence {
    Error(Box<TrySendError<Request<Upload>>>),
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
