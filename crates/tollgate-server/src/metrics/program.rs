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
        let of_rules = |counted| {
            let samples =
                rules().map(move |(rule, counts)| ([("rule", rule)], counts.get(counted)));
            samples.filter(|(_, count)| *count > 0)
        };
        let help = "Requests that a rule in shadow mode would have denied";
        encoder.counters("shadow_denials", help, of_rules(Counted::Shadow))?;
        let help = "Requests that were queued and rejected because they could not wait so long";
        encoder.counters("queue_too_late", help, of_rules(Counted::TooLate))?;
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
        let help = "Refused generations of rules";
        encoder.counter("rules_refused", help, live.refused)?;
        let help = "Failures to read the configuration or the rules in the database";
        encoder.counter("rules_read_failures", help, live.failures)?;
        let help = "Polls for changes in the database";
        encoder.counter("database_looks", help, watch.polls)?;
        let help = "Changes found in the database";
        encoder.counter("database_changes", help, watch.changes)?;
        let help = "Failed polls of the database";
        encoder.counter("database_look_failures", help, watch.failures)?;
        let help = "How often the connection for notifications was lost";
        encoder.counter("database_listener_losses", help, watch.disconnects)
    }

    fn memory(&self, encoder: &mut MetricsEncoder<'_>) -> fmt::Result {
        let Some(memory) = self.decider.limiter().memory_stats() else {
            return Ok(());
        };
        encoder.gauge("memory_keys", "Keys in memory", memory.keys as u64)?;
        let help = "Keys in memory that have not expired";
        encoder.gauge("memory_live_keys", help, memory.live_keys as u64)?;
        let help = "Entries of sliding logs";
        encoder.gauge("memory_log_entries", help, memory.log_entries as u64)?;
        let help = "Slots in memory, 24 bytes each";
        encoder.gauge("memory_slots", help, memory.slots as u64)?;
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
        let help = "1 while the circuit breaker is open and Redis is not called";
        encoder.gauge("store_breaker_open", help, shared.breaker_is_open.into())?;
        let help = "How often the circuit breaker opened";
        encoder.counter("store_breaker_openings", help, shared.breaker_opened)?;
        let help = "Decisions that Redis did not make within the deadline";
        encoder.counter("store_missed_deadlines", help, shared.missed_deadlines)?;
        let help =
            "Stalls of this process while a check waited for Redis, which got the lost time back";
        encoder.counter("store_stalls", help, shared.stalls)?;
        let help = "Processes that share the limits: configured, counted or assumed";
        encoder.gauge("store_instances", help, shared.instances.into())?;
        let help = "1 while store_instances is assumed, not counted";
        let is_assumed = shared.instances_are_assumed.into();
        encoder.gauge("store_instances_assumed", help, is_assumed)?;
        let help = "Failed calls to the store";
        encoder.counter("store_call_failures", help, calls.failed)?;
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
        encoder.counter("audit_noted", "Recorded violations", stats.recorded)?;
        let help = "Violations in the database";
        encoder.counter("audit_written", help, stats.written)?;
        let help = "Rows in the database, each of one or more violations";
        encoder.counter("audit_rows", help, stats.rows)?;
        encoder.counter("audit_lost", "Violations that were lost", stats.lost)?;
        let help = "Failures to write to the database or to remove old rows";
        encoder.counter("audit_failures", help, stats.failures)?;
        let help = "Folds of violations in memory";
        encoder.gauge("audit_held", help, stats.held as u64)?;
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
