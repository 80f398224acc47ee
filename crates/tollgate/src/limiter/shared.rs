//! Rules and a store that several processes share, and what to do when it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use super::breaker::{Breaker, BreakerConfig, Change};
use super::denials::Denials;
use super::heartbeat::Heartbeat;
use super::inspection::inspect_store;
use super::instances::{Count, Instances};
use super::local::{charges, charges_of};
use super::reset::{meant, reset_store};
use super::together::{Joint, Together};
use crate::bucket::Bucket;
use crate::decision::{Decision, Source, Tier, TierList};
use crate::limit::Limit;
use crate::request::Request;
use crate::rule::{Met, OnFailure, RuleSet};
use crate::store::{
    Charge, Fit, MemoryStore, Outcome, RedisError, RedisStore, Refund, Store as _, StoreCalls,
    Taken,
};
use crate::usage::{Usage, WhichBucket};

/// How a limiter over a shared store behaves.
#[derive(Clone, Copy, Debug)]
pub struct SharedConfig {
    /// How many processes share the limits: each goes on with a part of them while the store fails. One by default.
    pub instances: Instances,
    /// When to stop asking.
    pub breaker: BreakerConfig,
    /// How many denials to remember at the most; 100,000 by default, 0 remembers none.
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

/// What happened to a limiter over a shared store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedStats {
    /// Decisions by the store.
    pub by_store: u64,
    /// Denials that were remembered.
    pub remembered: u64,
    /// Decisions without the store.
    pub by_fallback: u64,
    /// How many times the breaker opened.
    pub breaker_opened: u64,
    /// Whether it is open now.
    pub breaker_is_open: bool,
    /// How many processes share the limits, as this one takes it: what was said, or counted.
    pub instances: u32,
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
    breaker: Breaker,
    denials: Denials,
    /// Where it goes on while the store fails.
    local: MemoryStore,
    by_store: AtomicU64,
    remembered: AtomicU64,
    by_fallback: AtomicU64,
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
            store,
            rules: ArcSwap::default(),
            instances,
            heartbeat,
            breaker: Breaker::new(config.breaker),
            denials: Denials::new(config.remembered_denials, longest),
            local: MemoryStore::new(),
            by_store: AtomicU64::new(0),
            remembered: AtomicU64::new(0),
            by_fallback: AtomicU64::new(0),
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
        SharedStats {
            by_store: self.by_store.load(Ordering::Relaxed),
            remembered: self.remembered.load(Ordering::Relaxed),
            by_fallback: self.by_fallback.load(Ordering::Relaxed),
            breaker_opened: self.breaker.opened(),
            breaker_is_open: self.breaker.is_open(),
            instances: self.instances.now(),
        }
    }

    pub(super) fn calls(&self) -> StoreCalls {
        self.store.calls()
    }

    pub(super) async fn decide(&self, met: &Met<'_>, charging: bool) -> Decision {
        let policies: SmallVec<[OnFailure; 4]> =
            met.rules().iter().map(|rule| rule.policy()).collect();
        let decision = self.visit(&charges(met), &policies, charging).await;
        decision.by(met.generation(), met.cost())
    }

    /// Without the store, if it need not be asked.
    pub(super) fn decide_at_once(&self, met: &Met<'_>) -> Option<Decision> {
        let (_, decision) = self.recall(&charges(met), Instant::now())?;
        Some(decision.by(met.generation(), met.cost()))
    }

    pub(super) async fn check(&self, charge: &Charge<'_>) -> Decision {
        let charges = std::slice::from_ref(charge);
        self.visit(charges, &[OnFailure::Local], true).await
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
                if let Some(asking) = self.may_ask(Instant::now()) {
                    let refunded = self.store.refund(&[refund]).await;
                    asking.hear(&refunded);
                }
                // After the store did: somebody may have been denied in between.
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
        let whole = self.ask(charges, &together.policies(), true, sent).await;
        together.decided(whole)
    }

    async fn visit(
        &self,
        charges: &[Charge<'_>],
        policies: &[OnFailure],
        charging: bool,
    ) -> Decision {
        let sent = Instant::now();
        if charging && let Some((_, decision)) = self.recall(charges, sent) {
            return decision;
        }
        self.ask(charges, policies, charging, sent).await
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
    ) -> Decision {
        if charges.is_empty() {
            // Nothing to ask, and nobody to wait for.
            let (admitted, at_us) = self.local.visit_all(&[], &mut Vec::<Tier>::new(), false);
            let tiers = TierList::of(std::iter::empty());
            return Decision::of_many(tiers, admitted, at_us, Source::Store);
        }
        if let Some(heartbeat) = &self.heartbeat {
            // There may have been no runtime when this limiter was made.
            heartbeat.start();
        }
        if let Some(asking) = self.may_ask(sent) {
            let answer = match charging {
                true => self.store.take(charges).await,
                false => self.store.peek(charges).await,
            };
            asking.hear(&answer);
            if let Ok(taken) = answer {
                self.by_store.fetch_add(1, Ordering::Relaxed);
                if charging {
                    self.denials.note(charges, &taken, sent);
                }
                return decision(charges, &taken);
            }
        }
        self.by_fallback.fetch_add(1, Ordering::Relaxed);
        self.fall_back(charges, policies, charging)
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
        Decision::of_many(tiers, admitted, at_us, source)
    }

    /// This process's careful part of a limit.
    fn share(&self, limit: &Limit) -> Limit {
        limit.share(CAREFUL.0, CAREFUL.1 * u64::from(self.instances.now()))
    }

    /// If the breaker lets this request ask.
    fn may_ask(&self, now: Instant) -> Option<Asking<'_>> {
        (self.breaker.may_ask(now)).then_some(Asking(&self.breaker))
    }
}

/// One who asks the store. Dropped without a word if the caller has gone, which says nothing about the store.
struct Asking<'a>(&'a Breaker);

impl Asking<'_> {
    /// Tells the breaker, and the log what changed.
    fn hear<T>(self, answer: &Result<T, RedisError>) {
        let change = match answer {
            Ok(_) => self.0.succeeded(),
            // A slot is on the move: the store is well, and so are all other slots.
            Err(error) if error.is_of_several_keys() => return,
            Err(_) => self.0.failed(Instant::now()),
        };
        // Everything is said.
        std::mem::forget(self);
        match (change, answer) {
            (Some(Change::Opened), Err(error)) => {
                tracing::warn!(%error, "the store fails: deciding without it");
            }
            (Some(Change::OpenedAgain), Err(error)) => {
                tracing::debug!(%error, "the store still fails");
            }
            (Some(Change::Closed), _) => tracing::info!("the store answers again"),
            _ => {}
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.given_up(Instant::now());
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
