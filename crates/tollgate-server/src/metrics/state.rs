//! Everything that a door can say of itself, asked for when somebody looks.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Unit;
use tollgate::store::Spread;

use crate::counters::{Counted, OTHER, OUTCOMES, RuleCounts};
use crate::decider::Decider;

/// Clients in `/metrics`.
const MOST_CLIENTS: usize = 10;

#[derive(Debug)]
pub(super) struct State {
    decider: Decider,
    started: SystemTime,
}

type Labels<'a, const N: usize> = [(&'static str, &'a str); N];

impl State {
    pub(super) fn of(decider: Decider) -> Self {
        Self {
            decider,
            started: SystemTime::now(),
        }
    }

    fn program(&self, page: &mut Page<'_>) -> fmt::Result {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        let about = "The version that runs";
        page.family("build", about, MetricType::Info, |mut metric| {
            metric.encode_info(&version)
        })?;
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let about = "When the program started, since 1970";
        page.gauge_of_seconds("start_time", about, since)
    }

    fn decisions(&self, page: &mut Page<'_>) -> fmt::Result {
        let decisions = self.decider.decisions();
        let policy = self.decider.policy();
        decisions.expect(policy.rules().rules().map(tollgate::Rule::id));
        let all = decisions.all();
        let rules = || {
            let known = all.iter().map(|(rule, counts)| (*rule, &**counts));
            known.chain(decisions.rest())
        };
        let about = "Decisions by the rule that bound them, and what came of them";
        page.family("decisions", about, MetricType::Counter, |mut metric| {
            for (rule, counts) in rules() {
                for (outcome, name) in OUTCOMES {
                    let count = counts.get(outcome);
                    let is_usual = matches!(outcome, Counted::Allowed | Counted::Denied)
                        && !rule.is_empty()
                        && rule != OTHER;
                    if count > 0 || is_usual {
                        let labels: Labels<'_, 2> = [("rule", rule), ("outcome", name)];
                        counter(&mut metric, &labels, count)?;
                    }
                }
            }
            Ok(())
        })?;
        let about = "Requests that a shadow would have denied";
        by_rule(page, "shadow_denials", about, rules(), Counted::Shadow)?;
        let about = "Requests that were let into a queue and could not wait for so long";
        by_rule(page, "queue_too_late", about, rules(), Counted::TooLate)
    }

    fn clients(&self, page: &mut Page<'_>) -> fmt::Result {
        let top = self.decider.top().most(MOST_CLIENTS);
        let about = "The clients denied most often in the last one or two minutes, ten at the most";
        page.family(
            "top_denied_clients",
            about,
            MetricType::Gauge,
            |mut metric| {
                for denied in &top.clients {
                    let labels: Labels<'_, 2> =
                        [("rule", &denied.rule), ("client", &denied.client)];
                    metric
                        .encode_family(&labels)?
                        .encode_gauge(&denied.denied)?;
                }
                Ok(())
            },
        )
    }

    fn policies(&self, page: &mut Page<'_>) -> fmt::Result {
        let live = self.decider.live().stats();
        let rules = self.decider.policy().rules().rules().count();
        page.gauge("rules", "Rules in force", rules as u64)?;
        page.gauge(
            "rules_generation",
            "The generation of the rules in force",
            live.generation,
        )?;
        page.gauge(
            "rules_from_cache",
            "1 while the rules are from the cache, as the database could not be asked",
            u64::from(live.from_cache),
        )?;
        let refused = "Generations of rules that were refused";
        page.counter("rules_refused", refused, live.refused)?;
        let failures = "How often the configuration or the rules in the database could not be read";
        page.counter("rules_read_failures", failures, live.failures)?;
        let watch = live.watch;
        for (name, about, count) in [
            (
                "database_looks",
                "Looks for changes in the database",
                watch.looks,
            ),
            (
                "database_changes",
                "Changes found in the database",
                watch.changes,
            ),
            (
                "database_look_failures",
                "Looks at the database that failed",
                watch.failures,
            ),
            (
                "database_listener_losses",
                "How often the database's notifications were lost",
                watch.deaf,
            ),
        ] {
            page.counter(name, about, count)?;
        }
        Ok(())
    }

    fn memory(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(memory) = self.decider.limiter().memory_stats() else {
            return Ok(());
        };
        page.gauge("memory_keys", "Keys in memory", memory.keys as u64)?;
        page.gauge(
            "memory_live_keys",
            "Keys that still say something",
            memory.live_keys as u64,
        )?;
        page.gauge(
            "memory_log_entries",
            "Entries of sliding logs",
            memory.log_entries as u64,
        )?;
        page.gauge(
            "memory_slots",
            "Slots in memory, 24 bytes each",
            memory.slots as u64,
        )?;
        let about = "How often a key had to share a bucket, as there was no room";
        page.counter("memory_shared_keys", about, memory.shared)?;
        let about = "Keys that used at most half of their limit and were forgotten for new ones";
        page.counter("memory_evicted_keys", about, memory.evicted)
    }

