//! Traces: spans of a sample of the requests, exported to an OpenTelemetry collector.
//!
//! A sampled request has a [`RequestSpan`], which is queued when it is dropped and exported by a thread of its own. Requests never wait
//! for the collector: spans that cannot be exported are dropped and counted.
//!
//! Of a `traceparent` header, only the two ids are used. Sampling is decided here, so that clients cannot have all of their
//! requests recorded.

mod export;
mod span;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc::{Sender, channel};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tollgate_config::TracesConfig;

use export::Exporter;
pub(crate) use span::RequestSpan;

/// Maximum number of spans that wait to be exported.
const MAX_QUEUED: usize = 4_096;

/// Samples requests and exports their spans. Clones share the exporter.
#[derive(Clone)]
pub(crate) struct Tracer(Arc<Inner>);

struct Inner {
    sample: f64,
    spans: Sender<Span>,
    metrics: TraceMetrics,
    stop: CancellationToken,
    /// Resolves when the exporter has stopped.
    stopped: Mutex<Option<oneshot::Receiver<()>>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct TraceMetrics {
    sent: Counter,
    lost: Counter,
}

impl TraceMetrics {
    /// Registers the counters, whose names begin with `traces_`.
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("traces");
        let help = "Spans that the OpenTelemetry collector accepted";
        registry.register("spans_sent", help, metrics.sent.clone());
        let help =
            "Spans that were lost because the collector was unavailable, too slow or rejected them";
        registry.register("spans_lost", help, metrics.lost.clone());
        metrics
    }
}

impl Tracer {
    /// Starts the exporter. It connects when there are spans to export.
    ///
    /// # Errors
    /// When the system provides no thread.
    pub(crate) fn start(config: &TracesConfig, metrics: TraceMetrics) -> io::Result<Self> {
        let (spans, queued) = channel(MAX_QUEUED);
        let (stopped_sender, stopped) = oneshot::channel();
        let stop = CancellationToken::new();
        let exporter = Exporter::new(config, metrics.clone());
        let stopping = stop.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let run = move || {
            runtime.block_on(exporter.run(queued, stopping));
            // It fails if the shutdown has stopped waiting.
            let _ = stopped_sender.send(());
        };
        std::thread::Builder::new()
            .name("traces".to_owned())
            .spawn(run)?;
        Ok(Self(Arc::new(Inner {
            sample: config.sample,
            spans,
            metrics,
            stop,
            stopped: Mutex::new(Some(stopped)),
        })))
    }

    /// The span of a request with these headers, if it is sampled. At the gateway its `name` is empty: there the span is named after the
    /// method and the route.
    pub(crate) fn sample(&self, name: &'static str, headers: &HeaderMap) -> Option<RequestSpan> {
        (rand::random::<f64>() < self.0.sample)
            .then(|| RequestSpan::start(self.clone(), name, headers))
    }

    /// Exports the queued spans, within this time.
    pub(crate) async fn close(&self, within: Duration) {
        self.0.stop.cancel();
        let stopped = self.0.stopped.lock().take();
        if let Some(stopped) = stopped
            && tokio::time::timeout(within, stopped).await.is_err()
        {
            tracing::warn!("the last traces were not exported in time");
        }
    }

    fn queue(&self, span: Span) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn tracer(sample: f64) -> Tracer {
        Tracer(Arc::new(Inner {
            sample,
            spans: channel(1).0,
            metrics: TraceMetrics::default(),
            stop: CancellationToken::new(),
            stopped: Mutex::default(),
        }))
    }

    #[test]
    fn the_configured_share_of_requests_is_sampled() {
        for (sample, fewest, most) in [(0.0, 0, 0), (0.01, 700, 1_300), (1.0, 100_000, 100_000)] {
            let (tracer, headers) = (tracer(sample), HeaderMap::new());
            let spans = (0..100_000).filter_map(|_| tracer.sample("check", &headers));
            let sampled = spans.count();
            assert!((fewest..=most).contains(&sampled), "{sampled} of {sample}");
        }
    }
}
