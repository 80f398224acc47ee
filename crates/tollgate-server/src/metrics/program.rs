//! The metrics of decisions, rules, stores and the audit trail, collected when they are read.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Unit;
use tollgate::Rule;

use super::MetricsEncoder;
use crate::counters::{Counted, OTHER, OUTCOMES};
use crate::decider::Decider;

/// Maximum number of clients in the metrics.
const MAX_CLIENTS: usize = 10;

#[derive(Debug)]
pub(super) struct ProgramMetrics {
    decider: Decider,
    started: SystemTime,
}

impl ProgramMetrics {
    pub(super) fn new(decider: Decider) -> Self {
        let started = SystemTime::now();
        Self { decider, started }
    }

    fn decisions(&self, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
        let decisions = self.decider.decisions();
        let policy = self.decider.policy();
        decisions.register(policy.rules().rules().map(Rule::id));
        let known = decisions.all();
        let rules = || {
            let known = known.iter().map(|(rule, counts)| (*rule, &**counts));
            known.chain(decisions.others())
        };
        let outcomes = rules().flat_map(|(rule, counts)| {
            OUTCOMES.into_iter().filter_map(move |(outcome, name)| {
                let count = counts.get(outcome);
                // Known rules have these from the start.
                let is_usual = matches!(outcome, Counted::Allowed | Counted::Denied)
                    && !matches!(rule, "" | OTHER);
                (count > 0 || is_usual).then_some(([("rule", rule), ("outcome", name)], count))
            })
        });
        let help = "Decisions by the rule that bound them, and by outcome";
        encoder.counters("decisions", help, outcomes)?;
        for (name, help, counted) in [
            (
                "shadow_denials",
                "Requests that a rule in shadow mode would have denied",
                Counted::Shadow,
            ),
            (
                "queue_too_late",
                "Requests that were queued and rejected because they could not wait so long",
                Counted::TooLate,
            ),
        ] {
            let samples = rules().map(|(rule, counts)| ([("rule", rule)], counts.get(counted)));
            encoder.counters(name, help, samples.filter(|(_, count)| *count > 0))?;
        }
        let top = self.decider.top_denied().report(MAX_CLIENTS);
        let clients = (top.clients.iter()).map(|denied| {
            let labels = [("rule", denied.rule), ("client", denied.client.as_str())];
            (labels, denied.denied)
        });
        let help = "Denials of the ten clients denied most often in the last one or two minutes";
        encoder.gauges("top_denied_clients", help, clients)
    }

    fn rules(&self, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
        let live = self.decider.live().stats();
        let (rules, watch) = (self.decider.policy().rules().rules().count(), live.watch);
        encoder.gauge("rules", "Rules in force", rules as u64)?;
        let help = "Generation of the rules in force";
        encoder.gauge("rules_generation", help, live.generation)?;
        let help = "1 while the rules are from the cache, because the database is unavailable";
        encoder.gauge("rules_from_cache", help, live.from_cache.into())?;
        for (name, help, count) in [
            (
                "rules_refused",
                "Refused generations of rules",
                live.refused,
            ),
            (
                "rules_read_failures",
                "Failures to read the configuration or the rules in the database",
                live.failures,
            ),
            (
                "database_looks",
                "Polls for changes in the database",
                watch.polls,
            ),
            (
                "database_changes",
                "Changes found in the database",
                watch.changes,
            ),
            (
                "database_look_failures",
                "Failed polls of the database",
                watch.failures,
            ),
            (
                "database_listener_losses",
                "How often the connection for notifications was lost",
                watch.disconnects,
            ),
        ] {
            encoder.counter(name, help, count)?;
        }
        Ok(())
    }

