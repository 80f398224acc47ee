//! By the host.

use super::value::ByValue;
use super::{Finder, Table};
use crate::host::LONGEST_HOST;
use crate::request::Request;
use crate::rule::matching::{Host, Match};

#[derive(Clone, Debug, Default)]
pub(super) struct ByHost {
    any: ByValue,
    /// If some are for one.
    hosts: Option<Box<Hosts>>,
}

#[derive(Clone, Debug, Default)]
struct Hosts {
    exactly: Table<ByValue>,
    below: Table<ByValue>,
}

impl ByHost {
    pub(super) fn add(&mut self, number: u32, when: &Match) {
        let entries = match when.host_name() {
            None => &mut self.any,
            Some(host) => self.hosts.get_or_insert_default().of(host),
        };
        entries.add(number, when);
    }

    pub(super) fn search<'a>(&'a self, request: &Request<'_>, finder: &mut impl Finder<'a>) {
        self.any.search(request, finder);
        if let Some(hosts) = &self.hosts
            && let Some(host) = request.host_name()
        {
            hosts.search(host, request, finder);
        }
    }

    pub(super) fn most(&self) -> usize {
        self.any.most() + self.hosts.as_ref().map_or(0, |hosts| hosts.most())
    }
}

impl Hosts {
    fn of(&mut self, host: &Host) -> &mut ByValue {
        match host {
            Host::Exactly(name) => self.exactly.entry(name.clone()).or_default(),
            Host::Below(name) => self.below.entry(name.clone()).or_default(),
        }
    }

    fn search<'a>(&'a self, host: &str, request: &Request<'_>, finder: &mut impl Finder<'a>) {
        if let Some(entries) = self.exactly.get(host) {
            entries.search(request, finder);
        }
        if !self.below.is_empty() {
            for entries in above(host).filter_map(|name| self.below.get(name)) {
                entries.search(request, finder);
            }
        }
    }

    fn most(&self) -> usize {
        let exactly = self.exactly.values().map(ByValue::most).max().unwrap_or(0);
        let chain = |name: &str| {
            let parents = above(name).filter_map(|name| self.below.get(name));
            parents.map(ByValue::most).sum::<usize>()
        };
        let below = (self.below.iter())
            .map(|(name, entries)| entries.most() + chain(name))
            .max();
        exactly + below.unwrap_or(0)
    }
}

/// The names that a host lies below: `b.c` and `c`, of `a.b.c`. Those that are longer than any rule's are left out, because a client may
/// send a name of thousands of parts.
fn above(host: &str) -> impl Iterator<Item = &str> {
    let skipped = host.len().saturating_sub(LONGEST_HOST + 1);
    let mut bytes = host.bytes().skip(skipped);
    let dot = bytes.position(|byte| byte == b'.');
    let longest = dot.and_then(|dot| host.get(skipped + dot + 1..));
    std::iter::successors(longest, |name| name.split_once('.').map(|(_, name)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_many_parts_is_looked_up_in_few_steps() {
        assert_eq!(above("a.b.c").collect::<Vec<_>>(), ["b.c", "c"]);
        assert_eq!(above("a").count() + above("").count(), 0);
        assert_eq!(above("é.c.").collect::<Vec<_>>(), ["c.", ""]);
        let long = format!("{}example.com", "é.".repeat(100_000));
        assert!(above(&long).count() < 130, "{}", above(&long).count());
        assert!(above(&long).any(|name| name == "example.com"));
        // As long as a name in a rule may be.
        let longest = "x".repeat(LONGEST_HOST);
        let below = format!("a.{longest}");
        assert_eq!(above(&below).collect::<Vec<_>>(), [&longest]);
    }
}
