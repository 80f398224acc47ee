//! A connection of HTTP/1.1 to a server. It is no task of its own: whoever waits for its response moves it on.
//!
//! So a request passes from the caller's connection to the server's and back without a change of tasks, and who leaves takes the
//! connection along. hyper wakes those who wait at the other ends of its channels; here they are one and the same, awake already. So
//! what can be had at once is asked for with a waker that does nothing, and only who has to wait leaves its own.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::unconstrained;
use tokio::time::Instant;

use super::failure::Failure;
use super::patience::Patience;
use super::stream::{Heard, Stream};
use super::upload::{Progress, Upload};

type Connection = http1::Connection<TokioIo<Stream>, Upload>;

/// A connection, busy with one request or idle.
pub(super) struct Link {
    sender: SendRequest<Upload>,
    connection: Connection,
    has_ended: bool,
    heard: Heard,
    pub(super) patience: Patience,
    pub(super) idle_since: Instant,
}

/// A request without a response.
pub(super) struct Lost {
    pub(super) failure: Failure,
    /// For the log.
    pub(super) error: String,
    /// The request, if nothing of it was sent.
    pub(super) unsent: Option<Box<Request<Upload>>>,
    /// Whether the server said anything.
    pub(super) heard: bool,
}

impl Lost {
    pub(super) fn by(failure: Failure) -> Self {
        Self {
            failure,
            error: String::new(),
            unsent: None,
            heard: true,
        }
    }

    fn of(
        mut error: TrySendError<Request<Upload>>,
        progress: Option<&Progress>,
        heard: bool,
    ) -> Self {
        let unsent = error.take_message().map(Box::new);
        let error = error.into_error();
        let failure = match progress.and_then(Progress::failure) {
            Some(failure) => failure,
            None if error.is_parse() => Failure::Garbled,
            None => Failure::Closed,
        };
        Self {
            failure,
            error: error.to_string(),
            unsent,
            heard,
        }
    }
}

impl Link {
    pub(super) async fn over(stream: Stream) -> hyper::Result<Self> {
        let heard = stream.heard();
        let (sender, connection) = http1::Builder::new()
            .handshake(TokioIo::new(stream))
            .await?;
        Ok(Self {
            sender,
            connection,
            has_ended: false,
            heard,
            patience: Patience::default(),
            idle_since: Instant::now(),
        })
    }

    /// Sends a request and waits for the head of its response, for so long after the last part of the request.
    pub(super) async fn send(
        &mut self,
        request: Request<Upload>,
        within: Option<Duration>,
    ) -> Result<Response<Incoming>, Lost> {
        let progress = request.body().progress();
        self.heard.nothing_yet();
        self.patience.begin(within);
        // Out of tokio's budget, a response that is there would be waited for with nobody to wake us.
        let mut response = pin!(unconstrained(self.sender.try_send_request(request)));
        let mut was_woken = false;
        let response = poll_fn(|context| {
            let wakers: &[&Waker] = match was_woken {
                true => &[Waker::noop(), context.waker()],
                false => &[context.waker()],
            };
            was_woken = true;
            for waker in wakers {
                self.drive(&mut Context::from_waker(waker));
                let ready = response
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                if let Poll::Ready(response) = ready {
                    return Poll::Ready(response.map_err(|error| Silence::Error(Box::new(error))));
                }
            }
            if self.has_ended {
                return Poll::Ready(Err(Silence::Ended));
            }
            let over = poll_patience(&mut self.patience, context, within, progress.as_deref());
            over.map(|()| Err(Silence::Late))
        });
        let response = response.await;
        response.map_err(|silence| silence.lost(progress.as_deref(), self.heard.anything()))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Moves the connection on as far as it goes.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) {
        if !self.has_ended {
            // How it ended, whoever waits for a response or its body hears from there.
            self.has_ended = self.connection.poll_without_shutdown(context).is_ready();
        }
    }

    /// Whether it can take a request, as far as can be known: its server may just be closing it.
    pub(super) fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        !self.has_ended && self.sender.is_ready()
    }

    /// Lets the connection go on by itself, to its end.
    pub(super) fn detach(self) {
        if self.has_ended {
            return;
        }
        tokio::spawn(async move {
            if let Err(error) = self.connection.await {
                tracing::debug!(%error, "a connection to a server ended early");
            }
        });
    }

    /// The bare connection, after its server has agreed to something else than HTTP; and what was read of that.
    pub(super) async fn into_stream(mut self) -> (Stream, Bytes) {
        poll_fn(|context| {
            self.drive(context);
            match self.has_ended {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        let parts = self.connection.into_parts();
        (parts.io.into_inner(), parts.read_buf)
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
        let deadline = progress.moved_at() + within;
        if deadline <= Instant::now() {
            return Poll::Ready(());
        }
        patience.until(deadline);
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
