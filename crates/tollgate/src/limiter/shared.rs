//! Rules and a store that several processes share, and what to do when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use smallvec::SmallVec;
use tokio::task::JoinHandle;

use super::breaker::BreakerConfig;
use super::charge_target::{Buckets, ChargeTarget, key_charge};
use super::denials::Denials;
use super::heartbeat::Heartbeat;
use super::inspection::inspect_store;
use super::instances::{Count, Instances};
use super::joint::{JointDecision, JointTarget};
use super::late::LateRequest;
use super::prober::Prober;
use super::recent::Recent;
use super::reset::{reset_rules, reset_store, reset_stored_key};
use crate::decision::{Decision, Source, Tier, TierList};
use crate::limit::Limit;
use crate::rule::{MatchedView, OnFailure, RuleSet};
use crate::store::{
    Charge, Fit, LateReplies, MemoryStore, Outcome, RedisError, RedisStore, Refund, StoreCalls,
    Taken,
};
use crate::usage::{BucketKind, Usage};
#[cfg(feature = "metrics")]
use {super::counters::DecisionCounters, std::sync::OnceLock};

/// How a limiter over a shared store behaves.
///
/// ```
/// use tollgate::store::{RedisConfig, RedisStore};
/// use tollgate::{BreakerConfig, Instances, Limiter, SharedConfig};
///
/// let config = SharedConfig::default()
///     .instances(Instances::Fixed(4))
///     .breaker(BreakerConfig::default().failures(3))
///     .remembered_denials(10_000);
/// let store = RedisStore::open("redis://127.0.0.1:6379", RedisConfig::default())?;
/// let limiter = Limiter::builder(store).shared(config).build();
/// # let _ = limiter;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "a configuration does nothing until a limiter has it"]
#[non_exhaustive]
pub struct SharedConfig {
    /// How many processes share the limits: without the store, each enforces its share. [Counted](Instances::counted) by default.
    pub instances: Instances,
    /// When a store that fails is no longer asked.
    pub breaker: BreakerConfig,
    /// Maximum number of denials to remember; 100,000 by default, 0 remembers none.
    pub remembered_denials: usize,
}

impl Default for SharedConfig {
    fn default() -> Self {
        Self {
            instances: Instances::default(),
            breaker: BreakerConfig::default(),
            remembered_denials: 100_000,
        }
    }
}

impl SharedConfig {
    /// Sets [`instances`](Self::instances).
    pub fn instances(mut self, instances: Instances) -> Self {
        self.instances = instances;
        self
    }

    /// Sets [`breaker`](Self::breaker).
    pub fn breaker(mut self, breaker: BreakerConfig) -> Self {
        self.breaker = breaker;
        self
    }

    /// Sets [`remembered_denials`](Self::remembered_denials).
    pub fn remembered_denials(mut self, denials: usize) -> Self {
        self.remembered_denials = denials;
        self
    }
}

/// What happened between a limiter and its shared store: see [`Limiter::shared_stats`](crate::Limiter::shared_stats).
///
/// ```
/// use tollgate::Limiter;
///
/// assert!(Limiter::in_memory().shared_stats().is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedStats {
    /// Decisions by the store.
    pub by_store: u64,
    /// Decisions by a remembered denial: the store's own, which has not ended yet.
    pub remembered: u64,
    /// Decisions without the store: all that missed their deadline, failed, or came while the breaker was open.
    pub by_fallback: u64,
    /// The decisions without the store for which it did not reply within the deadline.
    pub missed_deadlines: u64,
    /// Decisions in the last minute by the store. Remembered denials are left out: they would hide that others miss their deadline.
    pub last_minute_by_store: u64,
    /// Decisions in the last minute without the store.
    pub last_minute_by_fallback: u64,
    /// How many times the breaker opened.
    pub breaker_opened: u64,
    /// Whether it is open now.
    pub breaker_is_open: bool,
    /// How many processes share the limits: configured, counted or assumed.
    pub instances: u32,
    /// Whether that number is only assumed, because the processes have not been counted yet.
    pub instances_are_assumed: bool,
    /// How often this process was stalled while a check waited, so that its timer fired late.
    pub stalls: u64,
    /// The longest of those stalls.
    pub longest_stall: Duration,
}

impl SharedStats {
    /// The share of the last minute's decisions that the store made, from 0 to 1; `None` if there were none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
    pub fn store_share(&self) -> Option<f64> {
        let all = self.last_minute_by_store + self.last_minute_by_fallback;
        (all > 0).then(|| self.last_minute_by_store as f64 / all as f64)
    }
}

/// The part of a limit that all instances together enforce without the store.
const FALLBACK_SHARE: (u64, u64) = (8, 10);

