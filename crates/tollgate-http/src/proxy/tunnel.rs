//! Upgraded connections: bytes are copied in both directions until both sides have ended, both are silent for too long, or the
//! program stops.

mod traffic;

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::Connection;
use super::slots::Slot;
use traffic::{Traffic, WithTraffic};

/// An upgraded connection. It reports its end, which may be hours after the response.
#[derive(Clone, Default)]
pub struct Tunnel(Arc<Mutex<Option<WhenEnded>>>);

type WhenEnded = Box<dyn FnOnce(TunnelEnd, u64) + Send>;

/// How an upgraded connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelEnd {
    /// Both sides have ended it.
    Ended,
    /// Neither side sent anything for too long.
    Idle,
    /// A side disconnected, or the program stopped.
    Cut,
}

impl TunnelEnd {
    /// Its name in logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Idle => "idle",
            Self::Cut => "cut",
        }
    }
}

impl Tunnel {
    /// Reports the end, after this many bytes to the client.
    fn ended(&self, end: TunnelEnd, bytes: u64) {
        let when_ended = self.0.lock().take();
        if let Some(when_ended) = when_ended {
            when_ended(end, bytes);
        }
    }

    /// Calls `then` at the end, with the number of bytes sent to the client.
    pub fn when_ended(&self, then: impl FnOnce(TunnelEnd, u64) + Send + 'static) {
        *self.0.lock() = Some(Box::new(then));
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}

/// All that are open.
#[derive(Debug)]
pub(super) struct Tunnels {
    tasks: TaskTracker,
    cut: CancellationToken,
    open: Gauge,
    idle: Counter,
}

impl Tunnels {
    pub(super) fn new(open: Gauge, idle: Counter) -> Self {
        Self {
            tasks: TaskTracker::new(),
            cut: CancellationToken::new(),
            open,
            idle,
        }
    }

    /// Opens one as soon as both sides are ready for it. It occupies a slot of the server until it ends, which is when nothing was said for `patience`, if not before.
    pub(super) fn start(
        &self,
        front: OnUpgrade,
        back: Connection,
        slot: Slot,
        patience: Option<Duration>,
    ) -> Tunnel {
        let tunnel = Tunnel::default();
        let (cut, open, idle) = (self.cut.clone(), Open::new(&self.open), self.idle.clone());
        let mut last_word = LastWord::of(&tunnel);
        self.tasks.spawn(async move {
            let _held = (slot, open);
            let copied = copy(front, back, Arc::clone(&last_word.traffic));
            last_word.end = tokio::select! {
                copied = copied => match copied {
                    Ok(()) => TunnelEnd::Ended,
                    Err(error) => {
                        tracing::debug!(%error, "an upgraded connection ended early");
                        TunnelEnd::Cut
                    }
                },
                () = last_word.traffic.rests_for(patience) => {
                    idle.inc();
                    TunnelEnd::Idle
                }
                () = cut.cancelled() => TunnelEnd::Cut,
            };
            drop(last_word);
        });
        tunnel
    }

    /// Gives those that are open so long to end, and then cuts them.
    pub(super) async fn end(&self, within: Duration) {
        self.tasks.close();
        if tokio::time::timeout(within, self.tasks.wait())
            .await
            .is_err()
        {
            let tunnels = self.tasks.len();
            tracing::warn!(tunnels, "upgraded connections are cut at the end");
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}

async fn copy(
    front: OnUpgrade,
    back: Connection,
    traffic: Arc<Traffic>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let Some((mut back, read)) = back.into_stream().await else {
        return Err("the connection to the server has ended".into());
    };
    let mut front = WithTraffic::new(TokioIo::new(front.await?), traffic);
    front.write_all(&read).await?;
    copy_bidirectional(&mut front, &mut back).await?;
    Ok(())
}

/// Says how it ended, also if that is with the thread that it was on.
struct LastWord {
    tunnel: Tunnel,
    traffic: Arc<Traffic>,
    end: TunnelEnd,
}

impl LastWord {
    fn of(tunnel: &Tunnel) -> Self {
        Self {
            tunnel: tunnel.clone(),
            traffic: Arc::default(),
            end: TunnelEnd::Cut,
        }
    }
}

impl Drop for LastWord {
    fn drop(&mut self) {
        self.tunnel.ended(self.end, self.traffic.to_caller());
    }
}

/// Counts one that is open.
struct Open(Gauge);

impl Open {
    fn new(open: &Gauge) -> Self {
        open.inc();
        Self(open.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
