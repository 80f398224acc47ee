//! The clients that are denied most often at the moment, in bounded memory.
//!
//! Denials are counted for this minute and the one before, in shards of a few entries each (the space-saving sketch): a client without an
//! entry replaces the one with the fewest denials and inherits its count, which may be too high. So a client that is denied often is
//! always found, and the error of its count is known.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::time::Duration;

use foldhash::fast::FixedState;
use parking_lot::Mutex;
use quanta::Instant;
use serde::Serialize;
use tollgate::{MatchedRules, Name};
use tollgate_config::text::escaped;

const WINDOW: Duration = Duration::from_secs(60);
const SHARDS: usize = 16;
/// Maximum number of clients in a shard and window.
const MAX_PER_SHARD: usize = 64;
const MAX_NAME_CHARS: usize = 80;
/// Maximum number of clients in a report.
pub(crate) const MAX_REPORTED: usize = 100;

#[derive(Debug)]
pub(crate) struct TopDenied {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    began: Instant,
}

#[derive(Debug, Default)]
struct Shard {
    window: u64,
    current: Sketch,
    previous: Sketch,
}

/// Clients by a keyed hash of their name and rule.
type Sketch = HashMap<u64, DeniedClient, FixedState>;

/// The clients that were denied most often in the last one or two minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TopReport {
    /// The seconds that the report covers.
    pub(crate) seconds: u64,
    /// The most often denied first.
    pub(crate) clients: Vec<DeniedClient>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DeniedClient {
    /// Its name, escaped.
    pub(crate) client: String,
    pub(crate) rule: &'static str,
    /// Number of denials, at most.
    pub(crate) denied: u64,
    /// By how much that may be too high.
    pub(crate) uncertain: u64,
}

impl Default for TopDenied {
    fn default() -> Self {
        Self {
            shards: Default::default(),
            hasher: RandomState::new(),
            began: Instant::now(),
        }
    }
}

impl TopDenied {
    pub(crate) fn count(&self, met: &MatchedRules<'_>, rule: Name) {
        match (met.client(), met.ip()) {
            (Some(client), _) => self.count_client(client, rule, self.window()),
            (None, Some(ip)) => self.count_client(&format!("ip:{ip}"), rule, self.window()),
            // The counters of the rule have all clients together.
            (None, None) => {}
        }
    }

    fn count_client(&self, client: &str, rule: Name, window: u64) {
        let mut hasher = self.hasher.build_hasher();
        rule.hash(&mut hasher);
        // The rule's hash has a fixed length, so no separator is needed.
        hasher.write(client.as_bytes());
        let identity = hasher.finish();
        let shard = &self.shards[usize::from(identity.to_le_bytes()[7]) % SHARDS];
        let mut shard = shard.lock();
        shard.turn_to(window);
        count_in(&mut shard.current, identity, client, rule.as_str());
    }

    pub(crate) fn report(&self, max: usize) -> TopReport {
        self.report_at(self.window(), max)
    }

    fn report_at(&self, window: u64, max: usize) -> TopReport {
        let mut clients: Vec<DeniedClient> = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.turn_to(window);
            clients.extend(shard.both_windows());
        }
        clients.sort_unstable_by(|one, other| {
            let by_count = other.denied.cmp(&one.denied);
            by_count.then_with(|| (one.rule, &one.client).cmp(&(other.rule, &other.client)))
        });
        clients.truncate(max.min(MAX_REPORTED));
        let since = WINDOW.as_secs() * window.saturating_sub(1);
        TopReport {
            seconds: self.began.elapsed().as_secs().saturating_sub(since),
            clients,
        }
    }

    fn window(&self) -> u64 {
        self.began.elapsed().as_secs() / WINDOW.as_secs()
    }
}

impl Shard {
    fn turn_to(&mut self, window: u64) {
        if window <= self.window {
            return;
        }
        let last = std::mem::take(&mut self.current);
        self.previous = match window - self.window {
            1 => last,
            _ => Sketch::default(),
        };
        self.window = window;
    }

    /// All clients, with the counts of both windows.
    fn both_windows(&self) -> Vec<DeniedClient> {
        let mut both = self.previous.clone();
        for (identity, client) in &self.current {
            both.entry(*identity)
                .and_modify(|known| {
                    known.denied += client.denied;
                    known.uncertain += client.uncertain;
                })
                .or_insert_with(|| client.clone());
        }
        both.into_values().collect()
    }
}

fn count_in(sketch: &mut Sketch, identity: u64, client: &str, rule: &'static str) {
    if let Some(known) = sketch.get_mut(&identity) {
        known.denied += 1;
        return;
    }
    let mut inherited = 0;
    if sketch.len() >= MAX_PER_SHARD {
        let fewest = sketch.iter().min_by_key(|(_, known)| known.denied);
        if let Some((fewest, denied)) = fewest.map(|(identity, known)| (*identity, known.denied)) {
            sketch.remove(&fewest);
            inherited = denied;
        }
    }
    let client = DeniedClient {
        client: escaped(client, MAX_NAME_CHARS),
        rule,
        denied: inherited + 1,
        uncertain: inherited,
    };
    sketch.insert(identity, client);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Name {
        Name::new("client").unwrap()
    }

    #[test]
    fn a_client_denied_often_is_found_among_many() {
        let top = TopDenied::default();
        for n in 0..100_000 {
            top.count_client(&format!("client-{n}"), rule(), 0);
            if n % 20 == 0 {
                top.count_client("greedy", rule(), 0);
            }
        }
        let most = top.report_at(0, 1_000);
        assert_eq!(most.clients.len(), MAX_REPORTED);
        let greedy = most.clients.iter().find(|denied| denied.client == "greedy");
        let greedy = greedy.expect("5,000 denials of one client");
        assert!(
            greedy.denied >= 5_000 && greedy.denied - greedy.uncertain <= 5_000,
            "{greedy:?}"
        );
        let kept: usize = top
            .shards
            .iter()
            .map(|shard| shard.lock().current.len())
            .sum();
        assert!(kept <= SHARDS * MAX_PER_SHARD);
    }

    #[test]
    fn denials_before_the_last_window_are_forgotten() {
        let top = TopDenied::default();
        top.count_client("a", rule(), 0);
        top.count_client("a", rule(), 1);
        let denied = |window| {
            top.report_at(window, 10)
                .clients
                .first()
                .map(|most| most.denied)
        };
        assert_eq!(denied(1), Some(2));
        assert_eq!(denied(2), Some(1));
        assert_eq!(denied(3), None);
        top.count_client("b", rule(), 3);
        top.count_client("b", rule(), 9);
        assert_eq!(denied(9), Some(1));
    }

    #[test]
    fn names_are_escaped_and_cut() {
        let top = TopDenied::default();
        top.count_client(
            &format!("evil\n\"}} 1\u{202e}{}", "x".repeat(500)),
            rule(),
            0,
        );
        let name = &top.report_at(0, 1).clients[0].client;
        assert!(
            name.starts_with(r#"evil\n"} 1\u{202e}xx"#) && name.chars().count() <= 80,
            "{name}"
        );
    }
}