    fn memory(&self, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
        let Some(memory) = self.decider.limiter().stats() else {
            return Ok(());
        };
        for (name, help, value) in [
            ("memory_keys", "Keys in memory", memory.keys),
            (
                "memory_live_keys",
                "Keys in memory that have not expired",
                memory.live_keys,
            ),
            (
                "memory_log_entries",
                "Entries of sliding logs",
                memory.log_entries,
            ),
            (
                "memory_slots",
                "Slots in memory, 24 bytes each",
                memory.slots,
            ),
        ] {
            encoder.gauge(name, help, value as u64)?;
        }
        let help = "How often a key had to share a bucket because memory was full";
        encoder.counter("memory_shared_keys", help, memory.shared)?;
        let help = "Keys that used at most half of their limit and were evicted for new ones";
        encoder.counter("memory_evicted_keys", help, memory.evicted)
    }

    fn store(&self, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
        let limiter = self.decider.limiter();
        let (Some(shared), Some(calls)) = (limiter.shared_stats(), limiter.store_calls()) else {
            return Ok(());
        };
        let sources = [
            ("store", shared.by_store),
            ("remembered", shared.remembered),
            ("fallback", shared.by_fallback),
        ];
        let sources = sources.map(|(source, count)| ([("source", source)], count));
        let help = "Decisions by source: the store, a remembered denial, or this process without the store";
        encoder.counters("store_decisions", help, sources)?;
        let help =
            "Share of the last minute's decisions that Redis made, without remembered denials";
        encoder.ratio("store_share", help, shared.store_share())?;
        for (name, help, value) in [
            (
                "store_breaker_open",
                "1 while the circuit breaker is open and Redis is not called",
                shared.breaker_is_open.into(),
            ),
            (
                "store_instances",
                "Processes that share the limits: configured, counted or assumed",
                u64::from(shared.instances),
            ),
            (
                "store_instances_assumed",
                "1 while store_instances is assumed, not counted",
                shared.instances_are_assumed.into(),
            ),
        ] {
            encoder.gauge(name, help, value)?;
        }
        for (name, help, count) in [
            (
                "store_breaker_openings",
                "How often the circuit breaker opened",
                shared.breaker_opened,
            ),
            (
                "store_missed_deadlines",
                "Decisions that Redis did not make within the deadline",
                shared.missed_deadlines,
            ),
            (
                "store_call_failures",
                "Failed calls to the store",
                calls.failed,
            ),
        ] {
            encoder.counter(name, help, count)?;
        }
        let (name, help) = ("store_call_duration", "Duration of calls to the store");
        encoder.histogram(name, help, Some(&Unit::Seconds), &calls.times_us, 1e6)?;
        let (name, help) = ("store_batch_size", "Checks per call to the store");
        encoder.histogram(name, help, None, &calls.sizes, 1.0)
    }

    fn audit(&self, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
        let Some(trail) = self.decider.trail() else {
            return Ok(());
        };
        let stats = trail.stats();
        for (name, help, count) in [
            ("audit_noted", "Recorded violations", stats.recorded),
            ("audit_written", "Violations in the database", stats.written),
            (
                "audit_rows",
                "Rows in the database, each of one or more violations",
                stats.rows,
            ),
            ("audit_lost", "Violations that were lost", stats.lost),
            (
                "audit_failures",
                "Failures to write to the database or to remove old rows",
                stats.failures,
            ),
        ] {
            encoder.counter(name, help, count)?;
        }
        encoder.gauge(
            "audit_held",
            "Folds of violations in memory",
            stats.held as u64,
        )?;
        let help = "Rows that wait to be written";
        encoder.gauge("audit_backlog", help, stats.backlog as u64)
    }
}

impl Collector for ProgramMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut MetricsEncoder(encoder);
        let version = ("version", env!("CARGO_PKG_VERSION"));
        encoder.info("build", "Version of the program", version)?;
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        let help = "Start of the program, in seconds since 1970";
        encoder.seconds("start_time", help, since)?;
        self.decisions(encoder)?;
        self.rules(encoder)?;
        self.memory(encoder)?;
        self.store(encoder)?;
        self.audit(encoder)
    }
}
