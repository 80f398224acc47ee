//! The clients that are denied most often at the moment: a bounded list, whatever comes.
//!
//! Counts are kept for a minute and then for another one, in shards of a few hundred entries each (the space-saving sketch): a client that
//! is not there takes the place of the one with the fewest denials, with that one's count, which it may have too many. So whoever is denied
//! often is in the list for sure, and how far its count may be off is said.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hash as _, Hasher, RandomState};
use std::time::Duration;

use parking_lot::Mutex;
use quanta::Instant;
use serde::Serialize;
use tollgate::{MatchedRules, Name};

use tollgate_config::text::escaped;

/// How long a window is.
const WINDOW: Duration = Duration::from_secs(60);
const SHARDS: usize = 16;
/// Clients in one shard and window.
const MOST_PER_SHARD: usize = 64;
/// The longest name that is shown.
const LONGEST_NAME: usize = 80;
/// The most that anybody is shown.
pub(crate) const MOST_SHOWN: usize = 100;

/// Who is denied most often.
#[derive(Debug)]
pub struct Top {
    shards: [Mutex<Shard>; SHARDS],
    hasher: RandomState,
    began: Instant,
}

#[derive(Debug, Default)]
struct Shard {
    /// The number of the window that `now` counts.
    window: u64,
    now: Sketch,
    before: Sketch,
}

#[derive(Debug, Default)]
struct Sketch(HashMap<u64, Entry, BuildHasherDefault<Hashed>>);

/// For what is a keyed hash already.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[derive(Clone, Debug)]
struct Entry {
    rule: Name,
    client: String,
    denied: u64,
    over: u64,
}

/// A list of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopClients {
    /// How many seconds it is about, up to now.
    pub seconds: u64,
    /// The most often denied first.
    pub clients: Vec<Denied>,
}

/// A client that was denied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denied {
    /// Its name, escaped.
    pub client: String,
    /// The rule that denied it.
    pub rule: String,
    /// How often, at the most.
    pub denied: u64,
    /// By how much that may be too many.
    pub uncertain: u64,
}

impl Default for Top {
    fn default() -> Self {
        Self {
            shards: Default::default(),
            hasher: RandomState::new(),
            began: Instant::now(),
        }
    }
}

impl Top {
    /// Somebody was denied by this rule.
    pub(crate) fn count(&self, met: &MatchedRules<'_>, rule: Name) {
        match (met.client(), met.ip()) {
            (Some(client), _) => self.count_client(client, rule, self.window()),
            (None, Some(ip)) => self.count_client(&format!("ip:{ip}"), rule, self.window()),
            // Everybody together is in the rule's own figures.
            (None, None) => {}
        }
    }

    fn count_client(&self, client: &str, rule: Name, window: u64) {
        let mut hasher = self.hasher.build_hasher();
        rule.hash(&mut hasher);
        // The rule is as long each time, so nothing need stand between it and the name.
        hasher.write(client.as_bytes());
        let identity = hasher.finish();
        let shard = &self.shards[usize::from(identity.to_le_bytes()[7]) % SHARDS];
        let mut shard = shard.lock();
        shard.turn_to(window);
        shard.now.count(identity, rule, client);
    }

    /// The clients that were denied most often in this window and the one before.
    #[must_use]
    pub fn most(&self, most: usize) -> TopClients {
        self.most_in(self.window(), most)
    }

    fn most_in(&self, window: u64, most: usize) -> TopClients {
        let mut all: Vec<Entry> = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.turn_to(window);
            all.extend(shard.both());
        }
        all.sort_unstable_by(|one, other| {
            let by_count = other.denied.cmp(&one.denied);
            by_count.then_with(|| (one.rule, &one.client).cmp(&(other.rule, &other.client)))
        });
        all.truncate(most.min(MOST_SHOWN));
        let since = WINDOW.as_secs() * window.saturating_sub(1);
        TopClients {
            seconds: self.began.elapsed().as_secs().saturating_sub(since),
            clients: all.into_iter().map(Entry::shown).collect(),
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
        let last = std::mem::take(&mut self.now);
        self.before = match window - self.window {
            1 => last,
            _ => Sketch::default(),
        };
        self.window = window;
    }

    /// Everybody, with the counts of both windows together.
    fn both(&self) -> Vec<Entry> {
        let mut both = self.before.0.clone();
        for (identity, entry) in &self.now.0 {
            let known = both.entry(*identity);
            let known = known.or_insert_with(|| Entry {
                denied: 0,
                over: 0,
                ..entry.clone()
            });
            known.denied += entry.denied;
            known.over += entry.over;
        }
        both.into_values().collect()
    }
}

impl Sketch {
    fn count(&mut self, identity: u64, rule: Name, client: &str) {
        if let Some(entry) = self.0.get_mut(&identity) {
            entry.denied += 1;
            return;
        }
        let mut over = 0;
        if self.0.len() >= MOST_PER_SHARD {
            let fewest = self.0.iter().min_by_key(|(_, entry)| entry.denied);
            if let Some((fewest, denied)) =
                fewest.map(|(identity, entry)| (*identity, entry.denied))
            {
                self.0.remove(&fewest);
                over = denied;
            }
        }
        let entry = Entry {
            rule,
            client: escaped(client, LONGEST_NAME),
            denied: over + 1,
            over,
        };
        self.0.insert(identity, entry);
    }
}

impl Entry {
    fn shown(self) -> Denied {
        Denied {
            client: self.client,
            rule: self.rule.as_str().to_owned(),
            denied: self.denied,
            uncertain: self.over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Name {
        Name::new("client").unwrap()
    }

    #[test]
    fn who_is_denied_often_is_found_among_very_many() {
        let top = Top::default();
        for n in 0..100_000 {
            top.count_client(&format!("client-{n}"), rule(), 0);
            if n % 20 == 0 {
                top.count_client("greedy", rule(), 0);
            }
        }
        let most = top.most_in(0, 1_000);
        assert_eq!(most.clients.len(), MOST_SHOWN);
        let greedy = most.clients.iter().find(|denied| denied.client == "greedy");
        let greedy = greedy.expect("5,000 denials of one client");
        assert!(
            greedy.denied >= 5_000 && greedy.denied - greedy.uncertain <= 5_000,
            "{greedy:?}"
        );
        let kept: usize = top
            .shards
            .iter()
            .map(|shard| shard.lock().now.0.len())
            .sum();
        assert!(kept <= SHARDS * MOST_PER_SHARD);
    }

    #[test]
    fn what_is_long_past_is_forgotten() {
        let top = Top::default();
        top.count_client("a", rule(), 0);
        top.count_client("a", rule(), 1);
        let denied = |window| {
            top.most_in(window, 10)
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
        let top = Top::default();
        top.count_client(
            &format!("evil\n\"}} 1\u{202e}{}", "x".repeat(500)),
            rule(),
            0,
        );
        let name = &top.most_in(0, 1).clients[0].client;
        assert!(
            name.starts_with(r#"evil\n"} 1\u{202e}xx"#) && name.chars().count() <= 80,
            "{name}"
        );
    }
}
