//! Connections that were upgraded: from then on bytes are copied to and fro, until both sides have ended, neither says anything any more, or the program
//! ends.

mod traffic;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::link::Link;
use super::slots::Slot;
use crate::gateway::{Tunnel, TunnelEnd};
use traffic::{Traffic, WithTraffic};

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
        back: Link,
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
    back: Link,
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