/// How long a denial is remembered that may end in a moment: next to nothing for the client that was denied, and ten calls a second for
/// one that keeps asking.
const PASSING: Duration = Duration::from_millis(100);

/// The longest time for which a denial is remembered, so that what another process gives back counts here as well. One call in this time
/// is next to nothing.
const LONGEST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct SharedLimiter {
    store: RedisStore,
    rules: ArcSwap<RuleSet>,
    instances: Arc<Count>,
    /// If they are counted.
    heartbeat: Option<Heartbeat>,
    prober: Arc<Prober>,
    denials: Arc<Denials>,
    /// This process's own buckets, for decisions without the store.
    local: MemoryStore,
    by_store: AtomicU64,
    remembered: AtomicU64,
    by_fallback: AtomicU64,
    missed_deadlines: AtomicU64,
    recent: Recent,
    /// Once metrics are registered.
    #[cfg(feature = "metrics")]
    counters: OnceLock<Box<DecisionCounters>>,
}

impl SharedLimiter {
    pub(super) fn new(store: RedisStore, config: SharedConfig) -> Self {
        let instances = Arc::new(Count::new(config.instances));
        let heartbeat = match config.instances {
            Instances::Fixed(_) => None,
            Instances::Counted { every, .. } => {
                let heartbeat = Heartbeat::new(store.clone(), Arc::clone(&instances), every);
                heartbeat.start();
                Some(heartbeat)
            }
        };
        let longest = match store.denies_in_passing() {
            true => PASSING,
            false => LONGEST,
        };
        Self {
            prober: Prober::new(store.clone(), Arc::clone(&instances), config.breaker),
            store,
            rules: ArcSwap::default(),
            instances,
            heartbeat,
            denials: Arc::new(Denials::new(config.remembered_denials, longest)),
            local: MemoryStore::new(),
            by_store: AtomicU64::new(0),
            remembered: AtomicU64::new(0),
            by_fallback: AtomicU64::new(0),
            missed_deadlines: AtomicU64::new(0),
            recent: Recent::new(Instant::now()),
            #[cfg(feature = "metrics")]
            counters: OnceLock::new(),
        }
    }

    pub(super) fn rules(&self) -> &ArcSwap<RuleSet> {
        &self.rules
    }

    pub(super) fn set_rules(&self, rules: Arc<RuleSet>) {
        self.rules.store(rules);
        // After the rules: what the old ones deny in between is asked again.
        self.denials.forget_all();
    }

    pub(super) fn stats(&self) -> SharedStats {
        let breaker = self.prober.breaker();
        let (last_minute_by_store, last_minute_by_fallback) = self.recent.totals(Instant::now());
        let (stalls, longest_stall) = self.store.stalls();
        SharedStats {
            by_store: self.by_store.load(Ordering::Relaxed),
            remembered: self.remembered.load(Ordering::Relaxed),
            by_fallback: self.by_fallback.load(Ordering::Relaxed),
            missed_deadlines: self.missed_deadlines.load(Ordering::Relaxed),
            last_minute_by_store,
            last_minute_by_fallback,
            breaker_opened: breaker.openings(),
            breaker_is_open: breaker.is_open(),
            instances: self.instances.now(),
            instances_are_assumed: self.instances.is_assumed(),
            stalls,
            longest_stall,
        }
    }

    pub(super) fn calls(&self) -> StoreCalls {
        self.store.calls()
    }

    pub(super) async fn decide(&self, target: &ChargeTarget<'_>, charging: bool) -> Decision {
        let (charges, policies) = (target.charges(), target.policies());
        let (sent, deadline) = (Instant::now(), target.deadline());
        let recalled = charging.then(|| self.recall(&charges, sent)).flatten();
        let decision = match recalled {
            Some((_, remembered)) => remembered,
            None => (self.ask(&charges, &policies, charging, sent, deadline)).await,
        };
        let decision = decision.by(target.generation(), target.cost());
        if charging {
            self.count(&decision);
        }
        decision
    }

    /// Counts a decision, if metrics are registered.
    pub(super) fn count(&self, decision: &Decision) {
        #[cfg(feature = "metrics")]
        if let Some(counters) = self.counters.get() {
            counters.count(decision);
        }
        #[cfg(not(feature = "metrics"))]
        let _ = decision;
    }

    /// The counters, which count from now on.
    #[cfg(feature = "metrics")]
    pub(super) fn counters(&self) -> &DecisionCounters {
        self.counters
            .get_or_init(|| Box::new(DecisionCounters::new()))
    }

