//! A violation as it is noted, which bucket and second it belongs to, and the row it becomes.

use std::hash::{BuildHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use tollgate::Source;

use tollgate_config::text::{escaped, push_escaped};

use crate::database::ViolationRow;

/// A denial, in the words of whoever was denied: everything is escaped and cut before it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Violation<'a> {
    /// The rule that denied.
    pub rule: &'a str,
    /// The values that name the rule's bucket, as in `[("client", "merchant_123"), ("route", "/v1/charges/{id}")]`.
    pub per: &'a [(&'a str, &'a str)],
    /// The caller's plan.
    pub plan: Option<&'a str>,
    /// The caller.
    pub client: Option<&'a str>,
    /// The caller's address.
    pub ip: Option<IpAddr>,
    /// The HTTP method.
    pub method: Option<&'a str>,
    /// The route's pattern.
    pub route: Option<&'a str>,
    /// When it was denied.
    pub at: SystemTime,
    /// Whole tokens that were left.
    pub remaining: u64,
    /// What it would have cost.
    pub cost: u64,
    /// Who decided.
    pub source: Source,
    /// The generation of the rules that decided.
    pub generation: u64,
}

/// The most characters that are kept of each text.
const MOST_NAME: usize = 128;
const MOST_ENDPOINT: usize = 192;
const MOST_BUCKET: usize = 384;

/// Bytes of a text that tell buckets apart, beside its length: nobody can make us read a megabyte per denial.
const MOST_HASHED: usize = 256;

impl Violation<'_> {
    pub(super) fn at_us(&self) -> i64 {
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    /// Names the bucket in this second. The hasher has a secret key, so nobody can choose who is folded with whom.
    pub(super) fn identity(&self, second: i64, hasher: &impl BuildHasher) -> u64 {
        let mut state = hasher.build_hasher();
        let mut add = |text: &str| {
            let bytes = text.as_bytes();
            bytes.len().hash(&mut state);
            state.write(bytes.get(..MOST_HASHED).unwrap_or(bytes));
        };
        add(self.rule);
        for (dimension, value) in self.per {
            add(dimension);
            add(value);
        }
        second.hash(&mut state);
        state.finish()
    }

    /// The row of the first of its bucket and second.
    fn row(&self) -> ViolationRow {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let name = |text: &str| escaped(text, MOST_NAME);
        ViolationRow {
            at_us: self.at_us(),
            scope: String::new(),
            rule: name(self.rule),
            plan: self.plan.map(name),
            bucket: self.bucket(),
            client: self.client.map(name),
            ip: self.ip.map(|ip| ip.to_canonical().to_string()),
            endpoint: self.endpoint(),
            remaining: number(self.remaining),
            cost: number(self.cost),
            count: 1,
            other_clients: false,
            other_ips: false,
            other_endpoints: false,
            source: self.source.as_str().to_owned(),
            generation: number(self.generation),
        }
    }

    fn bucket(&self) -> String {
        let mut name = String::with_capacity(64);
        push_escaped(&mut name, self.rule, MOST_NAME, true);
        for (dimension, value) in self.per {
            if name.len() >= MOST_BUCKET {
                name.push('…');
                break;
            }
            name.push(' ');
            push_escaped(&mut name, dimension, MOST_NAME, true);
            name.push('=');
            push_escaped(&mut name, value, MOST_NAME, true);
        }
        name
    }

    /// Whether this is what a row has as its endpoint.
    fn is_at(&self, stored: Option<&str>) -> bool {
        // Most are stored as they came.
        let plain = match (stored, self.method, self.route) {
            (Some(stored), Some(method), Some(route)) => {
                let rest = stored.strip_prefix(method);
                rest.and_then(|rest| rest.strip_prefix(' ')) == Some(route)
            }
            _ => false,
        };
        plain || stored == self.endpoint().as_deref()
    }

    fn endpoint(&self) -> Option<String> {
        let method = self.method.map(|method| escaped(method, 32));
        let route = self.route.map(|route| escaped(route, MOST_ENDPOINT));
        match (method, route) {
            (Some(method), Some(route)) => Some(format!("{method} {route}")),
            (method, route) => method.or(route),
        }
    }
}

/// What was denied so far in one bucket in one second.
#[derive(Debug)]
pub(super) struct Fold {
    row: ViolationRow,
    /// Of the first; the row has it as text.
    ip: Option<IpAddr>,
}

impl Fold {
    /// With one violation.
    pub(super) fn of(violation: &Violation<'_>) -> Self {
        Self {
            row: violation.row(),
            ip: violation.ip,
        }
    }

    /// Counts one more, and notes what differs from the first: a bucket may be shared by many clients.
    pub(super) fn add(&mut self, violation: &Violation<'_>) {
        let row = &mut self.row;
        row.count = row.count.saturating_add(1);
        row.other_clients = row.other_clients || is_other(row.client.as_deref(), violation.client);
        row.other_ips = row.other_ips || self.ip != violation.ip;
        row.other_endpoints = row.other_endpoints || !violation.is_at(row.endpoint.as_deref());
    }

    /// Makes one of two of the same bucket and second: the one that came first, with the counts of both.
    pub(super) fn merge(&mut self, mut other: Self) {
        if other.row.at_us < self.row.at_us {
            std::mem::swap(self, &mut other);
        }
        let (row, other) = (&mut self.row, other.row);
        row.count = row.count.saturating_add(other.count);
        row.other_clients |= other.other_clients || row.client != other.client;
        row.other_ips |= other.other_ips || row.ip != other.ip;
        row.other_endpoints |= other.other_endpoints || row.endpoint != other.endpoint;
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> i64 {
        self.row.count
    }

    pub(super) fn into_row(self) -> ViolationRow {
        self.row
    }
}

/// Whether a name is another than the stored one, which is escaped; most are stored as they came.
fn is_other(stored: Option<&str>, name: Option<&str>) -> bool {
    match (stored, name) {
        (Some(stored), Some(name)) => stored != name && stored != escaped(name, MOST_NAME),
        (stored, name) => stored.is_some() != name.is_some(),
    }
}
