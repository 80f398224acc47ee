//! The signals that the program handles.

use std::io;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGHUP: reload the configuration.
    Reload,
    /// SIGUSR1: reopen the access log.
    ReopenLog,
    /// SIGUSR2: start a new process and hand the sockets over.
    Restart,
    /// SIGTERM, SIGINT: shut down.
    Stop,
}

#[derive(Debug)]
pub(super) struct Signals {
    hangup: Stream,
    user_one: Stream,
    user_two: Stream,
    terminate: Stream,
    interrupt: Stream,
}

impl Signals {
    /// Handles them from now on.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user_one: signal(SignalKind::user_defined1())?,
            user_two: signal(SignalKind::user_defined2())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.user_one.recv() => Signal::ReopenLog,
            _ = self.user_two.recv() => Signal::Restart,
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
        }
    }

    /// The next one that stops the program; others are ignored.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
