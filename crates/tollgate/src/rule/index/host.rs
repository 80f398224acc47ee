//! By the host.

use super::value::ByValue;
use super::{Finder, Table};
use crate::request::Request;
use crate::rule::matching::{Host, Match};

#[derive(Clone, Debug, Default)]
pub(super) struct ByHost {
    any: ByValue,
    exactly: Table<ByValue>,
    below: Table<ByValue>,
}

impl ByHost {
    pub(super) fn add(&mut self, number: u32, when: &Match) {
        let entries = match when.host_name() {
            None => &mut self.any,
            Some(Host::Exactly(name)) => self.exactly.entry(name.clone()).or_default(),
            Some(Host::Below(name)) => self.below.entry(name.clone()).or_default(),
        };
        entries.add(number, when);
    }

    pub(super) fn search<'a>(&'a self, request: &Request<'_>, finder: &mut impl Finder<'a>) {
        self.any.search(request, finder);
        if self.exactly.is_empty() && self.below.is_empty() {
            return;
        }
        let Some(host) = request.host_name() else {
            return;
        };
        if let Some(entries) = self.exactly.get(host) {
            entries.search(request, finder);
        }
        if !self.below.is_empty() {
            for entries in above(host).filter_map(|name| self.below.get(name)) {
                entries.search(request, finder);
            }
        }
    }

    pub(super) fn most(&self) -> usize {
        let exactly = self.exactly.values().map(ByValue::most).max().unwrap_or(0);
        let chain = |name: &str| {
            let parents = above(name).filter_map(|name| self.below.get(name));
            parents.map(ByValue::most).sum::<usize>()
        };
        let below = (self.below.iter())
            .map(|(name, entries)| entries.most() + chain(name))
            .max();
        self.any.most() + exactly + below.unwrap_or(0)
    }
}

/// The names that a host lies below: `b.c` and `c`, of `a.b.c`.
fn above(host: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(host.split_once('.'), |(_, name)| name.split_once('.'))
        .map(|(_, name)| name)
}
