//! Metrics for Prometheus, collected when they are read.

use std::fmt;
use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;

use super::counters::{COUNTED, DecisionCounters, RuleCounters, USUAL};
use super::{Backend, Limiter, LocalLimiter};
use crate::name::Name;
use crate::rule::{Rule, RuleSet};
use crate::store::MemoryStats;

#[cfg(feature = "redis")]
use {
    super::SharedStats,
    crate::store::{Spread, StoreCalls},
    prometheus_client::registry::Unit,
};

/// The name of the rules that are counted together.
const OTHER: &str = "other rules";

/// What is collected of a limiter, for as long as it exists.
#[derive(Debug)]
struct LimiterCollector<L>(Weak<L>);

/// A limiter whose metrics are collected.
trait Collected: fmt::Debug + Send + Sync + 'static {
    fn counters(&self) -> &DecisionCounters;
    fn current_rules(&self) -> Arc<RuleSet>;
    fn memory(&self) -> Option<MemoryStats>;
    #[cfg(feature = "redis")]
    fn shared(&self) -> Option<(SharedStats, StoreCalls)>;
}

impl Limiter {
    /// Counts this limiter's decisions from now on, and registers its metrics. They are collected when the registry is encoded.
    ///
    /// | metric | labels | meaning |
    /// |---|---|---|
    /// | `decisions` | `rule`, `outcome`, `source` | decisions, by the rule that bound them (empty for a key or no rule), the outcome (`allowed`, `delayed`, `denied`, `never_fits`, `closed`) and the [source](crate::Source) |
    /// | `shadow_denials` | `rule` | requests that a shadow would have denied |
    /// | `memory_keys`, `memory_live_keys`, `memory_log_entries`, `memory_slots` | | what the store in memory holds: see [`MemoryStats`] |
    /// | `memory_shared_keys`, `memory_evicted_keys` | | what it had no room for |
    /// | `store_breaker_open`, `store_breaker_openings`, `store_missed_deadlines`, `store_share` | | the shared store's health: see `SharedStats` |
    /// | `store_instances`, `store_instances_assumed` | | how many processes share the limits |
    /// | `store_stalls` | | stalls of this process while a check waited, so that its timer fired late |
    /// | `store_call_duration_seconds`, `store_batch_size`, `store_call_failures` | | calls to the shared store: see `StoreCalls` |
    ///
    /// A decision costs two atomic additions more, and no look-up. Looks ([`peek`](crate::Check::<Limiter>::peek)) are not counted.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use prometheus_client::registry::Registry;
    /// use tollgate::{Limiter, Request, Rule};
    ///
    /// let limiter = Arc::new(Limiter::in_memory().with_rules([Rule::new("everyone", "5000/s".parse()?)?])?);
    /// let mut registry = Registry::default();
    /// limiter.register_metrics(registry.sub_registry_with_prefix("tollgate"));
    ///
    /// assert!(limiter.decide(&Request::new()).await.allowed());
    /// let mut text = String::new();
    /// prometheus_client::encoding::text::encode(&mut text, &registry)?;
    /// let sample = r#"tollgate_decisions_total{rule="everyone",outcome="allowed",source="store"} 1"#;
    /// assert!(text.contains(sample), "{text}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        register(self, registry);
    }
}

impl LocalLimiter {
    /// Counts this limiter's decisions from now on, and registers its metrics: see [`Limiter::register_metrics`].
    pub fn register_metrics(self: &Arc<Self>, registry: &mut Registry) {
        register(self, registry);
    }
}

fn register<L: Collected>(limiter: &Arc<L>, registry: &mut Registry) {
    // From now on they are there, and count.
    let _ = limiter.counters();
    registry.register_collector(Box::new(LimiterCollector(Arc::downgrade(limiter))));
}

impl Collected for Limiter {
    fn counters(&self) -> &DecisionCounters {
        match &self.backend {
            Backend::Memory(local) => local.counters(),
            #[cfg(feature = "redis")]
            Backend::Shared(shared) => shared.counters(),
        }
    }

    fn current_rules(&self) -> Arc<RuleSet> {
        self.rules()
    }

    fn memory(&self) -> Option<MemoryStats> {
        self.memory_stats()
    }

    #[cfg(feature = "redis")]
    fn shared(&self) -> Option<(SharedStats, StoreCalls)> {
        self.shared_stats().zip(self.store_calls())
    }
}

impl Collected for LocalLimiter {
    fn counters(&self) -> &DecisionCounters {
        Self::counters(self)
    }

    fn current_rules(&self) -> Arc<RuleSet> {
        self.rules()
    }

    fn memory(&self) -> Option<MemoryStats> {
        Some(self.memory_stats())
    }

    #[cfg(feature = "redis")]
    fn shared(&self) -> Option<(SharedStats, StoreCalls)> {
        None
    }
}

impl<L: Collected> Collector for LimiterCollector<L> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(limiter) = self.0.upgrade() else {
            return Ok(());
        };
        let mut page = Page(encoder);
        page.decisions(limiter.counters(), &limiter.current_rules())?;
        if let Some(stats) = limiter.memory() {
            page.memory(&stats)?;
        }
        #[cfg(feature = "redis")]
        if let Some((stats, calls)) = limiter.shared() {
            page.shared(&stats, &calls)?;
        }
        Ok(())
    }
}

