//! Rules and a store that several processes share, and what to do when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::breaker::BreakerConfig;
use super::denials::Denials;
use super::heartbeat::Heartbeat;
use super::inspection::inspect_store;
use super::instances::{Count, Instances};
use super::late::LateRequest;
use super::local::{charges, charges_of};
use super::prober::Prober;
use super::recent::Recent;
use super::reset::{meant, reset_store};
use super::together::{Joint, Together};
use crate::bucket::Bucket;
use crate::decision::{Decision, Source, Tier, TierList};
use crate::limit::Limit;
use crate::request::Request;
use crate::rule::{Met, OnFailure, RuleSet};
use crate::store::{
    Charge, Fit, LateReplies, MemoryStore, Outcome, RedisError, RedisStore, Refund, Store as _,
    StoreCalls, Taken,
};
use crate::usage::{Usage, WhichBucket};

/// How a limiter over a shared store behaves.
#[derive(Clone, Copy, Debug)]
pub struct SharedConfig {
    /// How many processes share the limits: without the store, each enforces its part of them. [Counted](Instances::counted) by default.
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

/// What happened between a limiter and the store that it shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedStats {
    /// Decisions by the store.
    pub by_store: u64,
    /// Denials that were remembered: the store's own, which have not ended yet.
    pub remembered: u64,
    /// Decisions without the store: all that missed their deadline, failed, or came while the breaker was open.
    pub by_fallback: u64,
    /// Of those, the ones for which the store did not reply within the deadline.
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
    /// The share of the last minute's decisions that the store took, from 0 to 1; `None` if there were none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share needs few digits")]
    pub fn store_share(&self) -> Option<f64> {
        let all = self.last_minute_by_store + self.last_minute_by_fallback;
        (all > 0).then(|| self.last_minute_by_store as f64 / all as f64)
    }
}

/// Of a limit, this much is spent without the store, over all instances.
const CAREFUL: (u64, u64) = (8, 10);

/// A denial that may be over in a moment is remembered for so long: next to nothing for who was denied, and ten questions a second of one
/// who goes on and on.
const PASSING: Duration = Duration::from_millis(100);

