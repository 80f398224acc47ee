//! A violation, the bucket and second that it belongs to, and the row that it becomes.

use std::hash::{BuildHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::time::SystemTime;

use tollgate::Source;
use tollgate_config::text::{escaped, push_escaped};

use crate::database::ViolationRow;
use crate::time::unix_micros;

/// A denial. Texts are those of the client; they are escaped and cut before they are stored.
#[derive(Clone, Copy, Debug)]
pub struct Violation<'a> {
    /// The rule that denied.
    pub rule: &'a str,
    /// The dimensions and values that identify the bucket, such as `[("client", "merchant_123"), ("route", "/v1/charges/{id}")]`.
    pub per: &'a [(&'a str, &'a str)],
    /// The client's plan.
    pub plan: Option<&'a str>,
    /// The client.
    pub client: Option<&'a str>,
    /// The client's address.
    pub ip: Option<IpAddr>,
    /// The HTTP method.
    pub method: Option<&'a str>,
    /// The route's pattern.
    pub route: Option<&'a str>,
    /// When it was denied.
    pub at: SystemTime,
    /// Whole tokens left.
    pub remaining: u64,
    /// The cost of the request.
    pub cost: u64,
    /// Where the decision came from.
    pub source: Source,
    /// The generation of the rules.
    pub generation: u64,
}

/// Longer texts are cut.
const MAX_NAME: usize = 128;
const MAX_ROUTE: usize = 192;
const MAX_BUCKET: usize = 384;

/// Bytes of a text that identify a bucket, beside its length, so that clients cannot make a denial hash a megabyte.
const MAX_HASHED: usize = 256;

impl Violation<'_> {
    /// Identifies the bucket in this second. The hasher has a secret key, so clients cannot choose with whom they are folded.
    pub(super) fn identity(&self, second: i64, hasher: &impl BuildHasher) -> u64 {
        let mut state = hasher.build_hasher();
        let mut add = |text: &str| {
            let bytes = text.as_bytes();
            bytes.len().hash(&mut state);
            state.write(bytes.get(..MAX_HASHED).unwrap_or(bytes));
        };
        add(self.rule);
        for (dimension, value) in self.per {
            add(dimension);
            add(value);
        }
        second.hash(&mut state);
        state.finish()
    }

    /// The row of the first violation of a bucket and second.
    fn row(&self) -> ViolationRow {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let name = |text: &str| escaped(text, MAX_NAME);
        ViolationRow {
            at_us: unix_micros(self.at),
            rule: name(self.rule),
            plan: self.plan.map(name),
            bucket: self.bucket(),
            client: self.client.map(name),
            ip: self.ip.map(|ip| ip.to_canonical().to_string()),
            endpoint: self.endpoint(),
            remaining: number(self.remaining),
            cost: number(self.cost),
            count: 1,
            source: self.source.as_str().to_owned(),
            generation: number(self.generation),
            ..ViolationRow::default()
        }
    }

    fn bucket(&self) -> String {
        let mut name = String::with_capacity(64);
        push_escaped(&mut name, self.rule, MAX_NAME, true);
        for (dimension, value) in self.per {
            if name.len() >= MAX_BUCKET {
                name.push('…');
                break;
            }
            name.push(' ');
            push_escaped(&mut name, dimension, MAX_NAME, true);
            name.push('=');
            push_escaped(&mut name, value, MAX_NAME, true);
        }
        name
    }

    fn is_at(&self, stored: Option<&str>) -> bool {
        // Most need no escapes.
        let is_equal = match (stored, self.method, self.route) {
            (Some(stored), Some(method), Some(route)) => {
                let rest = stored.strip_prefix(method);
                rest.and_then(|rest| rest.strip_prefix(' ')) == Some(route)
            }
            _ => false,
        };
        is_equal || stored == self.endpoint().as_deref()
    }

    fn endpoint(&self) -> Option<String> {
        let method = self.method.map(|method| escaped(method, 32));
        let route = self.route.map(|route| escaped(route, MAX_ROUTE));
        match (method, route) {
            (Some(method), Some(route)) => Some(format!("{method} {route}")),
            (method, route) => method.or(route),
        }
    }
}

/// The violations of one bucket in one second.
#[derive(Debug)]
pub(super) struct Fold {
    row: ViolationRow,
    /// The address of the first. The row has it as text.
    ip: Option<IpAddr>,
}

impl Fold {
    pub(super) fn new(violation: &Violation<'_>) -> Self {
        Self {
            row: violation.row(),
            ip: violation.ip,
        }
    }

    /// Counts another violation, and marks what differs from the first: a bucket may be shared by many clients.
    pub(super) fn add(&mut self, violation: &Violation<'_>) {
        let row = &mut self.row;
        row.count = row.count.saturating_add(1);
        row.other_clients = row.other_clients || is_other(row.client.as_deref(), violation.client);
        row.other_ips = row.other_ips || self.ip != violation.ip;
        row.other_endpoints = row.other_endpoints || !violation.is_at(row.endpoint.as_deref());
    }

    /// Merges a fold of the same bucket and second. The earlier one stays, with the counts of both.
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

    pub(super) fn into_row(self, scope: &str) -> ViolationRow {
        ViolationRow {
            scope: scope.to_owned(),
            ..self.row
        }
    }
}

/// Whether a name differs from the stored one, which is escaped. Most need no escapes.
fn is_other(stored: Option<&str>, name: Option<&str>) -> bool {
    match (stored, name) {
        (Some(stored), Some(name)) => stored != name && stored != escaped(name, MAX_NAME),
        (stored, name) => stored.is_some() != name.is_some(),
    }
}