    fn store(&self, page: &mut Page<'_>) -> fmt::Result {
        let limiter = self.decider.limiter();
        let (Some(shared), Some(calls)) = (limiter.shared_stats(), limiter.store_calls()) else {
            return Ok(());
        };
        let about = "Decisions by where they came from: the store, a denial that it said a while ago, or this process without it";
        page.family(
            "store_decisions",
            about,
            MetricType::Counter,
            |mut metric| {
                for (source, count) in [
                    ("store", shared.by_store),
                    ("remembered", shared.remembered),
                    ("fallback", shared.by_fallback),
                ] {
                    let labels: Labels<'_, 1> = [("source", source)];
                    counter(&mut metric, &labels, count)?;
                }
                Ok(())
            },
        )?;
        page.gauge(
            "store_breaker_open",
            "1 while the circuit breaker is open and Redis is not asked",
            u64::from(shared.breaker_is_open),
        )?;
        let about = "How often the breaker opened";
        page.counter("store_breaker_openings", about, shared.breaker_opened)?;
        let about = "Decisions that Redis did not answer within the deadline";
        page.counter("store_missed_deadlines", about, shared.missed_deadlines)?;
        let about =
            "Share of the last minute's decisions that Redis took, without remembered denials";
        page.family("store_share", about, MetricType::Gauge, |mut metric| {
            // Without decisions there is no sample.
            (shared.store_share()).map_or(Ok(()), |share| metric.encode_gauge(&share))
        })?;
        let about = "Processes that share the limits: configured, counted or assumed";
        page.gauge("store_instances", about, u64::from(shared.instances))?;
        let about = "1 while store_instances is assumed, not counted";
        let is_assumed = u64::from(shared.instances_are_assumed);
        page.gauge("store_instances_assumed", about, is_assumed)?;
        let about = "How long calls to the store took";
        let seconds = Some(&Unit::Seconds);
        page.with_unit(
            "store_call_duration",
            about,
            seconds,
            MetricType::Histogram,
            |metric| histogram(metric, &calls.times_us, 1e6),
        )?;
        let about = "Checks that went to the store in one call";
        page.family("store_batch_size", about, MetricType::Histogram, |metric| {
            histogram(metric, &calls.sizes, 1.0)
        })?;
        page.counter(
            "store_call_failures",
            "Calls to the store that failed",
            calls.failed,
        )
    }

    fn audit(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(trail) = self.decider.trail() else {
            return Ok(());
        };
        let stats = trail.stats();
        for (name, about, count) in [
            ("audit_noted", "Violations that were noted", stats.noted),
            (
                "audit_written",
                "Violations that are in the database",
                stats.written,
            ),
            ("audit_rows", "The rows that they are there", stats.rows),
            (
                "audit_lost",
                "Violations that found no room or could not be written",
                stats.lost,
            ),
            (
                "audit_failures",
                "How often the database could not be written to or swept",
                stats.failures,
            ),
        ] {
            page.counter(name, about, count)?;
        }
        page.gauge("audit_held", "Folds in memory", stats.held as u64)?;
        page.gauge(
            "audit_backlog",
            "Rows that wait to be written",
            stats.backlog as u64,
        )
    }
}

impl Collector for State {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.program(&mut page)?;
        self.decisions(&mut page)?;
        self.clients(&mut page)?;
        self.policies(&mut page)?;
        self.memory(&mut page)?;
        self.store(&mut page)?;
        self.audit(&mut page)
    }
}

/// Where metrics are written to.
pub(crate) struct Page<'a>(pub(crate) DescriptorEncoder<'a>);

impl Page<'_> {
    fn with_unit(
        &mut self,
        name: &str,
        about: &str,
        unit: Option<&Unit>,
        of: MetricType,
        write: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write(self.0.encode_descriptor(name, about, unit, of)?)
    }

    fn family(
        &mut self,
        name: &str,
        about: &str,
        of: MetricType,
        write: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        self.with_unit(name, about, None, of, write)
    }

    pub(crate) fn counter(&mut self, name: &str, about: &str, count: u64) -> fmt::Result {
        self.family(name, about, MetricType::Counter, |mut metric| {
            metric.encode_counter(&count, None::<&Exemplar<NoLabelSet, u64>>)
        })
    }

    fn gauge(&mut self, name: &str, about: &str, value: u64) -> fmt::Result {
        self.family(name, about, MetricType::Gauge, |mut metric| {
            metric.encode_gauge(&value)
        })
    }

    pub(crate) fn gauge_of_seconds(
        &mut self,
        name: &str,
        about: &str,
        value: Duration,
    ) -> fmt::Result {
        let (unit, gauge) = (Some(&Unit::Seconds), MetricType::Gauge);
        self.with_unit(name, about, unit, gauge, |mut metric| {
            metric.encode_gauge(&value.as_secs_f64())
        })
    }
}

fn counter(
    metric: &mut MetricEncoder<'_>,
    labels: &impl EncodeLabelSet,
    count: u64,
) -> fmt::Result {
    let mut one = metric.encode_family(labels)?;
    one.encode_counter(&count, None::<&Exemplar<NoLabelSet, u64>>)
}

/// Of those rules alone of which there is something to say.
fn by_rule<'a>(
    page: &mut Page<'_>,
    name: &str,
    about: &str,
    rules: impl Iterator<Item = (&'static str, &'a RuleCounts)>,
    counted: Counted,
) -> fmt::Result {
    page.family(name, about, MetricType::Counter, |mut metric| {
        for (rule, counts) in rules {
            let count = counts.get(counted);
            if count > 0 {
                let labels: Labels<'_, 1> = [("rule", rule)];
                counter(&mut metric, &labels, count)?;
            }
        }
        Ok(())
    })
}

/// Of whole numbers, of which so many are one.
#[expect(
    clippy::cast_precision_loss,
    reason = "far from where whole numbers end"
)]
fn histogram(mut metric: MetricEncoder<'_>, spread: &Spread, one: f64) -> fmt::Result {
    let bounds = spread.bounds.iter().map(|bound| *bound as f64 / one);
    let bounds = bounds.chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(spread.counts.iter().copied()).collect();
    let count = spread.counts.iter().sum();
    metric.encode_histogram::<NoLabelSet>(spread.sum as f64 / one, count, &buckets, None)
}
