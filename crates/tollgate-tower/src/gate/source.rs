//! Where the policy of the moment comes from.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tollgate::{Limiter, RuleSet};

use crate::identity::{Clients, Identity};
use crate::policy::Policy;

/// Has the policy of the moment. A closure that returns it will do.
pub trait PolicySource: Send + Sync {
    /// The policy by which the next request is decided, as a whole.
    fn policy(&self) -> Arc<Policy>;
}

impl<F: Fn() -> Arc<Policy> + Send + Sync> PolicySource for F {
    fn policy(&self) -> Arc<Policy> {
        self()
    }
}

/// Always the same.
pub(crate) struct Fixed(pub(crate) Arc<Policy>);

impl PolicySource for Fixed {
    fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.0)
    }
}

/// The limiter's own rules, which may change, for callers who are found in one way.
pub(crate) struct HeldRules {
    limiter: Arc<Limiter>,
    identity: Identity,
    clients: Clients,
    /// Made of these rules.
    made: ArcSwap<(Arc<RuleSet>, Arc<Policy>)>,
}

impl HeldRules {
    pub(crate) fn new(limiter: Arc<Limiter>, identity: Identity, clients: Clients) -> Self {
        let rules = limiter.rules();
        let policy = Policy::new((*rules).clone(), identity.clone(), clients.clone());
        Self {
            limiter,
            identity,
            clients,
            made: ArcSwap::from_pointee((rules, Arc::new(policy))),
        }
    }

    /// Two may do this at once: both are right.
    #[cold]
    fn make(&self, rules: Arc<RuleSet>) -> Arc<Policy> {
        let (identity, clients) = (self.identity.clone(), self.clients.clone());
        let policy = Arc::new(Policy::new((*rules).clone(), identity, clients));
        self.made.store(Arc::new((rules, Arc::clone(&policy))));
        policy
    }
}

impl PolicySource for HeldRules {
    fn policy(&self) -> Arc<Policy> {
        let rules = self.limiter.rules();
        let made = self.made.load();
        match Arc::ptr_eq(&made.0, &rules) {
            true => Arc::clone(&made.1),
            false => self.make(rules),
        }
    }
}
