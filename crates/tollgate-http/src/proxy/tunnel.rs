//! Upgraded connections: bytes are copied in both directions until both sides end, both are silent, or the program stops.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::time::Instant;
use tokio_util::io::{InspectReader, InspectWriter};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::UpstreamConnection;
use super::slots::RequestSlot;
use crate::server::BoxError;
use crate::timeout::RollingTimeout;

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

    /// Opens a tunnel as soon as both sides are ready. It ends at the latest when both have been silent for `timeout`.
    pub(super) fn start(
        &self,
        client: OnUpgrade,
        server: UpstreamConnection,
        slot: RequestSlot,
        timeout: Option<Duration>,
    ) -> Tunnel {
        let tunnel = Tunnel::default();
        self.open.inc();
        let mut open = OpenTunnel {
            tunnel: tunnel.clone(),
            traffic: Arc::new(TunnelTraffic(Mutex::new((Instant::now(), 0)))),
            end: TunnelEnd::Cut,
            open: self.open.clone(),
            _slot: slot,
        };
        let (cut, idle) = (self.cut.clone(), self.idle.clone());
        self.tasks.spawn(async move {
            let traffic = Arc::clone(&open.traffic);
            open.end = tokio::select! {
                copied = copy(client, server, Arc::clone(&traffic)) => match copied {
                    Ok(()) => TunnelEnd::Ended,
                    Err(error) => {
                        tracing::debug!(%error, "upgraded connection ended early");
                        TunnelEnd::Cut
                    }
                },
                () = traffic.silence(timeout) => {
                    idle.inc();
                    TunnelEnd::Idle
                }
                () = cut.cancelled() => TunnelEnd::Cut,
            };
            drop(open);
        });
        tunnel
    }

    /// Waits for tunnels to end, and cuts them after `within`.
    pub(super) async fn end(&self, within: Duration) {
        self.tasks.close();
        if (tokio::time::timeout(within, self.tasks.wait()).await).is_err() {
            let tunnels = self.tasks.len();
            tracing::warn!(tunnels, "cutting upgraded connections at shutdown");
            self.cut.cancel();
            self.tasks.wait().await;
        }
    }
}

/// Reports the end of a tunnel when it is dropped, which may be with the thread that it was on.
struct OpenTunnel {
    tunnel: Tunnel,
    traffic: Arc<TunnelTraffic>,
    end: TunnelEnd,
    open: Gauge,
    _slot: RequestSlot,
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.open.dec();
        let when_ended = self.tunnel.0.lock().take();
        if let Some(when_ended) = when_ended {
            when_ended(self.end, self.traffic.0.lock().1);
        }
    }
}

async fn copy(
    client: OnUpgrade,
    server: UpstreamConnection,
    traffic: Arc<TunnelTraffic>,
) -> Result<(), BoxError> {
    let Some((mut server, read)) = server.into_stream().await else {
        return Err("the connection to the server has ended".into());
    };
    // All traffic passes the client's end.
    let client = InspectReader::new(TokioIo::new(client.await?), |bytes: &[u8]| {
        if !bytes.is_empty() {
            traffic.note(0);
        }
    });
    let mut client = InspectWriter::new(client, |bytes: &[u8]| traffic.note(bytes.len()));
    client.write_all(&read).await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// When something last passed through a tunnel, and how many bytes went to the client.
struct TunnelTraffic(Mutex<(Instant, u64)>);

impl TunnelTraffic {
    fn note(&self, to_client: usize) {
        let mut traffic = self.0.lock();
        traffic.0 = Instant::now();
        traffic.1 += u64::try_from(to_client).unwrap_or_default();
    }

    /// Waits until nothing has passed for this long.
    async fn silence(&self, timeout: Option<Duration>) {
        let mut silent = RollingTimeout::default();
        loop {
            let (last, _) = *self.0.lock();
            silent.start(last, timeout);
            std::future::poll_fn(|context| silent.poll(context)).await;
            if self.0.lock().0 == last {
                return;
            }
        }
    }
}
