//! What passes through an upgraded connection, seen at the caller's end: all that either side says comes by there.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::patience::Patience;

/// How much, and when last.
#[derive(Debug)]
pub(super) struct Traffic {
    began: Instant,
    /// Milliseconds after the beginning.
    last: AtomicU64,
    to_caller: AtomicU64,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            last: AtomicU64::new(0),
            to_caller: AtomicU64::new(0),
        }
    }
}

impl Traffic {
    fn passes(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Relaxed);
    }

    pub(super) fn to_caller(&self) -> u64 {
        self.to_caller.load(Relaxed)
    }

    /// Waits until nothing has passed for so long; for ever, if there is no such time.
    pub(super) async fn rests_for(&self, patience: Option<Duration>) {
        let Some(patience) = patience else {
            return std::future::pending().await;
        };
        let mut quiet = Patience::default();
        loop {
            let last = self.last.load(Relaxed);
            let since = self.began + Duration::from_millis(last);
            quiet.begin(since, Some(patience));
            quiet.over().await;
            if self.last.load(Relaxed) == last {
                return;
            }
        }
    }
}

/// The caller's end.
#[derive(Debug)]
pub(super) struct WithTraffic<T> {
    inner: T,
    traffic: Arc<Traffic>,
}

impl<T> WithTraffic<T> {
    pub(super) fn new(inner: T, traffic: Arc<Traffic>) -> Self {
        Self { inner, traffic }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WithTraffic<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.traffic.passes();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WithTraffic<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.traffic.passes();
            let count = u64::try_from(count).unwrap_or_default();
            self.traffic.to_caller.fetch_add(count, Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
