//! How many connections a listener accepts, and how many requests may wait there in queues.

use crate::document::Problems;
use crate::document::reading::{Fields, number};

/// Maximum numbers of connections of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all.
    pub max_connections: usize,
    /// Of one address that is not a trusted proxy's; 0 for any number.
    pub per_address: usize,
}

/// Maximum numbers of requests that wait in the queues of leaky buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingLimits {
    /// In all; `None`: half as many as there may be connections.
    pub max_waiting: Option<usize>,
    /// Of one address; 0 for any number.
    pub per_address: usize,
}

impl ConnectionLimits {
    /// Reads `max_connections` and `connections_per_address`.
    pub(super) fn read(fields: &Fields<'_>, default: Self, problems: &mut Problems) -> Self {
        Self {
            max_connections: count(fields, "max_connections", 10, problems)
                .unwrap_or(default.max_connections),
            per_address: count(fields, "connections_per_address", 0, problems)
                .unwrap_or(default.per_address),
        }
    }

    /// The same with at most this many connections. The share that one address may have stays the same.
    #[must_use]
    pub fn within(self, max_connections: usize) -> Self {
        if max_connections >= self.max_connections {
            return self;
        }
        let share = self.per_address.saturating_mul(max_connections) / self.max_connections.max(1);
        Self {
            max_connections,
            // 0 would be any number.
            per_address: share.max(usize::from(self.per_address > 0)),
        }
    }
}

impl WaitingLimits {
    /// Reads `max_waiting` and `waiting_per_address`.
    pub(super) fn read(fields: &Fields<'_>, default: Self, problems: &mut Problems) -> Self {
        Self {
            max_waiting: count(fields, "max_waiting", 1, problems).or(default.max_waiting),
            per_address: count(fields, "waiting_per_address", 0, problems)
                .unwrap_or(default.per_address),
        }
    }

    /// How many requests may wait in all at a listener with so many connections.
    #[must_use]
    pub fn max_waiting_with(self, max_connections: usize) -> usize {
        self.max_waiting.unwrap_or(max_connections / 2)
    }
}

fn count(
    fields: &Fields<'_>,
    name: &'static str,
    least: u64,
    problems: &mut Problems,
) -> Option<usize> {
    let count = fields.optional(name, problems, number(least..=10_000_000))?;
    Some(usize::try_from(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_connections_leave_an_address_the_same_share() {
        let limits = ConnectionLimits {
            max_connections: 10_000,
            per_address: 1_000,
        };
        assert_eq!(limits.within(20_000), limits);
        assert_eq!(limits.within(500).per_address, 50);
        assert_eq!(limits.within(5).per_address, 1);
        let unbounded = ConnectionLimits {
            per_address: 0,
            ..limits
        };
        assert_eq!(unbounded.within(500).per_address, 0);
    }
}
