//! A connection that was upgraded, as the access log sees it: its line is written when it has ended.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Whoever answers 101 may put this among the response's extensions, and says later how it went on.
#[derive(Clone, Default)]
pub struct Tunnel(Arc<Mutex<Option<WhenEnded>>>);

type WhenEnded = Box<dyn FnOnce(TunnelEnd, u64) + Send>;

/// How an upgraded connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelEnd {
    /// Both sides had said all.
    Ended,
    /// Neither side said anything for longer than it may.
    Idle,
    /// A side broke off, or the program ends.
    Cut,
}

impl TunnelEnd {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Idle => "idle",
            Self::Cut => "cut",
        }
    }
}

impl Tunnel {
    /// It has ended, after so many bytes for the caller.
    pub fn ended(&self, end: TunnelEnd, bytes: u64) {
        let when_ended = self.0.lock().take();
        if let Some(when_ended) = when_ended {
            when_ended(end, bytes);
        }
    }

    pub(super) fn when_ended(&self, then: impl FnOnce(TunnelEnd, u64) + Send + 'static) {
        *self.0.lock() = Some(Box::new(then));
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
