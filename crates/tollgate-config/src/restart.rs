//! What of a changed configuration waits for the next start: doors, stores and connections are made once.

use super::config::Config;
use super::store::StoreConfig;

impl Config {
    /// The sections that `next` has otherwise and that count at the next start only.
    #[must_use]
    pub fn waiting_for_a_start(&self, next: &Self) -> Vec<&'static str> {
        let sections = [
            ("gateway", self.gateway != next.gateway),
            ("service", self.service != next.service),
            ("admin", self.admin != next.admin),
            ("store", is_other_store(&self.store, &next.store)),
            ("database", self.database != next.database),
            ("audit", is_other(&self.audit, &next.audit)),
            ("log", self.log != next.log),
            ("traces", self.traces != next.traces),
            ("shutdown_delay", self.shutdown_delay != next.shutdown_delay),
        ];
        let changed = sections.into_iter().filter(|(_, is_other)| *is_other);
        changed.map(|(section, _)| section).collect()
    }
}

/// What is shown of an address hides its password, and that may be what changed.
fn is_other_store(one: &StoreConfig, next: &StoreConfig) -> bool {
    let url = |store: &StoreConfig| match store {
        StoreConfig::Memory(_) => None,
        StoreConfig::Redis(redis) => Some(redis.url.clone()),
    };
    url(one) != url(next) || is_other(one, next)
}

/// Plain figures, whose `Debug` shows all of them.
fn is_other(one: &impl std::fmt::Debug, next: &impl std::fmt::Debug) -> bool {
    format!("{one:?}") != format!("{next:?}")
}
