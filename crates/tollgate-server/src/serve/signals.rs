//! The signals that the program hears.

use std::io;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGHUP: look at the configuration again.
    Reload,
    /// SIGUSR1: open the file of the access log anew.
    ReopenLog,
    /// SIGUSR2: start the program anew and hand over.
    Restart,
    /// SIGTERM, SIGINT: end.
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
    /// Hears them from now on.
    pub(super) fn hear() -> io::Result<Self> {
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

    /// The next one that ends the program; others are passed over.
    pub(super) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