/// No denial is remembered for longer, so that what another process gave back counts here as well. One question in so long is next to nothing.
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
        }
    }

    pub(super) fn rules(&self) -> &ArcSwap<RuleSet> {
        &self.rules
    }

    pub(super) fn set_rules(&self, rules: Arc<RuleSet>) {
        self.rules.store(rules);
        // After the rules: what is denied under the old ones in between is asked anew.
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

    pub(super) async fn decide(&self, met: &Met<'_>, charging: bool) -> Decision {
        let policies: SmallVec<[OnFailure; 4]> =
            met.rules().iter().map(|rule| rule.policy()).collect();
        let deadline = met.request().own_deadline();
        let decision = (self.visit(&charges(met), &policies, charging, deadline)).await;
        decision.by(met.generation(), met.cost())
    }

    pub(super) async fn check(&self, charge: &Charge<'_>) -> Decision {
        let charges = std::slice::from_ref(charge);
        self.visit(charges, &[OnFailure::Local], true, None).await
    }

    pub(super) async fn refund(&self, request: &Request<'_>, decision: &Decision) {
        let rules = self.rules.load_full();
        self.refund_on(&rules.meet(request), decision).await;
    }

    pub(super) async fn refund_on(&self, met: &Met<'_>, decision: &Decision) {
        self.give_back(&charges_of(met, decision), decision).await;
    }

    /// What was decided without the store is given back to this process's own buckets.
    pub(super) async fn give_back(&self, charges: &[Charge<'_>], decision: &Decision) {
        for charge in charges {
            let mut tiers = decision.tiers().iter();
            let Some(tier) = tiers.find(|tier| tier.rule() == charge.bucket.rule()) else {
                continue;
            };
            if !tier.gives_back() {
                continue;
            }
            let is_local = decision.source() == Source::Local;
            let limit = if is_local {
                self.share(charge.limit)
            } else {
                *charge.limit
            };
            if *tier.limit() != limit {
                continue;
            }
            let refund = Refund {
                bucket: charge.bucket,
                limit: &limit,
                cost: charge.cost,
                charged_at_us: tier.at_us(),
            };
            if is_local {
                self.local.refund_one(&refund);
            } else {
                if self.prober.may_ask(Instant::now()).await
                    && let Err(error) = self.store.refund(&[refund]).await
                {
                    tracing::debug!(%error, "a refund did not reach the store");
                }
                // After the store did: another request may have been denied in between.
                self.denials.forget(&charge.bucket);
            }
        }
    }

    /// What was used, as the store knows it.
    pub(super) async fn inspect(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
    ) -> Result<Vec<Usage>, RedisError> {
        inspect_store(&self.store, rules, request).await
    }

    /// Forgets what was used. What cannot be reached cannot be forgotten: then this is an error.
    pub(super) async fn reset(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
    ) -> Result<Vec<Usage>, RedisError> {
        let met = rules.meet(request);
        let meant = meant(rules, &met);
        let named = || meant.iter().map(|rule| rule.bucket(met.request()));
        for bucket in named() {
            self.local.reset_one(&bucket);
        }
        let done = reset_store(&self.store, rules, &met, &meant).await;
        // After the store did: somebody may have been denied in between.
        let is_other = |usage: &Usage| usage.bucket() != WhichBucket::Asked;
        match &done {
            Ok(usages) if !usages.iter().any(is_other) => {
                named().for_each(|bucket| self.denials.forget(&bucket));
            }
            // Nobody can say which buckets these were.
            _ => self.denials.forget_all(),
        }
        done
    }

    pub(super) async fn reset_bucket(&self, bucket: &Bucket<'_>) -> Result<(), RedisError> {
        self.local.reset_one(bucket);
        let done = self.store.reset(std::slice::from_ref(bucket)).await;
        // After the store did: somebody may have been denied in between.
        self.denials.forget(bucket);
        done
    }

    /// Several requests at once.
    pub(super) async fn take_together(&self, together: &Together<'_, '_>) -> Joint {
        let (charges, sent) = (&together.charges, Instant::now());
        if let Some((denied, whole)) = self.recall(charges, sent) {
            return together.remembered(denied, whole);
        }
        let deadline = together.deadline();
        let whole = (self.ask(charges, &together.policies(), true, sent, deadline)).await;
        together.decided(whole)
    }

    /// Looks at several requests at once. What was denied a moment ago does not matter.
    pub(super) async fn peek_together(&self, together: &Together<'_, '_>) -> Joint {
        let (policies, deadline) = (together.policies(), together.deadline());
        let charges = &together.charges;
        let whole = (self.ask(charges, &policies, false, Instant::now(), deadline)).await;
        together.decided(whole)
    }

    async fn visit(
        &self,
        charges: &[Charge<'_>],
        policies: &[OnFailure],
        charging: bool,
        deadline: Option<Duration>,
    ) -> Decision {
        let sent = Instant::now();
        if charging && let Some((_, decision)) = self.recall(charges, sent) {
            return decision;
        }
        self.ask(charges, policies, charging, sent, deadline).await
    }

    /// What was denied to one of these charges a while ago and still is: which, and the decision.
    fn recall(&self, charges: &[Charge<'_>], now: Instant) -> Option<(usize, Decision)> {
        let (denied, outcome) = self.denials.recall(charges, now)?;
        self.remembered.fetch_add(1, Ordering::Relaxed);
        let tiers = TierList::of(std::iter::once(Tier::new(&charges[denied], outcome)));
        let decision = Decision::of_many(tiers, false, outcome.at_us, Source::Remembered);
        Some((denied, decision))
    }

    async fn ask(
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

    /// Without the store: each rule by its policy.
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

    /// This process's careful part of a limit.
    fn share(&self, limit: &Limit) -> Limit {
        limit.share(CAREFUL.0, CAREFUL.1 * u64::from(self.instances.now()))
    }
}

/// A charge as it is when the store cannot be asked. What is open or closed is looked at, and not charged.
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

/// When to come back if a rule lets nothing pass: the store may be back any moment.
const CLOSED_WAIT_US: u64 = 1_000_000;

fn decision(charges: &[Charge<'_>], taken: &Taken) -> Decision {
    let tiers =
        (charges.iter().zip(&taken.outcomes)).map(|(charge, outcome)| Tier::new(charge, *outcome));
    let tiers = TierList::of(tiers);
    Decision::of_many(tiers, taken.admitted, taken.at_us, Source::Store)
}
