//! Connections that were upgraded: from then on bytes are copied to and fro, until both sides have ended or the program ends.

use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::link::Link;
use super::server::Place;

/// All that are open.
#[derive(Debug)]
pub(super) struct Tunnels {
    tasks: TaskTracker,
    cut: CancellationToken,
    open: Gauge,
}

impl Tunnels {
    pub(super) fn new(open: Gauge) -> Self {
        Self {
            tasks: TaskTracker::new(),
            cut: CancellationToken::new(),
            open,
        }
    }

    /// Opens one as soon as both sides are ready for it. It has a place at the server until it ends.
    pub(super) fn start(&self, front: OnUpgrade, back: Link, place: Place) {
        let (cut, open) = (self.cut.clone(), Open::new(&self.open));
        self.tasks.spawn(async move {
            let _held = (place, open);
            let copied = cut.run_until_cancelled(copy(front, back)).await;
            if let Some(Err(error)) = copied {
                tracing::debug!(%error, "an upgraded connection ended early");
            }
        });
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
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (mut back, read) = back.into_stream().await;
    let mut front = TokioIo::new(front.await?);
    front.write_all(&read).await?;
    copy_bidirectional(&mut front, &mut back).await?;
    Ok(())
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
