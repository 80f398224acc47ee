//! Traces: a span for a part of the requests, sent to a collector of OpenTelemetry.
//!
//! A request that is not drawn costs a draw and nothing else. One that is becomes a [`Span`], which is sent when it is dropped: into a
//! queue that nobody waits for, and from there by a thread of its own. Whatever becomes of the collector, requests do not notice;
//! what cannot be sent is lost and counted.
//!
//! Of what a caller says in `traceparent`, only the two ids are taken over. Whether a request is traced is drawn here: a caller must not
//! be able to have all of its requests recorded.
//!
//! The messages of the protocol (OTLP) are our own (`otlp`), as it is stable and we need ten of them: so the program needs no crate more.

mod context;
mod export;
mod otlp;
mod span;

use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;

pub use context::Parent;
pub use span::Span;

use export::Exporter;
use tollgate_config::TracesConfig;

/// So many spans may wait to be sent.
const MOST_WAITING: usize = 4_096;

/// Draws requests, and sends what became of them. A clone is the same.
#[derive(Clone)]
pub struct Tracer(Arc<Inner>);

struct Inner {
    /// A draw below it is traced.
    threshold: u64,
    spans: Sender<otlp::Span>,
    metrics: TraceMetrics,
    /// Told when everything is to be sent, and where to say that it is.
    end: Mutex<Option<oneshot::Sender<oneshot::Sender<()>>>>,
}

/// What is counted of spans. A clone counts for the same.
#[derive(Clone, Debug, Default)]
pub struct TraceMetrics {
    sent: Counter,
    lost: Counter,
}

impl TraceMetrics {
    /// Figures that are read with the others of this registry, each of them beginning with `traces_`.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("traces");
        let words = "Spans that a collector of OpenTelemetry took";
        registry.register("spans_sent", words, metrics.sent.clone());
        let words =
            "Spans that were not sent, as the collector could not be reached or could not keep up";
        registry.register("spans_lost", words, metrics.lost.clone());
        metrics
    }
}

impl Tracer {
    /// Starts to send to this collector. It is not connected to yet.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(config: &TracesConfig, metrics: TraceMetrics) -> io::Result<Self> {
        let (spans, waiting) = channel(MOST_WAITING);
        let (end, ended) = oneshot::channel();
        let exporter = Exporter::new(config, metrics.clone());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("traces".to_owned())
            .spawn(move || runtime.block_on(exporter.run(waiting, ended)))?;
        Ok(Self(Arc::new(Inner {
            threshold: threshold(config.sample),
            spans,
            metrics,
            end: Mutex::new(Some(end)),
        })))
    }

    /// Whether the next request is traced.
    #[must_use]
    pub fn draws(&self) -> bool {
        draw() < self.0.threshold
    }

    /// Sends what is waiting, for at most so long.
    pub async fn close(&self, within: Duration) {
        let end = self.0.end.lock().take();
        let (done, is_done) = oneshot::channel();
        if end.is_some_and(|end| end.send(done).is_ok())
            && tokio::time::timeout(within, is_done).await.is_err()
        {
            tracing::warn!("the last traces were not sent in time");
        }
    }

    fn send(&self, span: otlp::Span) {
        if self.0.spans.try_send(span).is_err() {
            self.0.metrics.lost.inc();
        }
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").finish_non_exhaustive()
    }
}

/// The share of all draws; 1 is all of them but one in 2^64.
fn threshold(sample: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share needs no more digits, and what is out of bounds is cut off"
    )]
    let threshold = (sample * u64::MAX as f64) as u64;
    threshold
}

/// A number that callers cannot foresee well enough to be of use to them: splitmix64, seeded for each thread by the system.
fn draw() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0_u64));
    }
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_drawn_as_are_wanted() {
        for (sample, least, most) in [(0.0, 0, 0), (0.01, 700, 1_300), (1.0, 100_000, 100_000)] {
            let threshold = threshold(sample);
            let drawn = (0..100_000).filter(|_| draw() < threshold).count();
            assert!((least..=most).contains(&drawn), "{drawn} of {sample}");
        }
    }
}