/// Where metrics are written.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn decisions(&mut self, counters: &DecisionCounters, rules: &RuleSet) -> fmt::Result {
        let mut ids: Vec<Name> = rules.rules().map(Rule::id).collect();
        ids.dedup();
        let in_force = counters.of_rules(&ids);
        let removed = counters.of_others(&ids);
        let by_rule: Vec<(&str, &RuleCounters, bool)> = in_force
            .map(|(rule, counters)| (rule, counters, true))
            .chain(removed.map(|(rule, counters)| (rule, counters, false)))
            .chain([(OTHER, counters.other(), false)])
            .collect();
        let help = "Decisions, by the rule that bound them, their outcome and their source";
        self.family("decisions", help, MetricType::Counter, |mut metric| {
            for (rule, counters, is_in_force) in &by_rule {
                for (nth, (outcome, source)) in COUNTED.iter().enumerate() {
                    let count = counters.get(nth);
                    // The usual ones are there from the start, so that rates can be computed.
                    if count > 0 || *is_in_force && nth < USUAL {
                        let labels = [
                            ("rule", *rule),
                            ("outcome", *outcome),
                            ("source", source.as_str()),
                        ];
                        counter(&mut metric, &labels, count)?;
                    }
                }
            }
            Ok(())
        })?;
        let help = "Requests that a shadow would have denied";
        self.family("shadow_denials", help, MetricType::Counter, |mut metric| {
            for (rule, counters, _) in &by_rule {
                let count = counters.shadow_denials();
                if count > 0 {
                    counter(&mut metric, &[("rule", *rule)], count)?;
                }
            }
            Ok(())
        })
    }

    fn memory(&mut self, stats: &MemoryStats) -> fmt::Result {
        for (name, help, value) in [
            ("memory_keys", "Keys in memory", stats.keys),
            (
                "memory_live_keys",
                "Keys in memory that are not expired",
                stats.live_keys,
            ),
            (
                "memory_log_entries",
                "Entries of sliding logs",
                stats.log_entries,
            ),
            (
                "memory_slots",
                "Slots in memory, 24 bytes each",
                stats.slots,
            ),
        ] {
            self.gauge(name, help, value as u64)?;
        }
        let help = "How often a key shared a bucket because memory was full";
        self.counter("memory_shared_keys", help, stats.shared)?;
        let help = "Keys that were evicted for new ones because memory was full";
        self.counter("memory_evicted_keys", help, stats.evicted)
    }

    #[cfg(feature = "redis")]
    fn shared(&mut self, stats: &SharedStats, calls: &StoreCalls) -> fmt::Result {
        let help = "1 while the circuit breaker is open and the store is not asked";
        let is_open = u64::from(stats.breaker_is_open);
        self.gauge("store_breaker_open", help, is_open)?;
        let help = "How often the breaker opened";
        self.counter("store_breaker_openings", help, stats.breaker_opened)?;
        let help = "Decisions that the store did not make within the deadline";
        self.counter("store_missed_deadlines", help, stats.missed_deadlines)?;
        let help = "Stalls of this process while a check waited for the store";
        self.counter("store_stalls", help, stats.stalls)?;
        let help =
            "Share of the last minute's decisions that the store made, without remembered denials";
        self.family("store_share", help, MetricType::Gauge, |mut metric| {
            // Without decisions there is no sample.
            (stats.store_share()).map_or(Ok(()), |share| metric.encode_gauge(&share))
        })?;
        let help = "Processes that share the limits: configured, counted or assumed";
        self.gauge("store_instances", help, u64::from(stats.instances))?;
        let help = "1 while store_instances is assumed, not counted";
        let is_assumed = u64::from(stats.instances_are_assumed);
        self.gauge("store_instances_assumed", help, is_assumed)?;
        let help = "How long calls to the store took";
        let (unit, histogram) = (Some(&Unit::Seconds), MetricType::Histogram);
        write_histogram(
            (self.0).encode_descriptor("store_call_duration", help, unit, histogram)?,
            &calls.times_us,
            1e6,
        )?;
        let help = "Checks that went to the store in one call";
        self.family("store_batch_size", help, histogram, |metric| {
            write_histogram(metric, &calls.sizes, 1.0)
        })?;
        let help = "Calls to the store that failed";
        self.counter("store_call_failures", help, calls.failed)
    }

    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        write: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(self.0.encode_descriptor(name, help, None, kind)?)
    }

    fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        self.family(name, help, MetricType::Counter, |mut metric| {
            metric.encode_counter(&count, None::<&Exemplar<NoLabelSet, u64>>)
        })
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, |mut metric| {
            metric.encode_gauge(&value)
        })
    }
}

fn counter(
    metric: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    count: u64,
) -> fmt::Result {
    let mut sample = metric.encode_family(labels)?;
    sample.encode_counter(&count, None::<&Exemplar<NoLabelSet, u64>>)
}

/// A histogram of whole numbers, of which this many are one unit.
#[cfg(feature = "redis")]
#[expect(
    clippy::cast_precision_loss,
    reason = "far from where whole numbers end"
)]
fn write_histogram(mut metric: MetricEncoder<'_>, spread: &Spread, unit: f64) -> fmt::Result {
    let bounds = spread.bounds.iter().map(|bound| *bound as f64 / unit);
    let bounds = bounds.chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(spread.counts.iter().copied()).collect();
    let count = spread.counts.iter().sum();
    metric.encode_histogram::<NoLabelSet>(spread.sum as f64 / unit, count, &buckets, None)
}