    /// Gives back what was charged. What was decided without the store is given back to this process's own buckets.
    pub(super) async fn refund(&self, charges: &[Charge<'_>], decision: &Decision) {
        let pairs = charges.iter().map(|charge| (charge, decision));
        self.refund_all(pairs).await;
    }

    /// Gives back charges, each as the decision beside it says. The calls to the store are made side by side, each by a task of its
    /// own: they take as long as one, and are made even if this future is dropped.
    pub(super) async fn refund_all<'a: 'c, 'c>(
        &self,
        pairs: impl Iterator<Item = (&'c Charge<'a>, &'c Decision)>,
    ) {
        let begin = |(charge, decision)| self.begin_refund(charge, decision);
        let tasks: SmallVec<[JoinHandle<()>; 4]> = pairs.filter_map(begin).collect();
        for task in tasks {
            // A panic has been reported by the task.
            let _ = task.await;
        }
    }

    /// Gives back one charge. Returns the task that calls the store, if the store made the decision.
    fn begin_refund(&self, charge: &Charge<'_>, decision: &Decision) -> Option<JoinHandle<()>> {
        let mut tiers = decision.tiers().iter();
        let tier = tiers.find(|tier| tier.rule() == charge.bucket.rule())?;
        let is_local = decision.source() == Source::Local;
        let limit = if is_local {
            self.share(charge.limit)
        } else {
            *charge.limit
        };
        if !tier.gives_back() || *tier.limit() != limit {
            return None;
        }
        let (cost, charged_at_us) = (charge.cost, tier.at_us());
        if is_local {
            self.local.refund_one(&Refund {
                bucket: charge.bucket,
                limit: &limit,
                cost,
                charged_at_us,
            });
            return None;
        }
        let (store, prober) = (self.store.clone(), Arc::clone(&self.prober));
        let (address, denials) = (store.address(&charge.bucket), Arc::clone(&self.denials));
        let denial_key = denials.key(&charge.bucket);
        Some(tokio::spawn(async move {
            if prober.may_ask(Instant::now()).await
                && let Err(error) = store.refund_at(address, &limit, cost, charged_at_us).await
            {
                tracing::debug!(%error, "a refund did not reach the store");
            }
            // After the store did it: another request may have been denied in between.
            denials.forget_key(denial_key);
        }))
    }

    pub(super) async fn inspect(
        &self,
        target: &ChargeTarget<'_>,
    ) -> Result<Vec<Usage>, RedisError> {
        inspect_store(&self.store, target).await
    }

    pub(super) async fn reset(&self, target: &ChargeTarget<'_>) -> Result<Vec<Usage>, RedisError> {
        match target.buckets() {
            Buckets::Matched(view) => self.reset_request(&view).await,
            Buckets::Key { key, limit } => {
                let charge = key_charge(key, limit, 0);
                self.local.reset_one(&charge.bucket);
                let done = reset_stored_key(&self.store, charge).await;
                // After the store did it: another request may have been denied in between.
                self.denials.forget(&charge.bucket);
                done
            }
        }
    }

    async fn reset_request(&self, view: &MatchedView<'_>) -> Result<Vec<Usage>, RedisError> {
        let rules = reset_rules(view);
        let buckets = || rules.iter().map(|rule| rule.bucket(view.request));
        for bucket in buckets() {
            self.local.reset_one(&bucket);
        }
        let done = reset_store(&self.store, view, &rules).await;
        // After the store did it: another request may have been denied in between.
        let is_other = |usage: &Usage| usage.bucket() != BucketKind::Matched;
        match &done {
            Ok(usages) if !usages.iter().any(is_other) => {
                buckets().for_each(|bucket| self.denials.forget(&bucket));
            }
            // It is not known which buckets these were.
            _ => self.denials.forget_all(),
        }
        done
    }

    pub(super) async fn decide_jointly(&self, target: &JointTarget<'_>) -> JointDecision {
        let (charges, sent) = (&target.charges, Instant::now());
        let joint = match self.recall(charges, sent) {
            Some((denied, whole)) => target.remembered(denied, whole),
            None => {
                let (policies, deadline) = (target.policies(), target.deadline());
                let whole = self.ask(charges, &policies, true, sent, deadline);
                target.decided(whole.await)
            }
        };
        joint.each.iter().for_each(|decision| self.count(decision));
        joint
    }

    /// Looks at several requests at once. Remembered denials do not matter.
    pub(super) async fn peek_jointly(&self, target: &JointTarget<'_>) -> JointDecision {
        let (policies, deadline) = (target.policies(), target.deadline());
        let charges = &target.charges;
        let whole = (self.ask(charges, &policies, false, Instant::now(), deadline)).await;
        target.decided(whole)
    }

    /// A denial of one of these charges that still holds: which, and the decision.
    fn recall(&self, charges: &[Charge<'_>], now: Instant) -> Option<(usize, Decision)> {
        let (denied, outcome) = self.denials.recall(charges, now)?;
        self.remembered.fetch_add(1, Ordering::Relaxed);
        let tiers = TierList::of(std::iter::once(Tier::new(&charges[denied], outcome)));
        let decision = Decision::of_many(tiers, false, outcome.at_us, Source::Remembered);
        Some((denied, decision))
    }

    pub(super) async fn ask(
        &self,
        charges: &[Charge<'_>],
        policies: &[OnFailure],
        charging: bool,
        sent: Instant,
        deadline: Option<Duration>,
    ) -> Decision {
        if charges.is_empty() {
            // No rule applies, so no store is needed.
            let (admitted, at_us) = self.local.visit_all(&[], &mut Vec::<Tier>::new(), false);
            let tiers = TierList::of(std::iter::empty());
            return Decision::of_many(tiers, admitted, at_us, Source::Store)
                .stepped(self.local.clock_step_s());
        }
        if let Some(heartbeat) = &self.heartbeat {
            // There may have been no runtime when this limiter was made.
            heartbeat.start();
        }
        let (mut late, mut is_too_late) = (LateReplies::new(), false);
        if self.prober.may_ask(sent).await {
            let deadline =
                deadline.map_or(self.store.deadline(), |own| own.min(self.store.deadline()));
            match self.store.take_within(charges, charging, deadline).await {
                Ok(taken) => {
                    self.by_store.fetch_add(1, Ordering::Relaxed);
                    self.recent.count(sent, true);
                    if charging {
                        self.denials.note(charges, &taken, sent);
                    }
                    return decision(charges, &taken);
                }
                Err(undecided) => {
                    is_too_late = undecided.is_too_late();
                    late = undecided.late;
                }
            }
        }
        self.by_fallback.fetch_add(1, Ordering::Relaxed);
        self.recent.count(sent, false);
        let decision = self.fall_back(charges, policies, charging);
        self.missed_deadlines
            .fetch_add(u64::from(is_too_late), Ordering::Relaxed);
        if charging && !late.is_empty() {
            let state = (&self.store, &*self.denials);
            let late = LateRequest::new(late, charges, &decision, sent, state);
            tokio::spawn(late.settle(self.store.clone(), Arc::clone(&self.denials)));
        }
        decision
    }

    /// Decides without the store, each rule by its policy.
    fn fall_back(
        &self,
        charges: &[Charge<'_>],
        policies: &[OnFailure],
        charging: bool,
    ) -> Decision {
        let is_closed = |(charge, policy): (&Charge<'_>, &OnFailure)| {
            *policy == OnFailure::Closed && !charge.shadow && charge.cost > 0
        };
        let closes = charges.iter().zip(policies).any(is_closed);
        let limits: Vec<Limit> = charges
            .iter()
            .map(|charge| self.share(charge.limit))
            .collect();
        let shares: Vec<Charge<'_>> = (charges.iter().zip(&limits).zip(policies))
            .map(|((charge, limit), policy)| without_store(charge, limit, *policy))
            .collect();
        let mut tiers =
            TierList::of((shares.iter()).map(|charge| Tier::new(charge, Outcome::NONE)));
        let (mut admitted, at_us) =
            (self.local).visit_all(&shares, tiers.as_mut_slice(), charging && !closes);
        if closes {
            admitted = false;
            for (tier, pair) in (tiers.as_mut_slice().iter_mut()).zip(charges.iter().zip(policies))
            {
                if is_closed(pair) {
                    tier.as_mut().fit = Fit::Later {
                        ready_at_us: at_us + CLOSED_WAIT_US,
                    };
                }
            }
        }
        let source = if closes {
            Source::Closed
        } else {
            Source::Local
        };
        Decision::of_many(tiers, admitted, at_us, source).stepped(self.local.clock_step_s())
    }

    /// This process's share of a limit.
    fn share(&self, limit: &Limit) -> Limit {
        let (part, whole) = FALLBACK_SHARE;
        limit.share(part, whole * u64::from(self.instances.now()))
    }
}

/// A charge as it is without the store. The buckets of rules that are open or closed are looked at, and not charged.
fn without_store<'a>(charge: &Charge<'a>, limit: &'a Limit, policy: OnFailure) -> Charge<'a> {
    Charge {
        limit,
        cost: match policy {
            OnFailure::Local => charge.cost,
            OnFailure::Open | OnFailure::Closed => 0,
        },
        ..*charge
    }
}

/// When to come back after a rule denied everything: the store may be back at any moment.
const CLOSED_WAIT_US: u64 = 1_000_000;

fn decision(charges: &[Charge<'_>], taken: &Taken) -> Decision {
    let tiers =
        (charges.iter().zip(&taken.outcomes)).map(|(charge, outcome)| Tier::new(charge, *outcome));
    let tiers = TierList::of(tiers);
    Decision::of_many(tiers, taken.admitted, taken.at_us, Source::Store)
}
